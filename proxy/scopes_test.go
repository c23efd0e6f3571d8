package proxy_test

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"toolfinch/configs"
	"toolfinch/internal/identity"
	"toolfinch/internal/must"
	"toolfinch/store"
	"toolfinch/trust/inbound"
	"toolfinch/view"
)

// keysOf makes API keys with the scope of their name, before the proxy starts.
func keysOf(t *testing.T, config *configs.Config, names ...string) map[string]string {
	t.Helper()
	db := must.Get(store.Open(t.Context(), config.Places().Store, slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(func() { _ = db.Close() })
	keys := map[string]string{}
	for _, name := range names {
		text, hash := inbound.NewKey()
		must.Do(t, db.Keys().Add(t.Context(), identity.Key{Name: name, ID: "key|" + name, Hash: hash, Scopes: []string{name}, Created: time.Now()}))
		keys[name] = text
	}
	return keys
}

// What the tool that is called in the end needs decides on every surface, and nothing
// reaches the server before. Where the whole answer is that a scope is missing, clients of
// either era are led to log in for it.
func TestScopesHoldOnEverySurface(t *testing.T) {
	t.Parallel()
	up := wares(t)
	v := everything(view.Default, view.ExposureRetrieve)
	v.RunScript, v.ProxyTool = &view.ScriptLimits{}, "proxy"
	config := configOf(t, []*script{up}, v)
	config.REST = true
	config.Auth = inbound.Settings{Mode: inbound.Proof, Keys: true, Scopes: inbound.Scopes{{Name: "read", Allows: inbound.Read}, {Name: "write", Allows: inbound.Write}, {Name: "all", Allows: inbound.Destructive}}}
	keys := keysOf(t, config, "read", "write", "all", "none")
	_, url := openViews(t, "", config)
	post := func(path, key, body string, header ...string) (status int, answer, challenge string) {
		t.Helper()
		request, err := http.NewRequest(http.MethodPost, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i+1 < len(header); i += 2 {
			request.Header.Set(header[i], header[i+1])
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Accept", "application/json, text/event-stream")
		request.Header.Set("Authorization", "Bearer "+keys[key])
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		all, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(all), response.Header.Get("WWW-Authenticate")
	}
	call := func(modern bool, key, name, arguments string) (int, string, string) {
		t.Helper()
		if modern {
			params := `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"}},"name":"` + name + `","arguments":` + arguments + `}`
			return post("/mcp", key, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+params+`}`, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", name)
		}
		request, _ := http.NewRequest(http.MethodPost, url+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`))
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Accept", "application/json, text/event-stream")
		request.Header.Set("Authorization", "Bearer "+keys[key])
		response := must.Get(http.DefaultClient.Do(request))(t)
		response.Body.Close()
		return post("/mcp", key, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+toolCall(name, arguments)+`}`, "Mcp-Session-Id", response.Header.Get("Mcp-Session-Id"))
	}
	surfaces := []struct {
		name  string
		whole bool // the answer is that of the tool alone
		call  func(modern bool, key, tool string) (status int, answer, challenge string)
	}{
		{"direct", true, func(modern bool, key, tool string) (int, string, string) {
			return call(modern, key, tool, `{"size":1}`)
		}},
		{"call_tool", true, func(modern bool, key, tool string) (int, string, string) {
			return call(modern, key, "call_tool", `{"name":"`+tool+`","arguments":{"size":1}}`)
		}},
		{"call_tool, several", false, func(modern bool, key, tool string) (int, string, string) {
			return call(modern, key, "call_tool", `{"calls":[{"name":"`+tool+`","arguments":{"size":1}}]}`)
		}},
		{"proxy, batch", false, func(modern bool, key, tool string) (int, string, string) {
			return call(modern, key, "proxy", `{"action":"batch","operations":[{"action":"call","type":"tool","path":"`+tool+`","args":{"size":1}}]}`)
		}},
		{"proxy", true, func(modern bool, key, tool string) (int, string, string) {
			return call(modern, key, "proxy", `{"action":"call","type":"tool","path":"`+tool+`","args":{"size":1}}`)
		}},
		{"run_script", false, func(modern bool, key, tool string) (int, string, string) {
			return call(modern, key, "run_script", `{"script":"result = call_tool('`+tool+`', {'size': 1})"}`)
		}},
		{"REST", true, func(_ bool, key, tool string) (int, string, string) {
			return post("/api/proxy/execute", key, `{"tool_id":"`+tool+`","arguments":{"size":1}}`)
		}},
	}
	needs := map[string]string{"shop_look": "read", "shop_burn": "write"}
	rank := map[string]int{"read": 1, "write": 2, "all": 3}
	for _, modern := range []bool{false, true} {
		for _, s := range surfaces {
			if modern && (s.name == "run_script" || s.name == "REST") {
				continue // which do not know the era
			}
			for tool, needed := range needs {
				for _, key := range []string{"read", "write", "all"} {
					before := len(up.got("tools/call"))
					status, answer, challenge := s.call(modern, key, tool)
					reached := len(up.got("tools/call")) - before
					if rank[key] >= rank[needed] {
						if status != 200 || reached != 1 {
							t.Errorf("modern %v, %s of %s with %s: %d %s, %d calls reached the server", modern, s.name, tool, key, status, answer, reached)
						}
						continue
					}
					want := 200
					if s.whole {
						want = 403
					}
					if reached != 0 || status != want || !strings.Contains(strings.ReplaceAll(answer, `\`, ""), `calling `+tool+` needs the scope "`+needed+`"`) {
						t.Errorf("modern %v, %s of %s with %s: %d %s, %d calls reached the server", modern, s.name, tool, key, status, answer, reached)
					}
					if s.whole && (!strings.Contains(challenge, `error="insufficient_scope"`) || !strings.Contains(challenge, `scope="read write"`)) {
						t.Errorf("modern %v, %s: the challenge is %s", modern, s.name, challenge)
					}
				}
			}
		}
	}
	for _, path := range []string{"/api/reindex", "/api/servers/shop/reconnect"} {
		for key, want := range map[string]int{"read": 403, "write": 200} {
			if status, answer, _ := post(path, key, "{}"); status != want {
				t.Errorf("%s with %s: %d %s", path, key, status, answer)
			}
		}
	}
	if status, answer, challenge := post("/mcp", "none", `{"jsonrpc":"2.0","id":1,"method":"initialize"}`); status != 403 || !strings.Contains(challenge, `scope="read"`) {
		t.Errorf("without a scope that means something: %d %s %s", status, answer, challenge)
	}
}

// Kept results and tasks of one API key are unknown to another, to the byte, and no
// server hears of it. Tasks are of the modern era alone.
func TestWhatAKeyBeganIsNoOtherKeys(t *testing.T) {
	t.Parallel()
	const tasks = `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	up := newScript(t, "up", true, false)
	up.capabilities = `{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	up.list("tools", `{"name":"dump","inputSchema":{"type":"object"}}`, `{"name":"open","inputSchema":{"type":"object"}}`)
	up.on("tools/call", func(r *request) {
		if r.about() == "open" {
			r.result(`{"resultType":"task","taskId":"1","status":"working"}`)
			return
		}
		r.result(`{"resultType":"complete","content":[{"type":"text","text":"` + strings.Repeat("a line\\n", 5000) + `"}]}`)
	})
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		up.on(method, func(r *request) { r.result(`{"resultType":"complete","taskId":"1","status":"working"}`) })
	}
	v := everything(view.Default, view.ExposureDirect)
	v.Tools = []view.UpstreamTools{{Name: "up", Output: &view.OutputCache{MinSize: 10_000, Preview: 500, TTL: time.Hour}}}
	config := configOf(t, []*script{up}, v)
	config.Auth = inbound.Settings{Mode: inbound.Proof, Keys: true}
	keys := keysOf(t, config, "ann", "bob")
	p, url := openViews(t, "", config)
	is := func(name string, modern bool) *rawClient {
		return newClientAt(t, p, url+"/mcp", kind{modern: modern, key: keys[name]}, tasks, reply)
	}
	// said is the answer to a question about an ID, with that ID taken out.
	said := func(c *rawClient, method, params, id string) string {
		got := c.ask(method, strings.ReplaceAll(params, "ID", id))
		return strings.ReplaceAll(string(got.Result)+string(got.Error), id, "ID")
	}
	const read = `{"name":"read_output","arguments":{"token":"ID","lines":"1"}}`
	for _, modern := range []bool{false, true} {
		token := tokenIn(is("ann", modern).ask("tools/call", toolCall("up_dump", `{}`)).raw)
		for _, later := range []bool{false, true} { // also to a client of the other era
			bob := is("bob", later)
			unknown := said(bob, "tools/call", read, strings.Repeat("A", 26))
			if got := said(bob, "tools/call", read, token); got != unknown || !strings.Contains(got, "no such output") {
				t.Errorf("modern %v, to bob: %s, want %s", modern, got, unknown)
			}
			if got := said(is("ann", later), "tools/call", read, token); !strings.Contains(got, "a line") {
				t.Errorf("modern %v, to ann: %s", modern, got)
			}
		}
	}
	ann, bob := is("ann", true), is("bob", true)
	id := partText(ann.ask("tools/call", toolCall("up_open", `{}`)).Result, "taskId")
	if id == "" {
		t.Fatal("there is no task")
	}
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		unknown := said(bob, method, `{"taskId":"ID"}`, "up/nothing")
		if got := said(bob, method, `{"taskId":"ID"}`, id); got != unknown || !strings.Contains(got, "no such task") {
			t.Errorf("%s of bob: %s, want %s", method, got, unknown)
		}
		if len(up.got(method)) > 0 {
			t.Errorf("%s of bob has reached the server", method)
		}
		if got := said(ann, method, `{"taskId":"ID"}`, id); !strings.Contains(got, "working") {
			t.Errorf("%s of ann: %s", method, got)
		}
	}
}
