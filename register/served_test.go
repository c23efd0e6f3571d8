package register

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"weak"

	"toolfinch/internal/identity"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// shows are what Lives serve in tests, by *Live.
var shows sync.Map

// setup is the Options of a test. It is the Upstreams and the Observer, too: each
// function that is set is called.
type setup struct {
	Relists              map[string]tool.Relists
	Known                map[tool.Caller][]tool.Called
	Called               func(by tool.Caller, called []tool.Called)
	Subscriptions        *Subscriptions
	follows              **followed // unless nil, gets what Subscriptions is then made of
	Complete, Task       func(ctx context.Context, name string, call *tool.Call) (tool.Result, error)
	SetLevel             func(level string)
	RootsChanged, Forget func(session string)
	Changed              func(session string)
	Remember             func(client string, relists tool.Relists)
	Missed               func(call *tool.Call)
	Introduced           func(session, client string)
	Listed               func(session, client string, tools []*tool.Tool)
}

// heard is a setup as its Live knows it.
type heard struct{ setup }

func (h heard) Complete(ctx context.Context, server string, call *tool.Call) (tool.Result, error) {
	if h.setup.Complete == nil {
		return nothing{}.Complete(ctx, server, call)
	}
	return h.setup.Complete(ctx, server, call)
}

func (h heard) Task(ctx context.Context, method string, call *tool.Call) (tool.Result, error) {
	if h.setup.Task == nil {
		return nothing{}.Task(ctx, method, call)
	}
	return h.setup.Task(ctx, method, call)
}

func (h heard) SetLevel(level string) {
	if h.setup.SetLevel != nil {
		h.setup.SetLevel(level)
	}
}

func (h heard) RootsChanged(session string) {
	if h.setup.RootsChanged != nil {
		h.setup.RootsChanged(session)
	}
}

func (h heard) Unknown(_ context.Context, call *tool.Call) {
	if h.Missed != nil {
		h.Missed(call)
	}
}

func (h heard) Began(_ context.Context, session, client string) {
	if h.Introduced != nil {
		h.Introduced(session, client)
	}
}

func (h heard) Ended(session string, _ Connected) {
	if h.Forget != nil {
		h.Forget(session)
	}
}

func (h heard) Changed(session string) {
	if h.setup.Changed != nil {
		h.setup.Changed(session)
	}
}

func (h heard) Relists(client string, relists tool.Relists) {
	if h.Remember != nil {
		h.Remember(client, relists)
	}
}

func (h heard) Called(by tool.Caller, called []tool.Called) {
	if h.setup.Called != nil {
		h.setup.Called(by, called)
	}
}

func (h heard) Listed(session, client string, tools []*tool.Tool) {
	if h.setup.Listed != nil {
		h.setup.Listed(session, client, tools)
	}
}

func (h heard) Registered(string, string, identity.Party, Change) {}

func (h heard) Calling(call *tool.Call) func(tool.Result) { return nothing{}.Calling(call) }

// always registers at once.
func always(string) When { return AtOnce }

// serve makes a Live that serves first until show changes that.
func serve(s setup, first Served, log *slog.Logger) *Live {
	now := &atomic.Pointer[Served]{}
	now.Store(&first)
	live := New(Options{
		Relists: s.Relists, Called: s.Known, Subscriptions: s.Subscriptions, Upstreams: heard{s}, Observer: heard{s},
	}, func(identity.Party) *Served { return now.Load() }, log)
	shows.Store(live, now)
	return live
}

// show changes what a Live serves. Clients hear of it with Sync.
func show(live *Live, change func(*Served)) {
	found, _ := shows.Load(live)
	now := found.(*atomic.Pointer[Served])
	next := *now.Load()
	change(&next)
	now.Store(&next)
}

// offer shows the same source in another way.
func offer(live *Live, next Served) {
	show(live, func(v *Served) {
		next.Source, next.Declared, next.Instructions = v.Source, v.Declared, v.Instructions
		*v = next
	})
}

// declaresAll is all that is offered beside tools and tasks.
var declaresAll = Declared{Prompts: true, Resources: true, Subscribe: true, Completions: true, Logging: true}

// broadcast tells every client that a list changed.
func broadcast(live *Live, method string) {
	for _, s := range live.everySession() {
		live.Notify(s.id, method, nil)
	}
	for _, t := range live.listeners.all() {
		t.notify(method)
	}
}

// What was served and is no more, as what parties have of a view that others took the
// place of, is not kept for its fingerprints.
func TestFingerprintsKeepNothingAlive(t *testing.T) {
	type view struct {
		name  string
		shown Served
	}
	var known fingerprintCache
	v := &view{name: "part", shown: Served{Source: catalog{"srv_a": newTool(t, "srv_a", nil)}}}
	if first := known.of(&v.shown); known.of(&v.shown) != first {
		t.Error("fingerprints are made twice")
	}
	ended := weak.Make(v)
	v = nil
	runtime.GC()
	if ended.Value() != nil {
		t.Error("the view is kept")
	}
	runtime.KeepAlive(&known)
}

// A client that searches because servers were starting is listed every tool once they are there, unless it
// has called something or was listed every tool before.
func TestAClientOfAColdStartIsDecidedAgain(t *testing.T) {
	small, large := func(bool) bool { return true }, func(bool) bool { return false }
	starting := &Served{Mode: "auto", Direct: large, Unsettled: true}
	for _, test := range []struct {
		name  string
		first *Served
		calls bool
		now   *Served
		turns bool
	}{
		{"the catalogue is small", starting, false, &Served{Mode: "auto", Direct: small}, true},
		{"it has called a tool", starting, true, &Served{Mode: "auto", Direct: small}, false},
		{"the catalogue is large", starting, false, &Served{Mode: "auto", Direct: large}, false},
		{"servers are starting still", starting, false, &Served{Mode: "auto", Direct: small, Unsettled: true}, false},
		{"it was large when all servers were there", &Served{Mode: "auto", Direct: large}, false, &Served{Mode: "auto", Direct: small}, false},
		{"every tool was listed before", &Served{Mode: "auto", Direct: small}, false, &Served{Mode: "auto", Direct: small}, false},
		{"tools are granted", starting, false, &Served{Mode: "auto", Direct: small, Granted: func(string) []tool.ID { return nil }}, false},
	} {
		var d direct
		was := d.in(test.first)
		if test.calls {
			d.keep()
		}
		if got := d.turns(test.now); got != test.turns {
			t.Errorf("%s: it turns: %t", test.name, got)
		}
		if sees := d.sees(test.now, false, false); sees != test.turns {
			t.Errorf("%s: a 2026-07-28 client is told: %t", test.name, sees)
		}
		if test.turns && (was || !d.in(test.now) || d.turns(test.now)) {
			t.Errorf("%s: it is not listed every tool, or told again", test.name)
		}
	}
}

// A tools/call that means a tool in another spelling is that tool's, and its answer says so.
func TestACallIsWhatItMeans(t *testing.T) {
	var missed []string
	live := newLive(t, setup{Missed: func(call *tool.Call) { missed = append(missed, call.Name) }})
	called := newTool(t, "srv_x", func(_ context.Context, call *tool.Call) (tool.Result, error) {
		return tool.TextResult(call.Name + " " + string(call.Arguments)), nil
	})
	offer(live, Served{Meant: func(t *tool.Tool, call *tool.Call) (*tool.Tool, *tool.Call, func(tool.Result) tool.Result) {
		if t != nil || call.Name != "srv/x" {
			return t, call, nil
		}
		meant := *call
		meant.Name, meant.Arguments = "srv_x", json.RawMessage(`{"n":5}`)
		return called, &meant, func(result tool.Result) tool.Result {
			return tool.TextResult(rawjson.Text(result.Value()) + " for srv/x")
		}
	}})
	p := connect(t, serveHTTP(t, live), "client")
	if got := p.messages(call(1, "srv/x", `{"n":"5"}`))[0]; !strings.Contains(got, `srv_x {\"n\":5} for srv/x`) {
		t.Errorf("%s", got)
	}
	if got := p.messages(call(2, "srv/y", `{}`))[0]; !strings.Contains(got, "unknown tool") {
		t.Errorf("%s", got)
	}
	if got := p.messages(call(3, "srv_t001", `{}`))[0]; !strings.Contains(got, `"result":`+strange) {
		t.Errorf("%s", got)
	}
	if !slices.Equal(missed, []string{"srv/y"}) {
		t.Errorf("unknown: %q", missed)
	}
}

// A result that a client's transport cannot take costs that result alone.
func TestAResultTooLargeForStdioIsAnError(t *testing.T) {
	live := newLive(t, setup{})
	big := newTool(t, "big", func(_ context.Context, call *tool.Call) (tool.Result, error) {
		n, _ := rawjson.Int(rawjson.Member(call.Arguments, "n"))
		return tool.TextResult(strings.Repeat("x", n)), nil
	})
	offer(live, Served{Meta: []*tool.Tool{big}})
	d := serveStdio(t, t.Context(), live)
	d.send(initialize)
	d.until(`"id":"i"`)
	for i, test := range []struct {
		n    int
		want string
	}{{10 << 20, "the result has 10 MB"}, {9 << 20, "xxx"}, {1, `"text":"x"`}} {
		d.send(call(i, "big", fmt.Sprintf(`{"n":%d}`, test.n)))
		if got := d.until(fmt.Sprintf(`"id":%d,`, i)); !strings.Contains(got, test.want) {
			t.Errorf("%d bytes: %.200s", test.n, got)
		}
	}
	p := connect(t, serveHTTP(t, live), "client")
	if got := p.messages(call(1, "big", fmt.Sprintf(`{"n":%d}`, 10<<20)))[0]; len(got) < 10<<20 {
		t.Errorf("over HTTP: %.200s", got)
	}
}

// Portable schemas are listed to the clients that need them, and to no others.
func TestSchemasArePortableForSomeClients(t *testing.T) {
	live := newLive(t, setup{})
	odd := newTool(t, "odd", nil)
	def, err := tool.ParseDef("s", json.RawMessage(`{"name":"odd","inputSchema":{"type":"object","properties":{"a":{"type":"array"}}},"x":1.0}`))
	if err != nil {
		t.Fatal(err)
	}
	odd.Def = def
	naive := func(client string) bool { return strings.HasPrefix(client, "naive") }
	renamed := newTool(t, "renamed", func(_ context.Context, call *tool.Call) (tool.Result, error) {
		return tool.TextResult(string(call.Arguments)), nil
	})
	if renamed.Def, err = tool.ParseDef("s", json.RawMessage(`{"name":"renamed","inputSchema":{"type":"object","properties":{"$top":{"type":"integer"}}}}`)); err != nil {
		t.Fatal(err)
	}
	offer(live, Served{Meta: []*tool.Tool{odd}, Portable: naive, Prefixes: naive, Short: func(t *tool.Tool) string {
		return t.Name[:2]
	}, Meant: func(t *tool.Tool, call *tool.Call) (*tool.Tool, *tool.Call, func(tool.Result) tool.Result) {
		if call.Name == "renamed" {
			t = renamed
		}
		return t, call, nil
	}})
	url := serveHTTP(t, live)
	for client, want := range map[string]string{"naive": `{"type":"array","items":{}}`, "other": `{"type":"array"}`} {
		for range 2 { // the second is remembered
			name, keys := "odd", `{\"_top\":5}`
			if client == "naive" {
				name, keys = "od", `{\"$top\":5}`
			}
			p := connect(t, url, client)
			if got := p.messages(list)[0]; !strings.Contains(got, `{"name":"`+name+`","inputSchema":{"type":"object","properties":{"a":`+want+`}},"x":1.0}`) {
				t.Errorf("%s is listed %s", client, got)
			}
			if got := p.messages(call(1, "renamed", `{"_top":5}`))[0]; !strings.Contains(got, keys) {
				t.Errorf("%s calls with %s", client, got)
			}
		}
	}
}
