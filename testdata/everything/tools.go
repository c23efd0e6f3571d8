package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

const (
	pixel   = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==" // PNG
	silence = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQIAAAAAAA=="                                 // WAV
)

// between are the pauses in what a tool does bit by bit.
const between = 50 * time.Millisecond

// settle is how long a tool waits after its last notification: the library lets
// a notification race with the answer.
const settle = 20 * time.Millisecond

// addTools adds the tools that need nothing from the client.
func addTools(s *server.MCPServer) {
	constant := func(name, description string, content ...mcp.Content) {
		s.AddTool(mcp.NewTool(name, mcp.WithDescription(description)),
			func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: content}, nil
			})
	}
	constant("test_simple_text", "Answers with a text.",
		mcp.NewTextContent("This is a simple text response for testing."))
	constant("test_image_content", "Answers with an image.",
		mcp.NewImageContent(pixel, "image/png"))
	constant("test_audio_content", "Answers with a sound.",
		mcp.NewAudioContent(silence, "audio/wav"))
	constant("test_embedded_resource", "Answers with an embedded resource.",
		mcp.NewEmbeddedResource(mcp.TextResourceContents{URI: "test://embedded-resource", MIMEType: "text/plain", Text: "This is an embedded resource content."}))
	constant("test_multiple_content_types", "Answers with text, an image and a resource.",
		mcp.NewTextContent("Multiple content types test:"),
		mcp.NewImageContent(pixel, "image/png"),
		mcp.NewEmbeddedResource(mcp.TextResourceContents{URI: "test://mixed-content-resource", MIMEType: "application/json", Text: `{"test":"data","value":123}`}))

	s.AddTool(mcp.NewTool("test_error_handling", mcp.WithDescription("Fails by its own word.")),
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultError("This tool intentionally returns an error for testing"), nil
		})

	s.AddTool(mcp.NewToolWithRawSchema("json_schema_2020_12_tool", "Has a schema with most of what JSON Schema 2020-12 knows.", json.RawMessage(richSchema)),
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText("ok"), nil
		})
	s.AddTool(mcp.NewToolWithRawSchema("test_custom_header", "Has a parameter that is sent as a header, too.", json.RawMessage(headerSchema)),
		func(_ context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText("region " + request.GetString("region", "none")), nil
		})

	for _, name := range []string{"test_tool_with_logging", "test_logging_tool"} {
		s.AddTool(mcp.NewTool(name, mcp.WithDescription("Logs three lines while it works.")), logLines(s))
	}
	s.AddTool(mcp.NewTool("test_tool_with_progress", mcp.WithDescription("Reports progress three times while it works.")), reportProgress(s))
	s.AddTool(mcp.NewTool("test_reconnection", mcp.WithDescription("Is answered on a second stream, after the first was closed.")),
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText("answered after a reconnection"), nil
		})

	s.AddTool(mcp.NewTool("test_trigger_tool_change", mcp.WithDescription("Adds a tool, or takes it away again.")),
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if s.GetTool("test_dynamic_tool") != nil {
				s.DeleteTools("test_dynamic_tool")
			} else {
				constant("test_dynamic_tool", "Comes and goes.", mcp.NewTextContent("here"))
			}
			return mcp.NewToolResultText("the tools have changed"), nil
		})
	s.AddTool(mcp.NewTool("test_trigger_prompt_change", mcp.WithDescription("Adds a prompt, or takes it away again.")),
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if _, there := s.ListPrompts()["test_dynamic_prompt"]; there {
				s.DeletePrompts("test_dynamic_prompt")
			} else {
				addConstantPrompt(s, "test_dynamic_prompt", "Comes and goes.", mcp.NewTextContent("here"))
			}
			return mcp.NewToolResultText("the prompts have changed"), nil
		})
}

func logLines(s *server.MCPServer) server.ToolHandlerFunc {
	return func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for _, line := range []string{"Tool execution started", "Tool processing data", "Tool execution completed"} {
			message := mcp.NewLoggingMessageNotification(mcp.LoggingLevelInfo, "everything", line)
			if err := s.SendLogMessageToClient(ctx, message); err != nil {
				return nil, fmt.Errorf("log %q: %w", line, err)
			}
			time.Sleep(between)
		}
		return mcp.NewToolResultText("three lines logged"), nil
	}
}

func reportProgress(s *server.MCPServer) server.ToolHandlerFunc {
	return func(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i, progress := range []int{0, 50, 100} {
			if i > 0 {
				time.Sleep(between)
			}
			if request.Params.Meta == nil || request.Params.Meta.ProgressToken == nil {
				continue
			}
			if err := s.SendNotificationToClient(ctx, "notifications/progress", map[string]any{
				"progressToken": request.Params.Meta.ProgressToken,
				"progress":      progress,
				"total":         100,
			}); err != nil {
				return nil, fmt.Errorf("progress %d: %w", progress, err)
			}
		}
		time.Sleep(settle)
		return mcp.NewToolResultText("progress reported"), nil
	}
}

const richSchema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "$defs": {
    "address": {
      "$anchor": "addressDef",
      "type": "object",
      "properties": {"street": {"type": "string"}, "city": {"type": "string"}}
    }
  },
  "properties": {
    "name": {"type": "string"},
    "address": {"$ref": "#/$defs/address"},
    "contactMethod": {"type": "string", "enum": ["phone", "email"]},
    "phone": {"type": "string"},
    "email": {"type": "string"}
  },
  "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
  "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
  "then": {"required": ["phone"]},
  "else": {"required": ["email"]},
  "additionalProperties": false
}`

const headerSchema = `{
  "type": "object",
  "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}
}`
