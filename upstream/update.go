package upstream

import (
	"context"
	"slices"
	"sync"
	"time"

	"toolfinch/internal/leeway"
)

// members are the servers of a pool at one moment. They are replaced, never edited.
type members struct {
	order  []*server
	byName map[string]*server
}

// watcher is a Watch that runs.
type watcher struct {
	ctx     context.Context
	changes chan<- Change
	work    sync.WaitGroup // one for each server that is or was watched
}

// Update makes settings the servers of the pool, in this order; of several with
// one name the first counts. It waits for no server. known is what is remembered
// of servers, by name; without it a changed one's own past counts.
//
// A server whose settings are the same goes on untouched, as does one of which
// only Description, Prefix, Validate, CallTimeout, CallTimeoutTotal or AskTimeout is
// another, which counts from the next call on. Any other change makes the server anew:
// subscriptions and log levels are its successor's, new calls go to that, and
// those that run have 10 s to end on the old connections. The same is true of a
// removed server, new calls of which fail with ErrUnknownServer.
//
// While Watch runs, new and changed servers are watched too. A Change of a
// removed server may still be on its way when Update returns; none of a server's
// past comes after one of its successor. A closed pool stays as it is.
func (p *Pool) Update(settings []Settings, known map[string]Known) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life.Err() != nil {
		return
	}
	was := p.now.Load()
	next := &members{byName: make(map[string]*server, len(settings))}
	kept := make(map[*server]bool, len(settings))
	before := map[*server]*server{} // of those that are new: whom to watch no more first
	for _, s := range settings {
		if next.byName[s.Name] != nil {
			continue
		}
		s = s.complete()
		one := was.byName[s.Name]
		if one != nil && one.settings.dialsLike(s) {
			one.adjust(s)
			kept[one] = true
		} else {
			old := one
			one = p.successor(old, s, known)
			before[one] = p.predecessor(old, s.Name)
		}
		next.order = append(next.order, one)
		next.byName[s.Name] = one
	}
	for _, one := range was.order {
		if !kept[one] {
			p.dismiss(one)
		}
	}
	p.now.Store(next)
	if p.watcher != nil {
		for one, old := range before {
			p.watcher.begin(one, old)
		}
	}
}

// successor makes a server that takes the place of old, nil for none. Lock held.
func (p *Pool) successor(old *server, s Settings, known map[string]Known) *server {
	remembered, ok := known[s.Name]
	if old != nil {
		old.uses.retire() // before its state is taken over: afterwards it gets no other
		if !ok {
			remembered = old.known()
		}
	}
	one := newServer(p, s, remembered)
	if old != nil {
		one.inherit(old)
	}
	one.levels.set(p.level)
	return one
}

// predecessor is the last server of a name that was watched, nil for none: the
// current one, or one that left just before. Lock held.
func (p *Pool) predecessor(current *server, name string) *server {
	if current != nil {
		return current
	}
	for _, gone := range slices.Backward(p.leaving) {
		if gone.settings.Name == name {
			return gone
		}
	}
	return nil
}

// dismiss closes a server once nothing uses it any more. Lock held.
func (p *Pool) dismiss(old *server) {
	old.uses.retire()
	p.leaving = append(p.leaving, old)
	p.work.Go(func() {
		patience := time.NewTimer(leeway.Of(finishWithin))
		defer patience.Stop()
		select {
		case <-old.uses.vacant:
		case <-patience.C:
			old.log.Warn("calls did not end in time on a server that was removed or changed", "waited", finishWithin)
		case <-old.life.Done(): // the pool is being closed
		}
		old.close()
		old.uses.watching.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.leaving = slices.DeleteFunc(p.leaving, func(one *server) bool { return one == old })
	})
}

// begin watches a server once the one before it, nil for none, is not watched
// any more: its word could come last otherwise. The pool's lock is held.
func (w *watcher) begin(s, before *server) {
	s.uses.watching.Add(1)
	w.work.Go(func() {
		defer s.uses.watching.Done()
		if before != nil {
			before.uses.watching.Wait()
		}
		ctx, cancel := context.WithCancel(w.ctx)
		defer cancel()
		defer context.AfterFunc(s.uses.term, cancel)()
		s.supervisor.watch(ctx, w.changes)
	})
}

// barrier returns once no Update runs that began before.
func (p *Pool) barrier() {
	p.mu.Lock()
	defer p.mu.Unlock()
}

// enter returns the server of a name for one use, which exit ends; nil when
// there is none.
func (p *Pool) enter(name string) *server {
	for {
		s := p.now.Load().byName[name]
		if s == nil || s.uses.enter() {
			return s
		}
		p.barrier() // an Update is about to put another in its place
	}
}

// uses are the callers of the pool that use a server.
type uses struct {
	term   context.Context    // ends when another takes the server's place, or none does
	resign context.CancelFunc // of term
	vacant chan struct{}      // closed once the server is retired and has no uses

	watching sync.WaitGroup // the watch loop, if there is one

	mu      sync.Mutex // guards what follows; never held over I/O
	count   int
	retired bool // the term has ended
}

// enter begins a use of the server, unless it gets none any more.
func (u *uses) enter() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.retired {
		return false
	}
	u.count++
	return true
}

func (u *uses) exit() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.count--; u.count == 0 && u.retired {
		close(u.vacant)
	}
}

// retire sees to it that the server gets no new uses and is not watched. It may
// be called twice.
func (u *uses) retire() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.retired {
		return
	}
	u.retired = true
	u.resign()
	if u.count == 0 {
		close(u.vacant)
	}
}

func (u *uses) isRetired() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.retired
}
