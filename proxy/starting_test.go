package proxy_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"toolfinch/configs"
	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/proxy"
	"toolfinch/store"
	"toolfinch/upstream"
	"toolfinch/view"
)

// slowly is an upstream that is not listed before listing is closed.
func slowly(t *testing.T, name string) (s *script, listing chan struct{}) {
	t.Helper()
	s, listing = newScript(t, name, false, false), make(chan struct{})
	s.list("tools", `{"name":"write_file","description":"Write text to a file","inputSchema":{"type":"object"}}`)
	s.list("prompts", `{"name":"draft"}`)
	s.on("tools/list", func(r *request) {
		select {
		case <-listing:
		case <-r.ended:
		}
		s.usual(r)
	})
	s.on("tools/call", func(r *request) { r.result(`{"content":[{"type":"text","text":"written"}]}`) })
	s.on("prompts/get", func(r *request) { r.result(`{"messages":[]}`) })
	return s, listing
}

// openCold runs a proxy over servers that it meets for the first time.
func openCold(t *testing.T, wait time.Duration, one view.Settings, servers ...upstream.Settings) (*proxy.Proxy, string) {
	t.Helper()
	one.Name, one.IncludeAll = view.Default, true
	config := &configs.Config{DataDir: folder(t), TopK: 5, Routing: configs.RoutingAuto, MaxRegistered: 40, StartWait: wait, REST: true,
		Views: []view.Settings{one}, Servers: servers}
	return running(t, config)
}

var coldViews = map[string]view.Settings{
	"retrieve": {Exposure: view.ExposureRetrieve, ProxyTool: "proxy"},
	"search":   {Exposure: view.ExposureSearch},
	"gated":    {Exposure: view.ExposureRetrieve, Gating: &ample},
	"direct":   {Exposure: view.ExposureDirect},
	"auto":     {Exposure: view.ExposureAuto, DirectBelow: 300},
}

// What could only be answered with nothing waits for servers that start for the first
// time.
func TestAColdStartIsWaitedFor(t *testing.T) {
	query := `{"query":"write text to a file"}`
	for _, test := range []struct{ view, method, params, want string }{
		{"retrieve", "tools/call", toolCall("retrieve_tools", query), "slow_write_file"},
		{"retrieve", "tools/call", toolCall("call_tool", `{"name":"slow_write_file"}`), "written"},
		{"retrieve", "tools/call", toolCall("call_tool", `{"name":"slow.write_file"}`), "written"},
		{"retrieve", "tools/call", toolCall("slow_write_file", `{}`), "written"},
		{"retrieve", "tools/call", toolCall("proxy", `{"action":"list","type":"tool"}`), "slow_write_file"},
		{"retrieve", "tools/call", toolCall("proxy", `{"action":"call","type":"tool","path":"slow_write_file"}`), "written"},
		{"retrieve", "prompts/list", `{}`, `"slow_draft"`},
		{"retrieve", "prompts/get", `{"name":"slow_draft"}`, `"messages"`},
		{"search", "tools/call", toolCall("default_search_tools", query), "slow_write_file"},
		{"search", "tools/call", toolCall("default_search_tools", `{}`), "slow_write_file"},
		{"search", "tools/call", toolCall("default_describe_tool", `{"name":"slow_write_file"}`), "Write text"},
		{"gated", "tools/call", toolCall("discover_tools", query), "slow_write_file"},
		{"gated", "tools/call", toolCall("provision_tools", query), "slow_write_file"},
		{"gated", "tools/call", toolCall("provision_tools", `{"tool_ids":["slow_write_file"]}`), "Write text"},
		{"gated", "tools/call", toolCall("execute_tool", `{"tool_id":"slow_write_file"}`), "Tool slow_write_file not provisioned"},
		{"direct", "tools/list", `{}`, "slow_write_file"},
		{"auto", "tools/list", `{}`, "slow_write_file"},
	} {
		t.Run(test.view+" "+test.params, func(t *testing.T) {
			t.Parallel()
			s, listing := slowly(t, "slow")
			p, url := openCold(t, await.Bound, coldViews[test.view], s.settings)
			c := newClient(t, p, url, kind{stdio: true}, `{}`, reply)
			asked := c.begin(test.method, test.params)
			c.ask("ping", `{}`) // messages of stdio are taken in their order
			select {
			case got := <-asked.answer:
				t.Errorf("answered before the server was listed: %s", got.raw)
			default:
			}
			close(listing)
			if got := <-asked.answer; !strings.Contains(got.raw, test.want) {
				t.Errorf("%s, want %s", got.raw, test.want)
			}
		})
	}
}

// A meta-tool is no tool of a server that is starting, however it is called: which setting
// offers it, or that it is called directly, is said at once.
func TestMetaToolsAreNotWaitedFor(t *testing.T) {
	slow, _ := slowly(t, "slow")
	p, url := openCold(t, await.Bound, coldViews["retrieve"], slow.settings)
	for _, modern := range []bool{false, true} {
		c := newClient(t, p, url, kind{modern: modern}, `{}`, reply)
		const direct = "; it is a tool of toolfinch itself: call it directly, not through another one"
		for params, want := range map[string]string{
			toolCall("provision_tools", `{}`):                                                  "; provision_tools is offered with gating: see docs/gating.md",
			toolCall("search_tools", `{}`):                                                     "; search_tools is offered with exposure_mode: search",
			toolCall("call_tool", `{"name":"execute_tool"}`):                                   "; execute_tool is offered with gating: see docs/gating.md",
			toolCall("call_tool", `{"name":"retrieve_tools"}`):                                 direct,
			toolCall("call_tool", `{"name":"proxy"}`):                                          direct,
			toolCall("proxy", `{"action":"call","type":"tool","path":"call_tool","args":{}}`):  direct,
			toolCall("proxy", `{"action":"call","type":"tool","path":"run_script","args":{}}`): "; run_script is offered with run_script: true in a view",
		} {
			if got := c.ask("tools/call", params); !strings.Contains(got.raw, want) {
				t.Errorf("%s: %s, want %s", params, got.raw, want)
			}
		}
	}
	q, gatedURL := openCold(t, await.Bound, coldViews["gated"], slow.settings)
	for name, want := range map[string]string{"discover_tools": "call it directly", "run_script": "run_script: true in a view"} {
		if got := newClient(t, q, gatedURL, kind{}, `{}`, reply).ask("tools/call", toolCall("execute_tool", `{"tool_id":"`+name+`"}`)); !strings.Contains(got.raw, want) {
			t.Errorf("execute_tool of %s: %s, want %s", name, got.raw, want)
		}
	}
}

// A wait has an end, and answers say which server is missing.
func TestAnswersSayWhoIsMissing(t *testing.T) {
	slow, _ := slowly(t, "slow")
	known := newScript(t, "known", false, false)
	known.list("tools", `{"name":"create_note","description":"Write a note","inputSchema":{"type":"object"}}`)
	p, url := openCold(t, time.Millisecond, coldViews["retrieve"], slow.settings, known.settings,
		upstream.Settings{Name: "linear", Command: "no-such-program", ConnectTimeout: await.Bound})
	c := newClient(t, p, url, kind{}, `{}`, reply)
	var got string
	eventually(t, func() bool {
		got = c.ask("tools/call", toolCall("retrieve_tools", `{"query":"create a linear issue","detail":"full"}`)).raw
		return strings.Contains(got, "known_create_note") && strings.Contains(got, "failed: linear: ")
	})
	for _, want := range []string{"still starting: slow (HTTP, ", "no-such-program", `\"confident\":false`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nwants %s", got, want)
		}
	}
	for _, test := range []struct{ name, params, want string }{
		{"a tool of a server that is starting", toolCall("call_tool", `{"name":"slow_write"}`), "still starting: slow (HTTP"},
		{"a tool of a server that has failed", toolCall("call_tool", `{"name":"linear.create"}`), "failed: linear: "},
		{"by its name", toolCall("linear_create", `{}`), "failed: linear: "},
		{"a server that is there", toolCall("retrieve_tools", `{"query":"write a note","server":"known","detail":"full"}`), `\"confident\":true`},
	} {
		if got := c.ask("tools/call", test.params).raw; !strings.Contains(got, test.want) {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
	curl(t, url, http.MethodPost, "/api/proxy/execute", `{"tool_id":"linear_create"}`).wants(t, "REST", 502, "Server linear not connected: ")
	curl(t, url, http.MethodGet, "/api/tools/discover?query=create+a+linear+issue", "").wants(t, "REST", 200, `"confident":false`, "failed: linear: ")
}

// What the store knows is not waited for, nor a call of what is there.
func TestWhatIsKnownIsNotWaitedFor(t *testing.T) {
	known, listing := slowly(t, "known")
	slow, _ := slowly(t, "slow")
	close(listing)
	one := coldViews["retrieve"]
	one.Name, one.IncludeAll = view.Default, true
	config := &configs.Config{DataDir: folder(t), TopK: 5, Routing: configs.RoutingAuto, MaxRegistered: 40, StartWait: await.Bound,
		Views: []view.Settings{one}, Servers: []upstream.Settings{known.settings}}
	learn(t, config)
	config.Servers = append(config.Servers, slow.settings)
	known.on("initialize", func(r *request) { <-r.ended }) // it hangs this time
	p := opened(t, config)
	c := newClient(t, p, run(t, p), kind{}, `{}`, reply)
	for _, params := range []string{
		toolCall("retrieve_tools", `{"query":"write text to a file","server":"known"}`),
		toolCall("proxy", `{"action":"info","type":"tool","path":"known_write_file"}`),
	} {
		if got := c.ask("tools/call", params); !strings.Contains(got.raw, "known_write_file") {
			t.Errorf("%s: %s", params, got.raw)
		}
	}
}

// A request that waits is answered also when its view is removed.
func TestAViewIsRemovedWhileItsServersStart(t *testing.T) {
	s, listing := slowly(t, "slow")
	defer close(listing)
	whole, gone := coldViews["retrieve"], coldViews["direct"]
	whole.Name, whole.IncludeAll, gone.Name, gone.IncludeAll = view.Default, true, "gone", true
	config := &configs.Config{DataDir: folder(t), TopK: 5, Routing: configs.RoutingAuto, MaxRegistered: 40, StartWait: await.Bound, REST: true,
		Views: []view.Settings{whole, gone}, Servers: []upstream.Settings{s.settings}}
	p, url := running(t, config)
	c := newClientAt(t, p, url+"/mcp/gone", kind{modern: true}, `{}`, reply)
	requests := func() (n int) {
		_, used, _ := strings.Cut(curl(t, url, http.MethodGet, "/metrics", "").body, `toolfinch_limit_used{limit="requests"} `)
		_, _ = fmt.Sscan(used, &n)
		return n
	}
	before := requests()
	listed, called := c.begin("tools/list", `{}`), c.begin("tools/call", toolCall("slow_write_file", `{}`))
	await.True(t, func() bool { return requests() == before+2 })
	reload(t, p, edited(config, whole))
	if got := await.Value(t, listed.answer).raw; !strings.Contains(got, `"tools":[]`) {
		t.Errorf("tools/list: %s", got)
	}
	if got := await.Value(t, called.answer).raw; !strings.Contains(got, "unknown tool") {
		t.Errorf("tools/call: %s", got)
	}
}

// A client that does not wait for its first list is answered while servers start, and told when they are there: a
// small catalogue is then listed whole.
func TestAClientThatHurriesIsAnsweredAtOnce(t *testing.T) {
	for view, want := range map[string]string{"auto": `"retrieve_tools"`, "direct": `"tools":[`} {
		for _, stdio := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s stdio %t", view, stdio), func(t *testing.T) {
				t.Parallel()
				s, listing := slowly(t, "slow")
				p, url := openCold(t, 2*await.Bound, coldViews[view], s.settings)
				c := newClient(t, p, url, kind{stdio: stdio, name: "codex-mcp-client"}, `{}`, reply)
				first := await.Value(t, c.begin("tools/list", `{}`).answer).raw
				if !strings.Contains(first, want) || strings.Contains(first, "slow_write_file") {
					t.Errorf("the first list is %s", first)
				}
				await.Value(t, c.begin("prompts/list", `{}`).answer)
				close(listing)
				c.hears("notifications/tools/list_changed", nil)
				if got := c.ask("tools/list", `{}`).raw; !strings.Contains(got, "slow_write_file") {
					t.Errorf("the next list is %s", got)
				}
			})
		}
	}
}

// A client that has used the search keeps it, whatever comes up later: a model must not lose tools in mid-conversation.
func TestAClientThatSearchesKeepsItsList(t *testing.T) {
	for _, how := range []kind{{}, {modern: true}} {
		t.Run(fmt.Sprintf("%+v", how), func(t *testing.T) {
			t.Parallel()
			s, listing := slowly(t, "slow")
			p, url := openCold(t, time.Millisecond, coldViews["auto"], s.settings)
			c := newClient(t, p, url, how, `{}`, reply)
			if got := c.ask("tools/list", `{}`).raw; !strings.Contains(got, `"retrieve_tools"`) {
				t.Fatalf("the first list is %s", got)
			}
			c.ask("tools/call", toolCall("retrieve_tools", `{"query":"write"}`))
			close(listing)
			<-p.Ready()
			if got := c.ask("tools/list", `{}`).raw; strings.Contains(got, "slow_write_file") {
				t.Errorf("the next list is %s", got)
			}
		})
	}
}

// Nobody waits for a server that failed to come up in an earlier run, and it is no reason to search in a small
// catalogue.
func TestNobodyWaitsForAServerThatFailedBefore(t *testing.T) {
	known, listing := slowly(t, "known")
	close(listing)
	gone, _ := slowly(t, "gone")
	gone.on("initialize", func(r *request) { <-r.ended })
	auto := coldViews["auto"]
	auto.Name, auto.IncludeAll = view.Default, true
	config := &configs.Config{DataDir: folder(t), TopK: 5, Routing: configs.RoutingAuto, MaxRegistered: 40, StartWait: 2 * await.Bound,
		Views: []view.Settings{auto}, Servers: []upstream.Settings{known.settings}}
	learn(t, config)
	config.Servers = append(config.Servers, gone.settings)
	db := must.Get(store.Open(t.Context(), config.Places().Store, slog.New(slog.DiscardHandler)))(t)
	failed := store.Failure{Server: "gone", Reason: "timed out", At: time.UnixMilli(5).UTC()}
	must.Do(t, errors.Join(db.PutFailure(t.Context(), failed), db.Close()))
	p, url := running(t, config)
	c := newClient(t, p, url, kind{}, `{}`, reply)
	if got := await.Value(t, c.begin("tools/list", `{}`).answer).raw; !strings.Contains(got, "known_write_file") {
		t.Errorf("the first list is %s", got)
	}
	for _, s := range p.Status(t.Context()).Servers {
		if s.Name == "gone" && (s.Error != failed.Reason || !s.Failed.Equal(failed.At)) {
			t.Errorf("the status is %+v", s)
		}
	}
}

// Why a server failed is stored without its secrets, until the server is listed.
func TestAFailureIsStored(t *testing.T) {
	s, listing := slowly(t, "s")
	close(listing)
	s.settings.Secrets = []string{"hunter2-hunter2"}
	s.on("tools/list", func(r *request) {
		r.fail(`{"code":-32000,"message":"hunter2-hunter2 is wrong\n\u001b[31m` + strings.Repeat("x", 5000) + `"}`)
	})
	p, _ := openCold(t, time.Millisecond, coldViews["auto"], s.settings)
	<-p.Ready()
	failures := func() []store.Failure {
		return must.Get(p.Failures(t.Context()))(t)
	}
	await.True(t, func() bool { return len(failures()) == 1 })
	if f := failures()[0]; f.Server != "s" || !strings.Contains(f.Reason, "*** is wrong") || strings.ContainsAny(f.Reason, "\n\x1b") || len(f.Reason) > 1000 || f.At.IsZero() {
		t.Errorf("stored is %+v", f)
	}
	s.on("tools/list", s.usual)
	await.True(t, func() bool { return len(failures()) == 0 })
}
