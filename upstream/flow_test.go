package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/tool"
	"toolfinch/upstream/conn"
)

// withProgress is a call that asks for progress and gives it to heard.
func withProgress(heard func(params json.RawMessage)) *tool.Call {
	return &tool.Call{
		Params: json.RawMessage(`{"_meta":{"progressToken":"p"}}`),
		Notify: func(_ string, params json.RawMessage) { heard(params) },
	}
}

// A client that reads more slowly than the server writes gets everything, in
// order and before the answer: the server waits for it.
func TestAThousandNotificationsArriveBeforeTheAnswer(t *testing.T) {
	u := newPlainHTTP(t)
	u.calls["flood"] = func(w http.ResponseWriter, id string, params json.RawMessage) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 1000 {
			fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,\"progress\":%d}}\n\n",
				jsonMember(jsonMember(params, "_meta"), "progressToken"), i)
		}
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n\n", id)
	}
	over := u.settings()
	over.Name = "http"
	stdio := lines(t, "stdio", "")
	p := newPool(t, stdio, over)
	for _, s := range []Settings{stdio, over} {
		t.Run(s.Name, func(t *testing.T) {
			heard := 0
			_, err := p.Call(t.Context(), def(s.Name, "flood"), withProgress(func(params json.RawMessage) {
				if want := fmt.Sprintf(`{"progressToken":"p","progress":%d}`, heard); string(params) != want {
					t.Errorf("notification %d is %s", heard, params)
				}
				heard++
				runtime.Gosched()
			}))
			if err != nil || heard != 1000 {
				t.Errorf("%d of 1000 notifications, %v", heard, err)
			}
		})
	}
}

// A client that does not read at all costs the others of its connection a
// moment; what it does not get then is counted.
func TestAClientThatDoesNotReadStallsOthersForAMomentOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := lines(t, "s", "")
		s.CallTimeout = time.Minute
		p := newPool(t, s)
		read := make(chan struct{})
		var once sync.Once
		release := func() { once.Do(func() { close(read) }) }
		var slow sync.WaitGroup
		defer slow.Wait()
		defer release()
		mustAsk(t, p, "s", "raw", "hologram")
		slow.Go(func() {
			if _, err := p.Call(t.Context(), def("s", "flood"), withProgress(func(json.RawMessage) { <-read })); err != nil {
				t.Errorf("the call of the client that does not read: %v", err)
			}
		})
		for !stageOf(s).has("flooded") { // which nobody's call but another's leads to
			mustAsk(t, p, "s", "raw", "hologram")
		}
		mustAsk(t, p, "s", "raw", "hologram")
		release()
		slow.Wait()
		if dropped := p.Status()[0].Dropped; dropped == 0 {
			t.Error("nothing was counted as dropped")
		}
	})
}

func TestStallingHasABound(t *testing.T) {
	var s stallBudget
	now := time.Now()
	total := time.Duration(0)
	for range 10_000 { // 1,000 s in which a client is always slow
		now = now.Add(100 * time.Millisecond)
		if s.spend(100*time.Millisecond, now) {
			total += 100 * time.Millisecond
		}
	}
	if most := stallMost + 1000*time.Second/stallEarned; total > most {
		t.Errorf("the connection was not read for %s of 1000 s, want %s at most", total, most)
	}
}

// Nothing of a call comes after its answer.
func TestNoNotificationComesAfterTheEndOfACall(t *testing.T) {
	passed := make(chan string, 2)
	n := notificationQueue{life: t.Context(), notify: func(method string, _ json.RawMessage) { passed <- method }}
	n.offer(notification{method: "before"})
	n.end()
	if n.offer(notification{method: "after"}) != nil {
		t.Error("its end has no room")
	}
	n.work.Wait()
	close(passed)
	for method := range passed {
		if method != "before" {
			t.Errorf("%q came", method)
		}
	}
}

// Whose end it was decides whether the server was at fault.
func TestWhoGaveACallUp(t *testing.T) {
	left, other := errors.New("the client left"), errors.New("another fault")
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(left)
	for _, test := range []struct {
		caller context.Context
		err    error
		want   bool
	}{
		{t.Context(), context.Canceled, true}, {gone, left, true}, {gone, fmt.Errorf("call: %w", left), true},
		{gone, other, false}, {t.Context(), left, false}, {t.Context(), context.DeadlineExceeded, false},
	} {
		if got := (&call{caller: test.caller}).givenUp(test.err); got != test.want {
			t.Errorf("%v, where the caller's end is %v: %v, want %v", test.err, context.Cause(test.caller), got, test.want)
		}
	}
}

func TestProgressPutsOffTheCallTimeoutUpToTheTotal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, Settings{Name: "s", Command: "none", CallTimeout: 10 * time.Second, CallTimeoutTotal: 25 * time.Second})
		s := p.now.Load().byName["s"]
		c := newConnection(s.server, s.main.purpose, &conn.Conn{})
		f := begin(t.Context(), &tool.Call{}, s.limits.Load())
		c.calls.add(1, f)
		for _, after := range []time.Duration{9 * time.Second, 18 * time.Second} {
			time.Sleep(9 * time.Second)
			if f.ctx.Err() != nil {
				t.Fatalf("after %s: %v", after, context.Cause(f.ctx))
			}
			c.Notified(0, "notifications/progress", json.RawMessage(`{"progressToken":"toolfinch-1","progress":1}`))
		}
		f.clock.hold() // a client that is asked something
		time.Sleep(time.Hour)
		f.clock.release()
		time.Sleep(6 * time.Second)
		if f.ctx.Err() != nil {
			t.Fatalf("after 24 s of its own: %v", context.Cause(f.ctx))
		}
		time.Sleep(2 * time.Second)
		if err := context.Cause(f.ctx); !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "25s") {
			t.Errorf("after 26 s: %v", err)
		}
		f.end()
		quiet := begin(t.Context(), &tool.Call{}, s.limits.Load())
		time.Sleep(11 * time.Second)
		if err := context.Cause(quiet.ctx); !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "10s") {
			t.Errorf("without progress: %v", err)
		}
		quiet.end()
	})
}

// What a server says goes to those who asked for it: not to a client that set no
// level when another's is why the server says it, nor to one that set a higher one.
func TestLogLevelsArePerClient(t *testing.T) {
	client := func(level string, modern bool) *tool.Client {
		return &tool.Client{Key: level, LogLevel: level, Modern: modern}
	}
	for _, test := range []struct {
		name   string
		era    Era
		told   string // the level that the server was told
		client *tool.Client
		level  string // of the message
		want   bool
	}{
		{"nobody asked a legacy server", EraLegacy, "", client("", false), "info", true},
		{"another asked a legacy server", EraLegacy, "debug", client("", false), "critical", false},
		{"another asked, and nobody can be", EraLegacy, "debug", nil, "critical", false},
		{"the client asked for it", EraLegacy, "debug", client("info", false), "info", true},
		{"another asked for more", EraLegacy, "debug", client("warning", false), "info", false},
		{"another asked for more in the new era", EraLegacy, "debug", client("warning", true), "info", false},
		{"a level that the protocol does not know", EraLegacy, "debug", client("warning", false), "loud", true},
		{"a legacy client of a new server", EraModern, "", client("", false), "info", true},
		{"a legacy client, for what another call asked", EraModern, "", client("", false), "debug", false},
		{"no level in the new era", EraModern, "", client("", true), "critical", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newPool(t, Settings{Name: "s", Command: "none"})
			s := p.now.Load().byName["s"]
			c := newConnection(s.server, s.main.purpose, &conn.Conn{Era: test.era})
			c.level.level = test.told
			heard := false
			f := begin(t.Context(), &tool.Call{Client: test.client, Notify: func(string, json.RawMessage) { heard = true }}, &limits{call: time.Minute})
			c.calls.add(1, f)
			c.Notified(0, "notifications/message", json.RawMessage(`{"level":"`+test.level+`"}`))
			f.end()
			if heard != test.want {
				t.Errorf("it was told: %v, want %v", heard, test.want)
			}
		})
	}
}
