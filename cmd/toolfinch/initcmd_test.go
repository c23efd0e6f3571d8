package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
	"toolfinch/view/script"
)

// The example of hooks runs as it is written: arguments stay, keys in results
// are hidden wherever they stand, and what has none is left alone.
func TestTheExampleOfHooksRuns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "example.star")
	must.Do(t, os.WriteFile(path, []byte(hooksExample), 0o600))
	silent := func(string) {}
	program := must.Get(script.Load(path, nil, silent))(t)
	call := func(name string, args ...json.RawMessage) json.RawMessage {
		t.Helper()
		f := must.Get(program.Function(name))(t)
		result := must.Get(f.Call(t.Context(), &script.Info{View: "default", Tool: "read_file"}, nil, script.Limits{}, silent, args...))(t)
		return result
	}
	args := json.RawMessage(`{"n":9007199254740993}`)
	if got := call("pre_call", args); got != nil {
		t.Errorf("pre_call returned %s", got)
	}
	if got := call("post_call", args, json.RawMessage(`{"content":[{"type":"text","text":"a task-list, no key"}]}`)); got != nil {
		t.Errorf("post_call without a key returned %s", got)
	}
	got := call("post_call", args, json.RawMessage(`{"content":[{"type":"text","text":"key:\nsk-abcdefghijklmnop1234 end"}],"structuredContent":{"key":"ghp_abcdefghijklmnop1234","n":9007199254740993}}`))
	var text string
	for block := range rawjson.Elements(rawjson.Member(got, "content")) {
		text = rawjson.Text(rawjson.Member(block, "text"))
	}
	if want := "key:\n[redacted] end"; text != want {
		t.Errorf("text %q, want %q", text, want)
	}
	structured := rawjson.Member(got, "structuredContent")
	if key, n := rawjson.Text(rawjson.Member(structured, "key")), string(rawjson.Member(structured, "n")); key != "[redacted]" || n != "9007199254740993" {
		t.Errorf("structured content %s", structured)
	}
}
