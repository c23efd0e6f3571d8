package main

import (
	"context"
	"encoding/json"
	"os"
	"slices"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// user is a person who agrees to everything, and a model and a disk.
type user struct{}

// Elicit fills the form with its defaults, and the other fields with whatever
// fits their type.
func (user) Elicit(_ context.Context, request mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	text, err := json.Marshal(request.Params.RequestedSchema)
	if err != nil {
		return nil, err
	}
	result := &mcp.ElicitationResult{}
	result.Action = mcp.ElicitationResponseActionAccept
	result.Content = fill(text, true)
	return result, nil
}

func (user) CreateMessage(context.Context, mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
	return &mcp.CreateMessageResult{
		SamplingMessage: mcp.SamplingMessage{Role: mcp.RoleAssistant, Content: mcp.NewTextContent("Paris")},
		Model:           "player",
		StopReason:      "endTurn",
	}, nil
}

func (user) ListRoots(context.Context, mcp.ListRootsRequest) (*mcp.ListRootsResult, error) {
	return &mcp.ListRootsResult{Roots: []mcp.Root{{URI: "file:///player", Name: "player"}}}, nil
}

// fill makes an object for a schema: of its required fields, or of all.
func fill(schema json.RawMessage, all bool) map[string]any {
	var fields struct {
		Properties map[string]struct {
			Type    any
			Default any
			Enum    []any
		}
		Required []string
	}
	_ = json.Unmarshal(schema, &fields) // what is no schema has no fields
	object := map[string]any{}
	for name, field := range fields.Properties {
		if !all && !slices.Contains(fields.Required, name) {
			continue
		}
		switch {
		case field.Default != nil:
			object[name] = field.Default
		case len(field.Enum) > 0:
			object[name] = field.Enum[0]
		case field.Type == "number", field.Type == "integer":
			object[name] = 7
		case field.Type == "boolean":
			object[name] = true
		case field.Type == "object":
			object[name] = map[string]any{}
		case field.Type == "array":
			object[name] = []any{}
		case field.Type == "null":
			object[name] = nil
		default:
			object[name] = "text"
		}
	}
	return object
}

// schemas are the tools listed so far with their schemas as they were sent: the
// library's own structures change them.
type schemas struct {
	tools []listed
}

type listed struct {
	Name        string          `json:"name"`
	InputSchema json.RawMessage `json:"inputSchema"`
}

// keep takes the tools from the answer to a listing.
func (s *schemas) keep(request transport.JSONRPCRequest, response *transport.JSONRPCResponse) {
	if request.Method != string(mcp.MethodToolsList) || response == nil {
		return
	}
	var page struct{ Tools []listed }
	if json.Unmarshal(response.Result, &page) == nil {
		s.tools = append(s.tools, page.Tools...)
	}
}

// only drops the tools that are not among those.
func (s *schemas) only(tools []mcp.Tool) {
	s.tools = slices.DeleteFunc(s.tools, func(l listed) bool {
		return !slices.ContainsFunc(tools, func(t mcp.Tool) bool { return t.Name == l.Name })
	})
}

// ours are tools of toolfinch, which the scenarios do not know.
var ours = []string{"retrieve_tools", "call_tool"}

// calls are those that the scenario names, else one of each tool.
func (s *schemas) calls() []mcp.CallToolParams {
	var script struct {
		ToolCalls []struct {
			Name      string
			Arguments json.RawMessage
		}
	}
	_ = json.Unmarshal([]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT")), &script) // most have none
	var all []mcp.CallToolParams
	for _, call := range script.ToolCalls {
		all = append(all, mcp.CallToolParams{Name: call.Name, Arguments: call.Arguments})
	}
	if all != nil {
		return all
	}
	for _, tool := range s.tools {
		if slices.Contains(ours, tool.Name) {
			continue
		}
		arguments := fill(tool.InputSchema, false)
		if tool.Name == "json_schema_echo" { // it wants to see what arrived of another's schema
			for _, other := range s.tools {
				if other.Name == "json_schema_2020_12_tool" {
					arguments["schema"] = other.InputSchema
				}
			}
		}
		all = append(all, mcp.CallToolParams{Name: tool.Name, Arguments: arguments})
	}
	return all
}

type overHTTP struct {
	*transport.StreamableHTTP
	seen *schemas
}

func (o overHTTP) SendRequest(ctx context.Context, request transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	response, err := o.StreamableHTTP.SendRequest(ctx, request)
	o.seen.keep(request, response)
	return response, err
}

type overStdio struct {
	*transport.Stdio
	seen *schemas
}

func (o overStdio) SendRequest(ctx context.Context, request transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	response, err := o.Stdio.SendRequest(ctx, request)
	o.seen.keep(request, response)
	return response, err
}
