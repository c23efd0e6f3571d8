package main

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// Tools that need the client: they answer with what they ask for, and are
// called again with the answers. The library asks legacy clients itself.

func addInputTools(s *server.MCPServer) {
	s.AddTool(mcp.NewTool("test_sampling", mcp.WithDescription("Asks the client's model."),
		mcp.WithString("prompt", mcp.Required(), mcp.Description("What to ask."))),
		func(_ context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return sampled(request, "prompt", request.GetString("prompt", ""), "LLM response: ")
		})
	s.AddTool(mcp.NewTool("test_elicitation", mcp.WithDescription("Asks the user."),
		mcp.WithString("message", mcp.Required(), mcp.Description("What to say."))),
		func(_ context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return elicited(request, request.GetString("message", ""), "User response: ", map[string]any{
				"username": map[string]any{"type": "string", "description": "User's response"},
				"email":    map[string]any{"type": "string", "description": "User's email address"},
			}, "username", "email")
		})
	s.AddTool(mcp.NewTool("test_elicitation_sep1034_defaults", mcp.WithDescription("Asks the user with defaults for everything.")),
		func(_ context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return elicited(request, "Please review.", "Elicitation completed: ", map[string]any{
				"name":     map[string]any{"type": "string", "default": "John Doe"},
				"age":      map[string]any{"type": "integer", "default": 30},
				"score":    map[string]any{"type": "number", "default": 95.5},
				"status":   map[string]any{"type": "string", "enum": []string{"active", "inactive", "pending"}, "default": "active"},
				"verified": map[string]any{"type": "boolean", "default": true},
			})
		})
	s.AddTool(mcp.NewTool("test_elicitation_sep1330_enums", mcp.WithDescription("Asks the user to choose, in five ways.")),
		func(_ context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			options, titled := []string{"option1", "option2", "option3"}, []any{}
			for _, n := range []string{"1", "2", "3"} {
				titled = append(titled, map[string]any{"const": "value" + n, "title": "Choice " + n})
			}
			return elicited(request, "Please choose.", "Elicitation completed: ", map[string]any{
				"untitledSingle": map[string]any{"type": "string", "enum": options},
				"titledSingle":   map[string]any{"type": "string", "oneOf": titled},
				"legacyEnum":     map[string]any{"type": "string", "enum": options, "enumNames": []string{"Option One", "Option Two", "Option Three"}},
				"untitledMulti":  map[string]any{"type": "array", "items": map[string]any{"type": "string", "enum": options}},
				"titledMulti":    map[string]any{"type": "array", "items": map[string]any{"anyOf": titled}},
			})
		})
	s.AddTool(mcp.NewTool("test_streaming_elicitation", mcp.WithDescription("Asks the user, whatever the answer.")),
		func(_ context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return elicited(request, "Are you there?", "User response: ", map[string]any{"present": map[string]any{"type": "boolean"}})
		})
	s.AddTool(mcp.NewTool("test_missing_capability", mcp.WithDescription("Refuses clients that do not offer sampling.")),
		func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if declared(ctx).Sampling == nil {
				return nil, mcp.MissingRequiredClientCapabilityError{Capability: "sampling"}
			}
			return mcp.NewToolResultText("sampling is offered"), nil
		})

	s.AddTool(mcp.NewTool("test_input_required_result_elicitation", mcp.WithDescription("Greets by a name that it asks for.")),
		func(_ context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			name, ok := answer(request.Params.InputResponses, "user_name", "name")
			if !ok {
				return ask("user_name", "What is your name?", "name", "string").ToolResult(), nil
			}
			return mcp.NewToolResultText(fmt.Sprintf("Hello, %v!", name)), nil
		})
	s.AddTool(mcp.NewTool("test_input_required_result_sampling", mcp.WithDescription("Asks the client's model for a capital.")),
		func(_ context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return sampled(request, "capital_question", "What is the capital of France?", "")
		})
	s.AddTool(mcp.NewTool("test_input_required_result_list_roots", mcp.WithDescription("Asks for the client's roots.")), askRoots)
	s.AddTool(mcp.NewTool("test_input_required_result_multiple_inputs", mcp.WithDescription("Asks for everything at once.")), askAll)
	s.AddTool(mcp.NewTool("test_input_required_result_capabilities", mcp.WithDescription("Asks for what the client offers.")), askOffered)

	seal := newSeal()
	for _, name := range []string{"test_input_required_result_request_state", "test_input_required_result_tampered_state"} {
		s.AddTool(mcp.NewTool(name, mcp.WithDescription("Asks for a confirmation and gives a state along.")),
			func(_ context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				if request.Params.InputResponses == nil {
					return ask("confirm", "Please confirm", "ok", "boolean").RequestState(seal.close("confirm")).ToolResult(), nil
				}
				if _, err := seal.open(request.Params.RequestState); err != nil {
					return nil, err
				}
				return mcp.NewToolResultText("state-ok"), nil
			})
	}
	s.AddTool(mcp.NewTool("test_input_required_result_multi_round", mcp.WithDescription("Asks twice, and keeps the first answer in the state.")),
		func(_ context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if request.Params.RequestState == "" {
				return ask("step1", "Step 1: What is your name?", "name", "string").RequestState(seal.close("")).ToolResult(), nil
			}
			name, err := seal.open(request.Params.RequestState)
			if err != nil {
				return nil, err
			}
			if first, ok := answer(request.Params.InputResponses, "step1", "name"); ok {
				return ask("step2", "Step 2: What is your favorite color?", "color", "string").RequestState(seal.close(fmt.Sprint(first))).ToolResult(), nil
			}
			color, _ := answer(request.Params.InputResponses, "step2", "color")
			return mcp.NewToolResultText(fmt.Sprintf("%s likes %v", name, color)), nil
		})
}

// ask is a question to the user with one field, which must be filled in.
func ask(key, message, field, fieldType string) *server.InputRequestBuilder {
	return server.NewInputRequestBuilder("").Elicit(key, mcp.ElicitationParams{
		Message: message,
		RequestedSchema: map[string]any{
			"type":       "object",
			"properties": map[string]any{field: map[string]any{"type": fieldType}},
			"required":   []string{field},
		},
	})
}

// answer is what the user filled into a field. It is not ok before the user
// was asked, or when the user did not want to say.
func answer(responses mcp.InputResponses, key, field string) (value any, ok bool) {
	result := server.ElicitationResponse(responses, key)
	if result == nil || result.Action != mcp.ElicitationResponseActionAccept {
		return nil, false
	}
	content, _ := result.Content.(map[string]any)
	value, ok = content[field]
	return value, ok
}

// elicited shows the user a form and answers with what came back.
func elicited(request mcp.CallToolRequest, message, intro string, fields map[string]any, required ...string) (*mcp.CallToolResult, error) {
	result := server.ElicitationResponse(request.Params.InputResponses, "form")
	if result == nil {
		schema := map[string]any{"type": "object", "properties": fields}
		if len(required) > 0 {
			schema["required"] = required
		}
		return server.NewInputRequestBuilder("").Elicit("form", mcp.ElicitationParams{Message: message, RequestedSchema: schema}).ToolResult(), nil
	}
	return mcp.NewToolResultText(fmt.Sprintf("%saction=%s, content=%v", intro, result.Action, result.Content)), nil
}

// sampled has the client's model answer a prompt.
func sampled(request mcp.CallToolRequest, key, prompt, intro string) (*mcp.CallToolResult, error) {
	result := server.SamplingResponse(request.Params.InputResponses, key)
	if result == nil {
		return server.NewInputRequestBuilder("").Sample(key, question(prompt)).ToolResult(), nil
	}
	return mcp.NewToolResultText(intro + mcp.GetTextFromContent(result.Content)), nil
}

func question(prompt string) mcp.CreateMessageParams {
	return mcp.CreateMessageParams{
		Messages:  []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: mcp.NewTextContent(prompt)}},
		MaxTokens: 100,
	}
}

func askRoots(_ context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	result := server.RootsResponse(request.Params.InputResponses, "client_roots")
	if result == nil {
		return server.NewInputRequestBuilder("").Roots("client_roots").ToolResult(), nil
	}
	var uris []string
	for _, root := range result.Roots {
		uris = append(uris, root.URI)
	}
	return mcp.NewToolResultText(fmt.Sprintf("%d roots: %s", len(uris), strings.Join(uris, " "))), nil
}

func askAll(_ context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	responses := request.Params.InputResponses
	name, ok := answer(responses, "user_name", "name")
	greeting, roots := server.SamplingResponse(responses, "greeting"), server.RootsResponse(responses, "client_roots")
	if !ok || greeting == nil || roots == nil {
		return ask("user_name", "What is your name?", "name", "string").
			Sample("greeting", question("Generate a greeting")).
			Roots("client_roots").
			RequestState("asked").ToolResult(), nil
	}
	return mcp.NewToolResultText(fmt.Sprintf("%s %v, of %d roots", mcp.GetTextFromContent(greeting.Content), name, len(roots.Roots))), nil
}

func askOffered(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if len(request.Params.InputResponses) > 0 {
		return mcp.NewToolResultText(fmt.Sprintf("%d answers", len(request.Params.InputResponses))), nil
	}
	offered, questions := declared(ctx), server.NewInputRequestBuilder("")
	none := true
	if offered.Elicitation != nil {
		none, questions = false, ask("user_name", "What is your name?", "name", "string")
	}
	if offered.Sampling != nil {
		none = false
		questions.Sample("greeting", question("Generate a greeting"))
	}
	if offered.Roots != nil {
		none = false
		questions.Roots("client_roots")
	}
	if none {
		return mcp.NewToolResultText("the client offers nothing"), nil
	}
	return questions.ToolResult(), nil
}

// declared are the capabilities of the client, as far as it told.
func declared(ctx context.Context) mcp.ClientCapabilities {
	if info := server.RequestProtocolInfoFromContext(ctx); info != nil && info.ClientCapabilities != nil {
		return *info.ClientCapabilities
	}
	if session, ok := server.ClientSessionFromContext(ctx).(server.SessionWithClientInfo); ok {
		return session.GetClientCapabilities()
	}
	return mcp.ClientCapabilities{}
}

// seal signs states, so that a changed one is noticed.
type seal []byte

func newSeal() seal {
	key := make(seal, 32)
	_, _ = rand.Read(key) // never fails
	return key
}

func (s seal) close(state string) string { return state + "." + s.sign(state) }

func (s seal) open(sealed string) (state string, err error) {
	i := strings.LastIndexByte(sealed, '.')
	if i < 0 || !hmac.Equal([]byte(sealed[i+1:]), []byte(s.sign(sealed[:i]))) {
		return "", errors.New("the request state was changed")
	}
	return sealed[:i], nil
}

func (s seal) sign(state string) string {
	mac := hmac.New(sha256.New, s)
	mac.Write([]byte(state))
	return hex.EncodeToString(mac.Sum(nil))
}
