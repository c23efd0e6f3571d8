package register

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/must"
	"toolfinch/retrieve/gate"
	"toolfinch/tool"
)

// shelf is a Source whose tools change.
type shelf struct {
	catalog // of prompts and resources: none

	mu     sync.Mutex // guards the fields below
	tools  catalog
	pinned []string
}

func (s *shelf) Lookup(name string) (*tool.Tool, bool) { return s.now().Lookup(name) }

func (s *shelf) ByID(id tool.ID) (*tool.Tool, bool) { return s.now().ByID(id) }

func (s *shelf) Tokens(*tool.Tool) int { return 10 }
func (s *shelf) Tools() []*tool.Tool   { return s.now().Tools() }

// CacheHint is what a gate must not let stand: a list that is the same for all.
func (s *shelf) CacheHint(tool.Kind) (time.Duration, bool) { return time.Second, true }

func (s *shelf) Pinned() []*tool.Tool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var tools []*tool.Tool
	for _, name := range s.pinned {
		if one, ok := s.tools[name]; ok {
			tools = append(tools, one)
		}
	}
	return tools
}

func (s *shelf) now() catalog {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tools
}

// change replaces the tools by what f makes of them.
func (s *shelf) change(f func(catalog)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tools = maps.Clone(s.tools)
	f(s.tools)
}

// gatedLive is a Live whose tools are behind a gate.
type gatedLive struct {
	*Live
	gate   *gate.Gate
	budget *atomic.Pointer[gate.Budget]
}

// gated serves tools srv_a to srv_e behind a gate, srv_pin pinned, and the
// meta-tools provision and unprovision, which take names.
func gated(t testing.TB, settings setup, budget gate.Budget) (gatedLive, *shelf) {
	t.Helper()
	source := &shelf{tools: catalog{}, pinned: []string{"srv_pin"}}
	live := gatedLive{budget: &atomic.Pointer[gate.Budget]{}}
	live.budget.Store(&budget)
	settings.Forget = func(session string) { live.gate.Drop(session) }
	live.Live = serve(settings, Served{Source: source, Declared: declaresAll}, slog.New(slog.DiscardHandler))
	live.gate = gate.New(gate.Options{Clients: live}, func() gate.Terms {
		return gate.Terms{Catalog: source, Budget: live.budget.Load()}
	}, slog.New(slog.DiscardHandler))
	for _, name := range strings.Fields("srv_a srv_b srv_c srv_d srv_e srv_pin") {
		one := newTool(t, name, func(context.Context, *tool.Call) (tool.Result, error) { return tool.TextResult("called " + name), nil })
		one.Handler = live.gate.Layer(one.Def.ID)(one.Handler)
		source.tools[name] = one
	}
	named := func(call *tool.Call) []*tool.Tool {
		var in struct{ Tools []string }
		_ = json.Unmarshal(call.Arguments, &in)
		return pick(source, in.Tools...)
	}
	provision := newTool(t, "provision", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		done, err := live.gate.Provision(ctx, call.Owner(), gate.Request{Tools: named(call), Session: call.Session})
		if err != nil {
			return nil, err
		}
		return tool.TextResult(fmt.Sprintf("%d added", len(done.Added))), nil
	})
	unprovision := newTool(t, "unprovision", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		var ids []tool.ID
		for _, one := range named(call) {
			ids = append(ids, one.Def.ID)
		}
		removed, err := live.gate.Unprovision(ctx, call.Owner(), ids)
		return tool.TextResult(fmt.Sprintf("%d removed", len(removed))), err
	})
	hidden := newTool(t, "hidden", func(context.Context, *tool.Call) (tool.Result, error) { return tool.TextResult("answered"), nil })
	offer(live.Live, Served{Meta: []*tool.Tool{provision, unprovision}, Unlisted: []*tool.Tool{hidden}, Granted: live.gate.Granted})
	live.Sync()
	return live, source
}

// pick returns tools by name; srv_x is one that no catalog has.
func pick(source *shelf, names ...string) []*tool.Tool {
	var tools []*tool.Tool
	for _, name := range names {
		if one, ok := source.Lookup(name); ok {
			tools = append(tools, one)
		} else {
			tools = append(tools, &tool.Tool{Name: name, Def: &tool.Def{ID: tool.ID{Server: "srv", Name: name}}})
		}
	}
	return tools
}

// provision must succeed.
func provision(t testing.TB, live gatedLive, owner string, ttl time.Duration, names ...string) gate.Outcome {
	t.Helper()
	done := must.Get(live.gate.Provision(t.Context(), owner, gate.Request{Tools: pick(live.served(identity.Party{}).Source.(*shelf), names...), TTL: ttl}))(t)
	return done
}

func idsOf(all []tool.Provisioned) string {
	var names []string
	for _, p := range all {
		names = append(names, p.ID.Server+"_"+p.ID.Name)
	}
	return strings.Join(names, " ")
}

func use(p *peer, id int, what string, names ...string) []string {
	list, _ := json.Marshal(map[string][]string{"Tools": names})
	return p.messages(call(id, what, string(list)))
}

// What a session may call is part of its state, also where its client sees no difference.
func TestAnotherEndOfWhatIsProvisionedChangesTheSession(t *testing.T) {
	var changed sync.Map // sessions
	live, _ := gated(t, setup{Relists: map[string]tool.Relists{"extends 1": tool.RelistsNever}, Changed: func(session string) { changed.Store(session, true) }}, gate.Budget{})
	p := connect(t, serveHTTP(t, live.Live), "extends")
	p.messages(list)
	for _, ttl := range []time.Duration{time.Hour, 2 * time.Hour} {
		changed.Clear()
		provision(t, live, tool.SessionOwner(p.session), ttl, "srv_a")
		if _, heard := changed.Load(p.session); !heard {
			t.Errorf("nobody hears that a tool is provisioned for %v", ttl)
		}
	}
}

func TestAGatedSession(t *testing.T) {
	learned := make(chan tool.Relists, 10)
	live, _ := gated(t, setup{Remember: func(_ string, relists tool.Relists) { learned <- relists }}, gate.Budget{MaxTools: 2})
	p := connect(t, serveHTTP(t, live.Live), "lister")
	changes, stop := p.listen()
	defer stop()
	refused := `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"Tool srv_a not provisioned. Use provision_tools first."}],"isError":true}}`
	if got := p.messages(call(1, "srv_a", `{}`)); strings.TrimSpace(got[0]) != refused {
		t.Errorf("before: %s", got)
	}
	if got := listed(t, p.messages(list)[0]); !slices.Equal(got, []string{"provision", "unprovision", "srv_pin"}) {
		t.Errorf("listed at first: %v", got)
	}
	if got := p.messages(call(2, "hidden", `{}`)); !strings.Contains(got[0], "answered") {
		t.Errorf("an unlisted meta-tool: %s", got)
	}
	answered := make(chan []string, 1)
	go func() { answered <- use(p, 3, "provision", "srv_b", "srv_a") }()
	await(t, changes, "tools/list_changed")
	select {
	case got := <-answered:
		t.Fatalf("answered before the client re-listed: %s", got)
	default:
	}
	if got := listed(t, p.messages(list)[0]); !slices.Equal(got, []string{"provision", "unprovision", "srv_pin", "srv_b", "srv_a"}) {
		t.Errorf("listed: %v", got)
	}
	if got := receive(t, answered, "the answer"); !strings.Contains(got[len(got)-1], "2 added") {
		t.Errorf("answer: %s", got)
	}
	if receive(t, learned, "what the client is known for") != tool.RelistsAlways {
		t.Error("the client is taken for one that does not re-list")
	}
	if got := p.messages(call(4, "srv_a", `{}`)); !strings.Contains(got[0], "called srv_a") {
		t.Errorf("after: %s", got)
	}
	// What changes nothing neither tells nor waits.
	if got := use(p, 5, "provision", "srv_a"); len(got) != 1 || !strings.Contains(got[0], "0 added") {
		t.Errorf("again: %s", got)
	}
	if got := use(p, 6, "provision", "srv_c"); !strings.Contains(got[0], `"over budget: asked for 1 tool (10 tokens) beside 2 tools`) {
		t.Errorf("over budget: %s", got)
	}
	if got := use(p, 7, "unprovision", "srv_b"); !strings.Contains(got[len(got)-1], "1 removed") {
		t.Errorf("unprovision: %s", got)
	}
	await(t, changes, "tools/list_changed")
	if got := listed(t, p.messages(list)[0]); !slices.Equal(got, []string{"provision", "unprovision", "srv_pin", "srv_a"}) {
		t.Errorf("listed in the end: %v", got)
	}
	if len(changes) > 0 {
		t.Errorf("told once too often: %s", <-changes)
	}
	if got := listed(t, connect(t, p.url, "other").messages(list)[0]); len(got) != 3 {
		t.Errorf("another session is listed %v", got)
	}
	if got, _ := live.Register(t.Context(), &tool.Call{Session: p.session}, pick(live.served(identity.Party{}).Source.(*shelf), "srv_e"), nil); len(got) != 1 || !got["srv_pin"] {
		t.Errorf("registered %v", got)
	}
	live.Forget(p.session)
	if left := live.gate.Granted(tool.SessionOwner(p.session)); left != nil {
		t.Error("the set outlives its session")
	}
}

func TestAGatedStdioSession(t *testing.T) {
	live, _ := gated(t, setup{}, gate.Budget{})
	d := serveStdio(t, t.Context(), live.Live)
	d.send(initialize)
	d.until(`"id":"i"`)
	d.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	d.send(list)
	d.until(`"id":"l"`)
	d.send(call(1, "provision", `{"Tools":["srv_a"]}`))
	d.until("tools/list_changed")
	d.send(list)
	if names := listed(t, d.until(`"id":"l"`)); !slices.Equal(names, []string{"provision", "unprovision", "srv_pin", "srv_a"}) {
		t.Errorf("listed %v", names)
	}
	d.until("1 added")
	d.send(call(2, "srv_a", `{}`))
	d.until("called srv_a")
	d.send(call(3, "srv_b", `{}`))
	d.until("Tool srv_b not provisioned. Use provision_tools first.")
	// A 2026-07-28 client on the same stream has no session: nothing of it is its.
	n := &newcomer{t: t, capabilities: `{}`}
	d.send(n.body(4, "tools/list", ""))
	if names := listed(t, d.until(`"id":4,`)); len(names) != 3 {
		t.Errorf("a client without session is listed %v", names)
	}
	d.send(n.body(5, "tools/call", `"name":"srv_a","arguments":{}`))
	if got := d.until(`"id":5,`); !strings.Contains(got, "not provisioned") {
		t.Errorf("a client without session calls: %s", got)
	}
	d.in.Close()
	for d.lines.Scan() {
	}
	if err := <-d.ended; err != nil || live.gate.Granted(tool.SessionOwner("stdio")) != nil {
		t.Errorf("ServeStdio = %v; or a set outlives its session", err)
	}
}

func TestAPrincipalHasOneSetInAllItsSessions(t *testing.T) {
	live, _ := gated(t, setup{Relists: map[string]tool.Relists{"many 1": tool.RelistsNever}}, gate.Budget{})
	url := serveHTTP(t, live.Live)
	var of, changes = map[string]*peer{}, map[string]<-chan string{}
	for _, name := range []string{"ann 1", "ann 2", "ann 3", "bob", ""} {
		principal, _, _ := strings.Cut(name, " ")
		p := connect(t, url, "many", "X-User", principal)
		p.messages(list)
		got, stop := p.listen()
		defer stop()
		of[name], changes[name] = p, got
	}
	names := func(name string) string {
		return strings.Join(listed(t, of[name].messages(list)[0])[3:], " ")
	}
	of["ann 1"].messages(call(1, "provision", `{"Tools":["srv_a","srv_b"]}`))
	for _, name := range []string{"ann 1", "ann 2", "ann 3"} {
		await(t, changes[name], "tools/list_changed")
		if got := names(name); got != "srv_a srv_b" {
			t.Errorf("%s is listed %q", name, got)
		}
	}
	for _, name := range []string{"bob", ""} {
		if len(changes[name]) > 0 || names(name) != "" {
			t.Errorf("%q hears of another's tools, or is listed them", name)
		}
	}
	// Another's session is one that is not there.
	unknown := connect(t, url, "many", "X-User", "bob")
	unknown.session = "unknown"
	want := answerOf(unknown.do(http.MethodPost, list))
	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
		if got := answerOf(of["ann 1"].do(method, list, "X-User", "bob")); got != want {
			t.Errorf("bob sends %s to a session of ann's: %s", method, got)
		}
	}
	// The set survives the sessions.
	for _, name := range []string{"ann 1", "ann 2", "ann 3"} {
		live.Forget(of[name].session)
	}
	of["new"] = connect(t, url, "many", "X-User", "ann")
	if got := names("new"); got != "srv_a srv_b" {
		t.Errorf("a new session is listed %q", got)
	}
}

func TestClientsAreToldWhenTheirToolsGoForOthers(t *testing.T) {
	live, source := gated(t, setup{}, gate.Budget{})
	p := connect(t, serveHTTP(t, live.Live), "idle", "X-User", "idle")
	provision(t, live, "principal idle", 0, "srv_b")
	if got := listed(t, p.messages(list)[0]); len(got) != 4 {
		t.Errorf("listed %v", got)
	}
	changes, stop := p.listen()
	defer stop()
	one := pick(source, "srv_a")
	for i := range 10_000 { // as many owners as a gate holds, beside the idle one
		must.Get(live.gate.Provision(t.Context(), fmt.Sprintf("principal %d", i), gate.Request{Tools: one}))(t)
	}
	await(t, changes, "tools/list_changed")
	if got := listed(t, p.messages(list)[0]); len(got) != 3 {
		t.Errorf("listed %v", got)
	}
}

func TestWhoNeverListedIsToldOfItsOwnChangesAlone(t *testing.T) {
	live, _ := gated(t, setup{}, gate.Budget{})
	provision(t, live, "principal ann", 0, "srv_a")
	p := connect(t, serveHTTP(t, live.Live), "blind", "X-User", "ann")
	changes, stop := p.listen()
	defer stop()
	p.messages(call(0, "hidden", `{}`))
	live.Sync()
	provision(t, live, "principal ann", 0, "srv_b")
	await(t, changes, "tools/list_changed")
	if got := listed(t, p.messages(list)[0]); len(got) != 5 {
		t.Errorf("listed %v", got)
	}
	provision(t, live, "principal ann", 0, "srv_c")
	await(t, changes, "tools/list_changed")
	if len(changes) > 0 {
		t.Errorf("told once too often: %s", <-changes)
	}
}

func TestProvisionsFollowTheCatalog(t *testing.T) {
	live, source := gated(t, setup{}, gate.Budget{MaxTools: 3})
	p := connect(t, serveHTTP(t, live.Live), "follows", "X-User", "ann")
	p.messages(list)
	changes, stop := p.listen()
	defer stop()
	names := func() string {
		return strings.Join(listed(t, p.messages(list)[0])[3:], " ")
	}
	provision(t, live, "principal ann", 0, "srv_a", "srv_b")
	await(t, changes, "tools/list_changed")
	a, _ := source.Lookup("srv_a")
	for _, step := range []struct {
		what   string
		change func(catalog)
		want   string
		usage  int
	}{
		{"gone", func(c catalog) { delete(c, "srv_a") }, "srv_b", 1},
		{"back, under another name", func(c catalog) { c["srv_new"] = &tool.Tool{Name: "srv_new", Def: a.Def, Handler: a.Handler} }, "srv_new srv_b", 2},
		{"described in other words", func(c catalog) {
			def := *a.Def
			def.Hash = "other"
			c["srv_new"] = &tool.Tool{Name: "srv_new", Def: &def, Handler: a.Handler}
		}, "srv_new srv_b", 2},
	} {
		source.change(step.change)
		live.Sync()
		await(t, changes, "tools/list_changed")
		if _, state := live.gate.Provisions("principal ann", nil); names() != step.want || state.Usage.Tools != step.usage {
			t.Errorf("%s: listed %s, usage %+v", step.what, names(), state.Usage)
		}
	}
	if got := p.messages(call(1, "srv_new", `{}`)); !strings.Contains(got[0], "called srv_a") {
		t.Errorf("call under the new name: %s", got)
	}
	source.change(func(c catalog) { delete(c, "srv_e") })
	live.Sync()
	if len(changes) > 0 {
		t.Errorf("told of a tool that was not listed: %s", <-changes)
	}
}

func TestAPinnedToolIsListedOnceAndDoesNotCount(t *testing.T) {
	live, source := gated(t, setup{}, gate.Budget{MaxTools: 1})
	p := connect(t, serveHTTP(t, live.Live), "pins", "X-User", "ann")
	provision(t, live, "principal ann", 0, "srv_a")
	source.change(func(catalog) { source.pinned = []string{"srv_a"} })
	answer := p.messages(list)
	if got := listed(t, answer[len(answer)-1]); !slices.Equal(got, []string{"provision", "unprovision", "srv_a"}) {
		t.Errorf("listed %v", got)
	}
	if all, state := live.gate.Provisions("principal ann", nil); len(all) != 0 || state.Usage != (gate.Usage{}) {
		t.Errorf("provisions %v, usage %+v", all, state.Usage)
	}
	if got := provision(t, live, "principal ann", 0, "srv_a", "srv_b"); idsOf(got.Kept) != "srv_a" || idsOf(got.Added) != "srv_b" {
		t.Errorf("provisioned %+v", got)
	}
}

func TestAModernClientIsListedWhatItsPrincipalHas(t *testing.T) {
	live, _ := gated(t, setup{}, gate.Budget{})
	n := &newcomer{t: t, url: serveHTTP(t, live.Live), capabilities: `{}`}
	p := &peer{t: t, url: n.url}
	ask := func(principal, method, members string) <-chan string {
		return p.stream(n.body(1, method, members), append(n.headers(method, members), "X-User", principal)...)
	}
	names := func(principal string) string {
		message := await(t, ask(principal, "tools/list", ""), `"tools"`)
		ttl := `"ttlMs":0`
		if principal == "" {
			ttl = `"ttlMs":1000`
		}
		if !strings.Contains(message, `"cacheScope":"private"`) || !strings.Contains(message, ttl) {
			t.Errorf("a list that varies may be cached by %q: %s", principal, message)
		}
		return strings.Join(listed(t, message)[3:], " ")
	}
	ears := map[string]<-chan string{}
	for _, principal := range []string{"ann", "bob", ""} {
		ears[principal] = ask(principal, "subscriptions/listen", `"notifications":{"toolsListChanged":true}`)
		await(t, ears[principal], "acknowledged")
	}
	for principal, want := range map[string]string{"": "", "ann": "srv_a"} {
		got := await(t, ask(principal, "tools/call", `"name":"provision","arguments":{"Tools":["srv_a"]}`), `"id":1`)
		if !strings.Contains(got, "1 added") || names(principal) != want {
			t.Errorf("%q: %s, then listed %s", principal, got, names(principal))
		}
		if got := await(t, ask(principal, "tools/call", `"name":"srv_a","arguments":{}`), `"id":1`); !strings.Contains(got, "called srv_a") {
			t.Errorf("%q calls: %s", principal, got)
		}
	}
	await(t, ears["ann"], toolsChanged)
	if len(ears["bob"])+len(ears[""])+len(ears["ann"]) > 0 {
		t.Error("somebody hears of what is not listed to them")
	}
}

func TestWhatIsListedIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type told struct {
			session, client string
			tools           int
		}
		heard := make(chan told, 10)
		live, _ := gated(t, setup{Listed: func(session, client string, tools []*tool.Tool) { heard <- told{session, client, len(tools)} }}, gate.Budget{})
		p := connect(t, serveHTTP(t, live.Live), "counted")
		provision(t, live, tool.SessionOwner(p.session), 0, "srv_a")
		p.messages(list)
		n := &newcomer{t: t, url: p.url, capabilities: `{}`}
		n.answer(1, "tools/list", "")
		for _, want := range []told{{p.session, "counted 1", 4}, {"", "new 1", 3}} {
			if got := receive(t, heard, "the list"); got != want {
				t.Errorf("told %+v, want %+v", got, want)
			}
		}
	})
}

func TestAGateNarrowsWhatIsListed(t *testing.T) {
	live, source := gated(t, setup{Relists: map[string]tool.Relists{"narrowed 1": tool.RelistsNever}}, gate.Budget{})
	p := connect(t, serveHTTP(t, live.Live), "narrowed")
	all := Served{Direct: func(bool) bool { return true }, Register: always}
	gated := all
	gated.Granted = live.gate.Granted
	some := Served{Register: always}
	offer(live.Live, some)
	live.Register(t.Context(), &tool.Call{Session: p.session}, pick(source, "srv_a"), nil)
	changes, stop := p.listen()
	defer stop()
	await(t, changes, "tools/list_changed") // of srv_a
	for _, step := range []struct {
		face Served
		want int
	}{{all, 6}, {gated, 1}, {all, 6}, {gated, 1}, {some, 2}, {gated, 1}, {some, 2}} {
		offer(live.Live, step.face)
		live.Sync()
		await(t, changes, "tools/list_changed")
		if got := listed(t, p.messages(list)[0]); len(got) != step.want {
			t.Errorf("listed %v, want %d", got, step.want)
		}
	}
}

func TestTheHookHearsOfWhatIsProvisioned(t *testing.T) {
	s := provisioned{known: true}
	with := func(names string) func(string) []*tool.Tool {
		return func(string) []*tool.Tool { return named(strings.Fields(names)...) }
	}
	for _, step := range []struct {
		now     string
		differs bool
		change  string
	}{
		{"a b", true, "{[a b] []}"},
		{"a b", false, "{[] []}"},
		{"b c", true, "{[c] [a]}"},
		{"c b", true, "{[] []}"},
		{"", true, "{[] [c b]}"},
	} {
		_, change, differs := s.follow("", with(step.now))
		if differs != step.differs || fmt.Sprint(change) != step.change {
			t.Errorf("%q: %v, %t", step.now, change, differs)
		}
	}
}

func TestAListIsOfWhoeverAsksForIt(t *testing.T) {
	var s provisioned
	s.by("principal ann")
	for _, test := range []struct{ asks, want string }{{"", "principal ann"}, {"principal bob", "principal bob"}, {"", "principal bob"}} {
		s.follow(test.asks, func(owner string) []*tool.Tool {
			if owner != test.want {
				t.Errorf("asked by %q: the list is of %q", test.asks, owner)
			}
			return nil
		})
	}
}

// answerOf is a status and a body.
func answerOf(response *http.Response) string {
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return response.Status + ": " + string(body)
}
