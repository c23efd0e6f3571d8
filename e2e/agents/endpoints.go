package agents

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// The model, as the agents' makers serve theirs. Each answer has an ID of its own:
// agents take answers of one ID for one.

var answers atomic.Int64

func answerID() string { return fmt.Sprintf("answer_%d", answers.Add(1)) }

// take reads a request into value and returns its bytes, or answers it itself.
func take(w http.ResponseWriter, r *http.Request, value any) ([]byte, bool) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, value)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	return body, err == nil
}

// events writes server-sent events. An event's name is empty where the
// protocol has none.
type events struct{ w http.ResponseWriter }

func newEvents(w http.ResponseWriter) events {
	w.Header().Set("Content-Type", "text/event-stream")
	return events{w}
}

func (e events) send(name string, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err) // every value here is made of valid parts
	}
	if name != "" {
		fmt.Fprintf(e.w, "event: %s\n", name)
	}
	fmt.Fprintf(e.w, "data: %s\n\n", data)
}

// chatCompletions speaks OpenAI's chat completions, streamed.
func chatCompletions(m Model) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			Messages []struct {
				Role    string
				Content json.RawMessage
			}
			Tools []struct {
				Function struct {
					Name       string
					Parameters json.RawMessage
				}
			}
		}
		body, ok := take(w, r, &request)
		if !ok {
			return
		}
		now := Turn{Request: body}
		for _, t := range request.Tools {
			now.Tools = append(now.Tools, Tool{Name: t.Function.Name, Schema: t.Function.Parameters})
		}
		for _, message := range request.Messages {
			if message.Role == "tool" {
				now.Results = append(now.Results, string(message.Content))
			}
		}
		next := m.Next(now)
		delta, reason := object{"role": "assistant", "content": next.Text}, "stop"
		if next.Text == "" {
			reason = "tool_calls"
			arguments, _ := json.Marshal(next.Arguments)
			delta = object{"role": "assistant", "tool_calls": []object{{"index": 0, "id": fmt.Sprintf("call_%d", len(now.Results)),
				"type": "function", "function": object{"name": next.Tool.Name, "arguments": string(arguments)}}}}
		}
		out, answer := newEvents(w), answerID()
		chunk := func(choice object) {
			out.send("", object{"id": answer, "object": "chat.completion.chunk", "created": 1, "model": "model", "choices": []object{choice}})
		}
		chunk(object{"index": 0, "delta": delta})
		chunk(object{"index": 0, "delta": object{}, "finish_reason": reason})
		fmt.Fprint(w, "data: [DONE]\n\n")
	})
	return mux
}

// generateContent speaks Gemini's API, streamed or not.
func generateContent(m Model) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ":countTokens") {
			_ = json.NewEncoder(w).Encode(object{"totalTokens": 1})
			return
		}
		stream := strings.HasSuffix(r.URL.Path, ":streamGenerateContent")
		if !stream && !strings.HasSuffix(r.URL.Path, ":generateContent") {
			http.NotFound(w, r)
			return
		}
		var request struct {
			Contents []struct {
				Parts []struct {
					FunctionResponse *struct{ Response json.RawMessage }
				}
			}
			Tools []struct {
				FunctionDeclarations []struct {
					Name                 string
					ParametersJSONSchema json.RawMessage
				}
			}
		}
		body, ok := take(w, r, &request)
		if !ok {
			return
		}
		now := Turn{Request: body}
		for _, group := range request.Tools {
			for _, t := range group.FunctionDeclarations {
				now.Tools = append(now.Tools, Tool{Name: t.Name, Schema: t.ParametersJSONSchema})
			}
		}
		for _, content := range request.Contents {
			for _, part := range content.Parts {
				if part.FunctionResponse != nil {
					now.Results = append(now.Results, string(part.FunctionResponse.Response))
				}
			}
		}
		next := m.Next(now)
		part := object{"text": next.Text}
		if next.Text == "" {
			part = object{"functionCall": object{"id": fmt.Sprintf("call_%d", len(now.Results)), "name": next.Tool.Name, "args": next.Arguments}}
		}
		answer := object{
			"responseId":    answerID(),
			"candidates":    []object{{"index": 0, "content": object{"role": "model", "parts": []object{part}}, "finishReason": "STOP"}},
			"usageMetadata": object{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
		}
		if stream {
			newEvents(w).send("", answer)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	})
}

// responses speaks OpenAI's responses, streamed.
func responses(m Model) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/responses", func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			Input []struct {
				Type   string
				Output json.RawMessage
			}
			Tools []struct {
				Type, Name string
				Parameters json.RawMessage
				Tools      []struct { // of a namespace
					Name       string
					Parameters json.RawMessage
				}
			}
		}
		body, ok := take(w, r, &request)
		if !ok {
			return
		}
		now := Turn{Request: body}
		for _, t := range request.Tools {
			if t.Type != "namespace" {
				now.Tools = append(now.Tools, Tool{Name: t.Name, Schema: t.Parameters})
			}
			for _, inner := range t.Tools {
				now.Tools = append(now.Tools, Tool{Group: t.Name, Name: inner.Name, Schema: inner.Parameters})
			}
		}
		for _, item := range request.Input {
			if item.Type == "function_call_output" {
				now.Results = append(now.Results, string(item.Output))
			}
		}
		next := m.Next(now)
		id := fmt.Sprintf("item_%d", len(now.Results))
		item := object{"type": "message", "id": id, "role": "assistant", "status": "completed",
			"content": []object{{"type": "output_text", "text": next.Text, "annotations": []any{}}}}
		if next.Text == "" {
			arguments, _ := json.Marshal(next.Arguments)
			item = object{"type": "function_call", "id": id, "call_id": "call_" + id, "name": next.Tool.Name, "arguments": string(arguments)}
			if next.Tool.Group != "" {
				item["namespace"] = next.Tool.Group
			}
		}
		out, answer := newEvents(w), answerID()
		send := func(kind string, more object) {
			more["type"] = kind
			out.send(kind, more)
		}
		send("response.created", object{"response": object{"id": answer}})
		send("response.output_item.done", object{"output_index": 0, "item": item})
		send("response.completed", object{"response": object{"id": answer, "output": []object{item},
			"usage": object{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}}})
	})
	return mux
}

// messages speaks Anthropic's Messages API, streamed or not.
func messages(m Model) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/messages/count_tokens", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(object{"input_tokens": 1})
	})
	mux.HandleFunc("POST /v1/messages", func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			Stream   bool
			Messages []struct{ Content json.RawMessage }
			Tools    []struct {
				Name   string
				Schema json.RawMessage `json:"input_schema"`
				Defer  bool            `json:"defer_loading"` // it is offered from where the messages refer to it
			}
		}
		body, ok := take(w, r, &request)
		if !ok {
			return
		}
		now, loaded := Turn{Request: body}, map[string]bool{}
		for _, message := range request.Messages {
			var blocks []struct {
				Type    string
				Content json.RawMessage
				Tool    struct{ Name string }
			}
			_ = json.Unmarshal(message.Content, &blocks) // else it is text
			for _, block := range blocks {
				switch block.Type {
				case "tool_addition":
					loaded[block.Tool.Name] = true
				case "tool_result":
					now.Results = append(now.Results, string(block.Content))
					var found []struct {
						Name string `json:"tool_name"` // of a tool_reference
					}
					_ = json.Unmarshal(block.Content, &found) // else it is text
					for _, reference := range found {
						loaded[reference.Name] = true
					}
				}
			}
		}
		for _, t := range request.Tools {
			if !t.Defer || loaded[t.Name] {
				now.Tools = append(now.Tools, Tool{Name: t.Name, Schema: t.Schema})
			}
		}
		next := m.Next(now)
		block, delta, reason := object{"type": "text", "text": ""}, object{"type": "text_delta", "text": next.Text}, "end_turn"
		whole := object{"type": "text", "text": next.Text}
		if next.Text == "" {
			id := fmt.Sprintf("toolu_%d", len(now.Results))
			arguments, _ := json.Marshal(next.Arguments)
			block = object{"type": "tool_use", "id": id, "name": next.Tool.Name, "input": object{}}
			delta, reason = object{"type": "input_json_delta", "partial_json": string(arguments)}, "tool_use"
			whole = object{"type": "tool_use", "id": id, "name": next.Tool.Name, "input": next.Arguments}
		}
		usage := object{"input_tokens": 1, "output_tokens": 1}
		answer := object{"id": answerID(), "type": "message", "role": "assistant", "model": "model", "content": []object{}, "stop_reason": nil, "stop_sequence": nil, "usage": usage}
		if !request.Stream {
			answer["content"], answer["stop_reason"] = []object{whole}, reason
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(answer)
			return
		}
		out := newEvents(w)
		send := func(kind string, more object) {
			more["type"] = kind
			out.send(kind, more)
		}
		send("message_start", object{"message": answer})
		send("content_block_start", object{"index": 0, "content_block": block})
		send("content_block_delta", object{"index": 0, "delta": delta})
		send("content_block_stop", object{"index": 0})
		send("message_delta", object{"delta": object{"stop_reason": reason, "stop_sequence": nil}, "usage": usage})
		send("message_stop", object{})
	})
	return mux
}
