package view

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"toolfinch/tool"
	"toolfinch/view/script"
)

// runScriptIn is run_script of a view that has these tools.
func runScriptIn(t *testing.T, limits ScriptLimits, tools ...*tool.Tool) *tool.Tool {
	t.Helper()
	env, _ := envOf()
	env.Scripts = script.NewSandbox(env.Log)
	t.Cleanup(env.Scripts.Close)
	var made *tool.Tool
	env.Within = func(_ context.Context, name string) (*tool.Tool, error) {
		for _, of := range append(tools, made) {
			if name == of.Name || name == of.Def.ID.String() {
				return of, nil
			}
		}
		return nil, fmt.Errorf("%w: %q", tool.ErrNotFound, name)
	}
	made = runScript(Settings{Name: "v", RunScript: &limits}, env)
	return made
}

func scriptCall(source string) *tool.Call {
	arguments, _ := json.Marshal(map[string]string{"script": source})
	return &tool.Call{Name: "run_script", Arguments: arguments}
}

func TestAScriptOfTheModelCallsToolsOfTheView(t *testing.T) {
	named := ""
	search := upstreamTool(t, "github.search", `{}`, func(_ context.Context, call *tool.Call) (tool.Result, error) {
		named = fmt.Sprint(call.Name, " ", call.Depth)
		return tool.Result(`{"content":[],"structuredContent":{"items":[{"title":"a","n":9},{"title":"b","n":1}]}}`), nil
	})
	search.Name = "github_search"
	fails := upstreamTool(t, "github.fails", `{}`, failing)
	fails.Name = "github_fails"
	run := runScriptIn(t, ScriptLimits{}, search, fails)
	for _, test := range []struct{ name, source, want string }{
		{"result", `found = call_tool("github_search", q="x")` + "\n" + `result = [i["title"] for i in found["items"] if i["n"] > 5]`, `["a"]`},
		{"by its ID", `result = len(call_tool("github.search")["items"])`, `2`},
		{"main", "def main():\n    return {\"found\": retrieve(\"x\")[0][\"name\"]}", `{"found":"within x"}`},
		{"at once", `result = parallel([{"tool": "github_search", "args": {}}, {"tool": "github_fails", "args": {}}])[1]["error"]`, `no such repository`},
		{"nothing", `x = 1`, `done`},
	} {
		result := mustCall(t, run.Handler, scriptCall(test.source))
		if got := said(result); got != test.want || result.Failed() {
			t.Errorf("%s: %s, want %s", test.name, result, test.want)
		}
	}
	if named != "github_search 1" {
		t.Errorf("the tool was called as %q", named)
	}
}

func TestWhatAScriptCannotDo(t *testing.T) {
	fails := upstreamTool(t, "github.fails", `{}`, failing)
	fails.Name = "github_fails"
	run := runScriptIn(t, ScriptLimits{Calls: 2, Steps: 10_000, Output: 100}, fails)
	for _, test := range []struct{ name, source, want string }{
		{"what is not in the view", "x = 1\nresult = call_tool(\"other\")", `no such tool: "other"`},
		{"itself", `result = call_tool("run_script", script="result = 1")`, "a script cannot run scripts"},
		{"itself by its ID", `result = call_tool("toolfinch.run_script", script="result = 1")`, "a script cannot run scripts"},
		{"a failure", "\n\nresult = call_tool(\"github_fails\")", "no such repository"},
		{"a mistake", "x = 1\nresult = y", "2"},
		{"no Starlark", "import os", "1"},
		{"too many calls", `parallel([{"tool": "github_fails", "args": {}} for i in range(3)])` + "\n" + `call_tool("github_fails")`, "calls"},
		{"too many steps", "def main():\n    for i in range(1000000):\n        pass", "steps"},
		{"too much", `result = "x" * 1000`, ""},
		{"files", `load("/etc/passwd", "x")`, ""},
	} {
		result := mustCall(t, run.Handler, scriptCall(test.source))
		if !result.Failed() || !strings.Contains(said(result), test.want) {
			t.Errorf("%s: %s, want %q in it", test.name, result, test.want)
		}
	}
	for _, arguments := range []string{``, `{}`, `{"script":1}`, `[]`} {
		result := mustCall(t, run.Handler, &tool.Call{Arguments: json.RawMessage(arguments)})
		if !result.Failed() || !strings.HasPrefix(said(result), "script is missing") {
			t.Errorf("%s: %s", arguments, result)
		}
	}
}

func TestRunScriptIsOfferedWhereTheViewSaysSo(t *testing.T) {
	if runScript(Settings{Name: "v"}, Env{}) != nil {
		t.Error("it is offered")
	}
	made := runScript(Settings{Name: "v", RunScript: &ScriptLimits{}}, Env{})
	if n := len(made.Def.Description); n > 900 {
		t.Errorf("its description has %d bytes", n)
	}
	if a := made.Def.Annotations; a.ReadOnly || !a.Destructive {
		t.Errorf("annotations %+v: it calls whatever there is", a)
	}
}

func TestTheExampleForTheModelRuns(t *testing.T) {
	search := upstreamTool(t, "github.search_issues", `{}`, func(context.Context, *tool.Call) (tool.Result, error) {
		return tool.Result(`{"content":[],"structuredContent":{"items":[{"title":"a","comments":9},{"title":"b","comments":1}]}}`), nil
	})
	search.Name = "github_search_issues"
	_, example, _ := strings.Cut(runScriptDescription, "Example:\n")
	if got := said(mustCall(t, runScriptIn(t, ScriptLimits{}, search).Handler, scriptCall(example))); got != `["a"]` {
		t.Errorf("%s", got)
	}
}
