package view

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/tool"
	"toolfinch/view/script"
)

// hookCase is said by hooks of all kinds in one way: a body of a Starlark function,
// a shell line, a Go function before or after the call.
type hookCase struct {
	name      string
	star, cmd string
	before    PreCall
	after     PostCall
	lenient   bool
	want      string // what the call is answered with, as JSON
	called    string // the arguments that the tool got, "" when it was not called
	logs      string // must be in the log; "" for an empty one
}

const sentArguments = `{"path":"a","n":9007199254740993,"f":1.0}`

func TestBeforeACallHooksOfAllKindsSpeakOneContract(t *testing.T) {
	wrong := errors.New("open /srv/secret/list: no such file")
	for _, test := range []hookCase{
		{
			name: "nothing is changed", star: `return None`, cmd: `echo '{}'`,
			before: func(context.Context, *script.Info, json.RawMessage) (json.RawMessage, error) { return nil, nil },
			want:   `{"content":[],"structuredContent":` + sentArguments + `}`, called: sentArguments,
		},
		{
			name: "other arguments", star: `return dict(args, path="b")`, cmd: `echo '{"args":{"path":"b","n":9007199254740993,"f":1.0}}'`,
			before: func(_ context.Context, _ *script.Info, arguments json.RawMessage) (json.RawMessage, error) {
				return json.RawMessage(strings.Replace(string(arguments), `"a"`, `"b"`, 1)), nil
			},
			want:   `{"content":[],"structuredContent":{"path":"b","n":9007199254740993,"f":1.0}}`,
			called: `{"path":"b","n":9007199254740993,"f":1.0}`,
		},
		{
			name: "no arguments at all are an answer", star: `return {}`, cmd: `echo '{"args":{}}'`,
			before: func(context.Context, *script.Info, json.RawMessage) (json.RawMessage, error) {
				return json.RawMessage(`{}`), nil
			},
			want: `{"content":[],"structuredContent":{}}`, called: `{}`, logs: "hook removed all arguments",
		},
		{
			name: "refused", star: `abort("ask the owner")`, cmd: `echo '{"abort":"ask the owner"}'`,
			before: func(context.Context, *script.Info, json.RawMessage) (json.RawMessage, error) {
				return nil, &AbortError{Reason: "ask the owner"}
			},
			want: `{"content":[{"type":"text","text":"refused: ask the owner"}],"isError":true}`,
		},
		{
			name: "refused although failures are let through", star: `abort("no")`, cmd: `echo '{"abort":"no"}'`, lenient: true,
			want: `{"content":[{"type":"text","text":"refused: no"}],"isError":true}`,
		},
		{
			name: "no object", star: `return [1]`, cmd: `echo '{"args":[1]}'`,
			before: func(context.Context, *script.Info, json.RawMessage) (json.RawMessage, error) {
				return json.RawMessage(`[1]`), nil
			},
			want: `{"content":[{"type":"text","text":"hook pre_call of view \"v\" failed: the arguments it returned are not an object: [1]. The tool was not called."}],"isError":true}`,
			logs: "not an object",
		},
		{
			name: "failed", star: `fail("broken")`, cmd: `echo "in /srv/secret" >&2; exit 1`,
			before: func(context.Context, *script.Info, json.RawMessage) (json.RawMessage, error) { return nil, wrong },
			want:   `hook pre_call of view \"v\" failed: `, logs: "hook failed",
		},
		{
			name: "failed and let through", star: `fail("broken")`, cmd: `exit 1`, lenient: true,
			want: `{"content":[],"structuredContent":` + sentArguments + `}`, called: sentArguments, logs: "hook failed",
		},
	} {
		for kind, hooks := range map[string]Hooks{
			"starlark": {PreCall: &Hook{Module: moduleOf(t, "def hook(ctx, args):\n    "+test.star), Function: "hook", Continue: test.lenient}},
			"command":  {PreCall: &Hook{Command: []string{"sh", "-c", "cat >/dev/null; " + test.cmd}, Timeout: await.Bound, Continue: test.lenient}},
			"go":       {Pre: []PreCall{test.before}},
		} {
			if kind == "go" && test.before == nil {
				continue
			}
			t.Run(test.name+"/"+kind, func(t *testing.T) {
				called := ""
				of := upstreamTool(t, "s.t", `{}`, func(ctx context.Context, call *tool.Call) (tool.Result, error) {
					called = string(call.Arguments)
					return echo(ctx, call)
				})
				answer, log := throughHooks(t, hooks, of, &tool.Call{Name: "s_t", Arguments: json.RawMessage(sentArguments)})
				checkHooked(t, test, answer, log)
				if called != test.called {
					t.Errorf("the tool was called with %s, want %s", called, test.called)
				}
			})
		}
	}
}

func checkHooked(t *testing.T, test hookCase, answer tool.Result, log string) {
	t.Helper()
	if strings.HasPrefix(test.want, "{") && string(answer) != test.want || !strings.Contains(string(answer), test.want) {
		t.Errorf("answer\n got %s\nwant %s", answer, test.want)
	}
	if strings.Contains(string(answer), "/srv") || strings.Contains(string(answer), os.TempDir()) {
		t.Errorf("the answer tells a path: %s", answer)
	}
	if test.logs == "" && log != "" || !strings.Contains(log, test.logs) {
		t.Errorf("log %q, want %q", log, test.logs)
	}
}

// throughHooks calls a tool through the hooks of a view v.
func throughHooks(t *testing.T, hooks Hooks, of *tool.Tool, call *tool.Call) (tool.Result, string) {
	t.Helper()
	env, log := envOf(of)
	h, problems := newHooks(Settings{Name: "v", Hooks: hooks}, env)
	wantProblems(t, problems)
	return mustCall(t, h.around(of), call), log.String()
}

func TestAfterACallHooksOfAllKindsSpeakOneContract(t *testing.T) {
	const came = `{"content":[{"type":"text","text":"hi"}],"_meta":{"n":9007199254740993}}`
	for _, test := range []hookCase{
		{
			name: "nothing is changed", star: `return None`, cmd: `echo '{}'`,
			after: func(context.Context, *script.Info, json.RawMessage, tool.Result) (tool.Result, error) {
				return nil, nil
			},
			want: came,
		},
		{
			name: "null changes nothing", star: `return None`, cmd: `echo '{"result":null}'`, want: came,
		},
		{
			name: "another result", star: `return {"content": result["content"], "_meta": {"n": result["_meta"]["n"], "path": args["path"]}}`,
			cmd: `echo '{"result":{"content":[{"type":"text","text":"hi"}],"_meta":{"n":9007199254740993,"path":"a"}}}'`,
			after: func(_ context.Context, _ *script.Info, arguments json.RawMessage, result tool.Result) (tool.Result, error) {
				return tool.Result(strings.Replace(string(result), `}}`, `,"path":"a"}}`, 1)), nil
			},
			want: `{"content":[{"type":"text","text":"hi"}],"_meta":{"n":9007199254740993,"path":"a"}}`,
		},
		{
			name: "an empty result is an answer", star: `return {}`, cmd: `echo '{"result":{}}'`,
			after: func(context.Context, *script.Info, json.RawMessage, tool.Result) (tool.Result, error) {
				return tool.Result(`{}`), nil
			},
			want: `{"content":[]}`,
		},
		{
			name: "withheld", star: `abort("it names a person")`, cmd: `echo '{"abort":"it names a person"}'`,
			want: `{"content":[{"type":"text","text":"the tool was called, but its result is withheld: it names a person"}],"isError":true}`,
		},
		{
			name: "no object", star: `return "hi"`, cmd: `echo '{"result":"hi"}'`,
			want: `hook post_call of view \"v\" failed: the result it returned is not an object: \"hi\". The tool was called; its result is withheld.`,
			logs: "not an object",
		},
		{
			name: "a value", star: `return {"answer": 42}`, cmd: `echo '{"result":{"answer":42}}'`,
			want: `failed: the result it returned is not {\"content\": [...]}: {\"answer\":42}. The tool was called; its result is withheld.`, logs: "hook failed",
		},
		{
			name: "content that is text", star: `return {"content": "hi"}`, cmd: `echo '{"result":{"content":"hi"}}'`,
			want: `failed: the result it returned has a member \"content\" that is not a list of blocks: {\"content\":\"hi\"}. The tool was called`, logs: "hook failed",
		},
		{
			name: "content of what are no blocks", star: `return {"content": [{"type": "text", "text": "hi"}, {"type": "text", "text": 5}]}`,
			cmd:  `echo '{"result":{"content":[{"type":"text","text":"hi"},{"type":"text","text":5}]}}'`,
			want: `failed: the result it returned has a block in \"content\" that is none, number 2: {`, logs: "hook failed",
		},
		{
			name: "an error that is no boolean", star: `return {"content": [], "isError": "yes"}`, cmd: `echo '{"result":{"content":[],"isError":"yes"}}'`,
			want: `has a member \"isError\" that is not true or false: {`, logs: "hook failed",
		},
		{
			name: "blocks of all types", star: `return {"content": [{"type": "hologram"}, {"type": "resource", "resource": {"uri": "x:1", "text": ""}}], "other": 1}`,
			cmd:  `echo '{"result":{"content":[{"type":"hologram"},{"type":"resource","resource":{"uri":"x:1","text":""}}],"other":1}}'`,
			want: `{"content":[{"type":"hologram"},{"type":"resource","resource":{"uri":"x:1","text":""}}],"other":1}`,
		},
		{
			name: "failed and let through", star: `fail("broken")`, cmd: `exit 1`, lenient: true, want: came, logs: "hook failed",
		},
	} {
		for kind, hooks := range map[string]Hooks{
			"starlark": {PostCall: &Hook{Module: moduleOf(t, "def hook(ctx, args, result):\n    "+test.star), Function: "hook", Continue: test.lenient}},
			"command":  {PostCall: &Hook{Command: []string{"sh", "-c", "cat >/dev/null; " + test.cmd}, Timeout: await.Bound, Continue: test.lenient}},
			"go":       {Post: []PostCall{test.after}},
		} {
			if kind == "go" && test.after == nil {
				continue
			}
			t.Run(test.name+"/"+kind, func(t *testing.T) {
				of := upstreamTool(t, "s.t", `{}`, func(context.Context, *tool.Call) (tool.Result, error) { return tool.Result(came), nil })
				answer, log := throughHooks(t, hooks, of, &tool.Call{Name: "s_t", Arguments: json.RawMessage(sentArguments)})
				checkHooked(t, test, answer, log)
			})
		}
	}
}

// A hook that lets a call pass has seen what the server gets: of two members of one
// name, which JSON allows, everybody gets the last one alone.
func TestHooksAndServersSeeOneValuePerName(t *testing.T) {
	const seen = `{"path":"safe","in":{"x":2}}`
	var hooked, posted, called string
	hooks := Hooks{
		Pre: []PreCall{func(_ context.Context, _ *script.Info, arguments json.RawMessage) (json.RawMessage, error) {
			hooked = string(arguments)
			return nil, nil
		}},
		Post: []PostCall{func(_ context.Context, _ *script.Info, _ json.RawMessage, result tool.Result) (tool.Result, error) {
			posted = string(result)
			return nil, nil
		}},
	}
	of := upstreamTool(t, "s.t", `{}`, func(_ context.Context, call *tool.Call) (tool.Result, error) {
		called = string(call.Arguments)
		return tool.Result(`{"content":[{"type":"text","text":"secret"}],"content":[]}`), nil
	})
	answer, _ := throughHooks(t, hooks, of, &tool.Call{Name: "s_t", Arguments: json.RawMessage(`{"path":"/etc/passwd","p\u0061th":"evil","path":"safe","in":{"x":1,"x":2}}`)})
	if hooked != seen || called != seen {
		t.Errorf("the hook saw %s, the server %s, want %s", hooked, called, seen)
	}
	if want := `{"content":[]}`; posted != want || string(answer) != want {
		t.Errorf("the hook saw %s, the client %s, want %s", posted, answer, want)
	}
}

func TestWhatHooksAreToldOfACall(t *testing.T) {
	call := &tool.Call{
		Name: "notes_add", Session: "s1", Principal: "ada", Client: &tool.Client{Name: "agent 1.2"},
		Params: json.RawMessage(`{"name":"notes_add","_meta":{"trace":12345678901234567890}}`),
		Header: func(name string) string { return map[string]string{"X-Team": "red", "Authorization": "secret"}[name] },
	}
	const full = `{"view":"v","tool":"add","name":"notes_add","upstream":"notes","session":"s1","client":"agent 1.2","principal":"ada",` +
		`"headers":{"x-team":"red"},"meta":{"trace":12345678901234567890}}`
	const none = `{"view":"v","tool":"add","name":"notes_add","upstream":"notes","session":"","client":"","principal":null,"headers":{},"meta":{}}`
	const star = `
def pre_call(ctx, args):
    return {"event": "pre_call", "ctx": {"view": ctx.view, "tool": ctx.tool, "name": ctx.name, "upstream": ctx.upstream, "session": ctx.session,
        "client": ctx.client, "principal": ctx.principal, "headers": ctx.headers, "meta": ctx.meta}, "args": args}
`
	for kind, hook := range map[string]*Hook{
		"starlark": {Module: moduleOf(t, star), Function: "pre_call"},
		"command":  {Command: []string{"sh", "-c", `printf '{"args":%s}' "$(cat)"`}, Timeout: await.Bound},
	} {
		for want, call := range map[string]*tool.Call{full: call, none: {Name: "notes_add"}} {
			of := upstreamTool(t, "notes.add", `{}`, echo)
			env, _ := envOf(of)
			env.Headers = []string{"X-Team", "X-Absent"}
			h, problems := newHooks(Settings{Name: "v", Hooks: Hooks{PreCall: hook}}, env)
			wantProblems(t, problems)
			got := mustCall(t, h.around(of), call).Value()
			if want := `{"event":"pre_call","ctx":` + want + `,"args":{}}`; string(got) != want {
				t.Errorf("%s\n got %s\nwant %s", kind, got, want)
			}
		}
	}
}

// A Starlark hook that answers as a command does meant to refuse, or to change only the
// arguments: its call fails, also where failures let calls go on. What the tool takes, or
// the client sent, are arguments by whatever name.
func TestAStarlarkHookThatAnswersAsACommandIsRefused(t *testing.T) {
	def := must.Get(tool.ParseDef("s", []byte(`{"name":"t","inputSchema":{"type":"object","properties":{"args":{"type":"object"}}}}`)))(t)
	for _, test := range []struct {
		event, body, sent string
		known, refused    bool // the tool takes args; the call fails
	}{
		{preCall, `return dict(abort = "no")`, `{}`, false, true},
		{preCall, `return dict(abort = None, args = {})`, `{}`, false, true},
		{preCall, `return dict(args = {"p": 1})`, `{}`, false, true},
		{preCall, `return dict(args = {"p": 1})`, `{}`, true, false},
		{preCall, `return dict(args = "text")`, `{}`, false, false},
		{preCall, `return dict(abort = True)`, `{"abort":false}`, false, false},
		{preCall, `return dict(abort = "no", path = "/")`, `{}`, false, false},
		{preCall, `return {}`, `{}`, false, false},
		{postCall, `return dict(abort = "no")`, `{}`, false, true},
		{postCall, `return dict(result = result)`, `{}`, false, true},
		{postCall, `return result`, `{}`, false, false},
	} {
		for _, lenient := range []bool{false, true} {
			called := false
			of := upstreamTool(t, "s.t", `{}`, func(context.Context, *tool.Call) (tool.Result, error) {
				called = true
				return tool.TextResult("secret"), nil
			})
			if test.known {
				of.Def = def
			}
			hook := &Hook{Function: "hook", Continue: lenient}
			hooks := Hooks{PreCall: hook}
			hook.Module = moduleOf(t, "def hook(ctx, args):\n    "+test.body)
			if test.event == postCall {
				hooks = Hooks{PostCall: hook}
				hook.Module = moduleOf(t, "def hook(ctx, args, result):\n    "+test.body)
			}
			answer, _ := throughHooks(t, hooks, of, &tool.Call{Name: "s_t", Arguments: json.RawMessage(test.sent)})
			if answer.Failed() != test.refused || test.refused && (called != (test.event == postCall) || strings.Contains(string(answer), "secret") || !strings.Contains(string(answer), "which is how a command answers")) {
				t.Errorf("%s %s, continue %t: called %t, %s", test.event, test.body, lenient, called, answer)
			}
		}
	}
}

// Who returns no arguments where there were some is told so in the log.
func TestAHookThatRemovesAllArgumentsIsLogged(t *testing.T) {
	for _, test := range []struct {
		body, sent string
		told       bool
	}{
		{`return {}`, `{"a":1}`, true},
		{`return {}`, `{}`, false},
		{`return None`, `{"a":1}`, false},
		{`return {"b": 2}`, `{"a":1}`, false},
	} {
		hook := &Hook{Module: moduleOf(t, "def hook(ctx, args):\n    "+test.body), Function: "hook"}
		_, log := throughHooks(t, Hooks{PreCall: hook}, upstreamTool(t, "s.t", `{}`, echo), &tool.Call{Name: "s_t", Arguments: json.RawMessage(test.sent)})
		if got := strings.Contains(log, `msg="hook removed all arguments" view=v tool=s_t`); got != test.told {
			t.Errorf("%s of %s is logged: %t\n%s", test.body, test.sent, got, log)
		}
	}
}

func TestHooksRunInTheirOrder(t *testing.T) {
	add := func(to string) PreCall {
		return func(_ context.Context, _ *script.Info, arguments json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(strings.Replace(string(arguments), `"}`, to+`"}`, 1)), nil
		}
	}
	of := upstreamTool(t, "s.t", `{}`, func(_ context.Context, call *tool.Call) (tool.Result, error) {
		return tool.Result(`{"content":[],"x":"` + strings.Trim(string(call.Arguments), `{}":`) + `"}`), nil
	})
	answer, _ := throughHooks(t, Hooks{
		Pre:      []PreCall{add("1"), add("2")},
		PreCall:  &Hook{Module: moduleOf(t, `pre_call = lambda ctx, args: {"": args[""] + "3"}`), Function: "pre_call"},
		PostCall: &Hook{Module: moduleOf(t, `post_call = lambda ctx, args, result: {"content": [], "x": result["x"] + "4 of " + args[""]}`), Function: "post_call"},
		Post: []PostCall{func(_ context.Context, _ *script.Info, _ json.RawMessage, result tool.Result) (tool.Result, error) {
			return tool.Result(strings.Replace(string(result), "4", "45", 1)), nil
		}},
	}, of, &tool.Call{Arguments: json.RawMessage(`{"":"0"}`)})
	if want := `{"content":[],"x":"012345 of 0123"}`; string(answer) != want {
		t.Errorf("answer %s, want %s", answer, want)
	}
}

func TestWhatIsNoAnswerOfTheToolSkipsTheHooksAfterIt(t *testing.T) {
	dead := errors.New("upstream s: connect: refused")
	for name, handler := range map[string]tool.Handler{
		`{"resultType":"input_required","requests":{}}`: func(context.Context, *tool.Call) (tool.Result, error) {
			return tool.Result(`{"resultType":"input_required","requests":{}}`), nil
		},
		"": func(context.Context, *tool.Call) (tool.Result, error) { return nil, dead },
	} {
		of := upstreamTool(t, "s.t", `{}`, handler)
		env, _ := envOf(of)
		h, _ := newHooks(Settings{Name: "v", Hooks: Hooks{Post: []PostCall{
			func(context.Context, *script.Info, json.RawMessage, tool.Result) (tool.Result, error) {
				return tool.TextResult("seen"), nil
			},
		}}}, env)
		result, err := h.around(of)(t.Context(), &tool.Call{})
		if string(result) != name || name == "" && !errors.Is(err, dead) {
			t.Errorf("%s, %v", result, err)
		}
	}
}

func TestAToolsOwnErrorGoesThroughTheHooksAfterIt(t *testing.T) {
	answer, _ := throughHooks(t, Hooks{PostCall: &Hook{
		Module:   moduleOf(t, `post_call = lambda ctx, args, result: {"content": [], "was": result["isError"]}`),
		Function: "post_call",
	}}, upstreamTool(t, "s.t", `{}`, failing), &tool.Call{})
	if want := `{"content":[],"was":true}`; string(answer) != want {
		t.Errorf("answer %s, want %s", answer, want)
	}
}

func TestAHookThatCannotBeLoadedFailsEveryCall(t *testing.T) {
	of := upstreamTool(t, "s.t", `{}`, echo)
	for _, test := range []struct {
		name string
		hook Hook
		want string
	}{
		{"no such file", Hook{Module: filepath.Join(t.TempDir(), "absent.star"), Function: "f"}, "absent.star"},
		{"no such function", Hook{Module: moduleOf(t, "def pre_call(ctx, args): pass"), Function: "pre_cal"}, "pre_call"},
		{"a mistake in it", Hook{Module: moduleOf(t, "def pre_call(ctx, args):\n    return x"), Function: "pre_call"}, "module.star:2"},
		{"too few parameters", Hook{Module: moduleOf(t, "def f(ctx): pass"), Function: "f"}, "f does not take (ctx, args), which pre_call is called with"},
		{"too many parameters", Hook{Module: moduleOf(t, "def f(ctx, args, result): pass"), Function: "f"}, "f does not take (ctx, args)"},
		{"no such program", Hook{Command: []string{"./absent"}, Dir: t.TempDir()}, "absent"},
	} {
		t.Run(test.name, func(t *testing.T) {
			env, _ := envOf(of)
			test.hook.At = Place{Line: 9, Column: 5}
			h, problems := newHooks(Settings{Name: "v", Hooks: Hooks{PreCall: &test.hook}}, env)
			wantProblems(t, problems, test.want)
			if problems[0].At.Line != 9 {
				t.Errorf("at %v", problems[0].At)
			}
			answer := mustCall(t, h.around(of), &tool.Call{})
			if !answer.Failed() || strings.Contains(said(answer), os.TempDir()) {
				t.Errorf("answer %s", answer)
			}
		})
	}
}

func TestWhatACommandHookMayNotAnswer(t *testing.T) {
	for answer, want := range map[string]string{
		`{"arguments":{}}`: `it answered a member "arguments"; it can answer {}, {"args": {...}} or {"abort": "reason"}`,
		`{"result":{}}`:    `it answered a member "result"`,
		`{"abort":true}`:   `the "abort" it answered is not text`,
		`hello`:            "what it printed is not one JSON object",
	} {
		of := upstreamTool(t, "s.t", `{}`, echo)
		result, _ := throughHooks(t, Hooks{PreCall: &Hook{Command: []string{"echo", answer}, Timeout: await.Bound}}, of, &tool.Call{})
		if !result.Failed() || !strings.Contains(said(result), want) {
			t.Errorf("%s: %s, want %q in it", answer, said(result), want)
		}
	}
}

func TestHooksAreBoundedInTime(t *testing.T) {
	endless := moduleOf(t, "def f(ctx, args):\n    for i in range(1000):\n        json.encode([i] * 10000)")
	for _, test := range []struct {
		hook Hook
		want string
	}{
		{Hook{Module: endless, Function: "f", Timeout: time.Millisecond}, "limit reached: 1ms of time"},
		{Hook{Command: []string{"sleep", "300"}, Timeout: time.Millisecond}, "killed after 1ms"},
	} {
		result, _ := throughHooks(t, Hooks{PreCall: &test.hook}, upstreamTool(t, "s.t", `{}`, echo), &tool.Call{})
		if !result.Failed() || !strings.Contains(said(result), test.want) {
			t.Errorf("%s, want %q in it", said(result), test.want)
		}
	}
}

func TestACallThatWasGivenUpIsNoFailureOfItsHook(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	of := upstreamTool(t, "s.t", `{}`, echo)
	env, log := envOf(of)
	h, _ := newHooks(Settings{Name: "v", Hooks: Hooks{Pre: []PreCall{func(ctx context.Context, _ *script.Info, _ json.RawMessage) (json.RawMessage, error) {
		cancel()
		return nil, ctx.Err()
	}}}}, env)
	if _, err := h.around(of)(ctx, &tool.Call{}); !errors.Is(err, context.Canceled) || log.String() != "" {
		t.Errorf("error %v, log %q", err, log)
	}
}

func TestWhatHooksPrintGoesToTheLog(t *testing.T) {
	_, log := throughHooks(t, Hooks{PreCall: &Hook{Module: moduleOf(t, "def f(ctx, args):\n    print('seen', args)"), Function: "f"}},
		upstreamTool(t, "s.t", `{}`, echo), &tool.Call{Name: "s_t"})
	for _, want := range []string{"level=INFO", "view=v", "tool=s_t", "module.star:f", "seen {}"} {
		if !strings.Contains(log, want) {
			t.Errorf("log %q lacks %q", log, want)
		}
	}
}

// What poses as a question or a task and has content is an answer.
func TestNoResultWithContentPassesTheHooksAfterIt(t *testing.T) {
	for _, kind := range []string{"complete", "odd", "task", "input_required"} {
		for _, content := range []string{`"content":[{"type":"text","text":"secret"}]`, `"structuredContent":{"x":"secret"}`} {
			of := upstreamTool(t, "s.t", `{}`, func(context.Context, *tool.Call) (tool.Result, error) {
				return tool.Result(`{"resultType":"` + kind + `",` + content + `}`), nil
			})
			answer, _ := throughHooks(t, Hooks{Post: []PostCall{func(context.Context, *script.Info, json.RawMessage, tool.Result) (tool.Result, error) {
				return tool.TextResult("seen"), nil
			}}}, of, &tool.Call{})
			if said(answer) != "seen" {
				t.Errorf("%s, %s: %s", kind, content, answer)
			}
		}
	}
}

// The result of a task would pass the hooks by.
func TestBehindHooksAfterACallNoTaskIsMade(t *testing.T) {
	const declared = `{"roots":{"x":1.0},"extensions":{"io.modelcontextprotocol/tasks":{},"another":{"n":12345678901234567890}}}`
	pre := []PreCall{func(context.Context, *script.Info, json.RawMessage) (json.RawMessage, error) { return nil, nil }}
	post := []PostCall{func(context.Context, *script.Info, json.RawMessage, tool.Result) (tool.Result, error) {
		return nil, nil
	}}
	for want, hooks := range map[string]Hooks{
		declared: {Pre: pre},
		`{"roots":{"x":1.0},"extensions":{"another":{"n":12345678901234567890}}}`: {Pre: pre, Post: post},
	} {
		var told string
		of := upstreamTool(t, "s.t", `{}`, func(_ context.Context, call *tool.Call) (tool.Result, error) {
			told = string(call.Client.Capabilities)
			return tool.TextResult("done"), nil
		})
		call := &tool.Call{Client: &tool.Client{Modern: true, Capabilities: json.RawMessage(declared)}}
		throughHooks(t, hooks, of, call)
		if told != want {
			t.Errorf("the tool is called by a client that declares %s, want %s", told, want)
		}
		if got := string(call.Client.Capabilities); got != declared {
			t.Errorf("the caller's own call says now %s", got)
		}
	}
}

// Arguments of a command may be secrets.
func TestTheCommandLineOfAHookIsNotLogged(t *testing.T) {
	_, log := throughHooks(t, Hooks{PreCall: &Hook{Command: []string{"sh", "-c", "exit 1", "--token", "hunter2"}, Timeout: await.Bound}},
		upstreamTool(t, "s.t", `{}`, echo), &tool.Call{})
	if !strings.Contains(log, "hook=sh") || strings.Contains(log, "hunter2") {
		t.Errorf("log %s", log)
	}
}

// A step runs on a goroutine of its own, where nobody else would recover.
func TestAGoHookThatPanicsInAStepFailsThatStep(t *testing.T) {
	env, _ := envOf(upstreamTool(t, "a.bad", `{}`, echo), upstreamTool(t, "a.good", `{}`, echo))
	s := everywhere(Step{Key: "bad", Tool: "a.bad", Args: []byte(`{}`)}, Step{Key: "good", Tool: "a.good", Args: []byte(`{}`)})
	s.Hooks.Pre = []PreCall{func(_ context.Context, info *script.Info, _ json.RawMessage) (json.RawMessage, error) {
		if info.Tool == "bad" {
			panic("at the disco")
		}
		return nil, nil
	}}
	h, problems := newHooks(s, env)
	wantProblems(t, problems)
	tools, problems := composites(s, env, h)
	result := mustCall(t, onlyTool(t, tools, problems).Handler, &tool.Call{Arguments: json.RawMessage(`{"query":"x"}`)})
	if want := `{"bad":{"error":"a.bad: internal error"},"good":{}}`; string(result.Value()) != want {
		t.Errorf("%s, want %s", result, want)
	}
}

func TestWithoutHooksTheHandlerIsTheToolsOwn(t *testing.T) {
	env, _ := envOf()
	h, problems := newHooks(Settings{Name: "v"}, env)
	if h != nil || len(problems) > 0 {
		t.Fatalf("hooks %v, problems %q", h, problems)
	}
	of := upstreamTool(t, "s.t", `{}`, func(context.Context, *tool.Call) (tool.Result, error) { return tool.Result(`{}`), nil })
	handler, call := h.around(of), &tool.Call{}
	if n := testing.AllocsPerRun(100, func() { _, _ = handler(t.Context(), call) }); n > 1 { // the result
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkHooks(b *testing.B) {
	arguments := json.RawMessage(`{"text":"` + strings.Repeat("0123456789 ", 90) + `","n":7}`)
	answer := tool.Result(`{"content":[]}`)
	of := upstreamTool(b, "s.t", `{}`, func(context.Context, *tool.Call) (tool.Result, error) { return answer, nil })
	for _, bench := range []struct {
		name  string
		hooks Hooks
	}{
		{"none", Hooks{}},
		{"starlark", Hooks{PreCall: &Hook{Module: moduleOf(b, "def f(ctx, args):\n    args = dict(args)\n    args['user'] = ctx.principal\n    return args"), Function: "f"}}},
		{"go", Hooks{Pre: []PreCall{func(_ context.Context, _ *script.Info, arguments json.RawMessage) (json.RawMessage, error) {
			return arguments, nil
		}}}},
		{"command", Hooks{PreCall: &Hook{Command: []string{"echo", "{}"}}}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			env, _ := envOf(of)
			h, problems := newHooks(Settings{Name: "v", Hooks: bench.hooks}, env)
			if len(problems) > 0 {
				b.Fatal(problems)
			}
			handler := h.around(of)
			call := &tool.Call{Name: "s_t", Principal: "ada", Arguments: arguments}
			b.ReportAllocs()
			for b.Loop() {
				if result := mustCall(b, handler, call); len(result) != len(answer) {
					b.Fatalf("%s", result)
				}
			}
		})
	}
}
