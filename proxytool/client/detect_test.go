package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolfinch/internal/must"
	"toolfinch/proxytool"
	proxyclient "toolfinch/proxytool/client"
)

const (
	plainSchema  = `{"type":"object","properties":{"action":{"enum":["list","info","call"]},"type":{"enum":["tool","resource","prompt"]},"path":{"type":"string"},"args":{}}}`
	nestedSchema = `{"type":"object","$defs":{"Type":{"oneOf":[{"const":"tool"},{"const":"resource"},{"const":"prompt"}]}},` +
		`"properties":{"action":{"anyOf":[{"enum":["list","info","call","batch"]},{"type":"null"}]},"type":{"$ref":"#/$defs/Type"},"path":{"anyOf":[{"type":"string"},{"type":"null"}]}}}`
	looseSchema  = `{"type":"object","properties":{"action":{"type":"string"},"type":{"type":"string"},"path":{"type":"string"}}}`
	circleSchema = `{"type":"object","$defs":{"A":{"$ref":"#/$defs/A"}},"properties":{"action":{"$ref":"#/$defs/A"},"type":{"$ref":"#/$defs/A"},"path":{}}}`
	otherSchema  = `{"type":"object","properties":{"url":{"type":"string"}}}`
)

func TestTheProxyToolIsFoundByNameThenBySchema(t *testing.T) {
	for _, test := range []struct {
		what  string
		tools map[string]string // schema by name
		named string            // "" for the default
		want  string            // "" for none
	}{
		{"by its name", map[string]string{"proxy": plainSchema, "aproxy": plainSchema}, "", "proxy"},
		{"by its name and parameters", map[string]string{"proxy": looseSchema}, "", "proxy"},
		{"by another name", map[string]string{"proxy": plainSchema, "all": plainSchema}, "all", "all"},
		{"by another name alone", map[string]string{"all": otherSchema, "proxy": plainSchema}, "all", "all"},
		{"by its schema", map[string]string{"all": plainSchema, "other": otherSchema}, "", "all"},
		{"by its schema, the name being wrong", map[string]string{"all": plainSchema}, "house_proxy", "all"},
		{"by a schema with references", map[string]string{"all": nestedSchema}, "", "all"},
		{"beside another thing of its name", map[string]string{"proxy": otherSchema, "all": plainSchema}, "", "all"},
		{"not: another thing of its name", map[string]string{"proxy": otherSchema}, "", ""},
		{"not: another name and a loose schema", map[string]string{"all": looseSchema}, "", ""},
		{"not: a schema without end", map[string]string{"all": circleSchema}, "", ""},
		{"not: no tools", nil, "", ""},
		{"on a later page", map[string]string{"a": otherSchema, "b": otherSchema, "c": otherSchema, "z": plainSchema}, "", "z"},
	} {
		t.Run(test.what, func(t *testing.T) {
			s := server.NewMCPServer("s", "1", server.WithToolCapabilities(true), server.WithPaginationLimit(2))
			for name, schema := range test.tools {
				s.AddTool(mcp.NewToolWithRawSchema(name, "", []byte(schema)), nothingToDo)
			}
			var options []proxyclient.Option
			if test.named != "" {
				options = append(options, proxyclient.WithToolName(test.named))
			}
			c, err := proxyclient.Open(t.Context(), overNothing(t, s), options...)
			if test.want == "" {
				if !errors.Is(err, proxyclient.ErrNoProxyTool) || !strings.Contains(err.Error(), `"proxy"`) {
					t.Errorf("error = %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if got := c.ToolName(); got != test.want {
				t.Errorf("found %q", got)
			}
		})
	}
}

func nothingToDo(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return mcp.NewToolResultText("nothing"), nil
}

func TestAToolOfAnotherNameIsCalled(t *testing.T) {
	s := server.NewMCPServer("s", "1", server.WithToolCapabilities(true))
	s.AddTool(mcp.NewTool("greet"), nothingToDo)
	must.Do(t, proxytool.Attach(s, proxytool.WithName("everything")))
	for _, options := range [][]proxyclient.Option{nil, {proxyclient.WithToolName("everything")}} {
		c := open(t, overNothing(t, s), options...)
		r, err := c.Proxy(t.Context(), proxytool.TypeTool, proxytool.ActionCall, "greet", nil)
		if err != nil || r.Text() != "nothing" {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

// A server may page without being asked to, and annotations may have been lost
// on the way: what counts stands in _meta too.
func TestTransparentListsFollowThePagesOfTheServer(t *testing.T) {
	var cursors []string
	repeats := false
	s := server.NewMCPServer("s", "1", server.WithToolCapabilities(true))
	s.AddTool(mcp.NewToolWithRawSchema("proxy", "", []byte(plainSchema)), func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		cursor := r.GetString("cursor", "")
		cursors = append(cursors, cursor)
		next := map[string]string{"": "1", "1": "2"}[cursor]
		if repeats {
			next = "1"
		}
		meta := map[string]any{"proxyAction": "list", "proxyType": "tool", "pythonType": "Tool", "many": true, "totalCount": 3, "offset": len(cursors) - 1, "count": 1}
		if next != "" {
			meta["nextCursor"] = next
		}
		return &mcp.CallToolResult{Content: []mcp.Content{mcp.EmbeddedResource{Type: "resource", Meta: &mcp.Meta{AdditionalFields: meta},
			Resource: mcp.TextResourceContents{URI: "proxy:list/tool", MIMEType: "application/json",
				Text: fmt.Sprintf(`[{"name":"tool%s","inputSchema":{"type":"object"}}]`, cursor)}}}}, nil
	})
	c := open(t, overNothing(t, s), proxyclient.WithTransparent())
	r, err := c.ListTools(t.Context(), mcp.ListToolsRequest{})
	if err != nil || len(r.Tools) != 3 || r.Tools[2].Name != "tool2" || r.NextCursor != "" {
		t.Fatalf("tools = %+v, %v", r, err)
	}
	request := mcp.ListToolsRequest{}
	request.Params.Cursor = "2"
	if r, err = c.ListTools(t.Context(), request); err != nil || len(r.Tools) != 1 {
		t.Errorf("from a cursor on: %+v, %v", r, err)
	}
	if got := strings.Join(cursors, ","); got != ",1,2,2" {
		t.Errorf("cursors = %s", got)
	}
	repeats = true
	if _, err = c.ListTools(t.Context(), mcp.ListToolsRequest{}); err == nil {
		t.Error("pages without end have an end")
	}
}

func TestAnswersOfSomethingElseAreErrors(t *testing.T) {
	s := server.NewMCPServer("s", "1", server.WithToolCapabilities(true))
	s.AddTool(mcp.NewToolWithRawSchema("proxy", "", []byte(plainSchema)), nothingToDo)
	c := open(t, overNothing(t, s), proxyclient.WithTransparent())
	if _, err := c.ListTools(t.Context(), mcp.ListToolsRequest{}); !errors.Is(err, proxytool.ErrNoAnswer) {
		t.Errorf("list: %v", err)
	}
	if _, err := c.ReadResource(t.Context(), readResource("a://b")); !errors.Is(err, proxytool.ErrNoAnswer) {
		t.Errorf("read: %v", err)
	}
	if _, err := c.GetPrompt(t.Context(), getPrompt("p", nil)); !errors.Is(err, proxytool.ErrNoAnswer) {
		t.Errorf("get: %v", err)
	}
	request := callTool("x", nil)
	request.Params.Task = &mcp.TaskParams{}
	if _, err := c.CallTool(t.Context(), request); err == nil {
		t.Error("a task was asked for")
	}
}

// What was asked of an ordinary client cannot be answered through the proxy tool.
func TestAnswersToAnEarlierResultAreRefused(t *testing.T) {
	c := open(t, overNothing(t, newHouse(t).MCPServer), proxyclient.WithTransparent())
	round := mcp.MultiRoundTripParams{RequestState: "s"}
	call, read, get := callTool("echo", nil), readResource("house://notes"), getPrompt("greet", nil)
	call.Params.MultiRoundTripParams, read.Params.MultiRoundTripParams, get.Params.MultiRoundTripParams = round, round, round
	_, called := c.CallTool(t.Context(), call)
	_, read1 := c.ReadResource(t.Context(), read)
	_, got := c.GetPrompt(t.Context(), get)
	for what, err := range map[string]error{"call": called, "read": read1, "get": got} {
		if err == nil || !strings.Contains(err.Error(), "takes no answers to an earlier result") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestOpenSaysWhyItFailed(t *testing.T) {
	broken := errors.New("no wire")
	_, err := proxyclient.Open(t.Context(), func(context.Context) (transport.Interface, error) { return nil, broken })
	if !errors.Is(err, broken) {
		t.Errorf("a dial that fails: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = proxyclient.Open(ctx, func(ctx context.Context) (transport.Interface, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a context that ended: %v", err)
	}
}
