package proxy_test

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"toolfinch/configs"
	"toolfinch/internal/await"
	"toolfinch/internal/identity"
	"toolfinch/internal/must"
	"toolfinch/internal/telemetry"
	"toolfinch/proxy"
	"toolfinch/trust/audit"
	"toolfinch/view"
)

// audited opens a proxy with an audit log, and returns what gives the lines that came
// since it was asked last: "event tool name outcome view", with the depth in front of those within others.
func audited(t testing.TB, config *configs.Config, change func(*audit.Settings)) (p *proxy.Proxy, url string, since func(n int) []audit.Line) {
	t.Helper()
	settings := audit.Settings{File: filepath.Join(t.TempDir(), "audit.jsonl"), MaxSize: audit.DefaultMaxSize, MaxAge: audit.DefaultMaxAge}
	if change != nil {
		change(&settings)
	}
	log := must.Get(audit.Open(settings, nil, slog.New(slog.DiscardHandler)))(t)
	p, url = ready(t, config, proxy.WithVersion("test"), proxy.WithAudit(log, settings))
	read := 0
	return p, url, func(n int) []audit.Line {
		t.Helper()
		var lines []audit.Line
		await.True(t, func() bool {
			lines = nil
			err := audit.Scan([]string{settings.File}, audit.Filter{}, func(l *audit.Line, _ []byte) error {
				if l.Event != identity.EventBaseline { // at some time after the start
					lines = append(lines, *l)
				}
				return nil
			})
			return err == nil && len(lines) >= read+n
		})
		lines, read = lines[read:], len(lines)
		return lines
	}
}

func inShort(l audit.Line) string {
	text := fmt.Sprintf("%s %s %s %s %s", l.Event, cmp.Or(l.Tool, "-"), cmp.Or(l.Name, "-"), l.Outcome, cmp.Or(l.View, "-"))
	if l.Depth > 0 {
		text = fmt.Sprintf("%d: %s", l.Depth, text)
	}
	return text
}

// TestEveryWayOfACallHasOneLine calls by every surface, what is there, what fails and
// what is not there.
func TestEveryWayOfACallHasOneLine(t *testing.T) {
	up := wares(t)
	up.on("tools/call burn", func(r *request) { r.result(`{"content":[{"type":"text","text":"no fire"}],"isError":true}`) })
	up.on("tools/call put", func(r *request) { r.fail(`{"code":-32000,"message":"password hunter2 is wrong"}`) })
	v := everything(view.Default, view.ExposureRetrieve)
	v.ProxyTool, v.RunScript, v.Exclude = "proxy", &view.ScriptLimits{}, []view.Pattern{{Glob: "shop.file:///secret"}}
	v.Composites = []view.Composite{{Name: "both", Steps: []view.Step{{Key: "a", Tool: "shop.look", Args: []byte(`{}`)}}}}
	tight := gated("tight", view.ExposureRetrieve, ample)
	config := configOf(t, []*script{up}, v, tight)
	config.REST = true
	p, url, since := audited(t, config, nil)
	if got := inShort(since(2)[1]); got != "config.changed - - success -" {
		t.Errorf("at the start: %s", got)
	}

	c := viewClient(t, p, url, view.Default, false)
	first := since(1)[0]
	if inShort(first) != "session.start - - success default" || first.Client.Name != "raw" && first.Client == nil {
		t.Errorf("session: %+v", first)
	}
	tool := func(name, arguments string) func() {
		return func() { c.ask("tools/call", toolCall(name, arguments)) }
	}
	look := "tool.call shop.look shop_look success default"
	for name, step := range map[string]struct {
		do   func()
		want []string
	}{
		"direct":             {tool("shop_look", `{"size":1}`), []string{look}},
		"direct, tool error": {tool("shop_burn", `{}`), []string{"tool.call shop.burn shop_burn begun default", "tool.call shop.burn shop_burn tool_error default"}},
		"direct, error":      {tool("shop_put", `{}`), []string{"tool.call shop.put shop_put begun default", "tool.call shop.put shop_put failed default"}},
		"direct, unknown":    {tool("shop_nothing", `{}`), []string{"tool.call - shop_nothing denied default"}},
		"call_tool":          {tool("call_tool", `{"name":"shop_look"}`), []string{look}},
		"call_tool, by ID":   {tool("call_tool", `{"name":"shop.look"}`), []string{look}},
		"call_tool, unknown": {tool("call_tool", `{"name":"shop_nothing"}`), []string{"tool.call - shop_nothing denied default"}},
		"call_tool, misfit":  {tool("call_tool", `{"name":"shop_look","arguments":{"size":"big"}}`), []string{"tool.call shop.look shop_look denied default"}},
		"call_tool, nothing": {tool("call_tool", `{}`), []string{"tool.call - call_tool tool_error default"}},
		"call_tool, several": {tool("call_tool", `{"calls":[{"name":"shop_look"},{"name":"shop_nothing"}]}`), []string{
			"tool.call - shop_nothing denied default", look,
		}},
		"call_tool, prompt": {tool("call_tool", `{"name":"shop_greet"}`), []string{"prompt.get shop.greet shop_greet success default"}},
		"proxy":             {tool("proxy", `{"action":"call","type":"tool","path":"shop_look","args":{}}`), []string{look}},
		"proxy, unknown":    {tool("proxy", `{"action":"call","type":"tool","path":"shop_nothing"}`), []string{"tool.call - shop_nothing denied default"}},
		"proxy, list":       {tool("proxy", `{"action":"list","type":"tool"}`), []string{"tool.call - proxy success default"}},
		"retrieve":          {tool("retrieve_tools", `{"query":"look at a ware"}`), []string{"retrieve - retrieve_tools success default"}},
		"run_script": {tool("run_script", `{"script":"result = call_tool('shop_look')"}`), []string{
			"1: tool.call shop.look shop_look success default", "tool.call - run_script success default",
		}},
		"composite": {tool("both", `{}`), []string{
			"1: tool.call shop.look shop.look success default", "tool.call default.both both success default",
		}},
		"prompt":             {func() { c.ask("prompts/get", `{"name":"shop_greet"}`) }, []string{"prompt.get shop.greet shop_greet success default"}},
		"prompt, unknown":    {func() { c.ask("prompts/get", `{"name":"curse"}`) }, []string{"prompt.get - curse denied default"}},
		"resource":           {func() { c.ask("resources/read", `{"uri":"file:///note"}`) }, []string{"resource.read shop.file:///note file:///note success default"}},
		"resource, excluded": {func() { c.ask("resources/read", `{"uri":"file:///secret"}`) }, []string{"resource.read - file:///secret denied default"}},
		"REST":               {func() { curl(t, url, "POST", "/api/proxy/execute", `{"tool_id":"shop_look"}`) }, []string{look}},
		"REST, unknown":      {func() { curl(t, url, "POST", "/api/proxy/execute", `{"tool_id":"shop_nothing"}`) }, []string{"tool.call - shop_nothing denied default"}},
		"REST, retrieve":     {func() { curl(t, url, "POST", "/api/tools/discover", `{"query":"look"}`) }, []string{"retrieve - - success default"}},
		"the gate":           {func() { curl(t, url, "POST", "/api/proxy/execute?view=tight", `{"tool_id":"shop_look"}`) }, []string{"tool.call shop.look shop_look denied tight"}},
	} {
		step.do()
		var got []string
		for _, l := range since(len(step.want)) {
			got = append(got, inShort(l))
			if strings.Contains(l.Reason, "hunter2") || strings.Contains(l.Reason, "schema") {
				t.Errorf("%s: the reason is %q", name, l.Reason)
			}
			if l.Time.IsZero() || l.Tool != "" && (len(l.DefHash) != 64 || l.Server == "" || l.Annotations == nil) {
				t.Errorf("%s: %+v", name, l)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, step.want) {
			t.Errorf("%s: the lines are\n  %s\nwant\n  %s", name, strings.Join(got, "\n  "), strings.Join(step.want, "\n  "))
		}
	}
}

// TestALineSaysWhoDidWhat looks at the fields of a call by a client of either era.
func TestALineSaysWhoDidWhat(t *testing.T) {
	for _, modern := range []bool{false, true} {
		up := wares(t)
		config := configOf(t, []*script{up}, everything(view.Default, view.ExposureRetrieve))
		config.PrincipalHeader = "x-user"
		p, url, since := audited(t, config, func(s *audit.Settings) { s.Arguments, s.Results = audit.ArgumentsFull, true })
		c := newClientAt(t, p, url+"/mcp/"+view.Default, kind{modern: modern, user: "alice"}, `{}`, reply)
		start := time.Now()
		c.ask("tools/call", toolCall("shop_look", `{"size":1,"api_key":"sk-1"}`))
		lines := since(map[bool]int{false: 4, true: 3}[modern]) // a session has a line, too
		l := lines[len(lines)-1]
		if l.Principal == nil || l.Principal.ID != "alice" || l.Client == nil || l.Client.Name != "raw" || (l.Session != "") == modern || l.Request == "" {
			t.Errorf("modern %v: who: %+v %+v %q", modern, l.Principal, l.Client, l.Session)
		}
		if l.Era != map[bool]string{false: "legacy", true: "2026-07-28"}[modern] || l.Time.Before(start.Add(-time.Second)) || l.PID != os.Getpid() {
			t.Errorf("modern %v: %+v", modern, l)
		}
		if l.BytesIn != len(`{"size":1,"api_key":"sk-1"}`) || l.BytesOut == 0 || len(l.ArgsSHA256) != 64 {
			t.Errorf("modern %v: sizes %d and %d, digest %s", modern, l.BytesIn, l.BytesOut, l.ArgsSHA256)
		}
		if string(l.Args) != `{"size":1,"api_key":"***"}` || len(l.Result) == 0 {
			t.Errorf("modern %v: content %s %s", modern, l.Args, l.Result)
		}
		if !l.Annotations.ReadOnly {
			t.Errorf("modern %v: annotations %+v", modern, l.Annotations)
		}
	}
}

// TestACancelledCallIsWrittenDown: so is one that takes too long.
func TestACancelledCallIsWrittenDown(t *testing.T) {
	up := wares(t)
	up.on("tools/call look", func(r *request) { <-r.ended })
	config := configOf(t, []*script{up})
	p, url, since := audited(t, config, nil)
	c := newClient(t, p, url, kind{modern: true}, `{}`, reply)
	since(2)
	hurry(t, p, config, up)
	since(1)
	c.ask("tools/call", toolCall("shop_look", `{}`))
	if l := since(1)[0]; inShort(l) != "tool.call shop.look shop_look timeout default" {
		t.Errorf("%s: %s", inShort(l), l.Reason)
	}
}

// TestNothingIsCalledThatCannotBeWrittenDown takes the folder of the log away.
func TestNothingIsCalledThatCannotBeWrittenDown(t *testing.T) {
	up := wares(t)
	dir := filepath.Join(t.TempDir(), "log")
	must.Do(t, os.Mkdir(dir, 0o700))
	config := configOf(t, []*script{up}, everything(view.Default, view.ExposureRetrieve))
	config.REST = true
	p, url, since := audited(t, config, func(s *audit.Settings) { s.File = filepath.Join(dir, "audit.jsonl") })
	c := viewClient(t, p, url, view.Default, false)
	since(3)
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Skipf("the folder of an open file cannot be renamed here: %v", err)
	}
	calls := func() int { return len(up.got("tools/call")) }
	c.ask("tools/call", toolCall("shop_look", `{}`)) // its line is the first that cannot be written
	await.True(t, func() bool {
		return strings.Contains(curl(t, url, "GET", "/metrics", "").body, "\ntoolfinch_audit_errors_total ") &&
			!strings.Contains(curl(t, url, "GET", "/metrics", "").body, "\ntoolfinch_audit_errors_total 0\n")
	})
	before := calls()
	for name, ask := range map[string]func() string{
		"direct":    func() string { return string(c.ask("tools/call", toolCall("shop_look", `{}`)).raw) },
		"call_tool": func() string { return string(c.ask("tools/call", toolCall("call_tool", `{"name":"shop_look"}`)).raw) },
		"retrieve":  func() string { return string(c.ask("tools/call", toolCall("retrieve_tools", `{"query":"look"}`)).raw) },
		"read":      func() string { return string(c.ask("resources/read", `{"uri":"file:///note"}`).raw) },
		"REST":      func() string { return curl(t, url, "POST", "/api/proxy/execute", `{"tool_id":"shop_look"}`).body },
	} {
		if got := ask(); !strings.Contains(got, "the audit log cannot be written") || strings.Contains(got, dir) {
			t.Errorf("%s answers %s", name, got)
		}
	}
	counted := map[string]int{}
	for _, o := range p.Feed().Recent(100, func(o *telemetry.Operation) bool {
		return strings.Contains(o.Reason, "the audit log cannot be written")
	}) {
		counted[o.Kind]++
	}
	if want := map[string]int{identity.EventCall: 3, identity.EventRetrieve: 1, identity.EventRead: 1}; !maps.Equal(counted, want) {
		t.Errorf("refused calls are counted %v, want %v", counted, want)
	}
	if n := calls(); n != before || len(up.got("resources/read")) > 0 {
		t.Errorf("the server was called %d times", n-before)
	}
	must.Do(t, os.Rename(dir+".away", dir))
	await.True(t, func() bool { return !failed(c.ask("tools/call", toolCall("shop_look", `{}`))) })
	if n := len(since(2)); n < 2 {
		t.Errorf("%d lines", n)
	}
}

// TestAReloadIsWrittenDown: one that is refused, too.
func TestAReloadIsWrittenDown(t *testing.T) {
	up, other := wares(t), shop(t, "other", "hat")
	config := configOf(t, []*script{up})
	p, _, since := audited(t, config, nil)
	since(2)
	next := *config
	next.Servers = append(slices.Clone(config.Servers), other.settings)
	next.Servers[0].Description = "Wares"
	must.Do(t, p.Reload(t.Context(), &next))
	if l := since(1)[0]; inShort(l) != "config.changed - - success -" || l.Details["file"] == "" {
		t.Errorf("%+v", l)
	}
}

// TestADenialNamesItsPolicy: whatever the client is told, which may be that there is no such tool.
func TestADenialNamesItsPolicy(t *testing.T) {
	config := configOf(t, []*script{wares(t)}, everything(view.Default, view.ExposureRetrieve))
	config.REST = true
	config.Policies = policies(t, `@id("all") permit (principal, action, resource);
@id("no-fire") forbid (principal, action, resource) when { resource.name == "burn" };
@id("small") forbid (principal, action == Action::"call", resource) when { resource.name == "look" && context.args has size && context.args.size > 5 };`)
	p, url, since := audited(t, config, nil)
	c := viewClient(t, p, url, view.Default, false)
	since(3)
	for name, step := range map[string]struct {
		do     func()
		policy string
	}{
		"direct":          {func() { c.ask("tools/call", toolCall("shop_burn", `{}`)) }, "no-fire"},
		"call_tool":       {func() { c.ask("tools/call", toolCall("call_tool", `{"name":"shop_burn"}`)) }, "no-fire"},
		"REST":            {func() { curl(t, url, "POST", "/api/proxy/execute", `{"tool_id":"shop_burn"}`) }, "no-fire"},
		"by its argument": {func() { c.ask("tools/call", toolCall("shop_look", `{"size":9}`)) }, "small"},
	} {
		step.do()
		if l := since(1)[0]; l.Outcome != identity.Denied || l.Server != "shop" || l.Decision == nil || l.Decision.Allow || l.Decision.Policy != step.policy {
			t.Errorf("%s: %s %+v", name, inShort(l), l.Decision)
		}
	}
}

// TestACallThatMayChangeSomethingIsWrittenDownBefore: what a crash leaves says what may have happened.
func TestACallThatMayChangeSomethingIsWrittenDownBefore(t *testing.T) {
	up := wares(t)
	file := make(chan string, 1)
	seen := make(chan string, 1)
	up.on("tools/call burn", func(r *request) {
		text, _ := os.ReadFile(<-file)
		seen <- string(text)
		r.result(`{"content":[]}`)
	})
	v := everything(view.Default, view.ExposureRetrieve)
	v.Composites = []view.Composite{{Name: "both", Steps: []view.Step{{Key: "a", Tool: "shop.burn", Args: []byte(`{}`)}}}}
	config := configOf(t, []*script{up}, v)
	config.Policies = policies(t, `@id("all") permit (principal, action, resource);
@id("small") forbid (principal, action == Action::"call", resource) when { resource.name == "burn" && context.args has size && context.args.size > 5 };`)
	path := ""
	p, url, since := audited(t, config, func(s *audit.Settings) { path = s.File })
	c := viewClient(t, p, url, view.Default, false)
	since(3)
	for name, tool := range map[string]string{"directly": "shop_burn", "in a composite tool": "both"} {
		file <- path
		c.ask("tools/call", toolCall(tool, `{}`))
		lines := since(map[string]int{"shop_burn": 2, "both": 3}[tool])
		if lines[0].Outcome != identity.Begun || lines[0].Tool != "shop.burn" || lines[0].Call == "" || lines[1].Call != lines[0].Call || lines[1].Outcome != identity.Success {
			t.Errorf("%s: %+v", name, lines)
		}
		if text := <-seen; !strings.Contains(text, `"call":"`+lines[0].Call+`"`) {
			t.Errorf("%s: while the server was called, the log had\n%s", name, text)
		}
	}
	c.ask("tools/call", toolCall("shop_burn", `{"size":9}`))
	if l := since(1)[0]; l.Outcome != identity.Denied || l.Call != "" { // it was never to be sent
		t.Errorf("what a policy forbids: %+v", l)
	}
}
