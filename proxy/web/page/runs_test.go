package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/internal/telemetry"
	"toolfinch/retrieve"
	"toolfinch/tool"
)

// called starts a call of what a handler does, in a session.
func called(r *runs, s *session, handler tool.Handler) (*run, error) {
	return calledWith(r, s, handler, nil)
}

func calledWith(r *runs, s *session, handler tool.Handler, arguments json.RawMessage) (*run, error) {
	one := &run{Arguments: arguments, Target: "greet", Of: tool.ID{Server: "s", Kind: tool.KindPrompt, Name: "greet"}, handler: handler}
	q := &request{Request: httptest.NewRequest("POST", "/ui/call", nil), session: s}
	return one, r.start(q, one, func(string) *telemetry.Operation { return nil })
}

func someone(s *sessions) *session {
	s.open(nil, "")
	for _, one := range s.all {
		if one.life.Err() == nil {
			return one
		}
	}
	return nil
}

func untilTheEnd(ctx context.Context, _ *tool.Call) (tool.Result, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func ended(t *testing.T, one *run) {
	t.Helper()
	await.Nil(t, func() error {
		if !one.ended() {
			return errors.New("the call still runs")
		}
		return nil
	})
}

// A server is answered by whoever looks at the call, once.
func TestACallAsks(t *testing.T) {
	r, sessions := newRuns(), newSessions(time.Now)
	defer r.close()
	s := someone(sessions)
	one := must.Get(called(r, s, func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		if _, err := call.Client.Ask(ctx, "tasks/run", nil); err == nil {
			return nil, errors.New("anything is answered")
		}
		call.Notify("notifications/progress", json.RawMessage(`{"progress":1,"total":2,"message":"half"}`))
		name, err := call.Client.Ask(ctx, "elicitation/create", json.RawMessage(`{"message":"who?"}`))
		return tool.Result(name), err
	}))(t)
	var asks []*ask
	await.Nil(t, func() error {
		if asks, _ = one.waiting(); len(asks) == 0 {
			return errors.New("nothing is asked")
		}
		return nil
	})
	if _, notes := one.waiting(); len(notes) != 1 || notes[0] != "1 of 2: half" {
		t.Errorf("progress: %q", notes)
	}
	a := one.take(asks[0].ID)
	if a == nil || one.take(asks[0].ID) != nil {
		t.Fatal("an answer is taken twice")
	}
	a.reply <- json.RawMessage(`{"action":"decline"}`)
	ended(t, one)
	if one.err != nil || string(one.result) != `{"action":"decline"}` {
		t.Errorf("%s, %v", one.result, one.err)
	}
}

// What is shown of a call is of one moment: where it ends while its page is made, the page says that it runs, and is
// loaded again.
func TestACallEndsWhileItIsShown(t *testing.T) {
	r, sessions := newRuns(), newSessions(time.Now)
	defer r.close()
	one := must.Get(called(r, someone(sessions), untilTheEnd))(t)
	c := &calling{Kind: "tool", Form: readSchema(json.RawMessage(`{"type":"object"}`))}
	c.show(one)
	one.cancel(errCancelled)
	ended(t, one)
	shown := listing{One: &definition{Call: c}}
	if c.Run.Ended || c.Run.State != "running" || shown.Reload() == 0 {
		t.Errorf("it is shown as %s, ended %t, and loaded again after %d s", c.Run.State, c.Run.Ended, shown.Reload())
	}
	c.show(one)
	if !c.Run.Ended || c.Run.State == "running" || shown.Reload() != 0 {
		t.Errorf("once it has ended, it is shown as %s, ended %t, and loaded again after %d s", c.Run.State, c.Run.Ended, shown.Reload())
	}
}

// Calls end with their session, and all of them with the server.
func TestCallsEnd(t *testing.T) {
	r, sessions := newRuns(), newSessions(time.Now)
	first := someone(sessions)
	one := must.Get(called(r, first, untilTheEnd))(t)
	cancelled := must.Get(called(r, first, untilTheEnd))(t)
	cancelled.cancel(errCancelled)
	ended(t, cancelled)
	if !errors.Is(cancelled.err, errCancelled) || one.ended() {
		t.Errorf("cancelled: %v; the other has ended: %t", cancelled.err, one.ended())
	}
	sessions.end(first)
	ended(t, one)
	if one.err == nil || !strings.Contains(one.err.Error(), "session") {
		t.Errorf("it ended with %v", one.err)
	}
	await.Nil(t, func() error {
		if r.find(first, one.ID) != nil {
			return errors.New("the call of a session that has ended is kept")
		}
		return nil
	})
	if _, err := called(r, first, untilTheEnd); err == nil {
		t.Error("a session that has ended calls")
	}
	second := someone(sessions)
	last := must.Get(called(r, second, untilTheEnd))(t)
	r.close()
	if !last.ended() {
		t.Error("a call outlives the server")
	}
}

// What a session may have running, and what is kept of it, is bounded.
func TestCallsAreBounded(t *testing.T) {
	r, sessions := newRuns(), newSessions(time.Now)
	defer r.close()
	s := someone(sessions)
	for i := range maxRuns + 3 {
		one := must.Get(called(r, s, func(context.Context, *tool.Call) (tool.Result, error) { return tool.TextResult(fmt.Sprint(i)), nil }))(t)
		ended(t, one)
	}
	if n := len(r.all); n != maxRuns {
		t.Errorf("%d calls are kept", n)
	}
	for range maxCalls {
		must.Get(called(r, s, untilTheEnd))(t)
	}
	if _, err := called(r, s, untilTheEnd); err == nil || !strings.Contains(err.Error(), "cancel it") {
		t.Errorf("one more: %v", err)
	}
}

// Arguments take room as results do, also while their call runs.
func TestArgumentsAreBounded(t *testing.T) {
	r, sessions := newRuns(), newSessions(time.Now)
	defer r.close()
	s := someone(sessions)
	call := func(handler tool.Handler) (*run, error) {
		return calledWith(r, s, handler, json.RawMessage(strings.Repeat(" ", maxKept/2-1)))
	}
	at := func() int { r.mu.Lock(); defer r.mu.Unlock(); return r.kept() }
	var all []*run
	for range 3 {
		one := must.Get(call(func(context.Context, *tool.Call) (tool.Result, error) { return tool.Result("{}"), nil }))(t)
		ended(t, one)
		all = append(all, one)
		await.True(t, func() bool { return at() <= maxKept })
	}
	if r.find(s, all[0].ID) != nil || r.find(s, all[2].ID) == nil {
		t.Error("the calls that are kept are not the last ones")
	}
	for range 2 {
		must.Get(call(untilTheEnd))(t)
	}
	if _, err := call(untilTheEnd); err == nil || !strings.Contains(err.Error(), "memory") {
		t.Errorf("arguments that find no room: %v", err)
	}
	sessions.end(s)
	await.True(t, func() bool { return at() == 0 })
}

// A part of the catalogue of 5,000 tools, with all filters, as HTML.
func BenchmarkCatalogue(b *testing.B) {
	var tools []*tool.Tool
	for i := range 5000 {
		def := must.Get(tool.ParseDef("server", json.RawMessage(fmt.Sprintf(`{"name":"tool_%d","description":"Does the thing number %d with files and folders. %s","inputSchema":{"type":"object","properties":{"path":{"type":"string"}}},"annotations":{"readOnlyHint":true}}`, i, i, strings.Repeat("And more. ", 30)))))(b)
		tools = append(tools, &tool.Tool{Def: def})
	}
	empty := retrieve.NewCatalog(func(*tool.Def) tool.Handler { return nil })
	defer empty.Close()
	catalog := must.Get(empty.With(b.Context(), retrieve.Contents{Servers: []retrieve.Server{{Name: "server", Tools: tools}}}))(b)
	for _, query := range []string{"", "thing files"} {
		b.Run("query "+query, func(b *testing.B) {
			for b.Loop() {
				l := listing{Catalogue: Catalogue{Catalog: catalog, Root: true}, Kind: "tool", Query: query}
				l.fill(itemsOf(l.Catalogue, tool.KindTool), nil, tool.KindTool, "2500")
				if len(l.Items) != perPage || l.Pager.Total != 5000 {
					b.Fatalf("%d of %d", len(l.Items), l.Pager.Total)
				}
				var out strings.Builder
				must.Do(b, parsed()[catalogueScreen.file].ExecuteTemplate(&out, "main", frame{Data: l}))
			}
		})
	}
}
