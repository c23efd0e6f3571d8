//go:build unix

package view

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/python"
	"toolfinch/rawjson"
	"toolfinch/tool"
)

// withPython lets an Env run functions of f.py.
func withPython(t testing.TB, env *Env, source string) {
	t.Helper()
	if _, err := exec.LookPath(python.DefaultCommand()); err != nil {
		if os.Getenv("TOOLFINCH_TEST_REQUIRE") == "all" {
			t.Fatal("there is no Python (TOOLFINCH_TEST_REQUIRE=all)")
		}
		t.Skip("there is no Python")
	}
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "f.py"), []byte("from mcp_proxy import *\n"+source), 0o600))
	env.Python = python.New(python.Settings{Dir: dir}, env.Log)
	t.Cleanup(env.Python.Close)
}

// What leaves arguments alone, what empties them and what is a mistake is the same for
// hooks of all kinds, each in its own words. "" is what a kind cannot say.
func TestNothingEmptyAndMalformedAreToldApart(t *testing.T) {
	const removed, refused = "hook removed all arguments", "refused: "
	for _, test := range []struct {
		name, event, star, cmd, py string
		called                     string // the arguments of the tool, "" when it was not called
		answer                     string // is in the answer
		log                        string // is in the log; "" for nothing there
	}{
		{"nothing is said", preCall, `return None`, `{}`, `return None`, `{"a":1}`, `{"a":1}`, ""},
		{"arguments are absent", preCall, "", `{"args":null}`, `return HookResult()`, `{"a":1}`, `{"a":1}`, ""},
		{"arguments are None", preCall, "", `{"args":null}`, `return HookResult(args=None)`, `{"a":1}`, `{"a":1}`, ""},
		{"no arguments", preCall, `return {}`, `{"args":{}}`, `return HookResult(args={})`, `{}`, `{}`, removed},
		{"other arguments", preCall, `return {"b": 2}`, `{"args":{"b":2}}`, `return HookResult(args={"b": 2})`, `{"b":2}`, `{"b":2}`, ""},
		{"no object", preCall, `return [1]`, `{"args":[1]}`, `return HookResult(args=[1])`, "", "the arguments it returned are not an object: [1]. The tool was not called.", "hook failed"},
		{"refused", preCall, `abort("no")`, `{"abort":"no"}`, `return HookResult(abort=True, abort_reason="no")`, "", refused + "no", ""},
		{"the answer of a command", preCall, `return dict(abort = "no")`, "", `return {"abort": "no"}`, "", "The tool was not called.", "hook failed"},
		{"another member", preCall, "", `{"arguments":{}}`, `return {"arguments": {}}`, "", "The tool was not called.", "hook failed"},
		{"a result before the call", preCall, `return dict(args = {})`, `{"result":{}}`, `return HookResult(result={})`, "", "The tool was not called.", "hook failed"},

		{"nothing is said", postCall, `return None`, `{}`, `return None`, `{"a":1}`, `{"a":1}`, ""},
		{"the result is None", postCall, "", `{"result":null}`, `return HookResult(result=None)`, `{"a":1}`, `{"a":1}`, ""},
		{"another result", postCall, `return dict(result, structuredContent={"b": 2})`, `{"result":{"content":[],"structuredContent":{"b":2}}}`, `return HookResult(result={"b": 2})`, `{"a":1}`, `"structuredContent":{"b":2}`, ""},
		{"a malformed result", postCall, `return "hi"`, `{"result":"hi"}`, `return HookResult(result="hi")`, `{"a":1}`, "The tool was called; its result is withheld.", "hook failed"},
		{"the answer of a command", postCall, `return dict(abort = "no")`, "", `return {"abort": "no"}`, `{"a":1}`, "The tool was called; its result is withheld.", "hook failed"},
		{"withheld", postCall, `abort("no")`, `{"abort":"no"}`, `return HookResult(abort=True, abort_reason="no")`, `{"a":1}`, "its result is withheld: no", ""},
	} {
		for kind, body := range map[string]string{"starlark": test.star, "command": test.cmd, "python": test.py} {
			if body == "" {
				continue
			}
			t.Run(test.event+"/"+test.name+"/"+kind, func(t *testing.T) {
				called := ""
				of := upstreamTool(t, "s.t", `{}`, func(ctx context.Context, call *tool.Call) (tool.Result, error) {
					called = string(call.Arguments)
					return echo(ctx, call)
				})
				env, log := envOf(of)
				takes := "(ctx, args)"
				if test.event == postCall {
					takes = "(ctx, args, result)"
				}
				hook := &Hook{Timeout: await.Bound}
				switch kind {
				case "starlark":
					hook.Module, hook.Function = moduleOf(t, "def hook"+takes+":\n    "+body), "hook"
				case "command":
					hook.Command = []string{"echo", body}
				default:
					withPython(t, &env, "async def hook"+takes+":\n    "+body)
					hook.Python = "f.hook"
				}
				hooks := Hooks{PreCall: hook}
				if test.event == postCall {
					hooks = Hooks{PostCall: hook}
				}
				h, problems := newHooks(Settings{Name: "v", Hooks: hooks}, env)
				wantProblems(t, problems)
				answer := mustCall(t, h.around(of), &tool.Call{Name: "s_t", Arguments: json.RawMessage(`{"a":1}`)})
				if called != test.called || !strings.Contains(string(answer), test.answer) && !strings.Contains(said(answer), test.answer) {
					t.Errorf("called with %s, want %s; answer %s, want %s in it", called, test.called, answer, test.answer)
				}
				if test.log == "" && log.String() != "" || !strings.Contains(log.String(), test.log) {
					t.Errorf("log %q, want %q", log, test.log)
				}
			})
		}
	}
}

// What may have meant to refuse fails the call also where failures let it go on.
func TestAPythonHookThatAnswersSomethingElseIsRefused(t *testing.T) {
	for _, test := range []struct {
		event, body string
		passes      bool
	}{
		{preCall, `return {"abort": "no"}`, false},
		{preCall, `return "no"`, false},
		{preCall, `return HookResult(args=[1, 2])`, false},
		{preCall, `return HookResult(args={"n": float("nan")})`, false},
		{preCall, `return HookResult(args={"n": object()})`, false},
		{preCall, `return HookResult(result={"n": 1})`, false},
		{preCall, `raise ValueError("x")`, true},
		{postCall, `return HookResult(result={1, 2})`, false},
		{postCall, `return HookResult(result="not an object")`, false},
		{postCall, `raise ValueError("x")`, true},
	} {
		of := upstreamTool(t, "s.t", `{}`, func(context.Context, *tool.Call) (tool.Result, error) {
			return tool.Result(`{"content":[],"structuredContent":{"n":1}}`), nil
		})
		env, _ := envOf(of)
		withPython(t, &env, "async def hook(context, args, result=None):\n    "+test.body)
		hook := &Hook{Python: "f.hook", Continue: true, Timeout: await.Bound}
		hooks := Hooks{PreCall: hook}
		if test.event == postCall {
			hooks = Hooks{PostCall: hook}
		}
		h, problems := newHooks(Settings{Name: "v", Hooks: hooks}, env)
		wantProblems(t, problems)
		if answer := mustCall(t, h.around(of), &tool.Call{}); answer.Failed() == test.passes {
			t.Errorf("%s: %s: %s", test.event, test.body, answer)
		}
	}
}

// A hook after a call gets the data of a result, and gives them back in its shape.
func TestPythonGetsAndReturnsTheDataOfAResult(t *testing.T) {
	for _, test := range []struct{ name, result, body, want string }{
		{"structured content", `{"content":[{"type":"text","text":"{\"n\":1}"}],"structuredContent":{"n":1},"_meta":{"k":2}}`, `result["n"] += 1`,
			`{"content":[{"text":"{\"n\":2}","type":"text"}],"structuredContent":{"n":2},"_meta":{"k":2}}`},
		{"an image beside it", `{"content":[{"type":"image","data":"AA=="},{"type":"text","text":"one"}],"structuredContent":{"n":1}}`, `result["n"] += 1`,
			`{"content":[{"text":"{\"n\":2}","type":"text"},{"type":"image","data":"AA=="}],"structuredContent":{"n":2}}`},
		{"text that is JSON", `{"content":[{"type":"text","text":"[1, 2]"}]}`, `result.append("ž")`, `{"content":[{"text":"[1,2,\"ž\"]","type":"text"}]}`},
		{"a number", `{"content":[{"type":"text","text":"12345678901234567890"}]}`, `result += 1`, `{"content":[{"text":"12345678901234567891","type":"text"}]}`},
		{"JSON of a text", `{"content":[{"type":"text","text":"\"hi\""}]}`, `result += "!"`, `{"content":[{"text":"\"hi!\"","type":"text"}]}`},
		{"text", `{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"isError":true}`, `result = result.upper()`, `{"content":[{"text":"A\nB","type":"text"}],"isError":true}`},
		{"blocks", `{"content":[{"type":"image","data":"AA=="},{"type":"text","text":"b"}]}`, `result.pop(0)`, `{"content":[{"type":"text","text":"b"}]}`},
		{"blocks become a value", `{"content":[{"type":"image","data":"AA=="}]}`, `result = {"n": len(result)}`, `{"content":[{"text":"{\"n\":1}","type":"text"}]}`},
		{"nothing in it", `{"content":[]}`, `result = [result]`, `{"content":[{"text":"[\"\"]","type":"text"}]}`},
		{"no content", `{}`, `result = [result]`, `{"content":[{"text":"[\"\"]","type":"text"}]}`},
		{"no block", `{"content":[{"type":"image","data":"AA=="}]}`, `result = [1]`, `has a block in \"content\" that is none, number 1`},
	} {
		of := upstreamTool(t, "s.t", `{}`, func(context.Context, *tool.Call) (tool.Result, error) { return tool.Result(test.result), nil })
		env, _ := envOf(of)
		withPython(t, &env, "def hook(context, args, result):\n    "+test.body+"\n    return HookResult(result=result)")
		h, problems := newHooks(Settings{Name: "v", Hooks: Hooks{PostCall: &Hook{Python: "f.hook", Timeout: await.Bound}}}, env)
		wantProblems(t, problems)
		answer := string(mustCall(t, h.around(of), &tool.Call{}))
		if strings.HasPrefix(test.want, "{") && answer != test.want || !strings.Contains(answer, test.want) {
			t.Errorf("%s:\n got %s\nwant %s", test.name, answer, test.want)
		}
	}
}

func TestAPythonHookThatCannotBeLoadedFailsEveryCall(t *testing.T) {
	of := upstreamTool(t, "s.t", `{}`, echo)
	for path, want := range map[string]string{
		"none.hook": "pre_call hook: there is no module none in the folder of the configuration",
		"f.hok":     "pre_call hook: f has no hok; it has hook",
	} {
		env, _ := envOf(of)
		withPython(t, &env, "def hook(context, args): pass")
		h, problems := newHooks(Settings{Name: "v", Hooks: Hooks{PreCall: &Hook{Python: path, At: Place{Line: 9}}}}, env)
		wantProblems(t, problems, want)
		if answer := mustCall(t, h.around(of), &tool.Call{}); problems[0].At.Line != 9 || !strings.Contains(said(answer), "it could not be loaded. The tool was not called.") {
			t.Errorf("line %d, %s", problems[0].At.Line, answer)
		}
	}
}

func TestCustomToolsInPython(t *testing.T) {
	search := upstreamTool(t, "memory.search", `{}`, func(_ context.Context, call *tool.Call) (tool.Result, error) {
		if strings.Contains(string(call.Arguments), "fail") {
			return tool.ErrorResult("no such memory"), nil
		}
		return tool.TextResult(`{"hits": [` + string(call.Arguments) + `]}`), nil
	})
	env, log := envOf(search)
	withPython(t, &env, `
@custom_tool(name="contextual_search", description="Search with context")
async def contextual_search(ctx: ProxyContext, query: str, limit: int = 3) -> dict:
    found = await ctx.call_tool("memory.search", query=query)
    return {"hits": found["hits"], "limit": limit, "view": ctx.view_name}

@custom_tool
def often(ctx: ProxyContext, times: int):
    """Calls often."""
    for _ in range(times):
        ctx.call_tool("memory.search")

@custom_tool
def absent(ctx: ProxyContext):
    ctx.call_tool("memory.absent")
`)
	settings := Settings{Name: "smart", Customs: []Custom{{Python: "f", At: Place{Line: 4}, Limits: ScriptLimits{Calls: 2}}}}
	tools, problems := customs(settings, env, nil, map[string]Place{})
	wantProblems(t, problems)
	byName := map[string]*tool.Tool{}
	for _, one := range tools {
		byName[one.Name] = one
	}
	if raw := string(byName["contextual_search"].Def.Raw); !strings.Contains(raw, `"description":"Search with context"`) ||
		!strings.Contains(raw, `{"type":"object","properties":{"query":{"type":"string"},"limit":{"type":"integer","default":3}},"required":["query"],"additionalProperties":false}`) {
		t.Errorf("defined as %s", raw)
	}
	for _, test := range []struct{ name, arguments, want string }{
		{"contextual_search", `{"query":"x"}`, `{"hits":[{"query":"x"}],"limit":3,"view":"smart"}`},
		{"contextual_search", `{"query":5}`, `the arguments do not fit`},
		{"contextual_search", `{"query":"fail"}`, `no such memory`},
		{"often", `{"times":2}`, `done`},
		{"often", `{"times":3}`, `limit reached: 2 calls of tools`},
		{"absent", `{}`, `unknown tool "memory.absent"`},
	} {
		if got := said(mustCall(t, byName[test.name].Handler, &tool.Call{Arguments: json.RawMessage(test.arguments)})); got != test.want && !strings.HasPrefix(got, test.want) {
			t.Errorf("%s(%s): %s, want %s", test.name, test.arguments, got, test.want)
		}
	}
	if !strings.Contains(log.String(), "custom tool failed") {
		t.Errorf("log %s", log)
	}
	settings.Customs = []Custom{{Python: "f.often", Name: "calls"}, {Python: "f", Name: "all", At: Place{Line: 7}}, {Python: "f.none"}}
	tools, problems = customs(settings, env, nil, map[string]Place{})
	wantProblems(t, problems, "custom tool all: f has 3 custom tools, which cannot all have one name", "custom tool f.none: f has no none; it has")
	if len(tools) != 1 || tools[0].Name != "calls" {
		t.Errorf("%v", tools)
	}
}

// A call within a tool passes the hooks of the view, in the same Python.
func TestCallsOfAToolInPythonGoThroughHooksInPython(t *testing.T) {
	search := upstreamTool(t, "memory.search", `{}`, echo)
	env, _ := envOf(search)
	withPython(t, &env, `
async def hook(context, args):
    return HookResult(args={**args, "by": context.tool_name, "of": context.upstream_server})

@custom_tool
async def outer(ctx):
    return await ctx.call_tool("memory.search", {"q": 1})
`)
	settings := Settings{
		Name: "smart", Hooks: Hooks{PreCall: &Hook{Python: "f.hook", Timeout: await.Bound}}, Customs: []Custom{{Python: "f.outer"}},
	}
	h, problems := newHooks(settings, env)
	wantProblems(t, problems)
	outer := onlyTool(t, first(customs(settings, env, h, map[string]Place{})), nil)
	if got, want := said(mustCall(t, outer.Handler, &tool.Call{})), `{"q":1,"by":"search","of":"memory"}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// The examples run as they are written.
func TestExamplesInPython(t *testing.T) {
	notes := upstreamTool(t, "notes.list", `{}`, func(_ context.Context, call *tool.Call) (tool.Result, error) {
		return tool.TextResult(`[{"owner":"ada","text":` + string(rawjson.Member(call.Arguments, "owner")) + `},{"owner":"bob"}]`), nil
	})
	files := upstreamTool(t, "files.search_files", `{}`, func(_ context.Context, call *tool.Call) (tool.Result, error) {
		return tool.Result(`{"content":[],"structuredContent":{"content":` + string(rawjson.Member(call.Arguments, "pattern")) + `}}`), nil
	})
	memory := upstreamTool(t, "memory.search_nodes", `{}`, failing)
	env, _ := envOf(notes, files, memory)
	withPython(t, &env, "")
	env.Python = python.New(python.Settings{Dir: filepath.Join("testdata", "examples")}, env.Log)
	t.Cleanup(env.Python.Close)

	h, problems := newHooks(Settings{Name: "v", Hooks: Hooks{
		PreCall: &Hook{Python: "memory.inject", Timeout: await.Bound}, PostCall: &Hook{Python: "memory.own_only", Timeout: await.Bound},
	}}, env)
	wantProblems(t, problems)
	for principal, want := range map[string]string{"ada": `[{"owner":"ada","text":"ada"}]`, "": "refused: nobody is authenticated"} {
		if got := said(mustCall(t, h.around(notes), &tool.Call{Principal: principal})); got != want {
			t.Errorf("%q: %s, want %s", principal, got, want)
		}
	}
	search := onlyTool(t, first(customs(Settings{Name: "research", Customs: []Custom{{Python: "custom_tools.contextual_search"}}}, env, nil, map[string]Place{})), nil)
	if got, want := said(mustCall(t, search.Handler, &tool.Call{Arguments: json.RawMessage(`{"topic":"plan"}`)})), `{"facts":[],"files":["**/*plan*"]}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func first[A, B any](a A, _ B) A { return a }
