package proxy_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"toolfinch/internal/identity"
	"toolfinch/internal/must"
	"toolfinch/retrieve"
	"toolfinch/trust/policy"
	"toolfinch/trust/rate"
	"toolfinch/view"
)

// policies compiles a text of policies.
func policies(t testing.TB, text string) *policy.Policies {
	t.Helper()
	compiled, wrong := policy.Compile([]policy.Text{{Cedar: text, File: "team.cedar", Line: 1, Column: 1}})
	for _, err := range wrong {
		t.Fatal(err)
	}
	return compiled
}

// A reload with other policies is told to the clients whose lists it changes, and to no others.
func TestAReloadOfPoliciesIsTold(t *testing.T) {
	up := newScript(t, "up", false, false)
	up.list("tools", `{"name":"a","inputSchema":{"type":"object"}}`, `{"name":"b","inputSchema":{"type":"object"}}`)
	config := configOf(t, []*script{up}, everything("all", view.ExposureDirect))
	p, url := openViews(t, "", config)
	lists := func(c *rawClient) bool { return strings.Contains(c.ask("tools/list", `{}`).raw, `"up_b"`) }
	alice := viewClient(t, p, url, "all", false)
	if !lists(alice) {
		t.Fatal("without policies b is not listed")
	}
	reload := func(text string) {
		next := *config
		next.Policies = policies(t, text)
		must.Do(t, p.Reload(t.Context(), &next))
	}
	reload(`permit (principal, action, resource); forbid (principal, action, resource == Tool::"up.b");`)
	eventually(t, func() bool { return len(alice.got("notifications/tools/list_changed")) == 1 })
	if lists(alice) {
		t.Error("b is listed though a policy forbids it")
	}
	reload(`permit (principal, action, resource) when { resource.name == "a" };`) // to the same effect
	reload(`permit (principal, action, resource);`)
	eventually(t, func() bool { return len(alice.got("notifications/tools/list_changed")) >= 2 })
	if got := len(alice.got("notifications/tools/list_changed")); got != 2 || !lists(alice) {
		t.Errorf("%d list_changed, want 2: one for each change of the list", got)
	}
}

// A call over the limit says how long to wait, over REST with a status and a header; a
// call that was refused does not reach the server.
func TestARateLimitIsTold(t *testing.T) {
	up := newScript(t, "up", false, false)
	up.list("tools", `{"name":"a","inputSchema":{"type":"object"}}`)
	up.on("tools/call", func(r *request) { r.result(`{"content":[]}`) })
	config := configOf(t, []*script{up}, everything("all", view.ExposureDirect))
	config.RateLimits = []rate.Rule{{Name: "rate_limits.0", Tool: "up.*", Principals: true, PerMinute: 1}}
	p, url := openREST(t, "", config)
	c := viewClient(t, p, url, "all", true)
	if got := c.ask("tools/call", toolCall("up_a", `{}`)); failed(got) {
		t.Fatalf("the first call: %s", got.raw)
	}
	if got := c.ask("tools/call", toolCall("up_a", `{}`)); !failed(got) || !strings.Contains(got.raw, "rate limit: 1 calls a minute of up.* for each principal; wait ") {
		t.Errorf("the second call: %s", got.raw)
	}
	got := curl(t, url, "POST", "/api/proxy/execute", `{"tool_id":"up_a"}`)
	if got.wants(t, "REST", 429, "rate limit"); got.header.Get("Retry-After") == "" {
		t.Error("REST does not say when to come again")
	}
	if calls := up.got("tools/call"); len(calls) != 1 {
		t.Errorf("%d calls reached the server, want 1", len(calls))
	}
	if metrics := curl(t, url, "GET", "/metrics", ""); !strings.Contains(metrics.body, `toolfinch_limit_hits_total{limit="rate_limits.0"} 2`) {
		t.Error("the limit is not counted")
	}
}

// Where the policy depends on arguments, a tool is listed, and a call is judged by its own.
func TestArgumentsAreJudgedWithTheCall(t *testing.T) {
	up := newScript(t, "up", false, false)
	up.list("tools", `{"name":"read","inputSchema":{"type":"object"}}`)
	up.on("tools/call", func(r *request) { r.result(`{"content":[]}`) })
	config := configOf(t, []*script{up}, everything("all", view.ExposureDirect))
	config.Policies = policies(t, `permit (principal, action, resource); forbid (principal, action == Action::"call", resource) when { context.args has path && context.args.path like "/etc/*" };`)
	p, url := openREST(t, "", config)
	c := viewClient(t, p, url, "all", false)
	for arguments, want := range map[string]bool{`{"path":"/srv/a"}`: true, `{}`: true, `{"path":"/etc/passwd"}`: false, `{"path":["/etc/passwd"]}`: false, `{"path":"\u002fetc/passwd"}`: false, `{"path":"/srv","path":"/etc/passwd"}`: false} {
		got := c.ask("tools/call", toolCall("up_read", arguments))
		if failed(got) == want || !want && !strings.Contains(got.raw, "up_read is not allowed with these arguments") {
			t.Errorf("%s: %s", arguments, got.raw)
		}
	}
	curl(t, url, "POST", "/api/proxy/execute", `{"tool_id":"up.read","arguments":{"path":"/etc/passwd"}}`).wants(t, "REST", 403, "not allowed")
}

// TestPartsAreMadeWhileServersChange: parties come, whose parts of the view are made for
// their requests, while a server lists other tools.
func TestPartsAreMadeWhileServersChange(t *testing.T) {
	up := newScript(t, "up", false, false)
	config := configOf(t, []*script{up}, everything(view.Default, view.ExposureDirect))
	config.Policies = policies(t, `permit (principal, action, resource) when { context.client.name != "nobody" };`)
	p, url := openViews(t, "", config)
	stop := make(chan struct{})
	var coming sync.WaitGroup
	coming.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"client %d","version":"1"}}}`, n)
			request, err := http.NewRequest(http.MethodPost, url+"/mcp", strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			request.Header.Set("Content-Type", "application/json")
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Error(err)
				return
			}
			response.Body.Close()
		}
	})
	var defs []string
	for n := range 4 {
		defs = append(defs, fmt.Sprintf(`{"name":"t%d","inputSchema":{"type":"object"}}`, n))
		up.changes(t, p, defs...)
	}
	close(stop)
	coming.Wait()
}

// A client is named as it likes: three hundred names cost the catalogs that the policy makes of them, which are
// two, and each name is listed what the policy leaves it.
func TestNamesOfClientsMakeNoCatalogs(t *testing.T) {
	up := newScript(t, "up", false, false)
	up.list("tools", `{"name":"a","inputSchema":{"type":"object"}}`, `{"name":"b","inputSchema":{"type":"object"}}`)
	config := configOf(t, []*script{up}, everything(view.Default, view.ExposureDirect))
	config.Policies = policies(t, `permit (principal, action, resource); forbid (principal, action, resource == Tool::"up.b") when { context.client.name like "agent 7*" };`)
	p, url := openViews(t, "", config)
	catalogs := map[*retrieve.Catalog]bool{}
	for n := range 300 {
		name := fmt.Sprint("agent ", n)
		catalogs[p.Views()[0].As(identity.Party{Client: name}).Catalog] = true
		got := newClientAt(t, p, url+"/mcp", kind{name: name}, `{}`, reply).ask("tools/list", `{}`)
		if lists := strings.Contains(got.raw, `"up_b"`); failed(got) || lists == strings.HasPrefix(name, "agent 7") {
			t.Errorf("%s: %s", name, got.raw)
		}
	}
	if len(catalogs) != 2 {
		t.Errorf("300 names of clients have made %d catalogs, want 2", len(catalogs))
	}
}

// What was provisioned before a policy hid it is neither told nor counted: it can be asked
// for by nobody, so it must not be in the way of other tools.
func TestAToolThatAPolicyHidesTakesNothingOfTheBudget(t *testing.T) {
	config := configOf(t, []*script{wares(t)}, gated("gated", view.ExposureRetrieve, view.Gating{MaxTools: 2}))
	p, url := openViews(t, "", config)
	c := viewClient(t, p, url, "gated", false)
	c.provisions(t, "shop_look", "shop_put")
	next := *config
	next.Policies = policies(t, `permit (principal, action, resource); forbid (principal, action, resource == Tool::"shop.put");`)
	reload(t, p, &next)
	if got := c.does(t, "list_provisioned", `{}`); number(t, got, "usage", "tools") != 1 {
		t.Errorf("list_provisioned = %s, want one tool", got)
	}
	if got := c.provisions(t, "shop_burn"); number(t, got, "usage", "tools") != 2 {
		t.Errorf("provision_tools = %s, want two tools", got)
	}
}
