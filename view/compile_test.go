package view

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"toolfinch/tool"
	"toolfinch/view/script"
)

func TestAViewSeesWhatStandsUnderTheServer(t *testing.T) {
	u := Upstream{Server: "s", Listed: true, Tools: []*tool.Tool{
		defined(t, tool.KindTool, "s", `{"name":"a","description":"Own.","inputSchema":{"properties":{"p":{"description":"P"},"q":{}},"required":["p"]}}`),
	}}
	base, problems := Base([]Upstream{u}, []UpstreamTools{{Name: "s", Tools: []Override{{
		Tool: "a", Name: "first", Description: text("Base: {original}"),
		Parameters: []Parameter{{Name: "p", Rename: "path", Description: text("Base: {original}")}, {Name: "q", Value: []byte(`1`)}},
	}}}})
	wantProblems(t, problems)
	v := compiled(t, Settings{Name: "v", Tools: []UpstreamTools{{Name: "s", Tools: []Override{{
		Tool: "a", Description: text("View: {original}"),
		Parameters: []Parameter{{Name: "path", Rename: "skill", Description: text("View: {original}")}},
	}}}}}, base...)
	a := v.Upstreams[0].Tools[0]
	const want = `{"name":"a","description":"View: Base: Own.","inputSchema":{"properties":{"skill":{"description":"View: Base: P"}},"required":["skill"]}}`
	if a.Name != "first" || string(a.Def.Raw) != want {
		t.Errorf("%s: %s\nwant %s", a.Name, a.Def.Raw, want)
	}
	for sent, want := range map[string]string{`{"skill":"x"}`: `{"p":"x","q":1}`, `{"path":2}`: refused, `{"skill":"x","p":1}`: refused, `{"skill":"x","q":3}`: refused} {
		if got := reached(t, a, sent); got != want {
			t.Errorf("arguments %s became %s, want %s", sent, got, want)
		}
	}
}

func TestAnotherNameGivenByTheViewWins(t *testing.T) {
	base, _ := Base([]Upstream{listed(t, "s", "a")}, []UpstreamTools{{Name: "s", Tools: []Override{{Tool: "a", Name: "base"}}}})
	v := compiled(t, Settings{Tools: []UpstreamTools{{Name: "s", Tools: []Override{{Tool: "a", Name: "view"}}}}}, base...)
	if got := v.Upstreams[0].Tools[0].Name; got != "view" {
		t.Errorf("named %q", got)
	}
}

func TestWhatAViewDoesNotChangeIsTheBaseItself(t *testing.T) {
	base := listed(t, "s", "a", "b")
	v := compiled(t, Settings{IncludeAll: true, Tools: []UpstreamTools{{Name: "s", Tools: []Override{{Tool: "*"}}}}}, base)
	if !slices.Equal(v.Upstreams[0].Tools, base.Tools) {
		t.Errorf("%v", v.Upstreams[0].Tools)
	}
}

func TestProblems(t *testing.T) {
	github := listed(t, "github", "search_code", "search_issues", "issue_get", "a", "b", "c")
	absent := Upstream{Server: "absent"}
	here, there, view := Place{4, 2}, Place{9, 5}, Place{1, 1}
	entry := func(overrides ...Override) Settings {
		return Settings{Tools: []UpstreamTools{{Name: "github", At: there, Tools: overrides}}}
	}
	for _, test := range []struct {
		name    string
		s       Settings
		at      Place
		warning bool
		want    string // of the problem
		left    string // in the view
	}{
		{"unknown tool", entry(Override{Tool: "serch_code", At: here}, Override{Tool: "issue_get"}), here, false,
			`view "v": server "github" has no tool "serch_code" (did you mean "search_code"?)`, "github.issue_get"},
		{"several are near", entry(Override{Tool: "search", At: here}), here, false,
			`view "v": server "github" has no tool "search" (did you mean "search_code" or "search_issues"?)`, ""},
		{"none is near", entry(Override{Tool: "weather_today", At: here}), here, false,
			`view "v": server "github" has no tool "weather_today" (there are search_code, search_issues, issue_get, a, b and 1 more)`, ""},
		{"a glob for nothing", entry(Override{Tool: "pr_*", At: here}, Override{Tool: "a"}), here, true,
			`view "v": server "github" has no tool that matches "pr_*"`, "github.a"},
		{"an exclude for nothing", Settings{IncludeAll: true, Exclude: []Pattern{{Glob: "a", At: here}}}, here, true,
			`view "v": exclude: nothing matches "a" (globs are over "server.tool")`,
			"github.search_code github.search_issues github.issue_get github.a github.b github.c"},
		{"a server that is not there", Settings{Tools: []UpstreamTools{{Name: "gihub", At: there, Tools: []Override{{Tool: "a"}}}}}, there, true,
			`view "v": server "gihub" is disabled or unknown (or did you mean "github"?)`, ""},
		{"an unknown parameter leaves out the tool", entry(Override{Tool: "a", At: here, Parameters: []Parameter{{Name: "x", At: there, Value: []byte(`1`)}}}, Override{Tool: "b"}), there, false,
			`view "v": tool github.a: parameter "x": the tool has no such parameter (there is none)`, "github.b"},
		{"one name twice", entry(Override{Tool: "a", Name: "x"}, Override{Tool: "b", Name: "x", At: here}, Override{Tool: "c"}), here, false,
			`view "v": github.a and github.b are both named "x" (rename one of them; the second is left out)`, "github.a github.c"},
		{"the name of a meta-tool", entry(Override{Tool: "a", Name: "run_script", At: here}, Override{Tool: "b"}), here, false,
			`view "v": tool github.a: the name "run_script" is taken by a tool of the view itself (choose another name)`, "github.b"},
		{"the name of a search tool", entry(Override{Tool: "a", Name: "v_search_tools", At: here}), here, false,
			`view "v": tool github.a: the name "v_search_tools" is taken by a tool of the view itself (choose another name)`, ""},
		{"a name that no client takes", entry(Override{Tool: "a", Name: "x.y", At: here}), here, false,
			`view "v": tool github.a: the name "x.y" is not 1 to 64 letters, digits, _ and - (choose another name)`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.s.Name, test.s.At = "v", view
			v, problems := Compile(test.s, []Upstream{github}, Env{})
			if len(problems) != 1 {
				t.Fatalf("problems %v", problems)
			}
			if p := problems[0]; p.Error() != test.want || p.At != test.at || p.Warning != test.warning {
				t.Errorf("at %v, warning %t: %v\nwant %s", p.At, p.Warning, p, test.want)
			}
			if got := ids(v.Upstreams); got != test.left {
				t.Errorf("the view has %q, want %q", got, test.left)
			}
		})
	}
	t.Run("a server that was never listed", func(t *testing.T) {
		servers := []UpstreamTools{{Name: "absent", At: there, Tools: []Override{{Tool: "x", At: here}, {Tool: "y*"}}}}
		_, ofView := Compile(Settings{Name: "v", Tools: servers, Exclude: []Pattern{{Glob: "absent.z"}}}, []Upstream{absent}, Env{})
		_, ofBase := Base([]Upstream{absent}, servers)
		for _, problems := range [][]Problem{ofView, ofBase} {
			const want = `the tools of server "absent" are not checked: it has not been listed yet`
			if len(problems) != 1 || problems[0].Message != want || !problems[0].Warning || problems[0].At != there {
				t.Errorf("problems %+v", problems)
			}
		}
	})
	t.Run("a list of another client names a tool that is gone", func(t *testing.T) {
		for _, tools := range [][]Override{{{Tool: "gone", Disabled: true}}, {{Tool: "a"}, {Tool: "gone"}, {Tool: "*", Disabled: true}}} {
			if _, problems := Base([]Upstream{github}, []UpstreamTools{{Name: "github", Tools: tools}}); len(problems) != 1 || !problems[0].Warning {
				t.Errorf("%+v: %v", tools, problems)
			}
		}
	})
	t.Run("under a server", func(t *testing.T) {
		base, problems := Base([]Upstream{github}, []UpstreamTools{{Name: "github", Tools: []Override{
			{Tool: "issue_gt", At: here}, {Tool: "a", Name: "x"}, {Tool: "b", Name: "x", At: there}, {Tool: "zz*", At: view},
		}}})
		var got []string
		for _, p := range problems {
			got = append(got, fmt.Sprint(p.At.Line, " ", p.Warning, " ", p.Error()))
		}
		want := []string{
			`4 false server "github" has no tool "issue_gt" (did you mean "issue_get"?)`,
			`1 true server "github" has no tool that matches "zz*"`,
			`9 false github.a and github.b are both named "x" (rename one of them; the second is left out)`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("got  %s\nwant %s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if got, want := ids(base), "github.search_code github.search_issues github.issue_get github.a github.c"; got != want {
			t.Errorf("base has %s, want %s", got, want)
		}
	})
	t.Run("one name for tools of two servers, one under its server", func(t *testing.T) {
		base, _ := Base([]Upstream{listed(t, "p", "a"), listed(t, "q", "a")}, []UpstreamTools{{Name: "q", Tools: []Override{{Tool: "a", Name: "x"}}}})
		_, problems := Compile(Settings{Name: "v", IncludeAll: true, Tools: []UpstreamTools{{Name: "p", Tools: []Override{{Tool: "a", Name: "x", At: here}}}}}, base, Env{})
		if len(problems) != 1 || problems[0].At != here || !strings.HasPrefix(problems[0].Message, `p.a and q.a are both named "x"`) {
			t.Errorf("problems %+v", problems)
		}
	})
}

// A tool that its server's settings hide is in no view, and hiding it is no mistake of what uses it: the configuration
// loads, and what names the tool says so.
func TestAHiddenToolIsInNoView(t *testing.T) {
	at := Place{4, 2}
	base, problems := Base([]Upstream{listed(t, "s", "a", "b", "c1")}, []UpstreamTools{{Name: "s", Tools: []Override{{Tool: "a", Disabled: true}, {Tool: "c*", Disabled: true}}}})
	wantProblems(t, problems)
	v, problems := Compile(Settings{
		Name: "v", Tools: []UpstreamTools{{Name: "s", Tools: []Override{{Tool: "a", Name: "x", At: at}, {Tool: "b"}}}},
		Composites: []Composite{{Name: "both", At: at, Steps: []Step{{Key: "one", Tool: "s.a", At: at}}}},
	}, base, Env{Find: func(string) (*tool.Tool, bool) { return nil, false }, Nearest: func(string, int) []string { return nil }})
	if got := ids(v.Upstreams); got != "s.b" {
		t.Errorf("the view has %s", got)
	}
	var said []string
	for _, problem := range problems {
		if !problem.Warning {
			t.Errorf("%s is an error", problem.Message)
		}
		said = append(said, problem.Message)
	}
	if all := strings.Join(said, "\n"); !strings.Contains(all, `the tool "a" is left out: it is hidden under server "s"`) || !strings.Contains(all, "or the tool is hidden") {
		t.Errorf("said %s", all)
	}
	for name, want := range map[string]bool{"a": true, "b": false, "c1": true} {
		if got := HiddenBy([]Override{{Tool: "a", Disabled: true}, {Tool: "c*", Disabled: true}}, name) != nil; got != want {
			t.Errorf("%s is hidden: %v", name, got)
		}
	}
}

// keeper is an Env whose output cache says in the result what it was told.
func keeper() Env {
	return Env{Keep: func(o OutputCache) tool.Middleware {
		return func(next tool.Handler) tool.Handler {
			return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
				result, err := next(ctx, call)
				return tool.Result(fmt.Sprintf(`{"kept":"%d %d %s","of":%s}`, o.MinSize, o.Preview, o.TTL, result)), err
			}
		}
	}}
}

func TestLargeResultsAreKeptAsTheNearestSays(t *testing.T) {
	of := func(size int) *OutputCache { return &OutputCache{MinSize: size} }
	for _, test := range []struct {
		name                             string
		inView, inBase, ofView, ofServer *OutputCache
		want                             int // MinSize; 0 for not kept
	}{
		{name: "by nobody"},
		{name: "the server", ofServer: of(4), want: 4},
		{name: "the server in the view", ofView: of(3), ofServer: of(4), want: 3},
		{name: "the tool under the server", inBase: of(2), ofView: of(3), ofServer: of(4), want: 2},
		{name: "the tool in the view", inView: of(1), inBase: of(2), ofView: of(3), ofServer: of(4), want: 1},
		{name: "off for the tool", inView: of(0), inBase: of(2), ofServer: of(4)},
		{name: "off for the tool under the server", inBase: of(0), ofView: of(3), ofServer: of(4)},
		{name: "off for the server in the view", ofView: of(0), ofServer: of(4)},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := defined(t, tool.KindTool, "s", `{"name":"a","outputSchema":{"type":"object"},"x":1.0}`)
			prompt := defined(t, tool.KindPrompt, "s", `{"name":"p"}`)
			base, problems := Base([]Upstream{{Server: "s", Listed: true, Tools: []*tool.Tool{a, prompt}}},
				[]UpstreamTools{{Name: "s", Output: test.ofServer, Tools: []Override{{Tool: "a", Output: test.inBase}}}})
			wantProblems(t, problems)
			s := Settings{IncludeAll: true, Tools: []UpstreamTools{{Name: "s", Output: test.ofView, Tools: []Override{{Tool: "a", Output: test.inView}}}}}
			v, problems := Compile(s, base, keeper())
			wantProblems(t, problems)
			u := v.Upstreams[0]
			result, _ := u.Tools[0].Handler(context.Background(), &tool.Call{})
			if test.want == 0 {
				if u.Tools[0] != a || len(u.Output) > 0 || strings.Contains(string(result), "kept") {
					t.Errorf("it is kept: %s, %v", result, u.Output)
				}
				return
			}
			if want := fmt.Sprintf(`{"kept":"%d 2000 1h0m0s","of":{"content":[],"structuredContent":null}}`, test.want); string(result) != want {
				t.Errorf("result %s, want %s", result, want)
			}
			if raw := string(u.Tools[0].Def.Raw); raw != `{"name":"a","x":1.0}` || u.Tools[0].Def.OutputSchema != nil {
				t.Errorf("it still promises structured content: %s", raw)
			}
			if len(u.Output) != 1 || u.Output[a.Def.ID].MinSize != test.want {
				t.Errorf("the view says %v of what is kept", u.Output)
			}
			if u.Tools[1] != prompt {
				t.Error("the prompt was wrapped")
			}
		})
	}
	if o := outputOf(choice{tool: listed(t, "s", "a").Tools[0]}, Upstream{OutputDefault: &OutputCache{1, 2, time.Second}}, nil); *o != (OutputCache{1, 2, time.Second}) {
		t.Errorf("what is set became a default: %+v", o)
	}
}

// From inside: the tool, the view's hooks, its arguments bound, the output cache.
// So a hook sees the tool's own arguments, and can set one that clients do not see.
func TestWhatIsAroundATool(t *testing.T) {
	env := keeper()
	s := Settings{
		Name: "v",
		Tools: []UpstreamTools{{Name: "s", Tools: []Override{{
			Tool: "a", Name: "x", Output: &OutputCache{MinSize: 1}, Parameters: []Parameter{{Name: "p", Rename: "q"}, {Name: "h", Hidden: true}},
		}}}},
		Hooks: Hooks{
			Pre: []PreCall{func(_ context.Context, info *script.Info, arguments json.RawMessage) (json.RawMessage, error) {
				if info.Tool != "a" || info.Name != "x" || info.Upstream != "s" || string(arguments) != `{"p":1}` {
					t.Errorf("the hook saw %+v with %s", info, arguments)
				}
				return json.RawMessage(`{"p":2,"h":3}`), nil
			}},
			Post: []PostCall{func(_ context.Context, _ *script.Info, _ json.RawMessage, result tool.Result) (tool.Result, error) {
				return tool.Result(`{"content":[],"hooked":` + string(result) + `}`), nil
			}},
		},
	}
	u := Upstream{Server: "s", Listed: true, Tools: []*tool.Tool{withSchema(t, `{"properties":{"p":{},"h":{}},"required":["h"]}`)}}
	v, problems := Compile(s, []Upstream{u}, env)
	wantProblems(t, problems)
	result, err := v.Upstreams[0].Tools[0].Handler(context.Background(), &tool.Call{Name: "x", Arguments: json.RawMessage(`{"q":1}`)})
	const want = `{"kept":"1 2000 1h0m0s","of":{"content":[],"hooked":{"content":[],"structuredContent":{"p":2,"h":3}}}}`
	if err != nil || string(result) != want {
		t.Errorf("result %s, %v\nwant   %s", result, err, want)
	}
}

func TestOwnToolsAreHookedAndNamedLikeAnyOther(t *testing.T) {
	u := listed(t, "s", "a")
	step := []Step{{Key: "one", Tool: "s.a", Args: []byte(`{}`)}}
	at := Place{8, 3}
	s := Settings{
		Name:       "v",
		Tools:      []UpstreamTools{{Name: "s", Tools: []Override{{Tool: "a", Name: "both"}}}},
		Composites: []Composite{{Name: "both", At: at, Steps: step}, {Name: "mine", Steps: step}},
		Hooks: Hooks{Pre: []PreCall{func(_ context.Context, info *script.Info, _ json.RawMessage) (json.RawMessage, error) {
			if info.Name == "mine" { // not a step of it
				return nil, &AbortError{Reason: "not today"}
			}
			return nil, nil
		}}},
	}
	env := Env{
		Find:    func(id string) (*tool.Tool, bool) { return u.Tools[0], id == "s.a" },
		Nearest: func(string, int) []string { return nil },
	}
	v, problems := Compile(s, []Upstream{u}, env)
	if len(problems) != 1 || problems[0].Error() != `view "v": s.a and v.both are both named "both" (rename one of them; the second is left out)` || problems[0].At != at {
		t.Errorf("problems %+v", problems)
	}
	if len(v.Own) != 1 || v.Own[0].Name != "mine" || ids(v.Upstreams) != "s.a" {
		t.Fatalf("own tools %+v, others %s", v.Own, ids(v.Upstreams))
	}
	result, err := v.Own[0].Handler(context.Background(), &tool.Call{Name: "mine"})
	if err != nil || !result.Failed() || !strings.Contains(string(result), "not today") {
		t.Errorf("the call was not refused: %s, %v", result, err)
	}
}

// What a Problem is about may stand under a server: then it is at the view.
func TestAProblemIsAlwaysSomewhere(t *testing.T) {
	base, _ := Base([]Upstream{listed(t, "p", "a"), listed(t, "q", "a")}, []UpstreamTools{
		{Name: "p", Tools: []Override{{Tool: "a", Name: "x"}}}, {Name: "q", Tools: []Override{{Tool: "a", Name: "x"}}},
	})
	_, problems := Compile(Settings{Name: "v", At: Place{5, 1}, IncludeAll: true}, base, Env{})
	if len(problems) != 1 || problems[0].At != (Place{5, 1}) {
		t.Errorf("problems %+v", problems)
	}
}

func BenchmarkCompile(b *testing.B) {
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprintf("tool_%d", i)
	}
	base := []Upstream{listed(b, "s", names...)}
	for name, s := range map[string]Settings{
		"all":         {IncludeAll: true},
		"redescribed": {Tools: []UpstreamTools{{Name: "s", Tools: []Override{{Tool: "*", Description: text("x {original}")}}}}},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				Compile(s, base, Env{})
			}
		})
	}
}

func TestAServerThatListsNothingIsInAViewOfAll(t *testing.T) {
	bare := Upstream{Server: "bare", Listed: true, Tools: []*tool.Tool{}}
	full := listed(t, "full", "a")
	for _, test := range []struct {
		settings Settings
		want     string
	}{
		{Settings{IncludeAll: true}, "bare full"},
		{Settings{IncludeAll: true, Exclude: []Pattern{{Glob: "full.*"}}}, "bare"}, // all of it is left out
		{Settings{Tools: []UpstreamTools{{Name: "full", Tools: []Override{{Tool: "*"}}}}}, "full"},
	} {
		v, problems := Compile(test.settings, []Upstream{bare, full}, Env{Find: func(string) (*tool.Tool, bool) { return nil, false }})
		var names []string
		for _, u := range v.Upstreams {
			names = append(names, u.Server)
		}
		if got := strings.Join(names, " "); got != test.want {
			t.Errorf("%+v has something of %q (%v), want %q", test.settings, got, problems, test.want)
		}
	}
}
