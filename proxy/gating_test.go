package proxy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"toolfinch/configs"
	"toolfinch/internal/fetch"
	"toolfinch/proxy"
	"toolfinch/tool"
	"toolfinch/view"
)

// provisioning is how the meta-tools of a gated view are listed.
var provisioning = []string{"discover_tools", "provision_tools", "unprovision_tools", "execute_tool", "list_provisioned"}

// ample is a budget that the tests do not reach.
var ample = view.Gating{MaxTokens: 10_000, MaxTools: 20}

// gated is a view of all tools, each to be provisioned before it is called.
func gated(name string, exposure view.Exposure, budget view.Gating) view.Settings {
	v := everything(name, exposure)
	v.Gating = &budget
	return v
}

// wares is an upstream with a tool of each kind, a prompt and a resource.
func wares(t testing.TB) *script {
	s := shop(t, "shop")
	s.list("tools",
		`{"name":"look","description":"Looks at a ware","inputSchema":{"type":"object","properties":{"size":{"type":"integer"}}},"annotations":{"readOnlyHint":true}}`,
		`{"name":"put","description":"Puts a ware back","inputSchema":{"type":"object","properties":{"size":{"type":"integer"}}},"annotations":{"destructiveHint":false}}`,
		`{"name":"burn","description":"Burns a ware","inputSchema":{"type":"object","properties":{"size":{"type":"integer"}}}}`)
	s.list("prompts", `{"name":"greet"}`)
	s.list("resources", `{"uri":"file:///note","name":"note"}`)
	s.on("prompts/get", func(r *request) {
		r.result(`{"messages":[{"role":"user","content":{"type":"text","text":"good day"}}]}`)
	})
	s.on("resources/read", func(r *request) { r.result(`{"contents":[{"uri":"file:///note","text":"a note"}]}`) })
	return s
}

// notProvisioned is what the gate answers.
func notProvisioned(name string) string {
	return "Tool " + name + " not provisioned. Use provision_tools first."
}

// does calls a meta-tool that must succeed, and returns its structured content.
func (c *rawClient) does(t testing.TB, name, arguments string) json.RawMessage {
	t.Helper()
	got := c.ask("tools/call", toolCall(name, arguments))
	if failed(got) {
		t.Fatalf("%s %s = %s", name, arguments, got.raw)
	}
	return answerOf(got)
}

// answerOf is the JSON that a meta-tool answers with, in its text.
func answerOf(got message) json.RawMessage {
	if texts, _ := contents(got.Result); len(texts) == 1 && json.Valid([]byte(texts[0])) {
		return json.RawMessage(texts[0])
	}
	return part(got.Result, "structuredContent")
}

func (c *rawClient) provisions(t testing.TB, names ...string) json.RawMessage {
	t.Helper()
	ids, _ := json.Marshal(names)
	return c.does(t, "provision_tools", `{"tool_ids":`+string(ids)+`}`)
}

// calls fails the test unless the client can call the tool just then when it may.
func (c *rawClient) calls(t testing.TB, who, name string, may bool) {
	t.Helper()
	got := c.ask("tools/call", toolCall(name, `{"size":1}`))
	texts, _ := contents(got.Result)
	if failed(got) == may || !may && !slices.Equal(texts, []string{notProvisioned(name)}) {
		t.Errorf("%s calls %s: %s\nwhich is to pass: %t", who, name, got.raw, may)
	}
}

// idsOf are the tools in a member of an answer.
func idsOf(answer json.RawMessage, member string) (ids []string) {
	var all []json.RawMessage
	_ = json.Unmarshal(part(answer, member), &all)
	for _, one := range all {
		ids = append(ids, partText(one, "tool_id"))
	}
	return ids
}

// number is a member that is a number, below those named before it.
func number(t testing.TB, object json.RawMessage, path ...string) (n int) {
	t.Helper()
	for _, key := range path {
		object = part(object, key)
	}
	if err := json.Unmarshal(object, &n); err != nil {
		t.Errorf("%v is %q", path, object)
	}
	return n
}

// posted sends what is written to it to the message endpoint of HTTP+SSE.
type posted struct {
	t    testing.TB
	life context.Context // of the stream that the endpoint belongs to
	url  string
}

func (p posted) Write(message []byte) (int, error) {
	response, err := http.Post(p.url, "application/json", strings.NewReader(string(message)))
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); (err != nil || response.StatusCode/100 != 2) && p.life.Err() == nil {
		p.t.Errorf("a message over HTTP+SSE: status %d, %v", response.StatusCode, err)
	}
	return len(message), nil
}

// newSSE is a legacy client over HTTP+SSE, where the default view is served.
func newSSE(t testing.TB, url string) *rawClient {
	t.Helper()
	life, end := context.WithCancel(context.Background())
	c := &rawClient{t: t, life: life, capabilities: `{}`, answer: reply, waiting: map[string]chan message{}}
	request, err := http.NewRequestWithContext(life, http.MethodGet, url+"/sse", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	endpoint := make(chan string, 1)
	c.work.Go(func() {
		defer c.over()
		defer response.Body.Close()
		defer close(endpoint)
		named := ""
		for in := bufio.NewReader(response.Body); ; {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			if event, ok := strings.CutPrefix(line, "event: "); ok {
				named = strings.TrimSpace(event)
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok && named == "endpoint" {
				endpoint <- strings.TrimSpace(data)
			} else if ok {
				c.take(parse([]byte(strings.TrimSpace(data))))
			}
		}
	})
	t.Cleanup(func() {
		end()
		c.work.Wait()
	})
	c.lines = posted{t, life, url + <-endpoint}
	c.hello = c.ask("initialize", `{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}`)
	if c.hello.Result == nil {
		t.Fatalf("initialize: %s", c.hello.raw)
	}
	c.tell("notifications/initialized", `{}`)
	return c
}

// rest asks the REST API. Headers are "Name: value".
func rest(t testing.TB, method, url, body string, headers ...string) (status int, answer string) {
	t.Helper()
	got := fetch.Send(t, method, url, body, headers...)
	return got.Status, got.Body
}

// way is one way to call a tool.
type way struct {
	name string
	call func(t testing.TB, tool, arguments string) (answer string, failed bool)
	bare bool // answer is what was said; else it has that in it
}

func quote(s string) string {
	quoted, _ := json.Marshal(s)
	return string(quoted)
}

// through is a way by a meta-tool.
func (c *rawClient) through(name string, bare bool, params func(tool, arguments string) string) way {
	return way{name, func(t testing.TB, tool, arguments string) (string, bool) {
		got := c.ask("tools/call", params(tool, arguments))
		if !bare {
			return got.raw, failed(got)
		}
		texts, _ := contents(got.Result)
		return strings.Join(texts, "\n"), failed(got)
	}, bare}
}

// byName are the ways by a tool that takes a name and arguments.
func (c *rawClient) byName(meta, key string, id func(tool string) string) way {
	return c.through(meta+" of "+id("shop_x"), true, func(tool, arguments string) string {
		return toolCall(meta, `{"`+key+`":`+quote(id(tool))+`,"arguments":`+arguments+`}`)
	})
}

// A tool of a server shop has two names.
func asExposed(tool string) string { return tool }
func asID(tool string) string      { return strings.Replace(tool, "_", ".", 1) }

func (c *rawClient) ways(callers ...string) (all []way) {
	all = append(all,
		c.through("tools/call", true, toolCall),
		c.byName("execute_tool", "tool_id", asExposed),
		c.through("execute_tool with text", true, func(tool, arguments string) string {
			return toolCall("execute_tool", `{"tool_id":`+quote(tool)+`,"arguments":`+quote(arguments)+`}`)
		}),
		c.through("proxy call", false, func(tool, arguments string) string {
			return toolCall("proxy", `{"action":"call","type":"tool","path":`+quote(tool)+`,"args":`+arguments+`}`)
		}),
		c.through("proxy batch", false, func(tool, arguments string) string {
			return toolCall("proxy", `{"action":"batch","operations":[{"action":"list","type":"tool"},{"action":"call","type":"tool","path":`+quote(tool)+`,"args":`+arguments+`}]}`)
		}),
	)
	for _, caller := range callers {
		all = append(all, c.byName(caller, "name", asExposed), c.byName(caller, "name", asID))
	}
	return all
}

// byScript are the ways by run_script, each of which starts a process.
func (c *rawClient) byScript() []way {
	return []way{
		c.through("run_script", false, func(tool, arguments string) string {
			return toolCall("run_script", `{"script":`+quote(`result = call_tool("`+tool+`", `+arguments+`)`)+`}`)
		}),
		c.through("run_script in parallel", false, func(tool, arguments string) string {
			return toolCall("run_script", `{"script":`+quote(`result = parallel([{"tool": "`+asID(tool)+`", "args": `+arguments+`}])`)+`}`)
		}),
	}
}

// overREST is the way through the REST API.
func overREST(url, viewName string, headers ...string) way {
	return way{"REST", func(t testing.TB, tool, arguments string) (string, bool) {
		status, answer := rest(t, http.MethodPost, url+"/api/proxy/execute?view="+viewName, `{"tool_id":`+quote(tool)+`,"arguments":`+arguments+`}`, headers...)
		if status != http.StatusOK && status != http.StatusBadRequest {
			t.Errorf("status %d %s", status, answer)
		}
		return partText([]byte(answer), "detail"), status != http.StatusOK
	}, true}
}

// tryAll calls a tool in all ways. Where it may not be called the upstream hears
// nothing of it.
func tryAll(t *testing.T, up *script, ways []way, tool string, may bool) {
	t.Helper()
	own := strings.TrimPrefix(tool, "shop_")
	for i, w := range ways {
		before := len(up.got("tools/call"))
		arguments := fmt.Sprintf(`{"size":%d}`, i)
		answer, failed := w.call(t, tool, arguments)
		heard := up.got("tools/call")[before:]
		switch {
		case may && (failed && w.bare || strings.Contains(answer, "not provisioned")):
			t.Errorf("%s of %s, which is provisioned: %s", w.name, tool, answer)
		case may && (len(heard) != 1 || partText(heard[0].Params, "name") != own || string(part(heard[0].Params, "arguments")) != arguments):
			t.Errorf("%s of %s: the server heard %v; the answer is %s", w.name, tool, heard, answer)
		case may:
		case len(heard) > 0:
			t.Errorf("%s of %s, which is not provisioned, reached the server: %s", w.name, tool, heard[0].raw)
		case w.bare && (!failed || answer != notProvisioned(tool)), !strings.Contains(answer, notProvisioned(tool)):
			t.Errorf("%s of %s = %s\nwant %s", w.name, tool, answer, notProvisioned(tool))
		}
	}
}

// throughTheGate calls a tool in all ways before, while and after it is
// provisioned, and another one that is not.
func throughTheGate(t *testing.T, up *script, c *rawClient, ways []way, tool, other string) {
	t.Helper()
	tryAll(t, up, ways, tool, false)
	c.provisions(t, tool)
	tryAll(t, up, ways, tool, true)
	tryAll(t, up, ways, other, false)
	c.does(t, "unprovision_tools", `{"tool_ids":["`+tool+`"]}`)
	tryAll(t, up, ways, tool, false)
}

func TestTheGateHoldsHoweverAToolIsCalled(t *testing.T) {
	t.Parallel()
	up := wares(t)
	var views []view.Settings
	for name, exposure := range map[string]view.Exposure{
		view.Default: view.ExposureRetrieve, "auto": view.ExposureAuto, "find": view.ExposureSearch, "each": view.ExposureSearchPerServer,
	} {
		v := gated(name, exposure, ample)
		if v.ProxyTool = "proxy"; name == view.Default {
			v.RunScript = &view.ScriptLimits{}
		}
		views = append(views, v)
	}
	config := configOf(t, []*script{up}, views...)
	config.REST = true
	p, url := openViews(t, "", config)
	callers := map[string]string{view.Default: "call_tool", "auto": "call_tool", "find": "find_call_tool", "each": "shop_call_tool"}

	for name, caller := range callers {
		for _, modern := range []bool{false, true} {
			t.Run(name+", "+kind{modern: modern}.String(), func(t *testing.T) {
				c := viewClient(t, p, url, name, modern)
				var session []string
				if !modern {
					session = []string{"Mcp-Session-Id: " + c.id}
				}
				ways := append(c.ways(caller), overREST(url, name, session...))
				if name == view.Default {
					ways = append(ways, c.byScript()...)
				}
				throughTheGate(t, up, c, ways, "shop_look", "shop_put")
			})
		}
	}
	for _, modern := range []bool{false, true} {
		k := kind{modern: modern, stdio: true}
		t.Run(k.String(), func(t *testing.T) {
			c := newClient(t, p, url, k, `{}`, reply)
			throughTheGate(t, up, c, c.ways("call_tool"), "shop_look", "shop_burn")
		})
	}
	t.Run("HTTP+SSE", func(t *testing.T) {
		c := newSSE(t, url)
		throughTheGate(t, up, c, c.ways("call_tool"), "shop_look", "shop_burn")
		if names := c.listed(); slices.Contains(names, "shop_look") {
			t.Errorf("listed are %v", names)
		}
	})
}

func TestTheGateHoldsForEachOfTheSplitCallTools(t *testing.T) {
	t.Parallel()
	up := wares(t)
	config := configOf(t, []*script{up}, gated(view.Default, view.ExposureRetrieve, ample))
	config.CallTool = configs.CallToolSplit
	p, url := openViews(t, "", config)
	for caller, tool := range map[string]string{"call_tool_read": "shop_look", "call_tool_write": "shop_put", "call_tool_destructive": "shop_burn"} {
		for _, modern := range []bool{false, true} {
			t.Run(caller+", "+kind{modern: modern}.String(), func(t *testing.T) {
				c := viewClient(t, p, url, view.Default, modern)
				ways := []way{c.byName(caller, "name", asExposed), c.byName(caller, "name", asID)}
				tryAll(t, up, ways, tool, false)
				c.provisions(t, tool)
				tryAll(t, up, ways, tool, true)
				c.does(t, "unprovision_tools", `{"all":true}`)
				tryAll(t, up, ways, tool, false)
			})
		}
	}
}

// A composite tool is the owner's: it is provisioned like any other, and what it
// calls need not be.
func TestStepsOfTheOwnersToolsPassTheGate(t *testing.T) {
	t.Parallel()
	up := wares(t)
	v := gated("own", view.ExposureRetrieve, ample)
	v.Composites = []view.Composite{{Name: "both", Steps: []view.Step{
		{Key: "a", Tool: "shop.look", Args: []byte(`{"size":1}`)}, {Key: "b", Tool: "shop.burn", Args: []byte(`{"size":2}`)},
	}}}
	p, url := openViews(t, "", configOf(t, []*script{up}, v))
	c := viewClient(t, p, url, "own", false)
	c.calls(t, "the session", "both", false)
	if got := c.provisions(t, "both"); !slices.Equal(idsOf(got, "provisioned"), []string{"both"}) {
		t.Errorf("provisioned are %s", got)
	}
	if got := c.does(t, "both", `{}`); !strings.Contains(string(got), `{"args":{"size":1}}`) || !strings.Contains(string(got), `{"args":{"size":2}}`) {
		t.Errorf("the steps answer %s", got)
	}
	c.calls(t, "the session", "shop_look", false)
	c.calls(t, "the session", "shop_burn", false)
}

func TestPromptsResourcesAndPinnedToolsAreNotGated(t *testing.T) {
	t.Parallel()
	up := wares(t)
	v := gated(view.Default, view.ExposureRetrieve, view.Gating{MaxTools: 1, MaxTokens: 10_000})
	v.ProxyTool = "proxy"
	config := configOf(t, []*script{up}, v)
	config.Pinned = []string{"shop_look"}
	p, url := openViews(t, "", config)
	for _, modern := range []bool{false, true} {
		t.Run(kind{modern: modern}.String(), func(t *testing.T) {
			c := viewClient(t, p, url, view.Default, modern)
			for _, one := range []struct{ method, params, want string }{
				{"prompts/get", `{"name":"shop_greet"}`, "good day"},
				{"resources/read", `{"uri":"file:///note"}`, "a note"},
				{"tools/call", toolCall("call_tool", toolCall("shop_greet", `{}`)), "good day"},
				{"tools/call", toolCall("call_tool", toolCall("file:///note", `{}`)), "a note"},
				{"tools/call", toolCall("proxy", `{"action":"call","type":"prompt","path":"shop_greet"}`), "good day"},
				{"tools/call", toolCall("proxy", `{"action":"call","type":"resource","path":"file:///note"}`), "a note"},
			} {
				if got := c.ask(one.method, one.params); failed(got) || !strings.Contains(got.raw, one.want) {
					t.Errorf("%s %s = %s", one.method, one.params, got.raw)
				}
			}
			if names := c.listed(); !slices.Contains(names, "shop_look") {
				t.Errorf("the pinned tool is not listed: %v", names)
			}
			c.calls(t, "anybody", "shop_look", true)
			got := c.provisions(t, "shop_look", "shop_put") // a budget of one tool
			if n := number(t, got, "usage", "tools"); n != 1 {
				t.Errorf("the pinned tool counts: %s", got)
			}
			c.does(t, "unprovision_tools", `{"all":true}`)
			c.calls(t, "anybody", "shop_look", true)
			c.calls(t, "anybody", "shop_put", false)
		})
	}
}

func TestListsOfGatedViews(t *testing.T) {
	t.Parallel()
	up := wares(t)
	p, url := openViews(t, "", configOf(t, []*script{up},
		gated(view.Default, view.ExposureRetrieve, ample), gated("auto", view.ExposureAuto, ample),
		gated("find", view.ExposureSearch, ample), gated("each", view.ExposureSearchPerServer, ample)))
	trio := func(prefix string) []string {
		return []string{prefix + "_search_tools", prefix + "_describe_tool", prefix + "_call_tool", "retrieve_tools"}
	}
	for name, before := range map[string][]string{view.Default: nil, "auto": nil, "find": trio("find"), "each": trio("shop")} {
		for _, modern := range []bool{false, true} {
			t.Run(name+", "+kind{modern: modern}.String(), func(t *testing.T) {
				c := viewClient(t, p, url, name, modern)
				want := slices.Concat(before, provisioning)
				first := c.ask("tools/list", `{}`)
				if got := c.listed(); !slices.Equal(got, want) {
					t.Fatalf("listed are %v, want %v", got, want)
				}
				if before == nil { // not listed, and there
					got := c.does(t, "retrieve_tools", `{"query":"look at a ware","detail":"full"}`)
					if !strings.Contains(string(got), `"shop_look"`) || strings.Contains(string(got), `"registered":true`) {
						t.Errorf("retrieve_tools = %s", got)
					}
				}
				if got := c.listed(); !slices.Equal(got, want) {
					t.Errorf("a search lists %v", got)
				}
				c.clear()

				answer := c.provisions(t, "shop_look", "shop_burn")
				heard := c.got("notifications/tools/list_changed")
				if modern {
					if got := c.ask("tools/list", `{}`); string(got.Result) != string(first.Result) {
						t.Errorf("the list of a client that is nobody varies:\n%s\nwas\n%s", got.Result, first.Result)
					}
				} else {
					if len(heard) != 1 { // the answer waits for the client to list anew
						t.Errorf("when the answer came the client had heard %d list_changed", len(heard))
					}
					if got := c.listed(); !slices.Equal(got, append(want, "shop_look", "shop_burn")) {
						t.Errorf("listed are %v", got)
					}
				}
				for i, id := range []string{"shop_look", "shop_burn"} {
					var all []json.RawMessage
					_ = json.Unmarshal(part(answer, "provisioned"), &all)
					if i >= len(all) || partText(part(all[i], "definition"), "name") != id || part(part(all[i], "definition"), "inputSchema") == nil {
						t.Errorf("the answer does not carry the definition of %s: %s", id, answer)
					} else if cost := number(t, all[i], "tokens"); cost != tool.CountTokens(part(all[i], "definition")) {
						t.Errorf("%s is said to cost %d tokens, want what its definition takes: %d", id, cost, tool.CountTokens(part(all[i], "definition")))
					}
				}
				if before == nil {
					if got := c.does(t, "retrieve_tools", `{"query":"look at a ware","limit":1,"detail":"full"}`); !strings.Contains(string(got), `"registered":true`) {
						t.Errorf("retrieve_tools does not say that the tool can be called: %s", got)
					}
				}
				got := c.does(t, "list_provisioned", `{}`)
				if !slices.Equal(idsOf(got, "provisioned"), []string{"shop_look", "shop_burn"}) || number(t, got, "usage", "tools") != 2 || number(t, got, "budget", "max_tokens") != ample.MaxTokens {
					t.Errorf("list_provisioned = %s", got)
				}
				found := c.does(t, "discover_tools", `{}`)
				for _, one := range []string{`"tool_id":"shop_look"`, `"provisioned":true`, `"provisioned":false`} {
					if !strings.Contains(string(found), one) {
						t.Errorf("discover_tools = %s\nwant in it %s", found, one)
					}
				}
				got = c.does(t, "unprovision_tools", `{"all":true}`)
				if !slices.Equal(idsOf(got, "unprovisioned"), []string{"shop_look", "shop_burn"}) || number(t, got, "usage", "tokens") != 0 {
					t.Errorf("unprovision_tools = %s", got)
				}
				eventually(t, func() bool { return modern || len(c.got("notifications/tools/list_changed")) == 2 })
				if got := c.listed(); !slices.Equal(got, want) {
					t.Errorf("in the end listed are %v", got)
				}
			})
		}
	}
}

// userClient is a client behind a reverse proxy that says who its user is.
func userClient(t testing.TB, p *proxy.Proxy, url, user string, modern bool) *rawClient {
	t.Helper()
	c := newClientAt(t, p, url+"/mcp/"+view.Default, kind{modern: modern, user: user}, `{}`, reply)
	c.listed()
	return c
}

func TestAPrincipalHasOneSetInAllItsSessions(t *testing.T) {
	t.Parallel()
	up := wares(t)
	config := configOf(t, []*script{up}, gated(view.Default, view.ExposureRetrieve, ample))
	config.PrincipalHeader, config.REST = "X-User", true
	p, url := openViews(t, "", config)
	clients := map[string]*rawClient{
		"ann":            userClient(t, p, url, "ann", false),
		"ann elsewhere":  userClient(t, p, url, "ann", false),
		"ann, stateless": userClient(t, p, url, "ann", true),
		"bob":            userClient(t, p, url, "bob", false),
		"bob, stateless": userClient(t, p, url, "bob", true),
		"a session":      viewClient(t, p, url, view.Default, false),
		"nobody":         viewClient(t, p, url, view.Default, true),
	}
	clients["a session"].listed()
	for who, c := range clients {
		if c.modern {
			(&meeting{rawClient: c}).listen(`{"toolsListChanged":true}`)
		}
		c.clear()
		c.calls(t, who, "shop_look", false)
	}
	first := map[string]string{}
	for who, c := range clients {
		first[who] = string(c.ask("tools/list", `{}`).Result)
	}
	clients["ann"].provisions(t, "shop_look")
	for who, c := range clients {
		is := strings.HasPrefix(who, "ann")
		c.calls(t, who, "shop_look", is)
		if names := c.listed(); slices.Contains(names, "shop_look") != is {
			t.Errorf("%s is listed %v", who, names)
		}
		if is {
			c.hears("notifications/tools/list_changed", nil)
		} else if now := string(c.ask("tools/list", `{}`).Result); now != first[who] {
			t.Errorf("the list of %s varies: %s\nwas %s", who, now, first[who])
		}
		if scope := partText(c.ask("tools/list", `{}`).Result, "cacheScope"); c.modern && scope != "private" {
			t.Errorf("the list of %s may be cached for others: %q", who, scope)
		}
		if got := c.does(t, "list_provisioned", `{}`); (len(idsOf(got, "provisioned")) == 1) != is {
			t.Errorf("%s has provisioned %s", who, got)
		}
	}
	const execute = `{"tool_id":"shop_look","arguments":{}}`
	for _, one := range []struct {
		headers []string
		want    int
	}{
		{[]string{"X-User: ann"}, 200}, {[]string{"X-User: bob"}, 400}, {nil, 400}, {[]string{"Mcp-Session-Id: " + clients["bob"].id}, 400},
		// A session that ann uses is not ann: the header says who asks.
		{[]string{"Mcp-Session-Id: " + clients["ann"].id}, 400},
	} {
		if status, answer := rest(t, http.MethodPost, url+"/api/proxy/execute", execute, one.headers...); status != one.want {
			t.Errorf("REST with %v: %d %s, want %d", one.headers, status, answer, one.want)
		}
	}

	t.Run("nobody's set is everybody's who is nobody, and not listed", func(t *testing.T) {
		clients["nobody"].provisions(t, "shop_put")
		for who, c := range clients {
			c.calls(t, who, "shop_put", who == "nobody")
			if names := c.listed(); slices.Contains(names, "shop_put") {
				t.Errorf("%s is listed %v", who, names)
			}
		}
		viewClient(t, p, url, view.Default, true).calls(t, "another that is nobody", "shop_put", true)
	})
	t.Run("a user may be called as others' sets are", func(t *testing.T) {
		id := clients["a session"].id
		clients["a session"].provisions(t, "shop_look")
		for _, user := range []string{"anonymous", "session " + id, id, "principal ann", "Ann"} {
			c := userClient(t, p, url, user, true)
			for _, name := range []string{"shop_look", "shop_put"} {
				c.calls(t, user, name, false)
			}
			if names := c.listed(); !slices.Equal(names, provisioning) {
				t.Errorf("%q is listed %v", user, names)
			}
		}
	})
}

func TestTheSetOfASessionEndsWithIt(t *testing.T) {
	t.Parallel()
	up := wares(t)
	config := configOf(t, []*script{up}, gated(view.Default, view.ExposureRetrieve, ample))
	config.REST = true
	p, url := openViews(t, "", config)
	c, other := viewClient(t, p, url, view.Default, false), viewClient(t, p, url, view.Default, false)
	c.provisions(t, "shop_look")
	c.calls(t, "the session", "shop_look", true)
	other.calls(t, "another session", "shop_look", false)
	of := "Mcp-Session-Id: " + c.id
	const execute = `{"tool_id":"shop_look","arguments":{}}`
	if status, answer := rest(t, http.MethodPost, url+"/api/proxy/execute", execute, of); status != 200 {
		t.Errorf("REST in the session: %d %s", status, answer)
	}
	if got := status(t, http.MethodDelete, c.url, c.id); got/100 != 2 {
		t.Fatalf("DELETE: status %d", got)
	}
	c.id = ""
	for _, header := range []string{of, "Mcp-Session-Id: forged"} {
		if status, answer := rest(t, http.MethodPost, url+"/api/proxy/execute", execute, header); status != 400 || !strings.Contains(answer, "unknown session") {
			t.Errorf("REST in no session: %d %s", status, answer)
		}
	}
	viewClient(t, p, url, view.Default, false).calls(t, "the next session", "shop_look", false)
}

// serveUntil runs a proxy until stop.
func serveUntil(t *testing.T, config *configs.Config) (p *proxy.Proxy, url string, stop func()) {
	t.Helper()
	p = opened(t, config)
	url, stop = runUntil(t, p)
	return p, url, stop
}

func TestSetsSurviveARestart(t *testing.T) {
	t.Parallel()
	up := wares(t)
	config := configOf(t, []*script{up}, gated(view.Default, view.ExposureRetrieve, ample), gated("other", view.ExposureRetrieve, ample))
	config.PrincipalHeader = "X-User"
	t.Run("before", func(t *testing.T) {
		p, url, stop := serveUntil(t, config)
		eventually(t, func() bool { return p.Tools() == 3 && len(toolsOf(t, p, "other")) == 3 })
		userClient(t, p, url, "ann", false).provisions(t, "shop_burn", "shop_look")
		userClient(t, p, url, "bob", true).provisions(t, "shop_put")
		viewClient(t, p, url, view.Default, true).provisions(t, "shop_look")
		viewClient(t, p, url, view.Default, false).provisions(t, "shop_look") // of a session
		userClient(t, p, url, "gone", true).provisions(t, "shop_look")
		userClient(t, p, url, "gone", true).does(t, "unprovision_tools", `{"all":true}`)
		stop()
	})
	t.Run("after", func(t *testing.T) {
		p, url, _ := serveUntil(t, config)
		for _, one := range []struct {
			user  string
			wants []string
		}{{"ann", []string{"shop_burn", "shop_look"}}, {"bob", []string{"shop_put"}}, {"gone", nil}} {
			for _, modern := range []bool{false, true} {
				c := userClient(t, p, url, one.user, modern)
				if got := c.listed(); !slices.Equal(got, append(slices.Clone(provisioning), one.wants...)) {
					t.Errorf("%s is listed %v", one.user, got)
				}
				for _, name := range []string{"shop_look", "shop_put", "shop_burn"} {
					c.calls(t, one.user, name, slices.Contains(one.wants, name))
				}
			}
		}
		nobody := viewClient(t, p, url, view.Default, true)
		nobody.calls(t, "nobody", "shop_look", true)
		nobody.calls(t, "nobody", "shop_put", false)
		viewClient(t, p, url, view.Default, false).calls(t, "a session", "shop_look", false)
		in := viewClient(t, p, url, "other", true)
		in.header = [2]string{"X-User", "ann"}
		in.calls(t, "ann in another view", "shop_look", false)
	})
}

func TestForgedIDsAreRefused(t *testing.T) {
	t.Parallel()
	up := wares(t)
	up.list("tools", append(up.lists["tools"], `{"name":"look_up_all","description":"Looks up all"}`)...)
	one, two := shop(t, "a", "b_c"), shop(t, "a_b", "c") // both would be a_b_c
	config := configOf(t, []*script{up, one, two}, gated(view.Default, view.ExposureRetrieve, ample))
	config.REST = true
	p, url := openViews(t, "", config)
	c := viewClient(t, p, url, view.Default, false)
	session := "Mcp-Session-Id: " + c.id
	c.provisions(t, "shop_look", "shop_look_up_all")
	c.calls(t, "the session", "shop_look_up_all", true)
	set := string(c.does(t, "list_provisioned", `{}`))
	heard := len(up.got("tools/call"))

	for _, id := range []string{
		"shop.loook", "look", "shop_loook", "shop__look", "SHOP_LOOK", "shop_look ", " shop_look", "shop_look\u0000", "shop_look/../burn", "shop/look", "shop:loook", "shop.look ", "shop:", ".look",
		"a_b_c", "execute_tool", "provision_tools", "retrieve_tools", "call_tool", "toolfinch.execute_tool", "shop_greet", "file:///note", "other_look", "_", "{}", "*", "shop_*",
	} {
		begins := unknownID(id)
		for meta, arguments := range map[string]string{
			"execute_tool":      `{"tool_id":` + quote(id) + `,"arguments":{}}`,
			"provision_tools":   `{"tool_ids":["shop_burn",` + quote(id) + `]}`,
			"unprovision_tools": `{"tool_ids":["shop_look",` + quote(id) + `]}`,
		} {
			got := c.ask("tools/call", toolCall(meta, arguments))
			texts, _ := contents(got.Result)
			if said := strings.Join(texts, "\n"); !failed(got) || !strings.HasPrefix(said, begins) || said != begins && !strings.HasPrefix(said, begins+". Nearest: ") && !strings.HasPrefix(said, begins+"; it is a tool of toolfinch itself") {
				t.Errorf("%s %s = %s", meta, arguments, got.raw)
			}
		}
		for path, body := range map[string]string{
			"/api/proxy/execute":   `{"tool_id":` + quote(id) + `,"arguments":{}}`,
			"/api/tools/provision": `{"tool_ids":["shop_burn",` + quote(id) + `]}`,
		} {
			if status, answer := rest(t, http.MethodPost, url+path, body, session); status != 400 || !strings.HasPrefix(partText([]byte(answer), "detail"), begins) {
				t.Errorf("%s %s: %d %s", path, body, status, answer)
			}
		}
	}
	if now := string(c.does(t, "list_provisioned", `{}`)); now != set {
		t.Errorf("provisioned are now %s\nwere %s", now, set)
	}
	if got := up.got("tools/call"); len(got) != heard {
		t.Errorf("the server was reached: %s", got[heard].raw)
	}

	t.Run("of two tools that would be called alike", func(t *testing.T) {
		var alike []string
		for _, name := range toolsOf(t, p, view.Default) {
			if strings.HasPrefix(name, "a_b_c") {
				alike = append(alike, name)
			}
		}
		if len(alike) != 2 {
			t.Fatalf("they are %v", alike)
		}
		c.provisions(t, alike[0])
		c.calls(t, "the session", alike[0], true)
		c.calls(t, "the session", alike[1], false)
	})
}

func TestReloadsChangeTheGate(t *testing.T) {
	t.Parallel()
	up := wares(t)
	open := everything(view.Default, view.ExposureRetrieve)
	config := configOf(t, []*script{up}, open)
	config.PrincipalHeader, config.REST = "X-User", true
	p, url := openViews(t, "", config)
	c, ann := viewClient(t, p, url, view.Default, false), userClient(t, p, url, "ann", true)
	listening := (&meeting{rawClient: ann}).listen(`{"toolsListChanged":true}`)
	c.does(t, "retrieve_tools", `{"query":"look at a ware","limit":1}`)
	c.calls(t, "before there is a gate", "shop_burn", true)
	for _, meta := range provisioning {
		if got := c.ask("tools/call", toolCall(meta, `{"tool_ids":["shop_look"],"tool_id":"shop_look"}`)); !failed(got) {
			t.Errorf("without a gate there is %s: %s", meta, got.raw)
		}
	}
	if status, answer := rest(t, http.MethodPost, url+"/api/tools/provision", `{"tool_ids":["shop_look"]}`); status != 409 || !strings.Contains(answer, "not gated") {
		t.Errorf("REST without a gate: %d %s", status, answer)
	}
	if status, answer := rest(t, http.MethodPost, url+"/api/proxy/execute", `{"tool_id":"shop_look"}`); status != 200 {
		t.Errorf("REST without a gate: %d %s", status, answer)
	}

	change := func(t *testing.T, v view.Settings) {
		t.Helper()
		c.listed()
		c.clear()
		ann.clear()
		reload(t, p, edited(config, v))
	}
	told := func(t *testing.T) {
		t.Helper()
		c.hears("notifications/tools/list_changed", nil)
		ann.hears("notifications/tools/list_changed", listening)
	}
	change(t, gated(view.Default, view.ExposureRetrieve, ample))
	told(t)
	if got := c.listed(); !slices.Equal(got, provisioning) {
		t.Errorf("with a gate listed are %v: what was registered stays", got)
	}
	for _, name := range []string{"shop_look", "shop_burn"} {
		c.calls(t, "with a gate", name, false)
	}
	c.provisions(t, "shop_look", "shop_burn")
	ann.provisions(t, "shop_put")

	change(t, gated(view.Default, view.ExposureRetrieve, view.Gating{MaxTools: 1}))
	c.calls(t, "with less of a budget", "shop_burn", true) // it takes nothing away
	if got := c.ask("tools/call", toolCall("provision_tools", `{"tool_ids":["shop_put"]}`)); !failed(got) || !strings.Contains(got.raw, "the budget is 1 tool ") {
		t.Errorf("provision_tools with less of a budget = %s", got.raw)
	}

	change(t, open)
	told(t)
	if got := ann.listed(); !slices.Equal(got, []string{"retrieve_tools", "call_tool"}) {
		t.Errorf("without a gate listed are %v", got)
	}
	for _, name := range []string{"shop_look", "shop_put", "shop_burn"} {
		c.calls(t, "without a gate", name, true)
	}

	renamed := gated(view.Default, view.ExposureRetrieve, ample)
	renamed.Tools = []view.UpstreamTools{{Name: "shop", Tools: []view.Override{{Tool: "look", Name: "peek"}}}}
	change(t, renamed)
	told(t)
	if got := c.listed(); !slices.Equal(got, append(slices.Clone(provisioning), "peek", "shop_burn")) {
		t.Errorf("what was provisioned does not survive a new name: listed are %v", got)
	}
	c.calls(t, "by the new name", "peek", true)
	c.calls(t, "what was never provisioned", "shop_put", false)
	if got := ann.listed(); !slices.Equal(got, append(slices.Clone(provisioning), "shop_put")) {
		t.Errorf("ann is listed %v", got)
	}
}
