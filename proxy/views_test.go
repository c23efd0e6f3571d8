package proxy_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"toolfinch/configs"
	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/proxy"
	"toolfinch/view"
)

// configOf is a configuration of views over scripts. Its root serves everything, unless
// there is a view for it.
func configOf(t testing.TB, scripts []*script, views ...view.Settings) *configs.Config {
	config := &configs.Config{DataDir: folder(t), TopK: 5, Routing: configs.RoutingAuto, MaxRegistered: 40, Views: views}
	for _, s := range scripts {
		config.Servers = append(config.Servers, s.settings)
	}
	return rootOfAll(changing(config))
}

// rootOfAll has the root serve everything, unless there is a view for it.
func rootOfAll(config *configs.Config) *configs.Config {
	config.DefaultView = configs.RootAll
	if slices.ContainsFunc(config.Views, func(s view.Settings) bool { return s.Name == view.Default }) {
		config.DefaultView = ""
	}
	return config
}

// openViews runs a proxy and waits until it is ready. only is the view that is served
// on stdio, "" for the default view.
func openViews(t testing.TB, only string, config *configs.Config) (*proxy.Proxy, string) {
	t.Helper()
	p, url := startViews(t, only, config)
	await.Value(t, p.Ready())
	return p, url
}

// startViews is openViews without the wait.
func startViews(t testing.TB, only string, config *configs.Config) (*proxy.Proxy, string) {
	t.Helper()
	return running(t, config, proxy.WithView(only), proxy.WithVersion("test"))
}

// toolsOf are the names of the tools that a view has now.
func toolsOf(t testing.TB, p *proxy.Proxy, name string) (names []string) {
	t.Helper()
	v := must.Get(p.View(name))(t)
	for _, one := range v.Tools() {
		names = append(names, one.Name)
	}
	return names
}

// listed are the names of the tools that a client is listed, in order.
func (c *rawClient) listed() (names []string) {
	var all []json.RawMessage
	_ = json.Unmarshal(part(c.ask("tools/list", `{}`).Result, "tools"), &all)
	for _, one := range all {
		names = append(names, partText(one, "name"))
	}
	return names
}

// toolCall is the params of tools/call.
func toolCall(name, arguments string) string {
	quoted, _ := json.Marshal(name)
	return `{"name":` + string(quoted) + `,"arguments":` + arguments + `}`
}

// logs sends a log message that belongs to no call.
func (s *script) logs(t testing.TB, text string) {
	t.Helper()
	s.tell(t, "notifications/message", `{"level":"error","data":"`+text+`"}`)
}

// What is outside of the view has this word in all that is said of it, and the
// server that is not in it at all is called outer.
const outside = "zebra"

// insider brings the one tool of the view, and all else that a server may.
func insider(t testing.TB) *script {
	s := newScript(t, "inner", false, false)
	s.list("tools",
		`{"name":"open","description":"Opens a door","inputSchema":{"type":"object","properties":{"path":{"type":"string"}}},"unknown":1e400}`,
		`{"name":"close_zebra","description":"Closes a zebra","inputSchema":{"type":"object"}}`)
	zebras(s)
	return s
}

func outsider(t testing.TB) *script {
	s := newScript(t, "outer", false, false)
	s.list("tools",
		`{"name":"wipe_zebra","description":"Wipes a zebra","inputSchema":{"type":"object"}}`,
		`{"name":"open","description":"Opens a zebra","inputSchema":{"type":"object"}}`)
	zebras(s)
	return s
}

func zebras(s *script) {
	s.list("prompts", `{"name":"prompt_zebra","description":"Speaks to a zebra"}`)
	s.list("resources", `{"uri":"file:///`+s.settings.Name+`/zebra","name":"The zebra"}`)
	s.list("resourceTemplates", `{"uriTemplate":"`+s.settings.Name+`-zebra://{id}","name":"Any zebra"}`)
	s.on("tools/call", func(r *request) {
		r.result(`{"content":[{"type":"text","text":"done"}],"structuredContent":{"heard":` + string(part(r.Params, "arguments")) + `},"unknown":[1.0]}`)
	})
	for _, method := range []string{"prompts/get", "resources/read", "completion/complete"} {
		s.on(method, func(r *request) { r.result(`{"contents":[],"messages":[],"zebra":true}`) })
	}
	s.on("initialize", func(r *request) {
		said := map[string]string{"inner": "Knock first.", "outer": "Feed the zebra."}[s.settings.Name]
		r.result(`{"protocolVersion":"2025-11-25","capabilities":` + everyCapability + `,"serverInfo":{"name":"script","version":"1"},"instructions":"` + said + `"}`)
	})
}

// narrowed is a view with one tool, renamed. It takes scripts, for which a process waits, in one exposure.
func narrowed(name string, exposure view.Exposure) view.Settings {
	v := view.Settings{
		Name: name, Exposure: exposure, DirectBelow: 3000,
		Tools: []view.UpstreamTools{{Name: "inner", Tools: []view.Override{{Tool: "open", Name: "renamed"}}}},
	}
	if exposure == view.ExposureRetrieve {
		v.RunScript = &view.ScriptLimits{}
	}
	return v
}

// Names of what is outside, exposed, as IDs, of the upstream, and misspelt, so
// that what is near may be named. The tool that was renamed has its old ones here.
var (
	outsideTools     = []string{"outer_wipe_zebra", "outer.wipe_zebra", "wipe_zebra", "outer_vipe_zebra", "inner_close_zebra", "inner.close_zebra", "inner:close_zebra", "inner_closes_zebra", "outer_open", "outer.open", "outer:open", "inner_open", "open"}
	outsidePrompts   = []string{"outer_prompt_zebra", "inner_prompt_zebra", "prompt_zebra", "inner.prompt_zebra"}
	outsideResources = []string{
		"file:///outer/zebra", "file:///inner/zebra", "toolfinch:outer/file:///outer/zebra", "toolfinch:inner/file:///inner/zebra",
		"toolfinch:outer/file:///unlisted", "toolfinch:inner/file:///unlisted", "file:///unlisted", "outer-zebra://1", "inner-zebra://1",
		"toolfinch:outer/outer-zebra://1", "toolfinch:%6futer/file:///outer/zebra",
	}
)

// narrow is a client of a view that is a boundary.
type narrow struct {
	*rawClient
	view         string
	exposure     view.Exposure
	inner, outer *script
	p            *proxy.Proxy
}

func TestAViewIsABoundary(t *testing.T) { boundary(t, false) }

// A policy is one as well: in a view that has everything, what a client may not call is
// neither listed nor found nor named, and answers as what there is not.
func TestAPolicyIsABoundary(t *testing.T) { boundary(t, true) }

func boundary(t *testing.T, policed bool) {
	for _, exposure := range view.Exposures {
		for _, stdio := range []bool{false, true} {
			if stdio && exposure != view.ExposureRetrieve {
				continue // how clients connect does not change what a view has
			}
			t.Run(fmt.Sprintf("%s, %s", exposure, kind{stdio: stdio}.String()[len("legacy "):]), func(t *testing.T) {
				t.Parallel()
				inner, outer := insider(t), outsider(t)
				const name = "narrow"
				settings := narrowed(name, exposure)
				settings.IncludeAll = policed
				config := configOf(t, []*script{inner, outer}, settings)
				if policed {
					config.Policies = policies(t, `permit (principal, action, resource == Tool::"inner.open");`)
				}
				config.Pinned = []string{"*open", "renamed"}
				p, url := openViews(t, map[bool]string{true: name}[stdio], config)
				for _, modern := range []bool{false, true} {
					k := kind{modern: modern, stdio: stdio}
					t.Run(k.String(), func(t *testing.T) {
						c := newClientAt(t, p, url+"/mcp/"+name, k, `{}`, reply)
						n := &narrow{c, name, exposure, inner, outer, p}
						t.Run("all inside works", func(t *testing.T) { n.inside(t) })
						t.Run("nothing outside is listed", func(t *testing.T) { n.lists(t) })
						t.Run("nothing outside is found", func(t *testing.T) { n.finds(t) })
						t.Run("nothing outside is called", func(t *testing.T) { n.calls(t) })
						t.Run("nothing outside is heard of", func(t *testing.T) { n.hearsNothing(t) })
					})
				}
				for _, s := range []*script{inner, outer} {
					for _, method := range []string{"prompts/get", "resources/read", "resources/subscribe", "completion/complete"} {
						if got := s.got(method); len(got) > 0 {
							t.Errorf("%s was reached: %s", s.settings.Name, got[0].raw)
						}
					}
				}
				for _, call := range inner.got("tools/call") {
					if partText(call.Params, "name") != "open" {
						t.Errorf("inner was reached: %s", call.raw)
					}
				}
				if got := outer.got("tools/call"); len(got) > 0 {
					t.Errorf("outer was reached: %s", got[0].raw)
				}
			})
		}
	}
}

// discreet fails the test when an answer names what is outside. asked, which
// errors repeat, does not count.
func discreet(t *testing.T, got message, asked ...string) {
	t.Helper()
	said := got.raw
	for _, one := range asked {
		said = strings.ReplaceAll(said, one, "")
	}
	if strings.Contains(said, outside) || strings.Contains(said, "outer") {
		t.Errorf("the answer to %s names what is outside: %s", asked, got.raw)
	}
}

func failed(got message) bool {
	return got.Error != nil || string(part(got.Result, "isError")) == "true"
}

// calling are the meta-tools that call tools.
func (n *narrow) calling(names []string) (all []string) {
	for _, name := range names {
		if strings.HasSuffix(name, "call_tool") {
			all = append(all, name)
		}
	}
	return all
}

func (n *narrow) inside(t *testing.T) {
	names := n.listed()
	const arguments = `{"path":"<a>","big":12345678901234567890,"f":1.0}`
	asks := []string{toolCall("renamed", arguments)}
	for _, call := range n.calling(names) {
		asks = append(asks, toolCall(call, toolCall("renamed", arguments)), toolCall(call, toolCall("inner.open", arguments)))
	}
	direct := n.exposure == view.ExposureDirect || n.exposure == view.ExposureAuto // so small a view is listed
	if direct != (len(asks) == 1) {
		t.Errorf("tools are called by %v", names)
	}
	for _, params := range asks {
		got := n.ask("tools/call", params)
		if want := `"content":[{"type":"text","text":"done"}],"structuredContent":{"heard":` + arguments + `},"unknown":[1.0]}`; !strings.HasSuffix(string(got.Result), want) {
			t.Errorf("%s = %s\nwant %s", params, got.raw, want)
		}
		calls := n.inner.got("tools/call")
		last := calls[len(calls)-1]
		if name, sent := partText(last.Params, "name"), string(part(last.Params, "arguments")); name != "open" || sent != arguments {
			t.Errorf("the server heard %s", last.raw)
		}
	}
	if !n.runsScripts() {
		return
	}
	for _, source := range []string{`result = call_tool(\"renamed\", path=\"x\")[\"heard\"][\"path\"]`, `result = parallel([{\"tool\": \"inner.open\", \"args\": {\"path\": \"x\"}}])[0][\"result\"][\"heard\"][\"path\"]`} {
		if got := n.ask("tools/call", toolCall("run_script", `{"script":"`+source+`"}`)); !strings.Contains(string(got.Result), `"x"`) || failed(got) {
			t.Errorf("run_script %s = %s", source, got.raw)
		}
	}
}

func (n *narrow) lists(t *testing.T) {
	names := n.listed()
	if !slices.Contains(names, "renamed") {
		t.Errorf("the pinned tool is not listed: %v", names)
	}
	for _, method := range []string{"tools/list", "prompts/list", "resources/list", "resources/templates/list"} {
		discreet(t, n.ask(method, `{}`))
	}
	hello := n.hello
	if n.modern {
		hello = n.ask("server/discover", `{}`)
	}
	discreet(t, hello)
	if instructions := partText(hello.Result, "instructions"); n.exposure != view.ExposureDirect && !strings.Contains(instructions, "Knock first.") {
		t.Errorf("instructions = %q, want those of the server inside among them", instructions)
	}
	for _, capability := range []string{"prompts", "resources", "completions"} {
		if declared := part(part(hello.Result, "capabilities"), capability); declared != nil {
			t.Errorf("%s are declared, which the view does not have: %s", capability, hello.Result)
		}
	}
}

func (n *narrow) finds(t *testing.T) {
	names := n.listed()
	offers := func(name string) bool { return slices.Contains(names, name) }
	asked := []string{`\"outer\"`, `\"outr\"`, `No tool here mentions \"zebra\"`, `\"unmentioned\":[\"zebra\"]`}
	for _, arguments := range []string{
		`{"query":"wipe a zebra"}`, `{"query":"zebra","limit":50,"detail":"name"}`, `{"query":"zebra","kind":"any"}`, `{"query":"zebra","kind":"prompt","detail":"summary"}`,
		`{"query":"zebra","kind":"resource"}`, `{"query":"zebra","server":"outer"}`, `{"query":"zebra","server":"outr"}`, `{"query":"open a door","server":"inner","kind":"any"}`,
	} {
		got := n.ask("tools/call", toolCall("retrieve_tools", arguments))
		discreet(t, got, asked...)
		if !strings.Contains(arguments, "detail") { // which counts what there is
			got = n.ask("tools/call", toolCall("retrieve_tools", strings.Replace(arguments, "{", `{"detail":"full",`, 1)))
		}
		discreet(t, got, asked...)
		if !offers("retrieve_tools") {
			continue
		}
		foreign := strings.Contains(arguments, "out")
		if foreign != failed(got) {
			t.Errorf("retrieve_tools %s = %s", arguments, got.raw)
		}
		if want := `{"tools":1,"servers_ready":1,"servers_pending":0,"servers_failed":0`; !foreign && !strings.Contains(arguments, "detail") && !strings.HasPrefix(string(part(answerOf(got), "index")), want) {
			t.Errorf("retrieve_tools %s counts what is outside: %s", arguments, got.Result)
		}
		if saved := part(answerOf(got), "tokens_saved"); len(saved) > 3 {
			t.Errorf("listing one tool would not cost %s tokens more", saved)
		}
	}
	for _, prefix := range []string{"narrow", "inner", "outer"} {
		for _, query := range []string{`{}`, `{"query":"zebra"}`, `{"query":"open","limit":100}`} {
			name := prefix + "_search_tools"
			got := n.ask("tools/call", toolCall(name, query))
			discreet(t, got, name)
			if offers(name) == failed(got) {
				t.Errorf("%s %s = %s", name, query, got.raw)
			}
			if offers(name) && query != `{"query":"zebra"}` && !strings.Contains(string(got.Result), `renamed`) {
				t.Errorf("%s %s does not find the tool inside: %s", name, query, got.raw)
			}
		}
		describe := prefix + "_describe_tool"
		for _, name := range slices.Concat(outsideTools, outsidePrompts, outsideResources) {
			got := n.ask("tools/call", toolCall(describe, `{"name":"`+name+`"}`))
			discreet(t, got, describe, name)
			if !failed(got) {
				t.Errorf("%s %s = %s", describe, name, got.raw)
			}
		}
		if got := n.ask("tools/call", toolCall(describe, `{"name":"renamed"}`)); offers(describe) && partText(answerOf(got), "name") != "renamed" {
			t.Errorf("%s = %s", describe, got.raw)
		}
	}
	if !n.runsScripts() {
		return
	}
	got := n.ask("tools/call", toolCall("run_script", `{"script":"result = retrieve(\"wipe the zebra\", limit=50)"}`))
	discreet(t, got)
	if failed(got) {
		t.Errorf("retrieve in run_script = %s", got.raw)
	}
}

func (n *narrow) calls(t *testing.T) {
	for _, name := range slices.Concat(outsideTools, outsidePrompts, outsideResources, []string{"inner.open"}) {
		direct := n.ask("tools/call", toolCall(name, `{}`))
		discreet(t, direct, name)
		if !failed(direct) {
			t.Errorf("tools/call %s = %s", name, direct.raw)
		}
		if name == "inner.open" {
			break // of all else it is a name
		}
		for _, call := range []string{"call_tool", "call_tool_read", "call_tool_destructive", "narrow_call_tool", "inner_call_tool", "outer_call_tool"} {
			got := n.ask("tools/call", toolCall(call, toolCall(name, `{}`)))
			discreet(t, got, call, name)
			if !failed(got) {
				t.Errorf("%s %s = %s", call, name, got.raw)
			}
		}
	}
	if n.runsScripts() {
		n.callsInScripts(t)
	}
	refuses := func(method, params, name string) {
		t.Helper()
		got := n.ask(method, params)
		discreet(t, got, name)
		if got.Error == nil {
			t.Errorf("%s %s = %s", method, params, got.raw)
		}
	}
	for _, name := range slices.Concat(outsidePrompts, outsideTools) {
		refuses("prompts/get", `{"name":"`+name+`"}`, name)
		refuses("completion/complete", `{"ref":{"type":"ref/prompt","name":"`+name+`"},"argument":{"name":"x","value":""}}`, name)
	}
	for _, uri := range append(slices.Clone(outsideResources), "inner-zebra://{id}", "outer-zebra://{id}") {
		refuses("resources/read", `{"uri":"`+uri+`"}`, uri)
		refuses("completion/complete", `{"ref":{"type":"ref/resource","uri":"`+uri+`"},"argument":{"name":"x","value":""}}`, uri)
		refuses("resources/subscribe", `{"uri":"`+uri+`"}`, uri)
	}
	if n.modern {
		uris, _ := json.Marshal(outsideResources)
		got := n.ask("subscriptions/listen", `{"notifications":{"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":`+string(uris)+`}}`)
		if got.Result == nil { // it ends at once when there is nothing to wait for
			t.Errorf("listen = %s", got.raw)
		}
		for _, m := range n.got("notifications/subscriptions/acknowledged") {
			discreet(t, m)
		}
	}
}

// runsScripts reports whether the client tries scripts, each of which is a process: what they may call
// is the same for every exposure, era and transport.
func (n *narrow) runsScripts() bool {
	return n.exposure == view.ExposureRetrieve && n.http != nil && !n.modern
}

// callsInScripts has scripts call what is outside: all names at once, and one of each kind by call_tool,
// which ends its script.
func (n *narrow) callsInScripts(t *testing.T) {
	names := slices.Concat(outsideTools, outsidePrompts, outsideResources)
	list, _ := json.Marshal(names)
	got := n.ask("tools/call", toolCall("run_script", `{"script":`+quote(`result = [one["error"] for one in parallel([{"tool": name} for name in `+string(list)+`])]`)+`}`))
	said, _ := contents(got.Result)
	var refused []string
	if len(said) != 1 || json.Unmarshal([]byte(said[0]), &refused) != nil || len(refused) != len(names) {
		t.Fatalf("run_script that calls all in parallel = %s", got.raw)
	}
	for i, name := range names {
		if discreet(t, message{raw: refused[i]}, name); refused[i] == "" {
			t.Errorf("run_script calls %s in parallel", name)
		}
	}
	for _, name := range []string{outsideTools[0], "inner_close_zebra", "inner.close_zebra", outsidePrompts[0], outsideResources[0]} {
		got := n.ask("tools/call", toolCall("run_script", `{"script":"result = call_tool(\"`+name+`\")"}`))
		discreet(t, got, name)
		if !failed(got) {
			t.Errorf("run_script that calls %s = %s", name, got.raw)
		}
	}
}

// hearsNothing changes all of outer, and then the one tool inside: the client
// hears of that alone.
func (n *narrow) hearsNothing(t *testing.T) {
	n.rawClient.t = t
	m := &meeting{rawClient: n.rawClient}
	listening := m.listen(`{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}`)
	if !n.modern {
		if got := n.ask("logging/setLevel", `{"level":"debug"}`); got.Result == nil {
			t.Fatalf("setLevel = %s", got.raw)
		}
	}
	n.clear()
	version := fmt.Sprint(n.modern)
	n.outer.list("tools", `{"name":"wipe_zebra","description":"Wipes a zebra"}`, `{"name":"new_zebra`+version+`"}`)
	n.outer.list("prompts", `{"name":"new_zebra`+version+`"}`)
	n.outer.list("resources", `{"uri":"file:///new/zebra`+version+`","name":"n"}`)
	n.outer.logs(t, "zebra")
	for _, list := range []string{"tools", "prompts", "resources"} {
		n.outer.tell(t, "notifications/"+list+"/list_changed", `{}`)
	}
	eventually(t, func() bool { return slices.Contains(toolsOf(t, n.p, view.Default), "outer_new_zebra"+version) })
	eventually(t, func() bool {
		got := n.outer.got("resources/list")
		return len(got) > 0 && len(n.outer.got("prompts/list")) > 1
	})

	n.inner.list("tools", `{"name":"open","description":"Opens a gate `+version+`","inputSchema":{"type":"object"}}`, `{"name":"close_zebra"}`)
	n.inner.logs(t, "knocked")
	n.inner.tell(t, "notifications/tools/list_changed", `{}`)
	n.hears("notifications/tools/list_changed", listening)
	if !n.modern {
		n.hears("notifications/message", func(params json.RawMessage) bool { return partText(params, "data") == "knocked" })
	}
	if got := n.ask("tools/list", `{}`); !strings.Contains(got.raw, "Opens a gate "+version) {
		t.Errorf("tools/list = %s", got.raw)
	}
	if got := n.got("notifications/tools/list_changed"); len(got) != 1 {
		t.Errorf("%d list_changed, want the one that inner caused", len(got))
	}
	for _, m := range n.got("notifications/message") {
		if m.raw == "" || strings.Contains(m.raw, outside) {
			t.Errorf("heard of outer: %s", m.raw)
		}
	}
	for _, list := range []string{"prompts", "resources"} {
		if got := n.got("notifications/" + list + "/list_changed"); len(got) > 0 {
			t.Errorf("%s changed outside, and the client heard: %s", list, got[0].raw)
		}
	}
}

func TestTasksOfServersOutsideAViewAreNotThere(t *testing.T) {
	const tasks = `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	var scripts []*script
	for _, name := range []string{"inner", "outer"} {
		s := newScript(t, name, true, false)
		s.capabilities = `{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
		s.list("tools", `{"name":"open","inputSchema":{"type":"object"}}`)
		s.on("tools/call", func(r *request) { r.result(`{"resultType":"task","taskId":"1","status":"working"}`) })
		s.on("tasks/get", func(r *request) { r.result(`{"resultType":"complete","taskId":"1","status":"working"}`) })
		scripts = append(scripts, s)
	}
	p, url := openViews(t, "narrow", configOf(t, scripts, narrowed("narrow", view.ExposureDirect)))
	c := newClient(t, p, url, kind{modern: true, stdio: true}, tasks, reply)
	made := partText(c.ask("tools/call", `{"name":"renamed","arguments":{}}`).Result, "taskId")
	if got := c.ask("tasks/get", `{"taskId":"`+made+`"}`); partText(got.Result, "status") != "working" {
		t.Errorf("a task of the server inside, %q: %s", made, got.raw)
	}
	_, proven, _ := strings.Cut(made, "/")
	for _, id := range []string{"outer/1", "outer/" + proven, "%6futer/" + proven, "outer", "1", ""} {
		if got := c.ask("tasks/get", `{"taskId":"`+id+`"}`); got.Error == nil {
			t.Errorf("task %q: %s", id, got.raw)
		}
	}
	if got := scripts[1].got("tasks/get"); len(got) > 0 {
		t.Errorf("the server outside was asked: %s", got[0].raw)
	}
}

func TestASessionOfOneViewIsNoneOfAnothers(t *testing.T) {
	p, url := openViews(t, "", configOf(t, []*script{insider(t), outsider(t)}, narrowed("narrow", view.ExposureDirect), narrowed("other", view.ExposureDirect)))
	ids := map[string]string{}
	for _, name := range []string{"narrow", "other", "default"} {
		ids[name] = newClientAt(t, p, url+"/mcp/"+name, kind{}, `{}`, reply).id
	}
	for _, endpoint := range []string{"narrow", "other", "default"} {
		for owner, id := range ids {
			want := http.StatusNotFound
			if owner == endpoint {
				want = http.StatusOK
			}
			if got := status(t, http.MethodPost, url+"/mcp/"+endpoint, id); got != want {
				t.Errorf("the session of %s at %s: status %d, want %d", owner, endpoint, got, want)
			}
			if owner != endpoint {
				for _, method := range []string{http.MethodGet, http.MethodDelete} {
					if got := status(t, method, url+"/mcp/"+endpoint, id); got != http.StatusNotFound {
						t.Errorf("%s with the session of %s at %s: status %d, want 404", method, owner, endpoint, got)
					}
				}
			}
		}
	}
	if got := status(t, http.MethodPost, url+"/mcp", ids["default"]); got != http.StatusOK {
		t.Errorf("the default view without its name: status %d", got)
	}
	for _, name := range []string{"narro", "Narrow", "inner", "narrow%2f", "narrow/x"} {
		if got := status(t, http.MethodPost, url+"/mcp/"+name, ids["narrow"]); got != http.StatusNotFound {
			t.Errorf("/mcp/%s: status %d, want 404", name, got)
		}
	}
}

// status is that of a tools/list, or of another method without a body.
func status(t *testing.T, method, url, session string, header ...string) int {
	t.Helper()
	body := ""
	if method == http.MethodPost {
		body = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	}
	request, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	request.Header.Set("Mcp-Session-Id", session)
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

// Steps of composite tools and calls of scripts name a tool as anybody may: by ID, with
// a colon, and by the name that it has beside all others.
func TestStepsAndScriptsNameToolsInEveryWay(t *testing.T) {
	s := shop(t, "shop", "hat")
	prefix := "boutique"
	s.settings.Prefix = &prefix
	step := func(key, name string) view.Step {
		return view.Step{Key: key, Tool: name, Args: []byte(`{"size":3}`)}
	}
	v := everything("both", view.ExposureDirect)
	v.RunScript = &view.ScriptLimits{}
	v.Composites = []view.Composite{{Name: "outfit", FailFast: true, Steps: []view.Step{step("a", "shop.hat"), step("b", "shop:hat"), step("c", "boutique_hat")}}}
	p, url := openViews(t, "", configOf(t, []*script{s}, v))
	if problems := p.Problems(); len(problems) > 0 {
		t.Fatal(problems)
	}
	c := viewClient(t, p, url, "both", false)
	want := `{"args":{"size":3}}`
	if got := c.ask("tools/call", toolCall("outfit", `{}`)); string(part(got.Result, "structuredContent")) != `{"a":`+want+`,"b":`+want+`,"c":`+want+`}` {
		t.Errorf("the steps answer %s", got.raw)
	}
	for _, name := range []string{"shop.hat", "shop:hat", "boutique_hat"} {
		code := quote(`result = call_tool("` + name + `", size = 3)`)
		if got := c.ask("tools/call", toolCall("run_script", `{"script":`+code+`}`)); string(part(got.Result, "structuredContent")) != want {
			t.Errorf("a script that calls %s answers %s", name, got.raw)
		}
	}
}

// Calling a meta-tool that a view does not offer says which setting offers it. What a
// view does offer, listed or not, answers.
func TestAMetaToolThatIsNotOfferedSaysWhichSettingOffersIt(t *testing.T) {
	direct, found, bounded := everything("direct", view.ExposureDirect), everything("found", view.ExposureSearch), gated("gated", view.ExposureRetrieve, ample)
	p, url := openViews(t, "", configOf(t, []*script{shop(t, "shop", "hat")}, direct, found, bounded))
	gating := []string{"discover_tools", "provision_tools", "unprovision_tools", "list_provisioned", "execute_tool"}
	others := []string{"search_tools", "describe_tool", "proxy", "run_script", "call_tool_read"}
	for name, absent := range map[string][]string{
		"default": slices.Concat(gating, others, []string{"found_search_tools"}),
		"direct":  slices.Concat(gating, others, []string{"retrieve_tools", "call_tool", "found_call_tool", "found_search_tools"}),
		"found":   slices.Concat(gating, others, []string{"call_tool"}),
		"gated":   slices.Concat(others, []string{"found_search_tools"}),
	} {
		c := viewClient(t, p, url, name, false)
		for _, meta := range absent {
			if got := c.ask("tools/call", toolCall(meta, `{}`)); !strings.Contains(string(got.raw), meta+" is offered with ") {
				t.Errorf("%s: %s answers %s", name, meta, got.raw)
			}
		}
		for _, meta := range slices.Concat(gating, others, []string{"retrieve_tools", "call_tool", "found_search_tools"}) {
			if got := c.ask("tools/call", toolCall(meta, `{}`)); !slices.Contains(absent, meta) && strings.Contains(string(got.raw), "is offered with") {
				t.Errorf("%s: %s is offered and answers %s", name, meta, got.raw)
			}
		}
	}
}
