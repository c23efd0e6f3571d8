package proxy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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

func (c *rawClient) ways(callers ...string) (all []way) {
	exposed := func(tool string) string { return tool }
	dotted := func(tool string) string { return strings.Replace(tool, "_", ".", 1) }
	all = append(all,
		c.through("tools/call", true, toolCall),
		c.byName("execute_tool", "tool_id", exposed),
		c.through("execute_tool with text", true, func(tool, arguments string) string {
			return toolCall("execute_tool", `{"tool_id":`+quote(tool)+`,"arguments":`+quote(arguments)+`}`)
		}),
		c.through("proxy call", false, func(tool, arguments string) string {
			return toolCall("proxy", `{"action":"call","type":"tool","path":`+quote(tool)+`,"args":`+arguments+`}`)
		}),
		c.through("proxy batch", false, func(tool, arguments string) string {
			return toolCall("proxy", `{"action":"batch","operations":[{"action":"list","type":"tool"},{"action":"call","type":"tool","path":`+quote(tool)+`,"args":`+arguments+`}]}`)
		}),
		c.through("run_script", false, func(tool, arguments string) string {
			return toolCall("run_script", `{"script":`+quote(`result = call_tool("`+tool+`", `+arguments+`)`)+`}`)
		}),
		c.through("run_script in parallel", false, func(tool, arguments string) string {
			return toolCall("run_script", `{"script":`+quote(`result = parallel([{"tool": "`+dotted(tool)+`", "args": `+arguments+`}])`)+`}`)
		}),
	)
	for _, caller := range callers {
		all = append(all, c.byName(caller, "name", exposed), c.byName(caller, "name", dotted))
	}
	return all
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
	scripts := []*script{up}
	var views []view.Settings
	for name, exposure := range map[string]view.Exposure{
		view.Default: view.ExposureRetrieve, "auto": view.ExposureAuto, "find": view.ExposureSearch, "each": view.ExposureSearchPerServer,
	} {
		v := gated(name, exposure, ample)
		v.RunScript, v.ProxyTool = &view.ScriptLimits{}, "proxy"
		views = append(views, v)
	}
	config := configOf(t, scripts, views...)
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
				throughTheGate(t, up, c, append(c.ways(caller), overREST(url, name, session...)), "shop_look", "shop_put")
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
	scripts := []*script{up}
	config := configOf(t, scripts, gated(view.Default, view.ExposureRetrieve, ample))
	config.CallTool = configs.CallToolSplit
	p, url := openViews(t, "", config)
	for caller, tool := range map[string]string{"call_tool_read": "shop_look", "call_tool_write": "shop_put", "call_tool_destructive": "shop_burn"} {
		for _, modern := range []bool{false, true} {
			t.Run(caller+", "+kind{modern: modern}.String(), func(t *testing.T) {
				c := viewClient(t, p, url, view.Default, modern)
				exposed := func(tool string) string { return tool }
				ways := []way{c.byName(caller, "name", exposed), c.byName(caller, "name", func(tool string) string { return strings.Replace(tool, "_", ".", 1) })}
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
	scripts := []*script{up}
	v := gated("own", view.ExposureRetrieve, ample)
	v.Composites = []view.Composite{{Name: "both", Steps: []view.Step{
		{Key: "a", Tool: "shop.look", Args: []byte(`{"size":1}`)}, {Key: "b", Tool: "shop.burn", Args: []byte(`{"size":2}`)},
	}}}
	p, url := openViews(t, "", configOf(t, scripts, v))
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
	scripts := []*script{up}
	v := gated(view.Default, view.ExposureRetrieve, view.Gating{MaxTools: 1, MaxTokens: 10_000})
	v.ProxyTool = "proxy"
	config := configOf(t, scripts, v)
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
	scripts := []*script{up}
	p, url := openViews(t, "", configOf(t, scripts,
		gated(view.Default, view.ExposureRetrieve, ample), gated("auto", view.ExposureAuto, ample),
		gated("find", view.ExposureSearch, ample), gated("each", view.ExposureSearchPerServer, ample)))
	trio := func(prefix string) []string {
		return []string{prefix + "_search_tools", prefix + "_describe_tool", prefix + "_call_tool"}
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

func TestOverBudgetNothingChanges(t *testing.T) {
	t.Parallel()
	up := wares(t)
	scripts := []*script{up}
	few := gated("few", view.ExposureRetrieve, view.Gating{MaxTools: 2})
	tight := gated("tight", view.ExposureRetrieve, view.Gating{MaxTokens: 1})
	both := gated("both", view.ExposureRetrieve, view.Gating{MaxTools: 2, MaxTokens: 10_000})
	config := configOf(t, scripts, few, tight, both)
	config.REST = true
	p, url := openViews(t, "", config)
	cost := map[string]int{}
	probe := viewClient(t, p, url, "few", false)
	var found []json.RawMessage
	_ = json.Unmarshal(part(probe.does(t, "discover_tools", `{}`), "tools"), &found)
	for _, one := range found {
		cost[partText(one, "tool_id")] = number(t, one, "tokens")
	}
	if len(cost) != 3 || cost["shop_look"] < 10 {
		t.Fatalf("tools cost %v", cost)
	}
	look, others := cost["shop_look"], cost["shop_put"]+cost["shop_burn"]
	for _, test := range []struct {
		view, first, arguments, want string
	}{
		{"few", "shop_look", `{"tool_ids":["shop_put","shop_burn"]}`,
			fmt.Sprintf("over budget: asked for 2 tools (%d tokens) beside 1 tool (%d tokens) already provisioned; the budget is 2 tools and any number of tokens. Nothing was changed: unprovision tools, or ask for fewer", others, look)},
		{"both", "shop_look", `{"tool_ids":["shop_put","shop_look","shop_burn","shop_put"]}`,
			fmt.Sprintf("over budget: asked for 2 tools (%d tokens) beside 1 tool (%d tokens) already provisioned; the budget is 2 tools and 10000 tokens. Nothing was changed: unprovision tools, or ask for fewer", others, look)},
		{"few", "shop_look", `{"tool_ids":["shop_put"],"max_tokens":1}`,
			fmt.Sprintf("over budget: asked for 1 tool (%d tokens) beside 1 tool (%d tokens) already provisioned; the budget is 2 tools and any number of tokens, of which this request may add 1 token. Nothing was changed: unprovision tools, or ask for fewer", cost["shop_put"], look)},
		{"tight", "", `{"tool_ids":["shop_look"]}`,
			fmt.Sprintf("over budget: asked for 1 tool (%d tokens) beside 0 tools (0 tokens) already provisioned; the budget is any number of tools and 1 token. Nothing was changed: unprovision tools, or ask for fewer", look)},
	} {
		t.Run(test.view+" "+test.arguments, func(t *testing.T) {
			c := viewClient(t, p, url, test.view, false)
			if test.first != "" {
				c.provisions(t, test.first)
			}
			list, set := c.listed(), string(c.does(t, "list_provisioned", `{}`))
			c.clear()
			got := c.ask("tools/call", toolCall("provision_tools", test.arguments))
			if texts, _ := contents(got.Result); !failed(got) || strings.Join(texts, "") != test.want {
				t.Errorf("provision_tools = %s\nwant %s", got.raw, test.want)
			}
			if now := string(c.does(t, "list_provisioned", `{}`)); now != set {
				t.Errorf("provisioned are now %s\nwere %s", now, set)
			}
			if now := c.listed(); !slices.Equal(now, list) || len(c.got("notifications/tools/list_changed")) > 0 {
				t.Errorf("listed are now %v, were %v", now, list)
			}
			for _, name := range []string{"shop_put", "shop_burn"} {
				c.calls(t, "the session", name, false)
			}
			status, answer := rest(t, http.MethodPost, url+"/api/tools/provision?view="+test.view, test.arguments, "Mcp-Session-Id: "+c.id)
			if status != http.StatusConflict || partText([]byte(answer), "detail") != test.want || number(t, []byte(answer), "needed", "tools") < 1 {
				t.Errorf("REST: %d %s", status, answer)
			}
		})
	}
	t.Run("what is provisioned already costs nothing", func(t *testing.T) {
		c := viewClient(t, p, url, "few", false)
		c.provisions(t, "shop_look", "shop_put")
		got := c.provisions(t, "shop_put", "shop_look", "shop_look")
		if n := number(t, got, "usage", "tokens"); n != look+cost["shop_put"] {
			t.Errorf("it is %s", got)
		}
		c.does(t, "unprovision_tools", `{"tool_ids":["shop_put"]}`)
		c.provisions(t, "shop_burn") // there is room again
		if got := c.does(t, "unprovision_tools", `{"tool_ids":["shop_put","shop_burn"]}`); !slices.Equal(idsOf(got, "unprovisioned"), []string{"shop_burn"}) || string(part(got, "not_provisioned")) != `["shop_put"]` {
			t.Errorf("unprovision_tools = %s", got)
		}
	})
}

func TestProvisioningByQueryTakesWhatFits(t *testing.T) {
	t.Parallel()
	up := shop(t, "shop")
	long := strings.Repeat("It is a very long word about a telescope. ", 60)
	up.list("tools",
		`{"name":"telescope","description":"Telescope, telescope: points the telescope. `+long+`"}`,
		`{"name":"telescope_stand","description":"Sets up the stand of a telescope"}`,
		`{"name":"spoon","description":"Stirs"}`)
	scripts := []*script{up}
	p, url := openViews(t, "", configOf(t, scripts, gated(view.Default, view.ExposureRetrieve, view.Gating{MaxTokens: 300})))
	for _, modern := range []bool{false, true} {
		t.Run(kind{modern: modern}.String(), func(t *testing.T) {
			c := viewClient(t, p, url, view.Default, modern)
			got := c.does(t, "provision_tools", `{"query":"telescope"}`)
			if !slices.Equal(idsOf(got, "provisioned"), []string{"shop_telescope_stand"}) || !slices.Equal(idsOf(got, "did_not_fit"), []string{"shop_telescope"}) {
				t.Fatalf("provision_tools = %s", got)
			}
			var left []json.RawMessage
			_ = json.Unmarshal(part(got, "did_not_fit"), &left)
			if n := number(t, left[0], "tokens"); n < 300 {
				t.Errorf("what did not fit is said to cost %d", n)
			}
			if used := number(t, got, "usage", "tokens"); used < 1 || used > 300 || number(t, got, "budget", "max_tokens") != 300 {
				t.Errorf("usage: %s", got)
			}
			c.calls(t, "the client", "shop_telescope_stand", true)
			c.calls(t, "the client", "shop_telescope", false)
			c.calls(t, "the client", "shop_spoon", false)
			c.does(t, "unprovision_tools", `{"all":true}`)
			got = c.does(t, "provision_tools", `{"query":"telescope","max_tokens":1}`)
			if len(idsOf(got, "provisioned")) != 0 || len(idsOf(got, "did_not_fit")) != 2 {
				t.Errorf("with a bound of its own: %s", got)
			}
		})
	}
}

func TestProvisionedToolsMayHaveATimeToLive(t *testing.T) {
	t.Parallel()
	up := wares(t)
	scripts := []*script{up}
	hourly := ample
	hourly.TTL = time.Hour
	p, url := openViews(t, "", configOf(t, scripts, gated(view.Default, view.ExposureRetrieve, ample), gated("hourly", view.ExposureRetrieve, hourly)))
	expires := func(answer json.RawMessage) (at []time.Time) {
		var all []struct {
			ExpiresAt time.Time `json:"expires_at"`
		}
		if err := json.Unmarshal(part(answer, "provisioned"), &all); err != nil {
			t.Error(err)
		}
		for _, one := range all {
			at = append(at, one.ExpiresAt)
		}
		return at
	}

	c := viewClient(t, p, url, view.Default, false)
	if at := expires(c.provisions(t, "shop_look")); len(at) != 1 || !at[0].IsZero() {
		t.Errorf("without a time it ends at %v", at)
	}
	c.clear()
	start := time.Now().Truncate(time.Second)
	at := expires(c.does(t, "provision_tools", `{"tool_ids":["shop_put"],"ttl_seconds":3}`))
	if len(at) != 1 || at[0].Before(start) || at[0].After(time.Now().Add(3*time.Second)) {
		t.Errorf("with three seconds, from %v, it ends at %v", start, at)
	}
	eventually(t, func() bool { return len(c.got("notifications/tools/list_changed")) == 2 }) // it came, and went
	if got := c.listed(); !slices.Equal(got, append(slices.Clone(provisioning), "shop_look")) {
		t.Errorf("after its time listed are %v", got)
	}
	c.calls(t, "the session", "shop_put", false)
	c.calls(t, "the session", "shop_look", true)
	if got := c.does(t, "list_provisioned", `{}`); !slices.Equal(idsOf(got, "provisioned"), []string{"shop_look"}) {
		t.Errorf("list_provisioned = %s", got)
	}

	c = viewClient(t, p, url, "hourly", true)
	before := time.Now().Truncate(time.Second)
	at = expires(c.provisions(t, "shop_look"))
	if len(at) != 1 || at[0].Before(before.Add(time.Hour)) || at[0].After(time.Now().Add(time.Hour)) {
		t.Errorf("by the time of the view it ends at %v", at)
	}
	at = expires(c.does(t, "provision_tools", `{"tool_ids":["shop_look"],"ttl_seconds":60}`))
	if len(at) != 1 || at[0].After(time.Now().Add(time.Minute)) {
		t.Errorf("a new time does not replace the old one: %v", at)
	}
	c.does(t, "provision_tools", `{"tool_ids":["shop_look"],"ttl_seconds":3}`)
	eventually(t, func() bool { return failed(c.ask("tools/call", toolCall("shop_look", `{}`))) })
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
	scripts := []*script{up}
	config := configOf(t, scripts, gated(view.Default, view.ExposureRetrieve, ample))
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

	t.Run("what one session gives back the others lose", func(t *testing.T) {
		for _, c := range clients {
			c.clear()
		}
		clients["ann, stateless"].does(t, "unprovision_tools", `{"tool_ids":["shop_look"]}`)
		for who, c := range clients {
			c.calls(t, who, "shop_look", false)
			if strings.HasPrefix(who, "ann") {
				c.hears("notifications/tools/list_changed", nil)
			} else if n := len(c.got("notifications/tools/list_changed")); n > 0 {
				t.Errorf("%s heard of it %d times", who, n)
			}
		}
	})
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
	t.Run("a set survives the end of its sessions", func(t *testing.T) {
		c := userClient(t, p, url, "cleo", false)
		c.provisions(t, "shop_burn")
		if got := status(t, http.MethodDelete, c.url, c.id); got != http.StatusNotFound {
			t.Errorf("DELETE by nobody: status %d", got)
		}
		if got := status(t, http.MethodDelete, c.url, c.id, "X-User", "cleo"); got/100 != 2 {
			t.Fatalf("DELETE: status %d", got)
		}
		c.id = ""
		userClient(t, p, url, "cleo", false).calls(t, "cleo come back", "shop_burn", true)
	})
}

func TestTheSetOfASessionEndsWithIt(t *testing.T) {
	t.Parallel()
	up := wares(t)
	scripts := []*script{up}
	config := configOf(t, scripts, gated(view.Default, view.ExposureRetrieve, ample))
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
	p, err := proxy.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	url, stop = runUntil(t, p)
	return p, url, stop
}

func TestSetsSurviveARestart(t *testing.T) {
	t.Parallel()
	up := wares(t)
	scripts := []*script{up}
	config := configOf(t, scripts, gated(view.Default, view.ExposureRetrieve, ample), gated("other", view.ExposureRetrieve, ample))
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
		userClient(t, p, url, "brief", true).does(t, "provision_tools", `{"tool_ids":["shop_look"],"ttl_seconds":3}`)
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
		brief := userClient(t, p, url, "brief", true)
		eventually(t, func() bool { return len(idsOf(brief.does(t, "list_provisioned", `{}`), "provisioned")) == 0 })
		brief.calls(t, "brief", "shop_look", false)
	})
}

func TestForgedIDsAreRefused(t *testing.T) {
	t.Parallel()
	up := wares(t)
	up.list("tools", append(up.lists["tools"], `{"name":"look_up_all","description":"Looks up all"}`)...)
	one, two := shop(t, "a", "b_c"), shop(t, "a_b", "c") // both would be a_b_c
	scripts := []*script{up, one, two}
	config := configOf(t, scripts, gated(view.Default, view.ExposureRetrieve, ample))
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

func TestErrorsOfExecutionAreToldApart(t *testing.T) {
	t.Parallel()
	up := wares(t)
	up.on("tools/call put", func(r *request) { <-r.ended })
	up.on("tools/call burn", func(r *request) { r.fail(`{"code":-32050,"message":"no matches"}`) })
	up.on("tools/call look", func(r *request) { r.result(`{"content":[{"type":"text","text":"it is dark"}],"isError":true}`) })
	scripts := []*script{up}
	config := configOf(t, scripts, gated(view.Default, view.ExposureRetrieve, ample))
	config.REST = true
	p, url := openViews(t, "", config)
	c := viewClient(t, p, url, view.Default, true)
	c.provisions(t, "shop_look", "shop_put", "shop_burn")
	execute := func(t *testing.T, tool, arguments string) (said string, code string, status int, detail string) {
		t.Helper()
		body := `{"tool_id":"` + tool + `","arguments":` + arguments + `}`
		got := c.ask("tools/call", toolCall("execute_tool", body))
		texts, _ := contents(got.Result)
		status, answer := rest(t, http.MethodPost, url+"/api/proxy/execute", body)
		if detail = partText([]byte(answer), "detail"); status == 200 {
			detail = string(part([]byte(answer), "result"))
		}
		return strings.Join(texts, "\n"), string(part(got.Error, "code")), status, detail
	}

	if said, code, status, detail := execute(t, "shop_look", `{}`); said != "it is dark" || code != "" || status != 200 || !strings.Contains(detail, `"isError":true`) {
		t.Errorf("a tool that fails by its own word: %q %s; REST %d %q", said, code, status, detail)
	}
	if _, code, status, detail := execute(t, "shop_burn", `{}`); code != "-32050" || status != 500 || !strings.HasPrefix(detail, "Tool execution failed: ") || !strings.Contains(detail, "shop") || !strings.Contains(detail, "no matches") {
		t.Errorf("a protocol error of the server: %s; REST %d %q", code, status, detail)
	}
	hurry(t, p, config, up)
	said, _, status, detail := execute(t, "shop_put", `{}`)
	reload(t, p, config)
	if status != 504 || detail != said || !strings.HasPrefix(said, "Tool execution failed: ") || !strings.Contains(said, "shop") || !strings.Contains(said, "timed out") && !strings.Contains(said, "no answer within 300ms") {
		t.Errorf("a server that does not answer: %q; REST %d %q", said, status, detail)
	}
	if said, _, status, detail := execute(t, "shop_look", `{"size":"large"}`); status != 400 || detail != said || !strings.Contains(said, "do not fit shop_look") || !strings.Contains(said, `"properties"`) {
		t.Errorf("arguments that do not fit: %q; REST %d %q", said, status, detail)
	}

	t.Run("a server that cannot be reached", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		nowhere := up.settings
		nowhere.URL = "http://" + listener.Addr().String()
		if err := listener.Close(); err != nil {
			t.Fatal(err)
		}
		reload(t, p, serving(config, nowhere))
		said, _, status, detail := execute(t, "shop_look", `{}`)
		if status != 502 || !strings.HasPrefix(said, "Server shop not connected: ") || !strings.HasPrefix(detail, "Server shop not connected: ") {
			t.Errorf("%q; REST %d %q", said, status, detail)
		}
	})
}

func TestReloadsChangeTheGate(t *testing.T) {
	t.Parallel()
	up := wares(t)
	scripts := []*script{up}
	open := everything(view.Default, view.ExposureRetrieve)
	config := configOf(t, scripts, open)
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

// A tool that its server does not list for a while takes no part, and is there
// again with it.
func TestAToolThatComesBackIsProvisionedStill(t *testing.T) {
	t.Parallel()
	up := wares(t)
	defs := slices.Clone(up.lists["tools"])
	scripts := []*script{up}
	p, url := openViews(t, "", configOf(t, scripts, gated(view.Default, view.ExposureRetrieve, view.Gating{MaxTools: 2})))
	c := viewClient(t, p, url, view.Default, false)
	c.provisions(t, "shop_look")
	up.changes(t, p, defs[1:]...)
	if got := c.does(t, "list_provisioned", `{}`); len(idsOf(got, "provisioned")) != 0 || number(t, got, "usage", "tools") != 0 {
		t.Errorf("while it is gone: %s", got)
	}
	if got := c.ask("tools/call", toolCall("execute_tool", `{"tool_id":"shop_look"}`)); !failed(got) || !strings.Contains(got.raw, "Unknown tool: shop_look") {
		t.Errorf("while it is gone: %s", got.raw)
	}
	eventually(t, func() bool { return slices.Equal(c.listed(), provisioning) })
	up.changes(t, p, defs...)
	c.calls(t, "come back", "shop_look", true)
	eventually(t, func() bool { return slices.Equal(c.listed(), append(slices.Clone(provisioning), "shop_look")) })
}

// However many ask at once, a budget holds.
func TestTheBudgetHoldsForAllSessionsOfAPrincipal(t *testing.T) {
	t.Parallel()
	up := shop(t, "shop")
	var names []string
	for i := range 24 {
		names = append(names, fmt.Sprintf("item%02d", i))
	}
	up.list("tools", goods(names...)...)
	scripts := []*script{up}
	config := configOf(t, scripts, gated(view.Default, view.ExposureRetrieve, view.Gating{MaxTools: 5}))
	config.PrincipalHeader = "X-User"
	p, url := openViews(t, "", config)
	var asking sync.WaitGroup
	for i, name := range names {
		c := userClient(t, p, url, "ann", i%3 > 0)
		asking.Go(func() { c.ask("tools/call", toolCall("provision_tools", `{"tool_ids":["shop_`+name+`"]}`)) })
	}
	asking.Wait()
	c := userClient(t, p, url, "ann", true)
	got := c.does(t, "list_provisioned", `{}`)
	if ids := idsOf(got, "provisioned"); len(ids) != 5 || number(t, got, "usage", "tools") != 5 || !slices.Equal(c.listed(), append(slices.Clone(provisioning), ids...)) {
		t.Errorf("provisioned are %s", got)
	}
}
