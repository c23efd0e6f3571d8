package register

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"toolfinch/tool"
)

// shelf is a Source whose tools change.
type shelf struct {
	catalog // of prompts and resources: none

	mu     sync.Mutex // guards what follows
	tools  catalog
	pinned []string
}

func (s *shelf) Lookup(name string) (*tool.Tool, bool) { return s.now().Lookup(name) }
func (s *shelf) ByID(id tool.ID) (*tool.Tool, bool)    { return s.now().ByID(id) }
func (s *shelf) Tools() []*tool.Tool                   { return s.now().Tools() }

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

// each is what every tool of a gated Live costs.
const each = 10

// gated serves tools srv_a to srv_e behind a gate, srv_pin pinned, and the
// meta-tools provision and unprovision, which take names.
func gated(t testing.TB, settings Settings, budget Budget) (*Live, *shelf) {
	t.Helper()
	source := &shelf{tools: catalog{}, pinned: []string{"srv_pin"}}
	if settings.Tokens == nil {
		settings.Tokens = func(*tool.Tool) int { return each }
	}
	settings.PrincipalHeader = "X-User"
	live := serve(settings, Served{Source: source, Offered: offersAll}, slog.New(slog.DiscardHandler))
	for _, name := range strings.Fields("srv_a srv_b srv_c srv_d srv_e srv_pin") {
		one := newTool(t, name, func(context.Context, *tool.Call) (tool.Result, error) { return tool.TextResult("called " + name), nil })
		one.Handler = live.Gate(one)
		source.tools[name] = one
	}
	named := func(call *tool.Call) []*tool.Tool {
		var in struct{ Tools []string }
		_ = json.Unmarshal(call.Arguments, &in)
		return pick(source, in.Tools...)
	}
	provision := newTool(t, "provision", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		done, err := live.Provision(ctx, Owner(call), ProvisionRequest{Tools: named(call), Session: call.Session})
		if err != nil {
			return nil, err
		}
		return tool.TextResult(fmt.Sprintf("%d added", len(done.Added))), nil
	})
	unprovision := newTool(t, "unprovision", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		removed, err := live.Unprovision(ctx, Owner(call), named(call))
		return tool.TextResult(fmt.Sprintf("%d removed", len(removed))), err
	})
	hidden := newTool(t, "hidden", func(context.Context, *tool.Call) (tool.Result, error) { return tool.TextResult("answered"), nil })
	offer(live, Served{Meta: []*tool.Tool{provision, unprovision}, Unlisted: []*tool.Tool{hidden}, Gate: &budget})
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
func provision(t testing.TB, live *Live, owner string, ttl time.Duration, names ...string) Provisioned {
	t.Helper()
	done, err := live.Provision(t.Context(), owner, ProvisionRequest{Tools: pick(live.served().Source.(*shelf), names...), TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func provisionNames(all []Provision) string {
	var names []string
	for _, p := range all {
		names = append(names, p.Name)
	}
	return strings.Join(names, " ")
}

func has(live *Live, owner string) string {
	all, _, _ := live.Provisions(owner)
	return provisionNames(all)
}

func TestTheGateLetsThroughWhatIsProvisioned(t *testing.T) {
	live, source := gated(t, Settings{}, Budget{})
	provision(t, live, "principal ann", 0, "srv_a")
	provision(t, live, Anonymous, 0, "srv_b")
	for _, test := range []struct {
		name, tool string
		call       tool.Call
		passes     bool
	}{
		{"provisioned", "srv_a", tool.Call{Principal: "ann"}, true},
		{"in whatever session", "srv_a", tool.Call{Principal: "ann", Session: "s"}, true},
		{"provisioned, called within another", "srv_a", tool.Call{Principal: "ann", Depth: 3}, true},
		{"not provisioned", "srv_c", tool.Call{Principal: "ann"}, false},
		{"for somebody else", "srv_b", tool.Call{Principal: "ann"}, false},
		{"for nobody", "srv_b", tool.Call{}, true},
		{"for a principal of that name", "srv_b", tool.Call{Principal: Anonymous}, false},
		{"for a session", "srv_b", tool.Call{Session: "s"}, false},
		{"pinned", "srv_pin", tool.Call{Session: "s"}, true},
		{"the owner's own", "srv_c", tool.Call{Local: true}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			one, _ := source.Lookup(test.tool)
			test.call.Name = test.tool
			result, err := one.Handler(t.Context(), &test.call)
			if test.passes {
				if err != nil || !strings.Contains(string(result), "called "+test.tool) {
					t.Errorf("%s, %v", result, err)
				}
				return
			}
			var refused *NotProvisionedError
			if !errors.As(err, &refused) || !errors.Is(err, ErrNotProvisioned) || err.Error() != "Tool "+test.tool+" not provisioned. Use provision_tools first." {
				t.Errorf("%s, %v", result, err)
			}
		})
	}
	t.Run("nothing is gated", func(t *testing.T) {
		offer(live, Served{})
		one, _ := source.Lookup("srv_c")
		if _, err := one.Handler(t.Context(), &tool.Call{Name: "srv_c"}); err != nil {
			t.Error(err)
		}
		if _, err := live.Provision(t.Context(), Anonymous, ProvisionRequest{Tools: pick(source, "srv_c")}); !errors.Is(err, ErrNotGated) {
			t.Errorf("Provision: %v", err)
		}
		if _, err := live.Unprovision(t.Context(), Anonymous, nil); !errors.Is(err, ErrNotGated) {
			t.Errorf("Unprovision: %v", err)
		}
		if all, _, _ := live.Provisions(Anonymous); all != nil {
			t.Errorf("Provisions: %v", all)
		}
	})
}

func TestProvisionAnswersWhatItDid(t *testing.T) {
	live, source := gated(t, Settings{}, Budget{MaxTools: 3, MaxTokens: 1000, TTL: time.Hour})
	owner := "principal ann"
	got := provision(t, live, owner, 0, "srv_b", "srv_pin", "srv_a", "srv_b")
	if provisionNames(got.Added) != "srv_b srv_a" || provisionNames(got.Kept) != "srv_pin" || got.Usage != (Usage{2, 20}) || got.Budget.MaxTools != 3 {
		t.Errorf("first: %+v", got)
	}
	if left := time.Until(got.Added[0].Until); left <= 0 || left > time.Hour || !got.Kept[0].Until.IsZero() {
		t.Errorf("ends in %s, the pinned one %v", left, got.Kept[0].Until)
	}
	got, err := live.Provision(t.Context(), owner, ProvisionRequest{Tools: pick(source, "srv_a", "srv_c", "srv_x", "srv_d"), Fit: true, TTL: time.Minute})
	if err != nil || provisionNames(got.Added) != "srv_c" || provisionNames(got.Kept) != "srv_a" || provisionNames(got.Left) != "srv_d" || got.Left[0].Tokens != each {
		t.Errorf("best that fit: %+v, %v", got, err)
	}
	all, usage, budget := live.Provisions(owner)
	if provisionNames(all) != "srv_b srv_a srv_c" || usage != (Usage{3, 30}) || budget.MaxTokens != 1000 || time.Until(all[1].Until) < time.Minute {
		t.Errorf("provisions: %+v, %+v, %+v", all, usage, budget)
	}
	for what, want := range map[string]error{"srv_e": nil, "srv_x": tool.ErrNotFound} {
		_, err := live.Provision(t.Context(), owner, ProvisionRequest{Tools: pick(source, what)})
		var over *BudgetError
		if want == nil && (!errors.As(err, &over) || over.UsedTools != 3 || over.Tokens != each) || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	removed, err := live.Unprovision(t.Context(), owner, pick(source, "srv_a", "srv_e"))
	if err != nil || provisionNames(removed) != "srv_a" || live.IsProvisioned(owner, removed[0].Def.ID) || has(live, owner) != "srv_b srv_c" {
		t.Errorf("removed %v, %v, left %s", removed, err, has(live, owner))
	}
	if removed, err = live.Unprovision(t.Context(), owner, []*tool.Tool{}); err != nil || len(removed) != 0 {
		t.Errorf("none: removed %v, %v", removed, err)
	}
	if removed, err = live.Unprovision(t.Context(), owner, nil); err != nil || provisionNames(removed) != "srv_b srv_c" {
		t.Errorf("all: removed %v, %v", removed, err)
	}
	if len(live.ledger.accounts) != 0 {
		t.Error("an owner without tools is remembered")
	}
}

func use(p *peer, id int, what string, names ...string) []string {
	list, _ := json.Marshal(map[string][]string{"Tools": names})
	return p.messages(call(id, what, string(list)))
}

func TestAGatedSession(t *testing.T) {
	learned := make(chan bool, 10)
	live, _ := gated(t, Settings{Remember: func(_ string, relists bool) { learned <- relists }}, Budget{MaxTools: 2})
	p := connect(t, serveHTTP(t, live), "lister")
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
	if !receive(t, learned, "what the client is known for") {
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
	if got := live.Register(t.Context(), p.session, pick(live.served().Source.(*shelf), "srv_e")); len(got) != 1 || !got["srv_pin"] {
		t.Errorf("registered %v", got)
	}
	live.Forget(p.session)
	if len(live.ledger.accounts) != 0 {
		t.Error("the set outlives its session")
	}
}

func TestAGatedStdioSession(t *testing.T) {
	live, _ := gated(t, Settings{}, Budget{})
	d := serveStdio(t, t.Context(), live)
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
	if err := <-d.ended; err != nil || len(live.ledger.accounts) != 0 {
		t.Errorf("ServeStdio = %v, %d sets are left", err, len(live.ledger.accounts))
	}
}

func TestAPrincipalHasOneSetInAllItsSessions(t *testing.T) {
	live, _ := gated(t, Settings{Relists: map[string]bool{"many 1": false}}, Budget{})
	url := serveHTTP(t, live)
	var of, changes = map[string]*peer{}, map[string]<-chan string{}
	for _, name := range []string{"ann 1", "ann 2", "ann 3", "bob", ""} {
		p := connect(t, url, "many")
		principal, _, _ := strings.Cut(name, " ")
		p.messages(list, "X-User", principal)
		got, stop := p.listen()
		defer stop()
		of[name], changes[name] = p, got
	}
	names := func(name, principal string) string {
		return strings.Join(listed(t, of[name].messages(list, "X-User", principal)[0])[3:], " ")
	}
	of["ann 1"].messages(call(1, "provision", `{"Tools":["srv_a","srv_b"]}`), "X-User", "ann")
	for _, name := range []string{"ann 1", "ann 2", "ann 3"} {
		await(t, changes[name], "tools/list_changed")
		if got := names(name, "ann"); got != "srv_a srv_b" {
			t.Errorf("%s is listed %q", name, got)
		}
	}
	for _, name := range []string{"bob", ""} {
		if len(changes[name]) > 0 || names(name, name) != "" {
			t.Errorf("%q hears of another's tools, or is listed them", name)
		}
	}
	// Who a request is from is what counts, whoever came before in the session.
	if got := names("ann 1", "bob"); got != "" {
		t.Errorf("bob is listed %q in a session of ann's", got)
	}
	if got := of["ann 1"].messages(call(2, "srv_a", `{}`), "X-User", "bob"); !strings.Contains(got[0], "not provisioned") {
		t.Errorf("bob calls in a session of ann's: %s", got)
	}
	provision(t, live, "principal bob", 0, "srv_c")
	await(t, changes["ann 1"], "tools/list_changed")
	await(t, changes["bob"], "tools/list_changed")
	if len(changes["ann 2"]) > 0 {
		t.Error("ann hears of bob's")
	}
	// The set survives the sessions.
	for _, name := range []string{"ann 1", "ann 2", "ann 3"} {
		live.Forget(of[name].session)
	}
	of["new"] = connect(t, url, "many")
	if got := names("new", "ann"); got != "srv_a srv_b" {
		t.Errorf("a new session is listed %q", got)
	}
}

func TestConcurrentProvisioningHoldsTheBudget(t *testing.T) {
	var mu sync.Mutex
	var kept [][]KeptProvision
	live, source := gated(t, Settings{Keep: func(_ context.Context, owner string, set []KeptProvision) error {
		mu.Lock()
		defer mu.Unlock()
		kept = append(kept, set)
		return nil
	}}, Budget{MaxTools: 3, MaxTokens: 1000})
	var all sync.WaitGroup
	var added, refused [5]int
	for i, name := range []string{"srv_a", "srv_b", "srv_c", "srv_d", "srv_e"} {
		all.Go(func() {
			done, err := live.Provision(t.Context(), "principal ann", ProvisionRequest{Tools: pick(source, name)})
			var over *BudgetError
			if errors.As(err, &over) {
				refused[i]++
			}
			added[i] = len(done.Added)
		})
	}
	all.Wait()
	first, _, _ := strings.Cut(has(live, "principal ann"), " ")
	provision(t, live, "principal ann", 0, first) // changes nothing: it is not written
	sum := func(counts [5]int) (n int) {
		for _, c := range counts {
			n += c
		}
		return n
	}
	if _, usage, _ := live.Provisions("principal ann"); usage.Tools != 3 || sum(added) != 3 || sum(refused) != 2 {
		t.Errorf("%d tools are provisioned, %v added, %v refused", usage.Tools, added, refused)
	}
	// Each set that was written is the one before and one more.
	for i, set := range kept {
		if len(set) != i+1 || i > 0 && !slices.Equal(set[:i], kept[i-1]) {
			t.Fatalf("written in turn: %v", kept)
		}
	}
	if len(kept) != 3 {
		t.Errorf("%d sets were written", len(kept))
	}
}

func TestASessionThatEndsWhileItProvisions(t *testing.T) {
	counting, count := make(chan bool, 1), make(chan bool)
	live, source := gated(t, Settings{Tokens: func(*tool.Tool) int { counting <- true; <-count; return 1 }}, Budget{})
	live.Open("s", false, func([]byte) bool { return false }, func() bool { return false })
	answered := make(chan error, 1)
	go func() {
		_, err := live.Provision(t.Context(), "session s", ProvisionRequest{Tools: pick(source, "srv_a")})
		answered <- err
	}()
	<-counting
	live.Forget("s")
	close(count)
	if err := receive(t, answered, "the answer"); !errors.Is(err, ErrSessionEnded) {
		t.Errorf("error %v", err)
	}
	if len(live.ledger.accounts) != 0 {
		t.Error("a set is left of a session that has ended")
	}
}

// The same, when the session ends in the middle of the change.
func TestASessionThatEndsWhileItsSetChanges(t *testing.T) {
	live, source := gated(t, Settings{}, Budget{})
	live.Open("s", false, func([]byte) bool { return false }, func() bool { return false })
	one := pick(source, "srv_a")[0]
	err := live.amend(t.Context(), "session s", true, func(all grants) (grants, error) {
		live.Forget("s")
		return append(all, grant{id: one.Def.ID}), nil
	})
	if err != nil || len(live.ledger.accounts) != 0 || live.IsProvisioned("session s", one.Def.ID) {
		t.Errorf("%v; a set is left of a session that has ended", err)
	}
}

func TestTimeEndsWhatIsProvisioned(t *testing.T) {
	written := make(chan []KeptProvision, 10)
	live, source := gated(t, Settings{Keep: func(_ context.Context, _ string, set []KeptProvision) error {
		written <- set
		return nil
	}}, Budget{})
	p := connect(t, serveHTTP(t, live), "timed")
	p.messages(list, "X-User", "ann")
	changes, stop := p.listen()
	defer stop()
	provision(t, live, "principal ann", 0, "srv_a")
	await(t, changes, "tools/list_changed")
	provision(t, live, "principal ann", time.Hour, "srv_b")
	await(t, changes, "tools/list_changed")
	err := live.amend(t.Context(), "principal ann", true, func(all grants) (grants, error) {
		all[1].until = time.Now() // its hour has passed
		return all, nil
	})
	// The end does not take the timer: nothing runs yet.
	if err != nil || live.IsProvisioned("principal ann", pick(source, "srv_b")[0].Def.ID) {
		t.Errorf("%v, srv_b is provisioned", err)
	}
	if got := has(live, "principal ann"); got != "srv_a" {
		t.Errorf("provisioned: %s", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan bool)
	go func() { live.Run(ctx); close(ended) }()
	await(t, changes, "tools/list_changed")
	if got := listed(t, p.messages(list, "X-User", "ann")[0]); !slices.Equal(got, []string{"provision", "unprovision", "srv_pin", "srv_a"}) {
		t.Errorf("listed %v", got)
	}
	for range 3 {
		<-written
	}
	if set := receive(t, written, "the set to be written"); len(set) != 1 || set[0].ID.Name != "a" {
		t.Errorf("written %v", set)
	}
	// The timer follows what comes later.
	provision(t, live, "principal ann", time.Hour, "srv_c")
	provision(t, live, "principal bob", time.Millisecond, "srv_d")
	eventually(t, "the empty set is forgotten", func() bool {
		live.ledger.mu.Lock()
		defer live.ledger.mu.Unlock()
		return live.ledger.accounts["principal bob"] == nil
	})
	cancel()
	receive(t, ended, "the end of Run")
}

func TestWhatTheStoreHadIsProvisioned(t *testing.T) {
	id := func(name string) tool.ID { return tool.ID{Server: "srv", Name: name} }
	live, _ := gated(t, Settings{Kept: []KeptProvision{
		{"principal ann", id("b"), time.Time{}, 0},
		{"principal ann", id("a"), time.Now().Add(time.Hour), 0},
		{"principal ann", id("b"), time.Time{}, 0},
		{"principal ann", id("c"), time.Now().Add(-time.Hour), 0},
		{"principal ann", id("gone"), time.Time{}, 0},
		{Anonymous, id("d"), time.Time{}, 0},
		{"session stdio", id("e"), time.Time{}, 0},
	}}, Budget{})
	for owner, want := range map[string]string{"principal ann": "srv_b srv_a", Anonymous: "srv_d", "session stdio": ""} {
		if got := has(live, owner); got != want {
			t.Errorf("%s has %q, want %q", owner, got, want)
		}
	}
}

func TestASetThatCannotBeWrittenHolds(t *testing.T) {
	live, source := gated(t, Settings{Keep: func(context.Context, string, []KeptProvision) error { return errors.New("disk full") }}, Budget{})
	var log bytes.Buffer
	live.log = slog.New(slog.NewTextHandler(&log, nil))
	provision(t, live, Anonymous, 0, "srv_a")
	if !live.IsProvisioned(Anonymous, pick(source, "srv_a")[0].Def.ID) || !strings.Contains(log.String(), "disk full") {
		t.Errorf("log = %s", log.String())
	}
	live.Open("s", false, func([]byte) bool { return false }, func() bool { return false })
	log.Reset()
	provision(t, live, "session s", 0, "srv_a")
	if log.Len() > 0 {
		t.Errorf("the set of a session was to be written: %s", log.String())
	}
}

func TestProvisioningWaitsItsTurnNoLongerThanItsCaller(t *testing.T) {
	writing, write := make(chan bool), make(chan bool)
	live, source := gated(t, Settings{Keep: func(ctx context.Context, _ string, _ []KeptProvision) error {
		writing <- true
		<-write
		if err := ctx.Err(); err != nil {
			t.Errorf("what has changed is not written: %v", err)
		}
		return nil
	}}, Budget{})
	first := make(chan error, 1)
	firstCtx, leave := context.WithCancel(t.Context())
	go func() {
		_, err := live.Provision(firstCtx, Anonymous, ProvisionRequest{Tools: pick(source, "srv_a")})
		first <- err
	}()
	<-writing
	// What is written slowly holds already, and keeps nobody from calling.
	if !live.IsProvisioned(Anonymous, pick(source, "srv_a")[0].Def.ID) {
		t.Error("srv_a is not provisioned while it is written")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := live.Provision(ctx, Anonymous, ProvisionRequest{Tools: pick(source, "srv_b")}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	leave() // the caller no longer waits, but the change has happened
	close(write)
	if err := receive(t, first, "the first answer"); err != nil || has(live, Anonymous) != "srv_a" {
		t.Errorf("%v, has %s", err, has(live, Anonymous))
	}
}

// crowd are as many owners as a Live holds tools of, each with srv_a.
func crowd(n int) []KeptProvision {
	kept := make([]KeptProvision, n)
	for i := range kept {
		kept[i] = KeptProvision{Owner: fmt.Sprintf("principal %d", i), ID: tool.ID{Server: "srv", Name: "a"}, Tokens: each}
	}
	return kept
}

func TestOfTooManyOwnersThoseGoWhoUsedTheirToolsLongestAgo(t *testing.T) {
	kept := crowd(maxOwners)
	written := map[string]int{} // tools, by owner; Keep is called by this goroutine alone
	live, source := gated(t, Settings{Kept: kept, Keep: func(_ context.Context, owner string, set []KeptProvision) error {
		written[owner] = len(set)
		return nil
	}}, Budget{MaxTools: 1})
	a := pick(source, "srv_a")[0]
	// used makes all but those the ones that used theirs last, each in its way.
	used := func(but ...string) {
		for i, k := range kept {
			if slices.Contains(but, k.Owner) {
				continue
			}
			switch i % 3 {
			case 0:
				live.IsProvisioned(k.Owner, a.Def.ID)
			case 1:
				live.listedTo(live.served())(k.Owner)
			case 2:
				live.Provisions(k.Owner)
			}
		}
	}
	gone := func(want ...string) {
		t.Helper()
		var got []string
		for _, k := range kept {
			if live.ledger.accounts[k.Owner] == nil { // to ask for them would be to use them
				got = append(got, k.Owner)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v have lost their tools, want %v", got, want)
		}
	}
	wrote := func(want map[string]int) {
		t.Helper()
		if !maps.Equal(written, want) {
			t.Errorf("written: %v, want %v", written, want)
		}
		clear(written)
	}

	live.listedTo(live.served())("principal 8")
	used("principal 7", "principal 8")
	if _, err := live.Provision(t.Context(), "principal late", ProvisionRequest{Tools: pick(source, "srv_a", "srv_b")}); err == nil {
		t.Error("over budget, and no error")
	}
	if _, err := live.Unprovision(t.Context(), "principal late", nil); err != nil {
		t.Error(err)
	}
	gone() // what is refused takes nothing from anybody
	wrote(map[string]int{})
	provision(t, live, "principal late", 0, "srv_a")
	wrote(map[string]int{"principal late": 1, "principal 7": 0})
	gone("principal 7")

	// Who is in the middle of a change stays.
	changing := live.ledger.open("principal 8", false)
	used("principal 9")
	live.listedTo(live.served())("principal late")
	provision(t, live, "principal later", 0, "srv_a")
	live.ledger.close("principal 8", changing)
	wrote(map[string]int{"principal later": 1, "principal 9": 0})
	gone("principal 7", "principal 9")
	if n := len(live.ledger.accounts); n != maxOwners {
		t.Errorf("%d owners are held, want %d", n, maxOwners)
	}
}

// Anonymous clients can open as many sessions as there are: what one has goes with
// it, and takes nothing from anybody.
func TestSetsOfSessionsTakeNothingFromOthers(t *testing.T) {
	live, _ := gated(t, Settings{Kept: crowd(maxOwners)}, Budget{})
	for i := range 50 {
		id := fmt.Sprint(i)
		live.Open(id, false, func([]byte) bool { return false }, func() bool { return false })
		provision(t, live, sessionOwner+id, 0, "srv_a")
	}
	if n := len(live.ledger.accounts); n != maxOwners+50 {
		t.Errorf("%d owners are held, want %d", n, maxOwners+50)
	}
	if used := live.limits.sets.Used(); used != maxOwners {
		t.Errorf("%d sets count, want %d", used, maxOwners)
	}
}

func TestClientsAreToldWhenTheirToolsGoForOthers(t *testing.T) {
	live, source := gated(t, Settings{Kept: crowd(maxOwners), PrincipalHeader: "X-User"}, Budget{})
	p := connect(t, serveHTTP(t, live), "idle")
	const owner = "principal idle"
	provision(t, live, owner, 0, "srv_b") // one of the crowd goes
	if got := listed(t, p.messages(list, "X-User", "idle")[0]); len(got) != 4 {
		t.Errorf("listed %v", got)
	}
	changes, stop := p.listen()
	defer stop()
	for other := range maps.Clone(live.ledger.accounts) {
		if other != owner {
			live.IsProvisioned(other, source.tools["srv_a"].Def.ID)
		}
	}
	provision(t, live, "principal late", 0, "srv_a")
	await(t, changes, "tools/list_changed")
	if got := listed(t, p.messages(list, "X-User", "idle")[0]); len(got) != 3 {
		t.Errorf("listed %v", got)
	}
}

func TestTheStoreMakesNoMoreOwnersThanAreHeld(t *testing.T) {
	live, _ := gated(t, Settings{Kept: append(crowd(2*maxOwners), crowd(1)...)}, Budget{})
	if n := len(live.ledger.accounts); n != maxOwners {
		t.Errorf("%d owners are held, want %d", n, maxOwners)
	}
}

func TestWhoHasNothingIsNotRememberedForGivingItBack(t *testing.T) {
	live, _ := gated(t, Settings{Keep: func(context.Context, string, []KeptProvision) error {
		t.Error("a set that is none is written")
		return nil
	}}, Budget{})
	err := live.amend(t.Context(), "principal nobody", false, func(all grants) (grants, error) {
		t.Error("the grants of somebody without any are changed")
		return all, nil
	})
	removed, err2 := live.Unprovision(t.Context(), "principal nobody", nil)
	live.settle(t.Context(), "principal nobody")
	if err != nil || err2 != nil || removed != nil || live.ledger.uses != 0 {
		t.Errorf("%v, %v; removed %v; %d uses", err, err2, removed, live.ledger.uses)
	}
}

// What tools cost that the catalog has not yet is known from the store: the budget
// holds when they come.
func TestTheBudgetHoldsAfterARestart(t *testing.T) {
	var kept []KeptProvision
	for _, name := range []string{"a", "b"} {
		kept = append(kept, KeptProvision{"principal ann", tool.ID{Server: "srv", Name: name}, time.Time{}, each})
	}
	var written []KeptProvision
	live, source := gated(t, Settings{Kept: kept, Keep: func(_ context.Context, _ string, set []KeptProvision) error {
		written = set
		return nil
	}}, Budget{MaxTokens: 3 * each})
	a, b := source.tools["srv_a"], source.tools["srv_b"]
	source.change(func(c catalog) { delete(c, "srv_a"); delete(c, "srv_b") })
	provision(t, live, "principal ann", 0, "srv_c")
	if len(written) != 3 || written[0].Tokens != each || written[2].Tokens != each {
		t.Errorf("written: %v", written)
	}
	provision(t, live, "principal ann", 0, "srv_d", "srv_e")
	source.change(func(c catalog) { c["srv_a"], c["srv_b"] = a, b })
	if _, usage, budget := live.Provisions("principal ann"); !budget.holds(usage) || usage.Tools != 3 {
		t.Errorf("%s of %s", usage, budget)
	}
}

func TestHowLongToolsStay(t *testing.T) {
	const never = 0
	for _, test := range []struct {
		name            string
		ttl, first, ask time.Duration // the view's, and what two requests ask
		fit             bool          // the second
		want            time.Duration // after the second
	}{
		{"the view says nothing, nor does anybody else", never, never, never, false, never},
		{"the view's where nothing is asked", time.Hour, never, never, false, time.Hour},
		{"the view's is the most", time.Hour, 9 * time.Hour, 9 * time.Hour, false, time.Hour},
		{"named: shortened", never, never, time.Minute, false, time.Minute},
		{"named: shortened below the view's", time.Hour, never, time.Minute, false, time.Minute},
		{"named: renewed", never, time.Minute, time.Hour, false, time.Hour},
		{"named: as the view's again", time.Hour, time.Minute, never, false, time.Hour},
		{"named: left as it is", never, time.Minute, never, false, time.Minute},
		{"found: not shortened", never, time.Hour, time.Minute, true, time.Hour},
		{"found: not ended at all", never, never, time.Minute, true, never},
		{"found: renewed", never, time.Minute, time.Hour, true, time.Hour},
		{"found: for good", never, time.Minute, never, true, never},
		{"found: as the view's again", time.Hour, time.Minute, never, true, time.Hour},
	} {
		t.Run(test.name, func(t *testing.T) {
			live, source := gated(t, Settings{}, Budget{TTL: test.ttl})
			provision(t, live, "principal ann", test.first, "srv_a")
			before := time.Now()
			done, err := live.Provision(t.Context(), "principal ann", ProvisionRequest{Tools: pick(source, "srv_a"), Fit: test.fit, TTL: test.ask})
			if err != nil || len(done.Kept) != 1 {
				t.Fatalf("%+v, %v", done, err)
			}
			all, _, _ := live.Provisions("principal ann")
			until := all[0].Until
			if !until.Equal(done.Kept[0].Until) {
				t.Errorf("it is said to end %v, and ends %v", done.Kept[0].Until, until)
			}
			if until.IsZero() != (test.want == never) || !until.IsZero() && until.Sub(before).Round(time.Minute) != test.want {
				t.Errorf("it ends %v, want in %v", until, test.want)
			}
		})
	}
}

func TestPrincipalOf(t *testing.T) {
	long := strings.Repeat("x", 1024)
	for _, test := range []struct {
		name   string
		values []string
		want   string
	}{
		{"X-User", []string{"ann"}, "ann"},
		{"x-user", []string{"ann"}, "ann"},
		{"X-User", []string{long}, long},
		{"X-User", []string{long + "x"}, ""},
		{"X-User", []string{"ann", "bob"}, ""},
		{"X-User", []string{"ann", "ann"}, ""},
		{"X-User", []string{""}, ""},
		{"X-User", nil, ""},
		{"", []string{"ann"}, ""},
	} {
		if got := PrincipalOf(http.Header{"X-User": test.values, "": {"nobody"}}, test.name); got != test.want {
			t.Errorf("%q of %.20q is %.20q, want %.20q", test.name, test.values, got, test.want)
		}
	}
	if got := PrincipalOf(nil, "X-User"); got != "" {
		t.Errorf("without headers it is %q", got)
	}
}

func TestWhoNeverListedIsToldOfItsOwnChangesAlone(t *testing.T) {
	live, _ := gated(t, Settings{}, Budget{})
	provision(t, live, "principal ann", 0, "srv_a")
	p := connect(t, serveHTTP(t, live), "blind")
	changes, stop := p.listen()
	defer stop()
	p.messages(call(0, "hidden", `{}`), "X-User", "ann")
	live.Sync()
	provision(t, live, "principal ann", 0, "srv_b")
	await(t, changes, "tools/list_changed")
	if got := listed(t, p.messages(list, "X-User", "ann")[0]); len(got) != 5 {
		t.Errorf("listed %v", got)
	}
	provision(t, live, "principal ann", 0, "srv_c")
	await(t, changes, "tools/list_changed")
	if len(changes) > 0 {
		t.Errorf("told once too often: %s", <-changes)
	}
}

func TestProvisionsFollowTheCatalog(t *testing.T) {
	live, source := gated(t, Settings{}, Budget{MaxTools: 3})
	p := connect(t, serveHTTP(t, live), "follows")
	p.messages(list, "X-User", "ann")
	changes, stop := p.listen()
	defer stop()
	names := func() string {
		return strings.Join(listed(t, p.messages(list, "X-User", "ann")[0])[3:], " ")
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
		if _, usage, _ := live.Provisions("principal ann"); names() != step.want || usage.Tools != step.usage {
			t.Errorf("%s: listed %s, usage %+v", step.what, names(), usage)
		}
	}
	if got := p.messages(call(1, "srv_new", `{}`), "X-User", "ann"); !strings.Contains(got[0], "called srv_a") {
		t.Errorf("call under the new name: %s", got)
	}
	source.change(func(c catalog) { delete(c, "srv_e") })
	live.Sync()
	if len(changes) > 0 {
		t.Errorf("told of a tool that was not listed: %s", <-changes)
	}
}

func TestAPinnedToolIsListedOnceAndDoesNotCount(t *testing.T) {
	live, source := gated(t, Settings{}, Budget{MaxTools: 1})
	p := connect(t, serveHTTP(t, live), "pins")
	provision(t, live, "principal ann", 0, "srv_a")
	source.change(func(catalog) { source.pinned = []string{"srv_a"} })
	answer := p.messages(list, "X-User", "ann")
	if got := listed(t, answer[len(answer)-1]); !slices.Equal(got, []string{"provision", "unprovision", "srv_a"}) {
		t.Errorf("listed %v", got)
	}
	if all, usage, _ := live.Provisions("principal ann"); len(all) != 0 || usage != (Usage{}) {
		t.Errorf("provisions %v, usage %+v", all, usage)
	}
	if got := provision(t, live, "principal ann", 0, "srv_a", "srv_b"); provisionNames(got.Kept) != "srv_a" || provisionNames(got.Added) != "srv_b" {
		t.Errorf("provisioned %+v", got)
	}
}

func TestAModernClientIsListedWhatItsPrincipalHas(t *testing.T) {
	live, _ := gated(t, Settings{}, Budget{})
	n := &newcomer{t: t, url: serveHTTP(t, live), capabilities: `{}`}
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
	type told struct {
		session, client string
		tools           int
	}
	heard := make(chan told, 10)
	live, _ := gated(t, Settings{Listed: func(session, client string, tools []*tool.Tool) { heard <- told{session, client, len(tools)} }}, Budget{})
	p := connect(t, serveHTTP(t, live), "counted")
	provision(t, live, sessionOwner+p.session, 0, "srv_a")
	p.messages(list)
	n := &newcomer{t: t, url: p.url, capabilities: `{}`}
	n.answer(1, "tools/list", "")
	for _, want := range []told{{p.session, "counted 1", 4}, {"", "new 1", 3}} {
		if got := receive(t, heard, "the list"); got != want {
			t.Errorf("told %+v, want %+v", got, want)
		}
	}
}

func TestAGateNarrowsWhatIsListed(t *testing.T) {
	live, source := gated(t, Settings{Relists: map[string]bool{"narrowed 1": false}}, Budget{})
	p := connect(t, serveHTTP(t, live), "narrowed")
	all := Served{Direct: func() bool { return true }, Register: true}
	gate := all
	gate.Gate = &Budget{}
	some := Served{Register: true}
	offer(live, some)
	live.Register(t.Context(), p.session, pick(source, "srv_a"))
	changes, stop := p.listen()
	defer stop()
	await(t, changes, "tools/list_changed") // of srv_a
	for _, step := range []struct {
		face Served
		want int
	}{{all, 6}, {gate, 1}, {all, 6}, {gate, 1}, {some, 2}, {gate, 1}, {some, 2}} {
		offer(live, step.face)
		live.Sync()
		await(t, changes, "tools/list_changed")
		if got := listed(t, p.messages(list)[0]); len(got) != step.want {
			t.Errorf("listed %v, want %d", got, step.want)
		}
	}
}

func TestTheHookHearsOfWhatIsProvisioned(t *testing.T) {
	s := shown{known: true}
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
	var s shown
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

func TestTheTimerIsToldOfWhatEndsSooner(t *testing.T) {
	now := time.Now()
	l := newLedger(NewLimits().sets)
	for i, test := range []struct {
		ends time.Time
		wake bool
	}{
		{time.Time{}, false},
		{now.Add(time.Hour), true},
		{now.Add(2 * time.Hour), false},
		{now.Add(time.Minute), true},
	} {
		owner := fmt.Sprint(i)
		a := l.open(owner, true)
		l.put(a, grants{{id: tool.ID{Name: "a"}, until: test.ends}})
		l.close(owner, a)
		select {
		case <-l.wake:
			if !test.wake {
				t.Errorf("woken for %v", test.ends)
			}
		default:
			if test.wake {
				t.Errorf("not woken for %v", test.ends)
			}
		}
	}
	if owners, due := l.next(now); owners != nil || !due.Equal(now.Add(time.Minute)) {
		t.Errorf("now: %v, then %v", owners, due)
	}
	late := now.Add(time.Minute)
	if owners, due := l.next(late); !slices.Equal(owners, []string{"3"}) || !due.Equal(late.Add(time.Second)) {
		t.Errorf("in a minute: %v, then %v", owners, due)
	}
}

// The set is as large as the default budget lets it be.
func BenchmarkGate(b *testing.B) {
	live, source := gated(b, Settings{}, Budget{})
	var names []string
	source.change(func(all catalog) {
		for i := range 40 {
			name := fmt.Sprintf("srv_tool_%02d", i)
			all[name] = newTool(b, name, nil)
			names = append(names, name)
		}
	})
	one := source.tools[names[39]]
	handler := live.Gate(&tool.Tool{Name: one.Name, Def: one.Def, Handler: func(context.Context, *tool.Call) (tool.Result, error) { return nil, nil }})
	live.Open("s", false, func([]byte) bool { return false }, func() bool { return false })
	for _, owner := range []string{"session s", "principal ann"} {
		provision(b, live, owner, time.Hour, names...)
	}
	run := func(name string, call tool.Call) {
		call.Name = one.Name
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := handler(context.Background(), &call); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
	run("gated/session", tool.Call{Session: "s"})
	run("gated/principal", tool.Call{Principal: "ann"})
	run("local", tool.Call{Local: true})
	offer(live, Served{})
	run("not gated", tool.Call{Session: "s"})
}

func BenchmarkProvision(b *testing.B) {
	live, source := gated(b, Settings{}, Budget{MaxTools: 40, MaxTokens: 8000})
	tools := pick(source, "srv_a", "srv_b", "srv_c", "srv_d", "srv_e")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := live.Provision(context.Background(), Anonymous, ProvisionRequest{Tools: tools}); err != nil {
			b.Fatal(err)
		}
		if _, err := live.Unprovision(context.Background(), Anonymous, nil); err != nil {
			b.Fatal(err)
		}
	}
}
