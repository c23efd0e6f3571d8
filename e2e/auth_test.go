//go:build unix

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolfinch/e2e/agents"
	"toolfinch/internal/authserver"
	"toolfinch/internal/await"
	"toolfinch/internal/fetch"
	"toolfinch/internal/must"
)

// memory is a real server with tools of every kind.
func memory(t *testing.T) server {
	t.Helper()
	s := script(t, module(t, "@modelcontextprotocol/server-memory/dist/index.js"))
	s.Env = map[string]string{"MEMORY_FILE_PATH": filepath.Join(t.TempDir(), "memory.json")}
	return s
}

var everyScope = map[string]any{"mcp:read": "read", "mcp:write": "write", "mcp:admin": "destructive"}

// guardedHouse asks for keys or tokens of the authorization server.
func guardedHouse(t *testing.T, issuer *authserver.Server, more ...map[string]any) house {
	t.Helper()
	return newHouse(t, map[string]server{"memory": memory(t)}, append(more, map[string]any{
		"auth": map[string]any{"issuers": []string{issuer.Issuer}, "scopes": everyScope},
	})...)
}

// loginRun is what testdata/node/oauthclient.mjs says.
type loginRun struct {
	Asked      []struct{ Scope, Resource string }
	Registered bool
	Scope      string
	Results    []struct {
		Content []struct{ Text string }
		IsError bool
		Failed  string
	}
	Failed string
}

func runLogins(t *testing.T, settings map[string]any) loginRun {
	t.Helper()
	given, err := json.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	file, err := filepath.Abs("../testdata/node/oauthclient.mjs")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), node(t), file, string(given))
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	var got loginRun
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	if err != nil || got.Failed != "" {
		t.Fatalf("the client: %v %s %s\n%s", err, got.Failed, out, &complaints)
	}
	return got
}

// startAuthServer starts an authorization server that is not ours, until the test ends.
func startAuthServer(t testing.TB, settings authserver.Settings) *authserver.Server {
	t.Helper()
	module(t, "oidc-provider/package.json")
	return authserver.Start(t, node(t), modules(t), agents.Environment(t.TempDir(), node(t)), settings)
}

// A client that is not ours knows the URL and nothing else: it is led to the authorization
// server, registers, logs in, calls, and logs in once more for each call that needs more.
func TestAClientLogsInAndStepsUp(t *testing.T) {
	t.Parallel()
	issuer := startAuthServer(t, authserver.Settings{Scopes: []string{"mcp:read", "mcp:write", "mcp:admin"}})
	h := guardedHouse(t, issuer, map[string]any{"direct_below": 100_000})
	url, _ := h.serveHTTP(t)
	lina := []map[string]any{{"name": "lina", "entityType": "person", "observations": []string{"plays go"}}}
	calls := []map[string]any{
		{"name": "memory_read_graph", "arguments": map[string]any{}},
		{"name": "memory_create_entities", "arguments": map[string]any{"entities": lina}},
		{"name": "call_tool", "arguments": map[string]any{"name": "memory_read_graph", "arguments": map[string]any{}}},
		{"name": "call_tool", "arguments": map[string]any{"name": "memory_delete_entities", "arguments": map[string]any{"entityNames": []string{"lina"}}}},
	}
	for _, modern := range []bool{false, true} {
		t.Run(fmt.Sprintf("2026-07-28 %v", modern), func(t *testing.T) {
			got := runLogins(t, map[string]any{"url": url, "calls": calls, "modern": modern})
			want := []string{"mcp:read", "mcp:read mcp:write", "mcp:admin mcp:read mcp:write"}
			if len(got.Asked) != len(want) || !got.Registered {
				t.Fatalf("it asked %+v, registered %v", got.Asked, got.Registered)
			}
			for i, asked := range got.Asked {
				scopes := slices.DeleteFunc(strings.Fields(asked.Scope), func(scope string) bool { return scope == "offline_access" }) // which this client always wants
				slices.Sort(scopes)
				if strings.Join(scopes, " ") != want[i] || asked.Resource != url {
					t.Errorf("login %d asks for %q at %s, want %q", i, asked.Scope, asked.Resource, want[i])
				}
			}
			for i, result := range got.Results {
				if result.Failed != "" || result.IsError || len(result.Content) == 0 {
					t.Errorf("call %d: %+v", i, result)
				}
			}
			if found := fmt.Sprint(got.Results[2]); !strings.Contains(found, "plays go") {
				t.Errorf("what was written is not read: %s", found)
			}
		})
	}
}

// request asks the program something.
func request(t *testing.T, method, url, body, token string, header ...string) (status int, answer string, headers http.Header) {
	t.Helper()
	lines := []string{"Content-Type: application/json", "Accept: application/json, text/event-stream"}
	if token != "" {
		lines = append(lines, "Authorization: Bearer "+token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		lines = append(lines, header[i]+": "+header[i+1])
	}
	got := fetch.Send(t, method, url, body, lines...)
	return got.Status, got.Body, got.Header
}

// A key is taken as soon as a command has made it, opens its view alone, and nothing once
// it was revoked; tokens of the certified server do likewise, JWTs and opaque ones.
func TestKeysAndTokensOpenARunningProgram(t *testing.T) {
	t.Parallel()
	machine := authserver.Machine("toolfinch", "hush")
	app := authserver.Client{ID: "app", Secret: "hush", RedirectURIs: []string{"http://127.0.0.1:1/back"}, ResponseTypes: []string{"code"}, GrantTypes: []string{"authorization_code"}, ApplicationType: "native"}
	issuer := startAuthServer(t, authserver.Settings{Algorithm: "ES256", Clients: []authserver.Client{machine, app}, Now: authserver.Now{Groups: map[string][]string{"bob": {"team"}}}})
	h := newHouse(t, map[string]server{"memory": memory(t)}, map[string]any{
		"auth": map[string]any{"issuers": []any{map[string]any{
			"issuer": issuer.Issuer, "introspect": map[string]any{"client_id": "toolfinch", "client_secret": "hush"},
		}}},
		"tool_views": map[string]any{"reader": map[string]any{"tools": map[string]any{"memory": map[string]any{"read_graph": map[string]any{}}}}},
		"audit":      filepath.Join(t.TempDir(), "audit.jsonl"),
	})
	url, _ := h.serveHTTP(t)
	base := strings.TrimSuffix(url, "/mcp")
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	made, err := h.output(t, "key", "create", "ci", "--view", "reader")
	if err != nil {
		t.Fatal(err)
	}
	key := strings.TrimSpace(string(made))
	await.Nil(t, func() error { // until the server is connected
		if status, answer, _ := request(t, "POST", base+"/api/proxy/execute?view=reader", `{"tool_id":"memory_read_graph","arguments":{}}`, key); status != 200 {
			return fmt.Errorf("%d %.200s", status, answer)
		}
		return nil
	})
	for _, test := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/mcp/reader", hello, 200}, {"POST", "/mcp", hello, 403}, {"POST", "/mcp/other", hello, 403}, {"GET", "/sse", "", 403},
		{"GET", "/api/tools?view=reader", "", 200}, {"GET", "/api/tools", "", 403}, {"GET", "/metrics", "", 200}, {"GET", "/metrics?view=reader", "", 400}, {"GET", "/openapi.json", "", 200},
		{"POST", "/api/proxy/execute?view=reader", `{"tool_id":"memory_read_graph","arguments":{}}`, 200},
		{"POST", "/api/proxy/execute?view=reader&view=", `{"tool_id":"memory_read_graph","arguments":{}}`, 400},
	} {
		if status, answer, _ := request(t, test.method, base+test.path, test.body, key); status != test.status {
			t.Errorf("%s %s with the key of reader: %d %.200s, want %d", test.method, test.path, status, answer, test.status)
		}
	}

	// Somebody else's session and results are unknown ones.
	token := issuer.User(t, app, "bob", url, "mcp:read").Access
	status, _, headers := request(t, "POST", url, hello, token)
	if status != 200 {
		t.Fatalf("a token of bob: %d", status)
	}
	session := headers.Get("Mcp-Session-Id")
	other := issuer.User(t, app, "alice", url, "mcp:read").Access
	const list = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
	if status, _, _ := request(t, "POST", url, list, token, "Mcp-Session-Id", session); status != 200 {
		t.Errorf("bob in his session: %d", status)
	}
	_, unknown, _ := request(t, "POST", url, list, other, "Mcp-Session-Id", "unknown")
	if status, answer, _ := request(t, "POST", url, list, other, "Mcp-Session-Id", session); status != 404 || answer != unknown {
		t.Errorf("alice in the session of bob: %d %s, want %s", status, answer, unknown)
	}
	if status, answer, _ := request(t, "POST", base+"/mcp/reader", hello, token); status != 401 || !strings.Contains(answer, "for another server") {
		t.Errorf("a token of the root at a view: %d %s", status, answer)
	}
	opaque := true
	issuer.Set(t, authserver.Now{Opaque: &opaque})
	if status, answer, _ := request(t, "POST", url, hello, issuer.User(t, app, "bob", url, "mcp:read").Access); status != 200 {
		t.Errorf("an opaque token: %d %s", status, answer)
	}
	if status, answer, _ := request(t, "POST", url, hello, issuer.User(t, app, "bob", "https://other.example.com", "mcp:read").Access); status != 401 || !strings.Contains(answer, "for another server") {
		t.Errorf("an opaque token of another server: %d %s", status, answer)
	}

	// Strangers.
	for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": `{"status":"ready"}` + "\n"} {
		await.Nil(t, func() error {
			if status, answer, _ := request(t, "GET", base+path, "", ""); status != 200 || answer != want {
				return fmt.Errorf("%s: %d %q", path, status, answer)
			}
			return nil
		})
	}
	for _, path := range []string{"/mcp", "/mcp/reader", "/mcp/nothing", "/sse", "/api/tools", "/openapi.json", "/metrics"} {
		if status, _, headers := request(t, "GET", base+path, "", ""); status != 401 || !strings.HasPrefix(headers.Get("WWW-Authenticate"), `Bearer resource_metadata="`+base+`/.well-known/`) {
			t.Errorf("%s: %d %s", path, status, headers.Get("WWW-Authenticate"))
		}
	}
	if status, _, _ := request(t, "POST", url, hello, strings.Repeat("a", 2<<20)); status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a token of 2 MB: %d", status)
	}
	if status, answer, _ := request(t, "POST", url, hello, strings.Repeat("a", 100<<10)); status != http.StatusRequestHeaderFieldsTooLarge || !strings.Contains(answer, "the limit is 65536") {
		t.Errorf("a token of 100 KB: %d %s", status, answer)
	}

	must.Get(h.output(t, "key", "revoke", "ci"))(t)
	await.Nil(t, func() error {
		if status, answer, _ := request(t, "GET", base+"/api/tools?view=reader", "", key); status != 401 || !strings.Contains(answer, "revoked") {
			return fmt.Errorf("the revoked key: %d %.200s", status, answer)
		}
		return nil
	})
	made, err = h.output(t, "key", "create", "ops", "--expires", "1h")
	if err != nil {
		t.Fatal(err)
	}
	ops := strings.TrimSpace(string(made))
	status, metrics, _ := request(t, "GET", base+"/metrics", "", ops)
	if status != 200 || !strings.Contains(metrics, `toolfinch_requests_refused_total{reason="wrong_audience"} 2`) || !strings.Contains(metrics, `toolfinch_requests_accepted_total{by="opaque_token"} 1`) {
		t.Errorf("%d %s", status, metrics)
	}
	lines, err := h.output(t, "audit", "--json", "--event", "auth.refused")
	if err != nil || !strings.Contains(string(lines), "wrong_view") {
		t.Errorf("audit: %v %.500s", err, lines)
	}
	if strings.Contains(string(lines), key) || strings.Contains(string(lines), token) {
		t.Error("credentials are in the audit log")
	}
}
