package proxy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"toolfinch/configs"
	"toolfinch/internal/await"
	"toolfinch/internal/identity"
	"toolfinch/internal/must"
	"toolfinch/proxy"
	"toolfinch/proxy/web/page"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/trust/inbound"
	"toolfinch/view"
	hooks "toolfinch/view/script"
)

// visitor is who looks at the page, with what a browser sends. It follows no redirects.
type visitor struct {
	t       *testing.T
	url     string // of toolfinch
	cookies []*http.Cookie
	headers []string // "Name: value", of each request
}

// do makes a request with a form; nil for GET.
func (v *visitor) do(path string, form url.Values, headers ...string) answered {
	v.t.Helper()
	method, body := http.MethodGet, io.Reader(nil)
	if form != nil {
		method, body = http.MethodPost, strings.NewReader(form.Encode())
	}
	request, err := http.NewRequestWithContext(v.t.Context(), method, v.url+path, body)
	if err != nil {
		v.t.Fatal(err)
	}
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, line := range append(v.headers, headers...) {
		name, value, _ := strings.Cut(line, ": ")
		if name == "Host" {
			request.Host = value
		}
		request.Header.Set(name, value)
	}
	for _, c := range v.cookies {
		request.AddCookie(c)
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		v.t.Fatal(err)
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	// Names may break, which tests do not look for.
	shown := strings.NewReplacer("<wbr>", "", `<span class="broken">`, "").Replace(string(got))
	return answered{response.StatusCode, response.Header, shown}
}

// takes keeps the cookies of an answer.
func (v *visitor) takes(a answered) {
	v.cookies = (&http.Response{Header: a.header}).Cookies()
}

// owner is one who came in by a link.
func owner(t *testing.T, p *proxy.Proxy, url string, headers ...string) *visitor {
	t.Helper()
	link, err := p.UILink(false)
	if err != nil {
		t.Fatal(err)
	}
	v := &visitor{t: t, url: url, headers: headers}
	got := v.do(link, nil)
	if got.status != http.StatusOK {
		t.Fatalf("the link answers with status %d: %s", got.status, got.body)
	}
	v.takes(got)
	return v
}

// withPage opens views with the page and the REST API.
func withPage(t *testing.T, config *configs.Config) (*proxy.Proxy, string) {
	t.Helper()
	config.UI, config.REST, config.Transport = true, true, configs.TransportHTTP
	return openViews(t, "", config)
}

// A link for a browser of this user lets in one that is, as these tests are.
func TestALinkOfHere(t *testing.T) {
	p, url := withPage(t, configOf(t, nil))
	link, err := p.UILink(true)
	if err != nil {
		t.Fatal(err)
	}
	if got := (&visitor{t: t, url: url}).do(link, nil); got.status != http.StatusOK || len(got.header["Set-Cookie"]) != 1 {
		t.Errorf("status %d: %s", got.status, got.body)
	}
}

func TestThePageIsForWhoWasLetIn(t *testing.T) {
	p, url := withPage(t, configOf(t, []*script{shop(t, "shop", "hat")}))
	stranger := &visitor{t: t, url: url}
	for _, path := range []string{"/ui/", "/ui/servers", "/ui/servers?name=shop", "/ui/connect", "/ui/nothing"} {
		got := stranger.do(path, nil)
		if got.status != http.StatusForbidden || !strings.Contains(got.body, "Log in") || strings.Contains(got.body, "Restart") {
			t.Errorf("%s: status %d: %s", path, got.status, got.body)
		}
		if strings.Contains(got.body, `class="dim version"`) {
			t.Errorf("%s tells a stranger which version runs", path)
		}
		if got = stranger.do(path, nil, "Toolfinch-Swap: servers"); got.status != http.StatusForbidden || strings.Contains(got.body, "<") {
			t.Errorf("%s, a part: status %d: %s", path, got.status, got.body)
		}
	}
	if got := stranger.do("/ui/servers?name=shop", map[string][]string{"do": {"reconnect"}}); got.status != http.StatusForbidden {
		t.Errorf("reconnect: status %d", got.status)
	}
	if got := stranger.do("/", nil); got.status != http.StatusSeeOther || got.header.Get("Location") != "ui/" {
		t.Errorf("/: status %d to %q", got.status, got.header.Get("Location"))
	}
	me := owner(t, p, url)
	if got := me.do("/ui/servers", nil); got.status != http.StatusOK || !strings.Contains(got.body, "shop") || !strings.Contains(got.body, `class="dim version">test<`) {
		t.Errorf("the owner: status %d: %s", got.status, got.body)
	}
	if len(me.cookies) != 1 || !me.cookies[0].HttpOnly || me.cookies[0].SameSite != http.SameSiteStrictMode || me.cookies[0].Path != "" || me.cookies[0].Secure {
		t.Errorf("the cookie is %v", me.cookies)
	}
	if got := me.do("/ui/logout", map[string][]string{}); got.status != http.StatusSeeOther {
		t.Errorf("logout: status %d", got.status)
	}
	if got := me.do("/ui/servers", nil); got.status != http.StatusForbidden {
		t.Errorf("after the end: status %d", got.status)
	}
}

// What every answer of the page has, whatever it is.
func TestHeadersOfThePage(t *testing.T) {
	p, url := withPage(t, configOf(t, nil))
	me := owner(t, p, url)
	page := me.do("/ui/", nil).body
	_, static, _ := strings.Cut(page, `rel="stylesheet" href="`)
	static, _, _ = strings.Cut(static, `"`)
	for path, kept := range map[string]bool{"/": false, "/ui/": false, "/ui/servers": false, "/ui/nothing": false, "/ui/login": false, "/ui/csp": false, "/ui/" + static: true, "/ui/static/x/none.js": false} {
		got := me.do(path, nil)
		policy := got.header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self';", "style-src 'self';", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: the policy is %q", path, policy)
			}
		}
		if got.header.Get("X-Content-Type-Options") != "nosniff" || got.header.Get("Cross-Origin-Resource-Policy") != "same-origin" || got.header.Get("Referrer-Policy") == "" {
			t.Errorf("%s: %v", path, got.header)
		}
		if cache := got.header.Get("Cache-Control"); strings.Contains(cache, "immutable") != kept || !kept && cache != "no-store" {
			t.Errorf("%s: Cache-Control: %s", path, cache)
		}
	}
	if strings.Contains(page, "<style") || strings.Contains(page, " style=") || strings.Contains(page, " onclick=") || strings.Contains(page, "<script>") {
		t.Errorf("something is inline:\n%s", page)
	}
}

// Forms of other sites are refused, also of another port of this machine.
func TestOtherSitesChangeNothing(t *testing.T) {
	s := shop(t, "shop", "hat")
	config := configOf(t, []*script{s})
	config.Origins = []string{"https://app.example"} // may call MCP
	config.Hosts = []string{"tools.example"}
	config.Listen = "127.0.0.1:8080"
	p, url := withPage(t, config)
	me := owner(t, p, url)
	form := map[string][]string{"do": {"reconnect"}}
	lists := len(s.got("tools/list"))
	for _, headers := range [][]string{
		{"Sec-Fetch-Site: cross-site", "Origin: https://evil.example"}, {"Origin: https://evil.example"}, {"Origin: null"},
		{"Sec-Fetch-Site: same-site", "Origin: http://127.0.0.1:1"}, {"Sec-Fetch-Site: same-site", "Origin: http://127.0.0.1"}, {"Origin: http://localhost:1"}, {"Origin: http://127.0.0.1:1"},
		{"Origin: https://app.example"}, {"Sec-Fetch-Site: cross-site", "Origin: https://app.example"},
		{"Host: evil.example", "Origin: http://evil.example", "Sec-Fetch-Site: same-origin"}, // a rebound name
	} {
		for _, path := range []string{"/ui/servers?name=shop", "/ui/login", "/ui/logout"} {
			if got := me.do(path, form, headers...); got.status != http.StatusForbidden {
				t.Errorf("%s with %v: status %d", path, headers, got.status)
			}
		}
	}
	if n := len(s.got("tools/list")); n != lists {
		t.Errorf("the server was listed %d times more", n-lists)
	}
	// What is streamed or downloaded is for the page alone, too.
	for headers, want := range map[string]int{"Sec-Fetch-Site: cross-site": 403, "Sec-Fetch-Site: same-site": 403, "Sec-Fetch-Site: same-origin": 404, "Sec-Fetch-Site: none": 404} {
		if got := me.do("/ui/result?run=x", nil, headers); got.status != want {
			t.Errorf("a download with %s: status %d, want %d", headers, got.status, want)
		}
	}
	for _, headers := range [][]string{
		{"Origin: " + url}, {"Origin: " + url, "Sec-Fetch-Site: same-origin"}, {"Sec-Fetch-Site: none"}, {},
		{"Host: tools.example", "Origin: https://tools.example", "Sec-Fetch-Site: same-origin"}, {"Host: tools.example", "Origin: http://tools.example"},
		{"Origin: https://tools.example"}, // a reverse proxy that names itself in Host
	} {
		if got := me.do("/ui/servers?name=shop", form, headers...); got.status != http.StatusSeeOther || got.header.Get("Location") != "servers?name=shop" {
			t.Errorf("with %v: status %d to %q: %s", headers, got.status, got.header.Get("Location"), got.body)
		}
	}
}

// The page lets no browser into anything else: neither does its Origin, nor its cookie.
func TestThePageOpensNothingElse(t *testing.T) {
	config := configOf(t, []*script{shop(t, "shop", "hat")})
	config.Hosts = []string{"tools.example"}
	config.Auth = inbound.Settings{Mode: inbound.Proof, Keys: true}
	p, url := withPage(t, config)
	me := owner(t, p, url)
	paths := append([]struct{ method, path string }{{"POST", "/mcp"}, {"GET", "/sse"}, {"POST", "/message"}}, restPaths...)
	for _, one := range paths {
		var form map[string][]string
		if one.method != "GET" {
			form = map[string][]string{}
		}
		if got := me.do(one.path, form, "Host: tools.example", "Origin: https://tools.example"); got.status != http.StatusForbidden {
			t.Errorf("%s from the page of another name: status %d, want 403", one.path, got.status)
		}
		if got := me.do(one.path, form); got.status != http.StatusUnauthorized {
			t.Errorf("%s with the cookie: status %d, want 401", one.path, got.status)
		}
	}
}

func TestACookieIsSecureWhereTheBrowserCameByHTTPS(t *testing.T) {
	config := configOf(t, nil)
	config.Hosts = []string{"tools.example"}
	p, url := withPage(t, config)
	if me := owner(t, p, url, "Host: tools.example", "X-Forwarded-Proto: https"); !me.cookies[0].Secure {
		t.Error("behind a trusted reverse proxy with HTTPS it is not")
	}
	config = configOf(t, nil)
	config.Proxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}
	p, url = withPage(t, config)
	if me := owner(t, p, url, "X-Forwarded-Proto: https"); me.cookies[0].Secure {
		t.Error("who is not believed says that it was HTTPS, and is")
	}
}

func TestThePageIsSwitchedOff(t *testing.T) {
	config := configOf(t, []*script{shop(t, "shop", "hat")})
	p, url := withPage(t, config)
	me := owner(t, p, url)
	next := *config
	next.UI = false
	reload(t, p, &next)
	for _, path := range []string{"/", "/ui/", "/ui/servers", "/ui/login"} {
		if got := me.do(path, nil); got.status != http.StatusNotFound {
			t.Errorf("%s: status %d", path, got.status)
		}
	}
	if _, err := p.UILink(false); !errors.Is(err, proxy.ErrNoPage) {
		t.Errorf("a link: %v", err)
	}
}

// Who came in with an API key has what the key has, as long as it has it.
func TestAKeySeesAndDoesWhatItMay(t *testing.T) {
	hats, tools := shop(t, "hats", "hat"), shop(t, "tools", "saw")
	hat := view.Settings{Name: "hat", Exposure: view.ExposureDirect, Tools: []view.UpstreamTools{{Name: "hats", Tools: []view.Override{{Tool: "hat"}}}}}
	config := configOf(t, []*script{hats, tools}, hat)
	config.Auth = inbound.Settings{Mode: inbound.Proof, Keys: true, Scopes: inbound.Scopes{{Name: "read", Allows: inbound.Read}, {Name: "write", Allows: inbound.Write}}}
	keys := keysOf(t, config, "read", "write")
	narrow := keyOfView(t, config, "narrow", "hat", "write")
	_, at := withPage(t, config)
	enter := func(key string) *visitor {
		v := &visitor{t: t, url: at}
		got := v.do("/ui/login", map[string][]string{"key": {" " + key + "\n"}})
		if got.status != http.StatusSeeOther {
			t.Fatalf("a key: status %d: %s", got.status, got.body)
		}
		v.takes(got)
		return v
	}
	for _, wrong := range []string{"", "tfkey_no", "secret"} {
		if got := (&visitor{t: t, url: at}).do("/ui/login", map[string][]string{"key": {wrong}}); got.status != http.StatusForbidden || len(got.header.Values("Set-Cookie")) > 0 {
			t.Errorf("the key %q: status %d", wrong, got.status)
		}
	}
	reader, writer, one := enter(keys["read"]), enter(keys["write"]), enter(narrow)
	reconnect := map[string][]string{"do": {"reconnect"}}
	flash := func(v *visitor) string { return v.do("/ui/servers", nil).body }

	reader.do("/ui/servers?name=tools", reconnect)
	if got := flash(reader); !strings.Contains(got, "needs the scope") {
		t.Errorf("a reader reconnects: %s", got)
	}
	writer.do("/ui/servers?name=tools", reconnect)
	if got := flash(writer); !strings.Contains(got, "tools is restarted") {
		t.Errorf("a writer does not reconnect: %s", got)
	}
	for _, do := range []string{"disable", "enable"} {
		if got := writer.do("/ui/servers?name=tools", map[string][]string{"do": {do}}); got.status != http.StatusForbidden {
			t.Errorf("a writer may %s: status %d", do, got.status)
		}
	}
	if got := flash(one); !strings.Contains(got, "hats") || strings.Contains(got, `name=tools"`) {
		t.Errorf("a key of one view sees: %s", got)
	}
	for _, form := range []url.Values{nil, reconnect} {
		if got := one.do("/ui/servers?name=tools", form); got.status != http.StatusNotFound {
			t.Errorf("a key of one view reaches another server: status %d", got.status)
		}
	}
	if got := one.do("/ui/servers?name=hats", nil).body; strings.Contains(got, "May touch") || strings.Contains(got, "Process") {
		t.Errorf("a key sees how a server is started: %s", got)
	}
	if got := one.do("/ui/connect", nil).body; strings.Contains(got, "client=") {
		t.Errorf("a key sees the files of the owner's clients: %s", got)
	}
	revoke(t, config, "write")
	await.True(t, func() bool { return writer.do("/ui/servers", nil).status == http.StatusForbidden })
	if got := reader.do("/ui/servers", nil); got.status != http.StatusOK {
		t.Errorf("another key: status %d", got.status)
	}
}

// The bearer of a key sees under Live its own calls, and no more of what policies hide than
// over MCP: not that it is there, nor what it said.
func TestAKeySeesNothingUnderLiveThatIsHidden(t *testing.T) {
	open, secret := newScript(t, "open", false, false), newScript(t, "secret", false, false)
	for _, s := range []*script{open, secret} {
		s.list("tools", `{"name":"a","inputSchema":{"type":"object"}}`)
		s.on("tools/call", func(r *request) { r.fail(`{"code":-32000,"message":"not today\u202e"}`) })
		s.on("resources/read", func(r *request) { r.result(`{"contents":[]}`) })
	}
	open.list("resourceTemplates", `{"name":"diary","uriTemplate":"diary://{who}"}`)
	v := everything(view.Default, view.ExposureDirect)
	v.Composites = []view.Composite{{Name: "both", Steps: []view.Step{{Key: "x", Tool: "secret.a", Args: []byte(`{}`)}}}}
	config := configOf(t, []*script{open, secret}, v)
	config.Auth = inbound.Settings{Mode: inbound.Proof, Keys: true}
	config.Policies = policies(t, `permit (principal, action, resource); forbid (principal, action, resource in Server::"secret") unless { principal == User::"key|boss" };`)
	keys := map[string]string{"me": keyOfView(t, config, "me", ""), "boss": keyOfView(t, config, "boss", "")}
	p, url := withPage(t, config)
	for name, key := range keys {
		c := newClientAt(t, p, url+"/mcp", kind{key: key}, `{}`, reply)
		for _, called := range []string{"secret_a", "secret_b", "open_a", "both"} {
			c.ask("tools/call", toolCall(called, `{}`))
		}
		c.ask("resources/read", `{"uri":"diary://`+name+`"}`)
	}
	for _, called := range []string{"open_a", "open_gone"} { // another's, of what me may use, too
		newClientAt(t, p, url+"/mcp", kind{key: keys["boss"]}, `{}`, reply).ask("tools/call", toolCall(called, `{}`))
	}
	me := &visitor{t: t, url: url}
	me.takes(me.do("/ui/login", map[string][]string{"key": {keys["me"]}}))
	got := me.do("/ui/live", nil).body
	if n := strings.Count(got, "open.a</span></a>"); n != 1 {
		t.Errorf("of three calls of open.a, one its own, a key sees %d", n)
	}
	if !strings.Contains(got, "error -32000: not today") || strings.Contains(got, "today\u202e") {
		t.Errorf("what the server said is not shown, or not printable: %s", got)
	}
	for text, want := range map[string]bool{"open.a": true, "secret_b": true, "diary://me": true, "secret.a": false, `name=secret"`: false, "diary://boss": false} {
		if strings.Contains(got, text) != want {
			t.Errorf("that %q is shown is %t", text, !want)
		}
	}
}

// A panic in a call that is made on the page is that call's alone.
func TestAPanicInACallOfThePageEndsNothingElse(t *testing.T) {
	config := configOf(t, []*script{shop(t, "shop", "hat")}, everything(view.Default, view.ExposureDirect))
	config.UI, config.Transport = true, configs.TransportHTTP
	p, url := ready(t, config, proxy.WithPostCall(func(context.Context, *hooks.Info, json.RawMessage, tool.Result) (tool.Result, error) {
		panic("a hook of somebody")
	}))
	me := owner(t, p, url)
	got := me.do("/ui/catalogue?name=shop_hat", map[string][]string{"mode": {"json"}, "json": {`{"size":1}`}, "do": {"confirmed"}})
	await.True(t, func() bool {
		return strings.Contains(me.do("/ui/"+got.header.Get("Location"), nil).body, "internal error")
	})
}

// Who guesses keys in the form must wait, as in headers.
func TestTheFormIsNoWayToGuessKeys(t *testing.T) {
	config := configOf(t, nil)
	config.Auth = inbound.Settings{Mode: inbound.Proof, Keys: true}
	_, url := withPage(t, config)
	v := &visitor{t: t, url: url}
	for n := 1; !strings.Contains(v.do("/ui/login", map[string][]string{"key": {"tfkey_guess"}}).body, "send others later"); n++ {
		if n > 400 { // ten times as many as at once: one more every two seconds
			t.Fatalf("%d guesses in a row are answered", n)
		}
	}
}

func TestReportsOfBrowsersAreLoggedWithinBounds(t *testing.T) {
	config := configOf(t, nil)
	config.UI = true
	log := &await.Log{}
	_, url := running(t, config, proxy.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	for range 50 {
		got := curl(t, url, "POST", "/ui/csp", `{"csp-report":{"violated-directive":"script-src","blocked-uri":"inline\u001b[2J","document-uri":"`+strings.Repeat("x", 5000)+`"}}`)
		if got.status != http.StatusNoContent {
			t.Fatalf("status %d", got.status)
		}
	}
	if n := strings.Count(log.String(), "a browser has blocked something"); n != 10 || strings.Contains(log.String(), "\x1b") || strings.Contains(log.String(), strings.Repeat("x", 1000)) {
		t.Errorf("%d lines of it are logged: %.3000s", n, log)
	}
	if got := curl(t, url, "POST", "/ui/csp", strings.Repeat("x", 1<<20)); got.status != http.StatusNoContent {
		t.Errorf("a large report: status %d", got.status)
	}
}

// keyOfView makes an API key for one view, and revoke takes one back.
func keyOfView(t *testing.T, config *configs.Config, name, of string, scopes ...string) string {
	t.Helper()
	text, hash := inbound.NewKey()
	keyStore(t, config, func(db *store.Store) error {
		return db.Keys().Add(t.Context(), identity.Key{Name: name, ID: "key|" + name, Hash: hash, View: of, Scopes: scopes, Created: time.Now()})
	})
	return text
}

func revoke(t *testing.T, config *configs.Config, name string) {
	t.Helper()
	keyStore(t, config, func(db *store.Store) error {
		_, err := db.Keys().Revoke(t.Context(), name)
		return err
	})
}

func keyStore(t *testing.T, config *configs.Config, do func(*store.Store) error) {
	t.Helper()
	db, err := store.Open(t.Context(), config.Places().Store, slog.New(slog.DiscardHandler))
	if err == nil {
		err = errors.Join(do(db), db.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// What waits is remembered for Changes until it may be something else: a server has changed
// it again, or another process has decided it.
func TestChangesShowsWhatWaitsNow(t *testing.T) {
	s := shop(t, "shop", "hat")
	config := configOf(t, []*script{s})
	config.Changes = nil
	p, url := withPage(t, config)
	me := owner(t, p, url)
	shows := func(text string) {
		t.Helper()
		eventually(t, func() bool { return strings.Contains(me.do("/ui/changes", nil).body, text) })
	}
	shows("Nothing waits for you")
	for _, says := range []string{"Sells hats.", "Sells more hats."} {
		s.list("tools", `{"name":"hat","description":"`+says+`","inputSchema":{"type":"object"}}`)
		s.tell(t, "notifications/tools/list_changed", `{}`)
		shows(says)
	}
	_, decide := approver(t, config)
	decide(true, "hat")
	shows("Nothing waits for you")
}

// connectable is a connector with one client.
type connectable struct{}

func (connectable) Clients() []page.Client { return []page.Client{{ID: "cursor", Name: "Cursor"}} }
func (connectable) Views() []string        { return nil }
func (connectable) Entry(how page.Connection) (page.Entry, error) {
	return page.Entry{Text: fmt.Sprintf("over HTTP: %t", how.HTTP)}, nil
}

// Where nothing but the page is served, it does not send clients to /mcp of its address.
func TestThePageAlone(t *testing.T) {
	config := configOf(t, nil, everything("shop", view.ExposureDirect))
	config.UI = true
	p, beside := running(t, config, proxy.WithConnector(connectable{}))
	alone := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, end := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- p.ServePage(ctx, alone) }()
	t.Cleanup(func() { end(); must.Do(t, <-served) })
	for at, wants := range map[string]map[string][]string{
		"http://" + alone.Addr().String(): {
			"connect":                        {"let it start <code>toolfinch serve</code>", "toolfinch serve --transport http"},
			"connect?client=cursor&how=http": {"over HTTP: false"},
			"access":                         {"come in over stdio", "toolfinch serve --transport http", "toolfinch serve --view shop"},
		},
		beside: {
			"connect":                        {"call <code>/mcp</code> of this toolfinch"},
			"connect?client=cursor&how=http": {"over HTTP: true", `value="http" selected`},
			"access":                         {"toolfinch listens on this machine alone", "<code>/mcp/shop</code>"},
		},
	} {
		me := owner(t, p, at)
		for path, texts := range wants {
			got := me.do("/ui/"+path, nil).body
			for _, want := range texts {
				if !strings.Contains(got, want) {
					t.Errorf("%s of %s does not say %q: %s", path, at, want, got)
				}
			}
			if at != beside && (strings.Contains(got, "streamable HTTP") || strings.Contains(got, "/mcp/shop") || strings.Contains(got, `value="http"`)) {
				t.Errorf("%s says that /mcp is served: %s", path, got)
			}
		}
	}
}
