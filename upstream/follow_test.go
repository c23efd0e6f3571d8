package upstream

import (
	"sync"
	"testing"

	"toolfinch/internal/await"
)

// office says who lists servers, and may change its mind.
type office struct {
	mu      sync.Mutex // guards what follows
	leads   bool
	changed chan struct{}
}

func (o *office) of(string) (leads bool, changed <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.changed == nil {
		o.changed = make(chan struct{})
	}
	return o.leads, o.changed
}

func (o *office) turn(leads bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.leads = leads
	if o.changed != nil {
		close(o.changed)
	}
	o.changed = make(chan struct{})
}

// A server that another process lists is connected and called, but not listed, until
// this process is to list it: over the same connection.
func TestAFollowerCallsAndDoesNotList(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{`"result":{"tools":[{"name":"a"}]}`, `"error":{"code":-32000,"message":"broken"}`} {
		l, o := newLister(t, answer), &office{}
		p := newPoolOf(t, Options{Leads: o.of}, Settings{Name: "s", URL: l.URL})
		changes, stop := watched(t, p)
		change := await.Value(t, changes)
		if !change.Followed || change.Outdated || change.Err != nil || change.Era != EraLegacy || change.Defs != nil {
			t.Errorf("a follower says %+v", change)
		}
		if _, err := ask(t, p, "s", "any"); err != nil {
			t.Errorf("a call: %v", err)
		}
		if state := p.Status()[0]; state.State != StateReady {
			t.Errorf("status = %s, %v", state.State, state.Err)
		}
		if change := p.Refresh(t.Context(), "s"); !change.Followed || !change.Outdated || change.Err != nil {
			t.Errorf("a refresh says %+v", change) // whoever asks for it wants what the server has now
		}
		if n := l.lists.Load(); n != 0 {
			t.Errorf("a follower has listed %d times", n)
		}
		inits := l.inits.Load()
		o.turn(true)
		change = await.Value(t, changes)
		if good := len(change.Defs) == 1; change.Followed || good == (change.Err != nil) {
			t.Errorf("the leader says %+v", change)
		}
		if change.Err != nil && p.Status()[0].State != StateFailed {
			t.Error("a leader that cannot list is not failed")
		}
		o.turn(false)
		await.True(t, func() bool { return await.Value(t, changes).Followed })
		if _, err := ask(t, p, "s", "any"); err != nil {
			t.Errorf("a call: %v", err)
		}
		if state := p.Status()[0]; state.State != StateReady {
			t.Errorf("after a call status = %s, %v", state.State, state.Err)
		}
		if l.inits.Load() != inits {
			t.Error("it was connected again")
		}
		stop()
	}
}

// A follower hears that lists have changed, and says so: the leader's own connection may
// be one that is not told.
func TestAFollowerSaysThatListsHaveChanged(t *testing.T) {
	t.Parallel()
	o := &office{}
	p := newPoolOf(t, Options{Leads: o.of}, lines(t, "s", ""))
	changes, _ := watched(t, p)
	if change := await.Value(t, changes); !change.Followed || change.Outdated {
		t.Errorf("at first it says %+v", change)
	}
	mustAsk(t, p, "s", "change", "")
	if change := await.Value(t, changes); !change.Followed || !change.Outdated {
		t.Errorf("after list_changed it says %+v", change)
	}
	p.Relist("s") // every replica hears what one says
	if len(p.now.Load().byName["s"].lists.due) != 0 {
		t.Error("a follower is asked for a list, and would say again that it has changed")
	}
	o.turn(true)
	if change := await.Value(t, changes); change.Followed || len(change.Defs) == 0 {
		t.Errorf("the leader says %+v", change)
	}
}
