//go:build unix

package e2e_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

// The TypeScript SDK's client does everything an agent does, over each
// transport, against real servers.
func TestSDKClient(t *testing.T) {
	t.Parallel()
	servers := upstreams(t, "files", "memory", "everything")
	probe := must.Get(filepath.Abs("../testdata/node/probe.mjs"))(t)
	servers["probe"] = script(t, probe)

	tests := []struct {
		transport string
		connect   func(t *testing.T, h house) (parameters map[string]any, proxy int)
	}{
		{"stdio", func(t *testing.T, h house) (map[string]any, int) {
			return h.stdio(t), 0
		}},
		{"streamable HTTP", func(t *testing.T, h house) (map[string]any, int) {
			url, pid := h.serveHTTP(t)
			return map[string]any{"url": url}, pid
		}},
		{"SSE", func(t *testing.T, h house) (map[string]any, int) {
			url, pid := h.serveHTTP(t)
			return map[string]any{"sse": strings.TrimSuffix(url, "/mcp") + "/sse"}, pid
		}},
	}
	for _, tt := range tests {
		t.Run(tt.transport, func(t *testing.T) {
			t.Parallel() // most of the time somebody waits
			h := newHouse(t, servers)
			parameters, proxy := tt.connect(t, h)
			c := newSDKClient(t, h.env)
			var hello struct {
				Server       struct{ Name string }
				Instructions string
				Capabilities struct{ Tools struct{ ListChanged bool } }
			}
			c.do(t, "connect", parameters, &hello)
			if hello.Server.Name != "toolfinch" || !hello.Capabilities.Tools.ListChanged {
				t.Errorf("initialize answered %+v", hello)
			}
			if !strings.Contains(hello.Instructions, "everything") {
				t.Errorf("the instructions do not name the servers: %s", hello.Instructions)
			}
			if proxy == 0 {
				proxy = c.pid // the client started it
			}
			sdkSession{c, h, proxy, len(servers)}.run(t)
		})
	}
}

// sdkSession is one client's time with the proxy. Its steps build on each
// other, as they do in an agent's session.
type sdkSession struct {
	*sdkClient
	house   house
	proxy   int // a process above the upstreams
	servers int
}

func (s sdkSession) run(t *testing.T) {
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"only the meta-tools are listed", s.metaTools},
		{"a tool can be called that was never listed", s.neverListed},
		{"found tools are registered word for word", s.registered},
		{"found tools do their work", s.work},
		{"an unknown name is answered with the nearest", s.unknown},
		{"arguments that do not fit are answered with the schema", s.misfit},
		{"a killed upstream is back for the next call", s.killed},
		{"progress arrives while a call runs", s.progress},
		{"a cancellation reaches the upstream", s.cancelled},
		{"a log line reaches the client", s.logs},
		{"a tool that an upstream adds can be found", s.grows},
	} {
		if !t.Run(step.name, step.do) {
			return
		}
	}
}

func (s sdkSession) metaTools(t *testing.T) {
	if got, want := names(s.list(t)), []string{"retrieve_tools", "call_tool"}; !slices.Equal(got, want) {
		t.Errorf("listed are %q, want %q", got, want)
	}
	s.waitReady(t, s.servers)
}

func (s sdkSession) neverListed(t *testing.T) {
	if got := s.call(t, "everything_get-sum", map[string]any{"a": 20, "b": 22}).text(); !strings.Contains(got, "42") {
		t.Errorf("called by its name: %s", got)
	}
	for _, name := range []string{"everything_echo", "everything.echo"} {
		got := s.call(t, "call_tool", map[string]any{"name": name, "arguments": map[string]any{"message": "über 😀"}}).text()
		if got != "Echo: über 😀" {
			t.Errorf("called as %s: %q", name, got)
		}
	}
	if got := len(s.list(t)); got != 2 {
		t.Errorf("%d tools are listed after calls of tools that were not, want 2", got)
	}
}

func (s sdkSession) registered(t *testing.T) {
	before := names(s.list(t))
	f := s.retrieve(t, map[string]any{"query": "read the contents of many files at once", "server": "files", "limit": 3})
	var after []listed
	s.do(t, "relisted", nil, &after)
	if got := names(after); !slices.Equal(got[:len(before)], before) {
		t.Errorf("the tools listed before are not where they were:\nbefore %q\nafter  %q", before, got)
	}
	if got := names(s.list(t)); !slices.Equal(got, names(after)) {
		t.Errorf("two listings differ: %q and %q", names(after), got)
	}

	// The same client asks the server itself.
	direct := newSDKClient(t, s.house.env)
	files := upstreams(t, "files")["files"]
	direct.do(t, "connect", map[string]any{"command": files.Command, "args": append(files.Args, s.house.files)}, nil)
	own := direct.list(t)

	for _, hit := range f.Tools {
		if !hit.Registered {
			t.Errorf("%s is not registered", hit.Name)
		}
		i := slices.IndexFunc(after, func(l listed) bool { return l.Name == hit.Name })
		j := slices.IndexFunc(own, func(l listed) bool { return "files_"+l.Name == hit.Name })
		if i < 0 || j < 0 {
			t.Errorf("%s is not listed: %d, %d", hit.Name, i, j)
			continue
		}
		if string(after[i].Rest) != string(own[j].Rest) {
			t.Errorf("%s is listed as\n%s\nand by its server as\n%s", hit.Name, after[i].Rest, own[j].Rest)
		}
		// The SDK brings the members that it knows to the front, in a listing only.
		var inAnswer, inListing any
		if err := errors.Join(json.Unmarshal(hit.InputSchema, &inAnswer), json.Unmarshal(own[j].InputSchema, &inListing)); err != nil {
			t.Error(err)
		}
		if !reflect.DeepEqual(inAnswer, inListing) {
			t.Errorf("%s has in the answer the schema\n%s\nand from its server\n%s", hit.Name, hit.InputSchema, own[j].InputSchema)
		}
	}
}

func (s sdkSession) work(t *testing.T) {
	path := filepath.Join(s.house.files, "from the agent.txt")
	const text = "line one\nline two: naïve 😀\n"
	s.call(t, "files_write_file", map[string]any{"path": path, "content": text})
	if got, err := os.ReadFile(path); err != nil || string(got) != text {
		t.Errorf("the file has %q, %v", got, err)
	}
	if got := s.call(t, "files_read_text_file", map[string]any{"path": path}).text(); got != text {
		t.Errorf("read back: %q", got)
	}
	// A tool's own failure is the tool's answer.
	if got := s.try(t, "files_read_text_file", map[string]any{"path": "/etc/hostname"}); !got.Result.IsError || !strings.Contains(got.text(), "denied") {
		t.Errorf("outside its folder the server answered %+v", got)
	}

	s.call(t, "memory_create_entities", map[string]any{"entities": []any{
		map[string]any{"name": "Ada", "entityType": "person", "observations": []string{"keeps the spare key"}},
	}})
	got := s.call(t, "call_tool", map[string]any{"name": "memory_search_nodes", "arguments": map[string]any{"query": "spare key"}})
	if !strings.Contains(got.text(), "Ada") || !strings.Contains(string(got.Result.StructuredContent), "Ada") {
		t.Errorf("the memory has %+v", got)
	}
}

func (s sdkSession) unknown(t *testing.T) {
	direct := s.try(t, "files_wriet_file", map[string]any{})
	if direct.Error == nil && !direct.Result.IsError {
		t.Errorf("a tool that does not exist answered %+v", direct)
	}
	through := s.try(t, "call_tool", map[string]any{"name": "files_wriet_file", "arguments": map[string]any{}})
	if through.Error != nil || !through.Result.IsError {
		t.Fatalf("call_tool answered %+v", through)
	}
	message := through.text()
	if direct.Error != nil {
		message += direct.Error.Message
	} else {
		message += direct.text()
	}
	if strings.Count(message, "files_write_file") != 2 {
		t.Errorf("not both answers name the nearest tool: %s", message)
	}
}

func (s sdkSession) misfit(t *testing.T) {
	got := s.try(t, "call_tool", map[string]any{"name": "files_write_file", "arguments": map[string]any{"path": 7}})
	if !got.Result.IsError || !strings.Contains(got.text(), `"content"`) || !strings.Contains(got.text(), `"properties"`) {
		t.Errorf("the answer does not show what was wrong and the schema: %+v", got)
	}
}

func (s sdkSession) killed(t *testing.T) {
	kill(t, s.proxy, "server-memory")
	if got := s.call(t, "memory_search_nodes", map[string]any{"query": "Ada"}).text(); !strings.Contains(got, "spare key") {
		t.Errorf("after a restart the memory has %s", got)
	}
}

func (s sdkSession) progress(t *testing.T) {
	// The server sends the last one right before its answer. The SDK forgets about
	// progress when it reads an answer, and drops what it read together with it: on a
	// busy machine also those before.
	most := 0
	for n := 0; n < 5 && most < 4; n++ {
		got := s.try(t, "everything_trigger-long-running-operation", map[string]any{"duration": 0.5, "steps": 5})
		if got.Error != nil || !strings.Contains(got.text(), "completed") || len(got.Progress) > 5 {
			t.Fatalf("answered %+v", got)
		}
		for i, p := range got.Progress {
			if p.Progress != float64(i+1) || p.Total != 5 {
				t.Errorf("progress %d is %+v", i+1, p)
			}
		}
		most = max(most, len(got.Progress))
	}
	if most < 4 {
		t.Errorf("at most %d progress notifications came, want 5, or 4 without the last", most)
	}
}

func (s sdkSession) cancelled(t *testing.T) {
	got := s.try(t, "probe_wait_until_cancelled", map[string]any{}, map[string]any{"abortAfter": 1})
	if len(got.Progress) != 1 || got.Progress[0].Message != "waiting" {
		t.Errorf("progress is %+v", got.Progress)
	}
	if got.Error == nil || !strings.Contains(got.Error.Message, "lost interest") {
		t.Errorf("a call that the client gave up answered %+v", got)
	}
	if reasons := s.call(t, "probe_cancelled_waits", map[string]any{}).text(); reasons == "[]" {
		t.Error("the upstream was not told")
	}
}

func (s sdkSession) logs(t *testing.T) {
	s.do(t, "logLevel", map[string]any{"level": "info"}, nil)
	s.call(t, "probe_log_line", map[string]any{"line": "the probe was here"})
	var line struct{ Level, Logger, Data string }
	for line.Data != "the probe was here" { // other servers have things to say as well
		line.Data = ""
		var raw struct{ Level, Logger, Data json.RawMessage }
		s.do(t, "logged", nil, &raw)
		_ = json.Unmarshal(raw.Level, &line.Level)
		_ = json.Unmarshal(raw.Logger, &line.Logger)
		_ = json.Unmarshal(raw.Data, &line.Data)
	}
	if line.Level != "warning" || line.Logger != "probe" {
		t.Errorf("the line came as %+v", line)
	}
}

func (s sdkSession) grows(t *testing.T) {
	s.call(t, "probe_learn_trick", map[string]any{"name": "juggle_oranges", "description": "Juggle with oranges."})
	await.True(t, func() bool {
		return slices.Contains(s.retrieve(t, map[string]any{"query": "juggle oranges"}).names(), "probe_juggle_oranges")
	})
	if got := s.call(t, "probe_juggle_oranges", map[string]any{}).text(); got != `"juggle_oranges done"` {
		t.Errorf("the new tool answered %s", got)
	}
}
