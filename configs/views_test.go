package configs

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/must"
	"toolfinch/retrieve"
	"toolfinch/trust/leaks"
	"toolfinch/view"
	"toolfinch/view/output"
)

// starlark is a module with whatever functions: configs only asks whether the
// file is there.
const starlark = "def pre_call(ctx, args):\n    return None\n"

// loadWith reads text as toolfinch.yaml beside other files, by their paths.
func loadWith(t testing.TB, text string, files []string, env ...string) (*Config, error) {
	t.Helper()
	dir := write(t, "toolfinch.yaml", text)
	for _, file := range files {
		path := filepath.Join(dir, file)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(t, os.WriteFile(path, []byte(starlark), 0o755))
	}
	c, err := loadAll(Options{Trusts: trustsAll, Dir: dir, UserDir: t.TempDir(), Env: environ(env...)})
	if err == nil {
		valid(t, c)
	}
	return c, err
}

const everyViewKey = `
hook_headers: [X-Team, X-Trace]
principal_header: X-Forwarded-User
gating: {max_tokens: 500}
proxy_tool: true
tool_views: # may stand before the servers
  everything-1_2:
    description: For ${WHO}
    exposure_mode: Search
    direct_below: 100
    trim_descriptions: 0
    tools:
      git.hub:
        search_code:
          name: find
          title: "Find {original}"
          description: "${WHO}: {original} {other}"
          parameters:
            path: {rename: file, description: "{original}!", default: "${WHO}"}
            deep: {value: {z: 1, a: [1.0, 12345678901234567890123, -0.5e-7, 1e400,  null, true, "5", "${WHO}<"]}}
            gone: {hidden: true, default: }
            empty: {}
          output_cache: false
        "issue_*": {}
        off: {enabled: false, output_cache: {min_size: 1.5kB, preview: 1KiB, ttl: 90}}
        nothing:
    include_all: true
    exclude: ["git.hub.delete_*"]
    skills: ["git.hub.skill://*", {skill: "skills.*", under: own/ones}]
    hooks:
      pre_call: hooks/a.star:pre_call
      post_call: {command: [./bin/hook, "${WHO}", 7], timeout: 250ms, on_error: fail}
      on_error: continue
      timeout: 2s
    composite_tools:
      both:
        title: Both
        description: Calls {inputs.q}
        inputs:
          q: {type: string, required: true, description: "What ${WHO} asks", enum: [a, 1.0]}
          where: {type: object, properties: {x: {type: integer}}, required: [x]}
          n: integer
          any:
        parallel:
          one: {tool: git.hub.code.search, args: {text: "{inputs.q} {{inputs.x}}", n: "{inputs.n}", size: 10}}
          two: {tool: git.log, timeout: 5s}
        on_error: fail
        concurrency: 2
        timeout: 1m
    custom_tools:
      - hooks/a.star:one
      - {module: "~/tools.star:two", name: other, max_calls: 1, max_steps: 2, timeout: 3s, max_output: 4}
    run_script: {max_calls: 7}
    gating: {max_tools: 0, ttl: 1m}
    proxy_tool: {name: all}
  small:
    composite_tools: {one: {parallel: {a: {tool: git.log}}}}
    hooks: {pre_call: {starlark: hooks/a.star:pre_call}, post_call: {command: [python3, x.py]}}
    run_script: true
  quiet: {include_all: true, secrets: mark, run_script: false, gating: false, proxy_tool: false}
mcp_servers:
  git: {command: a}
  git.hub:
    command: a
    output_cache: true
    trim_descriptions: 200
    secrets: redact
    tools:
      delete: {enabled: false}
      search_code: {name: code_search}
  plain: {command: a, tools: {}}
`

func TestEveryKeyOfViews(t *testing.T) {
	elsewhere := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(elsewhere, "tools.star"), []byte(starlark), 0o600))
	c := must.Get(loadWith(t, everyViewKey, []string{"hooks/a.star", "bin/hook"}, "WHO=me", "HOME="+elsewhere, "USERPROFILE="+elsewhere))(t)
	if len(c.Warnings) > 0 {
		t.Errorf("warns: %v", Errors(c.Warnings))
	}
	dir := filepath.Dir(c.Path)
	module := filepath.Join(dir, "hooks", "a.star")
	program := filepath.Join(dir, "bin", "hook")
	third := filepath.Join(elsewhere, "tools.star")
	defaults := view.ScriptLimits{}.OrDefaults()
	some := defaults
	some.Calls = 7
	wantTools := []view.UpstreamTools{{
		Name:   "git.hub",
		Output: &view.OutputCache{MinSize: 20_000, Preview: 2_000, TTL: time.Hour},
		Trim:   200, Secrets: leaks.Redact,
		Tools: []view.Override{{Tool: "delete", Disabled: true}, {Tool: "search_code", Name: "code_search"}},
	}}
	wantViews := []view.Settings{{
		Name: "everything-1_2", Description: "For me", Exposure: view.ExposureSearch, DirectBelow: 100, Trim: view.TrimOff, SearchStyle: view.SearchSummary, Schemas: view.SchemasByClient,
		Tools: []view.UpstreamTools{{Name: "git.hub", Tools: []view.Override{
			{
				Tool: "search_code", Name: "find", Title: new("Find {original}"), Description: new("me: {original} {other}"),
				Parameters: []view.Parameter{
					{Name: "path", Rename: "file", Description: new("{original}!"), Default: []byte(`"me"`)},
					{Name: "deep", Value: []byte(`{"z":1,"a":[1.0,12345678901234567890123,-0.5e-7,1e400,null,true,"5","me<"]}`)},
					{Name: "gone", Hidden: true, Default: []byte(`null`)},
					{Name: "empty"},
				},
				Output: &view.OutputCache{},
			},
			{Tool: "issue_*"},
			{Tool: "off", Disabled: true, Output: &view.OutputCache{MinSize: 1500, Preview: 1024, TTL: 90 * time.Second}},
			{Tool: "nothing"},
		}}},
		IncludeAll: true,
		Exclude:    []view.Pattern{{Glob: "git.hub.delete_*"}},
		Skills:     []view.SkillPattern{{Pattern: view.Pattern{Glob: "git.hub.skill://*"}}, {Pattern: view.Pattern{Glob: "skills.*"}, Under: "own/ones"}},
		Hooks: view.Hooks{
			PreCall:  &view.Hook{Module: module, Function: "pre_call", Timeout: 2 * time.Second, Continue: true},
			PostCall: &view.Hook{Command: []string{program, "me", "7"}, Dir: dir, Timeout: 250 * time.Millisecond},
		},
		Composites: []view.Composite{{
			Name: "both", Title: "Both", Description: "Calls {inputs.q}",
			Inputs: []view.Input{
				{Name: "q", Required: true, Schema: []byte(`{"type":"string","description":"What me asks","enum":["a",1.0]}`)},
				{Name: "where", Schema: []byte(`{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]}`)},
				{Name: "n", Schema: []byte(`{"type":"integer"}`)},
				{Name: "any", Schema: []byte(`{}`)},
			},
			Steps: []view.Step{
				{Key: "one", Tool: "git.hub.code.search", Args: []byte(`{"text":"{inputs.q} {{inputs.x}}","n":"{inputs.n}","size":10}`)},
				{Key: "two", Tool: "git.log", Args: []byte(`{}`), Timeout: 5 * time.Second},
			},
			FailFast: true, Concurrency: 2, Timeout: time.Minute,
		}},
		Customs: []view.Custom{
			{Module: module, Function: "one", Limits: defaults},
			{Module: third, Function: "two", Name: "other", Limits: view.ScriptLimits{Calls: 1, Steps: 2, Time: 3 * time.Second, Output: 4}},
		},
		RunScript: &some,
		Gating:    &view.Gating{MaxTokens: view.DefaultMaxTokens, TTL: time.Minute},
		ProxyTool: "all",
	}, {
		Name: "small", Exposure: view.ExposureAuto, DirectBelow: DefaultDirectBelow, SearchStyle: view.SearchSummary, Schemas: view.SchemasByClient,
		Hooks: view.Hooks{
			PreCall:  &view.Hook{Module: module, Function: "pre_call", Timeout: view.DefaultHookTimeout},
			PostCall: &view.Hook{Command: []string{"python3", "x.py"}, Dir: dir, Timeout: view.DefaultHookTimeout},
		},
		Composites: []view.Composite{{
			Name: "one", Concurrency: view.DefaultConcurrency, Timeout: view.DefaultStepTimeout,
			Steps: []view.Step{{Key: "a", Tool: "git.log", Args: []byte(`{}`)}},
		}},
		RunScript: &defaults,
		Gating:    &view.Gating{MaxTokens: 500, MaxTools: view.DefaultMaxTools},
		ProxyTool: view.DefaultProxyTool,
	}, {
		Name: "quiet", IncludeAll: true, Secrets: leaks.Mark, Exposure: view.ExposureAuto, DirectBelow: DefaultDirectBelow, SearchStyle: view.SearchSummary, Schemas: view.SchemasByClient,
	}}
	if place := c.Views[0].Tools[0].Tools[0].At; place != (view.Place{Line: 14, Column: 9}) {
		t.Errorf("search_code stands at %v", place)
	}
	nowhere(reflect.ValueOf(c.Tools))
	nowhere(reflect.ValueOf(c.Views))
	if !reflect.DeepEqual(c.Tools, wantTools) {
		t.Errorf("tools: got\n%+v\nwant\n%+v", c.Tools, wantTools)
	}
	for i := range wantViews {
		if !reflect.DeepEqual(c.Views[i], wantViews[i]) {
			t.Errorf("got\n%+v\nwant\n%+v", c.Views[i], wantViews[i])
		}
	}
	if !reflect.DeepEqual(c.HookHeaders, []string{"x-team", "x-trace"}) || c.PrincipalHeader != "x-forwarded-user" {
		t.Errorf("headers: %q, %q", c.HookHeaders, c.PrincipalHeader)
	}
	if want := []string{module, program, third}; !reflect.DeepEqual(c.Modules(), want) {
		t.Errorf("Modules() = %q, want %q", c.Modules(), want)
	}
}

// nowhere forgets all places within v, which must each have been somewhere.
func nowhere(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			nowhere(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			nowhere(v.Index(i))
		}
	case reflect.Struct:
		if place, ok := v.Interface().(view.Place); ok {
			if place.Line < 1 || place.Column < 1 {
				panic("a thing without a place")
			}
			v.SetZero()
			return
		}
		for i := range v.NumField() {
			nowhere(v.Field(i))
		}
	}
}

// A server that there is not costs the view that names it, and nothing else. Without the
// default view clients would be shown everything, so there the file is refused.
func TestAMistypedServerCostsItsView(t *testing.T) {
	const text = `
mcp_servers: {github: {command: a}}
tool_views:
  good: {tools: {github: {a: {}}}, composite_tools: {own: {parallel: {x: {tool: github.a}}}}}
  NAME: {tools: {githib: {a: {}}, github: {b: {}}}}
  step: {include_all: true, composite_tools: {own: {parallel: {x: {tool: githib.a}}}}}
  last: {include_all: true, gating: true}
`
	dir := write(t, "toolfinch.yaml", strings.Replace(text, "NAME", "bad", 1))
	c := must.Get(Load(Options{Trusts: trustsAll, Dir: dir, Env: environ()}))(t)
	var names []string
	for _, v := range c.Views {
		names = append(names, v.Name)
	}
	if !slices.Equal(names, []string{"good", "last"}) || c.Views[1].Gating == nil {
		t.Errorf("views: %+v", c.Views)
	}
	want := `toolfinch.yaml:5:17: view "bad": tools: there is no server "githib" (did you mean "github"?)
toolfinch.yaml:6:74: view "step": composite_tools.own.parallel.x.tool must be server.tool, of a server that there is, not "githib.a" (did you mean "github.a"?)`
	if got := Errors(c.Broken).Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := c.BrokenViews["bad"]; len(c.BrokenViews) != 2 || got != `tools: there is no server "githib" (did you mean "github"?)` {
		t.Errorf("left out: %q", c.BrokenViews)
	}
	if resolved := c.Resolved(); !strings.Contains(resolved, `# left out: view "bad": tools`) || strings.Contains(resolved, "githib:") {
		t.Errorf("resolved:\n%s", resolved)
	}
	dir = write(t, "toolfinch.yaml", strings.Replace(text, "NAME", "default", 1))
	if _, err := Load(Options{Trusts: trustsAll, Dir: dir, Env: environ()}); err == nil || !strings.Contains(err.Error(), `view "default": tools: there is no server "githib"`) {
		t.Errorf("the default view: %v", err)
	}
}

// default_view names what there is, and never what is left out.
func TestDefaultView(t *testing.T) {
	const views = "tool_views: {one: {include_all: true}}\n"
	for text, want := range map[string]string{
		"": RootAll, views: RootViews, "tool_views: {default: {include_all: true}}\n": view.Default,
		views + "default_view: one\n": "one", "default_view: none\n" + views: RootNone, views + "default_view: all\n": RootAll, "default_view: views\n" + views: RootViews,
	} {
		if got := mustLoad(t, minimal+text).Root(); got != want {
			t.Errorf("%s: the root serves %q, want %q", text, got, want)
		}
	}
	if got := (&Config{BrokenViews: map[string]string{"lost": "why"}}).Root(); got != RootViews {
		t.Errorf("with all views left out the root serves %q", got)
	}
	for text, want := range map[string]string{
		views + "default_view: two\n":                                         `default_view: there is no view "two" (known: all, views, none, one)`,
		views + "default_view: oen\n":                                         `did you mean "one"?`,
		"default_view: all\ntool_views: {default: {include_all: true}}\n":     `default_view: all needs the name of the view "default"`,
		"default_view: bad\ntool_views: {bad: {tools: {nowhere: {x: {}}}}}\n": `view "bad": tools: there is no server "nowhere"`,
		"default_view: [one]\n" + views:                                       "default_view must be",
	} {
		if _, err := load(t, minimal+text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// search_style is that of views without one of their own.
func TestSearchStyle(t *testing.T) {
	c := mustLoad(t, minimal+"tool_views:\n  one: {include_all: true}\n  two: {include_all: true, search_style: summary}\nsearch_style: plain\n")
	if one, two := c.Views[0].SearchStyle, c.Views[1].SearchStyle; one != view.SearchPlain || two != view.SearchSummary {
		t.Errorf("%s, %s", one, two)
	}
}

// default_exposure is that of views without exposure_mode, wherever it stands.
func TestDefaultExposure(t *testing.T) {
	for _, text := range []string{"default_exposure: search\nVIEWS", "VIEWSdefault_exposure: search\n"} {
		c := mustLoad(t, minimal+strings.Replace(text, "VIEWS", "tool_views:\n  one: {include_all: true}\n  two: {include_all: true, exposure_mode: direct}\n", 1))
		if one, two := c.Views[0].Exposure, c.Views[1].Exposure; one != view.ExposureSearch || two != view.ExposureDirect {
			t.Errorf("%q: %s, %s", text, one, two)
		}
	}
	for text, want := range map[string]string{
		"default_exposure: serach\n": `default_exposure must be auto, direct, retrieve, search or search_per_server, not "serach" (did you mean "search"?)`,
		"default_exposure: direct\ngating: true\ntool_views: {v: {include_all: true}}\n":                                              "lists every tool, but gating only those",
		"default_exposure: search\ntool_views: {v: {tools: {a: {}}, composite_tools: {v_call_tool: {parallel: {x: {tool: a.b}}}}}}\n": "is the name of one of toolfinch's own tools",
	} {
		if _, err := load(t, minimal+text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// Inputs that steps use and that are not declared are required strings, with a warning;
// a name that looks like a declared one is a mistake.
func TestInputsThatAreNotDeclared(t *testing.T) {
	const steps = "tool_views: {v: {composite_tools: {t: {INPUTSparallel: {one: {tool: a.b, args: ARGS}, two: {tool: a.c, args: ARGS}}}}}}\n"
	read := func(inputs, args string) (*Config, error) {
		return load(t, minimal+strings.NewReplacer("INPUTS", inputs, "ARGS", args).Replace(steps))
	}
	c := must.Get(read("inputs: {limit: integer}, ", `{q: "{inputs.query}", l: ["{inputs.limit}", "at {inputs.place} in {inputs.query}"], x: "{{inputs.no}}", "{inputs.key}": 1}`))(t)
	var got []string
	for _, input := range c.Views[0].Composites[0].Inputs {
		got = append(got, fmt.Sprint(input.Name, " ", string(input.Schema), " ", input.Required))
	}
	if want := []string{`limit {"type":"integer"} false`, `query {"type":"string"} true`, `place {"type":"string"} true`}; !slices.Equal(got, want) {
		t.Errorf("inputs %q, want %q", got, want)
	}
	if len(c.Warnings) != 2 || !strings.Contains(c.Warnings[0].Error(), `composite_tools.t: the input "query" is not declared: it is a required string (write inputs: {query: string})`) {
		t.Errorf("warnings: %v", Errors(c.Warnings))
	}
	if c, err := read("", `{q: "{inputs.q}"}`); err != nil || len(c.Views[0].Composites[0].Inputs) != 1 {
		t.Errorf("without any: %v", err)
	}
	if _, err := read("inputs: {query: string}, ", `{q: "{inputs.qurey}"}`); err == nil || !strings.Contains(err.Error(), `there is no input "qurey" (did you mean "query"?)`) {
		t.Errorf("misspelt: %v", err)
	}
}

// A step names its tool as server.tool, server:tool or by an exposed name.
func TestStepsNameTools(t *testing.T) {
	for name, want := range map[string]string{
		"a.b": "", "a:b": "", "a_b": "", "whatever": "", "a:x.y": "", "c:d:e": "",
		"off:b": "disabled", "off_b": "disabled", "off_on_b": "",
		"b.a":  `did you mean "a.a"?`,
		"b:a":  `did you mean "a:a"?`,
		"a:":   "the name of a tool is missing",
		"a b":  "must be server.tool",
		"a__b": "",
	} {
		text := "mcp_servers: {a: {command: a}, off: {command: a, enabled: false}, off_on: {command: a}, \"c:d\": {command: a}}\n" +
			"tool_views: {v: {composite_tools: {t: {parallel: {one: {tool: \"" + name + "\"}}}}}}\n"
		c, err := load(t, text)
		said := ""
		if err != nil {
			said = err.Error()
		} else if len(c.Warnings) > 0 {
			said = Errors(c.Warnings).Error()
		}
		if want == "" && said != "" || !strings.Contains(said, want) || err == nil && want == "" && c.Views[0].Composites[0].Steps[0].Tool != name {
			t.Errorf("%q: %s, want %q", name, said, want)
		}
	}
}

// What a disabled server would bring is left out and said; nothing else of a
// view is.
func TestViewsWarn(t *testing.T) {
	c := mustLoad(t, `
mcp_servers:
  a: {command: a}
  off: {command: a, enabled: false, tools: {x: {name: same}, y: {name: other, title: "${UNSET}"}}, output_cache: true}
tool_views:
  a: # as a server, with a tool of its own
    tools: {a: {x: {name: same}}, off: {y: {name: same}}}
    composite_tools:
      here: {parallel: {one: {tool: a.b}, two: {tool: off.b}}}
      gone: {parallel: {two: {tool: off.b}}}
  bare: {}
  hidden: {tools: {a: {x: {enabled: false}}}, exclude: [a.y], run_script: true}
  left: {tools: {a: {}}, include_all: true}
  deaf: {tools: {a: {x: {parameters: {p: {hidden: true, description: d}}}}}}
`)
	const want = `toolfinch.yaml:7:35: view "a": tools: server "off" is disabled: its tools are left out
toolfinch.yaml:9:55: view "a": composite_tools.here.parallel.two: server "off" is disabled: the step is left out
toolfinch.yaml:10:37: view "a": composite_tools.gone.parallel.two: server "off" is disabled: the step is left out
toolfinch.yaml:11:3: view "bare" has nothing in it (name tools under tools, or write include_all: true)
toolfinch.yaml:12:3: view "hidden" has nothing in it (name tools under tools, or write include_all: true)
toolfinch.yaml:12:56: view "hidden": exclude is not used without include_all or a pattern of tools
toolfinch.yaml:13:18: view "left": tools.a names no tools (include_all has brought them already)
toolfinch.yaml:14:70: view "deaf": tools.a.x.parameters.p: the description is not used, the parameter is hidden`
	if got := Errors(c.Warnings).Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if v := c.Views[0]; len(v.Tools) != 1 || len(v.Composites) != 1 || len(v.Composites[0].Steps) != 1 || len(c.Tools) != 0 {
		t.Errorf("%+v, tools %+v", v, c.Tools)
	}
}

// A view's own tools keep their names, those of other views and modes are free.
func TestNamesOfAViewsOwnTools(t *testing.T) {
	const servers = `
mcp_servers:
  git.hub: {command: a}
  git_hub: {command: a}
  off: {command: a, enabled: false}
tool_views:
  my-view:
    %s
    tools: {git.hub: {a: {name: %s}}, off: {}}
    composite_tools: {c: {parallel: {one: {tool: git_hub.b}}}}
`
	const search, each = "exposure_mode: search", "exposure_mode: search_per_server"
	for _, test := range []struct {
		mode, name string
		own        bool
	}{
		{search, "my-view_search_tools", true},
		{search, "my-view_describe_tool", true},
		{search, "my-view_call_tool", true},
		{search, "my-view_find_tools", false},
		{search, "other_search_tools", false},
		{search, "git_hub_search_tools", false},
		{each, "git_hub_search_tools", true},
		{each, "git_hub_call_tool", true},
		{each, "2_git_hub_call_tool", false}, // there is but one of that name
		{each, "off_call_tool", false},
		{each, "my-view_search_tools", false},
		{each + "\n    include_all: true", "2_git_hub_call_tool", true},
		{"exposure_mode: direct", "my-view_search_tools", false},
		{"exposure_mode: auto", "git_hub_call_tool", false},
	} {
		_, err := load(t, fmt.Sprintf(servers, test.mode, test.name))
		const want = `view "my-view": tools.git.hub.a.name is the name of one of toolfinch's own tools: `
		if own := err != nil && strings.Contains(err.Error(), want); own != test.own || err != nil && !own {
			t.Errorf("%s, %s: %v, want it refused: %v", test.mode, test.name, err, test.own)
		}
	}
	_, err := loadWith(t, minimal+`
tool_views:
  v:
    exposure_mode: search
    composite_tools: {v_call_tool: {parallel: {one: {tool: a.b}}}}
    custom_tools: [{module: "h.star:f", name: v_search_tools}, "h.star:v_describe_tool"]
`, []string{"h.star"})
	for _, what := range []string{"composite_tools.v_call_tool", "custom_tools[0].name", "custom_tools[1]: its function"} {
		if err == nil || !strings.Contains(err.Error(), `view "v": `+what+" is the name of one of toolfinch's own tools") {
			t.Errorf("%s is not refused: %v", what, err)
		}
	}
}

func TestReservedNamesAreThoseOfTheMetaTools(t *testing.T) {
	for _, name := range append(retrieve.Reserved(), output.Name) {
		if !slices.Contains(reservedNames, name) {
			t.Errorf("%s may be given to a tool", name)
		}
	}
}

func TestSearchNamesAreThoseOfTheTools(t *testing.T) {
	for _, prefix := range []string{"a", "a.b c/d", "é", strings.Repeat("long.", 20)} {
		if got, want := searchNames(prefix), retrieve.SearchNames(prefix); !slices.Equal(got, want) {
			t.Errorf("searchNames(%q) = %q, want %q", prefix, got, want)
		}
	}
}

// JSON says what YAML says, types and order kept.
func TestViewsInJSON(t *testing.T) {
	text := `{
	"mcpServers": {"a": {"command": "a"}},
	"tool_views": {"v": {"tools": {"a": {"x": {"parameters": {
		"p": {"value": {"z": 9007199254740993, "a": 1.0, "e": 1e400, "s": "\u00fc"}},
		"q": {"default": null},
	}}}}}}, // as editors write it
}`
	c := must.Get(loadAll(Options{Dir: write(t, "toolfinch.json", text), Path: "toolfinch.json", Env: environ()}))(t)
	p := c.Views[0].Tools[0].Tools[0].Parameters
	if got, want := string(p[0].Value), `{"z":9007199254740993,"a":1.0,"e":1e400,"s":"ü"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if string(p[1].Default) != "null" || p[1].Value != nil {
		t.Errorf("default %s, value %s", p[1].Default, p[1].Value)
	}
}

// Templates are those of package view.
func TestCheckTemplate(t *testing.T) {
	tests := []struct{ text, want string }{
		{"", ""}, {"a", ""}, {"{inputs.q}", ""}, {"a {inputs.q}{inputs.two words} b", ""}, {"{{inputs.x}}", ""}, {"{{{inputs.q}}}", ""},
		{"{inputs.x}", `there is no input "x"`}, {"{inputs.}", `there is no input ""`}, {"{inputs}", `"{inputs}" is no input`},
		{"{q}", `"{q}" is no input`}, {"{", "a { is not closed"}, {"a } b", "a } closes nothing"}, {"{inputs.q}}", "a } closes nothing"},
		{"{inputs.q", "a { is not closed"},
	}
	for _, tt := range tests {
		if got, _ := checkTemplate(tt.text, []string{"q", "two words"}); got != tt.want {
			t.Errorf("checkTemplate(%q) = %q, want %q", tt.text, got, tt.want)
		}
	}
}

// Aliases of aliases are a value like others until they have no end.
func TestEndlessValue(t *testing.T) {
	var text strings.Builder
	text.WriteString(minimal + "x-0: &x0 [aaaaaaaaaaaaaaaa]\n")
	for i := range 30 {
		fmt.Fprintf(&text, "x-%[2]d: &x%[2]d [*x%[1]d, *x%[1]d]\n", i, i+1)
	}
	for _, place := range []string{
		"tools: {a: {t: {parameters: {p: {value: *x30}}}}}",
		"composite_tools: {c: {inputs: {q: {enum: *x30}}, parallel: {s: {tool: a.t}}}}",
		"composite_tools: {c: {parallel: {s: {tool: a.t, args: {x: *x30}}}}}",
	} {
		_, err := load(t, text.String()+"tool_views: {v: {"+place+"}}\n")
		if err == nil || !strings.Contains(err.Error(), "is larger than 1 MiB") {
			t.Errorf("%s: got %v", place, err)
		}
	}
}

// Values nest as deep as YAML may, in JSON too.
func TestDeepValue(t *testing.T) {
	for depth, fails := range map[int]bool{90: false, 110: true, 5000: true} {
		value := strings.Repeat("[", depth) + strings.Repeat("]", depth)
		text := `{"mcp_servers": {"a": {"command": "a"}}, "tool_views": {"v": {"tools": {"a": {"t": {"parameters": {"p": {"value": ` + value + `}}}}}}}}`
		c, err := loadAll(Options{Dir: write(t, "toolfinch.json", text), Path: "toolfinch.json", Env: environ()})
		if (err != nil) != fails {
			t.Errorf("%d levels: %v, %v", depth, c, err)
		}
	}
}

// The servers that could not be read are not missed.
func TestOneErrorForBrokenServers(t *testing.T) {
	_, err := load(t, "mcp_servers: [a]\ntool_views: {v: {tools: {a: {t: {}}}, composite_tools: {c: {parallel: {s: {tool: a.t}}}}}}\n")
	if errs, _ := err.(Errors); len(errs) != 1 {
		t.Errorf("got %v", err)
	}
}

// The views of the example are good too, once their files are there.
func TestExampleViews(t *testing.T) {
	before, views, found := strings.Cut(Example(), "# tool_views:")
	if !found {
		t.Fatal("the example shows no views")
	}
	views = "tool_views:" + regexp.MustCompile(`(?m)^# `).ReplaceAllString(views, "")
	before = regexp.MustCompile(`(?m)^    # (tools:|  move_file:|output_cache:)`).ReplaceAllString(before, "    $1")
	before = strings.Replace(before, "# principal_header:", "principal_header:", 1)
	c := must.Get(loadWith(t, before+views, []string{"hooks/example.star"}))(t)
	if len(c.Warnings) > 0 || len(c.Views) != 1 || len(c.Tools) != 1 || c.Tools[0].Output == nil || c.PrincipalHeader == "" {
		t.Errorf("warnings %v, views %+v, tools %+v", Errors(c.Warnings), c.Views, c.Tools)
	}
	var keys []string
	keys = append(keys, viewKeys.names()...)
	keys = append(keys, overrideKeys.names()...)
	keys = append(keys, parameterKeys.names()...)
	keys = append(keys, outputCache.section.names()...)
	keys = append(keys, hooksKeys.names()...)
	keys = append(keys, hookKeys.names()...)
	keys = append(keys, compositeKeys.names()...)
	keys = append(keys, stepKeys.names()...)
	keys = append(keys, customKeys.names()...)
	keys = append(keys, gatingKeys.names()...)
	keys = append(keys, proxyToolKeys.names()...)
	for _, key := range keys {
		if !regexp.MustCompile(`\b`+key+`: `).MatchString(views) && !regexp.MustCompile(`\b`+key+`:\n`).MatchString(views) &&
			!strings.Contains(before, key+": ") {
			t.Errorf("the example does not show %s", key)
		}
	}
}

// Nothing that came from a variable stands in a message about a view.
func TestNoSecretsInViewErrors(t *testing.T) {
	const secret = "hunter2"
	text := minimal + `
hook_headers: ["${S} "]
principal_header: "${S} "
tool_views:
  v:
    exposure_mode: ${S}
    direct_below: ${S}
    include_all: ${S}
    exclude: ["[${S}"]
    tools:
      a:
        x: {name: "${S}!", output_cache: "${S}", parameters: {p: {rename: "${S}", hidden: "${S}"}}}
        y: {name: "${S}"}
        z: {name: "${S}", output_cache: {min_size: "${S}", ttl: "${S}"}}
    hooks: {pre_call: "${S}", post_call: "${S}/x.star:f", on_error: "${S}", timeout: "${S}"}
    composite_tools:
      c: {inputs: {q: "${S}"}, on_error: "${S}", parallel: {s: {tool: "${S}.x", timeout: "${S}"}}}
    custom_tools: ["${S}", {module: "${S}:f", name: "${S} ", max_steps: "${S}"}]
    run_script: "${S}"
    gating: {enabled: "${S}", max_tokens: "${S}", max_tools: "${S}", ttl: "${S}"}
    proxy_tool: "${S}!"
  w: {include_all: true, gating: "${S}", proxy_tool: {name: "${S} "}}
  x: {include_all: true, proxy_tool: "${S}", composite_tools: {hunter2: {parallel: {s: {tool: a.x}}}}}
`
	_, err := load(t, text, "S="+secret)
	if err == nil {
		t.Fatal("accepted")
	}
	if strings.Contains(err.Error(), secret) {
		t.Errorf("the secret is out:\n%v", err)
	}
	if !strings.Contains(err.Error(), "the proxy tool has the name of another tool") {
		t.Errorf("a name from a variable is not compared:\n%v", err)
	}
}

func TestViewsDifferInMoreThanCase(t *testing.T) {
	for views, want := range map[string]string{
		"{a: {include_all: true}, b: {include_all: true}, default: {include_all: true}}": "",
		"{a: {include_all: true}, A: {include_all: true}}":                               `toolfinch.yaml:2:38: views "a" and "A" differ in case only`,
		"{Default: {include_all: true}}":                                                 `toolfinch.yaml:2:14: views "default" and "Default" differ in case only`,
	} {
		_, err := load(t, "mcp_servers: {s: {command: x}}\ntool_views: "+views)
		if got := fmt.Sprint(err); want == "" && err != nil || want != "" && got != want {
			t.Errorf("%s: %v, want %s", views, got, want)
		}
	}
}
