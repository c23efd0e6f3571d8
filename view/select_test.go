package view

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/internal/nearest"
	"toolfinch/tool"
)

// echo answers with the arguments that reached it as structured content.
func echo(_ context.Context, call *tool.Call) (tool.Result, error) {
	arguments := call.Arguments
	if arguments == nil {
		arguments = json.RawMessage(`null`)
	}
	return tool.Result(`{"content":[],"structuredContent":` + string(arguments) + `}`), nil
}

// defined is a tool, prompt or resource of a server that echoes.
func defined(t testing.TB, kind tool.Kind, server, raw string) *tool.Tool {
	t.Helper()
	def := must.Get(tool.ParseKind(kind, server, json.RawMessage(raw)))(t)
	return &tool.Tool{Def: def, Handler: echo}
}

// listed is an upstream with tools of these names.
func listed(t testing.TB, server string, names ...string) Upstream {
	u := Upstream{Server: server, Listed: true}
	for _, name := range names {
		u.Tools = append(u.Tools, defined(t, tool.KindTool, server, `{"name":"`+name+`"}`))
	}
	return u
}

// compiled is a view without a problem.
func compiled(t testing.TB, s Settings, base ...Upstream) *Compiled {
	t.Helper()
	v, problems := Compile(s, base, Env{})
	for _, p := range problems {
		t.Errorf("problem at %v: %v", p.At, p)
	}
	return v
}

// ids are what a view has of upstreams.
func ids(upstreams []Upstream) string {
	var out []string
	for _, u := range upstreams {
		for _, t := range u.Tools {
			out = append(out, t.Def.ID.String())
		}
	}
	return strings.Join(out, " ")
}

func TestSelection(t *testing.T) {
	github := listed(t, "github", "search_code", "issue_get", "issue_delete", "repo/issue_x")
	github.Tools = append(github.Tools,
		defined(t, tool.KindPrompt, "github", `{"name":"review"}`),
		defined(t, tool.KindResource, "github", `{"uri":"file:///readme","name":"r"}`),
		defined(t, tool.KindTemplate, "github", `{"uriTemplate":"file:///{path}","name":"r"}`))
	memory := listed(t, "memory", "search", "issue_get")
	everything := "github.search_code github.issue_get github.issue_delete github.repo/issue_x" +
		" github.review github.file:///readme github.file:///{path} memory.search memory.issue_get"

	of := func(server string, overrides ...Override) []UpstreamTools {
		return []UpstreamTools{{Name: server, Tools: overrides}}
	}
	exclude := func(globs ...string) (out []Pattern) {
		for _, glob := range globs {
			out = append(out, Pattern{Glob: glob})
		}
		return out
	}
	for _, test := range []struct {
		name string
		s    Settings
		want string
	}{
		{"nothing", Settings{}, ""},
		{"by name, in the order of the upstream", Settings{Tools: of("github", Override{Tool: "issue_get"}, Override{Tool: "search_code"})},
			"github.search_code github.issue_get"},
		{"by glob, which brings tools alone", Settings{Tools: of("github", Override{Tool: "*"})},
			"github.search_code github.issue_get github.issue_delete github.repo/issue_x"},
		{"a star crosses slashes", Settings{Tools: of("github", Override{Tool: "*issue_?"})}, "github.repo/issue_x"},
		{"a name before a glob", Settings{Tools: of("github", Override{Tool: "issue_get"}, Override{Tool: "issue_*", Disabled: true})},
			"github.issue_get"},
		{"the last of two globs", Settings{Tools: of("github", Override{Tool: "issue_*"}, Override{Tool: "*_delete", Disabled: true})},
			"github.issue_get"},
		{"disabled by name", Settings{Tools: of("github", Override{Tool: "issue_*"}, Override{Tool: "issue_get", Disabled: true})},
			"github.issue_delete"},
		{"all", Settings{IncludeAll: true}, everything},
		{"all but what is disabled", Settings{IncludeAll: true, Tools: of("memory", Override{Tool: "*", Disabled: true})},
			strings.TrimSuffix(everything, " memory.search memory.issue_get")},
		{"all, one changed", Settings{IncludeAll: true, Tools: of("memory", Override{Tool: "search", Name: "find"})}, everything},
		{"all but what is excluded, of every kind", Settings{IncludeAll: true, Exclude: exclude("*.issue_*", "github.file://*", "github.rev*")},
			"github.search_code github.repo/issue_x memory.search"},
		{"a glob but what is excluded", Settings{Tools: of("github", Override{Tool: "issue_*"}), Exclude: exclude("github.*_delete")},
			"github.issue_get"},
		{"what is named is not excluded", Settings{IncludeAll: true, Tools: of("github", Override{Tool: "issue_delete"}), Exclude: exclude("github.*")},
			"github.issue_delete memory.search memory.issue_get"},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := compiled(t, test.s, github, memory)
			if got := ids(v.Upstreams); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			for _, u := range v.Upstreams {
				if len(u.Tools) == 0 {
					t.Errorf("upstream %s is there without anything of it", u.Server)
				}
			}
		})
	}
}

func TestAServerThatWasNeverListedStaysInTheViewsThatWantIt(t *testing.T) {
	absent, there := Upstream{Server: "absent"}, listed(t, "there", "a")
	for _, test := range []struct {
		name string
		s    Settings
		want []string
	}{
		{"all", Settings{IncludeAll: true}, []string{"absent", "there"}},
		{"selected", Settings{Tools: []UpstreamTools{{Name: "absent", Tools: []Override{{Tool: "x"}}}}}, []string{"absent"}},
		{"only disabled", Settings{Tools: []UpstreamTools{{Name: "absent", Tools: []Override{{Tool: "x", Disabled: true}}}}}, nil},
		{"not selected", Settings{Tools: []UpstreamTools{{Name: "there", Tools: []Override{{Tool: "a"}}}}}, []string{"there"}},
	} {
		v, _ := Compile(test.s, []Upstream{absent, there}, Env{})
		var got []string
		for _, u := range v.Upstreams {
			got = append(got, u.Server)
			if u.Listed != (u.Server == "there") {
				t.Errorf("%s: %s: listed %t", test.name, u.Server, u.Listed)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: upstreams %v, want %v", test.name, got, test.want)
		}
	}
}

func TestBaseOnlyChangesAndRemoves(t *testing.T) {
	u := listed(t, "s", "a", "b", "c")
	u.Tools = append(u.Tools, defined(t, tool.KindPrompt, "s", `{"name":"a"}`))
	other := listed(t, "other", "a")
	before := slices.Clone(u.Tools)
	base, problems := Base([]Upstream{u, other}, []UpstreamTools{{Name: "s", Tools: []Override{
		{Tool: "a", Name: "first"}, {Tool: "*"}, {Tool: "b", Disabled: true},
	}}, {Name: "disabled", Tools: []Override{{Tool: "x"}}}})
	wantProblems(t, problems)
	if got, want := ids(base), "s.a s.c s.a other.a"; got != want {
		t.Errorf("base has %s, want %s", got, want)
	}
	if got := base[0].Tools; got[0].Name != "first" || got[0].Def != before[0].Def || got[1] != before[2] || got[2] != before[3] {
		t.Errorf("what nobody changed is not as it was: %+v", got)
	}
	if !slices.Equal(u.Tools, before) || before[0].Name != "" {
		t.Error("Base edited the upstreams that it was given")
	}
}

func TestNearest(t *testing.T) {
	valid := []string{"search_code", "search_issues", "create_issue", "issue_get"}
	for word, want := range map[string]string{
		"serch_code": "search_code",
		"searchCode": "search_code",
		"search":     "search_code search_issues",
		"isue_get":   "issue_get",
		"weather":    "",
		"":           "",
	} {
		if got := strings.Join(nearest.Names(word, valid, 3, nearest.Close), " "); got != want {
			t.Errorf("nearest(%q) = %q, want %q", word, got, want)
		}
	}
}
