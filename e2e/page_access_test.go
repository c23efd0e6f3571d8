//go:build unix

package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"toolfinch/internal/await"
	"toolfinch/internal/fetch"
	"toolfinch/internal/must"
)

// Views, policies and keys, where API keys let clients in.
func TestPageAccess(t *testing.T) {
	t.Parallel()
	browser := newBrowser(t)
	h := newHouse(t, upstreams(t, "everything", "memory"), map[string]any{
		"auth": "keys", "default_view": "all", "rest_api": true,
		"policies":    []string{"files/team.cedar", `@id("no graphs for bots") forbid (principal in Group::"key|bots", action, resource) when { resource.name == "delete_entities" };`},
		"rate_limits": []any{map[string]any{"calls_per_minute": 6000, "per": []string{"principal"}}},
		"tool_views": map[string]any{
			"echoes": map[string]any{"description": "What echoes", "tools": map[string]any{"everything": map[string]any{"echo": map[string]any{}}}, "exposure_mode": "direct"},
			"small":  map[string]any{"include_all": true, "gating": map[string]any{"max_tools": 3}},
		},
	})
	h.file(t, "team.cedar", "permit (principal, action, resource);\n@id(\"only root echoes\")\nforbid (principal, action, resource) when { resource.name == \"echo\" } unless { context.args has message && context.args.message == \"hello\" };\n// <script>alert(1)</script>\n")
	life := h.start(t)
	at, log := life.url, life.log
	owner := browser.tab(t, at)
	owner.logIn(h)
	await.True(t, func() bool {
		owner.open("")
		return strings.Contains(owner.text("main"), "Every server is ready")
	})
	asks := func(key, path, body string) int {
		t.Helper()
		return fetch.Send(t, http.MethodPost, strings.TrimSuffix(at, "/mcp")+path, body, "Authorization: Bearer "+key, "Accept: application/json, text/event-stream").Status
	}
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

	t.Run("views", func(t *testing.T) {
		owner.open("access")
		owner.wait("h1", "Access")
		owner.wait("main p", "proves it with an API key")
		owner.wait("td", "What echoes")
		owner.accessible()
		owner.fits()
		owner.looks("access")
		owner.wait("td .tag", "gated: at most 3 tools")
	})
	t.Run("a question to the policies", func(t *testing.T) {
		owner.open("access")
		owner.run(chromedp.Focus(chromedp.CSS("#about")))
		owner.run(chromedp.KeyEvent("everything.echo" + kb.Enter))
		owner.wait("#policies ~ form .note.bad", `denied: call everything.echo by "only root echoes" (files/team.cedar:2)`)
		owner.run(chromedp.SetValue(chromedp.CSS("#args"), `{"message": "hello"}`))
		owner.click("#policies ~ form button")
		owner.wait("#policies ~ form .note.good", "allowed: call everything.echo by ")
		out, _ := h.output(t, "policy", "test", "--tool", "everything.echo", "--args", `{"message": "hello"}`)
		if shown := owner.text("#policies ~ form .note"); strings.TrimSpace(string(out)) != shown {
			t.Errorf("the page says %q, and policy test %q", shown, out)
		}
		owner.open("access?about=everything.ecco&transport=http")
		owner.wait("#policies ~ form .note.bad", "the view knows no tool")
		owner.wait("details pre", "// <script>alert(1)</script>")
	})
	var key string
	t.Run("a key", func(t *testing.T) {
		owner.open("access")
		owner.wait("#make[open] summary", "Make a key")
		owner.run(chromedp.SetValue(chromedp.CSS("#name"), "one two"))
		owner.click("#make button")
		owner.wait("#make .note.bad", "name")
		owner.run(chromedp.SetValue(chromedp.CSS("#name"), "ci"), chromedp.SetValue(chromedp.CSS("#key-groups"), "bots"), chromedp.SetValue(chromedp.CSS("#expires"), "30d"))
		owner.click("#make button")
		key = strings.TrimSpace(owner.text("#made-key"))
		owner.accessible()
		owner.looks("access-key")
		if !strings.HasPrefix(key, "tfkey_") {
			t.Fatalf("the key is %q", key)
		}
		owner.open("access")
		if html := owner.html(); strings.Contains(html, key) {
			t.Error("the key is shown twice")
		}
		owner.wait("td", "ci")
		await.True(t, func() bool { return asks(key, "/mcp", hello) == http.StatusOK })
	})
	t.Run("what its bearer sees", func(t *testing.T) {
		out := must.Get(h.output(t, "key", "create", "root"))(t)
		root := strings.TrimSpace(string(out))
		await.True(t, func() bool { return asks(root, "/mcp", hello) == http.StatusOK })
		for _, body := range []string{`{"tool_id":"everything_echo","arguments":{"message":"hello"}}`, `{"tool_id":"memory_delete_entities","arguments":{"entityNames":[]}}`, `{"tool_id":"<nothing>"}`} {
			asks(root, "/api/proxy/execute", body)
		}
		asks(key, "/api/proxy/execute", `{"tool_id":"memory_read_graph"}`)
		owner.open("live")
		owner.wait("#done tr", "memory.delete_entities")
		owner.wait("#done tr", "<nothing>")
		owner.wait("#done tr", "key|root")
		tab := browser.tab(t, at)
		tab.expect("403")
		tab.open("login")
		tab.run(chromedp.SetValue(chromedp.CSS("#key"), key))
		tab.click(`form[action="login"] button`)
		tab.wait("h1", "Overview")
		tab.open("access")
		tab.wait("main p", "You are key|ci, in the groups key|bots")
		for _, hidden := range []string{"only root echoes", "Make a key", "team.cedar", "Revoke"} {
			if html := tab.html(); strings.Contains(html, hidden) {
				t.Errorf("who is not the owner sees %q", hidden)
			}
		}
		tab.accessible()
		tab.fits()
		status := evaluate[int](tab, `(() => { const r = new XMLHttpRequest(); r.open("POST", "access", false); r.setRequestHeader("Content-Type", "application/x-www-form-urlencoded"); r.send("do=make&name=mine"); return r.status })()`)
		if status != http.StatusForbidden {
			t.Errorf("a key makes a key: %d", status)
		}
		tab.click(`a[href="catalogue?view=small"]`)
		tab.wait("h1", "Catalogue")
		if html := tab.html(); strings.Contains(html, "delete_entities") {
			t.Error("who is not the owner sees a tool that is not for it")
		}
		tab.open("live")
		tab.wait("#done tr", "memory.read_graph")
		for _, hidden := range []string{"key|root", "everything.echo", "delete_entities", "nothing"} {
			if rows := tab.text("#done"); strings.Contains(rows, hidden) {
				t.Errorf("who is not the owner sees %q in Live: %s", hidden, rows)
			}
		}

		t.Run("until it is revoked", func(t *testing.T) {
			owner := browser.tab(t, at)
			owner.logIn(h)
			owner.noScript()
			owner.open("access")
			owner.press("#make summary")
			owner.run(chromedp.SetValue(chromedp.CSS("#name"), "plain"))
			owner.click("#make button")
			if made := owner.text("#made-key"); !strings.HasPrefix(made, "tfkey_") {
				t.Errorf("the key made without script is %q", made)
			}
			owner.open("access")
			owner.click(`input[value="ci"] + button`)
			if got := owner.text(".note.good"); !strings.Contains(got, "revoked the key ci") {
				t.Errorf("it says %s", got)
			}
			await.True(t, func() bool { return asks(key, "/mcp", hello) == http.StatusUnauthorized })
			tab.expect("net::ERR")
			tab.open("live")
			tab.wait("h1", "Log in")
		})
	})
	if strings.Contains(log.String(), key) {
		t.Error("the key is in the log")
	}
}
