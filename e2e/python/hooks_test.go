//go:build unix

package python_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/view"
	"toolfinch/view/python"
)

// upstreamTool is a tool of a server.
func upstreamTool(t testing.TB, id string, handler tool.Handler) *tool.Tool {
	t.Helper()
	server, name, _ := strings.Cut(id, ".")
	def := must.Get(tool.ParseDef(server, fmt.Appendf(nil, `{"name":%q,"inputSchema":{"type":"object"}}`, name)))(t)
	return &tool.Tool{Def: def, Handler: handler}
}

func echo(_ context.Context, call *tool.Call) (tool.Result, error) {
	return tool.Result(`{"content":[],"structuredContent":` + string(call.Arguments) + `}`), nil
}

// answering is a handler with one answer.
func answering(result string) tool.Handler {
	return func(context.Context, *tool.Call) (tool.Result, error) { return tool.Result(result), nil }
}

// viewed is a view over tools of servers: what it serves by ID, and what is wrong with it.
func viewed(h host, s view.Settings, of ...*tool.Tool) (served map[string]tool.Handler, own []*tool.Tool, problems []view.Problem) {
	base := make([]view.Upstream, len(of))
	for i, one := range of {
		base[i] = view.Upstream{Server: one.Def.ID.Server, Listed: true, Tools: []*tool.Tool{one}}
	}
	s.IncludeAll = true
	compiled, problems := view.Compile(s, base, view.Env{
		Log: slog.New(slog.NewTextHandler(h.log, nil)), Python: h.Host,
		Find: func(id string) (*tool.Tool, bool) {
			i := slices.IndexFunc(of, func(one *tool.Tool) bool { return one.Def.ID.String() == id })
			if i < 0 {
				return nil, false
			}
			return of[i], true
		},
		Nearest: func(string, int) []string { return nil },
	})
	served = map[string]tool.Handler{}
	for _, u := range compiled.Upstreams {
		for _, one := range u.Tools {
			served[one.Def.ID.String()] = one.Handler
		}
	}
	for _, one := range compiled.Own {
		served[one.Name] = one.Handler
	}
	return served, compiled.Own, problems
}

func hook(path string) *view.Hook { return &view.Hook{Python: path, Timeout: await.Bound} }

// ask calls a handler.
func ask(t testing.TB, handler tool.Handler, call tool.Call) tool.Result {
	t.Helper()
	if handler == nil {
		t.Fatal("the view does not serve it")
	}
	result := must.Get(handler(t.Context(), &call))(t)
	return result
}

// said is what a model reads of a result.
func said(result tool.Result) string {
	var texts []string
	for block := range rawjson.Elements(rawjson.Member(result, "content")) {
		texts = append(texts, rawjson.Text(rawjson.Member(block, "text")))
	}
	return strings.Join(texts, "\n")
}

func wantProblems(t *testing.T, got []view.Problem, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("problems %q, want %q", got, want)
	}
	for i := range want {
		if !strings.Contains(got[i].Error(), want[i]) {
			t.Errorf("problem %q, want %q in it", got[i], want[i])
		}
	}
}

// functions are hooks h0, h1 and so on with these bodies, of one module.
func functions(of string, bodies []string) (source string) {
	source = "from mcp_proxy import *\n"
	for i, body := range bodies {
		source += fmt.Sprintf("%s h%d(context, args, result=None):\n    %s\n", of, i, body)
	}
	return source
}

// What leaves arguments and results alone, what changes them, and what may have meant to refuse and
// fails the call therefore, also where failures let it go on.
func TestHooksInPythonChangeAndRefuseCalls(t *testing.T) {
	const withheld, uncalled = "The tool was called; its result is withheld.", "The tool was not called."
	tests := []struct {
		post    bool
		body    string
		lenient bool   // failures let the call go on
		called  string // the arguments of the tool, "" when it was not called
		answer  string // is in the answer
		log     string // is in the log; "" for nothing there
	}{
		{false, `return None`, false, `{"a":1}`, `{"a":1}`, ""},
		{false, `return HookResult()`, false, `{"a":1}`, `{"a":1}`, ""},
		{false, `return HookResult(args=None)`, false, `{"a":1}`, `{"a":1}`, ""},
		{false, `return HookResult(args={})`, false, `{}`, `{}`, "hook removed all arguments"},
		{false, `return HookResult(args={"b": 2})`, false, `{"b":2}`, `{"b":2}`, ""},
		{false, `return HookResult(args=[1])`, true, "", "the arguments it returned are not an object: [1]. " + uncalled, "hook failed"},
		{false, `return HookResult(abort=True, abort_reason="no")`, true, "", "refused: no", ""},
		{false, `return {"abort": "no"}`, true, "", uncalled, "hook failed"},
		{false, `return "no"`, true, "", uncalled, "hook failed"},
		{false, `return HookResult(args={"n": float("nan")})`, true, "", uncalled, "hook failed"},
		{false, `return HookResult(args={"n": object()})`, true, "", uncalled, "hook failed"},
		{false, `return HookResult(result={})`, true, "", uncalled, "hook failed"},
		{false, `raise ValueError("x")`, false, "", uncalled, "hook failed"},
		{false, `raise ValueError("x")`, true, `{"a":1}`, `{"a":1}`, "hook failed"},

		{true, `return None`, false, `{"a":1}`, `{"a":1}`, ""},
		{true, `return HookResult(result=None)`, false, `{"a":1}`, `{"a":1}`, ""},
		{true, `return HookResult(result={"b": 2})`, false, `{"a":1}`, `"structuredContent":{"b":2}`, ""},
		{true, `return HookResult(result="hi")`, true, `{"a":1}`, withheld, "hook failed"},
		{true, `return HookResult(result={1, 2})`, true, `{"a":1}`, withheld, "hook failed"},
		{true, `return {"abort": "no"}`, true, `{"a":1}`, withheld, "hook failed"},
		{true, `return HookResult(abort=True, abort_reason="no")`, true, `{"a":1}`, "its result is withheld: no", ""},
		{true, `raise ValueError("x")`, true, `{"a":1}`, `{"a":1}`, "hook failed"},
	}
	var bodies []string
	for _, test := range tests {
		bodies = append(bodies, test.body)
	}
	h := hosted(t, "f.py", functions("async def", bodies))
	for i, test := range tests {
		called := ""
		of := upstreamTool(t, "s.t", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			called = string(call.Arguments)
			return echo(ctx, call)
		})
		one := hook(fmt.Sprintf("f.h%d", i))
		one.Continue = test.lenient
		hooks := view.Hooks{PreCall: one}
		if test.post {
			hooks = view.Hooks{PostCall: one}
		}
		logged := len(h.log.String())
		served, _, problems := viewed(h, view.Settings{Name: "v", Hooks: hooks}, of)
		wantProblems(t, problems)
		answer := ask(t, served["s.t"], tool.Call{Name: "s_t", Arguments: json.RawMessage(`{"a":1}`)})
		if called != test.called || !strings.Contains(string(answer), test.answer) && !strings.Contains(said(answer), test.answer) {
			t.Errorf("%s: called with %s, want %s; answer %s, want %s in it", test.body, called, test.called, answer, test.answer)
		}
		if log := h.log.String()[logged:]; test.log == "" && log != "" || !strings.Contains(log, test.log) {
			t.Errorf("%s: log %q, want %q", test.body, log, test.log)
		}
	}
}

// A hook after a call gets the data of a result, and gives them back in its shape.
func TestPythonGetsAndReturnsTheDataOfAResult(t *testing.T) {
	tests := []struct{ name, result, body, want string }{
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
	}
	var bodies []string
	for _, test := range tests {
		bodies = append(bodies, test.body+"\n    return HookResult(result=result)")
	}
	h := hosted(t, "f.py", functions("def", bodies))
	for i, test := range tests {
		served, _, problems := viewed(h, view.Settings{Name: "v", Hooks: view.Hooks{PostCall: hook(fmt.Sprintf("f.h%d", i))}}, upstreamTool(t, "s.t", answering(test.result)))
		wantProblems(t, problems)
		answer := string(ask(t, served["s.t"], tool.Call{}))
		if strings.HasPrefix(test.want, "{") && answer != test.want || !strings.Contains(answer, test.want) {
			t.Errorf("%s:\n got %s\nwant %s", test.name, answer, test.want)
		}
	}
}

func TestAPythonHookThatCannotBeLoadedFailsEveryCall(t *testing.T) {
	h := hosted(t, "f.py", "def hook(context, args): pass")
	for path, want := range map[string]string{
		"none.hook": "pre_call hook: there is no module none in the folder of the configuration",
		"f.hok":     "pre_call hook: f has no hok; it has hook",
	} {
		served, _, problems := viewed(h, view.Settings{Name: "v", Hooks: view.Hooks{PreCall: &view.Hook{Python: path, At: view.Place{Line: 9}}}}, upstreamTool(t, "s.t", echo))
		wantProblems(t, problems, want)
		if answer := ask(t, served["s.t"], tool.Call{}); problems[0].At.Line != 9 || !strings.Contains(said(answer), "it could not be loaded. The tool was not called.") {
			t.Errorf("line %d, %s", problems[0].At.Line, answer)
		}
	}
}

func TestCustomToolsInPython(t *testing.T) {
	search := upstreamTool(t, "memory.search", func(_ context.Context, call *tool.Call) (tool.Result, error) {
		if strings.Contains(string(call.Arguments), "fail") {
			return tool.ErrorResult("no such memory"), nil
		}
		return tool.TextResult(`{"hits": [` + string(call.Arguments) + `]}`), nil
	})
	h := hosted(t, "f.py", `
from mcp_proxy import *

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
	served, own, problems := viewed(h, view.Settings{Name: "smart", Customs: []view.Custom{{Python: "f", At: view.Place{Line: 4}, Limits: view.ScriptLimits{Calls: 2}}}}, search)
	wantProblems(t, problems)
	described := slices.ContainsFunc(own, func(one *tool.Tool) bool {
		raw := string(one.Def.Raw)
		return one.Name == "contextual_search" && strings.Contains(raw, `"description":"Search with context"`) &&
			strings.Contains(raw, `{"type":"object","properties":{"query":{"type":"string"},"limit":{"type":"integer","default":3}},"required":["query"],"additionalProperties":false}`)
	})
	if !described {
		t.Errorf("no tool is described as its function: %v", own)
	}
	for _, test := range []struct{ name, arguments, want string }{
		{"contextual_search", `{"query":"x"}`, `{"hits":[{"query":"x"}],"limit":3,"view":"smart"}`},
		{"contextual_search", `{"query":5}`, `the arguments do not fit`},
		{"contextual_search", `{"query":"fail"}`, `no such memory`},
		{"often", `{"times":2}`, `done`},
		{"often", `{"times":3}`, `limit reached: 2 calls of tools`},
		{"absent", `{}`, `unknown tool "memory.absent"`},
	} {
		if got := said(ask(t, served[test.name], tool.Call{Arguments: json.RawMessage(test.arguments)})); got != test.want && !strings.HasPrefix(got, test.want) {
			t.Errorf("%s(%s): %s, want %s", test.name, test.arguments, got, test.want)
		}
	}
	if !strings.Contains(h.log.String(), "custom tool failed") {
		t.Errorf("log %s", h.log)
	}
	_, own, problems = viewed(h, view.Settings{Name: "smart", Customs: []view.Custom{{Python: "f.often", Name: "calls"}, {Python: "f", Name: "all", At: view.Place{Line: 7}}, {Python: "f.none"}}}, search)
	wantProblems(t, problems, "custom tool all: f has 3 custom tools, which cannot all have one name", "custom tool f.none: f has no none; it has")
	if len(own) != 1 || own[0].Name != "calls" {
		t.Errorf("%v", own)
	}
}

// A call within a tool passes the hooks of the view, in the same Python.
func TestCallsOfAToolInPythonGoThroughHooksInPython(t *testing.T) {
	h := hosted(t, "f.py", `
from mcp_proxy import *

async def hook(context, args):
    if context.upstream_server == "memory":
        return HookResult(args={**args, "by": context.tool_name, "of": context.upstream_server})

@custom_tool
async def outer(ctx):
    return await ctx.call_tool("memory.search", {"q": 1})
`)
	served, _, problems := viewed(h, view.Settings{Name: "smart", Hooks: view.Hooks{PreCall: hook("f.hook")}, Customs: []view.Custom{{Python: "f.outer"}}}, upstreamTool(t, "memory.search", echo))
	wantProblems(t, problems)
	if got, want := said(ask(t, served["outer"], tool.Call{})), `{"q":1,"by":"search","of":"memory"}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// The examples of docs/hooks.md run as they are written.
func TestExamplesInPython(t *testing.T) {
	needPython(t)
	notes := upstreamTool(t, "notes.list", func(_ context.Context, call *tool.Call) (tool.Result, error) {
		return tool.TextResult(`[{"owner":"ada","text":` + string(rawjson.Member(call.Arguments, "owner")) + `},{"owner":"bob"}]`), nil
	})
	files := upstreamTool(t, "files.search_files", func(_ context.Context, call *tool.Call) (tool.Result, error) {
		return tool.Result(`{"content":[],"structuredContent":{"content":` + string(rawjson.Member(call.Arguments, "pattern")) + `}}`), nil
	})
	memory := upstreamTool(t, "memory.search_nodes", answering(`{"content":[{"type":"text","text":"no such topic"}],"isError":true}`))
	log := &await.Log{}
	h := host{Host: python.New(python.Settings{Dir: "../../view/testdata/examples"}, slog.New(slog.NewTextHandler(log, nil))), log: log}
	t.Cleanup(h.Close)
	served, _, problems := viewed(h, view.Settings{Name: "v", Hooks: view.Hooks{PreCall: hook("memory.inject"), PostCall: hook("memory.own_only")}}, notes)
	wantProblems(t, problems)
	for principal, want := range map[string]string{"ada": `[{"owner":"ada","text":"ada"}]`, "": "refused: nobody is authenticated"} {
		if got := said(ask(t, served["notes.list"], tool.Call{Principal: principal})); got != want {
			t.Errorf("%q: %s, want %s", principal, got, want)
		}
	}
	served, _, problems = viewed(h, view.Settings{Name: "research", Customs: []view.Custom{{Python: "custom_tools.contextual_search"}}}, files, memory)
	wantProblems(t, problems)
	if got, want := said(ask(t, served["contextual_search"], tool.Call{Arguments: json.RawMessage(`{"topic":"plan"}`)})), `{"facts":[],"files":["**/*plan*"]}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// BenchmarkHookOfAView is a call through a hook in Python, with all that a view does around it.
func BenchmarkHookOfAView(b *testing.B) {
	h := hosted(b, "f.py", functions("async def", []string{"return HookResult(args=dict(args, user=context.principal))"}))
	served, _, problems := viewed(h, view.Settings{Name: "v", Hooks: view.Hooks{PreCall: &view.Hook{Python: "f.h0", Timeout: time.Minute}}}, upstreamTool(b, "s.t", answering(`{"content":[]}`)))
	if len(problems) > 0 {
		b.Fatal(problems)
	}
	call := tool.Call{Name: "s_t", Principal: "ada", Arguments: json.RawMessage(`{"text":"` + strings.Repeat("0123456789 ", 90) + `","n":7}`)}
	for b.Loop() {
		ask(b, served["s.t"], call)
	}
}
