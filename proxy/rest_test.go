package proxy_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"toolfinch/configs"
	"toolfinch/internal/fetch"
	"toolfinch/proxy"
	"toolfinch/view"
)

// answered is the answer to a plain HTTP request.
type answered struct {
	status int
	header http.Header
	body   string
}

// get returns a member of the body by its path, as the bytes it is.
func (a answered) get(keys ...string) string {
	raw := []byte(a.body)
	for _, key := range keys {
		raw = part(raw, key)
	}
	return string(raw)
}

// curl sends what the program of that name would: a method, a path, a body of JSON unless it is "",
// and headers, each "Name: value".
func curl(t testing.TB, url, method, path, body string, header ...string) answered {
	t.Helper()
	got := fetch.Send(t, method, url+path, body, header...)
	return answered{got.Status, got.Header, got.Body}
}

// wants fails the test unless the answer has the status and all the texts.
func (a answered) wants(t testing.TB, what string, status int, texts ...string) {
	t.Helper()
	if a.status != status {
		t.Errorf("%s: status %d, want %d: %s", what, a.status, status, a.body)
	}
	for _, text := range texts {
		if !strings.Contains(a.body, text) {
			t.Errorf("%s answers %s\nwant in it %s", what, a.body, text)
		}
	}
	if status >= 400 && (a.get("detail") == "" || a.header.Get("Content-Type") != "application/json") {
		t.Errorf("%s is refused without JSON that says why: %s", what, a.body)
	}
}

// openREST is openViews with the REST API.
func openREST(t testing.TB, only string, config *configs.Config) (*proxy.Proxy, string) {
	t.Helper()
	config.REST = true
	return openViews(t, only, config)
}

// bounded is a view of all tools of which few can be callable at a time.
func bounded() view.Settings {
	v := everything("bounded", view.ExposureAuto)
	v.Gating = &view.Gating{MaxTools: 1, MaxTokens: 5000}
	return v
}

func TestRESTOverHTTP(t *testing.T) {
	s := shop(t, "shop", "hat", "coat")
	s.settings.Description = "Clothes"
	s.list("tools", append(goods("hat", "coat"), `{"name":"odd","description":"Answers oddly","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true},"unknown":12345678901234567890}`)...)
	const odd = `{"content":[{"type":"text","text":"a<b>&\u00e9"}],"structuredContent":{"z":12345678901234567890,"a":1.0},"unknown":[1e400],"_meta":{"a/b":2.50}}`
	s.on("tools/call odd", func(r *request) { r.result(odd) })
	s.on("tools/call coat", func(r *request) { r.fail(`{"code":-32099,"message":"sold out"}`) })
	narrow := view.Settings{Name: "narrow", Exposure: view.ExposureDirect, Tools: []view.UpstreamTools{{Name: "shop", Tools: []view.Override{{Tool: "odd", Name: "renamed"}}}}}
	_, url := openREST(t, "", configOf(t, []*script{s}, narrow, bounded()))

	t.Run("execute", func(t *testing.T) {
		for _, test := range []struct {
			query, body string
			status      int
			want        string
		}{
			{"", `{"tool_id":"shop_hat","arguments":{"size":3}}`, 200, `{"result":{"content":[{"type":"text","text":"hat"}],"structuredContent":{"args":{"size":3}}}}`},
			{"", `{"tool_id":"shop_hat","arguments":"{\"size\":3}"}`, 200, `"args":{"size":3}`},
			{"", `{"tool_id":"shop_odd"}`, 200, `{"result":` + odd + `}`},
			{"", `{"tool_id":"shop_hat","arguments":{}}`, 400, `size`},
			{"", `{"tool_id":"shop_cap"}`, 400, `"Unknown tool: shop_cap`},
			{"", `{"tool_id":"shop.hat","arguments":{"size":3}}`, 200, `"args":{"size":3}`},
			{"", `{"tool_id":"shop:hat","arguments":{"size":3}}`, 200, `"args":{"size":3}`},
			{"", `{"tool_id":"shop.cap","arguments":{"size":3}}`, 400, `"Unknown tool: shop.cap`},
			{"?view=narrow", `{"tool_id":"shop.odd"}`, 200, odd},
			{"?view=narrow", `{"tool_id":"shop.hat","arguments":{"size":3}}`, 400, `"Unknown tool: shop.hat`},
			{"?view=narrow", `{"tool_id":"shop:hat","arguments":{"size":3}}`, 400, `"Unknown tool: shop:hat`},
			{"", `{"tool_id":"retrieve_tools","arguments":{"query":"hat"}}`, 400, `"Unknown tool: retrieve_tools`},
			{"", `{"tool_id":"shop_coat","arguments":{"size":3}}`, 500, `{"detail":"Tool execution failed: `},
			{"", `{"tool_id":"shop_coat","arguments":{"size":3}}`, 500, `sold out`},
			{"", `{"arguments":{}}`, 400, `tool_id is missing`},
			{"", `{"tool_id":"shop_hat","arguments":[]}`, 400, `arguments must be an object`},
			{"", `{"tool_id":"shop_hat","args":{"size":3}}`, 400, `unknown field \"args\"; did you mean \"arguments\"?`},
			{"", `{"tool_id":`, 400, `one JSON object`},
			{"?view=narrow", `{"tool_id":"renamed"}`, 200, odd},
			{"?view=narrow", `{"tool_id":"shop_odd"}`, 400, `"Unknown tool: shop_odd`},
			{"?view=narrow", `{"tool_id":"shop_hat","arguments":{"size":3}}`, 400, `"Unknown tool: shop_hat`},
			{"?view=bounded", `{"tool_id":"shop_hat","arguments":{"size":3}}`, 400, `{"detail":"Tool shop_hat not provisioned. Use provision_tools first.`},
			{"?view=narow", `{"tool_id":"renamed"}`, 404, `did you mean narrow?`},
			{"?veiw=narrow", `{"tool_id":"renamed"}`, 400, `unknown query parameter \"veiw\"; did you mean \"view\"?`},
		} {
			got := curl(t, url, "POST", "/api/proxy/execute"+test.query, test.body)
			got.wants(t, test.query+" "+test.body, test.status, test.want)
		}
	})
	t.Run("discover and list", func(t *testing.T) {
		for _, got := range []answered{
			curl(t, url, "GET", "/api/tools/discover?query=sells+a+hat&limit=1", ""),
			curl(t, url, "POST", "/api/tools/discover", `{"query":"sells a hat","limit":1}`),
		} {
			got.wants(t, "discover", 200, `"tool_id":"shop_hat","server":"shop","name":"hat"`, `"tags":["shop"`, `"tokens":`, `"signature":`)
			if len(elements([]byte(got.get("tools")))) != 1 || strings.Contains(got.body, "provisioned") {
				t.Errorf("discover answers %s", got.body)
			}
		}
		curl(t, url, "GET", "/api/tools/discover?tags=read-only", "").wants(t, "by tag", 200, `"tool_id":"shop_odd"`)
		curl(t, url, "GET", "/api/tools/discover?query=hat&view=bounded", "").wants(t, "in a gated view", 200, `"provisioned":false`)
		curl(t, url, "GET", "/api/tools/discover?limit=0", "").wants(t, "limit 0", 400, "limit")
		curl(t, url, "GET", "/api/tools/discover?query=hat&view=narrow", "").wants(t, "in a view", 200, `{"tools":[`)
		if got := curl(t, url, "GET", "/api/tools?view=narrow", ""); got.get("total") != "1" || strings.Contains(got.body, "hat") {
			t.Errorf("the narrow view lists %s", got.body)
		}
		page := curl(t, url, "GET", "/api/tools?limit=1&offset=1&server=shop", "")
		page.wants(t, "a page", 200, `"total":3`, `"tool_id":"shop_hat"`)
		if got := curl(t, url, "HEAD", "/api/tools", ""); got.status != 200 || got.body != "" {
			t.Errorf("HEAD = %d %q", got.status, got.body)
		}
	})
	t.Run("one tool", func(t *testing.T) {
		got := curl(t, url, "GET", "/api/tools/shop_odd", "")
		got.wants(t, "shop_odd", 200)
		if want := strings.Replace(s.lists["tools"][2], `"odd"`, `"shop_odd"`, 1); got.get("definition") != want {
			t.Errorf("definition = %s\nwant %s", got.get("definition"), want)
		}
		curl(t, url, "GET", "/api/tools/shop_ood", "").wants(t, "a misspelt tool", 404, "nearest: shop_odd")
		curl(t, url, "GET", "/api/tools/shop_hat?view=narrow", "").wants(t, "a tool of another view", 404)
	})
	t.Run("provision", func(t *testing.T) {
		const execute, hat = "/api/proxy/execute?view=bounded", `{"tool_id":"shop_hat","arguments":{"size":3}}`
		got := curl(t, url, "POST", "/api/tools/provision?view=bounded", `{"tool_ids":["shop_hat","shop_coat"]}`)
		got.wants(t, "over budget", 409, `"needed":{"tools":2,`, `"used":{"tools":0,"tokens":0}`, `"budget":{"max_tools":1,"max_tokens":5000}`)
		curl(t, url, "POST", execute, hat).wants(t, "nothing was changed", 400, "not provisioned")
		curl(t, url, "POST", "/api/tools/provision?view=bounded", `{"tool_ids":["shop_hat"],"ttl_seconds":3600}`).
			wants(t, "provision", 200, `"provisioned":[{"tool_id":"shop_hat"`, `"expires_at":`, `"definition":{"name":"shop_hat"`, `"usage":{"tools":1,`)
		curl(t, url, "POST", execute, hat).wants(t, "provisioned", 200, `"args":{"size":3}`)
		curl(t, url, "POST", "/api/tools/provision?view=bounded", `{"query":"sells a coat","limit":2}`).wants(t, "by query", 200, `"did_not_fit":[{"tool_id":"shop_coat","tokens":`)
		curl(t, url, "DELETE", "/api/tools/provision/shop_hat?view=bounded", "").wants(t, "taken back", 200, `"unprovisioned":[{"tool_id":"shop_hat"`)
		curl(t, url, "DELETE", "/api/tools/provision/shop_hat?view=bounded", "").wants(t, "taken back twice", 404)
		curl(t, url, "POST", execute, hat).wants(t, "taken back", 400, "not provisioned")
		curl(t, url, "POST", "/api/tools/provision?view=bounded", `{"tool_ids":["shop_cap"]}`).wants(t, "forged", 400, "Unknown tool: shop_cap")
		curl(t, url, "POST", "/api/tools/provision", `{"tool_ids":["shop_hat"]}`).wants(t, "where nothing is gated", 409)
	})
	// Before it is connected anew: Watch lists it once more after that, beside.
	t.Run("reindex finds what a server has gained", func(t *testing.T) {
		s.list("tools", append(s.lists["tools"], goods("sock")...)...)
		curl(t, url, "POST", "/api/reindex", "").wants(t, "reindex", 200, `{"servers":[{"server":"shop","tools":4,"added":1,"removed":0,"changed":0}]}`)
		curl(t, url, "GET", "/api/tools/discover?query=sells+a+sock&limit=1", "").wants(t, "discover", 200, `"shop_sock"`)
		curl(t, url, "POST", "/api/proxy/execute", `{"tool_id":"shop_sock","arguments":{"size":3}}`).wants(t, "the new tool", 200, `"args":{"size":3}`)
		if got := curl(t, url, "GET", "/api/tools?view=narrow", ""); strings.Contains(got.body, "sock") {
			t.Errorf("the narrow view has it, too: %s", got.body)
		}
	})
	t.Run("servers", func(t *testing.T) {
		curl(t, url, "GET", "/api/servers", "").wants(t, "servers", 200, `{"servers":[{"name":"shop","description":"Clothes","state":"ready"`, `"era":"legacy"`, `"tools":4,"restarts":0`)
		before := len(s.got("initialize"))
		curl(t, url, "POST", "/api/servers/shop/reconnect", "").wants(t, "reconnect", 200, `{"server":{"name":"shop"`, `"state":"ready"`, `"restarts":`)
		if n := len(s.got("initialize")); n != before+1 {
			t.Errorf("the server was connected %d times more, want once", n-before)
		}
		curl(t, url, "POST", "/api/servers/shopp/reconnect", "").wants(t, "a misspelt server", 404, "nearest: shop")
		curl(t, url, "POST", "/api/proxy/execute", `{"tool_id":"shop_hat","arguments":{"size":3}}`).wants(t, "after the reconnect", 200)
	})
	t.Run("what there is not", func(t *testing.T) {
		curl(t, url, "GET", "/api/nothing", "").wants(t, "another path", 404, "/openapi.json")
		got := curl(t, url, "PUT", "/api/tools", `{}`)
		got.wants(t, "another method", 405, "GET, HEAD")
		if got.header.Get("Allow") != "GET, HEAD" {
			t.Errorf("Allow = %q", got.header.Get("Allow"))
		}
		curl(t, url, "POST", "/api/proxy/execute", `{"tool_id":"shop_odd"}`, "Content-Type: text/plain").wants(t, "a form of a web page", 415)
	})
}

// Paths of the REST API, one of each kind.
var restPaths = []struct{ method, path string }{
	{"GET", "/openapi.json"}, {"GET", "/api/openapi.json"}, {"GET", "/metrics"}, {"GET", "/api/tools"}, {"GET", "/api/tools/discover?query=hat"},
	{"GET", "/api/tools/shop_hat"}, {"GET", "/api/servers"}, {"GET", "/api/pins"}, {"POST", "/api/pins"}, {"POST", "/api/reindex"}, {"POST", "/api/proxy/execute"}, {"POST", "/api/tools/provision"},
	{"GET", "/api/tools/provision"},
	{"DELETE", "/api/tools/provision/shop_hat"}, {"POST", "/api/servers/shop/reconnect"}, {"GET", "/api/nothing"},
}

// Who is kept out of MCP is kept out of REST.
func TestRESTHasTheGuardOfMCP(t *testing.T) {
	s := shop(t, "shop", "hat")
	config := configOf(t, []*script{s})
	config.Origins = []string{"https://allowed.example"}
	_, url := openREST(t, "", config)
	for _, header := range []string{"Origin: https://evil.example", "Origin: null", "Host: evil.example", "Host: 127.0.0.1.evil.example"} {
		if got := curl(t, url, "POST", "/mcp", `{}`, header); got.status != http.StatusForbidden {
			t.Errorf("/mcp with %s: status %d", header, got.status)
		}
		for _, one := range restPaths {
			if got := curl(t, url, one.method, one.path, "", header); got.status != http.StatusForbidden || strings.Contains(got.body, "shop") ||
				got.get("detail") == "" || got.header.Get("Content-Type") != "application/json" || got.header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s %s with %s: status %d, want 403: %s", one.method, one.path, header, got.status, got.body)
			}
		}
	}
	for _, header := range []string{"Origin: https://allowed.example", "Origin: http://localhost:3000", "Host: localhost"} {
		if got := curl(t, url, "GET", "/api/tools", "", header); got.status != http.StatusOK {
			t.Errorf("with %s: status %d, want 200", header, got.status)
		}
	}
	if n := len(s.got("tools/list")); n != 1 {
		t.Errorf("the server was listed %d times, want once: what was refused was done", n)
	}
}

func TestRESTIsSwitchedOff(t *testing.T) {
	s := shop(t, "shop", "hat")
	config := configOf(t, []*script{s})
	p, url := openREST(t, "", config)
	for _, on := range []bool{false, true, false} {
		next := *config
		next.REST = on
		reload(t, p, &next)
		for _, one := range restPaths[:7] {
			if got := curl(t, url, one.method, one.path, ""); (got.status == http.StatusNotFound) == on {
				t.Errorf("rest_api %v: %s answers with status %d", on, one.path, got.status)
			}
		}
		if got := curl(t, url, "POST", "/api/proxy/execute", `{"tool_id":"shop_hat","arguments":{"size":1}}`); (got.status == http.StatusOK) != on {
			t.Errorf("rest_api %v: execute answers with status %d", on, got.status)
		}
		if got := curl(t, url, "GET", "/healthz", ""); got.status != http.StatusOK {
			t.Errorf("rest_api %v: /healthz answers with status %d", on, got.status)
		}
	}
	if n := len(s.got("tools/call")); n != 1 {
		t.Errorf("%d calls reached the server, want that of the one time", n)
	}
}

// What a principal has provisioned is the principal's, over REST and MCP alike; a
// session's is the session's.
func TestRESTKnowsWhoAsks(t *testing.T) {
	s := shop(t, "shop", "hat", "coat")
	config := configOf(t, []*script{s})
	config.PrincipalHeader, config.Gating = "X-User", &view.Gating{MaxTools: 5, MaxTokens: 5000}
	p, url := openREST(t, "", config)
	const hat = `{"tool_id":"shop_hat","arguments":{"size":3}}`
	execute := func(who string, status int, header ...string) {
		t.Helper()
		curl(t, url, "POST", "/api/proxy/execute", hat, header...).wants(t, who, status)
	}
	curl(t, url, "POST", "/api/tools/provision", `{"tool_ids":["shop_hat"]}`, "X-User: ada").wants(t, "ada provisions", 200)
	execute("ada", 200, "X-User: ada")
	execute("bob", 400, "X-User: bob")
	execute("nobody", 400)
	for _, k := range kinds {
		if k.stdio {
			continue
		}
		c := newClient(t, p, url, k, `{}`, reply)
		if got := c.call("tools/call", toolCall("shop_hat", `{"size":3}`)); !failed(got) {
			t.Errorf("%s of nobody: %s", k, got.raw)
		}
		k.user = "ada"
		c = newClient(t, p, url, k, `{}`, reply)
		if got := c.call("tools/call", toolCall("shop_hat", `{"size":3}`)); failed(got) {
			t.Errorf("%s of ada: %s", k, got.raw)
		}
		if !slices.Contains(c.listed(), "shop_hat") {
			t.Errorf("%s of ada is listed %v", k, c.listed())
		}
	}
	curl(t, url, "GET", "/api/tools/shop_hat", "", "X-User: ada").wants(t, "ada looks", 200, `"provisioned":true`)
	curl(t, url, "GET", "/api/tools/shop_hat", "", "X-User: bob").wants(t, "bob looks", 200, `"provisioned":false`)
	curl(t, url, "DELETE", "/api/tools/provision/shop_hat", "", "X-User: bob").wants(t, "bob takes back", 404)
	curl(t, url, "DELETE", "/api/tools/provision/shop_hat", "", "X-User: ada").wants(t, "ada takes back", 200)
	execute("ada, after", 400, "X-User: ada")

	c := newClient(t, p, url, kind{}, `{}`, reply)
	c.listed()
	mine := "Mcp-Session-Id: " + c.id
	curl(t, url, "POST", "/api/tools/provision", `{"tool_ids":["shop_hat"]}`, mine).wants(t, "the session provisions", 200)
	c.hears("notifications/tools/list_changed", nil)
	if !slices.Contains(c.listed(), "shop_hat") {
		t.Errorf("the session is listed %v", c.listed())
	}
	execute("the session", 200, mine)
	execute("another session", 400, "Mcp-Session-Id: "+newClient(t, p, url, kind{}, `{}`, reply).id)
	execute("no session", 400, "Mcp-Session-Id: mcp-session-00000000-0000-0000-0000-000000000000")
}

// Beside the one view that is served there is none.
func TestRESTOfAViewThatIsServedAlone(t *testing.T) {
	inner, outer := insider(t), outsider(t)
	_, url := openREST(t, "narrow", configOf(t, []*script{inner, outer}, narrowed("narrow", view.ExposureRetrieve)))
	before := len(outer.got("initialize")) + len(outer.got("tools/list"))
	for _, one := range []struct{ method, path string }{
		{"GET", "/api/tools"}, {"GET", "/api/tools?view=narrow"}, {"GET", "/api/servers"}, {"POST", "/api/reindex"}, {"GET", "/metrics"},
		{"GET", "/api/tools/discover?query=wipe+a+zebra"}, {"GET", "/api/tools/discover"},
	} {
		got := curl(t, url, one.method, one.path, "")
		got.wants(t, one.path, 200)
		if said := strings.ReplaceAll(got.body, `"unmentioned":["zebra"]`, ""); strings.Contains(said, outside) || strings.Contains(said, "outer") || strings.Contains(got.body, `view="default"`) {
			t.Errorf("%s names what is outside: %s", one.path, got.body)
		}
	}
	// Of a server that is not whole in the view only what the view has is told.
	curl(t, url, "GET", "/api/servers", "").wants(t, "servers", 200, `"name":"inner"`, `"tools":1,`)
	curl(t, url, "POST", "/api/reindex", "").wants(t, "reindex", 200, `{"servers":[{"server":"inner","tools":1}]}`)
	curl(t, url, "POST", "/api/servers/inner/reconnect", "").wants(t, "reconnect", 200, `"tools":1,`)
	for _, path := range []string{"/api/tools?view=default", "/api/servers?view=default"} {
		curl(t, url, "GET", path, "").wants(t, path, 404)
	}
	curl(t, url, "POST", "/api/servers/outer/reconnect", "").wants(t, "a server outside", 404)
	if n := len(outer.got("initialize")) + len(outer.got("tools/list")); n != before {
		t.Errorf("the server outside was connected or listed %d times", n-before)
	}
	for _, id := range outsideTools {
		quoted, _ := json.Marshal(id)
		got := curl(t, url, "POST", "/api/proxy/execute", `{"tool_id":`+string(quoted)+`}`)
		got.wants(t, id, 400, unknownID(id))
		if strings.Contains(strings.ReplaceAll(got.body, id, ""), outside) {
			t.Errorf("%s: %s", id, got.body)
		}
	}
}

// A server that is gone, one that hangs and one that dies in a call are told
// apart, and the others go on.
func TestRESTTellsFailuresApart(t *testing.T) {
	dead, dying, slow, good := shop(t, "dead", "hat"), shop(t, "dying", "hat"), shop(t, "slow", "hat"), shop(t, "good", "hat")
	fronts := map[*script]*httptest.Server{}
	for _, s := range []*script{dead, dying} {
		front := httptest.NewServer(s)
		t.Cleanup(front.Close)
		fronts[s], s.settings.URL = front, front.URL
	}
	slow.on("tools/call", func(r *request) { <-r.ended })
	dying.on("tools/call", func(*request) { panic(http.ErrAbortHandler) })
	config := configOf(t, []*script{dead, dying, slow, good})
	p, url := openREST(t, "", config)
	hurry(t, p, config, slow)
	fronts[dead].CloseClientConnections()
	fronts[dead].Close()
	call := func(id string) answered {
		return curl(t, url, "POST", "/api/proxy/execute", `{"tool_id":"`+id+`","arguments":{"size":1}}`)
	}
	call("dead_hat").wants(t, "a server that is gone", 502, `{"detail":"Server dead not connected: `)
	call("dying_hat").wants(t, "a server that dies in a call", 502, `{"detail":"Server dying not connected: `)
	call("slow_hat").wants(t, "a server that hangs", 504, `{"detail":"Tool execution failed: `, "slow")
	call("good_hat").wants(t, "a good server", 200)
	curl(t, url, "POST", "/api/servers/dead/reconnect", "").wants(t, "reconnect of the server that is gone", 502, "dead")
	reindexed := curl(t, url, "POST", "/api/reindex", "{}")
	reindexed.wants(t, "reindex", 200, `{"server":"dead","tools":1,"added":0,"removed":0,"changed":0,"error":"`, `{"server":"good","tools":1,"added":0,"removed":0,"changed":0}`)
	curl(t, url, "GET", "/api/servers", "").wants(t, "servers", 200, `"name":"dead"`, `"state":"failed"`, `"error":"`)
	curl(t, url, "GET", "/api/tools/dead_hat", "").wants(t, "what is known of the dead one", 200)
	for _, got := range []answered{call("dead_hat"), call("dying_hat"), call("slow_hat")} {
		if strings.Contains(got.body, ".go:") || strings.Contains(got.body, "goroutine") {
			t.Errorf("internals are told: %s", got.body)
		}
	}
}

func TestMetricsCountWhatClientsDid(t *testing.T) {
	s := shop(t, "shop", "hat", "coat")
	p, url := openREST(t, "", configOf(t, []*script{s}, everything("all", view.ExposureRetrieve)))
	metrics := func() map[string]string {
		got := curl(t, url, "GET", "/metrics", "")
		if got.status != 200 || !strings.HasPrefix(got.header.Get("Content-Type"), "text/plain; version=0.0.4") {
			t.Errorf("/metrics = %d %s", got.status, got.header.Get("Content-Type"))
		}
		values := map[string]string{}
		for line := range strings.Lines(got.body) {
			if at := strings.LastIndexByte(line, ' '); at > 0 && line[0] != '#' {
				values[line[:at]] = strings.TrimSpace(line[at+1:])
			}
		}
		return values
	}
	for key, want := range map[string]string{
		`toolfinch_tools{view="default"}`: "2", `toolfinch_tools{view="all"}`: "2",
		`toolfinch_servers{state="ready"}`: "1", `toolfinch_servers{state="failed"}`: "0",
		`toolfinch_sessions_total{view="all"}`: "0", `toolfinch_retrievals_total{view="all"}`: "0",
	} {
		if got := metrics()[key]; got != want {
			t.Errorf("%s = %q, want %s", key, got, want)
		}
	}
	c := viewClient(t, p, url, "all", false)
	c.listed()
	for range 2 {
		c.call("tools/call", toolCall("retrieve_tools", `{"query":"hat"}`))
	}
	curl(t, url, "GET", "/api/tools/discover?view=all&query=hat", "").wants(t, "discover", 200)
	eventually(t, func() bool {
		got := metrics()
		return got[`toolfinch_sessions_total{view="all"}`] == "1" && got[`toolfinch_retrievals_total{view="all"}`] == "3" &&
			got[`toolfinch_sessions_total{view="default"}`] == "0" && got[`toolfinch_tokens_total{kind="all_listed",view="all"}`] > "0" &&
			got[`toolfinch_tokens_total{kind="answers",view="all"}`] > "0"
	})
}

// Each request that does something is logged once, with who made it and how it ended, without
// arguments.
func TestUsesOfRESTAreLogged(t *testing.T) {
	s := shop(t, "shop", "hat")
	config := configOf(t, []*script{s})
	config.REST, config.PrincipalHeader = true, "X-User"
	_, url, log := openPortal(t, config, 1)
	curl(t, url, "POST", "/api/proxy/execute", `{"tool_id":"shop_hat","arguments":{"size":1,"colour":"hush"}}`, "X-User: ada").wants(t, "execute", 200)
	curl(t, url, "GET", "/api/tools/discover?query=hush", "", "X-User: ada").wants(t, "discover", 200)
	for message, want := range map[string]map[string]string{
		"tool called":    {"server": "shop", "tool": "shop.hat", "name": "shop_hat", "principal": "ada", "outcome": "success", "transport": "rest"},
		"tools searched": {"view": "default", "principal": "ada", "outcome": "success"},
		"rest":           nil,
	} {
		lines := log.lines(message)
		if len(lines) != min(1, len(want)) || strings.Contains(strings.Join(lines, ""), "hush") {
			t.Fatalf("%s: logged are %s", message, lines)
		}
		for key, want := range want {
			if got := partText([]byte(lines[0]), key); got != want {
				t.Errorf("%s: %s = %q, want %q", message, key, got, want)
			}
		}
	}
}

// A client of the REST API has no read_output: it gets results whole, also where
// MCP clients of the same user get the beginning.
func TestRESTAnswersWithWholeResults(t *testing.T) {
	s := shop(t, "shop", "hat")
	large := `{"content":[{"type":"text","text":"` + strings.Repeat("hat ", 10_000) + `"}]}`
	s.on("tools/call", func(r *request) { r.result(large) })
	kept := everything("kept", view.ExposureDirect)
	kept.Tools = []view.UpstreamTools{{Name: "shop", Output: &view.OutputCache{MinSize: 1000, Preview: 100, TTL: time.Hour}}}
	config := configOf(t, []*script{s}, kept)
	config.PrincipalHeader = "X-User"
	p, url := openREST(t, "", config)
	session := viewClient(t, p, url, "kept", false).id
	for _, header := range []string{"X-Nobody: x", "X-User: ada", "Mcp-Session-Id: " + session} {
		got := curl(t, url, "POST", "/api/proxy/execute?view=kept", `{"tool_id":"shop_hat","arguments":{"size":1}}`, header)
		if got.status != http.StatusOK || got.get("result") != large {
			t.Errorf("with %s: %d and %d bytes, want %d: %.400s", header, got.status, len(got.body), len(large), got.body)
		}
	}
}

// Clients that ask for all servers to be listed while they are being listed get the
// same answer.
func TestReindexingAtTheSameTimeIsDoneOnce(t *testing.T) {
	s := shop(t, "shop", "hat")
	_, url := openREST(t, "", configOf(t, []*script{s}))
	before := len(s.got("tools/list"))
	listing, release := make(chan struct{}, 100), make(chan struct{})
	s.on("tools/list", func(r *request) {
		listing <- struct{}{}
		<-release
		s.usual(r)
	})
	const clients = 8
	var sent, answered sync.WaitGroup
	for range clients {
		sent.Add(1)
		answered.Go(func() {
			trace := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { sent.Done() }}
			request, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodPost, url+"/api/reindex", nil)
			if err != nil {
				t.Error(err)
				return
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Error(err)
				return
			}
			defer response.Body.Close()
			if body, _ := io.ReadAll(response.Body); !strings.Contains(string(body), `{"server":"shop","tools":1,"added":0`) {
				t.Errorf("%d %s", response.StatusCode, body)
			}
		})
	}
	<-listing
	sent.Wait()
	close(release)
	answered.Wait()
	if n := len(s.got("tools/list")) - before; n >= clients {
		t.Errorf("%d clients had the server listed %d times", clients, n)
	}
}
