//go:build unix

package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// turn is what a model sees of the conversation when it is asked to go on.
type turn struct {
	tools   []modelTool
	results []string // of the tools called so far, in order
}

// modelTool is a tool that an agent offers to its model, under the agent's own
// name for it.
type modelTool struct{ group, name string }

// move is what the model does: call a tool, or say something and stop.
type move struct {
	tool      modelTool
	arguments map[string]any
	text      string
}

func (t turn) tool(name string) (modelTool, bool) {
	i := slices.IndexFunc(t.tools, func(m modelTool) bool { return strings.HasSuffix(m.name, name) })
	if i < 0 {
		return modelTool{}, false
	}
	return t.tools[i], true
}

// model plays a model that has to write a file: it looks for a tool, uses what
// was found, by itself if it is offered now or else through call_tool, and
// ends.
type model struct {
	path, content string
	direct        string // a tool that is offered from the start, and is used without looking for it; "" for none

	mu    sync.Mutex // guards turns; not held over anything
	turns []turn
}

const surfaced = "files_write_file"

func (m *model) next(t turn) move {
	if m.direct != "" {
		return m.nextDirect(t)
	}
	retrieve, agent := t.tool("retrieve_tools")
	if !agent {
		return move{text: "A file"} // agents ask for titles and the like
	}
	m.mu.Lock()
	m.turns = append(m.turns, t)
	m.mu.Unlock()
	arguments := map[string]any{"path": m.path, "content": m.content}
	write, offered := t.tool(surfaced)
	call, _ := t.tool("call_tool")
	switch {
	case len(t.results) == 0:
		return move{tool: retrieve, arguments: map[string]any{"query": "write text to a file", "limit": 2}}
	case len(t.results) == 1 && offered:
		return move{tool: write, arguments: arguments}
	case len(t.results) == 1:
		return move{tool: call, arguments: map[string]any{"name": surfaced, "arguments": arguments}}
	}
	return move{text: "The file is written."}
}

// nextDirect is next for a model that leaves a note with the tool it was given.
func (m *model) nextDirect(t turn) move {
	leave, offered := t.tool(m.direct)
	if !offered {
		return move{text: "A note"} // agents ask for titles and the like
	}
	m.mu.Lock()
	m.turns = append(m.turns, t)
	m.mu.Unlock()
	if len(t.results) == 0 {
		return move{tool: leave, arguments: map[string]any{"content": m.content}}
	}
	return move{text: "The file is written."}
}

// agent is a published agent and how it is made to talk to a model of ours and
// to a toolfinch over stdio.
type agent struct {
	name string
	// sameTurn says that the agent lists the tools again when it is told to, so
	// that its model is offered what it has just found.
	sameTurn bool
	runs     int
	endpoint func(*model) http.Handler
	// prepare writes the agent's settings below its home and returns its command
	// line and what it needs in its environment.
	prepare func(t *testing.T, home, base string, proxy []string) (command []string, env []string)
}

// Real agents find a tool through the proxy and use it, with a model that
// follows a script.
func TestAgents(t *testing.T) {
	for _, a := range []agent{
		{"opencode", true, 5, chatCompletions, prepareOpencode},
		{"gemini-cli", true, 5, generateContent, prepareGemini},
		{"claude-code", false, 2, messages, prepareClaude},
		{"codex", false, 2, responses, prepareCodex},
	} {
		if testing.Short() {
			a.runs = 1
		}
		t.Run(a.name, func(t *testing.T) {
			servers := upstreams(t, "files", "memory", "everything", "github", "slack")
			sameTurn, runs := 0, 0
			for runs < a.runs || a.sameTurn && 2*sameTurn <= runs && runs < a.runs+2 {
				runs++
				t.Run(fmt.Sprint(runs), func(t *testing.T) {
					h := newHouse(t, servers)
					if runs%2 == 0 { // every other run is the first start, with servers that nobody has listed
						if _, err := h.output(t, "reindex", "--json"); err != nil {
							t.Fatalf("reindex: %v", err)
						}
					}
					if a.run(t, h) {
						sameTurn++
					}
				})
			}
			// On a busy machine an agent may take in the new list a turn later; then it
			// uses call_tool.
			switch {
			case a.sameTurn && 2*sameTurn <= runs:
				t.Errorf("%s was offered in the turn in which it was found in %d of %d runs, want most", surfaced, sameTurn, runs)
			case !a.sameTurn && sameTurn > 0:
				t.Errorf("%s was offered in the turn in which it was found, although this agent is not known to list again", surfaced)
			}
		})
	}
}

// run reports whether the model was offered the tool in the turn in which it was
// found.
func (a agent) run(t *testing.T, h house) (sameTurn bool) {
	m := &model{path: filepath.Join(h.files, "note.txt"), content: "Written by " + a.name + ".\n"}
	a.write(t, h, m)

	if len(m.turns) != 3 {
		t.Fatalf("the model was asked %d times, want 3: %+v", len(m.turns), m.turns)
	}
	if _, offered := m.turns[0].tool(surfaced); offered {
		t.Errorf("%s is offered from the start: %v", surfaced, m.turns[0].tools)
	}
	_, sameTurn = m.turns[1].tool(surfaced)
	if got := m.turns[1].results[0]; !strings.Contains(got, surfaced) {
		t.Errorf("retrieve_tools answered the model with %s", got)
	}
	if got := m.turns[2].results[1]; !strings.Contains(got, "Successfully wrote") {
		t.Errorf("%s answered the model with %s", surfaced, got)
	}
	if got, err := os.ReadFile(m.path); err != nil || string(got) != m.content {
		t.Errorf("the file has %q, %v", got, err)
	}
	return sameTurn
}

// write has the agent write a file with the model, through a toolfinch that it
// starts with the extra arguments.
func (a agent) write(t *testing.T, h house, m *model, args ...string) {
	t.Helper()
	endpoint := httptest.NewServer(a.endpoint(m))
	defer endpoint.Close()
	command, env := a.prepare(t, h.home, endpoint.URL, append([]string{program(t), "serve", "--config", h.config}, args...))

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	// The folder of an agent is its root, outside of which the server of files allows nothing.
	cmd.Dir, cmd.Env = h.files, append(h.env, env...)
	cmd.WaitDelay = 5 * time.Second
	began := time.Now()
	out, err := cmd.CombinedOutput()
	took := time.Since(began)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the agent printed:\n%s", out)
		}
	})
	if err != nil {
		t.Fatalf("the agent ended with %v", err)
	}
	t.Logf("%.1f s", took.Seconds())
	h.noneLeft(t)
	if !strings.Contains(string(out), "The file is written.") {
		t.Error("the agent does not print the model's last words")
	}
}

// writeJSON writes a settings file.
func writeJSON(t *testing.T, path string, value any) {
	t.Helper()
	text, err := json.MarshalIndent(value, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = os.WriteFile(path, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// find is the first file that matches below node_modules; the packages with
// programs in them are named after the machine they are for.
func find(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(modules(t), filepath.FromSlash(pattern)))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		missing(t, "testdata/node has no %s for this machine: run npm ci there", pattern)
	}
	return files[0]
}

const prompt = "Write a note into a file."

func prepareOpencode(t *testing.T, home, base string, proxy []string) (command, env []string) {
	writeJSON(t, filepath.Join(home, "xdg", "config", "opencode", "opencode.json"), map[string]any{
		"autoupdate": false,
		"share":      "disabled",
		"permission": "allow",
		"provider": map[string]any{"scripted": map[string]any{
			"npm":     "@ai-sdk/openai-compatible",
			"options": map[string]any{"baseURL": base + "/v1", "apiKey": "none"},
			"models":  map[string]any{"model": map[string]any{"name": "model", "tool_call": true}},
		}},
		"mcp": map[string]any{"toolfinch": map[string]any{"type": "local", "command": proxy, "enabled": true}},
	})
	// The plain build before the one for older processors.
	return []string{find(t, "opencode-*[46]/bin/opencode"), "run", "--model", "scripted/model", "--title", "note", prompt},
		[]string{"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1", "OPENCODE_DISABLE_DEFAULT_PLUGINS=1"}
}

func prepareGemini(t *testing.T, home, base string, proxy []string) (command, env []string) {
	writeJSON(t, filepath.Join(home, ".gemini", "settings.json"), map[string]any{
		"security":   map[string]any{"auth": map[string]any{"selectedType": "gemini-api-key"}},
		"general":    map[string]any{"enableAutoUpdate": false, "disableAutoUpdate": true, "disableUpdateNag": true},
		"privacy":    map[string]any{"usageStatisticsEnabled": false},
		"telemetry":  map[string]any{"enabled": false},
		"mcpServers": map[string]any{"toolfinch": map[string]any{"command": proxy[0], "args": proxy[1:], "trust": true}},
	})
	return []string{node(t), module(t, "@google/gemini-cli/bundle/gemini.js"), "--model", "gemini-2.5-flash", "--yolo", "--skip-trust", "--prompt", prompt},
		[]string{"GEMINI_API_KEY=none", "GOOGLE_GEMINI_BASE_URL=" + base, "GEMINI_CLI_NO_RELAUNCH=1"}
}

func prepareCodex(t *testing.T, home, base string, proxy []string) (command, env []string) {
	config := fmt.Sprintf(`model = "model"
model_provider = "scripted"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.scripted]
name = "scripted"
base_url = %q
wire_api = "responses"
env_key = "SCRIPTED_KEY"

[mcp_servers.toolfinch]
command = %q
args = [%q, %q, %q]
`, base+"/v1", proxy[0], proxy[1], proxy[2], proxy[3])
	settings := filepath.Join(home, "codex")
	if err := os.MkdirAll(settings, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(settings, "config.toml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	return []string{find(t, "@openai/codex-*/vendor/*/bin/codex"), "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", prompt},
		[]string{"CODEX_HOME=" + settings, "SCRIPTED_KEY=none"}
}

func prepareClaude(t *testing.T, home, base string, proxy []string) (command, env []string) {
	file := filepath.Join(home, "mcp.json")
	writeJSON(t, file, map[string]any{"mcpServers": map[string]any{"toolfinch": map[string]any{"type": "stdio", "command": proxy[0], "args": proxy[1:]}}})
	return []string{find(t, "@anthropic-ai/claude-code-*/claude"), "-p", prompt, "--mcp-config", file, "--strict-mcp-config", "--allowedTools", "mcp__toolfinch", "--output-format", "json"},
		[]string{"ANTHROPIC_BASE_URL=" + base, "ANTHROPIC_API_KEY=none", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_TELEMETRY=1", "DISABLE_AUTOUPDATER=1"}
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

type object = map[string]any

// chatCompletions speaks OpenAI's chat completions, streamed.
func chatCompletions(m *model) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			Messages []struct {
				Role    string
				Content json.RawMessage
			}
			Tools []struct{ Function struct{ Name string } }
		}
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var now turn
		for _, t := range request.Tools {
			now.tools = append(now.tools, modelTool{name: t.Function.Name})
		}
		for _, message := range request.Messages {
			if message.Role == "tool" {
				now.results = append(now.results, string(message.Content))
			}
		}
		next := m.next(now)
		delta, reason := object{"role": "assistant", "content": next.text}, "stop"
		if next.text == "" {
			reason = "tool_calls"
			arguments, _ := json.Marshal(next.arguments)
			delta = object{"role": "assistant", "tool_calls": []object{{"index": 0, "id": fmt.Sprintf("call_%d", len(now.results)),
				"type": "function", "function": object{"name": next.tool.name, "arguments": string(arguments)}}}}
		}
		out := newEvents(w)
		chunk := func(choice object) {
			out.send("", object{"id": "answer", "object": "chat.completion.chunk", "created": 1, "model": "model", "choices": []object{choice}})
		}
		chunk(object{"index": 0, "delta": delta})
		chunk(object{"index": 0, "delta": object{}, "finish_reason": reason})
		fmt.Fprint(w, "data: [DONE]\n\n")
	})
	return mux
}

// generateContent speaks Gemini's API, streamed or not.
func generateContent(m *model) http.Handler {
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
			Tools []struct{ FunctionDeclarations []struct{ Name string } }
		}
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var now turn
		for _, group := range request.Tools {
			for _, t := range group.FunctionDeclarations {
				now.tools = append(now.tools, modelTool{name: t.Name})
			}
		}
		for _, content := range request.Contents {
			for _, part := range content.Parts {
				if part.FunctionResponse != nil {
					now.results = append(now.results, string(part.FunctionResponse.Response))
				}
			}
		}
		next := m.next(now)
		part := object{"text": next.text}
		if next.text == "" {
			part = object{"functionCall": object{"id": fmt.Sprintf("call_%d", len(now.results)), "name": next.tool.name, "args": next.arguments}}
		}
		answer := object{
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
func responses(m *model) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/responses", func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			Input []struct {
				Type   string
				Output json.RawMessage
			}
			Tools []struct {
				Type, Name string
				Tools      []struct{ Name string } // of a namespace
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var now turn
		for _, t := range request.Tools {
			if t.Type != "namespace" {
				now.tools = append(now.tools, modelTool{name: t.Name})
			}
			for _, inner := range t.Tools {
				now.tools = append(now.tools, modelTool{group: t.Name, name: inner.Name})
			}
		}
		for _, item := range request.Input {
			if item.Type == "function_call_output" {
				now.results = append(now.results, string(item.Output))
			}
		}
		next := m.next(now)
		id := fmt.Sprintf("item_%d", len(now.results))
		item := object{"type": "message", "id": id, "role": "assistant", "status": "completed",
			"content": []object{{"type": "output_text", "text": next.text, "annotations": []any{}}}}
		if next.text == "" {
			arguments, _ := json.Marshal(next.arguments)
			item = object{"type": "function_call", "id": id, "call_id": "call_" + id, "name": next.tool.name, "arguments": string(arguments)}
			if next.tool.group != "" {
				item["namespace"] = next.tool.group
			}
		}
		out := newEvents(w)
		send := func(kind string, more object) {
			more["type"] = kind
			out.send(kind, more)
		}
		send("response.created", object{"response": object{"id": "answer"}})
		send("response.output_item.done", object{"output_index": 0, "item": item})
		send("response.completed", object{"response": object{"id": "answer", "output": []object{item},
			"usage": object{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}}})
	})
	return mux
}

// messages speaks Anthropic's Messages API, streamed or not.
func messages(m *model) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/messages/count_tokens", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(object{"input_tokens": 1})
	})
	mux.HandleFunc("POST /v1/messages", func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			Stream   bool
			Messages []struct{ Content json.RawMessage }
			Tools    []struct{ Name string }
		}
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var now turn
		for _, t := range request.Tools {
			now.tools = append(now.tools, modelTool{name: t.Name})
		}
		for _, message := range request.Messages {
			var blocks []struct {
				Type    string
				Content json.RawMessage
			}
			_ = json.Unmarshal(message.Content, &blocks) // else it is text
			for _, block := range blocks {
				if block.Type == "tool_result" {
					now.results = append(now.results, string(block.Content))
				}
			}
		}
		next := m.next(now)
		block, delta, reason := object{"type": "text", "text": ""}, object{"type": "text_delta", "text": next.text}, "end_turn"
		whole := object{"type": "text", "text": next.text}
		if next.text == "" {
			id := fmt.Sprintf("toolu_%d", len(now.results))
			arguments, _ := json.Marshal(next.arguments)
			block = object{"type": "tool_use", "id": id, "name": next.tool.name, "input": object{}}
			delta, reason = object{"type": "input_json_delta", "partial_json": string(arguments)}, "tool_use"
			whole = object{"type": "tool_use", "id": id, "name": next.tool.name, "input": next.arguments}
		}
		usage := object{"input_tokens": 1, "output_tokens": 1}
		answer := object{"id": "msg_1", "type": "message", "role": "assistant", "model": "model", "content": []object{}, "stop_reason": nil, "stop_sequence": nil, "usage": usage}
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
