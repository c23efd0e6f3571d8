package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"toolfinch/embed/hf"
	"toolfinch/embed/models"
	"toolfinch/internal/must"
	"toolfinch/tool"
)

func TestKeywordQueries(t *testing.T) {
	var defs []*tool.Def
	for i, raw := range []string{
		`{"name":"create_issue","description":"Create a new issue in a GitHub repository. More text.","inputSchema":{"properties":{"title":{},"repoName":{}}}}`,
		`{"name":"closePullRequest","description":"Closes a pull request without merging it"}`,
		`{"name":"list-labels","description":"Enumerates the labels of a repository"}`,
		`{"name":"x"}`,
	} {
		def, err := tool.ParseDef("github-mcp-server", json.RawMessage(raw))
		if err != nil {
			t.Fatalf("tool %d: %v", i, err)
		}
		defs = append(defs, def)
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

// A set becomes what train.py reads, and what that writes is an adapter of the model.
func TestTraining(t *testing.T) {
	dir, err := models.Locate(models.DefaultModel)
	if err != nil {
		if os.Getenv("TOOLFINCH_TEST_REQUIRE") == "all" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	builds := must.Get(exec.Command("go", "env", "GOCACHE").Output())(t)
	t.Setenv("GOCACHE", strings.TrimSpace(string(builds)))
	t.Setenv("MCPPROXY_MODELS_DIR", filepath.Dir(dir))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	set, data := t.TempDir(), t.TempDir()
	var tools, queries strings.Builder
	for i, thing := range []string{"issue", "invoice", "flight", "song", "recipe", "photo"} {
		fmt.Fprintf(&tools, `{"server":"s%d","name":"create_%s","description":"Creates a new %s for the user.","inputSchema":{}}`+"\n", i, thing, thing)
		fmt.Fprintf(&queries, `{"query":"I want another %s","relevant":["s%d:create_%s","s9:gone"]}`+"\n", thing, i, thing)
	}
	for name, text := range map[string]string{"tools.jsonl": tools.String(), "queries.jsonl": queries.String()} {
		must.Do(t, os.WriteFile(filepath.Join(set, name), []byte(text), 0o600))
	}
	must.Do(t, run(t.Context(), data, 0, []string{"mine=" + set}))
	if info, err := os.Stat(filepath.Join(data, "mine.tools")); err != nil || info.Size() != 6*384*4 {
		t.Errorf("the vectors of 6 tools: %v, %v", info, err)
	}
	for i, e := range examplesIn(t, filepath.Join(data, "mine.queries")) {
		if !slices.Equal(e.Relevant, []int{i}) || e.Tokens[0] != 101 || e.Tokens[len(e.Tokens)-1] != 102 {
			t.Errorf("query %d is %+v", i, e)
		}
	}
	if n := len(examplesIn(t, filepath.Join(data, "mine.keywords"))); n < 5 {
		t.Errorf("%d keyword queries for 6 tools", n)
	}

	python := pythonWithTorch()
	if python == "" {
		t.Skip("the rest needs Python with torch (Debian: python3-torch)")
	}
	out := filepath.Join(data, "mine.safetensors")
	train := exec.CommandContext(t.Context(), python, "train.py", "--data", data, "--out", out, "--steps", "2", "mine="+set)
	if text, err := train.CombinedOutput(); err != nil {
		t.Fatalf("train.py: %v\n%s", err, text)
	}
	adapter := must.Get(os.ReadFile(out))(t)
	model := must.Get(hf.Open(dir))(t)
	defer model.Close()
	if err := model.Adapt(adapter); err != nil {
		t.Error(err)
	}
}

func examplesIn(t *testing.T, name string) (all []example) {
	t.Helper()
	file := must.Get(os.Open(name))(t)
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var e example
		must.Do(t, json.Unmarshal(lines.Bytes(), &e))
		all = append(all, e)
	}
	return all
}

func pythonWithTorch() string {
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(python, "-c", "import torch").Run() == nil {
			return python
		}
	}
	return ""
}
