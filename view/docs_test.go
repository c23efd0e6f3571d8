package view

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/tool"
	"toolfinch/view/script"
)

// block is a fenced block of the documentation: its language, the name of the
// file that it shows, and its text.
type block struct{ doc, language, file, text string }

var fence = regexp.MustCompile("(?ms)^```([a-z]+) ?([^\n]*)\n(.*?)^```$")

func documented(t *testing.T) (blocks []block) {
	t.Helper()
	for _, doc := range []string{"hooks.md", "views.md"} {
		text := must.Get(os.ReadFile(filepath.Join("..", "docs", doc)))(t)
		for _, match := range fence.FindAllStringSubmatch(strings.ReplaceAll(string(text), "\r\n", "\n"), -1) {
			blocks = append(blocks, block{doc, match[1], match[2], match[3]})
		}
	}
	return blocks
}

// What the documentation shows is what is tested, and all that is tested is
// shown.
func TestExamplesStandInTheDocumentation(t *testing.T) {
	shown := map[string]bool{}
	for _, b := range documented(t) {
		if b.language != "python" && b.language != "sh" {
			continue
		}
		if b.file == "" {
			t.Errorf("%s: a block of %s names no file:\n%.200s", b.doc, b.language, b.text)
			continue
		}
		shown[b.file] = true
		content, err := os.ReadFile(filepath.Join("testdata", "examples", b.file))
		if err != nil {
			t.Errorf("%s: %v", b.doc, err)
			continue
		}
		if string(content) != b.text {
			t.Errorf("%s shows another %s than the file is", b.doc, b.file)
		}
	}
	files := must.Get(os.ReadDir(filepath.Join("testdata", "examples")))(t)
	for _, file := range files {
		if !shown[file.Name()] {
			t.Errorf("no documentation shows %s", file.Name())
		}
	}
	if len(shown) < 8 {
		t.Errorf("only %d files were found: the test reads past them", len(shown))
	}
}

// Every module of the documentation loads; a script of a model is not one, as it
// calls tools at once.
func TestDocumentedModulesLoad(t *testing.T) {
	for _, b := range documented(t) {
		if b.language != "python" || b.file == "invoices.star" {
			continue
		}
		if strings.HasSuffix(b.file, ".py") {
			continue // see TestExamplesInPython
		}
		program, err := script.Load(filepath.Join("testdata", "examples", b.file), nil, nil)
		if err != nil {
			t.Error(err)
			continue
		}
		found := false
		for _, name := range []string{preCall, postCall, "on_topic"} {
			_, err := program.Function(name)
			found = found || err == nil
		}
		if !found {
			t.Errorf("%s has neither a hook nor a tool", b.file)
		}
	}
}

func TestExampleResearch(t *testing.T) {
	const readOnly = `{"readOnlyHint":true}`
	search := func(value string) tool.Handler {
		return func(context.Context, *tool.Call) (tool.Result, error) {
			return tool.Result(`{"content":[],"structuredContent":` + value + `}`), nil
		}
	}
	facts := upstreamTool(t, "memory.search_nodes", readOnly, search(`{"entities":[{"name":"plan","observations":["ship it"]},{"name":"b","observations":[]}]}`))
	files := upstreamTool(t, "files.search_files", readOnly, search(`{"content":"plan.txt\nold/plan.md"}`))
	module := must.Get(filepath.Abs(filepath.Join("testdata", "examples", "research.star")))(t)
	made := func(of ...*tool.Tool) *tool.Tool {
		env, _ := envOf(of...)
		tools, problems := customs(Settings{Name: "research", Customs: []Custom{{Module: module, Function: "on_topic"}}}, env, nil, map[string]Place{})
		wantProblems(t, problems)
		return tools[0]
	}
	onTopic := made(facts, files)
	if want := "Facts and files about a topic.\n\nAsk this before you search anything one by one."; onTopic.Def.Description != want {
		t.Errorf("described as %q", onTopic.Def.Description)
	}
	if !onTopic.Def.Annotations.ReadOnly {
		t.Error("the tools it calls only read, and so does it")
	}
	for arguments, want := range map[string]string{
		`{"topic":"plan"}`:           `{"facts":[{"name":"plan","says":["ship it"]},{"name":"b","says":[]}],"files":["plan.txt","old/plan.md"]}`,
		`{"topic":"plan","limit":1}`: `{"facts":[{"name":"plan","says":["ship it"]}],"files":["plan.txt"]}`,
	} {
		got := mustCall(t, onTopic.Handler, &tool.Call{Name: "on_topic", Arguments: json.RawMessage(arguments)})
		if string(got.Value()) != want {
			t.Errorf("%s: %s, want %s", arguments, got, want)
		}
	}
	if got := mustCall(t, onTopic.Handler, &tool.Call{Name: "on_topic", Arguments: json.RawMessage(`{"topic":"x"}`)}); !got.Failed() {
		t.Errorf("one letter is no topic: %s", got)
	}

	facts.Handler, files.Handler = failing, failing
	got := mustCall(t, made(facts, files).Handler, &tool.Call{Name: "on_topic", Arguments: json.RawMessage(`{"topic":"plan"}`)})
	if want := "neither can be searched: no such repository; no such repository"; said(got) != want || !got.Failed() {
		t.Errorf("%s, want %q", got, want)
	}
}

func TestExampleScript(t *testing.T) {
	source := must.Get(os.ReadFile(filepath.Join("testdata", "examples", "invoices.star")))(t)
	list := upstreamTool(t, "files.list_directory", `{}`, func(context.Context, *tool.Call) (tool.Result, error) {
		return tool.Result(`{"content":[],"structuredContent":{"content":"[FILE] a.txt\n[FILE] b.txt\n[FILE] c.txt"}}`), nil
	})
	read := upstreamTool(t, "files.read_text_file", `{}`, func(_ context.Context, call *tool.Call) (tool.Result, error) {
		var in struct{ Path string }
		if err := json.Unmarshal(call.Arguments, &in); err != nil {
			return nil, err
		}
		total := map[string]int{"invoices/a.txt": 7, "invoices/b.txt": 30, "invoices/c.txt": 12}[in.Path]
		return tool.Result(fmt.Sprintf(`{"content":[],"structuredContent":{"content":"An invoice\nTotal due: %d\n"}}`, total)), nil
	})
	list.Name, read.Name = "files_list_directory", "files_read_text_file"
	got := mustCall(t, runScriptIn(t, ScriptLimits{}, list, read).Handler, scriptCall(string(source)))
	if want := `{"largest":"b.txt","sum":49}`; said(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestExampleAudit(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a shell script")
	}
	program := must.Get(filepath.Abs(filepath.Join("testdata", "examples", "audit.sh")))(t)
	dir := t.TempDir()
	echoes := upstreamTool(t, "notes.add", `{}`, echo)
	env, _ := envOf(echoes)
	h, problems := newHooks(Settings{Name: "v", Hooks: Hooks{PostCall: &Hook{Command: []string{program, "audit.log"}, Dir: dir, Timeout: await.Bound}}}, env)
	wantProblems(t, problems)
	for i := range 2 {
		got := mustCall(t, h.around(echoes), &tool.Call{Name: "notes_add", Arguments: fmt.Appendf(nil, `{"n":%d}`, i)})
		if want := fmt.Sprintf(`{"n":%d}`, i); string(got.Value()) != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	log := must.Get(os.ReadFile(filepath.Join(dir, "audit.log")))(t)
	lines := slices.Collect(strings.Lines(string(log)))
	if len(lines) != 2 {
		t.Fatalf("%d lines:\n%s", len(lines), log)
	}
	for i, line := range lines {
		var said struct {
			Event string
			Ctx   struct{ Name string }
			Args  struct{ N int }
		}
		if err := json.Unmarshal([]byte(line), &said); err != nil || said.Event != postCall || said.Ctx.Name != "notes_add" || said.Args.N != i {
			t.Errorf("line %d: %v: %s", i+1, err, line)
		}
	}
}

// A command hook reads what the documentation says it reads.
func TestDocumentedRequest(t *testing.T) {
	var shown hookRequest
	for _, b := range documented(t) {
		if b.language != "json" {
			continue
		}
		decoder := json.NewDecoder(strings.NewReader(b.text))
		decoder.DisallowUnknownFields()
		must.Do(t, decoder.Decode(&shown))
	}
	if shown.Event != postCall || shown.Ctx.Tool == "" || shown.Args == nil || shown.Result == nil {
		t.Errorf("the documentation shows %+v", shown)
	}
	for _, of := range []any{shown, shown.Ctx} {
		raw := must.Get(json.Marshal(of))(t)
		var members map[string]json.RawMessage
		must.Do(t, json.Unmarshal(raw, &members))
		text := must.Get(os.ReadFile(filepath.Join("..", "docs", "hooks.md")))(t)
		for name := range members {
			if !strings.Contains(string(text), `"`+name+`": `) {
				t.Errorf("hooks.md does not show %q", name)
			}
		}
	}
}
