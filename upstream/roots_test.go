package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/tool"
)

// A server that gives or refuses by the roots that it knows does so with the first
// call of a session as with all others.
func TestRootsAreKnownBeforeTheFirstCallOfASession(t *testing.T) {
	for name, reaches := range map[string]bool{"asked outside of calls": true, "asked within its calls": false} {
		t.Run(name, func(t *testing.T) {
			var asked sync.Map // counters by key
			roots := func(key string) (json.RawMessage, error) {
				count, _ := asked.LoadOrStore(key, new(atomic.Int64))
				count.(*atomic.Int64).Add(1)
				return fmt.Appendf(nil, `{"roots":[{"uri":"file:///of-%s"}]}`, key), nil
			}
			p := newPoolWith(t, nil, Events{
				Ask: func(_ context.Context, key, _ string, _ json.RawMessage) (json.RawMessage, error) {
					if !reaches {
						t.Errorf("%s was asked outside of calls", key)
					}
					return roots(key)
				},
				Reaches: func(string) bool { return reaches },
			}, newAsker(t, "asker-roots"))
			changes, stop := watched(t, p)
			defer stop()
			await.True(t, func() bool { return (<-changes).Interactive })
			main := p.now.Load().byName["s"].main.current()
			await.True(t, func() bool { // its question of before the first client is nobody's
				main.roots.mu.Lock()
				defer main.roots.mu.Unlock()
				return main.roots.sent == main.roots.asked
			})
			for _, key := range []string{"a", "b", "c"} {
				client := &tool.Client{Key: key, Capabilities: json.RawMessage(`{"roots":{}}`),
					Ask: func(context.Context, string, json.RawMessage) (json.RawMessage, error) { return roots(key) }}
				var first sync.WaitGroup
				for range 3 {
					first.Go(func() {
						if got, err := callAs(t, p, client, "allowed", `{}`); err != nil || !strings.Contains(got, "of-"+key) {
							t.Errorf("a first call of %s: %s, %v", key, got, err)
						}
					})
				}
				first.Wait()
				for range 3 {
					mustCallAs(t, p, client, "allowed", `{}`)
				}
				count, ok := asked.Load(key)
				if !ok || count.(*atomic.Int64).Load() != 1 {
					t.Errorf("%s was asked %v times, want once", key, count)
				}
			}
			if got := mustCallAs(t, p, nil, "allowed", `{}`); strings.Contains(got, "of-") {
				t.Errorf("a client without roots got %s", got)
			}
		})
	}
}

// A 2026-07-28 client has no session, and a connection may be another client's in the
// next moment: a server that gives or refuses by roots has those of each call's own
// client.
func TestRootsAreThoseOfEachCallOfA20260728Client(t *testing.T) {
	p := newPoolWith(t, nil, Events{}, newAsker(t, "asker-roots"))
	changes, stop := watched(t, p)
	defer stop()
	await.True(t, func() bool { return (<-changes).Interactive })
	var calls atomic.Int64
	call := func(of string) {
		client := &tool.Client{Key: fmt.Sprintf("call-%d", calls.Add(1)), Modern: true, Capabilities: json.RawMessage(`{"roots":{}}`),
			Ask: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
				return fmt.Appendf(nil, `{"roots":[{"uri":"file:///of-%s"}]}`, of), nil
			}}
		if got, err := callAs(t, p, client, "allowed", `{}`); err != nil || !strings.Contains(got, "of-"+of) {
			t.Errorf("a call of %s: %s, %v", of, got, err)
		}
	}
	for range 5 { // in turn, over one connection
		call("a")
		call("b")
	}
	var all sync.WaitGroup
	for _, of := range []string{"a", "b", "c"} { // at once, over several
		all.Go(func() {
			for range 5 {
				call(of)
			}
		})
	}
	all.Wait()
}
