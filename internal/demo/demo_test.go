package demo

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolfinch/internal/must"
)

// connect starts a built-in server in dir and returns a client of it.
func connect(t testing.TB, name, dir string) *client.Client {
	t.Helper()
	for _, s := range Servers() {
		if s.Name == name {
			made, closeServer, err := s.New(dir)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := closeServer(); err != nil {
					t.Error(err)
				}
			})
			return clientOf(t, made)
		}
	}
	t.Fatalf("no server %s", name)
	return nil
}

func clientOf(t testing.TB, s *server.MCPServer) *client.Client {
	t.Helper()
	c := must.Get(client.NewInProcessClient(s))(t)
	t.Cleanup(func() { c.Close() })
	must.Do(t, c.Start(t.Context()))
	must.Get(c.Initialize(t.Context(), mcp.InitializeRequest{}))(t)
	return c
}

// call is one call and what is expected of it: the whole text of the answer,
// parts of it, or a tool error with a part of its text.
type call struct {
	tool, arguments string
	want            string
	has             []string
	fails           string
}

func (c call) run(t *testing.T, to *client.Client) {
	t.Helper()
	var arguments map[string]any
	if err := json.Unmarshal([]byte(c.arguments), &arguments); err != nil {
		t.Fatalf("%s %s: %v", c.tool, c.arguments, err)
	}
	result, err := to.CallTool(t.Context(), mcp.CallToolRequest{Params: mcp.CallToolParams{Name: c.tool, Arguments: arguments}})
	if err != nil {
		t.Fatalf("%s %s: %v", c.tool, c.arguments, err)
	}
	text := result.Content[0].(mcp.TextContent).Text
	switch {
	case result.IsError != (c.fails != ""), c.fails != "" && !strings.Contains(text, c.fails):
		t.Errorf("%s %s: error %v %q, want %q", c.tool, c.arguments, result.IsError, text, c.fails)
	case c.fails == "" && c.has == nil && text != c.want:
		t.Errorf("%s %s:\ngot  %q\nwant %q", c.tool, c.arguments, text, c.want)
	}
	for _, part := range c.has {
		if !strings.Contains(text, part) {
			t.Errorf("%s %s: %s is not in %q", c.tool, c.arguments, part, text)
		}
	}
}

func run(t *testing.T, to *client.Client, calls []call) {
	t.Helper()
	for _, c := range calls {
		c.run(t, to)
	}
}

func TestEveryToolSaysWhatItIs(t *testing.T) {
	tools := 0
	seen := map[string]bool{}
	for _, s := range Servers() {
		if s.Description == "" || seen[s.Name] {
			t.Errorf("server %s: %q", s.Name, s.Description)
		}
		seen[s.Name] = true
		list := must.Get(connect(t, s.Name, t.TempDir()).ListTools(t.Context(), mcp.ListToolsRequest{}))(t)
		for _, tool := range list.Tools {
			tools++
			name := s.Name + "." + tool.Name
			hints := tool.Annotations
			if tool.Title == "" || len(tool.Description) < 20 || hints.ReadOnlyHint == nil || hints.DestructiveHint == nil ||
				hints.IdempotentHint == nil || hints.OpenWorldHint == nil || *hints.OpenWorldHint || *hints.ReadOnlyHint && *hints.DestructiveHint {
				t.Errorf("%s: title %q, description %q, %+v", name, tool.Title, tool.Description, hints)
			}
			if tool.InputSchema.AdditionalProperties != false || tool.InputSchema.Properties == nil {
				t.Errorf("%s: a misspelled argument would go unnoticed: %+v", name, tool.InputSchema)
			}
			for argument, schema := range tool.InputSchema.Properties {
				described(t, name+" "+argument, schema)
			}
			for field, schema := range tool.OutputSchema.Properties {
				described(t, name+" result "+field, schema)
			}
		}
	}
	if tools < 30 {
		t.Errorf("%d tools, want 30 or more", tools)
	}
}

func described(t *testing.T, what string, schema any) {
	t.Helper()
	s, _ := schema.(map[string]any)
	description, _ := s["description"].(string)
	kind, _ := s["type"].(string)
	if description == "" || kind == "" {
		t.Errorf("%s: %v", what, schema)
	}
}

func TestMistakesInArgumentsAreToolErrors(t *testing.T) {
	run(t, connect(t, "text", t.TempDir()), []call{
		{tool: "count", arguments: `{}`, fails: "text"},
		{tool: "count", arguments: `{"text":7}`, fails: "text"},
		{tool: "count", arguments: `{"txt":"a"}`, fails: "txt"},
	})
}
