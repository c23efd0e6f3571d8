package proxy_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"toolfinch/configs"
	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/proxy"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/view"
	starlark "toolfinch/view/script"
)

// default_view says what is served where no view is named.
func TestDefaultView(t *testing.T) {
	shoes := view.Settings{Name: "shoes", Exposure: view.ExposureDirect, Tools: []view.UpstreamTools{{Name: "shop", Tools: []view.Override{{Tool: "shoe", Name: "boot"}}}}}
	for _, c := range []struct {
		root string
		want []string
		says string
	}{
		{"", []string{"boot"}, "the views together, each tool through its own: shoes"},
		{configs.RootAll, []string{"shop_hat", "shop_shoe"}, "every tool of every server, past all views"},
		{"shoes", []string{"boot"}, "the view shoes"},
		{configs.RootNone, nil, "nothing (default_view: none)"},
	} {
		t.Run(c.root, func(t *testing.T) {
			config := configOf(t, []*script{shop(t, "shop", "hat", "shoe")}, shoes)
			config.DefaultView, config.REST = c.root, true
			p, url := openViews(t, "", config)
			if got := p.Root(); got != c.says {
				t.Errorf("the root serves %q, want %q", got, c.says)
			}
			if got := curl(t, url, "GET", "/readyz", ""); got.status != 200 {
				t.Errorf("/readyz: %v", got)
			}
			if c.want == nil {
				const refusal = "without a view's name nothing is served (default_view: none); there are shoes (/mcp/shoes, --view shoes)"
				for _, path := range []string{"/mcp", "/sse", "/api/tools"} {
					if got := curl(t, url, "GET", path, ""); got.status != 404 || !strings.Contains(got.body, refusal) {
						t.Errorf("%s: %d %s", path, got.status, got.body)
					}
				}
				if err := p.ServeStdio(t.Context(), strings.NewReader(""), &strings.Builder{}); !errors.Is(err, proxy.ErrNoView) || !strings.Contains(err.Error(), refusal) {
					t.Errorf("on stdio: %v", err)
				}
				return
			}
			if got := toolsOf(t, p, ""); !slices.Equal(got, c.want) {
				t.Errorf("the root has %v, want %v", got, c.want)
			}
			client := newClient(t, p, url, kind{}, `{}`, reply)
			if got := client.ask("tools/call", toolCall(c.want[0], `{}`)); failed(got) {
				t.Errorf("%s at the root: %s", c.want[0], got.raw)
			}
			for _, want := range c.want {
				curl(t, url, "GET", "/api/tools", "").wants(t, "the list of the root", 200, want)
			}
		})
	}
}

// A session of the root may be on stdio, which has no other address to go to.
func TestAReloadKeepsWhichViewTheRootServes(t *testing.T) {
	one := everything("one", view.ExposureDirect)
	for before, after := range map[string]string{
		"one": configs.RootNone, configs.RootAll: "one", configs.RootNone: configs.RootAll, configs.RootViews: configs.RootAll,
	} {
		config := configOf(t, []*script{shop(t, "shop", "hat")}, one)
		config.DefaultView = before
		p, _ := openViews(t, "", config)
		next := edited(config, config.Views...)
		next.DefaultView = after
		if err := p.Reload(t.Context(), next); err == nil || !strings.Contains(err.Error(), "only a restart") {
			t.Errorf("from %s to %s: %v", before, after, err)
		}
	}
}

// A session that is open must not get past the views by an edit of them; a first view
// may take the rest away.
func TestAReloadDoesNotOpenTheRoot(t *testing.T) {
	servers := []*script{shop(t, "shop", "hat", "shoe")}
	hats := view.Settings{Name: "hats", Exposure: view.ExposureDirect, Tools: []view.UpstreamTools{{Name: "shop", Tools: []view.Override{{Tool: "hat"}}}}}
	own := hats
	own.Name = view.Default
	for name, c := range map[string]struct {
		before, after []view.Settings
		refused       bool
	}{
		"the views go":                 {[]view.Settings{hats}, nil, true},
		"the view called default goes": {[]view.Settings{own}, nil, true},
		"the views replace default":    {[]view.Settings{own}, []view.Settings{hats}, true},
		"a first view comes":           {nil, []view.Settings{hats}, false},
		"a first view called default":  {nil, []view.Settings{own}, false},
	} {
		t.Run(name, func(t *testing.T) {
			config := configOf(t, servers, c.before...)
			config.DefaultView = ""
			p, _ := openViews(t, "", config)
			next := edited(config, c.after...)
			next.DefaultView = ""
			err := p.Reload(t.Context(), next)
			if refused := err != nil && strings.Contains(err.Error(), "only a restart"); refused != c.refused || !refused && err != nil {
				t.Fatal(err)
			}
			if got := toolsOf(t, p, ""); !slices.Equal(got, []string{"shop_hat"}) {
				t.Errorf("afterwards the root has %v", got)
			}
		})
	}
}

// heardBy notes the calls that the hooks of views see, as "view name".
type heardBy struct {
	mu   sync.Mutex // guards seen
	seen []string
}

// take returns what was seen since the last time.
func (h *heardBy) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer func() { h.seen = nil }()
	return h.seen
}

// stall is a view of tools of the shop whose colour is bound to one, and whose hook is heard.
func (h *heardBy) stall(name string, exposure view.Exposure, colour string, tools ...string) view.Settings {
	v := view.Settings{Name: name, Exposure: exposure}
	v.Hooks.Pre = []view.PreCall{func(_ context.Context, info *starlark.Info, _ json.RawMessage) (json.RawMessage, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.seen = append(h.seen, info.View+" "+info.Name)
		return nil, nil
	}}
	server := view.UpstreamTools{Name: "shop"}
	for _, one := range tools {
		server.Tools = append(server.Tools, view.Override{Tool: one, Parameters: []view.Parameter{{Name: "colour", Value: []byte(quote(colour))}}})
	}
	v.Tools = []view.UpstreamTools{server}
	return v
}

// market is a configuration of stalls of every exposure, which the root serves together.
func market(t testing.TB, up *script, h *heardBy) *configs.Config {
	shelf := h.stall("shelf", view.ExposureDirect, "red", "hat", "scarf")
	shelf.RunScript = &view.ScriptLimits{}
	locked := h.stall("locked", view.ExposureRetrieve, "black", "belt")
	locked.Gating = &ample
	config := configOf(t, []*script{up}, shelf,
		h.stall("finder", view.ExposureSearch, "blue", "coat", "scarf"), h.stall("rest", view.ExposureRetrieve, "green", "shoe"), locked)
	config.DefaultView, config.ProxyTool, config.REST = configs.RootViews, "proxy", true
	return config
}

// What the root serves together can be called in many ways, and in each of them exactly
// what its view has around it is around it.
func TestTheRootCallsEachToolThroughItsView(t *testing.T) {
	var heard heardBy
	up := shop(t, "shop", "hat", "coat", "shoe", "scarf", "belt", "glove")
	config := market(t, up, &heard)
	p, url := openViews(t, "", config)
	learn(t, config)
	w := must.Get(proxy.OpenWorkspace(t.Context(), config))(t)
	defer w.Close()
	command := way{"toolfinch call", func(t testing.TB, tool, arguments string) (string, bool) {
		root, err := w.View("")
		if err != nil {
			t.Fatal(err)
		}
		found, err := root.Find(tool)
		if err != nil {
			return err.Error(), true
		}
		result, err := root.Call(t.Context(), found, json.RawMessage(arguments), nil)
		return string(result), err != nil || result.Failed()
	}, false}
	own := map[string]string{"shelf_shop_scarf": "shop_scarf", "finder_shop_scarf": "shop_scarf"}
	for _, modern := range []bool{false, true} {
		c := newClient(t, p, url, kind{modern: modern}, `{}`, reply)
		several := slices.DeleteFunc(c.ways(), func(w way) bool { return strings.HasPrefix(w.name, "execute_tool") })
		several = append(several, c.byName("call_tool", "name", asExposed), overREST(url, ""), command)
		for _, one := range []struct {
			tool, view, colour string
			more               []way
		}{
			{"shop_hat", "shelf", "red", append(c.byScript(), c.byName("call_tool", "name", asID))},
			{"shop_coat", "finder", "blue", []way{c.byName("finder_call_tool", "name", asExposed), c.byName("call_tool", "name", asID)}},
			{"shop_shoe", "rest", "green", []way{c.byName("call_tool", "name", asID)}},
			{"shelf_shop_scarf", "shelf", "red", nil},
			{"finder_shop_scarf", "finder", "blue", nil},
		} {
			for i, w := range append(slices.Clone(several), one.more...) {
				before := len(up.got("tools/call"))
				heard.take()
				answer, failed := w.call(t, one.tool, `{"size":`+fmt.Sprint(i)+`}`)
				got := up.got("tools/call")[before:]
				if failed || len(got) != 1 || partText(part(got[0].Params, "arguments"), "colour") != one.colour {
					t.Errorf("%s of %s: the server heard %v; the answer is %s", w.name, one.tool, got, answer)
				}
				name := cmp.Or(own[one.tool], one.tool)
				if hooks := heard.take(); !slices.Equal(hooks, []string{one.view + " " + name}) {
					t.Errorf("%s of %s: the hooks saw %q", w.name, one.tool, hooks)
				}
			}
		}
		// shop_scarf is the name of two, and the others are in no view, or behind a gate.
		before := len(up.got("tools/call"))
		for _, tool := range []string{"shop_belt", "shop.belt", "shop_glove", "shop:glove", "shop_scarf"} {
			for _, w := range append(c.ways("call_tool", "finder_call_tool"), overREST(url, ""), command) {
				if answer, _ := w.call(t, tool, `{"size":1}`); tool != "shop_scarf" && len(up.got("tools/call")) > before {
					t.Fatalf("%s of %s reached the server: %s", w.name, tool, answer)
				}
			}
		}
		for _, seen := range heard.take() {
			if !strings.HasSuffix(seen, "scarf") {
				t.Errorf("the hooks saw %q", seen)
			}
		}
	}
}

// Direct views are listed at the root, search views by their tools, the others are retrieved.
func TestTheRootListsTheViewsTogether(t *testing.T) {
	var heard heardBy
	h := &heard
	up := shop(t, "shop", "hat", "coat", "shoe", "scarf")
	find := []string{"finder_search_tools", "finder_describe_tool", "finder_call_tool"}
	hats, coats := h.stall("hats", view.ExposureDirect, "red", "hat"), h.stall("finder", view.ExposureSearch, "red", "coat")
	shoes, auto := h.stall("shoes", view.ExposureRetrieve, "red", "shoe"), h.stall("auto", view.ExposureAuto, "red", "scarf")
	auto.DirectBelow = 3000
	each := h.stall("each", view.ExposureSearchPerServer, "red", "shoe")
	for name, c := range map[string]struct {
		views []view.Settings
		want  []string
	}{
		"direct":                      {[]view.Settings{hats}, []string{"shop_hat"}},
		"direct and small":            {[]view.Settings{hats, auto}, []string{"retrieve_tools", "shop_hat", "shop_scarf"}},
		"search":                      {[]view.Settings{coats}, append(slices.Clone(find), "retrieve_tools")},
		"search and direct":           {[]view.Settings{coats, hats}, append(slices.Clone(find), "retrieve_tools", "shop_hat")},
		"search twice":                {[]view.Settings{coats, each}, append(slices.Clone(find), "shop_search_tools", "shop_describe_tool", "shop_call_tool", "retrieve_tools")},
		"retrieve, search and direct": {[]view.Settings{shoes, coats, hats}, append(append([]string{"retrieve_tools", "call_tool"}, find...), "shop_hat")},
		"small and search":            {[]view.Settings{auto, coats}, append([]string{"retrieve_tools", "call_tool"}, find...)},
		"nothing":                     {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			config := configOf(t, []*script{up}, c.views...)
			config.DefaultView = configs.RootViews
			p, url := openViews(t, "", config)
			for _, modern := range []bool{false, true} {
				client := newClient(t, p, url, kind{modern: modern}, `{}`, reply)
				if got := client.listed(); !slices.Equal(got, c.want) {
					t.Errorf("the root lists %v, want %v", got, c.want)
				}
			}
		})
	}
}

// The root follows its views: their edits, what their servers list anew, and what there is of them.
func TestTheRootFollowsItsViews(t *testing.T) {
	var heard heardBy
	up := shop(t, "shop", "hat", "coat", "scarf", "shoe", "belt")
	config := market(t, up, &heard)
	p, url := openViews(t, "", config)
	if got, want := p.Root(), "the views together, each tool through its own: shelf, finder, rest; not locked: gated, and served at an address of its own"; got != want {
		t.Errorf("the root serves %q, want %q", got, want)
	}
	clash := func(p *proxy.Proxy) (all []string) {
		for _, problem := range p.Problems() {
			if problem.View == view.Default {
				all = append(all, problem.Message)
			}
		}
		return all
	}
	if got := clash(p); len(got) != 1 || !strings.HasSuffix(got[0], ": shop_scarf (shelf_shop_scarf, finder_shop_scarf)") {
		t.Errorf("a clash is told as %q", got)
	}
	for _, modern := range []bool{false, true} {
		c := newClient(t, p, url, kind{modern: modern}, `{}`, reply)
		c.listed()
		listening := (&meeting{rawClient: c}).listen(`{"toolsListChanged":true}`)
		next := edited(config, config.Views[0])
		next.Views[0].Tools[0].Tools = slices.Clone(next.Views[0].Tools[0].Tools)
		next.Views[0].Tools[0].Tools[0].Name = "cap"
		reload(t, p, next)
		c.hears("notifications/tools/list_changed", listening)
		if got := c.listed(); !slices.Contains(got, "cap") || slices.Contains(got, "shop_hat") {
			t.Errorf("the root lists %v", got)
		}
		if got := clash(p); len(got) > 0 {
			t.Errorf("there is no clash any more: %q", got)
		}
		next.Views[0].Tools[0].Tools[0].Name = ""
		reload(t, p, config)
	}
	reload(t, p, edited(config, config.Views[3]))
	if got := clash(p); len(got) != 1 || got[0] != "the root serves nothing: every view is gated or left out" {
		t.Errorf("that there is nothing at the root is told as %q", got)
	}
	reload(t, p, config)
	found := newClient(t, p, url, kind{}, `{}`, reply).does(t, "retrieve_tools", `{"query":"sells a coat","detail":"full"}`)
	if !strings.Contains(string(found), `"shop_coat"`) || strings.Contains(string(found), "belt") {
		t.Errorf("retrieve_tools at the root: %s", found)
	}
}

// What a client of the root is shown of a view counts for the root.
func TestSavingsOfTheRoot(t *testing.T) {
	var heard heardBy
	p, url := openViews(t, "", market(t, shop(t, "shop", "hat", "coat", "scarf", "shoe", "belt"), &heard))
	c := newClient(t, p, url, kind{}, `{}`, reply)
	var r received
	r.list(t, c)
	r.call(t, c, "finder_search_tools", `{"query":"sells a coat"}`)
	r.call(t, c, "retrieve_tools", `{"query":"sells a coat"}`)
	r.list(t, c)
	r.call(t, c, "retrieve_tools", `{"query":"sells a coat"}`) // what is listed counts when it was read
	root := must.Get(p.View(""))(t)
	var full int64
	for _, one := range root.Tools() {
		full += int64(tool.CountTokens(one.Listed()))
	}
	wantSavings(t, p.Savings(t.Context()), store.Savings{View: view.Default, Sessions: 1, Retrievals: 3, Steps: 3,
		Listed: r.listed, Answers: r.answers, AllSteps: 1, AllListed: full})
}

// Lists of the root wait for the servers of its direct views, names for those of all.
func TestAColdStartOfTheRootIsWaitedFor(t *testing.T) {
	for method, params := range map[string]string{"tools/list": `{}`, "tools/call": toolCall("file_call_tool", `{"name":"slow_write_file"}`)} {
		slow, listing := slowly(t, "slow")
		direct := everything("shelf", view.ExposureDirect)
		direct.Exclude = []view.Pattern{{Glob: "slow.nothing"}}
		file := view.Settings{Name: "file", Exposure: view.ExposureSearch, Tools: []view.UpstreamTools{{Name: "slow", Tools: []view.Override{{Tool: "write_file", Name: "slow_write_file"}}}}}
		config := configOf(t, []*script{slow}, direct, file)
		if method == "tools/call" {
			config.Views = config.Views[1:]
		}
		config.DefaultView, config.StartWait = configs.RootViews, time.Minute
		p, url := startViews(t, "", config)
		for _, modern := range []bool{false, true} {
			call := newClient(t, p, url, kind{modern: modern}, `{}`, reply).begin(method, params)
			if !modern {
				await.True(t, func() bool { return len(slow.got("tools/list")) > 0 })
				close(listing)
			}
			if got := await.Value(t, call.answer); !strings.Contains(got.raw, "writ") || failed(got) {
				t.Errorf("%s: %s", method, got.raw)
			}
		}
	}
}

// What a view keeps of a large result is read at the root; what it has beside tools is there, too.
func TestTheRootHasWhatItsViewsHaveBesideTools(t *testing.T) {
	var heard heardBy
	up := shop(t, "shop", "hat")
	up.list("prompts", `{"name":"greet"}`)
	up.list("resources", `{"uri":"file:///note","name":"note"}`, `{"uri":"file:///secret","name":"secret"}`)
	up.on("tools/call", func(r *request) {
		r.result(`{"content":[{"type":"text","text":"a ` + strings.Repeat("long ", 100) + `text"}]}`)
	})
	up.on("prompts/get", func(r *request) { r.result(`{"messages":[]}`) })
	up.on("resources/read", func(r *request) { r.result(`{"contents":[]}`) })
	kept, most := heard.stall("kept", view.ExposureDirect, "red", "hat"), everything("most", view.ExposureRetrieve)
	kept.Tools[0].Tools[0].Output = &view.OutputCache{MinSize: 100, Preview: 10}
	most.Exclude = []view.Pattern{{Glob: "shop.file:///secret"}, {Glob: "shop.hat"}}
	config := configOf(t, []*script{up}, kept, most)
	config.DefaultView = configs.RootViews
	p, url := openViews(t, "", config)
	c := newClient(t, p, url, kind{}, `{}`, reply)
	large := c.ask("tools/call", toolCall("shop_hat", `{"size":1}`))
	if got := c.ask("tools/call", toolCall("read_output", `{"token":`+quote(tokenIn(string(large.Result)))+`}`)); failed(got) || !strings.Contains(got.raw, "long") {
		t.Errorf("the rest of %s: %s", large.raw, got.raw)
	}
	for params, method := range map[string]string{`{"name":"shop_greet"}`: "prompts/get", `{"uri":"file:///note"}`: "resources/read"} {
		if got := c.ask(method, params); failed(got) {
			t.Errorf("%s %s: %s", method, params, got.raw)
		}
	}
	if got := c.ask("resources/read", `{"uri":"file:///secret"}`); !failed(got) {
		t.Errorf("what every view excludes: %s", got.raw)
	}
}
