package proxy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"toolfinch/configs"
	"toolfinch/internal/await"
	"toolfinch/internal/collector"
	"toolfinch/internal/identity"
	"toolfinch/internal/must"
	"toolfinch/internal/telemetry"
	"toolfinch/proxy"
	"toolfinch/view"
	hooks "toolfinch/view/script"
)

// traced is a proxy with traces, in front of one server.
type traced struct {
	*meeting
	*collector.Collector
	client, server kind
	url            string
}

// openTraced runs a proxy whose requests make spans, and connects a client.
func openTraced(t *testing.T, client, server kind, sampler sdktrace.Sampler, baggage bool) *traced {
	t.Helper()
	all := &traced{meeting: &meeting{up: everythingScript(t, server)}, Collector: collector.New(t), client: client, server: server}
	traces := telemetry.NewTraces(all.Provider(sampler), baggage)
	config := &configs.Config{DataDir: folder(t), TopK: 5, Routing: configs.RoutingAuto, MaxRegistered: 40, REST: true}
	config.Servers = append(config.Servers, all.up.settings)
	p := opened(t, changing(config), proxy.WithTraces(traces))
	all.url = run(t, p)
	await.Value(t, p.Ready())
	all.rawClient = newClient(t, p, all.url, client, can, reply)
	return all
}

// of returns the spans of a kind and a name that have arrived.
func (t *traced) of(kind, name string) []collector.Span {
	return slices.DeleteFunc(t.Spans(), func(s collector.Span) bool { return s.Kind != kind || s.Name != name })
}

// only is of, of which there must be one.
func (tr *traced) only(t *testing.T, kind, name string) collector.Span {
	t.Helper()
	found := tr.of(kind, name)
	if len(found) != 1 {
		var names []string
		for _, s := range tr.Spans() {
			names = append(names, s.Kind+" "+s.Name)
		}
		t.Fatalf("there are %d spans %s %q, want one of %q", len(found), kind, name, names)
	}
	return found[0]
}

// wantAttributes checks that a span has these attributes; "" is for none.
func wantAttributes(t *testing.T, span collector.Span, want map[string]string) {
	t.Helper()
	for key, value := range want {
		if got := span.Attributes[key]; got != value {
			t.Errorf("%s %q: %s is %q, want %q", span.Kind, span.Name, key, got, value)
		}
	}
}

// Trace context of a client.
const (
	callerTrace = "0af7651916cd43dd8448eb211c80319c"
	callerSpan  = "b7ad6b7169203331"
	caller      = `"traceparent":"00-` + callerTrace + `-` + callerSpan + `-01","tracestate":"vendor=\u0061"`
)

// parentOf is the traceparent that a server under a span gets.
func parentOf(span collector.Span) string { return "00-" + span.Trace + "-" + span.ID + "-01" }

// A span of ours is between that of the client and that of the server, of whichever eras.
func TestSpansHangTogether(t *testing.T) {
	forEachMeeting(t, func(t *testing.T, client, server kind) {
		tr := openTraced(t, client, server, sdktrace.AlwaysSample(), false)
		for _, test := range []struct {
			name           string
			method, params string // what the client sends
			served, asked  string // names of the spans
			key            string // of the server's request
			server, client map[string]string
		}{
			{
				"a tool", "tools/call", `{"name":"one_params","_meta":{"com.example/x":[1e400],` + caller + `,"baggage":"k=v"},"arguments":{"secret":"hunter2"}}`,
				"tools/call one_params", "tools/call params", "tools/call params",
				map[string]string{"gen_ai.tool.name": "one_params", "gen_ai.operation.name": "execute_tool"},
				map[string]string{"gen_ai.tool.name": "params", "gen_ai.operation.name": "execute_tool"},
			},
			{
				"a prompt", "prompts/get", `{"_meta":{` + caller + `},"name":"one_greet","arguments":{"who":"hunter2"}}`,
				"prompts/get one_greet", "prompts/get greet", "prompts/get greet",
				map[string]string{"gen_ai.prompt.name": "one_greet", "gen_ai.tool.name": "", "gen_ai.operation.name": ""},
				map[string]string{"gen_ai.prompt.name": "greet"},
			},
			{
				"a resource", "resources/read", `{"_meta":{` + caller + `},"uri":"file:///notes.txt"}`,
				"resources/read", "resources/read", "resources/read file:///notes.txt",
				map[string]string{"mcp.resource.uri": "file:///notes.txt", "gen_ai.tool.name": ""},
				map[string]string{"mcp.resource.uri": "file:///notes.txt"},
			},
		} {
			t.Run(test.name, func(t *testing.T) {
				tr.Clear()
				if got := tr.ask(test.method, test.params); got.Error != nil {
					t.Fatalf("%s", got.raw)
				}
				served, asked := tr.only(t, "SERVER", test.served), tr.only(t, "CLIENT", test.asked)
				if served.Trace != callerTrace || served.Parent != callerSpan || served.State != "vendor=a" {
					t.Errorf("the span of the request hangs under %s of %s (%s)", served.Parent, served.Trace, served.State)
				}
				if asked.Trace != callerTrace || asked.Parent != served.ID {
					t.Errorf("the span of the server's request hangs under %s of %s, want %s", asked.Parent, asked.Trace, served.ID)
				}
				tr.wantDescribed(t, served, asked, test.method)
				wantAttributes(t, served, test.server)
				wantAttributes(t, asked, test.client)

				var sent message
				for _, m := range tr.up.got(test.method) {
					if m.Method+" "+partText(m.Params, "name")+partText(m.Params, "uri") == test.key {
						sent = m
					}
				}
				want := []member{{"traceparent", `"` + parentOf(asked) + `"`}, {"tracestate", `"vendor=a"`}}
				if test.method == "tools/call" { // what else the client sent stays, but for its baggage
					want = append(want, member{"com.example/x", "[1e400]"})
				}
				if got := foreign(sent.Params); !slices.Equal(got, want) {
					t.Errorf("the server got %v\nwant %v", got, want)
				}
				if sent.header != nil && (sent.header.Get("traceparent") != parentOf(asked) || sent.header.Get("tracestate") != "vendor=a" || sent.header.Get("baggage") != "") {
					t.Errorf("the headers of the server's request are %v", sent.header)
				}
				for _, span := range tr.Spans() {
					for key, value := range span.Attributes {
						if strings.Contains(value, "hunter2") {
							t.Errorf("%q has an argument in %s", span.Name, key)
						}
					}
				}
			})
		}
	})
}

// wantDescribed checks what spans of a request and of what it asks a server have in any case.
func (tr *traced) wantDescribed(t *testing.T, served, asked collector.Span, method string) {
	t.Helper()
	version := func(modern bool) string {
		if modern {
			return "2026-07-28"
		}
		return "2025-11-25"
	}
	for _, side := range []struct {
		span collector.Span
		kind kind
	}{{served, tr.client}, {asked, tr.server}} {
		want := map[string]string{
			"mcp.method.name": method, "mcp.protocol.version": version(side.kind.modern), "error.type": "",
			"network.transport": "tcp", "network.protocol.name": "http", "network.protocol.version": "1.1",
		}
		if side.kind.stdio {
			want["network.transport"], want["network.protocol.name"], want["network.protocol.version"] = "pipe", "", ""
		}
		wantAttributes(t, side.span, want)
		if side.span.Attributes["jsonrpc.request.id"] == "" || side.span.Failed {
			t.Errorf("%s %q: failed %t, attributes %v", side.span.Kind, side.span.Name, side.span.Failed, side.span.Attributes)
		}
	}
	wantAttributes(t, asked, map[string]string{"toolfinch.upstream": "one"})
	if !tr.server.stdio {
		wantAttributes(t, asked, map[string]string{"server.address": "127.0.0.1", "server.port": tr.up.settings.URL[strings.LastIndex(tr.up.settings.URL, ":")+1:]})
	}
	if !tr.client.stdio {
		wantAttributes(t, served, map[string]string{"client.address": "127.0.0.1"})
		if served.Attributes["client.port"] == "" {
			t.Error("the client has no port")
		}
	}
	session := ""
	if !tr.client.modern && !tr.client.stdio {
		session = identity.Digest(tr.id) // the ID itself would let its reader into the session
	}
	if got := served.Attributes["mcp.session.id"]; !tr.client.stdio && got != session {
		t.Errorf("the session is %q, want %q", got, session)
	}
}

// Errors are told apart, and have nobody's words.
func TestSpansOfErrors(t *testing.T) {
	tr := openTraced(t, kind{}, kind{}, sdktrace.AlwaysSample(), false)
	tr.up.on("tools/call hang", func(r *request) { r.fail(`{"code":-32050,"message":"hunter2"}`) })
	tr.up.on("tools/call log", func(r *request) {
		r.result(`{"content":[{"type":"text","text":"hunter2"}],"isError":true}`)
	})
	for _, test := range []struct {
		name, method, params string
		span, kind, code     string // of the client's request
	}{
		{"the server's own", "tools/call", `{"name":"one_hang"}`, "tools/call one_hang", "-32050", "-32050"},
		{"of the tool", "tools/call", `{"name":"one_log"}`, "tools/call one_log", "tool_error", ""},
		{"a name that nothing has, which is in no name of a span", "tools/call", `{"name":"hunter2"}`, "tools/call", "-32602", "-32602"},
		{"a method that nobody has", "hunter2/x", `{}`, "_OTHER", "-32601", "-32601"},
	} {
		t.Run(test.name, func(t *testing.T) {
			tr.Clear()
			tr.ask(test.method, test.params)
			span := tr.only(t, "SERVER", test.span)
			wantAttributes(t, span, map[string]string{"error.type": test.kind, "rpc.response.status_code": test.code, "mcp.method.name": strings.Replace(test.method, "hunter2/x", "_OTHER", 1)})
			if !span.Failed {
				t.Error("its status is not ERROR")
			}
			if test.code == "-32050" {
				wantAttributes(t, tr.only(t, "CLIENT", "tools/call hang"), map[string]string{"error.type": "-32050", "rpc.response.status_code": "-32050"})
			}
			if test.kind == "tool_error" {
				wantAttributes(t, tr.only(t, "CLIENT", "tools/call log"), map[string]string{"error.type": "tool_error"})
			}
		})
	}
}

// The context of an HTTP request is the parent of requests without one in _meta, and else a
// link; over HTTP+SSE, and of the REST API, too.
func TestTraceContextOfHTTP(t *testing.T) {
	const inHeader = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	tr := openTraced(t, kind{}, kind{}, sdktrace.AlwaysSample(), false)
	tr.header = [2]string{"traceparent", inHeader}
	t.Run("the parent", func(t *testing.T) {
		tr.Clear()
		tr.ask("tools/call", `{"name":"one_params"}`)
		if span := tr.only(t, "SERVER", "tools/call one_params"); parentIn(span) != inHeader[:len(inHeader)-3] || len(span.Links) != 0 {
			t.Errorf("it hangs under %s, and has the links %v", parentIn(span), span.Links)
		}
	})
	t.Run("a link", func(t *testing.T) {
		tr.Clear()
		tr.ask("tools/call", `{"name":"one_params","_meta":{`+caller+`}}`)
		span := tr.only(t, "SERVER", "tools/call one_params")
		if want := []collector.Link{{Trace: inHeader[3:35], ID: inHeader[36:52]}}; span.Parent != callerSpan || !slices.Equal(span.Links, want) {
			t.Errorf("it hangs under %s, and has the links %v", parentIn(span), span.Links)
		}
	})
	t.Run("what cannot be read is not there", func(t *testing.T) {
		for _, meta := range []string{`{"traceparent":"00-xyz"}`, `{"traceparent":7}`, `{"traceparent":"` + strings.Repeat("0", 9000) + `"}`} {
			tr.Clear()
			if got := tr.ask("tools/call", `{"name":"one_params","_meta":`+meta+`}`); got.Error != nil {
				t.Errorf("%s: %s", meta, got.raw)
			}
			if span := tr.only(t, "SERVER", "tools/call one_params"); parentIn(span) != inHeader[:len(inHeader)-3] {
				t.Errorf("%.40s: it hangs under %s", meta, parentIn(span))
			}
		}
	})
	t.Run("HTTP+SSE", func(t *testing.T) {
		c := must.Get(client.NewSSEMCPClient(tr.url+"/sse", client.WithHeaders(map[string]string{"traceparent": inHeader})))(t)
		defer c.Close()
		must.Do(t, c.Start(t.Context()))
		must.Get(c.Initialize(t.Context(), mcp.InitializeRequest{}))(t)
		tr.Clear()
		call := mcp.CallToolRequest{}
		call.Params.Name = "one_params"
		must.Get(c.CallTool(t.Context(), call))(t)
		span := tr.only(t, "SERVER", "tools/call one_params")
		if parentIn(span) != inHeader[:len(inHeader)-3] || span.Attributes["network.transport"] != "tcp" {
			t.Errorf("it hangs under %s: %v", parentIn(span), span.Attributes)
		}
	})
	t.Run("REST", func(t *testing.T) {
		tr.Clear()
		body := `{"tool_id":"one.params","arguments":{"secret":"hunter2"}}`
		request, _ := http.NewRequest(http.MethodPost, tr.url+"/api/proxy/execute", strings.NewReader(body))
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("traceparent", inHeader)
		response := must.Get(http.DefaultClient.Do(request))(t)
		answer, _ := io.ReadAll(response.Body)
		response.Body.Close()
		span, asked := tr.only(t, "SERVER", "POST /api/proxy/execute"), tr.only(t, "CLIENT", "tools/call params")
		if parentIn(span) != inHeader[:len(inHeader)-3] || asked.Parent != span.ID {
			t.Errorf("it hangs under %s, and %s under it; it answered %s", parentIn(span), asked.Parent, answer)
		}
		wantAttributes(t, span, map[string]string{
			"http.request.method": "POST", "http.route": "/api/proxy/execute", "http.response.status_code": "200", "toolfinch.tool": "one.params", "error.type": "",
			"network.protocol.version": "1.1", "client.address": "127.0.0.1", "mcp.method.name": "", "url.scheme": "http",
		})
	})
	t.Run("behind a reverse proxy", func(t *testing.T) {
		tr.Clear()
		request, _ := http.NewRequest(http.MethodGet, tr.url+"/api/servers", nil)
		request.Header.Set("X-Forwarded-For", "192.0.2.7")
		request.Header.Set("X-Forwarded-Proto", "https")
		response := must.Get(http.DefaultClient.Do(request))(t)
		response.Body.Close()
		wantAttributes(t, tr.only(t, "SERVER", "GET /api/servers"), map[string]string{
			"client.address": "192.0.2.7", "client.port": "", "url.scheme": "https",
		})
	})
}

func parentIn(span collector.Span) string { return "00-" + span.Trace + "-" + span.Parent }

// A call that its client cancels has failed, in both spans, whatever it is answered.
func TestSpansOfCancelledCalls(t *testing.T) {
	for _, client := range kinds {
		t.Run(client.String(), func(t *testing.T) {
			tr := openTraced(t, client, kind{}, sdktrace.AlwaysSample(), false)
			hanging := tr.begin("tools/call", `{"name":"one_hang"}`)
			eventually(t, func() bool { return len(tr.up.got("tools/call")) > 0 })
			hanging.cancel()
			for kind, name := range map[string]string{"SERVER": "tools/call one_hang", "CLIENT": "tools/call hang"} {
				eventually(t, func() bool { return len(tr.of(kind, name)) > 0 })
				wantAttributes(t, tr.only(t, kind, name), map[string]string{"error.type": "cancelled", "rpc.response.status_code": ""})
			}
		})
	}
}

// Baggage of a client reaches servers where the owner wants it to.
func TestBaggage(t *testing.T) {
	tr := openTraced(t, kind{}, kind{}, sdktrace.AlwaysSample(), true)
	tr.header = [2]string{"baggage", "from=header"}
	for sent, want := range map[string]string{
		`{"baggage":"k=v"}`:                    "k=v",
		`{}`:                                   "from=header",
		`{"baggage":"no baggage; at all"}`:     "",
		`{` + caller + `,"baggage":"a=1,b=2"}`: "a=1,b=2",
	} {
		tr.ask("tools/call", `{"name":"one_params","_meta":`+sent+`}`)
		calls := tr.up.got("tools/call")
		last := calls[len(calls)-1]
		got := strings.Split(partText(part(last.Params, "_meta"), "baggage"), ",")
		slices.Sort(got)
		inHeader := strings.Split(last.header.Get("baggage"), ",")
		slices.Sort(inHeader)
		if strings.Join(got, ",") != want || strings.Join(inHeader, ",") != want {
			t.Errorf("of %s the server got %q, and %q in the header", sent, got, inHeader)
		}
	}
}

// What is not sampled makes no span, and servers are told so.
func TestWhatIsNotSampledSaysSo(t *testing.T) {
	tr := openTraced(t, kind{}, kind{}, sdktrace.ParentBased(sdktrace.NeverSample()), false)
	tr.ask("tools/call", `{"name":"one_params","arguments":{"a":1}}`)
	tr.ask("tools/call", `{"name":"one_hang_not_there"}`)
	if spans := tr.Spans(); len(spans) != 0 {
		t.Errorf("spans: %v", spans)
	}
	calls := tr.up.got("tools/call")
	if got := partText(part(calls[0].Params, "_meta"), "traceparent"); len(got) != 55 || !strings.HasSuffix(got, "-00") {
		t.Errorf("the server is told %q", got)
	}
	tr.ask("tools/call", `{"name":"one_params","_meta":{`+caller+`}}`) // whose caller samples it
	if span := tr.only(t, "SERVER", "tools/call one_params"); span.Parent != callerSpan {
		t.Errorf("it hangs under %s", span.Parent)
	}
}

// Requests of our own, and those that settle a connection, have spans, too.
func TestSpansOfOurOwnRequests(t *testing.T) {
	tr := openTraced(t, kind{}, kind{}, sdktrace.AlwaysSample(), false)
	for _, name := range []string{"tools/list", "initialize"} {
		if len(tr.of("CLIENT", name)) == 0 {
			t.Errorf("there is no span %s", name)
		}
	}
	served := tr.only(t, "SERVER", "initialize")
	wantAttributes(t, served, map[string]string{"mcp.protocol.version": "2025-11-25"})
}

// tree is the spans of a trace, each under its parent, in the order in which they began.
func tree(spans []collector.Span, under string, indent string) (lines []string) {
	slices.SortStableFunc(spans, func(a, b collector.Span) int { return a.Start.Compare(b.Start) })
	for _, s := range spans {
		if s.Parent == under {
			lines = append(append(lines, indent+s.Kind+" "+s.Name), tree(slices.Clone(spans), s.ID, indent+"  ")...)
		}
	}
	return lines
}

// What is done for a request has spans under its own: stages of retrieval, hooks, the steps of
// composite tools, requests to servers.
func TestSpansOfStages(t *testing.T) {
	up := wares(t)
	v := everything(view.Default, view.ExposureRetrieve)
	v.Composites = []view.Composite{{Name: "both", Steps: []view.Step{{Key: "a", Tool: "shop.look", Args: []byte(`{}`)}}}}
	config := configOf(t, []*script{up}, v)
	config.Embed, config.QueryEmbedTimeout = newEndpoint(t).Settings, await.Bound
	c := collector.New(t)
	p := opened(t, config, proxy.WithTraces(telemetry.NewTraces(c.Provider(sdktrace.AlwaysSample()), false)),
		proxy.WithPreCall(func(context.Context, *hooks.Info, json.RawMessage) (json.RawMessage, error) { return nil, nil }))
	url := run(t, p)
	await.Value(t, p.Ready())
	client := viewClient(t, p, url, view.Default, false)
	eventually(t, func() bool { // what is indexed has vectors
		c.Clear()
		client.ask("tools/call", toolCall("retrieve_tools", `{"query":"look at a ware"}`))
		return slices.ContainsFunc(c.Spans(), func(s collector.Span) bool { return s.Name == "fuse" })
	})
	for _, test := range []struct{ name, arguments, want string }{
		{"shop_look", `{"size":1}`, `SERVER tools/call shop_look
  INTERNAL hook Go function 1
  CLIENT tools/call look`},
		{"call_tool", `{"name":"shop_look","arguments":{"size":1}}`, `SERVER tools/call call_tool
  INTERNAL hook Go function 1
  CLIENT tools/call look`},
		{"both", `{}`, `SERVER tools/call both
  INTERNAL hook Go function 1
  INTERNAL execute_tool shop.look
    INTERNAL hook Go function 1
    CLIENT tools/call look`},
		{"retrieve_tools", `{"query":"put a hat on"}`, `SERVER tools/call retrieve_tools
  INTERNAL embed
  INTERNAL search
    INTERNAL fuse`},
	} {
		c.Clear()
		got := client.ask("tools/call", toolCall(test.name, test.arguments))
		spans := slices.DeleteFunc(c.Spans(), func(s collector.Span) bool { return strings.HasSuffix(s.Name, "/list") })
		if got := strings.Join(tree(spans, "", ""), "\n"); got != test.want {
			t.Errorf("%s:\n%s\nwant\n%s", test.name, got, test.want)
		}
		if got.Error != nil {
			t.Errorf("%s: %s", test.name, got.raw)
		}
		root := spans[slices.IndexFunc(spans, func(s collector.Span) bool { return s.Kind == "SERVER" })]
		wantAttributes(t, root, map[string]string{"toolfinch.view": view.Default, "toolfinch.outcome": identity.Success})
		if test.name == "call_tool" {
			wantAttributes(t, root, map[string]string{"toolfinch.tool": "shop.look", "gen_ai.tool.name": "call_tool"})
		}
		if last := p.Feed().Recent(1, nil)[0]; last.Trace != root.Trace {
			t.Errorf("the feed has the trace %q, want %q", last.Trace, root.Trace)
		}
	}
}

// BenchmarkTraces measures what traces add to a call of 100 bytes over HTTP. The client sends
// trace context, so that the server reads some in any case.
func BenchmarkTraces(b *testing.B) {
	up := newUpstream(b, 1)
	body := []byte(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"up0_echo","arguments":{"text":"` + strings.Repeat("x", 100) + `"},` +
		`"_meta":{"traceparent":"00-` + callerTrace + `-` + callerSpan + `-01"}}}`)
	ways := []string{"off", "again", "sampled-1%", "sampled-all"} // again is the noise
	samplers := []sdktrace.Sampler{nil, nil, sdktrace.TraceIDRatioBased(0.01), sdktrace.AlwaysSample()}
	sessions := make([]*session, len(ways))
	call := func(way int) error {
		response, err := sessions[way].send(body)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		if err == nil && !strings.Contains(string(answer), "xxx") {
			err = fmt.Errorf("%s: %s", ways[way], answer)
		}
		return err
	}
	for i, sampler := range samplers {
		var options []proxy.Option
		if sampler != nil {
			options = append(options, proxy.WithTraces(telemetry.NewTraces(collector.New(b).Provider(sampler), false)))
		}
		config := &configs.Config{DataDir: b.TempDir(), TopK: 5, Routing: configs.RoutingAuto, MaxRegistered: 40}
		sessions[i] = newSession(b, serveConfig(b, config, 1, options, up)+"/mcp")
		for range 50 {
			must.Do(b, call(i))
		}
	}
	takeTurns(b, ways, call)
}
