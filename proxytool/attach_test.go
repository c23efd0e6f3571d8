package proxytool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
	"toolfinch/proxytool"
)

// library is an ordinary server of everything, with the proxy tool.
func library(t testing.TB, opts ...server.ServerOption) *server.MCPServer {
	t.Helper()
	s := server.NewMCPServer("library", "1", append([]server.ServerOption{server.WithToolCapabilities(true)}, opts...)...)
	s.AddTool(mcp.NewTool("add", mcp.WithDescription("Adds two numbers"), mcp.WithNumber("a"), mcp.WithNumber("b")),
		func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			result := mcp.NewToolResultText(fmt.Sprint(r.GetFloat("a", 0) + r.GetFloat("b", 0)))
			if args := r.Params.RawArguments; args != nil {
				result.RawStructuredContent = json.RawMessage(`{"args":` + string(args) + `}`)
			}
			return result, nil
		})
	s.AddTool(mcp.NewTool("break", mcp.WithDescription("Fails")), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultError("broken"), nil
	})
	s.AddResource(mcp.NewResource("book://1", "first", mcp.WithMIMEType("text/plain")),
		func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{mcp.TextResourceContents{URI: "book://1", MIMEType: "text/plain", Text: `{ "n": 12345678901234567890 }`}}, nil
		})
	s.AddResourceTemplate(mcp.NewResourceTemplate("page://{n}", "page"),
		func(_ context.Context, r mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{mcp.BlobResourceContents{URI: r.Params.URI, Blob: "AA=="}}, nil
		})
	s.AddPrompt(mcp.NewPrompt("greet", mcp.WithArgument("name")), func(_ context.Context, r mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return mcp.NewGetPromptResult("d", []mcp.PromptMessage{mcp.NewPromptMessage(mcp.RoleUser, mcp.NewTextContent("hello "+r.Params.Arguments["name"]))}), nil
	})
	must.Do(t, proxytool.Attach(s, proxytool.WithLogger(slog.New(slog.DiscardHandler))))
	return s
}

// ask sends a request without a session and returns the result as sent.
func ask(t testing.TB, s *server.MCPServer, method, params string) json.RawMessage {
	t.Helper()
	response := s.HandleMessage(t.Context(), json.RawMessage(`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`))
	raw := must.Get(json.Marshal(response))(t)
	if failed := rawjson.Member(raw, "error"); failed != nil {
		t.Fatalf("%s %s: %s", method, params, failed)
	}
	return rawjson.Member(raw, "result")
}

func through(t testing.TB, s *server.MCPServer, arguments string) json.RawMessage {
	t.Helper()
	return ask(t, s, "tools/call", `{"name":"proxy","arguments":`+arguments+`}`)
}

func TestAttachLists(t *testing.T) {
	s := library(t)
	for _, test := range []struct{ arguments, want string }{
		{`{"action":"list","type":"tool"}`, "add break"}, // not the proxy tool
		{`{"action":"list","type":"resource"}`, "book://1 page://{n}"},
		{`{"action":"list","type":"prompt"}`, "greet"},
		{`{"action":"list","type":"tool","filter":{"prefix":"a"}}`, "add"},
		{`{"action":"list","type":"resource","filter":{"prefix":"page://"}}`, "page://{n}"},
		{`{"action":"list","type":"tool","filter":{"query":"NUMB add"}}`, "add"},
		{`{"action":"list","type":"tool","filter":{"query":"numbers fail"}}`, ""},
		{`{"action":"list","type":"tool","filter":{"tags":["Fails"]}}`, "break"},
		{`{"action":"list","type":"tool","filter":{"tags":["fail"]}}`, ""},
		{`{"action":"list","type":"tool","limit":1,"offset":1}`, "break"},
	} {
		item := only(t, through(t, s, test.arguments))
		equal(t, test.arguments, strings.Join(namesIn(item), " "), test.want)
	}
	listed := ask(t, s, "tools/list", `{}`)
	for raw := range rawjson.Elements(rawjson.Member(listed, "tools")) {
		if textOf(raw, "name") == "add" {
			item := only(t, through(t, s, `{"action":"info","type":"tool","path":"add"}`))
			equal(t, "info", textOf(item, "resource", "text"), string(raw))
		}
	}
	if text := errorText(t, through(t, s, `{"action":"list","type":"tool","filter":{"server":"x"}}`)); !strings.Contains(text, "no servers behind it") {
		t.Errorf("filter.server: %q", text)
	}
}

func TestAttachFindsOne(t *testing.T) {
	s := library(t)
	s.AddResource(mcp.NewResource("book://2", "twin"), nil)
	s.AddResource(mcp.NewResource("book://3", "twin"), nil)
	for path, want := range map[string]string{"book://1": "book://1", "page://{n}": "page://{n}", "page://7": "page://{n}", "first": "book://1", "page": "page://{n}"} {
		item := only(t, through(t, s, `{"action":"info","type":"resource","path":"`+path+`"}`))
		equal(t, path, strings.Join(namesIn(json.RawMessage(`{"resource":{"text":`+string(quoted("["+textOf(item, "resource", "text")+"]"))+`}}`)), " "), want)
		equal(t, "proxyPath", textOf(item, "annotations", "proxyPath"), path)
	}
	s.AddResource(mcp.NewResource("urn:plain", "plain"), func(_ context.Context, r mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
		return []mcp.ResourceContents{mcp.TextResourceContents{URI: r.Params.URI, Text: "plainly"}}, nil
	})
	for path, want := range map[string]string{"first": "book://1", "plain": "urn:plain", "urn:plain": "urn:plain"} {
		result := through(t, s, `{"action":"call","type":"resource","path":"`+path+`"}`)
		if item := only(t, result); textOf(item, "resource", "uri") != want || textOf(item, "annotations", "proxyPath") != path {
			t.Errorf("call of %s: %s", path, result)
		}
	}
	for path, says := range map[string]string{"page://{n}": "page://{n} is a template: fill in", "page": "page://{n} is a template: fill in", "twin": "not found", "gone": "not found"} {
		if text := errorText(t, through(t, s, `{"action":"call","type":"resource","path":"`+path+`"}`)); !strings.Contains(text, says) {
			t.Errorf("call of %s: %q, want %q", path, text, says)
		}
	}
	for path, says := range map[string]string{"twin": `there is no resource "twin"`, "book://11": "nearest: book://1"} {
		if text := errorText(t, through(t, s, `{"action":"info","type":"resource","path":"`+path+`"}`)); !strings.Contains(text, says) {
			t.Errorf("%s: %q, want %q", path, text, says)
		}
	}
	if text := errorText(t, through(t, s, `{"action":"info","type":"tool","path":"proxy"}`)); !strings.Contains(text, "there is no tool") {
		t.Errorf("proxy: %q", text)
	}
}

func quoted(s string) []byte {
	out, _ := json.Marshal(s)
	return out
}

func TestAttachAnswersAsTheServerDoes(t *testing.T) {
	s := library(t)
	const args = `{"a":9007199254740993,"b":1.0}`
	direct := ask(t, s, "tools/call", `{"name":"add","arguments":`+args+`}`)
	proxied := through(t, s, `{"action":"call","type":"tool","path":"add","args":`+args+`}`)
	equal(t, "structured content", member(proxied, "structuredContent"), member(direct, "structuredContent"))
	if member(proxied, "structuredContent", "args", "a") != "9007199254740993" {
		t.Errorf("the number was changed: %s", proxied)
	}
	for original := range rawjson.Elements(rawjson.Member(direct, "content")) {
		equal(t, "content", string(only(t, proxied)), string(proxytool.Annotate(original,
			proxytool.Label{Action: proxytool.ActionCall, Type: proxytool.TypeTool, Path: "add"})))
	}
	equal(t, "a tool that fails", errorText(t, through(t, s, `{"action":"call","type":"tool","path":"break"}`)), "broken")

	direct = ask(t, s, "prompts/get", `{"name":"greet","arguments":{"name":"5"}}`)
	prompt := must.Get(proxytool.ToolResultAsPrompt(through(t, s, `{"action":"call","type":"prompt","path":"greet","args":{"name":5}}`)))(t)
	equal(t, "prompt", string(prompt), string(direct))

	resource := must.Get(proxytool.ToolResultAsResource(through(t, s, `{"action":"call","type":"resource","path":"book://1"}`)))(t)
	equal(t, "resource", string(resource), `{"contents":[{"uri":"book://1","mimeType":"text/plain","text":"{\"n\":12345678901234567890}"}]}`)
	resource = must.Get(proxytool.ToolResultAsResource(through(t, s, `{"action":"call","type":"resource","path":"page://7"}`)))(t)
	equal(t, "template", string(resource), string(ask(t, s, "resources/read", `{"uri":"page://7"}`)))
}

func TestAttachRefuses(t *testing.T) {
	s := library(t)
	for arguments, says := range map[string]string{
		`{"action":"call","type":"tool","path":"gone"}`:                                                       "not found",
		`{"action":"call","type":"resource","path":"gone://"}`:                                                "not found",
		`{"action":"call","type":"prompt","path":"gone"}`:                                                     "not found",
		`{"action":"call","type":"tool","path":"proxy","args":{"action":"list","type":"tool"}}`:               "cannot be called through itself",
		`{"action":"call","type":"tool","path":"add","args":[]}`:                                              "args must be an object",
		`{"action":"batch","operations":[{"action":"call","type":"tool","path":"add"}],"type":"tool"}`:        "type is not allowed",
		`{"action":"call","type":"tool","path":"proxy","args":"{\"action\":\"list\",\"type\":\"resource\"}"}`: "cannot be called through itself",
	} {
		if text := errorText(t, through(t, s, arguments)); !strings.Contains(text, says) {
			t.Errorf("%s: %q, want %q", arguments, text, says)
		}
	}
}

func TestAttachToAServerOfNothing(t *testing.T) {
	s := server.NewMCPServer("empty", "1", server.WithToolCapabilities(true))
	must.Do(t, proxytool.Attach(s))
	for _, typ := range []string{"tool", "resource", "prompt"} {
		equal(t, typ, textOf(only(t, through(t, s, `{"action":"list","type":"`+typ+`"}`)), "resource", "text"), "[]")
	}
}

func TestAttachNames(t *testing.T) {
	s := library(t)
	if err := proxytool.Attach(s); err == nil || !strings.Contains(err.Error(), `"proxy" already`) {
		t.Errorf("a second one: %v", err)
	}
	if err := proxytool.Attach(s, proxytool.WithName("")); err == nil {
		t.Error("an empty name passes")
	}
	must.Do(t, proxytool.Attach(s, proxytool.WithName("mcp_proxy")))
	item := only(t, ask(t, s, "tools/call", `{"name":"mcp_proxy","arguments":{"action":"list","type":"tool"}}`))
	equal(t, "tools", strings.Join(namesIn(item), " "), "add break proxy")
}

func TestAttachListsAllPages(t *testing.T) {
	s := library(t, server.WithPaginationLimit(2))
	for i := range 7 {
		s.AddTool(mcp.NewTool(fmt.Sprintf("t%d", i)), nil)
	}
	item := only(t, through(t, s, `{"action":"list","type":"tool"}`))
	equal(t, "tools", strings.Join(namesIn(item), " "), "add break t0 t1 t2 t3 t4 t5 t6")
}

func TestResourcesOfOneNameKeepTheirOrder(t *testing.T) {
	s := library(t)
	for i := range 9 {
		s.AddResource(mcp.NewResource(fmt.Sprintf("same://%d", i), "same"), nil)
	}
	want := "book://1 same://0 same://1 same://2 same://3 same://4 same://5 same://6 same://7 same://8 page://{n}"
	for range 5 {
		equal(t, "resources", strings.Join(namesIn(only(t, through(t, s, `{"action":"list","type":"resource"}`))), " "), want)
	}
}

// What the server does around a call, and whom it lets see what, holds for calls
// through the proxy tool.
func TestAttachPassesMiddlewareHooksAndFilters(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	note := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, text)
	}
	hooks := &server.Hooks{}
	hooks.AddBeforeCallTool(func(_ context.Context, _ any, r *mcp.CallToolRequest) { note("hook " + r.Params.Name) })
	s := library(t, server.WithHooks(hooks),
		server.WithToolHandlerMiddleware(func(next server.ToolHandlerFunc) server.ToolHandlerFunc {
			return func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				note("middleware " + r.Params.Name)
				return next(ctx, r)
			}
		}),
		server.WithToolFilter(func(_ context.Context, tools []mcp.Tool) []mcp.Tool {
			var out []mcp.Tool
			for _, t := range tools {
				if t.Name != "break" {
					out = append(out, t)
				}
			}
			return out
		}))
	through(t, s, `{"action":"call","type":"tool","path":"add"}`)
	equal(t, "seen", strings.Join(seen, ", "), "hook proxy, middleware proxy, hook add, middleware add")

	equal(t, "listed", strings.Join(namesIn(only(t, through(t, s, `{"action":"list","type":"tool"}`))), " "), "add")
	if text := errorText(t, through(t, s, `{"action":"call","type":"tool","path":"break"}`)); !strings.Contains(text, "not found") {
		t.Errorf("a tool that the filter hides: %q", text)
	}
}

// connect returns a client of the server over HTTP.
func connect(t *testing.T, s *server.MCPServer, modern bool, opts ...client.ClientOption) *client.Client {
	t.Helper()
	handler := server.NewStreamableHTTPServer(s, server.WithStateful(!modern))
	endpoint := httptest.NewServer(handler)
	t.Cleanup(endpoint.Close)
	over := must.Get(transport.NewStreamableHTTP(endpoint.URL))(t)
	if !modern {
		//lint:ignore SA1019 clients of the older era are served too
		opts = append(opts, client.WithLegacyProtocolOnly())
	}
	c := client.NewClient(over, opts...)
	t.Cleanup(func() { _ = c.Close() })
	must.Do(t, c.Start(t.Context()))
	var request mcp.InitializeRequest
	request.Params.ProtocolVersion = mcp.LATEST_PROTOCOL_VERSION
	request.Params.ClientInfo = mcp.Implementation{Name: "test", Version: "1"}
	must.Get(c.Initialize(t.Context(), request))(t)
	return c
}

func callProxy(t *testing.T, c *client.Client, arguments map[string]any) (*mcp.CallToolResult, error) {
	t.Helper()
	var request mcp.CallToolRequest
	request.Params.Name, request.Params.Arguments = "proxy", arguments
	return c.CallTool(t.Context(), request)
}

func TestAttachServesBothErasOverHTTP(t *testing.T) {
	for _, modern := range []bool{false, true} {
		t.Run(fmt.Sprintf("modern=%v", modern), func(t *testing.T) {
			s := library(t)
			var seen bool
			s.AddTool(mcp.NewTool("era"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				seen = server.IsModernRequest(ctx)
				return mcp.NewToolResultText("ok"), nil
			})
			c := connect(t, s, modern)
			for _, arguments := range []map[string]any{
				{"action": "list", "type": "tool"},
				{"action": "list", "type": "resource"},
				{"action": "info", "type": "prompt", "path": "greet"},
				{"action": "call", "type": "tool", "path": "add", "args": map[string]any{"a": 1, "b": 2}},
				{"action": "call", "type": "resource", "path": "page://1"},
				{"action": "call", "type": "prompt", "path": "greet", "args": map[string]any{"name": "x"}},
				{"action": "call", "type": "tool", "path": "era"},
			} {
				result, err := callProxy(t, c, arguments)
				if err != nil || result.IsError || len(result.Content) != 1 {
					t.Fatalf("%v: %+v, %v", arguments, result, err)
				}
			}
			if seen != modern {
				t.Errorf("a tool behind the proxy tool saw a modern request: %v, want %v", seen, modern)
			}
		})
	}
}

type human struct{}

func (human) Elicit(context.Context, mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	return &mcp.ElicitationResult{ElicitationResponse: mcp.ElicitationResponse{Action: mcp.ElicitationResponseActionAccept}}, nil
}

// A tool that asks gets its answer through the proxy tool too: from a 2026-07-28
// client, which calls again.
func TestAttachLetsToolsAskOverHTTP(t *testing.T) {
	s := library(t, server.WithElicitation())
	s.AddTool(mcp.NewTool("ask"), func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if answer := server.ElicitationResponse(r.Params.InputResponses, "q"); answer != nil {
			return mcp.NewToolResultText(string(answer.Action) + " " + r.Params.RequestState), nil
		}
		return server.NewInputRequestBuilder("state").Elicit("q", mcp.ElicitationParams{Message: "?",
			RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}}}).ToolResult(), nil
	})
	c := connect(t, s, true, client.WithElicitationHandler(human{}))
	result := must.Get(callProxy(t, c, map[string]any{"action": "call", "type": "tool", "path": "ask"}))(t)
	equal(t, "answer", mcp.GetTextFromContent(result.Content[0]), "accept state")

	result = must.Get(callProxy(t, c, map[string]any{"action": "batch", "operations": []any{map[string]any{"action": "call", "type": "tool", "path": "ask"}}}))(t)
	raw, _ := json.Marshal(result)
	d, err := proxytool.Decode(raw)
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	if text := errorText(t, d.Items[0]); !strings.Contains(text, "call it alone") {
		t.Errorf("in a batch: %q", text)
	}
}

func TestAttachServesToolsOfTheSession(t *testing.T) {
	s := library(t)
	s.AddTool(mcp.NewTool("learn"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		id := server.ClientSessionFromContext(ctx).SessionID()
		return mcp.NewToolResultText("ok"), s.AddSessionTool(id, mcp.NewTool("own"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText("mine"), nil
		})
	})
	first, second := connect(t, s, false), connect(t, s, false)
	must.Get(callProxy(t, first, map[string]any{"action": "call", "type": "tool", "path": "learn"}))(t)
	own := map[string]any{"action": "call", "type": "tool", "path": "own"}
	result, err := callProxy(t, first, own)
	if err != nil || result.IsError || mcp.GetTextFromContent(result.Content[0]) != "mine" {
		t.Errorf("%+v, %v", result, err)
	}
	if result, err = callProxy(t, second, own); err != nil || !result.IsError {
		t.Errorf("another session: %+v, %v; want an error result", result, err)
	}
}

func TestAttachPassesURLElicitation(t *testing.T) {
	s := library(t)
	s.AddTool(mcp.NewTool("login"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, mcp.URLElicitationRequiredError{Elicitations: []mcp.ElicitationParams{{Mode: "url", URL: "https://example.com", ElicitationID: "1"}}}
	})
	raw, _ := json.Marshal(s.HandleMessage(t.Context(), json.RawMessage(
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"proxy","arguments":{"action":"call","type":"tool","path":"login"}}}`)))
	equal(t, "code", member(raw, "error", "code"), "-32042")
	if !strings.Contains(member(raw, "error", "data"), "https://example.com") {
		t.Errorf("the URL is lost: %s", raw)
	}
}

func TestAttachEndsWithTheCall(t *testing.T) {
	s := library(t)
	s.AddTool(mcp.NewTool("wait"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("gone"))
	raw, _ := json.Marshal(s.HandleMessage(ctx, json.RawMessage(
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"proxy","arguments":{"action":"call","type":"tool","path":"wait"}}}`)))
	if !strings.Contains(string(raw), "context canceled") {
		t.Errorf("%s", raw)
	}
}

// listener is a session that keeps what it is told.
type listener struct{ told chan mcp.JSONRPCNotification }

func (listener) SessionID() string                                     { return "listener" }
func (listener) Initialize()                                           {}
func (listener) Initialized() bool                                     { return true }
func (l listener) NotificationChannel() chan<- mcp.JSONRPCNotification { return l.told }

func TestAttachReportsProgressOfABatch(t *testing.T) {
	s := library(t)
	s.AddTool(mcp.NewTool("token"), func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText(fmt.Sprint(r.Params.Meta != nil && r.Params.Meta.ProgressToken != nil)), nil
	})
	session := listener{make(chan mcp.JSONRPCNotification, 10)}
	send := func(arguments string) json.RawMessage {
		t.Helper()
		response := s.HandleMessage(s.WithContext(t.Context(), session), json.RawMessage(
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"proxy","_meta":{"progressToken":"p"},"arguments":`+arguments+`}}`))
		raw := must.Get(json.Marshal(response))(t)
		return rawjson.Member(raw, "result")
	}
	const call = `{"action":"call","type":"tool","path":"token"}`
	equal(t, "a call has the token of its client", textOf(only(t, send(call)), "text"), "true")

	d := must.Get(proxytool.Decode(send(`{"action":"batch","operations":[` + call + `]}`)))(t)
	equal(t, "an operation of a batch has it", textOf(only(t, d.Items[0]), "text"), "false")
	select {
	case n := <-session.told:
		equal(t, "progress", fmt.Sprint(n.Method, n.Params.AdditionalFields), "notifications/progressmap[progress:1 progressToken:p total:1]")
	default:
		t.Error("the batch reported no progress")
	}
}
