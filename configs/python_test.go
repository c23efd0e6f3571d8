package configs

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"toolfinch/view"
	"toolfinch/view/python"
)

// A dotted path is Python, a colon behind a file is Starlark: nothing is both.
func TestHooksAndToolsAreNamedByOneSpelling(t *testing.T) {
	const start = "mcp_servers: {a: {command: a}}\ntool_views:\n  v:\n    include_all: true\n    "
	for text, want := range map[string]string{
		"hooks: {pre_call: hooks.memory.inject}":                                           "python hooks.memory.inject",
		"hooks: {pre_call: {python: hooks.memory.inject, timeout: 1s}}":                    "python hooks.memory.inject",
		"hooks: {pre_call: hooks/a.star:pre_call}":                                         "starlark pre_call",
		"custom_tools: [{module: hooks.custom_tools.contextual_search}]":                   "python hooks.custom_tools.contextual_search",
		"custom_tools: [hooks.custom_tools.contextual_search]":                             "python hooks.custom_tools.contextual_search",
		"custom_tools: [hooks/a.star:one]":                                                 "starlark one",
		"hooks: {pre_call: inject}":                                                        `not "inject" (like hooks/example.star:function, or hooks.example.function for Python)`,
		"hooks: {pre_call: hooks.star}":                                                    `not "hooks.star" (like`,
		"hooks: {pre_call: hooks/memory.py:inject}":                                        `(Python is named by a dotted path, like hooks.memory.inject)`,
		"hooks: {pre_call: hooks/memory.py}":                                               `(Python is named by a dotted path, like hooks.memory.function)`,
		"hooks: {pre_call: {python: memory:inject}}":                                       `must be a dotted path of Python, not "memory:inject"`,
		"hooks: {pre_call: {python: a.b, command: [x]}}":                                   "hooks.pre_call has python beside starlark or command (keep one)",
		"custom_tools: [{module: hooks.a.one, name: same}, {module: hooks.b, name: same}]": "custom_tools[1].name is the name of another tool already",
	} {
		c, err := loadWith(t, start+text+"\n", []string{"hooks/a.star"})
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", text, err, want)
			}
			continue
		}
		got := ""
		for _, h := range []*view.Hook{c.Views[0].Hooks.PreCall} {
			if h != nil && h.Python != "" {
				got = "python " + h.Python
			} else if h != nil {
				got = "starlark " + h.Function
			}
		}
		for _, custom := range c.Views[0].Customs {
			if got = "starlark " + custom.Function; custom.Python != "" {
				got = "python " + custom.Python
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
		if resolved := c.Resolved(); !strings.Contains(resolved, got[strings.IndexByte(got, ' ')+1:]) {
			t.Errorf("%s: resolved\n%s", text, resolved)
		}
	}
}

func TestTheInterpreterOfPython(t *testing.T) {
	for text, want := range map[string]python.Settings{
		"":                 {},
		"python: python3":  {Command: "python3"},
		"python: bin/hook": {Command: "DIR/bin/hook"},
		"python: {command: bin/hook, env: {A: b}, inherit_env: [X_*]}": {Command: "DIR/bin/hook", Env: map[string]string{"A": "b"}, InheritEnv: []string{"X_*"}},
	} {
		c, err := loadWith(t, "mcp_servers: {a: {command: a}}\n"+text+"\n", []string{"bin/hook"})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		dir := filepath.Dir(c.Path)
		want.Dir, want.Command = dir, strings.Replace(filepath.FromSlash(want.Command), "DIR", dir, 1)
		if !reflect.DeepEqual(c.Python, want) {
			t.Errorf("%s: %+v, want %+v", text, c.Python, want)
		}
	}
	if _, err := loadWith(t, "mcp_servers: {a: {command: a}}\npython: .venv/bin/python\n", nil); err == nil || !strings.Contains(err.Error(), "python names a program that is not there") {
		t.Error(err)
	}
}
