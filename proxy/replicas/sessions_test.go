package replicas_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/internal/await"
	"toolfinch/internal/identity"
	"toolfinch/internal/rawjson"
	"toolfinch/proxy/replicas"
	"toolfinch/register/transport"
	"toolfinch/store"
)

// expect fails a test where an answer lacks a part.
func expect(t *testing.T, answer string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(answer, part) {
			t.Errorf("the answer lacks %q: %s", part, answer)
		}
	}
}

const setLevel = `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"warning"}}`

// A replica that gets a session of another goes on with it: after a kill, and beside the one that had it.
func TestASessionIsTakenOver(t *testing.T) {
	for name, gone := range map[string]bool{"of a replica that is gone": true, "of one that is there": false} {
		t.Run(name, func(t *testing.T) {
			rows, all := start(t, 3)
			a, b, c := all[0], all[1], all[2]
			alice := a.connect("alice")
			alice.read(alice.post(a, setLevel))
			before := alice.finds(a, `{"tools":["echo","ask"]}`)
			rows.has(t, `"warning"`, `"ask"`)
			if gone {
				a.stop()
			}
			expect(t, alice.call(b, "echo", `{"x":"ü \u0001"}`), `replica-1 {\"x\":\"ü \\u0001\"}`, `"id":1`)
			if after := alice.read(alice.post(b, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)); after != before {
				t.Errorf("the tools are\n%s, and were\n%s", after, before)
			}
			if state, _ := b.live.State(alice.session); state.Level != "warning" {
				t.Errorf("the level is %q", state.Level)
			}
			if _, there := a.live.State(alice.session); there {
				t.Error("the replica that had it has it still")
			}
			alice.finds(b, `{"tools":["wait"]}`) // and goes on
			rows.has(t, `"wait"`)
			expect(t, alice.call(c, "echo", `{}`), "replica-2")
			if got := rows.sessions(); len(got) != 1 || got[0].Replica != "replica-2" {
				t.Errorf("the rows are %+v", got)
			}
			here, taken, lost := b.sessions.Count()
			if here != 0 || taken != 1 || lost != 1 {
				t.Errorf("it counts %d sessions, %d taken over, %d lost", here, taken, lost)
			}
		})
	}
}

// Requests that come at once have a session taken over once, and each is answered.
func TestManyRequestsTakeASessionOverOnce(t *testing.T) {
	_, all := start(t, 2)
	alice := all[0].connect("alice")
	var asking sync.WaitGroup
	for range 20 {
		asking.Go(func() { expect(t, alice.call(all[1], "echo", `{}`), "replica-1") })
	}
	asking.Wait()
	if _, taken, _ := all[1].sessions.Count(); taken != 1 {
		t.Errorf("it was taken over %d times", taken)
	}
}

func TestASessionOfSomebodyElseIsTakenOverByNobody(t *testing.T) {
	_, all := start(t, 2)
	alice := all[0].connect("alice")
	for _, r := range all {
		for _, user := range []string{"", "bob"} {
			bob := &client{t, alice.session, user}
			if answer := bob.post(r, request(1, "echo", `{}`)); answer.StatusCode != http.StatusNotFound {
				t.Errorf("%q at %s: %s", user, r.id, answer.Status)
			}
		}
		if answer := alice.do(t.Context(), http.MethodPost, r.url+"/other", request(1, "echo", `{}`)); answer.StatusCode != http.StatusNotFound {
			t.Errorf("another view at %s: %s", r.id, answer.Status)
		}
	}
	expect(t, alice.call(all[0], "echo", `{}`), "replica-0")
}

// A session that has ended is not taken over, even if its row is there yet.
func TestASessionThatHasEndedIsTakenOverByNobody(t *testing.T) {
	rows, all := start(t, 1)
	alice := all[0].connect("alice")
	rows.drops.Lock()
	release := sync.OnceFunc(rows.drops.Unlock)
	defer release()
	alice.read(alice.do(t.Context(), http.MethodDelete, all[0].url+"/ops", ""))
	if answer := alice.post(all[0], request(1, "echo", `{}`)); answer.StatusCode != http.StatusNotFound {
		t.Errorf("after its end: %s", answer.Status)
	}
	release()
	await.True(t, func() bool { return len(rows.sessions()) == 0 })
}

// A replica that ends leaves its sessions to others, with what was told them last.
func TestAReplicaThatEndsStoresWhatHasChanged(t *testing.T) {
	rows, all := start(t, 2)
	alice := all[0].connect("alice")
	rows.lose(true)
	alice.read(alice.post(all[0], setLevel))
	ended := make(chan struct{})
	go func() { defer close(ended); all[0].stop() }()
	rows.lose(false)
	await.Value(t, ended)
	rows.has(t, `"warning"`)
	expect(t, alice.call(all[1], "echo", `{}`), "replica-1")
}

// A call in flight is answered where it is, whoever takes the session over meanwhile; what it asks the client, nobody
// answers any more.
func TestACallInFlightIsAnsweredWhereItIs(t *testing.T) {
	_, all := start(t, 2)
	alice := all[0].connect("alice")
	answer := make(chan string, 1)
	go func() { answer <- alice.call(all[0], "wait", `{}`) }()
	await.Value(t, all[0].calls)
	asking := &events{t: t, b: bufio.NewReader(alice.post(all[0], request(2, "ask", `{}`)).Body)}
	asked := asking.next()
	expect(t, alice.call(all[1], "echo", `{}`), "replica-1")
	all[0].done <- struct{}{}
	expect(t, await.Value(t, answer), "waited at replica-0")
	expect(t, asking.next(), `"id":2`, `the client is gone`)
	reply := alice.post(all[1], fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{}}}`, rawjson.Member([]byte(asked), "id")))
	if reply.StatusCode != http.StatusAccepted {
		t.Errorf("a late answer is met with %s", reply.Status)
	}
}

// While the store is away, sessions go on where they are, and one that is not here is waited for.
func TestSessionsWithoutTheStore(t *testing.T) {
	rows, all := start(t, 2)
	alice := all[0].connect("alice")
	rows.lose(true)
	bob := all[0].connect("bob") // is stored later
	expect(t, alice.call(all[0], "echo", `{}`), "replica-0")
	expect(t, bob.call(all[0], "echo", `{}`), "replica-0")
	waiting := make(chan string, 1)
	go func() { waiting <- alice.call(all[1], "echo", `{}`) }()
	rows.lose(false)
	expect(t, await.Value(t, waiting), "replica-1")
	await.True(t, func() bool { return len(rows.sessions()) == 2 })
	expect(t, bob.call(all[1], "echo", `{}`), "replica-1")
}

// A session that is not here while the store is away for long is not said to be unknown; nor is it said where the store is.
func TestASessionIsNotUnknownWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := &rows{all: map[[32]byte]store.Session{}, away: true}
		view := replicas.NewSessions("a", all, time.Hour, slog.New(slog.DiscardHandler)).View("ops", nil)
		err := view.Take(t.Context(), "some", nil)
		if err == nil || errors.Is(err, transport.ErrNoSession) || strings.Contains(err.Error(), "db.internal") {
			t.Errorf("while it is away: %v", err)
		}
		all.lose(false)
		if err := view.Take(t.Context(), "some", nil); !errors.Is(err, transport.ErrNoSession) {
			t.Errorf("after it: %v", err)
		}
	})
}

// Whoever makes IDs up while the store is away has a share of the requests that wait for it.
func TestWhoMakesIDsUpKeepsNobodyFromTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := &rows{all: map[[32]byte]store.Session{}, away: true}
		view := replicas.NewSessions("a", all, time.Hour, slog.New(slog.DiscardHandler)).View("ops", nil)
		as := func(who string) context.Context {
			return identity.WithPrincipal(t.Context(), &identity.Principal{ID: who})
		}
		var asking sync.WaitGroup
		waits := func(who string) bool {
			answered := make(chan error, 1)
			asking.Go(func() { answered <- view.Take(as(who), rand.Text(), nil) })
			synctest.Wait()
			return len(answered) == 0
		}
		n := 0
		for waits("mallory") {
			n++
		}
		if n != 100 || !waits("alice") {
			t.Errorf("mallory has %d requests that wait, and alice none", n)
		}
		all.lose(false)
		asking.Wait()
		if !errors.Is(view.Take(as("mallory"), "some", nil), transport.ErrNoSession) {
			t.Error("what was looked up counts still")
		}
	})
}

// A row that is lost is written again; what is stored is stored once.
func TestRowsFollowSessions(t *testing.T) {
	rows, all := start(t, 1)
	alice := all[0].connect("alice")
	all[0].connect("bob")
	if rows.sent > 0 {
		t.Error("a session that has not changed since it was opened is stored again")
	}
	rows.mu.Lock()
	clear(rows.all)
	rows.mu.Unlock()
	alice.read(alice.post(all[0], setLevel))
	rows.has(t, `"warning"`)
}
