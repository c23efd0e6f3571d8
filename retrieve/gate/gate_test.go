package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/tool"
)

// shelf is a catalog whose tools change, and the sessions of a gate.
type shelf struct {
	budget atomic.Pointer[Budget]
	cost   func() int

	mu       sync.Mutex // guards what follows
	tools    map[string]*tool.Tool
	pinned   []string
	sessions map[string]bool
	told     []string // owners
}

func (s *shelf) Lookup(name string) (*tool.Tool, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.tools[name]
	return one, ok
}

func (s *shelf) ByID(id tool.ID) (*tool.Tool, bool) { return s.Lookup(id.Server + "_" + id.Name) }

func (s *shelf) Pinned() []*tool.Tool {
	var tools []*tool.Tool
	for _, name := range s.pinned {
		if one, ok := s.Lookup(name); ok {
			tools = append(tools, one)
		}
	}
	return tools
}

func (s *shelf) Tokens(*tool.Tool) int { return s.cost() }

// change replaces the tools by what f makes of them.
func (s *shelf) change(f func(map[string]*tool.Tool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tools = maps.Clone(s.tools)
	f(s.tools)
}

// open begins a session.
func (s *shelf) open(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[session] = true
}

// end ends a session as clients do.
func (s *shelf) end(g *Gate, session string) {
	s.mu.Lock()
	delete(s.sessions, session)
	s.mu.Unlock()
	g.Drop(session)
}

func (s *shelf) Knows(session string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[session]
}

func (s *shelf) Relist(_ context.Context, owner, _ string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, owner)
}

// kept is a Store in memory, which write may fail.
type kept struct {
	write func(ctx context.Context, owner string, set []tool.Provisioned) error

	mu  sync.Mutex // guards all; held by who changes it
	all map[string][]tool.Provisioned
}

// keep returns a Store with what it has at first.
func keep(write func(ctx context.Context, owner string, set []tool.Provisioned) error, at []tool.Provisioned) *kept {
	k := &kept{write: write, all: map[string][]tool.Provisioned{}}
	for _, p := range at {
		k.all[p.Owner] = append(k.all[p.Owner], p)
	}
	return k
}

func (k *kept) Change(ctx context.Context, owner string, f func([]tool.Provisioned) ([]tool.Provisioned, error)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	set, err := f(k.all[owner])
	if err != nil {
		return err
	}
	set = slices.Clone(set)
	for i := range set {
		set[i].Owner = owner
	}
	if err := k.write(ctx, owner, set); err != nil {
		return err
	}
	k.all[owner] = set
	return nil
}

// of is what is stored of an owner.
func (k *kept) of(owner string) []tool.Provisioned {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.all[owner]
}

// each is what every tool costs.
const each = 10

func newTool(t testing.TB, name string) *tool.Tool {
	t.Helper()
	server, own, _ := strings.Cut(name, "_")
	def := must.Get(tool.ParseDef(server, json.RawMessage(`{"name":"`+own+`"}`)))(t)
	return &tool.Tool{Name: name, Def: def, Handler: func(context.Context, *tool.Call) (tool.Result, error) {
		return tool.TextResult("called " + name), nil
	}}
}

// gated puts tools srv_a to srv_e behind a gate, and srv_pin pinned.
func gated(t testing.TB, options Options, budget Budget) (*Gate, *shelf) {
	t.Helper()
	source := &shelf{
		cost: func() int { return each }, tools: map[string]*tool.Tool{}, pinned: []string{"srv_pin"}, sessions: map[string]bool{},
	}
	source.budget.Store(&budget)
	options.Clients = source
	g := New(options, func() Terms { return Terms{source, source.budget.Load()} }, slog.New(slog.DiscardHandler))
	for _, name := range strings.Fields("srv_a srv_b srv_c srv_d srv_e srv_pin") {
		one := newTool(t, name)
		one.Handler = g.Layer(one.Def.ID)(one.Handler)
		source.tools[name] = one
	}
	return g, source
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

func ids(source *shelf, names ...string) []tool.ID {
	var all []tool.ID
	for _, one := range pick(source, names...) {
		all = append(all, one.Def.ID)
	}
	return all
}

// provision must succeed.
func provision(t testing.TB, g *Gate, owner string, ttl time.Duration, names ...string) Outcome {
	t.Helper()
	done := must.Get(g.Provision(t.Context(), owner, Request{Tools: pick(g.clients.(*shelf), names...), TTL: ttl}))(t)
	return done
}

func provisionNames(all []tool.Provisioned) string {
	var names []string
	for _, p := range all {
		names = append(names, p.ID.Server+"_"+p.ID.Name)
	}
	return strings.Join(names, " ")
}

func has(g *Gate, owner string) string {
	all, _ := g.Provisions(owner, nil)
	return provisionNames(all)
}

func TestTheGateLetsThroughWhatIsProvisioned(t *testing.T) {
	g, source := gated(t, Options{}, Budget{})
	provision(t, g, "principal ann", 0, "srv_a")
	provision(t, g, tool.Anonymous, 0, "srv_b")
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
		{"for a principal of that name", "srv_b", tool.Call{Principal: tool.Anonymous}, false},
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
			if !errors.Is(err, ErrNotProvisioned) || err.Error() != "Tool "+test.tool+" not provisioned. Use provision_tools first." {
				t.Errorf("%s, %v", result, err)
			}
		})
	}
	t.Run("nothing is gated", func(t *testing.T) {
		source.budget.Store(nil)
		one, _ := source.Lookup("srv_c")
		if _, err := one.Handler(t.Context(), &tool.Call{Name: "srv_c"}); err != nil {
			t.Error(err)
		}
		if _, err := g.Provision(t.Context(), tool.Anonymous, Request{Tools: pick(source, "srv_c")}); !errors.Is(err, ErrNotGated) {
			t.Errorf("Provision: %v", err)
		}
		if _, err := g.Unprovision(t.Context(), tool.Anonymous, nil); !errors.Is(err, ErrNotGated) {
			t.Errorf("Unprovision: %v", err)
		}
		if all, _ := g.Provisions(tool.Anonymous, nil); all != nil {
			t.Errorf("Provisions: %v", all)
		}
	})
}

func TestProvisionAnswersWhatItDid(t *testing.T) {
	g, source := gated(t, Options{}, Budget{MaxTools: 3, MaxTokens: 1000, TTL: time.Hour})
	owner := "principal ann"
	got := provision(t, g, owner, 0, "srv_b", "srv_pin", "srv_a", "srv_b")
	if provisionNames(got.Added) != "srv_b srv_a" || provisionNames(got.Kept) != "srv_pin" || got.Usage != (Usage{2, 20}) || got.Budget.MaxTools != 3 {
		t.Errorf("first: %+v", got)
	}
	if left := time.Until(got.Added[0].Until); left <= 0 || left > time.Hour || !got.Kept[0].Until.IsZero() {
		t.Errorf("ends in %s, the pinned one %v", left, got.Kept[0].Until)
	}
	got, err := g.Provision(t.Context(), owner, Request{Tools: pick(source, "srv_a", "srv_c", "srv_x", "srv_d"), Fit: true, TTL: time.Minute})
	if err != nil || provisionNames(got.Added) != "srv_c" || provisionNames(got.Kept) != "srv_a" || provisionNames(got.Left) != "srv_d" || got.Left[0].Tokens != each {
		t.Errorf("best that fit: %+v, %v", got, err)
	}
	all, state := g.Provisions(owner, nil)
	usage, budget := state.Usage, state.Budget
	if provisionNames(all) != "srv_b srv_a srv_c" || usage != (Usage{3, 30}) || budget.MaxTokens != 1000 || time.Until(all[1].Until) < time.Minute {
		t.Errorf("provisions: %+v, %+v, %+v", all, usage, budget)
	}
	for what, want := range map[string]error{"srv_e": nil, "srv_x": tool.ErrNotFound} {
		_, err := g.Provision(t.Context(), owner, Request{Tools: pick(source, what)})
		var over *BudgetError
		if want == nil && (!errors.As(err, &over) || over.Used.Tools != 3 || over.Asked.Tokens != each) || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	removed, err := g.Unprovision(t.Context(), owner, ids(source, "srv_a", "srv_e"))
	if err != nil || provisionNames(removed) != "srv_a" || g.IsProvisioned(owner, removed[0].ID) || has(g, owner) != "srv_b srv_c" {
		t.Errorf("removed %v, %v, left %s", removed, err, has(g, owner))
	}
	if removed, err = g.Unprovision(t.Context(), owner, []tool.ID{}); err != nil || len(removed) != 0 {
		t.Errorf("none: removed %v, %v", removed, err)
	}
	if removed, err = g.Unprovision(t.Context(), owner, nil); err != nil || provisionNames(removed) != "srv_b srv_c" {
		t.Errorf("all: removed %v, %v", removed, err)
	}
	if len(g.ledger.accounts) != 0 {
		t.Error("an owner without tools is remembered")
	}
}

func TestConcurrentProvisioningHoldsTheBudget(t *testing.T) {
	var mu sync.Mutex
	var kept [][]tool.Provisioned
	g, source := gated(t, Options{Store: keep(func(_ context.Context, owner string, set []tool.Provisioned) error {
		mu.Lock()
		defer mu.Unlock()
		kept = append(kept, set)
		return nil
	}, nil)}, Budget{MaxTools: 3, MaxTokens: 1000})
	var all sync.WaitGroup
	var added, refused [5]int
	for i, name := range []string{"srv_a", "srv_b", "srv_c", "srv_d", "srv_e"} {
		all.Go(func() {
			done, err := g.Provision(t.Context(), "principal ann", Request{Tools: pick(source, name)})
			var over *BudgetError
			if errors.As(err, &over) {
				refused[i]++
			}
			added[i] = len(done.Added)
		})
	}
	all.Wait()
	first, _, _ := strings.Cut(has(g, "principal ann"), " ")
	provision(t, g, "principal ann", 0, first) // changes nothing: it is not written
	sum := func(counts [5]int) (n int) {
		for _, c := range counts {
			n += c
		}
		return n
	}
	if _, state := g.Provisions("principal ann", nil); state.Usage.Tools != 3 || sum(added) != 3 || sum(refused) != 2 {
		t.Errorf("%d tools are provisioned, %v added, %v refused", state.Usage.Tools, added, refused)
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
	g, source := gated(t, Options{}, Budget{})
	source.cost = func() int { counting <- true; <-count; return 1 }
	source.open("s")
	answered := make(chan error, 1)
	go func() {
		_, err := g.Provision(t.Context(), "session s", Request{Tools: pick(source, "srv_a")})
		answered <- err
	}()
	<-counting
	source.end(g, "s")
	close(count)
	if err := await.Value(t, answered); !errors.Is(err, ErrSessionEnded) {
		t.Errorf("error %v", err)
	}
	if len(g.ledger.accounts) != 0 {
		t.Error("a set is left of a session that has ended")
	}
}

// The same, when the session ends in the middle of the change.
func TestASessionThatEndsWhileItsSetChanges(t *testing.T) {
	g, source := gated(t, Options{}, Budget{})
	source.open("s")
	one := pick(source, "srv_a")[0]
	_, err := g.update(t.Context(), "session s", g.terms(), func(all set) (set, error) {
		source.end(g, "s")
		return append(all, tool.Provisioned{ID: one.Def.ID}), nil
	})
	if err != nil || len(g.ledger.accounts) != 0 || g.IsProvisioned("session s", one.Def.ID) {
		t.Errorf("%v; a set is left of a session that has ended", err)
	}
}

func TestWhatTheStoreHadIsProvisioned(t *testing.T) {
	id := func(name string) tool.ID { return tool.ID{Server: "srv", Name: name} }
	g, _ := gated(t, Options{Kept: []tool.Provisioned{
		{Owner: "principal ann", ID: id("b")},
		{Owner: "principal ann", ID: id("a"), Until: time.Now().Add(time.Hour)},
		{Owner: "principal ann", ID: id("b")},
		{Owner: "principal ann", ID: id("c"), Until: time.Now().Add(-time.Hour)},
		{Owner: "principal ann", ID: id("gone")},
		{Owner: tool.Anonymous, ID: id("d")},
		{Owner: "session stdio", ID: id("e")},
	}}, Budget{})
	for owner, want := range map[string]string{"principal ann": "srv_b srv_a", tool.Anonymous: "srv_d", "session stdio": ""} {
		if got := has(g, owner); got != want {
			t.Errorf("%s has %q, want %q", owner, got, want)
		}
	}
}

// What cannot be stored is refused, and changes nothing, but for sessions: their sets are never stored.
func TestWhatCannotBeStoredIsRefused(t *testing.T) {
	for name, read := range map[string]Read{
		"one process":     nil,
		"other processes": func(context.Context, string) ([]tool.Provisioned, error) { return nil, errors.New("away") },
	} {
		away := false
		g, source := gated(t, Options{Read: read, Store: keep(func(context.Context, string, []tool.Provisioned) error {
			if away {
				return errors.New("the disk of db.internal is full")
			}
			return nil
		}, nil)}, Budget{})
		var log bytes.Buffer
		g.log = slog.New(slog.NewTextHandler(&log, nil))
		provision(t, g, tool.Anonymous, 0, "srv_a")
		away = true
		_, provisioned := g.Provision(t.Context(), tool.Anonymous, Request{Tools: pick(source, "srv_b")})
		_, unprovisioned := g.Unprovision(t.Context(), tool.Anonymous, nil)
		for _, err := range []error{provisioned, unprovisioned} {
			if !errors.Is(err, ErrNotStored) || strings.Contains(err.Error(), "db.internal") {
				t.Errorf("%s: the error is %v", name, err)
			}
		}
		if got := has(g, tool.Anonymous); got != "srv_a" || !strings.Contains(log.String(), "db.internal") {
			t.Errorf("%s: provisioned are %q; the log has %s", name, got, log.String())
		}
		source.open("s")
		log.Reset()
		provision(t, g, "session s", 0, "srv_a")
		if log.Len() > 0 {
			t.Errorf("%s: the set of a session was to be written: %s", name, log.String())
		}
		away = false
		provision(t, g, tool.Anonymous, 0, "srv_b")
		if got := has(g, tool.Anonymous); got != "srv_a srv_b" {
			t.Errorf("%s: provisioned are %q", name, got)
		}
	}
}

func TestProvisioningWaitsItsTurnNoLongerThanItsCaller(t *testing.T) {
	writing, write := make(chan bool), make(chan bool)
	g, source := gated(t, Options{Store: keep(func(ctx context.Context, _ string, _ []tool.Provisioned) error {
		writing <- true
		<-write
		if err := ctx.Err(); err != nil {
			t.Errorf("what has changed is not written: %v", err)
		}
		return nil
	}, nil)}, Budget{})
	first := make(chan error, 1)
	firstCtx, leave := context.WithCancel(t.Context())
	go func() {
		_, err := g.Provision(firstCtx, tool.Anonymous, Request{Tools: pick(source, "srv_a")})
		first <- err
	}()
	<-writing
	if g.IsProvisioned(tool.Anonymous, pick(source, "srv_a")[0].Def.ID) { // which waits for nothing
		t.Error("srv_a is provisioned before it is written")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.Provision(ctx, tool.Anonymous, Request{Tools: pick(source, "srv_b")}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	leave() // the caller no longer waits, but the change has happened
	close(write)
	if err := await.Value(t, first); err != nil || has(g, tool.Anonymous) != "srv_a" {
		t.Errorf("%v, has %s", err, has(g, tool.Anonymous))
	}
}

// crowd are as many owners as a Live holds tools of, each with srv_a.
func crowd(n int) []tool.Provisioned {
	kept := make([]tool.Provisioned, n)
	for i := range kept {
		kept[i] = tool.Provisioned{Owner: fmt.Sprintf("principal %d", i), ID: tool.ID{Server: "srv", Name: "a"}, Tokens: each}
	}
	return kept
}

func TestOfTooManyOwnersThoseGoWhoUsedTheirToolsLongestAgo(t *testing.T) {
	kept := crowd(maxOwners)
	written := map[string]int{} // tools, by owner; Keep is called by this goroutine alone
	g, source := gated(t, Options{Kept: kept, Store: keep(func(_ context.Context, owner string, set []tool.Provisioned) error {
		written[owner] = len(set)
		return nil
	}, kept)}, Budget{MaxTools: 1})
	a := pick(source, "srv_a")[0]
	// used makes all but those the ones that used theirs last, each in its way.
	used := func(but ...string) {
		for i, k := range kept {
			if slices.Contains(but, k.Owner) {
				continue
			}
			switch i % 3 {
			case 0:
				g.IsProvisioned(k.Owner, a.Def.ID)
			case 1:
				g.Granted(k.Owner)
			case 2:
				g.Provisions(k.Owner, nil)
			}
		}
	}
	gone := func(want ...string) {
		t.Helper()
		var got []string
		for _, k := range kept {
			if g.ledger.accounts[k.Owner] == nil { // to ask for them would be to use them
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

	g.Granted("principal 8")
	used("principal 7", "principal 8")
	if _, err := g.Provision(t.Context(), "principal late", Request{Tools: pick(source, "srv_a", "srv_b")}); err == nil {
		t.Error("over budget, and no error")
	}
	if _, err := g.Unprovision(t.Context(), "principal late", nil); err != nil {
		t.Error(err)
	}
	gone() // what is refused takes nothing from anybody
	wrote(map[string]int{})
	provision(t, g, "principal late", 0, "srv_a")
	wrote(map[string]int{"principal late": 1, "principal 7": 0})
	gone("principal 7")

	// Who was next in line and uses its tools stays.
	g.Granted("principal 8")
	used("principal 9")
	g.Granted("principal late")
	provision(t, g, "principal later", 0, "srv_a")
	wrote(map[string]int{"principal later": 1, "principal 9": 0})
	gone("principal 7", "principal 9")
	if n := len(g.ledger.accounts); n != maxOwners {
		t.Errorf("%d owners are held, want %d", n, maxOwners)
	}
}

// Anonymous clients can open as many sessions as there are: what one has goes with
// it, and takes nothing from anybody.
func TestSetsOfSessionsTakeNothingFromOthers(t *testing.T) {
	g, source := gated(t, Options{Kept: crowd(maxOwners)}, Budget{})
	for i := range 50 {
		id := fmt.Sprint(i)
		source.open(id)
		provision(t, g, tool.SessionOwner(id), 0, "srv_a")
	}
	if n := len(g.ledger.accounts); n != maxOwners+50 {
		t.Errorf("%d owners are held, want %d", n, maxOwners+50)
	}
	if used := g.ledger.limit.Used(); used != maxOwners {
		t.Errorf("%d sets count, want %d", used, maxOwners)
	}
}

func TestTheStoreMakesNoMoreOwnersThanAreHeld(t *testing.T) {
	g, _ := gated(t, Options{Kept: append(crowd(2*maxOwners), crowd(1)...)}, Budget{})
	if n := len(g.ledger.accounts); n != maxOwners {
		t.Errorf("%d owners are held, want %d", n, maxOwners)
	}
}

func TestWhoHasNothingIsNotRememberedForGivingItBack(t *testing.T) {
	g, _ := gated(t, Options{Store: keep(func(context.Context, string, []tool.Provisioned) error {
		t.Error("a set that is none is written")
		return nil
	}, nil)}, Budget{})
	removed, err := g.Unprovision(t.Context(), "principal nobody", nil)
	if err != nil || removed != nil || len(g.ledger.accounts) != 0 {
		t.Errorf("%v; removed %v; %d owners are held", err, removed, len(g.ledger.accounts))
	}
}

// What tools cost that the catalog has not yet is known from the store: the budget
// holds when they come.
func TestTheBudgetHoldsAfterARestart(t *testing.T) {
	var kept []tool.Provisioned
	for _, name := range []string{"a", "b"} {
		kept = append(kept, tool.Provisioned{Owner: "principal ann", ID: tool.ID{Server: "srv", Name: name}, Tokens: each})
	}
	var written []tool.Provisioned
	g, source := gated(t, Options{Kept: kept, Store: keep(func(_ context.Context, _ string, set []tool.Provisioned) error {
		written = set
		return nil
	}, kept)}, Budget{MaxTokens: 3 * each})
	a, b := source.tools["srv_a"], source.tools["srv_b"]
	source.change(func(c map[string]*tool.Tool) { delete(c, "srv_a"); delete(c, "srv_b") })
	provision(t, g, "principal ann", 0, "srv_c")
	if len(written) != 3 || written[0].Tokens != each || written[2].Tokens != each {
		t.Errorf("written: %v", written)
	}
	provision(t, g, "principal ann", 0, "srv_d", "srv_e")
	source.change(func(c map[string]*tool.Tool) { c["srv_a"], c["srv_b"] = a, b })
	if _, state := g.Provisions("principal ann", nil); !state.Budget.allows(state.Usage) || state.Usage.Tools != 3 {
		t.Errorf("%s of %s", state.Usage, state.Budget)
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
			g, source := gated(t, Options{}, Budget{TTL: test.ttl})
			provision(t, g, "principal ann", test.first, "srv_a")
			before := time.Now()
			done, err := g.Provision(t.Context(), "principal ann", Request{Tools: pick(source, "srv_a"), Fit: test.fit, TTL: test.ask})
			if err != nil || len(done.Kept) != 1 {
				t.Fatalf("%+v, %v", done, err)
			}
			all, _ := g.Provisions("principal ann", nil)
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

func TestTimeEndsWhatIsProvisioned(t *testing.T) {
	written := make(chan []tool.Provisioned, 10)
	g, source := gated(t, Options{Store: keep(func(_ context.Context, _ string, set []tool.Provisioned) error {
		written <- set
		return nil
	}, nil)}, Budget{})
	provision(t, g, "principal ann", 0, "srv_a")
	provision(t, g, "principal ann", time.Hour, "srv_b")
	_, err := g.update(t.Context(), "principal ann", g.terms(), func(all set) (set, error) {
		all[1].Until = time.Now() // its hour has passed
		return all, nil
	})
	// The end does not take the timer: nothing runs yet.
	if err != nil || g.IsProvisioned("principal ann", ids(source, "srv_b")[0]) {
		t.Errorf("%v, srv_b is provisioned", err)
	}
	if got := has(g, "principal ann"); got != "srv_a" {
		t.Errorf("provisioned: %s", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan bool)
	go func() { g.Run(ctx); close(ended) }()
	for range 3 {
		<-written
	}
	if set := await.Value(t, written); len(set) != 1 || set[0].ID.Name != "a" {
		t.Errorf("written %v", set)
	}
	source.mu.Lock()
	if told := slices.Compact(slices.Clone(source.told)); len(source.told) < 3 || !slices.Equal(told, []string{"principal ann"}) { // twice of what came
		t.Errorf("told: %v", source.told)
	}
	source.mu.Unlock()
	// The timer follows what comes later.
	provision(t, g, "principal ann", time.Hour, "srv_c")
	provision(t, g, "principal bob", time.Millisecond, "srv_d")
	await.True(t, func() bool {
		g.ledger.mu.Lock()
		defer g.ledger.mu.Unlock()
		return g.ledger.accounts["principal bob"] == nil
	})
	cancel()
	await.Value(t, ended)
}

func TestTheTimerIsToldOfWhatEndsSooner(t *testing.T) {
	now := time.Now()
	l := newLedger(NewLimit())
	for i, test := range []struct {
		ends time.Time
		wake bool
	}{
		{time.Time{}, false},
		{now.Add(time.Hour), true},
		{now.Add(2 * time.Hour), false},
		{now.Add(time.Minute), true},
	} {
		l.put(fmt.Sprint(i), set{{ID: tool.ID{Name: "a"}, Until: test.ends}})
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
	g, source := gated(b, Options{}, Budget{})
	var names []string
	source.change(func(all map[string]*tool.Tool) {
		for i := range 40 {
			name := fmt.Sprintf("srv_tool_%02d", i)
			all[name] = newTool(b, name)
			names = append(names, name)
		}
	})
	one := source.tools[names[39]]
	handler := g.Layer(one.Def.ID)(func(context.Context, *tool.Call) (tool.Result, error) { return nil, nil })
	source.open("s")
	for _, owner := range []string{"session s", "principal ann"} {
		provision(b, g, owner, time.Hour, names...)
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
	source.budget.Store(nil)
	run("not gated", tool.Call{Session: "s"})
}

func BenchmarkProvision(b *testing.B) {
	g, source := gated(b, Options{}, Budget{MaxTools: 40, MaxTokens: 8000})
	tools := pick(source, "srv_a", "srv_b", "srv_c", "srv_d", "srv_e")
	b.ReportAllocs()
	for b.Loop() {
		must.Get(g.Provision(context.Background(), tool.Anonymous, Request{Tools: tools}))(b)
		must.Get(g.Unprovision(context.Background(), tool.Anonymous, nil))(b)
	}
}

// What another process has stored of an owner is what the owner may call here, and its
// clients are told.
func TestASetIsRecalled(t *testing.T) {
	g, source := gated(t, Options{}, Budget{MaxTools: 5, MaxTokens: 100})
	provision(t, g, "ann", 0, "srv_a")
	stored := func(names ...string) Read {
		var all []tool.Provisioned
		for _, id := range ids(source, names...) {
			all = append(all, tool.Provisioned{Owner: "ann", ID: id, Tokens: each})
		}
		return func(context.Context, string) ([]tool.Provisioned, error) { return all, nil }
	}
	for _, step := range []struct {
		stored []string
		told   bool
	}{{[]string{"srv_a"}, false}, {[]string{"srv_b", "srv_c"}, true}, {nil, true}, {nil, false}, {[]string{"srv_d"}, true}} {
		source.told = nil
		must.Do(t, g.Recall(t.Context(), "ann", stored(step.stored...)))
		if got := has(g, "ann"); got != strings.Join(step.stored, " ") {
			t.Errorf("ann has %q, want %v", got, step.stored)
		}
		if told := len(source.told) > 0; told != step.told {
			t.Errorf("%v: clients are told: %t", step.stored, told)
		}
	}
	if got := g.Owners(); !slices.Equal(got, []string{"ann"}) {
		t.Errorf("owners %v", got)
	}
	broken := errors.New("away")
	if err := g.Recall(t.Context(), "ann", func(context.Context, string) ([]tool.Provisioned, error) { return nil, broken }); !errors.Is(err, broken) || has(g, "ann") != "srv_d" {
		t.Errorf("what cannot be read: %v; ann has %q", err, has(g, "ann"))
	}
	session := tool.SessionOwner("s")
	if err := g.Recall(t.Context(), session, stored("srv_a")); err != nil || has(g, session) != "" {
		t.Errorf("a session has %q, %v: its set is not stored", has(g, session), err)
	}
}

// Who has provisioned something over another process calls it over this one, which has not heard of it.
func TestWhatAnotherProcessHasProvisionedIsAdmitted(t *testing.T) {
	db := keep(func(context.Context, string, []tool.Provisioned) error { return nil }, nil)
	broken := false
	read := func(_ context.Context, owner string) ([]tool.Provisioned, error) {
		if broken {
			return nil, errors.New("away")
		}
		return db.of(owner), nil
	}
	one, source := gated(t, Options{Store: db}, Budget{MaxTools: 3, MaxTokens: 100})
	other, _ := gated(t, Options{Store: db, Read: read}, Budget{MaxTools: 3, MaxTokens: 100})
	provision(t, one, "principal ann", 0, "srv_a")
	for _, step := range []struct {
		principal, tool string
		broken, want    bool
	}{{"ann", "srv_a", true, false}, {"ann", "srv_b", false, false}, {"ben", "srv_a", false, false}, {"ann", "srv_a", false, true}, {"ann", "srv_a", true, true}} {
		broken = step.broken
		err := other.Admit(t.Context(), &tool.Call{Name: step.tool, Principal: step.principal}, ids(source, step.tool)[0])
		if (err == nil) != step.want || err != nil && !errors.Is(err, ErrNotProvisioned) {
			t.Errorf("%+v: %v", step, err)
		}
	}
}

// Of what two processes provision for one owner at once nothing is lost, and both hold one budget.
func TestTwoProcessesProvisionForOneOwner(t *testing.T) {
	db := keep(func(context.Context, string, []tool.Provisioned) error { return nil }, nil)
	one, source := gated(t, Options{Store: db}, Budget{MaxTools: 3, MaxTokens: 100})
	other, _ := gated(t, Options{Store: db}, Budget{MaxTools: 3, MaxTokens: 100})
	provision(t, one, "ann", 0, "srv_a")
	provision(t, other, "ann", 0, "srv_b")
	if got := has(other, "ann"); got != "srv_a srv_b" {
		t.Errorf("the second knows %q", got)
	}
	if _, err := one.Unprovision(t.Context(), "ann", ids(source, "srv_a")); err != nil || has(one, "ann") != "srv_b" {
		t.Errorf("the first knows %q, %v", has(one, "ann"), err)
	}
	provision(t, other, "ann", 0, "srv_c", "srv_d")
	var over *BudgetError
	if _, err := one.Provision(t.Context(), "ann", Request{Tools: pick(source, "srv_e")}); !errors.As(err, &over) || over.Used.Tools != 3 {
		t.Errorf("beyond the budget that the other has used: %v", err)
	}
	if got := has(one, "ann"); got != "srv_b srv_c srv_d" || source.told[len(source.told)-1] != "ann" {
		t.Errorf("the first, which was told so, knows %q; told were %v", got, source.told)
	}
}
