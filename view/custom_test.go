package view

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"toolfinch/tool"
	"toolfinch/view/script"
)

// customOf is the custom tool that the function f of a module makes.
func customOf(t *testing.T, env Env, h *hooks, source string) *tool.Tool {
	t.Helper()
	tools, problems := customs(Settings{Name: "smart", Customs: []Custom{{Module: moduleOf(t, source), Function: "f"}}}, env, h, map[string]Place{})
	return onlyTool(t, tools, problems)
}

func TestACustomToolIsDefinedByItsModule(t *testing.T) {
	env, _ := envOf(
		upstreamTool(t, "a.reads", `{"readOnlyHint":true,"openWorldHint":false}`, echo),
		upstreamTool(t, "a.writes", `{"destructiveHint":false}`, echo),
	)
	for _, test := range []struct{ name, source, want string }{
		{"by its signature and docstring", `
def f(ctx, query, limit=5, ratio=1.0, exact=False, tags=[], within={}, lang="en", more=None):
    """Find code.

    In all sources.
    """
    return None
`, `{"name":"f","description":"Find code.\n\nIn all sources.","inputSchema":{"type":"object","properties":{"query":{},` +
			`"limit":{"type":"integer","default":5},"ratio":{"type":"number","default":1.0},"exact":{"type":"boolean","default":false},` +
			`"tags":{"type":"array","default":[]},"within":{"type":"object","default":{}},"lang":{"type":"string","default":"en"},"more":{}},` +
			`"required":["query"],"additionalProperties":false}}`},
		{"by its declaration", `
def g(ctx, query, limit):
    "not this"
    return {}

f = tool(g, description="Find code", title="Code", parameters={
    "query": {"type": "string", "required": True, "description": "What"},
    "limit": {"type": "integer", "default": 3},
}, annotations={"readOnlyHint": True}, output_schema={"type": "object"})
`, `{"name":"f","title":"Code","description":"Find code","inputSchema":{"type":"object","properties":{` +
			`"query":{"type":"string","description":"What"},"limit":{"type":"integer","default":3}},"required":["query"],"additionalProperties":false},` +
			`"outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`},
		{"hints of what it calls", `f = tool(lambda ctx: None, description="d", calls=["a.reads", "a.writes"])`,
			`{"name":"f","description":"d","inputSchema":{"type":"object","properties":{},"additionalProperties":false},` +
				`"annotations":{"readOnlyHint":false,"destructiveHint":false,"idempotentHint":false,"openWorldHint":true}}`},
		{"stricter than what it calls", `f = tool(lambda ctx: None, description="d", calls=["a.reads"], annotations={"destructiveHint": True, "readOnlyHint": False})`,
			`{"name":"f","description":"d","inputSchema":{"type":"object","properties":{},"additionalProperties":false},` +
				`"annotations":{"idempotentHint":true,"openWorldHint":false,"destructiveHint":true,"readOnlyHint":false}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			made := customOf(t, env, nil, test.source)
			if !sameJSON(made.Def.Raw, test.want) {
				t.Errorf("definition\n got %s\nwant %s", made.Def.Raw, test.want)
			}
			if made.Name != "f" || made.Def.ID.Server != "smart" {
				t.Errorf("name %q, ID %s", made.Name, made.Def.ID)
			}
		})
	}
}

// sameJSON compares definitions byte for byte, but for the order of hints.
func sameJSON(got json.RawMessage, want string) bool {
	split := func(def string) (before string, hints []string) {
		before, after, _ := strings.Cut(def, `"annotations":{`)
		hints = strings.Split(strings.Trim(after, "}"), ",")
		slices.Sort(hints)
		return before, hints
	}
	gotDef, gotHints := split(string(got))
	wantDef, wantHints := split(want)
	return gotDef == wantDef && slices.Equal(gotHints, wantHints)
}

func TestAnnotationsMayNotPromiseMoreThanTheCalls(t *testing.T) {
	env, _ := envOf(upstreamTool(t, "a.deletes", `{}`, echo))
	source := `f = tool(lambda ctx: None, description="d", calls=[%q], annotations={"readOnlyHint": True, "title": "T"})`
	for calls, want := range map[string]string{
		"a.deletes":     "its annotations promise more than the tools it calls: readOnlyHint (clients get the annotations of those tools)",
		"a.delets":      `unknown tool "a.delets" (did you mean "a.deletes"?)`,
		"absent.search": "its server has not been listed",
	} {
		tools, problems := customs(Settings{Name: "smart", Customs: []Custom{{Module: moduleOf(t, fmt.Sprintf(source, calls)), Function: "f", Name: "other"}}}, env, nil, map[string]Place{})
		wantProblems(t, problems, want)
		if len(tools) != 1 || tools[0].Name != "other" || tools[0].Def.Annotations.ReadOnly || !tools[0].Def.Annotations.Destructive || tools[0].Def.Title != "T" {
			t.Errorf("%s: tools %+v", calls, tools)
		}
	}
}

func TestWhatACustomToolReturnsIsItsResult(t *testing.T) {
	env, _ := envOf(upstreamTool(t, "a.echo", `{}`, echo), upstreamTool(t, "a.fails", `{}`, failing))
	for _, test := range []struct{ name, source, want string }{
		{"an object", `f = lambda ctx: {"b": 1, "a": 9007199254740993, "c": 1.0}`,
			`{"content":[{"type":"text","text":"{\"b\":1,\"a\":9007199254740993,\"c\":1.0}"}],"structuredContent":{"b":1,"a":9007199254740993,"c":1.0}}`},
		{"text", `f = lambda ctx: "a <b>"`, `{"content":[{"type":"text","text":"a <b>"}],"structuredContent":{"result":"a <b>"}}`},
		{"a list", `f = lambda ctx: [1, None]`, `{"content":[{"type":"text","text":"[1,null]"}],"structuredContent":{"result":[1,null]}}`},
		{"nothing", `f = lambda ctx: None`, `{"content":[{"type":"text","text":"done"}]}`},
		{"refused", `f = lambda ctx: abort("not on Sundays")`, `{"content":[{"type":"text","text":"not on Sundays"}],"isError":true}`},
		{"of another tool", `f = lambda ctx: ctx.call_tool("a.echo", q=12345678901234567890)["q"]`,
			`{"content":[{"type":"text","text":"12345678901234567890"}],"structuredContent":{"result":12345678901234567890}}`},
		{"of tools at once", `f = lambda ctx: ctx.parallel([{"tool": "a.echo", "args": {"n": 1}}, {"tool": "a.fails", "args": {}}])`,
			`{"content":[{"type":"text","text":"[{\"result\":{\"n\":1}},{\"error\":\"no such repository\"}]"}],` +
				`"structuredContent":{"result":[{"result":{"n":1}},{"error":"no such repository"}]}}`},
		{"of a search", `f = lambda ctx: ctx.retrieve("crash", limit=2)[0]`,
			`{"content":[{"type":"text","text":"{\"name\":\"crash\",\"limit\":2}"}],"structuredContent":{"name":"crash","limit":2}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			result := mustCall(t, customOf(t, env, nil, test.source).Handler, &tool.Call{Name: "f"})
			if string(result) != test.want {
				t.Errorf("\n got %s\nwant %s", result, test.want)
			}
		})
	}
}

func TestWhatGoesWrongInACustomToolIsToldWithItsLine(t *testing.T) {
	env, log := envOf(upstreamTool(t, "a.fails", `{}`, failing), upstreamTool(t, "a.echo", `{}`, echo))
	for _, test := range []struct {
		source string
		want   []string
	}{
		{"def f(ctx):\n    return ctx.call_tool(\"a.fails\")", []string{"module.star:2", "no such repository"}},
		{"def f(ctx):\n    return ctx.call_tool(\"a.ecko\")", []string{"module.star:2", `unknown tool "a.ecko"`}},
		{"def g(ctx):\n    return ctx.call_tool(\"a.echo\")\nf = tool(g, description=\"d\", calls=[\"a.fails\"])", []string{"module.star:2", `"a.echo" is not among the calls that the tool declares`}},
		{"def f(ctx):\n    return 1 // 0", []string{"module.star:2", "division by zero"}},
		{"f = tool(lambda ctx: {\"n\": \"x\"}, description=\"d\", output_schema={\"type\": \"object\", \"properties\": {\"n\": {\"type\": \"integer\"}}})",
			[]string{"does not fit its output schema", "/n: got string, want integer"}},
		{"f = tool(lambda ctx: None, description=\"d\", output_schema={\"type\": \"object\", \"required\": [\"n\"]})", []string{"missing property 'n'"}},
	} {
		result := mustCall(t, customOf(t, env, nil, test.source).Handler, &tool.Call{Name: "f"})
		for _, want := range test.want {
			if !result.Failed() || !strings.Contains(said(result), want) {
				t.Errorf("%s\nanswers %s, want %q in it", test.source, result, want)
			}
		}
	}
	if !strings.Contains(log.String(), "custom tool failed") {
		t.Errorf("log %q", log)
	}
}

func TestArgumentsOfACustomToolAreChecked(t *testing.T) {
	env, _ := envOf()
	made := customOf(t, env, nil, `f = tool(lambda ctx, query, limit: [query, limit], description="d",
    parameters={"query": {"type": "string", "required": True}, "limit": {"type": "integer", "default": 3}})`)
	for arguments, want := range map[string]string{
		`{"query":"x"}`:           `["x",3]`,
		`{"query":"x","limit":7}`: `["x",7]`,
		`{"limit":7}`:             "missing property 'query'",
		`{"query":7}`:             "/query: got number, want string",
		`{"query":"x","q":1}`:     "additional properties 'q' not allowed",
	} {
		if got := said(mustCall(t, made.Handler, &tool.Call{Arguments: json.RawMessage(arguments)})); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %q in it", arguments, got, want)
		}
	}
}

func TestACustomToolIsBounded(t *testing.T) {
	env, _ := envOf(upstreamTool(t, "a.echo", `{}`, echo))
	for name, test := range map[string]struct {
		source string
		limits ScriptLimits
	}{
		"calls":  {"def f(ctx):\n    for i in range(3):\n        ctx.call_tool('a.echo')", ScriptLimits{Calls: 2}},
		"steps":  {"def f(ctx):\n    for i in range(100000):\n        pass", ScriptLimits{Steps: 1000}},
		"output": {"def f(ctx):\n    return 'x' * 2000", ScriptLimits{Output: 1000}},
	} {
		tools, problems := customs(Settings{Name: "smart", Customs: []Custom{{Module: moduleOf(t, test.source), Function: "f", Limits: test.limits}}}, env, nil, map[string]Place{})
		result := mustCall(t, onlyTool(t, tools, problems).Handler, &tool.Call{})
		if !result.Failed() {
			t.Errorf("%s: %s", name, result)
		}
	}
}

func TestCallsOfACustomToolGoThroughTheHooks(t *testing.T) {
	env, _ := envOf(upstreamTool(t, "a.echo", `{}`, echo))
	h, _ := newHooks(Settings{Name: "smart", Hooks: Hooks{Pre: []PreCall{
		func(_ context.Context, info *script.Info, arguments json.RawMessage) (json.RawMessage, error) {
			return fmt.Appendf(nil, `{"name":%q,"upstream":%q}`, info.Name, info.Upstream), nil
		},
	}}}, env)
	made := customOf(t, env, h, `f = lambda ctx, name="", upstream="": [name, upstream, ctx.call_tool("a.echo")]`)
	const want = `["f","",{"name":"a.echo","upstream":"a"}]`
	if got := said(mustCall(t, h.around(made), &tool.Call{Name: "f"})); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestACancelledCustomToolEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	env, log := envOf(upstreamTool(t, "a.waits", `{}`, func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		cancel()
		return waiting(ctx, call)
	}))
	_, err := customOf(t, env, nil, `f = lambda ctx: ctx.call_tool("a.waits")`).Handler(ctx, &tool.Call{})
	if !errors.Is(err, context.Canceled) || log.String() != "" {
		t.Errorf("error %v, log %q", err, log)
	}
}

func TestProgressOfACustomToolCountsItsCalls(t *testing.T) {
	env, _ := envOf(upstreamTool(t, "a.echo", `{}`, echo))
	made := customOf(t, env, nil, "def f(ctx):\n    ctx.call_tool('a.echo')\n    ctx.call_tool('a.echo')")
	var mu sync.Mutex // guards got
	var got []string
	mustCall(t, made.Handler, &tool.Call{Params: json.RawMessage(`{"_meta":{"progressToken":"p"}}`), Notify: func(_ string, params json.RawMessage) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, string(params))
	}})
	want := []string{`{"progressToken":"p","progress":1,"message":"a.echo: done"}`, `{"progressToken":"p","progress":2,"message":"a.echo: done"}`}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestACustomToolThatCannotBeLoadedIsLeftOut(t *testing.T) {
	env, _ := envOf()
	for source, want := range map[string]string{
		"def g(ctx): pass":   "g", // the nearest
		"def f(ctx)\n  pass": "module.star:",
		"f = tool(lambda ctx, q: q, description='d', parameters={'q': {'type': 'strng'}})": "it is no JSON Schema: /properties/q/type",
	} {
		tools, problems := customs(Settings{Name: "smart", Customs: []Custom{{Module: moduleOf(t, source), Function: "f", At: Place{Line: 4}}}}, env, nil, map[string]Place{})
		wantProblems(t, problems, want)
		if len(tools) > 0 || problems[0].At.Line != 4 {
			t.Errorf("%d tools, at %v", len(tools), problems[0].At)
		}
	}
}
