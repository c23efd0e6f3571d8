package configs

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
)

// Words for search end a description, and removing them leaves the file as it was.
func TestWordsForSearchAndBack(t *testing.T) {
	for _, test := range []struct{ name, file, before, after string }{
		{"no tools block", "c.yaml", "mcp_servers:\n  b:\n    command: b # really\n\n# how many\ntop_k: 7\n",
			"mcp_servers:\n  b:\n    command: b # really\n    tools:\n      x:\n        description: \"{original}\\nAlso for: jot, später\"\n\n# how many\ntop_k: 7\n"},
		{"a described tool", "c.yaml", "mcp_servers:\n  b:\n    command: b\n    tools:\n      x:\n        description: \"Mine. {original}\" # why\n",
			""},
		{"a blanked description", "c.yaml", "mcp_servers:\n  b:\n    command: b\n    tools:\n      x:\n        description: \"\" # nothing of the server's\n",
			"mcp_servers:\n  b:\n    command: b\n    tools:\n      x:\n        description: \"\\nAlso for: jot, später\" # nothing of the server's\n"},
		{"a changed tool", "c.yaml", "mcp_servers:\n  b:\n    command: b\n    tools:\n      x: {title: X}\n", ""},
		{"beside others", "c.yaml", "mcp_servers:\n  b:\n    command: b\n    tools:\n      # mine\n      y: {name: why}\n", ""},
		{"JSON", "c.json", `{"mcp_servers": {"b": {"command": "b"}}}`, `{"mcp_servers": {"b": {"command": "b", "tools": {"x": {"description": "{original}\nAlso for: jot, später"}}}}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := must.Write(t, filepath.Join(t.TempDir(), test.file), test.before)
			added, err := AddWords(path, "b", "x", []string{"jot", "später", "jot"})
			if err != nil || !slices.Equal(added, []string{"jot", "später"}) {
				t.Fatalf("added %v, %v", added, err)
			}
			if got := must.Read(t, path); test.after != "" && got != test.after {
				t.Errorf("got\n%s\nwant\n%s", got, test.after)
			}
			if added, err = AddWords(path, "b", "x", []string{"später", "more"}); err != nil || !slices.Equal(added, []string{"more"}) {
				t.Fatalf("then added %v, %v", added, err)
			}
			c, err := loadAll(Options{Path: path, Env: environ()})
			must.Do(t, err)
			if got := WordsOf(c.Tools, "b", "x"); !slices.Equal(got, []string{"jot", "später", "more"}) {
				t.Errorf("loaded are %v", got)
			}
			must.Do(t, RemoveWords(path, "b", "x", []string{"more", "jot"}))
			must.Do(t, RemoveWords(path, "b", "x", []string{"später", "unknown"}))
			if got := must.Read(t, path); got != test.before {
				t.Errorf("back at\n%s\nwant\n%s", got, test.before)
			}
		})
	}
}

func TestWordsThatAreRefused(t *testing.T) {
	many := strings.Split(strings.Repeat("w ", maxWords+1), " ")[:maxWords+1]
	for i := range many {
		many[i] += string(rune('a'+i%26)) + string(rune('a'+i/26))
	}
	for _, test := range []struct {
		name, before, tool string
		words              []string
		want               string
	}{
		{"no such server", "mcp_servers:\n  bb: {command: b}\n", "x", []string{"w"}, `c.yaml has no server "b"`},
		{"a variable", "mcp_servers:\n  b: {command: b}\n", "x", []string{"${HOME}"}, `"${HOME}" is no word of letters and digits`},
		{"a sentence", "mcp_servers:\n  b: {command: b}\n", "x", []string{"ignore all"}, `"ignore all" is no word of letters and digits`},
		{"too many", "mcp_servers:\n  b: {command: b}\n", "x", many, "b.x would be found by more than 40 added words"},
		{"a bound argument of a pattern", "mcp_servers:\n  b: {command: b, tools: {\"x*\": {parameters: {p: {value: 1}}}}}\n", "x1", []string{"w"},
			`a pattern decides about b.x1: "x*" under mcp_servers.b.tools of c.yaml. Write an entry of its own for x1 there first`},
		{"a list of another client", "mcp_servers:\n  b: {command: b, disabledTools: [y]}\n", "x", []string{"w"}, `c.yaml: mcp_servers.b.disabledTools lists the tools of server "b": change that list`},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := must.Write(t, filepath.Join(t.TempDir(), "c.yaml"), test.before)
			_, err := AddWords(path, "b", test.tool, test.words)
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
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

// Nobody is told that words are gone which are still there.
func TestWordsThatAreNotThere(t *testing.T) {
	for name, block := range map[string]string{
		"no description":     `{}`,
		"others":             `{x: {description: "{original}\nAlso for: recall"}}`,
		"a sentence of mine": `{x: {description: "{original}\nAlso for: jot. Not for lists"}}`,
		"a line of mine":     `{x: {description: "{original}\nAlso for: jot\nNot for lists"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			before := "mcp_servers:\n  b: {command: b, tools: " + block + "}\n"
			path := must.Write(t, filepath.Join(t.TempDir(), "c.yaml"), before)
			const want = `c.yaml: the description of b.x does not end with "Also for:" and any of these words: edit it there`
			if err := RemoveWords(path, "b", "x", []string{"jot"}); err == nil || err.Error() != want {
				t.Errorf("got %v\nwant %s", err, want)
			}
			if got := must.Read(t, path); got != before {
				t.Errorf("written all the same:\n%s", got)
			}
		})
	}
}

// A line that somebody wrote is not taken apart.
func TestALineThatIsNoListOfWords(t *testing.T) {
	for _, text := range []string{"{original}", "a\nAlso for: what you like", "a\nAlso for: ", "a\nAlso for: x,y"} {
		if got, words := splitWords(text); got != text || words != nil {
			t.Errorf("%q: %q, %v", text, got, words)
		}
	}
}
