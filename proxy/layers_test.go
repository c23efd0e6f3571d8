package proxy_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"toolfinch/proxy"
	"toolfinch/trust/audit"
	"toolfinch/trust/inbound"
	"toolfinch/trust/leaks"
	"toolfinch/trust/rate"
	"toolfinch/view"
	hooks "toolfinch/view/script"
)

// The layers of a call, outermost first, as each kind of tool has them.
func TestTheLayersOfACall(t *testing.T) {
	up := newScript(t, "up", false, false)
	up.list("tools", `{"name":"put","inputSchema":{"type":"object","properties":{"path":{},"mode":{}}}}`)
	renamed := func(from, to string) []view.UpstreamTools {
		return []view.UpstreamTools{{Name: "up", Tools: []view.Override{{Tool: "put", Parameters: []view.Parameter{{Name: from, Rename: to}}}}}}
	}
	hooked := everything("hooked", view.ExposureDirect)
	hooked.Tools, hooked.Hooks.Pre = renamed("file", "document"), []view.PreCall{func(context.Context, *hooks.Info, json.RawMessage) (json.RawMessage, error) { return nil, nil }}
	hooked.Tools[0].Output, hooked.Secrets = &view.OutputCache{MinSize: 100}, leaks.Redact
	hooked.Composites = []view.Composite{{Name: "both", Steps: []view.Step{{Key: "a", Tool: "up.put", Args: []byte(`{}`)}}}}

	plain := configOf(t, []*script{up}, everything("plain", view.ExposureDirect), gated("gated", view.ExposureRetrieve, ample))
	full := configOf(t, []*script{up}, everything("plain", view.ExposureDirect), hooked, gated("gated", view.ExposureRetrieve, ample))
	full.Tools = renamed("path", "file")
	full.Policies = policies(t, `permit (principal, action, resource);`)
	full.RateLimits = []rate.Rule{{Name: "rate_limits.0", Tool: "up.*", PerMinute: 100}}
	full.Auth = inbound.Settings{Mode: inbound.Proof, Keys: true, Scopes: inbound.Scopes{{Name: "write", Allows: inbound.Write}}}

	bare, _ := openViews(t, "", plain)
	decided, _, _ := audited(t, full, func(*audit.Settings) {})
	for _, test := range []struct {
		of         *proxy.Proxy
		view, tool string
		want       string
	}{
		{bare, "plain", "up_put", "failures, observed"},
		{bare, "gated", "up_put", "failures, observed, gate"},
		{decided, "plain", "up_put", "failures, observed, limits, scopes, server's arguments, policies, audit"},
		{decided, "gated", "up_put", "failures, observed, limits, scopes, gate, server's arguments, policies, audit"},
		{decided, "hooked", "up_put", "failures, observed, limits, scopes, output, view's arguments, secrets, hooks, server's arguments, policies, audit"},
		{decided, "hooked", "both", "failures, observed, limits, scopes, secrets, hooks, policies"},
	} {
		v, err := test.of.View(test.view)
		if err != nil {
			t.Fatal(err)
		}
		found, err := v.Find(test.tool)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, layer := range found.Layers() {
			names = append(names, layer.String())
		}
		if got := strings.Join(names, ", "); got != test.want {
			t.Errorf("%s in %s:\ngot  %s\nwant %s", test.tool, test.view, got, test.want)
		}
	}
}

// A policy about an argument judges what the server gets, on every surface: under the name that a view or
// a server's settings gave it, after a hook has set it, and past a decoy under its own name.
func TestADecoyPassesNoPolicy(t *testing.T) {
	up := newScript(t, "shop", false, false)
	up.list("tools", `{"name":"read","inputSchema":{"type":"object","properties":{"path":{},"mode":{}}}}`)
	var mu sync.Mutex
	var heard []string
	up.on("tools/call", func(r *request) {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, partText(part(r.Params, "arguments"), "path"))
		r.result(`{"content":[{"type":"text","text":"read"}]}`)
	})
	renamed := []view.Override{{Tool: "read", Parameters: []view.Parameter{{Name: "path", Rename: "file"}}}}
	set := func(_ context.Context, _ *hooks.Info, arguments json.RawMessage) (json.RawMessage, error) {
		if partText(arguments, "mode") == "secret" {
			return json.RawMessage(`{"path":"/etc/shadow"}`), nil
		}
		return nil, nil
	}
	for where, gated := range map[string]bool{"by the view": false, "by a gated view": true, "under the server": false} {
		t.Run(where, func(t *testing.T) {
			v := everything("all", view.ExposureRetrieve)
			v.ProxyTool, v.RunScript = "proxy", &view.ScriptLimits{}
			var underServer []view.UpstreamTools
			tools := []view.UpstreamTools{{Name: "shop", Tools: renamed}}
			if where == "under the server" {
				underServer = tools
			} else {
				v.Tools, v.Hooks.Pre = tools, []view.PreCall{set}
			}
			if gated {
				v.Gating = &ample
			}
			config := configOf(t, []*script{up}, v)
			config.Tools = underServer
			config.Policies = policies(t, `permit (principal, action, resource); forbid (principal, action == Action::"call", resource) when { context.args has path && context.args.path like "/etc/*" };`)
			p, url := openREST(t, "", config)
			c := viewClient(t, p, url, "all", false)
			ways := append(c.ways("call_tool"), c.byScript()...)
			if gated {
				c.ask("tools/call", toolCall("provision_tools", `{"tool_ids":["shop.read"]}`))
			} else { // execute_tool is of gated views; over REST nobody has provisioned anything
				ways = append(slices.DeleteFunc(ways, func(w way) bool { return strings.HasPrefix(w.name, "execute_tool") }), restDenied(url))
			}
			for _, way := range ways {
				for arguments, want := range map[string]bool{
					`{"file":"/srv/a"}`:                         true,
					`{"file":"/etc/passwd"}`:                    false,
					`{"file":"/etc/passwd","path":"/srv/a"}`:    false,
					`{"path":"/srv/a","file":"/etc/passwd"}`:    false,
					`{"path":"/etc/passwd"}`:                    false,
					`{"PATH":"/etc/passwd","file":"/srv/a"}`:    false,
					`{"file":"/srv/a","file":"/etc/passwd"}`:    false,
					`{"file":"/srv/a","mode":"secret"}`:         where == "under the server",
					`{"\u0066ile":"\u002fetc/passwd","mode":1}`: false,
				} {
					mu.Lock()
					before := len(heard)
					mu.Unlock()
					answer, failed := way.call(t, "shop_read", arguments)
					mu.Lock()
					got := heard[before:]
					mu.Unlock()
					if strings.Contains(strings.Join(got, " "), "/etc") || len(got) > 0 != want || failed && want {
						t.Errorf("%s with %s: the server got %q, the client %s", way.name, arguments, got, answer)
					}
				}
			}
		})
	}
}

// restDenied is the way through the REST API, whose answers may be any error of the client's.
func restDenied(url string) way {
	return way{"REST", func(t testing.TB, tool, arguments string) (string, bool) {
		status, answer := rest(t, http.MethodPost, url+"/api/proxy/execute?view=all", `{"tool_id":`+quote(tool)+`,"arguments":`+arguments+`}`)
		return answer, status != http.StatusOK
	}, true}
}
