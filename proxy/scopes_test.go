package proxy_test

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"toolfinch/store"
	"toolfinch/trust"
	"toolfinch/trust/inbound"
	"toolfinch/view"
)

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
	db, err := store.Open(t.Context(), config.DataDir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	keys := map[string]string{}
	for _, name := range []string{"read", "write", "all", "none"} {
		text, hash := inbound.NewKey()
		if err := db.AddKey(t.Context(), trust.Key{Name: name, Hash: hash, Scopes: []string{name}, Created: time.Now()}); err != nil {
			t.Fatal(err)
		}
		keys[name] = text
	}
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
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
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
	needs := map[string]string{"shop_look": "read", "shop_put": "write", "shop_burn": "write"}
	rank := map[string]int{"read": 1, "write": 2, "all": 3}
	for _, modern := range []bool{false, true} {
		for _, s := range surfaces {
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
