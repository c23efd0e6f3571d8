package view

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/view/script"
)

func TestInputsTakeTheirPlacesInArguments(t *testing.T) {
	inputs := json.RawMessage(`{"text":"a \"b\" <c>","n":12345678901234567890,"o":{"b":1.0,"a":[]}}`)
	for _, test := range []struct{ args, want string }{
		{`{"a":1,"b":"plain"}`, `{"a":1,"b":"plain"}`},
		{`{"a":"{inputs.text}"}`, `{"a":"a \"b\" <c>"}`},
		{`{"a":"{inputs.n}"}`, `{"a":12345678901234567890}`},
		{`{"a":"{inputs.o}","z":[{"x":"{inputs.o}"}]}`, `{"a":{"b":1.0,"a":[]},"z":[{"x":{"b":1.0,"a":[]}}]}`},
		{`{"a":"n={inputs.n}, t={inputs.text}"}`, `{"a":"n=12345678901234567890, t=a \"b\" <c>"}`},
		{`{"a":"o={inputs.o}"}`, `{"a":"o={\"b\":1.0,\"a\":[]}"}`},
		{`{"a":"{{inputs.n}} {{}}"}`, `{"a":"{inputs.n} {}"}`},
		{`{"a":"{{{inputs.n}}}"}`, `{"a":"{12345678901234567890}"}`},
		{`{"a":["{{"]}`, `{"a":["{"]}`},
		{`{"a":"{inputs.missing}","b":1}`, `{"b":1}`},
		{`{"a":["x","{inputs.missing}","y"]}`, `{"a":["x","y"]}`},
		{`{"a":"<{inputs.missing}>"}`, `{"a":"<>"}`},
		{`{"{inputs.n}":"names are no places"}`, `{"{inputs.n}":"names are no places"}`},
		{`{}`, `{}`},
	} {
		got, err := fillIn(json.RawMessage(test.args), func(place string) (json.RawMessage, error) {
			return rawjson.Member(inputs, strings.TrimPrefix(place, "inputs.")), nil
		})
		if err != nil || string(got) != test.want {
			t.Errorf("%s\n got %s, %v\nwant %s", test.args, got, err, test.want)
		}
	}
}

func TestMistakesInPlacesAreTold(t *testing.T) {
	for args, want := range map[string]string{
		`{"a":{"b":"{inputs.qery}"}}`: `step s: args: a: b: unknown input "qery" (did you mean "query"?)`,
		`{"a":"{query}"}`:             `a: {query} is no input: write {inputs.name} for an input`,
		`{"a":"{inputs.query"}`:       `a { is not closed in "{inputs.query": write {{ for a brace`,
		`{"a":["x}"]}`:                `a } closes nothing in "x}": write }} for a brace`,
	} {
		s := everywhere(Step{Key: "s", Tool: "x.y", Args: []byte(args)})
		if _, problems := newComposite(s, s.Composites[0], Env{}, nil); len(problems) != 1 || !strings.Contains(problems[0].Message, want) {
			t.Errorf("%s: problems %v, want %q in one", args, problems, want)
		}
	}
}

func everywhere(steps ...Step) Settings {
	return Settings{Name: "unified", Composites: []Composite{{
		Name: "search_everywhere", Description: "Search all sources in parallel",
		Inputs: []Input{
			{Name: "query", Required: true, Schema: []byte(`{"type":"string","description":"What to look for"}`)},
			{Name: "limit", Schema: []byte(`{"type":"integer","default":5}`)},
		},
		Steps: steps,
	}}}
}

func onlyTool(t testing.TB, tools []*tool.Tool, problems []Problem) *tool.Tool {
	t.Helper()
	if len(tools) != 1 || len(problems) > 0 {
		t.Fatalf("%d tools, problems %q", len(tools), problems)
	}
	return tools[0]
}

// answerOf is what the only composite tool of a view answers.
func answerOf(t testing.TB, s Settings, env Env) tool.Result {
	t.Helper()
	tools, problems := composites(s, env, nil)
	return mustCall(t, onlyTool(t, tools, problems).Handler, &tool.Call{Arguments: json.RawMessage(`{"query":"x"}`)})
}

func TestACompositeAnswersByStep(t *testing.T) {
	env, _ := envOf(
		upstreamTool(t, "kb.search", `{"readOnlyHint":true}`, echo),
		upstreamTool(t, "github.search_code", `{"readOnlyHint":true}`, func(context.Context, *tool.Call) (tool.Result, error) {
			return tool.TextResult("main.go"), nil
		}),
		upstreamTool(t, "notes.search", `{"readOnlyHint":true}`, failing),
		upstreamTool(t, "dead.search", `{"readOnlyHint":true}`, func(context.Context, *tool.Call) (tool.Result, error) {
			return nil, errors.New("upstream dead: connect: refused")
		}),
	)
	s := everywhere(
		Step{Key: "knowledge", Tool: "kb.search", Args: []byte(`{"text":"{inputs.query}","k":"{inputs.limit}"}`)},
		Step{Key: "code", Tool: "github.search_code", Args: []byte(`{"query":"{inputs.query}"}`)},
		Step{Key: "notes", Tool: "notes.search"},
		Step{Key: "dead", Tool: "dead.search"},
	)
	tools, problems := composites(s, env, nil)
	made := onlyTool(t, tools, problems)
	const definition = `{"name":"search_everywhere","description":"Search all sources in parallel",` +
		`"inputSchema":{"type":"object","properties":{"query":{"type":"string","description":"What to look for"},"limit":{"type":"integer","default":5}},` +
		`"required":["query"],"additionalProperties":false},` +
		`"annotations":{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":true}}`
	if string(made.Def.Raw) != definition {
		t.Errorf("definition\n got %s\nwant %s", made.Def.Raw, definition)
	}
	if made.Name != "search_everywhere" || made.Def.ID.Server != "unified" {
		t.Errorf("name %q, ID %s", made.Name, made.Def.ID)
	}

	result := mustCall(t, made.Handler, &tool.Call{Name: made.Name, Arguments: json.RawMessage(`{"query":"redis"}`)})
	const want = `{"knowledge":{"text":"redis","k":5},"code":"main.go","notes":{"error":"no such repository"},"dead":{"error":"upstream dead: connect: refused"}}`
	if string(result.Value()) != want || said(result) != want || result.Failed() {
		t.Errorf("result %s\nwant %s, twice, not failed", result, want)
	}
	for arguments, want := range map[string]string{
		`{}`:                        "missing property 'query'",
		`{"query":1}`:               "/query: got number, want string",
		`{"query":"x","limt":1}`:    "additional properties 'limt' not allowed",
		`{"query":"x","limit":2.5}`: "/limit:",
		`[]`:                        "the arguments are not an object",
	} {
		result := mustCall(t, made.Handler, &tool.Call{Arguments: json.RawMessage(arguments)})
		if !result.Failed() || !strings.Contains(said(result), want) {
			t.Errorf("%s: %s, want %q in it", arguments, said(result), want)
		}
	}
}

func TestACompositeFailsWhenAllStepsDo(t *testing.T) {
	env, _ := envOf(upstreamTool(t, "a.t", `{}`, failing))
	result := answerOf(t, everywhere(Step{Key: "one", Tool: "a.t"}, Step{Key: "two", Tool: "a.t"}), env)
	if want := `{"one":{"error":"no such repository"},"two":{"error":"no such repository"}}`; !result.Failed() || string(result.Value()) != want {
		t.Errorf("%s", result)
	}
}

func TestAStepCannotAskOrTakeItsTime(t *testing.T) {
	env, _ := envOf(upstreamTool(t, "a.asks", `{}`, func(context.Context, *tool.Call) (tool.Result, error) {
		return tool.Result(`{"resultType":"input_required","requests":{}}`), nil
	}))
	result := answerOf(t, everywhere(Step{Key: "one", Tool: "a.asks"}), env)
	if !result.Failed() || !strings.Contains(said(result), "it answered with a question or a task") {
		t.Errorf("%s", result)
	}
}

func waiting(ctx context.Context, _ *tool.Call) (tool.Result, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestTheFirstFailureIsFatalWhereItIsToBe(t *testing.T) {
	env, _ := envOf(upstreamTool(t, "a.waits", `{}`, waiting), upstreamTool(t, "a.fails", `{}`, failing))
	s := everywhere(Step{Key: "slow", Tool: "a.waits"}, Step{Key: "bad", Tool: "a.fails"}, Step{Key: "slow too", Tool: "a.waits"})
	s.Composites[0].FailFast = true
	result := answerOf(t, s, env)
	if !result.Failed() || said(result) != "step bad failed: no such repository" {
		t.Errorf("%s", result)
	}
}

func TestEveryStepHasItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env, _ := envOf(upstreamTool(t, "a.waits", `{}`, waiting), upstreamTool(t, "a.echoes", `{}`, echo))
		s := everywhere(Step{Key: "slow", Tool: "a.waits", Timeout: 20 * time.Millisecond}, Step{Key: "good", Tool: "a.echoes"})
		result := answerOf(t, s, env)
		if want := `{"slow":{"error":"no answer within 20ms"},"good":{}}`; string(result.Value()) != want {
			t.Errorf("%s, want %s", result.Value(), want)
		}
	})
}

func TestACancelledCompositeLeavesNoStepBehind(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var running atomic.Int32
	env, _ := envOf(upstreamTool(t, "a.waits", `{}`, func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		defer running.Add(-1)
		if running.Add(1) == 2 {
			cancel()
		}
		return waiting(ctx, call)
	}))
	tools, problems := composites(everywhere(Step{Key: "1", Tool: "a.waits"}, Step{Key: "2", Tool: "a.waits"}), env, nil)
	_, err := onlyTool(t, tools, problems).Handler(ctx, &tool.Call{Arguments: json.RawMessage(`{"query":"x"}`)})
	if !errors.Is(err, context.Canceled) || running.Load() != 0 {
		t.Errorf("error %v, %d steps still run", err, running.Load())
	}
}

func TestStepsRunAtOnceUpToABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int32
		env, _ := envOf(upstreamTool(t, "a.t", `{}`, func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			defer running.Add(-1)
			running.Add(1)
			time.Sleep(time.Second) // passes when all that can run do
			if n := running.Load(); n != 3 {
				t.Errorf("%d steps at a time, want 3", n)
			}
			time.Sleep(time.Second)
			return echo(ctx, call)
		}))
		var steps []Step
		for i := range 9 {
			steps = append(steps, Step{Key: fmt.Sprint(i), Tool: "a.t"})
		}
		s := everywhere(steps...)
		s.Composites[0].Concurrency = 3
		answerOf(t, s, env)
	})
}

func TestProgressOfStepsIsOneCount(t *testing.T) {
	report := func(call *tool.Call, params string) {
		call.Notify("notifications/progress", json.RawMessage(params))
	}
	first := make(chan struct{})
	env, _ := envOf(
		upstreamTool(t, "a.first", `{}`, func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			defer close(first)
			report(call, `{"progressToken":7,"progress":50,"total":100,"message":"half"}`)
			report(call, `{"progressToken":7,"progress":25,"total":100,"message":"back"}`)
			report(call, `{"progressToken":7,"progress":50.01,"total":100,"message":"too little to tell"}`)
			report(call, `{"progressToken":7,"progress":99}`)
			call.Notify("notifications/message", json.RawMessage(`{"level":"info","data":"hello"}`))
			return echo(ctx, call)
		}),
		upstreamTool(t, "a.second", `{}`, func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			<-first
			return failing(ctx, call)
		}),
	)
	s := everywhere(Step{Key: "one", Tool: "a.first"}, Step{Key: "two", Tool: "a.second"})
	s.Composites[0].Concurrency = 1
	tools, problems := composites(s, env, nil)
	var mu sync.Mutex // guards got
	var got []string
	mustCall(t, onlyTool(t, tools, problems).Handler, &tool.Call{
		Arguments: json.RawMessage(`{"query":"x"}`), Params: json.RawMessage(`{"_meta":{"progressToken":7}}`),
		Notify: func(method string, params json.RawMessage) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, method+" "+string(params))
		},
	})
	want := []string{
		`notifications/progress {"progressToken":7,"progress":0.5,"total":2,"message":"one: half"}`,
		`notifications/message {"level":"info","data":"hello"}`,
		`notifications/progress {"progressToken":7,"progress":1,"total":2,"message":"one: done"}`,
		`notifications/progress {"progressToken":7,"progress":2,"total":2,"message":"two: failed"}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("notifications\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestStepsGoThroughTheHooksOfTheView(t *testing.T) {
	env, _ := envOf(upstreamTool(t, "kb.search", `{}`, echo))
	s := everywhere(Step{Key: "knowledge", Tool: "kb.search"})
	s.Hooks.Pre = []PreCall{func(_ context.Context, info *script.Info, arguments json.RawMessage) (json.RawMessage, error) {
		return fmt.Appendf(nil, `{"name":%q,"tool":%q,"upstream":%q,"session":%q}`, info.Name, info.Tool, info.Upstream, info.Session), nil
	}}
	h, problems := newHooks(s, env)
	wantProblems(t, problems)
	tools, problems := composites(s, env, h)
	result := mustCall(t, onlyTool(t, tools, problems).Handler, &tool.Call{Session: "s1", Arguments: json.RawMessage(`{"query":"x"}`)})
	if want := `{"knowledge":{"name":"kb.search","tool":"search","upstream":"kb","session":"s1"}}`; string(result.Value()) != want {
		t.Errorf("%s, want %s", result.Value(), want)
	}
	// Around the composite itself they see a tool without an upstream.
	if got := mustCall(t, h.around(tools[0]), &tool.Call{Name: "search_everywhere"}); !strings.Contains(said(got), "name") || !got.Failed() {
		t.Errorf("%s: the composite was not called with what the hook returned", got)
	}
}

func TestAStepWhoseToolIsNotThere(t *testing.T) {
	late := upstreamTool(t, "absent.search", `{"readOnlyHint":true}`, echo)
	env, _ := envOf(upstreamTool(t, "github.search_code", `{"readOnlyHint":true}`, echo))
	var there atomic.Bool
	find := env.Find
	env.Find = func(id string) (*tool.Tool, bool) {
		if id == "absent.search" && there.Load() {
			return late, true
		}
		return find(id)
	}
	s := everywhere(
		Step{Key: "a", Tool: "github.serch_code", At: Place{Line: 7, Column: 3}},
		Step{Key: "b", Tool: "absent.search"},
		Step{Key: "c", Tool: "github.search_code"},
	)
	tools, problems := composites(s, env, nil)
	wantProblems(t, problems,
		`view "unified": composite tool search_everywhere: unknown tool "github.serch_code" (did you mean "github.search_code"?)`,
		`"absent.search" is not known: its server has not been listed`)
	if problems[0].Warning || !problems[1].Warning || problems[0].At.Line != 7 {
		t.Errorf("problems %+v", problems)
	}
	if a := tools[0].Def.Annotations; a.ReadOnly || !a.Destructive {
		t.Errorf("annotations %+v: what is not known may destroy", a)
	}
	call := &tool.Call{Arguments: json.RawMessage(`{"query":"x"}`)}
	const missing = `"a":{"error":"unknown tool \"github.serch_code\""}`
	if got, want := mustCall(t, tools[0].Handler, call).Value(), `{`+missing+`,"b":{"error":"the tool \"absent.search\" is not known: its server has not been listed, or is disabled, or the tool is hidden"},"c":{}}`; string(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
	there.Store(true)
	if got, want := mustCall(t, tools[0].Handler, call).Value(), `{`+missing+`,"b":{},"c":{}}`; string(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A step may name a tool as the view does. Hooks and the server see the same call as
// with server.tool, and a name of the view's own tool is never another's.
func TestAStepNamesAToolAsTheViewDoes(t *testing.T) {
	var called []string
	a := upstreamTool(t, "s.a", `{}`, func(_ context.Context, call *tool.Call) (tool.Result, error) {
		called = append(called, call.Name)
		return tool.TextResult("ok"), nil
	})
	env, _ := envOf(a)
	find := env.Find
	env.Find = func(name string) (*tool.Tool, bool) { // as the caller knows its names
		if name == "s:a" || name == "s_a" || name == "own" {
			name = "s.a"
		}
		return find(name)
	}
	step := func(key, name string) Step { return Step{Key: key, Tool: name} }
	s := Settings{
		Name:       "v",
		Tools:      []UpstreamTools{{Name: "s", Tools: []Override{{Tool: "a", Name: "mine"}}}},
		Composites: []Composite{{Name: "own", Concurrency: 1, Steps: []Step{step("1", "s.a"), step("2", "s:a"), step("3", "s_a"), step("4", "mine"), step("5", "own")}}},
	}
	v, problems := Compile(s, []Upstream{{Server: "s", Listed: true, Tools: []*tool.Tool{a}}}, env)
	if len(problems) != 1 || !strings.Contains(problems[0].Message, `"own" is a composite or custom tool of the view`) {
		t.Fatalf("problems: %v", problems)
	}
	result, err := v.Own[0].Handler(t.Context(), &tool.Call{Name: "own"})
	if err != nil || !slices.Equal(called, []string{"s.a", "s.a", "s.a", "s.a"}) {
		t.Errorf("called %q: %s, %v", called, result, err)
	}
}

// Composite and custom tools call tools of servers. Whoever names one of the view's
// own is told so, and not that a server is missing.
func TestOwnToolsAreNotSteps(t *testing.T) {
	for _, name := range []string{"other", "unified.other"} {
		s := everywhere(Step{Key: "a", Tool: name, At: Place{Line: 7, Column: 3}})
		s.Composites = append(s.Composites, Composite{Name: "other", Steps: []Step{{Key: "b", Tool: "github.search_code"}}})
		env, _ := envOf(upstreamTool(t, "github.search_code", `{}`, echo))
		v, problems := Compile(s, nil, env)
		if len(problems) == 0 || problems[0].Warning || !strings.Contains(problems[0].Message, "is a composite or custom tool of the view") {
			t.Errorf("%s: problems %+v", name, problems)
		}
		got := mustCall(t, v.Own[0].Handler, &tool.Call{Arguments: json.RawMessage(`{"query":"x"}`)})
		if !strings.Contains(string(got), "is a composite or custom tool of the view") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestACompositeWithAMistakeIsLeftOut(t *testing.T) {
	env, _ := envOf(upstreamTool(t, "a.t", `{}`, echo))
	for _, test := range []struct {
		name   string
		change func(*Composite)
		want   string
	}{
		{"a place for no input", func(c *Composite) { c.Steps[0].Args = []byte(`{"q":"{inputs.quer}"}`) }, `step one: args: q: unknown input "quer" (did you mean "query"?)`},
		{"arguments that are no object", func(c *Composite) { c.Steps[0].Args = []byte(`[1]`) }, `step one: args is not an object`},
		{"no steps", func(c *Composite) { c.Steps = nil }, `it has no steps`},
		{"a schema that is none", func(c *Composite) { c.Inputs[0].Schema = []byte(`{"type":"strng"}`) }, `inputs: it is no JSON Schema: /properties/query/type`},
		{"a schema elsewhere", func(c *Composite) { c.Inputs[0].Schema = []byte(`{"$ref":"file:///etc/passwd"}`) }, `is not followed`},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := everywhere(Step{Key: "one", Tool: "a.t"})
			test.change(&s.Composites[0])
			tools, problems := composites(s, env, nil)
			wantProblems(t, problems, test.want)
			if len(tools) > 0 {
				t.Error("the tool is there")
			}
		})
	}
}

func TestCompositesCannotCallEachOtherForEver(t *testing.T) {
	env, _ := envOf(upstreamTool(t, "a.t", `{}`, echo))
	tools, problems := composites(everywhere(Step{Key: "one", Tool: "a.t"}), env, nil)
	result := mustCall(t, onlyTool(t, tools, problems).Handler, &tool.Call{Depth: tool.MaxDepth, Arguments: json.RawMessage(`{"query":"x"}`)})
	if !result.Failed() || !strings.Contains(said(result), tool.ErrTooDeep.Error()) {
		t.Errorf("%s", result)
	}
}

func TestAStepIsWarnedOfAnArgumentThatItsToolDoesNotTellOf(t *testing.T) {
	known := withSchema(t, `{"properties":{"query":{},"limit":{}}}`)
	env := Env{
		Find:    func(id string) (*tool.Tool, bool) { return known, id == "s.a" },
		Nearest: func(string, int) []string { return nil },
	}
	at := Place{4, 2}
	s := Settings{Name: "v", Composites: []Composite{{Name: "c", Steps: []Step{
		{Key: "good", Tool: "s.a", Args: []byte(`{"query":"x"}`)},
		{Key: "odd", Tool: "s.a", At: at, Args: []byte(`{"limit":1,"querry":"x"}`)},
	}}}}
	tools, problems := composites(s, env, nil)
	want := Problem{
		View: "v", At: at, Warning: true, Hint: `did you mean "query"?`,
		Message: `composite tool c: step odd: the tool s.a does not tell of an argument "querry"`,
	}
	if len(tools) != 1 || len(problems) != 1 || problems[0] != want {
		t.Errorf("%d tools, problems %+v, want %+v", len(tools), problems, want)
	}
}
