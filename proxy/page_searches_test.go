package proxy_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"toolfinch/configs"
	"toolfinch/internal/must"
	"toolfinch/proxy"
	"toolfinch/trust/inbound"
	"toolfinch/upstream"
	"toolfinch/view"
)

// written has the page of a configuration in a file, whose edits are served.
func written(t *testing.T, path string) (*proxy.Proxy, string) {
	t.Helper()
	load := func() *configs.Config {
		t.Helper()
		c, err := configs.Load(configs.Options{Path: path, Dir: filepath.Dir(path), UserDir: filepath.Dir(path), Env: func(string) (string, bool) { return "", false }, Flags: map[string]string{"data_dir": filepath.Dir(path), "embedder": "BM25", "transport": "http"}})
		if err != nil {
			t.Error(err)
		}
		return c
	}
	p, at := openViews(t, "", load())
	changed, err := configs.Watch(t.Context(), func() []string { return []string{path} }, slog.New(slog.DiscardHandler))
	must.Do(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range changed {
			if c := load(); c != nil {
				_ = p.Reload(t.Context(), c) // the test may have ended
			}
		}
	}()
	t.Cleanup(func() { <-ended })
	return p, at
}

// drawers are tools that one query finds badly.
func drawers(t *testing.T) *script {
	s := newScript(t, "home", false, false)
	s.list("tools", `{"name":"put_away","description":"Stores a thing in a drawer.","inputSchema":{"type":"object"}}`,
		`{"name":"remember_drawer","description":"Remember the colour of a drawer.","inputSchema":{"type":"object"}}`,
		`{"name":"paint","description":"Paints a drawer in any colour.","inputSchema":{"type":"object"}}`)
	return s
}

func TestASearchIsLookedAtAndMended(t *testing.T) {
	s := drawers(t)
	path := must.Write(t, filepath.Join(folder(t), "toolfinch.yaml"), "mcp_servers:\n  home: # mine\n    url: "+s.settings.URL+"\n")
	before := must.Read(t, path)
	p, at := written(t, path)
	c := newClientAt(t, p, at+"/mcp", kind{}, `{}`, reply)
	find := func(query string) { c.ask("tools/call", toolCall("retrieve_tools", `{"query":"`+query+`"}`)) }
	find("remember my keys")
	find("paint it")
	find("stash and remember my keys")
	me := owner(t, p, at)
	list := me.do("/ui/live", nil).body
	if !strings.Contains(list, "“stash and remember my keys”") || !strings.Contains(list, "1. home_remember_drawer") {
		t.Fatalf("Live shows neither query nor hits: %s", list)
	}
	link := "/ui/" + regexp.MustCompile(`live\?n=\d+`).FindString(list) // the latest is first
	one := me.do(link, nil).body
	for _, want := range []string{"“stash and remember my keys”", "Why was this found?", "by word:  rememb", `value="home.remember_drawer"`, "Words of the query that it lacks: stash, keys"} {
		if !strings.Contains(one, want) {
			t.Errorf("the search does not show %q: %s", want, one)
		}
	}
	form := func(do, name string) url.Values { return url.Values{"do": {do}, "search": {"0"}, "tool": {name}} }

	if got := me.do(link, form("meant", "home_put_away")); got.status != http.StatusSeeOther {
		t.Fatalf("status %d: %s", got.status, got.body)
	}
	if got := must.Read(t, path); got != strings.TrimSuffix(before, "\n")+"\n    tools:\n      put_away:\n        description: \"{original}\\nAlso for: stash, remember, keys\"\n" {
		t.Errorf("the file is\n%s", got)
	}
	shown := me.do(link, nil).body
	for _, want := range []string{"<b>home_put_away</b> was meant", "<b>stash, remember, keys</b>", "This query: not found → 1.", "Of 2 other kept queries, it moved in 1:", "“remember my keys”: not found → 1, in front of home_remember_drawer", ">Undo<"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the correction does not show %q: %s", want, shown)
		}
	}
	if got := me.do("/ui/catalogue?name=home_put_away", nil).body; !strings.Contains(got, "<b>stash, remember, keys</b>") {
		t.Errorf("the tool does not show its words: %s", got)
	}
	me.do(link, form("meant", "home_put_away"))
	if got := me.do(link, nil).body; !strings.Contains(got, "has every word of this query already") {
		t.Errorf("once more: %s", got)
	}
	me.do(link, form("meant", "home_put_a_way"))
	if got := me.do(link, nil).body; !strings.Contains(got, "nearest: home_put_away") {
		t.Errorf("a name that is not there: %s", got)
	}
	me.do(link, url.Values{"do": {"undo"}, "tool": {"put_away"}, "words": {"home stash remember keys"}})
	if got := must.Read(t, path); got != before {
		t.Errorf("after undo the file is\n%s", got)
	}
	if got := me.do(link, nil).body; !strings.Contains(got, "Undone: ") || strings.Contains(got, ">Undo<") {
		t.Errorf("after undo the search shows: %s", got)
	}
	me.do(link, url.Values{"do": {"undo"}, "tool": {"put_away"}, "words": {"home stash remember keys"}})
	if got := me.do(link, nil).body; !strings.Contains(got, "the description of home.put_away does not end with") || strings.Contains(got, "removed from the description") {
		t.Errorf("another undo finds no words: %s", got)
	}

	me.do(link, form("hide", "home.remember_drawer"))
	if names := fmt.Sprint(toolsOf(t, p, "default")); strings.Contains(names, "remember_drawer") {
		t.Errorf("a hidden tool is among %s", names)
	}
	if got := me.do("/ui/servers?name=home", nil).body; !strings.Contains(got, `name="show" value="remember_drawer"`) {
		t.Errorf("the server does not show its hidden tool: %s", got)
	}
	me.do("/ui/servers?name=home", url.Values{"show": {"remember_drawer"}})
	if got := must.Read(t, path); got != before {
		t.Errorf("after showing it again the file is\n%s", got)
	}
	me.do("/ui/catalogue?name=home_paint", url.Values{"do": {"hide"}})
	if names := fmt.Sprint(toolsOf(t, p, "default")); strings.Contains(names, "paint") || !strings.Contains(names, "remember_drawer") {
		t.Errorf("after hiding paint there are %s", names)
	}
}

// The owner is told what keeps a tool out of a view, and the bearer of a key knows nothing of it.
func TestWhyNotIsWithinWhatTheUserMaySee(t *testing.T) {
	paints := view.Settings{Name: "paints", Tools: []view.UpstreamTools{{Name: "home", Tools: []view.Override{{Tool: "paint"}}}}}
	config := configOf(t, []*script{drawers(t)}, everything(view.Default, view.ExposureRetrieve), paints)
	config.Auth = inbound.Settings{Mode: inbound.Proof, Keys: true}
	key := keyOfView(t, config, "me", "paints")
	p, at := withPage(t, config)
	bearer := &visitor{t: t, url: at}
	bearer.takes(bearer.do("/ui/login", url.Values{"key": {key}}))
	for _, test := range []struct {
		who        *visitor
		path, want string
	}{
		{owner(t, p, at), "q=stash+and+remember+keys&tool=home.put_away", "<b>home_put_away</b> is not found."},
		{owner(t, p, at), "q=stash+and+remember+keys&tool=home.put_away", "Words of the query that it lacks: stash, remember, keys"},
		{owner(t, p, at), "q=stash+and+remember+keys&tool=home.put_away", "in its description. <code>toolfinch why-not --add</code>"},
		{owner(t, p, at), "q=paint+a+drawer&tool=home.paint", "<b>home_paint</b> has rank 1."},
		{owner(t, p, at), "q=paint&view=paints&tool=home.put_away", "No query finds <b>home.put_away</b>: the view paints leaves it out; it is in default."},
		{owner(t, p, at), "q=paint&tool=home.<b>", "There is no tool <b>home.&lt;b&gt;</b>"},
		{bearer, "q=paint&tool=home.put_away", "There is no tool <b>home.put_away</b>: nearest: home_paint</p>"},
		{bearer, "q=paint&tool=home_put_awa", "There is no tool <b>home_put_awa</b>: nearest: home_paint</p>"},
	} {
		if got := test.who.do("/ui/search?"+strings.ReplaceAll(test.path, "<b>", "%3Cb%3E"), nil).body; !strings.Contains(got, test.want) {
			t.Errorf("%s does not say %q: %s", test.path, test.want, got)
		}
	}
	mine := &visitor{t: t, url: at, headers: []string{"Authorization: Bearer " + key}}
	if got := mine.do("/api/tools/why-not?tool=home.put_away&query=paint&view=paints", nil).body; !strings.Contains(got, `"out":"unknown"`) || strings.Contains(got, "leaves") || strings.Contains(got, "home_put_away") {
		t.Errorf("REST tells the bearer of a key: %s", got)
	}
}

// A pattern hides tools that the page does not name, so it has no button that shows them all.
func TestAPatternIsNotShownAgain(t *testing.T) {
	s := drawers(t)
	path := must.Write(t, filepath.Join(folder(t), "toolfinch.yaml"), "mcp_servers:\n  home:\n    url: "+s.settings.URL+
		"\n    tools:\n      \"*\": {enabled: false}\n      paint: {enabled: true}\n      put_away: {enabled: false}\n")
	before := must.Read(t, path)
	p, at := written(t, path)
	me := owner(t, p, at)
	if got := me.do("/ui/servers?name=home", nil).body; strings.Contains(got, `value="*"`) || !strings.Contains(got, `name="show" value="put_away"`) {
		t.Errorf("the hidden tools are not put_away alone: %s", got)
	}
	me.do("/ui/servers?name=home", url.Values{"show": {"*"}})
	if got := me.do("/ui/servers?name=home", nil).body; !strings.Contains(got, "a pattern decides about home.*") {
		t.Errorf("the page does not say why: %s", got)
	}
	if got := must.Read(t, path); got != before {
		t.Errorf("the file is\n%s", got)
	}
}

// What a process wrote before it ended may repeat anything, and is for the owner alone.
func TestTheWordsOfAProcessAreForTheOwner(t *testing.T) {
	config := configOf(t, nil, everything(view.Default, view.ExposureDirect))
	config.Servers = append(config.Servers, upstream.Settings{Name: "gone", Command: must.Get(os.Executable())(t), Args: []string{"-no-such-flag"}})
	config.Auth = inbound.Settings{Mode: inbound.Proof, Keys: true}
	key := keyOfView(t, config, "me", "")
	p, at := withPage(t, config)
	if got := owner(t, p, at).do("/ui/servers?name=gone", nil).body; !strings.Contains(got, "it wrote") || !strings.Contains(got, "exit status 2") {
		t.Errorf("the owner is not told why it failed: %s", got)
	}
	for _, s := range p.Status(t.Context()).Servers {
		if s.Name == "gone" && !strings.Contains(s.Error, "it wrote") {
			t.Errorf("status does not say why it failed: %s", s.Error)
		}
	}
	me := &visitor{t: t, url: at}
	me.takes(me.do("/ui/login", url.Values{"key": {key}}))
	mine := &visitor{t: t, url: at, headers: []string{"Authorization: Bearer " + key}}
	for name, got := range map[string]string{
		"the page":  me.do("/ui/servers?name=gone", nil).body,
		"servers":   mine.do("/api/servers", nil).body,
		"reconnect": mine.do("/api/servers/gone/reconnect", url.Values{}).body,
		"reindex":   mine.do("/api/reindex", url.Values{}).body,
	} {
		if !strings.Contains(got, "the process ended (exit status 2)") || strings.Contains(got, "it wrote") || strings.Contains(got, "no-such-flag") {
			t.Errorf("%s tells the bearer of a key: %s", name, got)
		}
	}
}

// What clients searched is for the owner alone, and only if the configuration keeps it.
func TestSearchesAreForTheOwner(t *testing.T) {
	for _, keep := range []int{0, 10} {
		t.Run(fmt.Sprint("ui_keep ", keep), func(t *testing.T) {
			config := configOf(t, []*script{drawers(t)}, everything(view.Default, view.ExposureRetrieve))
			config.UIKeep = keep
			config.Auth = inbound.Settings{Mode: inbound.Proof, Keys: true}
			key := keyOfView(t, config, "me", "")
			p, at := withPage(t, config)
			c := newClientAt(t, p, at+"/mcp", kind{key: key}, `{}`, reply)
			c.ask("tools/call", toolCall("retrieve_tools", `{"query":"paint my secret drawer"}`))
			me := &visitor{t: t, url: at}
			me.takes(me.do("/ui/login", map[string][]string{"key": {key}}))
			mine := me.do("/ui/live", nil).body
			link := "/ui/" + regexp.MustCompile(`live\?n=\d+`).FindString(mine)
			if link == "/ui/" {
				t.Fatalf("the search is not under Live: %s", mine)
			}
			for _, path := range []string{"/ui/live", link, "/ui/live?q=secret"} {
				if got := me.do(path, nil).body; strings.Contains(got, "my secret") || strings.Contains(got, "This was meant") {
					t.Errorf("%s shows the bearer of a key what was searched: %s", path, got)
				}
			}
			for _, do := range []string{"meant", "hide", "undo"} {
				if got := me.do(link, url.Values{"do": {do}, "search": {"0"}, "tool": {"home_paint"}, "words": {"home x"}}); got.status != http.StatusForbidden {
					t.Errorf("the bearer of a key may do %s: status %d", do, got.status)
				}
			}
			for _, do := range []string{"hide", "forget"} {
				if got := me.do("/ui/catalogue?name=home_paint", url.Values{"do": {do}}); got.status != http.StatusForbidden {
					t.Errorf("the bearer of a key may do %s to a tool: status %d", do, got.status)
				}
			}
			if got := me.do("/ui/servers?name=home", url.Values{"show": {"paint"}}); got.status != http.StatusForbidden {
				t.Errorf("the bearer of a key may show a tool: status %d", got.status)
			}
			if got := owner(t, p, at).do("/ui/live?q=secret", nil).body; strings.Contains(got, "“paint my secret drawer”") != (keep > 0) {
				t.Errorf("the owner sees: %s", got)
			}
		})
	}
}

func TestTheOverviewAnswersWhetherAnAgentIsConnected(t *testing.T) {
	config := configOf(t, []*script{shop(t, "shop", "hat")}, everything(view.Default, view.ExposureDirect))
	p, at := withPage(t, config)
	me := owner(t, p, at)
	overview := func(wants ...string) {
		t.Helper()
		got := me.do("/ui/", nil).body
		for _, want := range wants {
			if !strings.Contains(got, want) {
				t.Fatalf("the overview does not say %q: %s", want, got)
			}
		}
	}
	overview("<strong>No</strong>: no client has come", `href="connect">Connect your agent`)
	c := newClientAt(t, p, at+"/mcp", kind{}, `{}`, reply)
	overview("<strong>Yes</strong>: 1 client.", "None has called yet", "none yet")
	c.ask("tools/call", toolCall("shop_hat", `{"size":1}`))
	overview("<strong>Yes</strong>", "shop.hat")
	if got := status(t, http.MethodDelete, c.url, c.id); got/100 != 2 {
		t.Fatalf("the session does not end: status %d", got)
	}
	eventually(t, func() bool { return strings.Contains(me.do("/ui/", nil).body, `data-state="gone"`) })
	overview("shop.hat")
}

func TestAPathBelowAScreen(t *testing.T) {
	p, at := withPage(t, configOf(t, nil))
	me := owner(t, p, at)
	for path, want := range map[string]string{"/ui/servers/a%20b": "../servers?name=a+b", "/ui/servers/a/": "../../servers?name=a"} {
		if got := me.do(path, nil); got.status != http.StatusSeeOther || got.header.Get("Location") != want {
			t.Errorf("%s: status %d to %q", path, got.status, got.header.Get("Location"))
		}
	}
	got := me.do("/ui/no/such/page", nil)
	for _, want := range []string{`href="../../static/`, `href="./../../servers"`, `action="../../logout"`} {
		if got.status != http.StatusNotFound || !strings.Contains(got.body, want) {
			t.Errorf("status %d, without %s: %s", got.status, want, got.body)
		}
	}
}
