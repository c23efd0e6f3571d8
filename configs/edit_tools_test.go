package configs

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/view"
)

// A hidden tool is one key in the file, and showing it again leaves the file as it was.
func TestHidingToolsAndBack(t *testing.T) {
	tests := []struct{ name, file, before, hidden string }{
		{"no tools block", "c.yaml", "mcp_servers:\n  b:\n    command: b # really\n\n# how many\ntop_k: 7\n",
			"mcp_servers:\n  b:\n    command: b # really\n    tools:\n      x:\n        enabled: false\n\n# how many\ntop_k: 7\n"},
		{"beside others", "c.yaml", "mcp_servers:\n  b:\n    command: b\n    tools:\n      # mine\n      y: {name: why}\n",
			"mcp_servers:\n  b:\n    command: b\n    tools:\n      # mine\n      y: {name: why}\n      x:\n        enabled: false\n"},
		{"a changed tool", "c.yaml", "mcp_servers:\n  b:\n    command: b\n    tools:\n      x: {title: X}\n",
			"mcp_servers:\n  b:\n    command: b\n    tools:\n      x: {title: X, enabled: false}\n"},
		{"braces", "c.yaml", "mcp_servers:\n  b: {command: b} # b\n", "mcp_servers:\n  b: {command: b, tools: {x: {enabled: false}}} # b\n"},
		{"below a pattern", "c.yaml", "mcp_servers:\n  b:\n    command: b\n    tools:\n      \"*\": {output_cache: true}\n",
			"mcp_servers:\n  b:\n    command: b\n    tools:\n      \"*\": {output_cache: true}\n      x:\n        enabled: false\n"},
		{"JSON", "c.json", `{"mcp_servers": {"b": {"command": "b"}}}`, `{"mcp_servers": {"b": {"command": "b", "tools": {"x": {"enabled": false}}}}}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := must.Write(t, filepath.Join(t.TempDir(), test.file), test.before)
			edit := func(hidden bool, want string) {
				t.Helper()
				if changed, err := SetHidden(path, "b", "x", hidden); !changed || err != nil {
					t.Fatalf("hidden %v: %v, %v", hidden, changed, err)
				}
				if got := must.Read(t, path); got != want {
					t.Errorf("hidden %v: got\n%s\nwant\n%s", hidden, got, want)
				}
				if changed, err := SetHidden(path, "b", "x", hidden); changed || err != nil {
					t.Errorf("hidden %v, again: %v, %v", hidden, changed, err)
				}
				c, err := loadAll(Options{Path: path, Env: environ()})
				if must.Do(t, err); slices.ContainsFunc(c.Tools, func(of view.UpstreamTools) bool { return view.HiddenBy(of.Tools, "x") != nil }) != hidden {
					t.Errorf("hidden %v: loaded as %+v", hidden, c.Tools)
				}
			}
			edit(true, test.hidden)
			edit(false, test.before)
		})
	}
}

func TestHidingThatIsRefused(t *testing.T) {
	hide := func(server, name string, hidden bool) func(string) error {
		return func(path string) error { _, err := SetHidden(path, server, name, hidden); return err }
	}
	tests := []struct {
		name, before string
		edit         func(path string) error
		want         string
	}{
		{"no such server", "mcp_servers:\n  github: {command: b}\n", hide("githb", "x", true), `c.yaml has no server "githb" (did you mean "github"?)`},
		{"a pattern", "mcp_servers:\n  b: {command: b}\n", hide("b", "x*", true), "c.yaml: the name of tool \"x*\" reads as a pattern: write it under mcp_servers.b.tools, with \\ before each of * ? [ \\"},
		{"a pattern hides it", "mcp_servers:\n  b: {command: b, tools: {\"x*\": {enabled: false}}}\n", hide("b", "x1", false),
			`a pattern decides about b.x1: "x*" under mcp_servers.b.tools of c.yaml hides it; change the pattern there`},
		{"a pattern hides it, too", "mcp_servers:\n  b: {command: b, tools: {\"x*\": {enabled: false}, x1: {enabled: false}}}\n", hide("b", "x1", false),
			`a pattern decides about b.x1: "x*" under mcp_servers.b.tools of c.yaml hides it, too; change the pattern there`},
		{"showing a pattern", "mcp_servers:\n  b: {command: b, tools: {\"*\": {enabled: false}, x: {enabled: true}}}\n", hide("b", "*", false),
			`a pattern decides about b.*: "*" under mcp_servers.b.tools of c.yaml hides it; change the pattern there`},
		{"a list of another client", "mcp_servers:\n  b: {command: b, disabledTools: [y]}\n", hide("b", "x", true), `c.yaml: mcp_servers.b.disabledTools lists the tools of server "b": change that list`},
		{"a list called tools", "mcp_servers:\n  b: {command: b, tools: [y]}\n", hide("b", "x", true), `c.yaml: mcp_servers.b.tools lists the tools of server "b": change that list`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := must.Write(t, filepath.Join(t.TempDir(), "c.yaml"), test.before)
			err := test.edit(path)
			if err == nil || err.Error() != test.want {
				t.Errorf("got %v\nwant %s", err, test.want)
			}
			if strings.HasPrefix(test.want, ErrPattern.Error()) && !errors.Is(err, ErrPattern) {
				t.Errorf("%v is no ErrPattern", err)
			}
			if got := must.Read(t, path); got != test.before {
				t.Errorf("written all the same:\n%s", got)
			}
		})
	}
}

// Every row that takes a list of tools is one of toolLists: there an edit of the tools block would not count.
func TestToolListsAreAllKnown(t *testing.T) {
	for key := range rows {
		path := must.Write(t, filepath.Join(t.TempDir(), "c.yaml"), "mcp_servers:\n  b: {command: b, "+key+": [y]}\n")
		c, err := loadAll(Options{Path: path, Env: environ()})
		if err != nil || len(c.Tools) == 0 || len(c.Tools[0].Tools) == 0 {
			continue
		}
		if _, err := SetHidden(path, "b", "x", true); err == nil {
			t.Errorf("%s chooses tools, and SetHidden edits the tools block beside it", key)
		}
	}
}
