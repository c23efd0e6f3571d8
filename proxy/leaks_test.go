package proxy_test

import (
	"encoding/json"
	"strings"
	"testing"

	"toolfinch/configs"
	"toolfinch/internal/must"
	"toolfinch/tool"
	"toolfinch/trust/leaks"
	"toolfinch/view"
)

// planted is a token, put together so that none stands in this file, and what stands in
// its place.
var planted = "gh" + "p_" + strings.Repeat("a1B2c3", 6)

const replaced = "[redacted: GitHub token]"

// leaky is a server whose every answer has a secret in it.
func leaky(t *testing.T, name string) *script {
	s := newScript(t, name, true, false)
	s.capabilities = `{"tools":{},"prompts":{},"resources":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	s.list("tools",
		`{"name":"read","inputSchema":{"type":"object"},"outputSchema":{"type":"object"}}`,
		`{"name":"fail","inputSchema":{"type":"object"}}`,
		`{"name":"plain","inputSchema":{"type":"object"}}`)
	s.list("prompts", `{"name":"ask"}`)
	s.list("resources", `{"uri":"file:///listed","name":"listed"}`)
	s.list("resourceTemplates", `{"uriTemplate":"t:///{x}","name":"t"}`)
	s.on("tools/call", func(r *request) {
		switch {
		case r.about() == "plain":
			r.result(`{"resultType":"complete", "content":[{"type":"text","text":"\u0061 task-list at https://x/"}],"n":1.0}`)
		case r.about() == "fail":
			r.fail(`{"code":-32000,"message":"no ` + planted + `","data":{"t":"` + planted + `"}}`)
		case strings.Contains(r.raw, tool.ExtensionTasks):
			r.result(`{"resultType":"task","taskId":"1","status":"working"}`)
		default:
			r.result(`{"resultType":"complete", "content":[{"type":"text","text":"a\n` + planted + `"}],"structuredContent":{"t" : "` + planted + `", "n":1.0},"_meta":{"a":1}}`)
		}
	})
	s.on("prompts/get", func(r *request) {
		r.result(`{"resultType":"complete","messages":[{"role":"user","content":{"type":"text","text":"use ` + planted + `"}}]}`)
	})
	s.on("resources/read", func(r *request) {
		r.result(`{"resultType":"complete","contents":[{"uri":` + string(part(r.Params, "uri")) + `,"text":"k=` + planted + `"}]}`)
	})
	return s
}

func TestSecretsInAnswers(t *testing.T) {
	up, exempt := leaky(t, "up"), leaky(t, "exempt")
	named := func(mode leaks.Mode) view.Settings {
		v := everything(string(mode), view.ExposureDirect)
		v.Secrets = mode
		v.ProxyTool = "proxy"
		v.Composites = []view.Composite{{Name: "both", Steps: []view.Step{{Key: "a", Tool: "up.read", Args: []byte(`{}`)}}}}
		return v
	}
	plain := everything("unsaid", view.ExposureDirect)
	config := configOf(t, []*script{up, exempt}, named(leaks.Off), named(leaks.Mark), named(leaks.Redact), named(leaks.Block), plain)
	config.Secrets = leaks.Redact
	config.Tools = []view.UpstreamTools{{Name: "exempt", Secrets: leaks.Off}}
	p, url := openViews(t, "", config)

	const tasks = `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	asks := map[string][2]string{
		"tool":              {"tools/call", toolCall("up_read", `{}`)},
		"tool that fails":   {"tools/call", toolCall("up_fail", `{}`)},
		"through the proxy": {"tools/call", toolCall("proxy", `{"action":"call","type":"tool","path":"up_read","args":{}}`)},
		"composite tool":    {"tools/call", toolCall("both", `{}`)},
		"prompt":            {"prompts/get", `{"name":"up_ask"}`},
		"resource":          {"resources/read", `{"uri":"toolfinch:up/file:///listed"}`},
		"unlisted resource": {"resources/read", `{"uri":"toolfinch:up/t:///unlisted"}`},
	}
	for _, mode := range leaks.Modes {
		c := newClientAt(t, p, url+"/mcp/"+string(mode), kind{modern: true}, map[bool]string{true: tasks, false: `{}`}[mode != leaks.Off], reply)
		for about, ask := range asks {
			got := c.ask(ask[0], ask[1])
			has := strings.Contains(got.raw, planted)
			var want bool
			switch mode {
			case leaks.Off:
				want = has && !strings.Contains(got.raw, "toolfinch/secrets")
			case leaks.Mark:
				want = has && (got.Error != nil || strings.Contains(got.raw, `{"kinds":["GitHub token"],"mode":"mark"}`) || about == "composite tool" || about == "through the proxy")
			case leaks.Redact:
				want = !has && strings.Contains(got.raw, replaced)
			case leaks.Block:
				want = !has && strings.Contains(got.raw, "withholds the answer: it has in it what looks like a secret (GitHub token)")
			}
			if !want || !json.Valid([]byte(got.raw)) {
				t.Errorf("%s, %s: %s", mode, about, got.raw)
			}
		}
		got := c.ask("tools/call", toolCall("up_plain", `{}`))
		if !strings.Contains(got.raw, `"content":[{"type":"text","text":"\u0061 task-list at https://x/"}],"n":1.0`) {
			t.Errorf("%s: an answer without a secret is another: %s", mode, got.raw)
		}
	}
	redacted := viewClient(t, p, url, "redact", true).ask("tools/call", toolCall("up_read", `{}`))
	if want := `"content":[{"type":"text","text":"a\n` + replaced + `"}],"structuredContent":{"t" : "` + replaced + `", "n":1.0},"_meta":{"toolfinch/secrets":{"kinds":["GitHub token"],"mode":"redact"},"a":1}`; !strings.Contains(redacted.raw, want) {
		t.Errorf("redacted:\ngot  %s\nwant %s", redacted.raw, want)
	}
	marked := viewClient(t, p, url, "mark", true).ask("tools/call", toolCall("up_read", `{}`))
	if want := `"},{"text":"Note of toolfinch: this answer has in it what looks like a secret (GitHub token).`; !strings.Contains(marked.raw, want) {
		t.Errorf("marked: %s", marked.raw)
	}
	// What the view says goes first, then the server, then the top level.
	for name, want := range map[string]bool{"unsaid": true, "redact": false} {
		if got := viewClient(t, p, url, name, true).ask("tools/call", toolCall("exempt_read", `{}`)); strings.Contains(got.raw, planted) != want {
			t.Errorf("view %s, a server with secrets off: %s", name, got.raw)
		}
	}
	if got := viewClient(t, p, url, "unsaid", true).ask("tools/call", toolCall("up_read", `{}`)); strings.Contains(got.raw, planted) {
		t.Errorf("the top level's: %s", got.raw)
	}
	var next configs.Config = *config
	next.Secrets = leaks.Off
	must.Do(t, p.Reload(t.Context(), &next))
	for _, ask := range []string{"tool", "unlisted resource"} {
		if got := viewClient(t, p, url, "unsaid", true).ask(asks[ask][0], asks[ask][1]); !strings.Contains(got.raw, planted) {
			t.Errorf("%s after it was switched off: %s", ask, got.raw)
		}
	}
}

// What is kept to be read in parts was redacted first.
func TestSecretsInLargeResultsAreNotKept(t *testing.T) {
	up := newScript(t, "big", false, false)
	up.list("tools", `{"name":"dump","inputSchema":{"type":"object"}}`)
	long := strings.Repeat("line of the dump\\n", 2000) + planted
	up.on("tools/call", func(r *request) { r.result(`{"content":[{"type":"text","text":"` + long + `"}]}`) })
	v := everything("v", view.ExposureDirect)
	v.Secrets = leaks.Redact
	v.Tools = []view.UpstreamTools{{Name: "big", Output: &view.OutputCache{MinSize: 10_000, Preview: 500}}}
	p, url := openViews(t, "", configOf(t, []*script{up}, v))
	c := viewClient(t, p, url, "v", false)
	token := tokenIn(c.ask("tools/call", toolCall("big_dump", `{}`)).raw)
	got := c.ask("tools/call", toolCall("read_output", `{"token":"`+token+`","lines":"2000-2001"}`))
	if strings.Contains(got.raw, planted) || !strings.Contains(got.raw, replaced) {
		t.Errorf("%s", got.raw)
	}
}

// At the root that serves views together, a resource that no server lists is that of the views with its
// server: as strict about secrets, and forbidden where these forbid it.
func TestUnlistedResourcesAtTheRootAreThoseOfTheirViews(t *testing.T) {
	internal, web := everything("internal", view.ExposureDirect), everything("web", view.ExposureDirect)
	internal.Exclude, web.Exclude = []view.Pattern{{Glob: "other.*"}}, []view.Pattern{{Glob: "up.*"}}
	internal.Secrets = leaks.Redact
	up := leaky(t, "up")
	config := configOf(t, []*script{up, leaky(t, "other")}, internal, web)
	config.DefaultView = configs.RootViews
	p, url := openViews(t, "", config)
	read := func(uri string) message {
		return newClientAt(t, p, url+"/mcp", kind{modern: true}, `{}`, reply).ask("resources/read", `{"uri":"`+uri+`"}`)
	}
	if got := read("toolfinch:up/t:///unlisted"); strings.Contains(got.raw, planted) || !strings.Contains(got.raw, replaced) {
		t.Errorf("of the view that redacts: %s", got.raw)
	}
	if got := read("toolfinch:other/t:///unlisted"); !strings.Contains(got.raw, planted) {
		t.Errorf("of the other: %s", got.raw)
	}
	next := *config
	next.Policies = policies(t, `permit (principal, action, resource); forbid (principal, action, resource in View::"internal");`)
	must.Do(t, p.Reload(t.Context(), &next))
	reached := len(up.got("resources/read"))
	for _, uri := range []string{"toolfinch:up/t:///unlisted", "toolfinch:up/file:///listed"} {
		_ = read(uri) // the other server is asked: for who asks there is no up
	}
	if got := len(up.got("resources/read")); got != reached {
		t.Errorf("the server of the forbidden view was reached %d times", got-reached)
	}
	for _, uri := range []string{"toolfinch:other/t:///unlisted", "toolfinch:other/file:///listed"} {
		if got := read(uri); failed(got) {
			t.Errorf("%s: %s", uri, got.raw)
		}
	}
}
