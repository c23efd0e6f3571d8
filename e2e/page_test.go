//go:build unix

package e2e_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"toolfinch/internal/authserver"
	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

// watched is a toolfinch with the page, and Chromium in front.
type watched struct {
	house
	browser
	as   *authserver.Server // where one logs in to the server notes
	url  string             // of MCP
	pid  int
	node string // a link to the program that the server memory is run by
}

// startWatched serves real servers, one that cannot be started, and one whose every text
// is hostile.
func startWatched(t *testing.T) watched {
	t.Helper()
	servers := upstreams(t, "everything", "files", "memory")
	hostile := must.Get(filepath.Abs("../testdata/node/hostile.mjs"))(t)
	servers["hostile"] = script(t, hostile)
	servers["gone"] = server{Command: "toolfinch-no-such-program", ConnectTimeout: patience.String()}
	opaque := true
	w := watched{browser: newBrowser(t)}
	w.as = startAuthServer(t, authserver.Settings{Clients: []authserver.Client{authserver.Inspector}, Now: authserver.Now{Opaque: &opaque}})
	protected := authserver.Protect(t, w.as, true)
	settings := map[string]any{}
	if hasModel() {
		settings["embedder"] = "HF"
	}
	w.house = newHouse(t, servers, settings, map[string]any{"default_view": "all", "tool_views": map[string]any{"notes": map[string]any{"tools": map[string]any{"memory": map[string]any{"*": map[string]any{}}}}}})
	if hasModel() {
		w.env = append(w.env, "MCPPROXY_MODELS_DIR="+userModels(t))
	}
	w.node = filepath.Join(w.home, "node")
	must.Do(t, os.Symlink(node(t), w.node))
	w.edit(t, func(config map[string]any) {
		all := config["mcp_servers"].(map[string]any)
		all["memory"].(map[string]any)["command"] = w.node
		all["guarded"] = map[string]any{"url": protected.At()}
	})
	life := w.start(t)
	w.url, w.pid = life.url, life.pid
	t.Cleanup(func() {
		if strings.Contains(life.log.String(), "a browser has blocked something") {
			t.Error("the policy of the page was violated, see the log")
		}
	})
	await.Nil(t, func() error {
		res, err := http.Get(w.base() + "/api/servers")
		if err != nil {
			return err
		}
		defer res.Body.Close()
		var got struct {
			Servers []struct{ Name, State string }
		}
		if err := json.NewDecoder(res.Body).Decode(&got); err != nil {
			return err
		}
		for _, s := range got.Servers {
			if wanted := cmp.Or(map[string]string{"gone": "failed", "guarded": "needs_login"}[s.Name], "ready"); s.State != wanted {
				return fmt.Errorf("%v", got)
			}
		}
		return nil
	})
	return w
}

func (w watched) base() string { return strings.TrimSuffix(w.url, "/mcp") }

// edit edits the configuration's file.
func (w watched) edit(t *testing.T, change func(config map[string]any)) {
	t.Helper()
	config := w.written(t)
	change(config)
	text := must.Get(json.MarshalIndent(config, "", "  "))(t)
	must.Do(t, os.WriteFile(w.config, text, 0o644))
}

// written is the configuration as its file has it.
func (w watched) written(t *testing.T) (config map[string]any) {
	t.Helper()
	text, err := os.ReadFile(w.config)
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// in opens a tab of the owner.
func (w watched) in(t *testing.T) *tab {
	t.Helper()
	tab := w.tab(t, w.url)
	tab.logIn(w.house)
	return tab
}

// The page in Chromium, over real servers.
func TestPage(t *testing.T) {
	t.Parallel()
	w := startWatched(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, watched)
	}{
		{"a link lets in once", aLinkLetsInOnce},
		{"overview", theOverview},
		{"tools", tools},
		{"live", live},
		{"a server", aServer},
		{"killed while watched", killedWhileWatched},
		{"disabled and enabled", disabledAndEnabled},
		{"a login", aLogin},
		{"connect", connects},
		{"first steps", firstSteps},
		{"behind a path of a reverse proxy", behindAPath},
		{"by keys alone", byKeysAlone},
		{"without script", withoutScript},
		{"hostile texts", hostileTexts},
		{"the end of a session", theEnd},
		{"what loads and how much", whatLoads},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, w) })
	}
}

func aLinkLetsInOnce(t *testing.T, w watched) {
	tab := w.tab(t, w.url)
	tab.expect("403")
	for _, path := range []string{"", "servers", "connect?client=cursor", "nothing"} {
		tab.open(path)
		tab.wait("h1", "Log in")
	}
	tab.accessible()
	tab.fits()
	tab.looks("login")
	link := w.base() + w.uiLink(t)
	tab.run(chromedp.Navigate(link))
	tab.wait("h1", "Overview")
	other := w.tab(t, w.url)
	other.expect("403")
	other.run(chromedp.Navigate(link))
	other.wait(".note.bad", "used before")
	other.open("servers")
	other.wait("h1", "Log in")
	tab.run(chromedp.Navigate(w.base() + "/"))
	tab.wait("h1", "Overview")
}

func theOverview(t *testing.T, w watched) {
	for _, body := range []string{`{"tool_id":"everything_echo","arguments":{"message":"hi"}}`, `{"tool_id":"everything_echo","arguments":{"message":"ho"}}`, `{"tool_id":"files_read_text_file","arguments":{"path":"/nowhere"}}`} {
		res := must.Get(http.Post(w.base()+"/api/proxy/execute", "application/json", strings.NewReader(body)))(t)
		res.Body.Close()
	}
	tab := w.in(t)
	tab.wait("#trouble li", "gone")
	tab.wait(".why", "toolfinch-no-such-program")
	tab.wait("figcaption", "3 calls")
	tab.wait(".stat", "tokens saved")
	tab.wait("#clients", "Is my agent connected?")
	tab.wait("#trouble .step", "Install toolfinch-no-such-program")
	tab.wait(`nav a[href="./servers"] .n`, "")
	if n := evaluate[int](tab, `document.querySelectorAll("svg.plot rect.ok").length`); n == 0 {
		t.Error("the plot has no bar")
	}
	if n := evaluate[int](tab, `document.querySelectorAll("svg.plot rect.err").length`); n != 1 {
		t.Errorf("the plot has %d bars of what failed", n)
	}
	tab.accessible()
	tab.fits()
	tab.looks("overview")
	tab.open("servers")
	tab.accessible()
	tab.fits()
	tab.looks("servers")
}

func aServer(t *testing.T, w watched) {
	tab := w.in(t)
	tab.open("servers?name=files")
	tab.accessible()
	tab.fits()
	tab.looks("server")
	for _, want := range []string{"ready", "stdio", "legacy", "server-filesystem", "all that you may", "running on stdio"} {
		if !strings.Contains(tab.text("main"), want) {
			t.Errorf("the page of files does not say %q:\n%s", want, tab.text("main"))
		}
	}
	process := func() string {
		return evaluate[string](tab, `[...document.querySelectorAll("dt")].find((e) => e.textContent === "Process").nextElementSibling.textContent`)
	}
	before := process()
	tab.click("#reconnect")
	tab.wait(".note.good", "files is restarted")
	if after := process(); after == before {
		t.Errorf("the process is %s as before", after)
	}
	tab.expect("404")
	tab.open("servers?name=no%20such")
	tab.wait(".note.bad", "there is no such server")
}

// Two tabs, of which none is loaded again.
func killedWhileWatched(t *testing.T, w watched) {
	list, one := w.in(t), w.in(t)
	list.open("servers")
	one.open("servers?name=memory")
	for _, tab := range []*tab{list, one} {
		tab.wait("body", "memory")
		evaluate[bool](tab, "window.stays = true")
	}
	must.Do(t, os.Remove(w.node))
	kill(t, w.pid, "server-memory")
	row := `tr:has(a[href$="name=memory"])`
	list.wait(row+" .badge", "failed")
	one.wait("#server .badge", "failed")
	one.wait("#server .why", "")
	one.looks("server-failed")
	overview := w.in(t)
	overview.wait("#stderr-memory pre", "running on stdio")
	must.Do(t, os.Symlink(node(t), w.node))
	if !evaluate[bool](one, "window.stays") {
		t.Error("the page was loaded again")
	}
	one.click("#reconnect")
	one.wait("#server .badge", "ready")
	list.wait(row+" .badge", "ready")
	if !evaluate[bool](list, "window.stays") {
		t.Error("the list was loaded again")
	}
}

func disabledAndEnabled(t *testing.T, w watched) {
	tab := w.in(t)
	tab.open("servers?name=everything")
	tab.wait("form", "into toolfinch.json")
	entry := func() map[string]any {
		return w.written(t)["mcp_servers"].(map[string]any)["everything"].(map[string]any)
	}
	before := entry()
	tab.click("#disable")
	tab.wait(".note.good", "everything is disabled")
	tab.wait("#server .badge", "disabled")
	if entry()["enabled"] != false {
		t.Errorf("the file has %v", entry())
	}
	tab.click("#enable")
	tab.wait(".note.good", "everything is enabled")
	tab.wait("#server .badge", "ready")
	after := entry()
	delete(after, "enabled")
	if fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("the file has %v, and had %v", after, before)
	}
}

// A login begins on one tab, goes through the authorization server, and is seen on another
// that is not loaded again.
func aLogin(t *testing.T, w watched) {
	list, tab := w.in(t), w.in(t)
	list.open("servers")
	list.wait("table.list tr", "needs login")
	tab.open("servers?name=guarded")
	tab.wait("#server .badge", "needs login")
	tab.looks("server-login")
	tab.click("#login")
	tab.wait(".note.warn", "The login has begun")
	tab.accessible()
	tab.expect(w.as.Issuer)
	tab.expect("favicon.ico")
	to := evaluate[string](tab, `document.querySelector(".note.warn a").href`)
	tab.run(chromedp.Navigate(to))
	tab.wait("body", "Logged in to guarded")
	tab.open("servers?name=guarded")
	tab.wait("#server .badge", "ready")
	tab.wait("#server dd", "logged in at "+w.as.Issuer)
	list.wait(`tr:has(a[href$="name=guarded"]) .badge`, "ready")
	tab.click("#logout")
	tab.wait(".note.good", "logged out of guarded")
}

// firstSteps is the page of a toolfinch without servers.
func firstSteps(t *testing.T, w watched) {
	empty := newHouse(t, map[string]server{})
	url, _ := empty.serveHTTP(t)
	tab := w.tab(t, url)
	tab.logIn(empty)
	tab.wait(".empty h2", "No server yet")
	tab.accessible()
	tab.fits()
	tab.looks("empty")
	tab.open("servers")
	tab.wait(".empty", "toolfinch.json")
}

// behindAPath has the page under a path, by another name and over a proxy that names itself.
func behindAPath(t *testing.T, w watched) {
	to := must.Get(url.Parse(w.base()))(t)
	proxy := httptest.NewServer(http.StripPrefix("/tools", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.SetXForwarded()
	}}))
	defer proxy.Close()
	tab := w.tab(t, proxy.URL)
	tab.at = proxy.URL + "/tools/ui/"
	tab.logIn(w.house)
	tab.click(`nav a[href="./servers"]`)
	tab.click(`a[href="servers?name=files"]`)
	tab.click("#reconnect")
	tab.wait(".note.good", "files is restarted")
	if at := tab.path(); at != "servers?name=files" {
		t.Errorf("the form leads to %s", at)
	}
	tab.click(`form[action=logout] button`)
	tab.wait("h1", "Log in")
}

func byKeysAlone(t *testing.T, w watched) {
	tab := w.in(t)
	tab.pressed(kb.Tab)
	if got := tab.focused(); got != "a Skip to the content" {
		t.Errorf("Tab leads to %q first", got)
	}
	tab.pressed(kb.Enter)
	if got := tab.focused(); !strings.HasPrefix(got, "main ") {
		t.Errorf("the skip link leads to %q", got)
	}
	tab.open("servers")
	tab.run(chromedp.Focus(chromedp.CSS("main td a")))
	first := tab.focused()
	if outline := evaluate[string](tab, "getComputedStyle(document.activeElement).outlineStyle"); outline == "none" {
		t.Error("it is not seen where the keys go")
	}
	tab.pressed(kb.Enter)
	tab.wait("h1", strings.TrimPrefix(first, "a "))
	// Every control can be reached, in the order in which it is read.
	var order []string
	for range 40 {
		tab.pressed(kb.Tab)
		if at := tab.focused(); at == "button Restart" {
			order = append(order, at)
			break
		}
	}
	if len(order) == 0 {
		t.Error("Tab never leads to the button Restart")
	}
	tab.pressed(kb.Enter)
	tab.wait(".note", "restarted")
}

func hostileTexts(t *testing.T, w watched) {
	tab := w.in(t)
	for _, path := range []string{"", "servers", "servers?name=hostile", "connect"} {
		tab.open(path)
		if evaluate[bool](tab, `"hacked" in window`) {
			t.Fatalf("%s: a text of a server has run", path)
		}
		if n := evaluate[int](tab, `document.querySelectorAll("main script, main img, main [onerror], main [onload], main [onclick], main a[href^=javascript]").length`); n != 0 {
			t.Errorf("%s: %d elements are a server's", path, n)
		}
		if text := tab.html(); strings.ContainsAny(text, "\u202e\u2066\u200b\x1b") || strings.ContainsRune(text, 0xE0041) {
			t.Errorf("%s has hidden characters", path)
		}
	}
	tab.open("servers?name=hostile")
	tab.wait(".foreign", "<script>window.hacked=1</script>")
	tab.wait(".foreign .hidden-char", "U+202E")
	tab.wait("pre .hidden-char", "U+001B")
	tab.fits()
	tab.looks("hostile")
}

func theEnd(t *testing.T, w watched) {
	tab := w.in(t)
	tab.open("servers")
	tab.click(`form[action=logout] button`)
	tab.wait("h1", "Log in")
	tab.expect("403")
	tab.open("servers")
	tab.wait("h1", "Log in")
}

// Nothing comes from elsewhere (which fails each test), what does is little, and is kept.
func whatLoads(t *testing.T, w watched) {
	tab := w.in(t)
	tab.open("servers?name=memory")
	tab.received()
	for _, path := range []string{"", "servers", "servers?name=memory", "connect", "connect?client=cursor"} {
		tab.open(path)
		again := tab.received()
		type entry struct {
			Name     string
			Transfer float64
		}
		loaded := evaluate[[]entry](tab, `performance.getEntriesByType("resource").map((e) => ({Name: e.name, Transfer: e.transferSize}))`)
		if i := slices.IndexFunc(loaded, func(e entry) bool { return strings.Contains(e.Name, "/static/") && e.Transfer > 0 }); i >= 0 {
			t.Errorf("%s loads %s again", path, loaded[i].Name)
		}
		if again > 50_000 {
			t.Errorf("%s has %.0f bytes", path, again)
		}
	}
}

// Every view of the menu stays small with 5,000 tools.
func TestPageWithManyTools(t *testing.T) {
	t.Parallel()
	browser := newBrowser(t)
	odd := must.Get(filepath.Abs("../testdata/node/odd.mjs"))(t)
	lists := map[string][]string{"prompts": {}, "resources": {}, "resourceTemplates": {}}
	for i := range 5000 {
		lists["tools"] = append(lists["tools"], fmt.Sprintf(`{"name":"tool_%d","description":"Does the work of kind %d for the department %d, and says so in some words that are like those of others.","inputSchema":{"type":"object","properties":{"what":{"type":"string","description":"What it is about"},"count":{"type":"integer"}},"required":["what"]}}`, i, i, i%50))
	}
	file := filepath.Join(t.TempDir(), "lists.json")
	write := func() {
		t.Helper()
		text, err := json.Marshal(lists)
		if err == nil {
			err = os.WriteFile(file, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write()
	h := newHouse(t, map[string]server{"many": script(t, odd, file)}, map[string]any{"default_view": "all"})
	at, _ := h.serveHTTP(t)
	tab := browser.tab(t, at)
	tab.logIn(h)
	tab.wait(".stat", "5,000tools")
	measure := func(name, path string, most float64) {
		t.Helper()
		tab.open(path) // and what is kept of it
		tab.received()
		tab.open(path)
		if n := tab.received(); n > most {
			t.Errorf("%s has %.0f bytes", name, n)
		}
	}
	for _, path := range evaluate[[]string](tab, `[...document.querySelectorAll("nav a")].map((a) => a.getAttribute("href").slice(2))`) {
		measure(path, path, 100_000)
	}
	for _, n := range []int{1, 5000} {
		for i, one := range lists["tools"][:n] {
			lists["tools"][i] = strings.Replace(one, "Does the work", "Does all the work", 1)
		}
		write()
		tab.open("servers?name=many")
		tab.click("button[value=reconnect]")
		tab.open("changes")
		tab.wait("main", map[int]string{1: "Does all the work", 5000: "5,000"}[n])
		measure(fmt.Sprint(n, " changed"), "changes", 150_000)
	}
	tab.click(".pager a[rel=next]")
	tab.wait(".pager", "51–100 of 5,000")
	tab.wait("button[value='approve all']", "Approve the 50 shown here of many")
	measure("overview then", "", 100_000)
}
