package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/internal/limit"
	"toolfinch/tool"
)

func TestCallsOfModernClientsReuseConnections(t *testing.T) {
	s := newAsker(t, "asker")
	s.Isolate = IsolateAlways
	p := newPool(t, s)
	mustCallAs(t, p, asked("main"), "echo", `{}`)
	pids := map[string]bool{}
	for i := range 5 {
		c := asked(fmt.Sprintf("call%d", i))
		c.Modern = true
		pids[string(jsonMember(json.RawMessage(mustCallAs(t, p, c, "echo", `{}`)), "pid"))] = true
	}
	if len(pids) != 1 {
		t.Errorf("5 calls, one after the other, took %d connections", len(pids))
	}
}

func TestTooManyConnections(t *testing.T) {
	s := newAsker(t, "asker")
	s.Isolate = IsolateAlways
	p := newPool(t, s)
	one := p.now.Load().byName["s"]
	places := make([]*slot, maxPrivate+1)
	for i := range places {
		var err error
		if places[i], err = one.sharing.reserve(&call{Call: &tool.Call{Client: asked(fmt.Sprint(i))}}, false, true); err != nil {
			t.Fatal(err)
		}
	}
	_, err := callAs(t, p, asked("one more"), "echo", `{}`)
	wantError(t, err, "s", nil)
	if full := new(limit.Error); !errors.As(err, &full) || p.Limits()[0].Used() != maxPrivate || p.Limits()[0].Hits() != 1 {
		t.Errorf("refused with %v; the limit has %d, reached %d times", err, p.Limits()[0].Used(), p.Limits()[0].Hits())
	}
	// Who makes no call gives way, who has not made one for longest first.
	one.sharing.release(places[3])
	one.sharing.release(places[2])
	mustCallAs(t, p, asked("one more"), "echo", `{}`)
	if extra := one.sharing.beside; len(extra) != maxPrivate || slices.Contains(extra, places[3]) || !slices.Contains(extra, places[2]) {
		t.Error("it was not the connection that had been idle longest that was given up")
	}
}

// Clients that leave questions unanswered keep nobody else from the server: who
// has been asked for longest gives way, and who cannot be asked is never refused.
func TestWhoDoesNotAnswerGivesWay(t *testing.T) {
	t.Parallel()
	s := newAsker(t, "asker")
	s.Isolate = IsolateAlways
	p := newPool(t, s)
	silent := func(key string) (client *tool.Client, beingAsked <-chan struct{}) {
		asks := make(chan struct{})
		client = asked(key)
		client.Ask = func(ctx context.Context, _ string, _ json.RawMessage) (json.RawMessage, error) {
			close(asks)
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		return client, asks
	}
	over := make([]chan error, maxPrivate+1)
	for i := range over {
		client, beingAsked := silent(fmt.Sprint(i))
		over[i] = make(chan error, 1)
		go func() {
			_, err := callAs(t, p, client, "ask", question)
			over[i] <- err
		}()
		await.Value(t, beingAsked)
	}
	for range 2 { // it has a connection for all of its kind
		mustCallAs(t, p, &tool.Client{Key: "cannot be asked"}, "echo", `{}`)
	}
	for i := range 3 {
		mustCallAs(t, p, asked(fmt.Sprint("new ", i)), "ask", question)
	}
	err := await.Value(t, over[1]) // the first has the main connection
	if wantError(t, err, "s", errGaveWay); !strings.Contains(err.Error(), "has not answered") {
		t.Errorf("who gave way is told %v", err)
	}
	for i, one := range over {
		select {
		case err := <-one:
			t.Errorf("the call of client %d ended, too: %v", i, err)
		default:
		}
	}
	if status := p.Status()[0]; status.State != StateReady {
		t.Errorf("the server is said to be %s: %v", status.State, status.Err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for i, one := range over {
		if i != 1 {
			await.Value(t, one)
		}
	}
}
