package main

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/tool"
)

func TestKeywordQueries(t *testing.T) {
	var defs []*tool.Def
	for _, raw := range []string{
		`{"name":"create_issue","description":"Create a new issue in a GitHub repository. More text.","inputSchema":{"properties":{"title":{},"repoName":{}}}}`,
		`{"name":"closePullRequest","description":"Closes a pull request without merging it"}`,
		`{"name":"list-labels","description":"Enumerates the labels of a repository"}`,
		`{"name":"x"}`,
	} {
		defs = append(defs, must.Get(tool.ParseDef("github-mcp-server", json.RawMessage(raw)))(t))
	}
	first := keywordQueries(defs, 1)
	if again := keywordQueries(defs, 1); !reflect.DeepEqual(first, again) {
		t.Errorf("one seed makes\n%v\nand\n%v", first, again)
	}
	forms := map[string]bool{}
	for seed := range uint64(60) {
		for _, e := range keywordQueries(defs, seed) {
			about := e.Relevant[0]
			said := words(e.Text)
			known := slices.Concat(words(string(defs[about].Raw)), words("github name or"))
			for _, other := range e.Relevant[1:] {
				known = append(known, words(defs[other].ID.Name)...)
			}
			for _, word := range said {
				if !slices.Contains(known, word) && !isAnotherVerb(word, known) {
					t.Errorf("%q for %s: nothing says %q", e.Text, defs[about].ID.Name, word)
				}
			}
			if len(said) < 2 {
				t.Errorf("%q is no query", e.Text)
			}
			if slices.Contains(said, "mcp") || slices.Contains(said, "more") {
				t.Errorf("%q has noise, or what follows the first sentence", e.Text)
			}
			if about == 0 {
				forms[e.Text] = true
			}
		}
	}
	if len(forms) < 30 {
		t.Errorf("60 seeds make %d different queries for one tool", len(forms))
	}
}

func isAnotherVerb(word string, known []string) bool {
	for _, other := range known {
		for _, verb := range verbs[strings.TrimSuffix(other, "s")] {
			if slices.Contains(strings.Split(verb, "-"), word) {
				return true
			}
		}
	}
	return false
}
