package proxy_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"toolfinch/internal/identity"
	"toolfinch/proxy"
	"toolfinch/proxy/web"
	"toolfinch/view"
)

// What is served tells everybody of its servers, sessions and calls what is theirs: the
// servers that policies allow, the sessions and calls of the principal, those of the view.
// The owner is told everything.
func TestAStatusIsTheCallers(t *testing.T) {
	open, secret := newScript(t, "open", false, false), newScript(t, "secret", false, false)
	for _, s := range []*script{open, secret} {
		s.list("tools", `{"name":"a","inputSchema":{"type":"object"}}`)
		s.on("tools/call", func(r *request) { r.fail(`{"code":-32000,"message":"not today"}`) })
	}
	config := configOf(t, []*script{open, secret}, everything("all", view.ExposureDirect), view.Settings{Name: "small", Exposure: view.ExposureDirect, Tools: []view.UpstreamTools{{Name: "open", Tools: []view.Override{{Tool: "a"}}}}})
	config.PrincipalHeader = "X-User"
	config.Policies = policies(t, `permit (principal, action, resource); forbid (principal, action, resource in Server::"secret") unless { principal == User::"alice" };`)
	p, url := openREST(t, "", config)
	for user, views := range map[string][]string{"alice": {"all", "small"}, "bob": {"all"}} {
		for _, name := range views {
			hello := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"` + user + `","version":"1"}}}`
			curl(t, url, "POST", "/mcp/"+name, hello, "X-User: "+user, "Accept: application/json, text/event-stream").wants(t, "initialize", 200)
		}
	}
	for user, id := range map[string]string{"alice": "secret.a", "bob": "open.a"} {
		curl(t, url, "POST", "/api/proxy/execute?view=all", `{"tool_id":"`+id+`"}`, "X-User: "+user)
	}
	curl(t, url, "POST", "/api/proxy/execute?view=small", `{"tool_id":"open.a"}`, "X-User: alice")
	// What policies hide is as what is not there.
	session := curl(t, url, "POST", "/mcp/all", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`, "X-User: carol", "Accept: application/json, text/event-stream").header.Get("Mcp-Session-Id")
	for _, name := range []string{"secret_a", "secret_b"} {
		curl(t, url, "POST", "/mcp/all", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"`+name+`"}}`, "X-User: carol", "Accept: application/json, text/event-stream", "Mcp-Session-Id: "+session)
	}

	modern := viewClient(t, p, url, "all", true)
	for range 2 {
		modern.ask("tools/call", toolCall("open_a", `{}`))
	}
	for _, s := range p.Status(t.Context()).Sessions.Shown[:1] { // the last that came
		if s.Era != "2026-07-28" || s.View != "all" || s.Transport != identity.TransportHTTP || s.Since.IsZero() {
			t.Errorf("a client without a session is %+v", s)
		}
	}

	for _, test := range []struct{ user, view, want string }{
		{"alice", "all", "servers open secret; clients alice 1; errors secret.a"},
		{"alice", "small", "servers open; clients alice 1; errors open.a"},
		{"alice", "", "servers open secret; clients; errors"}, // what is at the root is another view
		{"bob", "all", "servers open; clients bob 1; errors open.a"},
		{"carol", "all", "servers open; clients x 1; errors denied secret_b denied secret_a"},
		{"bob", "small", "servers open; clients; errors"},
		{"", "all", "servers open; clients raw 1; errors open.a open.a"}, // nobody's are everybody's who is nobody
	} {
		path := "/api/status"
		if test.view != "" {
			path += "?view=" + test.view
		}
		got := curl(t, url, "GET", path, "", "X-User: "+test.user)
		var status web.Status
		if err := json.Unmarshal([]byte(got.body), &status); err != nil {
			t.Fatalf("%v in %s", err, got.body)
		}
		if told := toldOf(status); told != test.want {
			t.Errorf("%q of the view %q is told %s\nwant %s", test.user, test.view, told, test.want)
		}
		// Counts of all are for those who have no name to be told apart by.
		failed := 0
		for _, last := range status.Calls.Last {
			failed = last.Failed
		}
		if (test.user == "") != (failed == 7) || test.user != "" && len(status.Calls.Last) > 0 {
			t.Errorf("%q is told that %d calls failed, of everybody", test.user, failed)
		}
		for _, one := range status.Errors {
			if (one.Outcome == identity.Failed) != (one.Said == "not today") {
				t.Errorf("%q is told of %s that its server said %q", test.user, one.Name, one.Said)
			}
		}
		if strings.Contains(got.body, `"stderr"`) || status.Search.Indexed != status.Views[0].Tools || status.PID != 0 || status.Configuration != "" || strings.Contains(got.body, config.DataDir) {
			t.Errorf("%q is told %s", test.user, got.body)
		}
	}
	if all := p.Status(t.Context()); all.Sessions.All != 5 || len(all.Servers) != 2 || len(all.Errors) != 7 || all.Errors[3].Tool != "secret.a" || all.View != "" {
		t.Errorf("the owner is told %+v", all)
	}

	only := opened(t, changing(configOf(t, []*script{open}, everything("all", view.ExposureDirect))), proxy.WithView("all"))
	defer only.Close()
	if views := only.Status(t.Context()).Views; fmt.Sprint(views) != "[{all 0}]" {
		t.Errorf("beside the one view that is served there are %v", views)
	}
}

// toldOf says in short whose a status is.
func toldOf(s web.Status) string {
	told := "servers"
	for _, one := range s.Servers {
		told += " " + one.Name
	}
	told += "; clients"
	for _, one := range s.Sessions.Shown {
		told += " " + one.Client
	}
	told += "; errors"
	for _, one := range s.Errors {
		if one.Outcome != identity.Failed {
			told += " " + one.Outcome
		}
		told += " " + cmp.Or(one.Tool, one.Server+one.Name)
	}
	return told
}
