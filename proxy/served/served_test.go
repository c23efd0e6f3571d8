package served

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"weak"

	"toolfinch/configs"
	"toolfinch/internal/identity"
	"toolfinch/internal/must"
	"toolfinch/retrieve"
	"toolfinch/retrieve/gate"
	"toolfinch/tool"
	"toolfinch/trust/pins"
	"toolfinch/trust/policy"
	"toolfinch/upstream"
	"toolfinch/view"
)

// bench is a Runtime without any server: it keeps the indexes of views, and what was built last.
type bench struct {
	t        *testing.T
	now      *Served
	roots    map[string]*retrieve.Catalog
	clients  bool // views have clients
	catalogs int  // that were made
}

func newBench(t *testing.T) *bench {
	return &bench{t: t, now: &Served{Config: &configs.Config{}}, roots: map[string]*retrieve.Catalog{}}
}

func (r *bench) Now() *Served { return r.now }

func (r *bench) Catalog(ctx context.Context, view string, contents retrieve.Contents) (*retrieve.Catalog, error) {
	if r.roots[view] == nil {
		root := retrieve.NewCatalog(UnlistedResource(r, slog.New(slog.DiscardHandler), view, func(def *tool.Def) *tool.Tool { return tools(def)[0] }))
		r.roots[view] = root
		r.t.Cleanup(func() { _ = root.Close() })
	}
	r.catalogs++
	return r.roots[view].With(ctx, contents)
}

func (r *bench) Live(string) Live {
	if r.clients {
		return client{}
	}
	return nil
}

func (r *bench) Retrieval(*View) retrieve.Settings { return retrieve.Settings{} }

func (r *bench) Observed(string, *tool.Tool) tool.Middleware { return nil }

func (r *bench) ObservedMeta(_ *View, t *tool.Tool) *tool.Tool { return t }

func (r *bench) Denied(policy.Decision) {}

// client is the live server of a view whose clients do nothing.
type client struct{}

func (client) Register(_ context.Context, _ *tool.Call, _, _ []*tool.Tool) (map[string]bool, bool) {
	return nil, false
}

func (client) Used(*tool.Call, *tool.Tool) {}

func (client) Renewed(context.Context, string) *View { return nil }

func (client) Gate() *gate.Gate { return nil }

func (client) Started(context.Context) *View { return nil }

// build builds in, serves it, and returns it.
func (r *bench) build(in Input) *Served {
	r.t.Helper()
	in.Kept = &tool.Tool{Def: &tool.Def{}, Name: "read_output"}
	next, err := Build(r.t.Context(), in, r.now, r)
	if err != nil {
		r.t.Fatal(err)
	}
	r.now = next
	return next
}

// tools are tools of definitions whose calls answer the tool's name.
func tools(defs ...*tool.Def) []*tool.Tool {
	call := func(def *tool.Def) tool.Handler {
		return func(context.Context, *tool.Call) (tool.Result, error) { return tool.TextResult(def.ID.Name), nil }
	}
	return UpstreamTools(defs, call, func(*tool.Def) tool.Middleware { return nil }, nil)
}

// selling is the listing of a shop that sells things.
func selling(t *testing.T, server string, things ...string) Listing {
	t.Helper()
	var defs []*tool.Def
	for _, thing := range things {
		def := must.Get(tool.ParseDef(server, []byte(`{"name":"`+thing+`","inputSchema":{"type":"object"}}`)))(t)
		defs = append(defs, def)
	}
	return Listing{Listed: true, Answered: true, Tools: tools(defs...)}
}

// only is a view of everything that one server has.
func only(server string) view.Settings {
	return view.Settings{Name: server, Exposure: view.ExposureDirect, Tools: []view.UpstreamTools{{Name: server, Tools: []view.Override{{Tool: "*"}}}}}
}

func configOf(views []view.Settings, servers ...string) *configs.Config {
	config := &configs.Config{Views: views}
	for _, name := range servers {
		config.Servers = append(config.Servers, upstream.Settings{Name: name})
	}
	return config
}

// names are the names of the tools of each view.
func names(s *Served) map[string]string {
	all := map[string]string{}
	for _, v := range s.Views {
		var of []string
		for _, t := range v.Tools() {
			of = append(of, t.Name)
		}
		all[v.Name] = strings.Join(of, " ")
	}
	return all
}

func TestBuildServesTheViewsOfTheConfigurationOverTheListings(t *testing.T) {
	hats, shoes := selling(t, "hats", "cap", "bonnet"), selling(t, "shoes", "boot")
	unknown := Listing{StartsUntil: time.Unix(9, 0)}
	gated := only("shoes")
	gated.Gating = &view.Gating{}
	held := hats
	held.Waiting, held.Held = 1, map[tool.ID]pins.Held{held.Tools[0].Def.ID: {ID: held.Tools[0].Def.ID}}
	for _, test := range []struct {
		name     string
		config   *configs.Config
		listings map[string]Listing
		want     map[string]string
		complete bool
		held     int
		problem  string
	}{
		{"no views: everything at the root", configOf(nil, "hats", "shoes"), map[string]Listing{"hats": hats, "shoes": shoes},
			map[string]string{view.Default: "hats_bonnet hats_cap shoes_boot"}, true, 0, ""},
		{"views: the root combines them", configOf([]view.Settings{only("hats"), only("shoes")}, "hats", "shoes"), map[string]Listing{"hats": hats, "shoes": shoes},
			map[string]string{view.Default: "hats_bonnet hats_cap shoes_boot", "hats": "hats_bonnet hats_cap", "shoes": "shoes_boot"}, true, 0, ""},
		{"a gated view stays apart", configOf([]view.Settings{only("hats"), gated}, "hats", "shoes"), map[string]Listing{"hats": hats, "shoes": shoes},
			map[string]string{view.Default: "hats_bonnet hats_cap", "hats": "hats_bonnet hats_cap", "shoes": "shoes_boot"}, true, 0, ""},
		{"a held definition is served nowhere", configOf(nil, "hats"), map[string]Listing{"hats": held},
			map[string]string{view.Default: "hats_bonnet"}, true, 1, ""},
		{"a server that was not listed yet", configOf(nil, "hats", "shoes"), map[string]Listing{"hats": hats, "shoes": unknown},
			map[string]string{view.Default: "hats_bonnet hats_cap"}, false, 0, ""},
		{"a view without anything open at the root", configOf([]view.Settings{gated}, "shoes"), map[string]Listing{"shoes": shoes},
			map[string]string{view.Default: "", "shoes": "shoes_boot"}, true, 0, "the root serves nothing"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := newBench(t).build(Input{Config: test.config, Listings: test.listings})
			if !maps.Equal(names(got), test.want) {
				t.Errorf("it serves %q, want %q", names(got), test.want)
			}
			if got.Complete != test.complete || got.Held["hats"] != test.held {
				t.Errorf("complete: %t, held: %v", got.Complete, got.Held)
			}
			if said := fmt.Sprint(got.Problems); !strings.Contains(said, test.problem) || test.problem == "" && len(got.Problems) > 0 {
				t.Errorf("problems: %s", said)
			}
			if root := got.ByName[view.Default]; slices.Contains(root.Starting, "shoes") == test.complete || !test.complete && !root.StartsUntil.Equal(unknown.StartsUntil) {
				t.Errorf("%v start until %v", root.Starting, root.StartsUntil)
			}
		})
	}
}

func TestBuildKeepsWhatNoChangeConcerns(t *testing.T) {
	r, config := newBench(t), configOf([]view.Settings{only("hats"), only("shoes")}, "hats", "shoes")
	in := Input{Config: config, Listings: map[string]Listing{"hats": selling(t, "hats", "cap"), "shoes": selling(t, "shoes", "boot")}}
	first := r.build(in)
	for _, test := range []struct {
		name    string
		changed map[string]bool
		config  *configs.Config
		same    string // the views that stay
	}{
		{"no news", map[string]bool{}, config, "default hats shoes"},
		{"news of a server", map[string]bool{"hats": true}, config, "shoes"},
		{"news of a server of no view", map[string]bool{"gloves": true}, config, "default hats shoes"},
		{"everything", nil, config, ""},
		{"another configuration", nil, configOf(config.Views, "hats", "shoes"), ""},
	} {
		r.now = first
		in.Changed, in.Config = test.changed, test.config
		next := r.build(in)
		var same []string
		for _, v := range next.Views {
			if first.ByName[v.Name] == v {
				same = append(same, v.Name)
			}
		}
		if got := strings.Join(same, " "); got != test.same {
			t.Errorf("%s: %q stay, want %q", test.name, got, test.same)
		}
	}
}

func TestProblemsThatAreNotAcceptedMakeNoCatalog(t *testing.T) {
	broken := only("hats")
	broken.Composites = []view.Composite{{Name: "both", Steps: []view.Step{{Key: "a", Tool: "hats.gone", Args: []byte(`{}`)}}}}
	r := newBench(t)
	refused := errors.New("refused")
	in := Input{Config: configOf([]view.Settings{broken}, "hats"), Listings: map[string]Listing{"hats": selling(t, "hats", "cap")}}
	in.Accept = func(problems []view.Problem) error {
		if len(problems) == 0 {
			t.Error("a step without its tool is no problem")
		}
		return refused
	}
	if _, err := Build(t.Context(), in, r.now, r); !errors.Is(err, refused) || r.catalogs > 0 {
		t.Errorf("%v, and %d catalogs", err, r.catalogs)
	}
}

// decided is a configuration in which a policy hides boots from whoever is named late.
func decided(t *testing.T) *configs.Config {
	t.Helper()
	policies, wrong := policy.Compile([]policy.Text{{Cedar: `permit (principal, action, resource); forbid (principal, action, resource == Tool::"shoes.boot") when { context.client.name == "late" };`, File: "a.cedar", Line: 1, Column: 1}})
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	config := configOf(nil, "hats", "shoes")
	config.Policies = policies
	return config
}

func TestPartiesHaveTheirPartOfAView(t *testing.T) {
	r := newBench(t)
	r.clients = true
	whole := r.build(Input{Config: decided(t), Listings: map[string]Listing{"hats": selling(t, "hats", "cap"), "shoes": selling(t, "shoes", "boot")}}).ByName[view.Default]
	parts := map[*View]bool{}
	for _, test := range []struct{ client, want string }{{"early", "hats_cap shoes_boot"}, {"late", "hats_cap"}, {"other", "hats_cap shoes_boot"}} {
		part := whole.As(identity.Party{Client: test.client})
		parts[part] = true
		if got := names(&Served{Views: []*View{part}})[view.Default]; got != test.want {
			t.Errorf("%s has %q, want %q", test.client, got, test.want)
		}
		if part.Whole != whole {
			t.Errorf("%s has no part of the view", test.client)
		}
	}
	if len(parts) != 2 {
		t.Errorf("there are %d parts for the two classes of parties", len(parts))
	}
}

// Views that are replaced are not kept by those that replace them.
func TestAValueKeepsNothingOfTheValueBefore(t *testing.T) {
	r := newBench(t)
	r.clients = true
	listings := map[string]Listing{"hats": selling(t, "hats", "cap"), "shoes": selling(t, "shoes", "boot")}
	before := weak.Make(r.build(Input{Config: decided(t), Listings: listings}))
	now := r.build(Input{Config: decided(t), Listings: listings})
	now.ByName[view.Default].As(identity.Party{Client: "late"})
	runtime.GC()
	if before.Value() != nil {
		t.Error("the value before is still there")
	}
	runtime.KeepAlive(now)
}

// A server that changes makes a new view with the tools of the servers that do not. These tools must not keep the view
// that they were made for, nor through it all the views before.
func TestToolsThatStayKeepNoViewBefore(t *testing.T) {
	r := newBench(t)
	r.clients = true
	config := decided(t)
	listings := map[string]Listing{"hats": selling(t, "hats", "cap"), "shoes": selling(t, "shoes", "boot")}
	first := weak.Make(r.build(Input{Config: config, Listings: listings}).ByName[view.Default])
	for i := range 4 {
		server := []string{"hats", "shoes"}[i%2]
		listings = maps.Clone(listings)
		listings[server] = selling(t, server, fmt.Sprint("new", i))
		r.build(Input{Config: config, Listings: listings, Changed: map[string]bool{server: true}})
	}
	runtime.GC()
	if first.Value() != nil {
		t.Error("the first view is still there")
	}
	runtime.KeepAlive(r.now)
}

// The layers below all views, and the tool of a resource that no server lists, know the view that is served now.
func TestAnUnlistedResourceIsDecidedByTheViewThatIsServedNow(t *testing.T) {
	r := newBench(t)
	in := Input{Config: configOf(nil, "hats"), Listings: map[string]Listing{"hats": selling(t, "hats", "cap")}}
	r.build(in)
	def := &tool.Def{ID: tool.ID{Server: "hats", Kind: tool.KindResource, Name: "file:///a"}}
	read := UnlistedResource(r, slog.New(slog.DiscardHandler), view.Default, func(def *tool.Def) *tool.Tool { return tools(def)[0] })(def)
	call := &tool.Call{Kind: tool.KindResource, Name: "file:///a", Arguments: json.RawMessage(`{}`)}
	ctx := identity.WithParty(t.Context(), identity.Party{})
	must.Get(read(ctx, call))(t)
	policies, _ := policy.Compile([]policy.Text{{Cedar: `forbid (principal, action, resource);`, File: "a.cedar", Line: 1, Column: 1}})
	in.Config = configOf(nil, "hats")
	in.Config.Policies = policies
	r.build(in)
	if _, err := read(ctx, call); err == nil {
		t.Error("policies that came later do not decide")
	}
	r.now = &Served{Config: in.Config, ByName: map[string]*View{}}
	if _, err := read(ctx, call); !errors.Is(err, errNotServed) {
		t.Errorf("a read through a removed view: %v", err)
	}
}

func TestCutTo(t *testing.T) {
	for _, test := range []struct {
		sizes, want []int
		cut         bool
	}{
		{nil, nil, false},
		{[]int{3, 0, 2}, []int{3, 0, 2}, false},
		{[]int{3, 2, 1}, []int{3, 2, 0}, true},
		{[]int{3, 4, 2}, []int{3, 0, 2}, true}, // a server that is left out takes no room
		{[]int{6, 1}, []int{0, 1}, true},
	} {
		config, all := &configs.Config{}, map[string]Listing{}
		for i, n := range test.sizes {
			config.Servers = append(config.Servers, upstream.Settings{Name: fmt.Sprint(i)})
			all[fmt.Sprint(i)] = Listing{Listed: true, Tools: make([]*tool.Tool, n)}
		}
		cut := CutTo(all, config, 5)
		var got []int
		for i, s := range config.Servers {
			n := len(all[s.Name].Tools)
			got = append(got, n)
			if all[s.Name].Listed != (n == test.sizes[i]) {
				t.Errorf("of %v %d is listed: %v", test.sizes, i, all[s.Name].Listed)
			}
		}
		if cut != test.cut || !slices.Equal(got, test.want) {
			t.Errorf("of %v are left %v, cut: %v", test.sizes, got, cut)
		}
	}
}
