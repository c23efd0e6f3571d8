package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

func addResources(s *server.MCPServer) {
	constant := func(name, description string, contents mcp.ResourceContents, uri, mimeType string) {
		s.AddResource(mcp.NewResource(uri, name, mcp.WithResourceDescription(description), mcp.WithMIMEType(mimeType)),
			func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
				return []mcp.ResourceContents{contents}, nil
			})
	}
	text := func(name, description, uri, value string) {
		constant(name, description, mcp.TextResourceContents{URI: uri, MIMEType: "text/plain", Text: value}, uri, "text/plain")
	}
	text("static-text", "A text.", "test://static-text", "This is the content of the static text resource.")
	text("watched-resource", "Can be subscribed to.", "test://watched-resource", "Nothing new.")
	text("example-resource", "What a prompt embeds.", "test://example-resource", "An example.")
	constant("static-binary", "An image.",
		mcp.BlobResourceContents{URI: "test://static-binary", MIMEType: "image/png", Blob: pixel}, "test://static-binary", "image/png")

	s.AddResourceTemplate(mcp.NewResourceTemplate("test://template/{id}/data", "template",
		mcp.WithTemplateDescription("Data for an ID."), mcp.WithTemplateMIMEType("application/json")),
		func(_ context.Context, request mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			id := strings.TrimSuffix(strings.TrimPrefix(request.Params.URI, "test://template/"), "/data")
			text, err := json.Marshal(map[string]any{"id": id, "templateTest": true, "data": "Data for ID: " + id})
			if err != nil {
				return nil, fmt.Errorf("template %q: %w", id, err)
			}
			return []mcp.ResourceContents{mcp.TextResourceContents{URI: request.Params.URI, MIMEType: "application/json", Text: string(text)}}, nil
		})
}

// completer completes every argument with the words that begin as it does.
type completer struct{}

func (completer) CompletePromptArgument(_ context.Context, _ string, argument mcp.CompleteArgument, _ mcp.CompleteContext) (*mcp.Completion, error) {
	return complete(argument.Value), nil
}

func (completer) CompleteResourceArgument(_ context.Context, _ string, argument mcp.CompleteArgument, _ mcp.CompleteContext) (*mcp.Completion, error) {
	return complete(argument.Value), nil
}

func complete(start string) *mcp.Completion {
	values := []string{}
	for _, word := range []string{"paris", "park", "party", "test", "testing"} {
		if strings.HasPrefix(word, start) {
			values = append(values, word)
		}
	}
	return &mcp.Completion{Values: values, Total: len(values)}
}
