package main

import (
	"context"
	"fmt"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

func addPrompts(s *server.MCPServer) {
	addConstantPrompt(s, "test_simple_prompt", "A prompt without arguments.",
		mcp.NewTextContent("This is a simple prompt for testing."))
	addConstantPrompt(s, "test_prompt_with_image", "A prompt with an image.",
		mcp.NewImageContent(pixel, "image/png"),
		mcp.NewTextContent("Please analyze the image above."))

	s.AddPrompt(mcp.NewPrompt("test_prompt_with_arguments",
		mcp.WithPromptDescription("A prompt with two arguments."),
		mcp.WithArgument("arg1", mcp.ArgumentDescription("The first argument."), mcp.RequiredArgument()),
		mcp.WithArgument("arg2", mcp.ArgumentDescription("The second argument."), mcp.RequiredArgument())),
		func(_ context.Context, request mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			arguments := request.Params.Arguments
			return promptResult(mcp.NewTextContent(fmt.Sprintf("Prompt with arguments: arg1='%s', arg2='%s'", arguments["arg1"], arguments["arg2"]))), nil
		})
	s.AddPrompt(mcp.NewPrompt("test_prompt_with_embedded_resource",
		mcp.WithPromptDescription("A prompt with a resource."),
		mcp.WithArgument("resourceUri", mcp.ArgumentDescription("URI of the resource."), mcp.RequiredArgument())),
		func(_ context.Context, request mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return promptResult(
				mcp.NewEmbeddedResource(mcp.TextResourceContents{URI: request.Params.Arguments["resourceUri"], MIMEType: "text/plain", Text: "Embedded resource content for testing."}),
				mcp.NewTextContent("Please process the embedded resource above.")), nil
		})
	s.AddPrompt(mcp.NewPrompt("test_input_required_result_prompt", mcp.WithPromptDescription("A prompt that asks the user first.")),
		func(_ context.Context, request mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			context, ok := answer(request.Params.InputResponses, "user_context", "context")
			if !ok {
				return ask("user_context", "What context should the prompt use?", "context", "string").PromptResult(), nil
			}
			return promptResult(mcp.NewTextContent(fmt.Sprint("Use the context ", context, "."))), nil
		})
}

func addConstantPrompt(s *server.MCPServer, name, description string, content ...mcp.Content) {
	s.AddPrompt(mcp.NewPrompt(name, mcp.WithPromptDescription(description)),
		func(context.Context, mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return promptResult(content...), nil
		})
}

// promptResult is one message of the user for each content.
func promptResult(content ...mcp.Content) *mcp.GetPromptResult {
	result := &mcp.GetPromptResult{}
	for _, c := range content {
		result.Messages = append(result.Messages, mcp.NewPromptMessage(mcp.RoleUser, c))
	}
	return result
}
