package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolfinch/e2e/agents"
	"toolfinch/internal/must"
	"toolfinch/tool"
)

// Of each request counts what the request before did not begin with, in the order in
// which the provider reads it.
func TestConversation(t *testing.T) {
	const list = `{"name":"find"},{"name":"call"}`
	request := func(tools string, messages ...string) []byte {
		return fmt.Appendf(nil, `{"messages":[%s],"model":"m","stream":true,"tools":[%s],"system":"You help."}`, strings.Join(messages, ","), tools)
	}
	size := func(parts ...string) (n int) {
		for _, part := range parts {
			n += tool.CountTokens([]byte(part))
		}
		return n
	}
	first, second := `{"content":[{"text":"Do it.","type":"text"}],"role":"user"}`, `{"content":[{"text":"Done.","type":"text"}],"role":"assistant"}`
	head := size(`{"name":"find"}`, `{"name":"call"}`, `"You help."`)
	for _, test := range []struct {
		name          string
		before, after []byte
		total, cached int // of the second
	}{
		{"a message more", request(list, first), request(list, first, second), head + size(first, second), head + size(first)},
		{"the same", request(list, first), request(list, first), head + size(first), head + size(first)},
		{"the marks of the cache move", request(list, `{"role":"user","content":[{"type":"text","text":"Do it.","cache_control":{"type":"ephemeral"}}]}`),
			request(list, first, second), head + size(first, second), head + size(first)},
		{"a text is a block of text", request(list, `{"role":"user","content":"Do it."}`), request(list, first, second), head + size(first, second), head + size(first)},
		{"a tool more spoils what comes after the tools", request(list, first), request(list+`,{"name":"write"}`, first),
			head + size(`{"name":"write"}`, first), size(`{"name":"find"}`, `{"name":"call"}`)},
		{"a tool that a message refers to is read there", request(list, first),
			request(list+`,{"defer_loading":true,"name":"write"}`, first, `{"content":[{"tool":{"name":"write","type":"tool_reference"},"type":"tool_addition"}],"role":"system"}`),
			head + size(first, `{"content":[{"tool":{"name":"write","tool":{"defer_loading":true,"name":"write"},"type":"tool_reference"},"type":"tool_addition"}],"role":"system"}`), head + size(first)},
		{"another message", request(list, first), request(list, `{"content":"Do that.","role":"user"}`),
			head + size(`{"content":[{"text":"Do that.","type":"text"}],"role":"user"}`), head + size(`{"content":[{"text":"Do `)},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := conversation{order: []string{"tools", "system", "messages"}}
			for _, body := range [][]byte{test.before, test.after} {
				must.Do(t, c.add(body))
			}
			if total, cached := c.Requests[1], c.Requests[1]-c.Fresh[1]; total != test.total || cached > test.cached || cached < test.cached-2 {
				t.Errorf("%d tokens, %d of them cached; want %d and up to 2 less than %d", total, cached, test.total, test.cached)
			}
			if want := written*float64(c.Uncached) + read*float64(c.Total-c.Uncached); c.Total != c.Requests[0]+c.Requests[1] || c.Fresh[0] != c.Requests[0] || c.Cost != want {
				t.Errorf("the sums are %+v", c.sums)
			}
		})
	}
}

const recording = `{"tools":[
	{"name":"write","description":"Writes a text into a file","inputSchema":{"type":"object","properties":{"path":{"type":"string"},"n":{"type":"integer"}},"required":["path"]}},
	{"name":"stat","description":"Tells the size of a file","inputSchema":{"type":"object"},
	 "outputSchema":{"type":"object","properties":{"size":{"type":"integer"}},"required":["size"],"additionalProperties":false}}],
	"instructions":"Files are here."}`

// A recorded server lists what was recorded, takes the calls that are made for it, and
// refuses others.
func TestReplay(t *testing.T) {
	file := filepath.Join(t.TempDir(), "someone__server-files.json")
	must.Do(t, os.WriteFile(file, []byte(recording), 0o600))
	server, err := readRecorded(file)
	if err != nil || server.name != "files" {
		t.Fatalf("%+v, %v", server, err)
	}
	requests, questions := io.Pipe()
	answers, replies := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- replay(server, requests, replies) }()
	lines := bufio.NewScanner(answers)
	ask := func(method string, params any) string {
		t.Helper()
		text, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
		fmt.Fprintf(questions, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n%s\n", text)
		if !lines.Scan() {
			t.Fatalf("%s: no answer: %v", method, lines.Err())
		}
		return lines.Text()
	}
	for _, test := range []struct {
		method string
		params any
		want   string
	}{
		{"server/discover", nil, `"code":-32601`},
		{"initialize", map[string]any{"protocolVersion": "2025-06-18"}, `"instructions":"Files are here.","protocolVersion":"2025-06-18"`},
		{"tools/list", nil, `{"name":"stat","description":"Tells the size of a file",`},
		{"tools/call", map[string]any{"name": "write", "arguments": map[string]any{"path": "a"}}, `item 11`},
		{"tools/call", map[string]any{"name": "write", "arguments": map[string]any{}}, `missing argument path`},
		{"tools/call", map[string]any{"name": "stat", "arguments": map[string]any{}}, `"structuredContent":{"size":1}`},
		{"tools/call", map[string]any{"name": "none"}, `"isError":true`},
	} {
		if got := ask(test.method, test.params); !strings.Contains(got, test.want) {
			t.Errorf("%s is answered with %s, want %s in it", test.method, got, test.want)
		}
	}
	questions.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The model calls what it is offered, looks for the rest, asks once more for what an
// answer lacks, and then gives up.
func TestPlayer(t *testing.T) {
	needs := func() []*need {
		return []*need{{"files", "write", "Writes a text", map[string]any{"path": "a"}}, {"files", "stat", "Tells the size", map[string]any{}}}
	}
	found := func(names ...string) string {
		text, _ := json.Marshal(map[string]any{"tools": names})
		wrapped, _ := json.Marshal([]any{map[string]any{"type": "text", "text": string(text)}})
		return string(wrapped)
	}
	good, _ := json.Marshal(replayed)
	meta := []string{"mcp__toolfinch__retrieve_tools", "mcp__toolfinch__call_tool"}
	for _, test := range []struct {
		name     string
		strategy string
		plan     string
		offered  []string
		queries  bool
		answers  []string // to the moves
		moves    []string
		missed   int
		finished int
	}{
		{"direct", direct, "", []string{"mcp__files__write", "stat"}, false, []string{string(good), string(good)}, []string{"mcp__files__write", "stat", ""}, 0, 2},
		{"stepwise", "AUTO", stepwise, meta, false, []string{found("files_write"), string(good), found("files_stat"), string(good)},
			[]string{"retrieve_tools Writes a text", "call_tool files_write", "retrieve_tools Tells the size", "call_tool files_stat", ""}, 0, 2},
		{"what is seen by the way is remembered", "AUTO", stepwise, meta, false, []string{found("files_write", "files_stat"), string(good), string(good)},
			[]string{"retrieve_tools Writes a text", "call_tool files_write", "call_tool files_stat", ""}, 0, 2},
		{"foresees", "AUTO", foresees, meta, true, []string{found("files_write", "files_stat"), string(good), string(good)},
			[]string{"retrieve_tools [Writes a text Tells the size]", "call_tool files_write", "call_tool files_stat", ""}, 0, 2},
		{"a name within another is another", "AUTO", stepwise, meta, false, []string{found("files_write_all", "my_files_write"), found("files_write"), string(good), found(), found()},
			[]string{"retrieve_tools Writes a text", "retrieve_tools files write", "call_tool files_write", "retrieve_tools Tells the size", "retrieve_tools files stat", ""}, 3, 1},
		{"a tool of the agent is another; a call that fails is not made again", "AUTO", stepwise, append(meta, "write", "toolfinch_files_stat"), false, []string{found("files_write"), `"no such tool"`, string(good)},
			[]string{"retrieve_tools Writes a text", "call_tool files_write", "toolfinch_files_stat", ""}, 0, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newPlayer([]string{"tools"}, needs(), cell{Plan: test.plan, Strategy: test.strategy})
			var moves []string
			for n := range len(test.answers) + 1 {
				turn := agents.Turn{Results: test.answers[:n], Request: []byte("{}")}
				for _, name := range test.offered {
					offered := agents.Tool{Name: name}
					if test.queries {
						offered.Schema = json.RawMessage(`{"properties":{"queries":{}}}`)
					}
					turn.Tools = append(turn.Tools, offered)
				}
				move := p.Next(turn)
				text := strings.TrimPrefix(move.Tool.Name, "mcp__toolfinch__")
				for _, key := range []string{"query", "queries", "name"} {
					if value := move.Arguments[key]; value != nil {
						text += fmt.Sprint(" ", value)
					}
				}
				moves = append(moves, text)
			}
			if !slices.Equal(moves, test.moves) {
				t.Errorf("the model makes the moves\n%q, want\n%q", moves, test.moves)
			}
			if finished := len(p.where(func(w *want) bool { return w.done })); p.missed != test.missed || finished != test.finished {
				t.Errorf("%d missed and %d called, want %d and %d", p.missed, finished, test.missed, test.finished)
			}
		})
	}
}

// The sets have as many tools as they say, and tasks of eight for every one.
func TestSets(t *testing.T) {
	const folder = "../../../shared/realtools"
	if _, err := os.Stat(folder); err != nil {
		t.Skip("the definitions of real servers are not beside the repository (shared/realtools)")
	}
	for tools := range sets {
		servers := must.Get(readSet(folder, tools))(t)
		named := map[string]bool{}
		for _, s := range servers {
			if named[s.name] || s.name == "" {
				t.Errorf("of %d tools: two servers are called %q", tools, s.name)
			}
			named[s.name] = true
		}
		if needs := choose(servers[:2], 8, 1); len(needs) != 8 { // in the first two already
			t.Errorf("of %d tools only %d can be needed", tools, len(needs))
		}
	}
}
