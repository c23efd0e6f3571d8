package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
	"toolfinch/proxytool"
	proxyclient "toolfinch/proxytool/client"
)

// session is what mcp-go's client and ours have in common.
type session interface {
	ListTools(context.Context, mcp.ListToolsRequest) (*mcp.ListToolsResult, error)
	ListResources(context.Context, mcp.ListResourcesRequest) (*mcp.ListResourcesResult, error)
	ListResourceTemplates(context.Context, mcp.ListResourceTemplatesRequest) (*mcp.ListResourceTemplatesResult, error)
	ListPrompts(context.Context, mcp.ListPromptsRequest) (*mcp.ListPromptsResult, error)
	CallTool(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error)
	ReadResource(context.Context, mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error)
	GetPrompt(context.Context, mcp.GetPromptRequest) (*mcp.GetPromptResult, error)
	OnNotification(func(mcp.JSONRPCNotification))
	Close() error
}

var (
	_ session = (*client.Client)(nil)
	_ session = (*proxyclient.Client)(nil)
)

// ordinary is mcp-go's own client.
func ordinary(t testing.TB, dial proxyclient.Dial, options ...client.ClientOption) *client.Client {
	t.Helper()
	inner := must.Get(dial(t.Context()))(t)
	c := client.NewClient(inner, options...)
	t.Cleanup(func() { _ = c.Close() })
	must.Do(t, c.Start(t.Context()))
	must.Get(c.Initialize(t.Context(), mcp.InitializeRequest{}))(t)
	return c
}

func callTool(name string, args any) mcp.CallToolRequest {
	return mcp.CallToolRequest{Params: mcp.CallToolParams{Name: name, Arguments: args}}
}

func readResource(uri string) mcp.ReadResourceRequest {
	return mcp.ReadResourceRequest{Params: mcp.ReadResourceParams{URI: uri}}
}

func getPrompt(name string, args map[string]string) mcp.GetPromptRequest {
	return mcp.GetPromptRequest{Params: mcp.GetPromptParams{Name: name, Arguments: args}}
}

type exchange struct {
	name string
	run  func(context.Context, session) (any, error)
}

// exchanges are what every session is asked for; what they return is compared.
var exchanges = []exchange{
	{"tools", func(ctx context.Context, s session) (any, error) {
		r, err := s.ListTools(ctx, mcp.ListToolsRequest{})
		if err != nil {
			return nil, err
		}
		var tools []mcp.Tool
		for _, tool := range r.Tools {
			if tool.Name != proxytool.DefaultName { // it is not behind itself
				tools = append(tools, tool)
			}
		}
		return tools, nil
	}},
	{"resources", func(ctx context.Context, s session) (any, error) {
		r, err := s.ListResources(ctx, mcp.ListResourcesRequest{})
		if err != nil {
			return nil, err
		}
		return r.Resources, nil
	}},
	{"templates", func(ctx context.Context, s session) (any, error) {
		r, err := s.ListResourceTemplates(ctx, mcp.ListResourceTemplatesRequest{})
		if err != nil {
			return nil, err
		}
		all, err := json.Marshal(r.ResourceTemplates) // a template keeps what it was parsed into
		return string(all), err
	}},
	{"prompts", func(ctx context.Context, s session) (any, error) {
		r, err := s.ListPrompts(ctx, mcp.ListPromptsRequest{})
		if err != nil {
			return nil, err
		}
		return r.Prompts, nil
	}},
	{"call", call("echo", map[string]any{"text": "<hello> & \u00e9", "n": json.Number("9007199254740993")})},
	{"call without arguments", call("echo", nil)},
	{"call with raw arguments", call("echo", json.RawMessage(`{"z":1,"a":2,"f":1.0,"n":9007199254740993}`))},
	{"call with the arguments of a request that was received", func(ctx context.Context, s session) (any, error) {
		var request mcp.CallToolRequest
		if err := json.Unmarshal([]byte(`{"params":{"name":"echo","arguments":{"f":1.0,"n":9007199254740993}}}`), &request); err != nil {
			return nil, err
		}
		r, err := s.CallTool(ctx, request)
		if err != nil {
			return nil, err
		}
		if text := r.Content[0].(mcp.TextContent).Text; text != `{"f":1.0,"n":9007199254740993}` {
			return nil, fmt.Errorf("the arguments came as %s", text)
		}
		return r.Content, nil
	}},
	{"labels of the tool's own", call("labelled", nil)},
	{"structured", call("big", nil)},
	{"content of every kind", call("mixed", nil)},
	{"failure", call("fail", nil)},
	{"text", read("house://notes")},
	{"blob", read("house://blob")},
	{"of a template", read("house://room/7")},
	{"several contents", read("house://both")},
	{"prompt", func(ctx context.Context, s session) (any, error) {
		r, err := s.GetPrompt(ctx, getPrompt("greet", map[string]string{"name": "Ada"}))
		if err != nil {
			return nil, err
		}
		return []any{r.Description, r.Messages}, nil
	}},
}

func call(name string, args any) func(context.Context, session) (any, error) {
	return func(ctx context.Context, s session) (any, error) {
		r, err := s.CallTool(ctx, callTool(name, args))
		if err != nil {
			return nil, err
		}
		return []any{r.Content, r.StructuredContent, string(r.RawStructuredContent), r.IsError}, nil
	}
}

func read(uri string) func(context.Context, session) (any, error) {
	return func(ctx context.Context, s session) (any, error) {
		r, err := s.ReadResource(ctx, readResource(uri))
		if err != nil {
			return nil, err
		}
		return r.Contents, nil
	}
}

func TestThroughTheProxyToolAllIsAsItIsDirectly(t *testing.T) {
	for _, way := range ways {
		for _, mode := range []struct {
			name    string
			options []proxyclient.Option
		}{{"direct", nil}, {"transparent", []proxyclient.Option{proxyclient.WithTransparent()}}} {
			t.Run(way.name+"/"+mode.name, func(t *testing.T) {
				plain := ordinary(t, way.dial(t, newHouse(t).MCPServer), way.options...)
				ours := open(t, way.dial(t, newHouse(t).MCPServer), append(mode.options, proxyclient.WithClientOptions(way.options...))...)
				for _, exchange := range exchanges {
					want, err := exchange.run(t.Context(), plain)
					if err != nil {
						t.Errorf("%s: directly: %v", exchange.name, err)
						continue
					}
					got, err := exchange.run(t.Context(), ours)
					if err != nil {
						t.Errorf("%s: %v", exchange.name, err)
						continue
					}
					if !reflect.DeepEqual(got, want) {
						t.Errorf("%s: %s\nwant %s", exchange.name, asJSON(t, got), asJSON(t, want))
					}
				}
			})
		}
	}
}

func TestTransparentErrorsAreErrors(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			plain := ordinary(t, way.dial(t, newHouse(t).MCPServer), way.options...)
			ours := open(t, way.dial(t, newHouse(t).MCPServer), proxyclient.WithTransparent(), proxyclient.WithClientOptions(way.options...))
			// A call of a tool has an answer in any case.
			if r, err := ours.CallTool(t.Context(), callTool("nobody", nil)); err != nil || !r.IsError || len(r.Content) != 1 {
				t.Errorf("no such tool: %+v, %v", r, err)
			}
			for name, run := range map[string]func(context.Context, session) (any, error){
				"no such resource": read("house://nowhere"),
				"no such prompt": func(ctx context.Context, s session) (any, error) {
					return s.GetPrompt(ctx, getPrompt("nobody", nil))
				},
			} {
				if _, err := run(t.Context(), plain); err == nil {
					t.Errorf("%s: no error directly", name)
				}
				var refused *proxyclient.ResultError
				if _, err := run(t.Context(), ours); !errors.As(err, &refused) || !strings.Contains(err.Error(), "not found") {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}

// JSON text is the one thing that the proxy tool changes: white space goes.
func TestTextThatIsJSONComesCompactWithItsType(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			c := open(t, way.dial(t, newHouse(t).MCPServer), proxyclient.WithTransparent(), proxyclient.WithClientOptions(way.options...))
			r, err := c.ReadResource(t.Context(), readResource("house://data"))
			if err != nil {
				t.Fatal(err)
			}
			want := []mcp.ResourceContents{mcp.TextResourceContents{URI: "house://data", MIMEType: "application/vnd.house+json",
				Text: `{"n":9007199254740993,"f":1.0,"z":1,"a":2}`}}
			if !reflect.DeepEqual(r.Contents, want) {
				t.Errorf("contents = %s", asJSON(t, r.Contents))
			}
			// What had none has none.
			r, err = c.ReadResource(t.Context(), readResource("house://untyped"))
			if err != nil {
				t.Fatal(err)
			}
			want = []mcp.ResourceContents{mcp.TextResourceContents{URI: "house://untyped", Text: "[2]"}}
			if !reflect.DeepEqual(r.Contents, want) {
				t.Errorf("contents = %s", asJSON(t, r.Contents))
			}
		})
	}
}

func TestProxyGivesTheBytesOfTheAnswer(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			c := open(t, way.dial(t, newHouse(t).MCPServer), proxyclient.WithClientOptions(way.options...))
			for _, test := range []struct {
				typ    proxytool.Type
				action proxytool.Action
				path   string
				args   any
				want   []string // in the bytes of the answer
			}{
				{proxytool.TypeTool, proxytool.ActionCall, "big", nil, []string{`"structuredContent":{"n":9007199254740993,"f":1.0,"b":1,"a":2}`, `"proxyPath":"big"`}},
				{proxytool.TypeTool, proxytool.ActionCall, "hologram", nil, []string{`"depth":9007199254740993`, `"colour":"green"`}},
				{proxytool.TypeTool, proxytool.ActionCall, "echo", map[string]int64{"n": 9007199254740993}, []string{`{\"n\":9007199254740993}`}},
				{proxytool.TypeTool, proxytool.ActionCall, "fail", nil, []string{`"isError":true`, "no luck today"}},
				{proxytool.TypeTool, proxytool.ActionInfo, "echo", nil, []string{`"uri":"proxy:info/tool/echo"`, `"many":false`, `\"readOnlyHint\":true`}},
				{proxytool.TypeResource, proxytool.ActionList, "", nil, []string{`"uri":"proxy:list/resource"`, `"many":true`, `house://room/{id}`, `"dataType":"Resource | ResourceTemplate"`}},
				{proxytool.TypeResource, proxytool.ActionInfo, "house://blob", nil, []string{`application/x-thing`}},
				{proxytool.TypeResource, proxytool.ActionCall, "house://data", nil, []string{`{\"n\":9007199254740993,\"f\":1.0,\"z\":1,\"a\":2}`, `"contentType":"application/vnd.house+json"`}},
				{proxytool.TypePrompt, proxytool.ActionList, "", nil, []string{`"uri":"proxy:list/prompt"`}},
				{proxytool.TypePrompt, proxytool.ActionInfo, "greet", nil, []string{`Say hello`}},
				{proxytool.TypePrompt, proxytool.ActionCall, "greet", map[string]string{"name": "Ada"}, []string{`"dataType":"GetPromptResult"`, `Ada`}},
			} {
				r, err := c.Proxy(t.Context(), test.typ, test.action, test.path, test.args)
				if err != nil {
					t.Errorf("%s %s %s: %v", test.action, test.typ, test.path, err)
					continue
				}
				for _, want := range test.want {
					if !strings.Contains(string(r.Raw), want) {
						t.Errorf("%s %s %s: %s in %s", test.action, test.typ, test.path, want, r.Raw)
					}
				}
				if r.Failed() != (test.path == "fail") {
					t.Errorf("%s: failed: %v", test.path, r.Failed())
				}
			}
		})
	}
}

func TestFilteredListsPagesAndBatches(t *testing.T) {
	c := open(t, overNothing(t, newHouse(t).MCPServer))
	one := 1
	op := proxytool.Operation{Action: proxytool.ActionList, Type: proxytool.TypeTool, Filter: &proxytool.Filter{Prefix: "h"}, Limit: &one}
	var names []string
	for {
		r, err := c.Do(t.Context(), op)
		if err != nil {
			t.Fatal(err)
		}
		list, err := r.Decode()
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range list.Items {
			names = append(names, rawjson.Text(rawjson.Member(item, "name")))
		}
		if page := list.Label.Page; page.Total != 2 || page.Count != 1 || page.Offset != len(names)-1 {
			t.Errorf("page = %+v", page)
		}
		if op.Cursor = list.Label.Page.Next; op.Cursor == "" {
			break
		}
	}
	if !reflect.DeepEqual(names, []string{"hang", "hologram"}) {
		t.Errorf("names = %v", names)
	}

	r, err := c.Do(t.Context(), proxytool.Operation{Action: proxytool.ActionBatch, Operations: []proxytool.Operation{
		{Action: proxytool.ActionCall, Type: proxytool.TypeTool, Path: "echo", Args: json.RawMessage(`{"n":9007199254740993}`)},
		{Action: proxytool.ActionInfo, Type: proxytool.TypePrompt, Path: "nobody"},
		{Action: proxytool.ActionCall, Type: proxytool.TypeResource, Path: "house://notes"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := r.Decode()
	if err != nil || len(batch.Items) != 3 {
		t.Fatalf("batch = %+v, %v", batch, err)
	}
	for i, failed := range []bool{false, true, false} {
		if inner := (&proxyclient.Result{Raw: batch.Items[i]}); inner.Failed() != failed {
			t.Errorf("operation %d: %s", i, inner.Raw)
		}
	}
	if !strings.Contains((&proxyclient.Result{Raw: batch.Items[0]}).Text(), "9007199254740993") {
		t.Errorf("echo = %s", batch.Items[0])
	}
}

func TestWhatTheProxyToolRefusesIsAnError(t *testing.T) {
	c := open(t, overNothing(t, newHouse(t).MCPServer))
	for _, op := range []proxytool.Operation{
		{Action: proxytool.ActionInfo, Type: proxytool.TypeTool, Path: "nobody"},
		{Action: proxytool.ActionCall, Type: proxytool.TypeResource, Path: "house://nowhere"},
		{Action: proxytool.ActionCall, Type: proxytool.TypePrompt, Path: "nobody"},
		{Action: proxytool.ActionList, Type: proxytool.TypeTool, Cursor: "stale"},
	} {
		_, err := c.Do(t.Context(), op)
		var refused *proxyclient.ResultError
		if !errors.As(err, &refused) || refused.Text == "" || !refused.Result.Failed() || !strings.Contains(err.Error(), refused.Text) {
			t.Errorf("%+v: %v", op, err)
		}
	}
}

func asJSON(t *testing.T, value any) string {
	t.Helper()
	raw := must.Get(json.Marshal(value))(t)
	return string(raw)
}
