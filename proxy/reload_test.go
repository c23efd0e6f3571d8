package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"toolfinch/configs"
	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/proxy"
	"toolfinch/upstream"
	"toolfinch/view"
)

// edited is the configuration with other views.
func edited(config *configs.Config, views ...view.Settings) *configs.Config {
	next := *config
	if next.Views = views; next.DefaultView == "" || next.DefaultView == configs.RootAll {
		return rootOfAll(&next)
	}
	return &next
}

// serving is the configuration with other servers.
func serving(config *configs.Config, servers ...upstream.Settings) *configs.Config {
	next := *config
	next.Servers = servers
	return &next
}

func reload(t testing.TB, p *proxy.Proxy, config *configs.Config) {
	t.Helper()
	if err := p.Reload(t.Context(), config); err != nil {
		t.Fatalf("Reload: %v", err)
	}
}

// hurry gives the calls of a server little time, once it was listed in its own.
func hurry(t testing.TB, p *proxy.Proxy, config *configs.Config, hurried *script) {
	t.Helper()
	servers := slices.Clone(config.Servers)
	i := slices.IndexFunc(servers, func(s upstream.Settings) bool { return s.Name == hurried.settings.Name })
	servers[i].CallTimeout = 50 * time.Millisecond // the server never answers
	reload(t, p, serving(config, servers...))
}

// module writes a Starlark module, which changes its size when the text does.
func module(t testing.TB, path, source string) {
	t.Helper()
	must.Do(t, os.WriteFile(path, []byte(source), 0o644))
}

// hat is an override that selects the tool which the tests call.
func hat(more ...view.Override) []view.UpstreamTools {
	return []view.UpstreamTools{{Name: "shop", Tools: append(more, view.Override{Tool: "hat", Name: "hat"})}}
}

func TestReloadsUnderLoadLoseNoCall(t *testing.T) {
	const reloads = 40
	up := shop(t, "shop", "hat", "coat", "shoe", "belt")
	hook := filepath.Join(t.TempDir(), "hook.star")
	module(t, hook, "def pre(ctx, args):\n    return None\n\ndef post(ctx, args, result):\n    return None\n\ndef own(ctx):\n    return 1\n")
	steady := everything("steady", view.ExposureRetrieve)
	steady.Tools = hat()
	// moving has the tool hat always, and all else now and then.
	moving := func(i int) view.Settings {
		v := view.Settings{Name: "moving", Exposure: view.Exposures[i%len(view.Exposures)], Tools: hat()}
		switch i % 4 {
		case 1:
			v.Tools = hat(view.Override{Tool: "coat", Name: fmt.Sprintf("coat%d", i%3)})
		case 2:
			v.IncludeAll = true
			v.Tools[0].Output = &view.OutputCache{MinSize: 1 << 20}
		case 3:
			v.Tools = hat(view.Override{Tool: "*"})
			v.Customs = []view.Custom{{Module: hook, Function: "own"}}
		}
		if i%3 == 1 {
			v.Hooks.PreCall, v.Hooks.PostCall = &view.Hook{Module: hook, Function: "pre"}, &view.Hook{Module: hook, Function: "post"}
		}
		if i%5 == 0 {
			v.RunScript = &view.ScriptLimits{}
		}
		return v
	}
	config := configOf(t, []*script{up}, steady, moving(0))
	p, url := openViews(t, "", config)

	connects := len(up.got("initialize"))
	var callers []*rawClient
	for i := range 8 {
		callers = append(callers, viewClient(t, p, url, []string{"steady", "moving"}[i%2], i%4 >= 2))
	}
	registered := viewClient(t, p, url, "steady", false)
	if got := registered.ask("tools/call", toolCall("retrieve_tools", `{"query":"sells a coat","limit":1,"detail":"full"}`)); !strings.Contains(string(answerOf(got)), `"registered":true`) {
		t.Fatalf("retrieve_tools = %s", got.raw)
	}
	list := registered.listed()
	registered.clear()
	id := registered.id

	done := make(chan struct{})
	var calling sync.WaitGroup
	for n, c := range callers {
		calling.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				arguments := fmt.Sprintf(`{"size":%d,"colour":"%d"}`, n, i)
				got := c.ask("tools/call", toolCall("hat", arguments))
				if failed(got) || string(part(part(got.Result, "structuredContent"), "args")) != arguments {
					t.Errorf("caller %d, call %d: %s", n, i, got.raw)
					return
				}
			}
		})
	}
	for i := range reloads {
		views := []view.Settings{steady, moving(i)}
		if i%2 == 1 {
			views = append(views, everything("passing", view.ExposureSearch))
		}
		if err := p.Reload(t.Context(), edited(config, views...)); err != nil {
			t.Errorf("reload %d: %v", i, err)
			break
		}
	}
	close(done)
	calling.Wait()
	reload(t, p, edited(config, steady, moving(0)))
	if got := registered.listed(); registered.id != id || !slices.Equal(got, list) {
		t.Errorf("a session of the view that stayed is listed %v, before %v", got, list)
	}
	if got := registered.got("notifications/tools/list_changed"); len(got) > 0 {
		t.Errorf("a session of the view that stayed heard list_changed %d times", len(got))
	}
	if got := len(up.got("initialize")); got != connects {
		t.Errorf("the server was connected to anew: %d handshakes, at first %d", got, connects)
	}
}

func TestViewsComeChangeAndGo(t *testing.T) {
	up := shop(t, "shop", "hat", "coat")
	x, y := everything("x", view.ExposureDirect), everything("y", view.ExposureRetrieve)
	config := configOf(t, []*script{up}, x, y)
	p, url := openViews(t, "", config)
	inX, inY, inDefault := viewClient(t, p, url, "x", false), viewClient(t, p, url, "y", false), viewClient(t, p, url, "default", false)
	modernX, modernDefault := viewClient(t, p, url, "x", true), viewClient(t, p, url, "default", true)
	listening := (&meeting{rawClient: modernX}).listen(`{"toolsListChanged":true}`)
	(&meeting{rawClient: modernDefault}).listen(`{"toolsListChanged":true}`)
	for _, c := range []*rawClient{inX, inY, inDefault} {
		c.listed()
	}

	// A call that runs while its view goes is answered.
	asked, let := make(chan struct{}), make(chan struct{})
	up.on("tools/call hat", func(r *request) {
		close(asked)
		<-let
		r.result(`{"content":[],"late":true}`)
	})
	late := inY.begin("tools/call", toolCall("shop_hat", `{"size":1}`))
	<-asked

	x.Tools = hat()
	reload(t, p, edited(config, x, everything("z", view.ExposureDirect)))
	inX.hears("notifications/tools/list_changed", nil)
	modernX.hears("notifications/tools/list_changed", listening)
	for _, c := range []*rawClient{inX, modernX} {
		if got, want := c.listed(), []string{"hat", "shop_coat"}; !slices.Equal(got, want) {
			t.Errorf("x, changed, lists %v, want %v", got, want)
		}
	}
	close(let)
	if got := <-late.answer; string(part(got.Result, "late")) != "true" {
		t.Errorf("the call of the view that went is answered %s", got.raw)
	}
	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
		if got := status(t, method, url+"/mcp/y", inY.id); got != http.StatusNotFound {
			t.Errorf("%s of a session of the view that went: status %d, want 404", method, got)
		}
	}
	if got, want := viewClient(t, p, url, "z", false).listed(), []string{"shop_coat", "shop_hat"}; !slices.Equal(got, want) {
		t.Errorf("z, new, lists %v, want %v", got, want)
	}
	if got, want := inDefault.listed(), []string{"retrieve_tools", "call_tool"}; !slices.Equal(got, want) {
		t.Errorf("the default view lists %v, want %v", got, want)
	}

	// y of another time knows nothing of the sessions of the first.
	reload(t, p, edited(config, x, y))
	if got := status(t, http.MethodPost, url+"/mcp/y", inY.id); got != http.StatusNotFound {
		t.Errorf("a session of the view that went and came again: status %d, want 404", got)
	}
	for name, c := range map[string]*rawClient{"y": inY, "default": inDefault, "default, modern": modernDefault} {
		if got := c.got("notifications/tools/list_changed"); len(got) > 0 {
			t.Errorf("a session of %s, which did not change, heard list_changed %d times", name, len(got))
		}
	}
}

func TestAViewThatGoesLeavesNothing(t *testing.T) {
	up := shop(t, "shop", "hat")
	config := configOf(t, []*script{up})
	p, url := openViews(t, "", config)
	comeAndGo := func() {
		reload(t, p, edited(config, everything("passing", view.ExposureRetrieve)))
		legacy, modern := viewClient(t, p, url, "passing", false), viewClient(t, p, url, "passing", true)
		(&meeting{rawClient: modern}).listen(`{"toolsListChanged":true}`)
		if got := legacy.ask("tools/call", toolCall("retrieve_tools", `{"query":"sells a hat"}`)); failed(got) {
			t.Fatalf("retrieve_tools = %s", got.raw)
		}
		legacy.ask("logging/setLevel", `{"level":"debug"}`)
		reload(t, p, config)
	}
	comeAndGo() // what starts with the first use
	await.NoLeak(t, func() {
		for range 3 {
			comeAndGo()
		}
	})
}

func TestAnotherExposureIsShownToSessionsThatStay(t *testing.T) {
	up := shop(t, "shop", "hat")
	config := configOf(t, []*script{up}, everything("x", view.ExposureDirect))
	p, url := openViews(t, "", config)
	c := viewClient(t, p, url, "x", false)
	c.listed()
	for _, test := range []struct {
		exposure view.Exposure
		want     []string
	}{
		{view.ExposureSearch, []string{"x_search_tools", "x_describe_tool", "x_call_tool", "retrieve_tools"}},
		{view.ExposureSearchPerServer, []string{"shop_search_tools", "shop_describe_tool", "shop_call_tool", "retrieve_tools"}},
		{view.ExposureAuto, []string{"retrieve_tools", "shop_hat"}},
		{view.ExposureRetrieve, []string{"retrieve_tools", "call_tool"}},
		{view.ExposureDirect, []string{"shop_hat"}},
	} {
		c.clear()
		reload(t, p, edited(config, everything("x", test.exposure)))
		c.hears("notifications/tools/list_changed", nil)
		if got := c.listed(); !slices.Equal(got, test.want) {
			t.Errorf("%s lists %v, want %v", test.exposure, got, test.want)
		}
	}
}

func TestServersComeChangeAndGo(t *testing.T) {
	stays, changes, goes, comes := shop(t, "stays", "a"), shop(t, "changes", "b"), shop(t, "goes", "c"), shop(t, "comes", "d")
	scripts := []*script{stays, changes, goes}
	config := configOf(t, scripts)
	p, url := openViews(t, "", config)
	c := viewClient(t, p, url, "default", false)
	if got := c.ask("tools/call", toolCall("retrieve_tools", `{"query":"sells a c","server":"goes","detail":"full"}`)); !strings.Contains(string(answerOf(got)), `"registered":true`) {
		t.Fatalf("retrieve_tools = %s", got.raw)
	}

	asked, let := make(chan struct{}), make(chan struct{})
	var once sync.Once
	changes.on("tools/call b", func(r *request) {
		once.Do(func() {
			close(asked)
			<-let
		})
		r.result(`{"content":[],"by":"` + r.header.Get("X-Edition") + `"}`)
	})
	late := c.begin("tools/call", toolCall("changes_b", `{"size":1}`))
	<-asked
	handshakes := map[*script]int{}
	for _, s := range scripts {
		handshakes[s] = len(s.got("initialize"))
	}

	other := changes.settings
	other.Headers = map[string]string{"X-Edition": "second"}
	reload(t, p, serving(config, stays.settings, other, comes.settings))
	c.hears("notifications/tools/list_changed", nil) // what was registered of a server went with it
	eventually(t, func() bool {
		return slices.Equal(toolsOf(t, p, view.Default), []string{"changes_b", "comes_d", "stays_a"})
	})
	close(let)
	if got := <-late.answer; string(part(got.Result, "by")) != `""` {
		t.Errorf("the call that ran while its server changed is answered %s", got.raw)
	}
	if got := c.ask("tools/call", toolCall("changes_b", `{"size":1}`)); string(part(got.Result, "by")) != `"second"` {
		t.Errorf("a call of the changed server is answered %s", got.raw)
	}
	if got := c.ask("tools/call", toolCall("comes_d", `{"size":1}`)); failed(got) {
		t.Errorf("a call of the new server is answered %s", got.raw)
	}
	if got := c.ask("tools/call", toolCall("goes_c", `{"size":1}`)); !failed(got) {
		t.Errorf("a call of the removed server is answered %s", got.raw)
	}
	if got := c.listed(); slices.Contains(got, "goes_c") {
		t.Errorf("tools/list has %v", got)
	}
	for _, s := range []*script{stays, goes} {
		if got := len(s.got("initialize")); got != handshakes[s] {
			t.Errorf("%s was connected to anew: %d handshakes, at first %d", s.settings.Name, got, handshakes[s])
		}
	}
	if got := len(changes.got("initialize")); got <= handshakes[changes] {
		t.Error("the changed server was not connected to anew")
	}
}

func TestABrokenEditChangesNothing(t *testing.T) {
	up := shop(t, "shop", "hat", "coat")
	path := filepath.Join(t.TempDir(), "own.star")
	const good = "def own(ctx):\n    return \"as before\"\n"
	module(t, path, good)
	x := everything("x", view.ExposureDirect)
	x.Customs = []view.Custom{{Module: path, Function: "own"}}
	config := configOf(t, []*script{up}, x)
	config.Path = "toolfinch.yaml"
	p, url := openViews(t, "", config)
	c := viewClient(t, p, url, "x", false)
	asBefore := func() {
		t.Helper()
		if got, want := c.listed(), []string{"own", "shop_coat", "shop_hat"}; !slices.Equal(got, want) {
			t.Errorf("tools/list has %v, want %v", got, want)
		}
		if got := c.ask("tools/call", toolCall("own", `{}`)); failed(got) || !strings.Contains(string(got.Result), "as before") {
			t.Errorf("the custom tool answers %s", got.raw)
		}
		if got := len(p.Views()); got != 2 {
			t.Errorf("there are %d views, want 2", got)
		}
	}
	asBefore()
	c.clear()

	unknown := x
	unknown.Tools = []view.UpstreamTools{{Name: "shop", Tools: []view.Override{{Tool: "hatt", At: view.Place{Line: 7, Column: 3}}}}}
	missing := x
	missing.Customs = []view.Custom{{Module: path, Function: "owm"}}
	twice := x
	twice.Tools = []view.UpstreamTools{{Name: "shop", Tools: []view.Override{{Tool: "hat", Name: "same"}, {Tool: "coat", Name: "same"}}}}
	for name, test := range map[string]struct {
		views []view.Settings
		want  string
	}{
		"unknown tool":       {[]view.Settings{unknown}, `toolfinch.yaml:7:3: view "x": server "shop" has no tool "hatt" (did you mean "hat"?)`},
		"unknown function":   {[]view.Settings{missing}, "own.star"},
		"two of one name":    {[]view.Settings{twice}, `"same"`},
		"beside a good view": {[]view.Settings{everything("new", view.ExposureDirect), unknown}, `"hatt"`},
	} {
		err := p.Reload(t.Context(), edited(config, test.views...))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want in it %s", name, err, test.want)
		}
		asBefore()
	}

	module(t, path, "def own(ctx):\n    return (\n")
	if err := p.Reload(t.Context(), config); err == nil || !strings.Contains(err.Error(), "own.star") {
		t.Errorf("a module that is broken: %v", err)
	}
	asBefore()
	if got := c.got("notifications/tools/list_changed"); len(got) > 0 {
		t.Errorf("the client heard list_changed %d times", len(got))
	}
	// News of a server must not bring what was refused.
	up.changes(t, p, append(goods("hat"), `{"name":"coat"}`)...)
	c.hears("notifications/tools/list_changed", nil)
	eventually(t, func() bool { return strings.Contains(c.ask("tools/list", `{}`).raw, `{"name":"shop_coat",`) })
	asBefore()

	module(t, path, good)
	reload(t, p, config)
	asBefore()
}

func TestAnEditedModuleIsTaken(t *testing.T) {
	up := shop(t, "shop", "hat")
	dir := t.TempDir()
	tools, hooks, words := filepath.Join(dir, "tools.star"), filepath.Join(dir, "hooks.star"), filepath.Join(dir, "words.star")
	module(t, words, "word = \"one\"\n")
	module(t, tools, "load(\"words.star\", \"word\")\n\ndef own(ctx):\n    return word\n")
	module(t, hooks, "def pre(ctx, args):\n    return {\"size\": 1}\n")
	x := everything("x", view.ExposureDirect)
	x.Customs = []view.Custom{{Module: tools, Function: "own"}}
	x.Hooks.PreCall = &view.Hook{Module: hooks, Function: "pre"}
	config := configOf(t, []*script{up}, x)
	p, url := openViews(t, "", config)
	c := viewClient(t, p, url, "x", false)
	says := func(name, want string) {
		t.Helper()
		if got := c.ask("tools/call", toolCall(name, `{"size":9}`)); !strings.Contains(string(got.Result), want) {
			t.Errorf("%s answers %s\nwant in it %s", name, got.raw, want)
		}
	}
	module(t, hooks, "def pre(ctx, args):\n    if ctx.tool == \"own\":\n        return None\n    return {\"size\": 1}\n")
	reload(t, p, config)
	says("shop_hat", `{"size":1}`)

	module(t, hooks, "def pre(ctx, args):\n    if ctx.tool == \"own\":\n        return {}\n    return {\"size\": 22}\n")
	module(t, words, "word = \"another\"\n") // a file that the module loads
	says("shop_hat", `{"size":1}`)
	reload(t, p, config)
	says("shop_hat", `{"size":22}`)
	if got := c.ask("tools/call", toolCall("own", `{}`)); !strings.Contains(string(got.Result), "another") {
		t.Errorf("own answers %s", got.raw)
	}
}

func TestReloadDoesNotWaitForAServerThatConnects(t *testing.T) {
	up := shop(t, "shop", "hat")
	config := configOf(t, []*script{up})
	slow := func() upstream.Settings {
		s := settings("slow", hanging(t))
		s.ConnectTimeout = 2 * await.Bound
		return s
	}
	config.Servers = append(config.Servers, slow())
	p, _ := startViews(t, "", config)
	eventually(t, func() bool { return p.Tools() == 1 })
	handshakes := len(up.got("initialize"))
	other := slow()
	for _, servers := range [][]upstream.Settings{{up.settings, other}, {up.settings}, config.Servers} {
		if err := p.Reload(t.Context(), serving(config, servers...)); err != nil {
			t.Error(err)
		}
	}
	if got := len(up.got("initialize")); got != handshakes {
		t.Errorf("the other server was connected to anew: %d handshakes, at first %d", got, handshakes)
	}
}

// A server that a start would leave out is no reason to lose the one that works.
func TestReloadRefusesANewlyBrokenServer(t *testing.T) {
	config := configOf(t, nil)
	config.Broken = []*configs.Error{{Message: "server \"old\" has neither command nor url"}}
	p := opened(t, config)
	run(t, p)
	reload(t, p, config)
	broken := *config
	broken.Broken = append(slices.Clone(config.Broken), &configs.Error{Message: "server \"new\": variable TOKEN is not set"})
	if err := p.Reload(t.Context(), &broken); err == nil || !strings.Contains(err.Error(), "TOKEN is not set") {
		t.Errorf("Reload: %v", err)
	}
}

func TestReloadOfAProxyThatDoesNotRun(t *testing.T) {
	config := configOf(t, nil)
	p := opened(t, config)
	t.Cleanup(func() { _ = p.Close() })
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Reload(gone, config); !errors.Is(err, context.Canceled) {
		t.Errorf("before Run, with a context that has ended: %v", err)
	}
	if err := p.Run(t.Context(), func(ctx context.Context) error { return p.Reload(ctx, config) }); err != nil {
		t.Errorf("within Run: %v", err)
	}
	if err := p.Reload(t.Context(), config); !errors.Is(err, proxy.ErrEnded) {
		t.Errorf("after Run: %v, want ErrEnded", err)
	}
}

// The view that a process serves on stdio cannot be taken from it.
func TestTheOnlyViewCannotBeRemoved(t *testing.T) {
	up := shop(t, "shop", "hat")
	x := everything("x", view.ExposureDirect)
	config := configOf(t, []*script{up}, x)
	p, url := openViews(t, "x", config)
	c := newClient(t, p, url, kind{stdio: true}, `{}`, reply)
	c.listed()
	if err := p.Reload(t.Context(), edited(config)); err == nil || !strings.Contains(err.Error(), `"x"`) {
		t.Errorf("Reload without it: %v", err)
	}
	x.Tools = hat()
	reload(t, p, edited(config, x))
	c.hears("notifications/tools/list_changed", nil)
	if got := c.listed(); !slices.Equal(got, []string{"hat"}) {
		t.Errorf("tools/list has %v", got)
	}
}
