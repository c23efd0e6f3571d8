package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolfinch/embed/hf"
	"toolfinch/embed/models"
	"toolfinch/internal/must"
)

// A set becomes what train.py reads, and train.py writes an adapter of the model.
func TestAnAdapterIsTrained(t *testing.T) {
	t.Setenv("MCPPROXY_MODELS_DIR", os.Getenv("TOOLFINCH_TEST_MODELS"))
	dir, err := models.Locate(models.DefaultModel)
	if err != nil {
		missing(t, "%v", err)
	}
	cache := must.Get(exec.Command("go", "env", "GOCACHE").Output())(t)
	t.Setenv("GOCACHE", strings.TrimSpace(string(cache)))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	run := func(name string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = "."
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
	}
	set, data := t.TempDir(), t.TempDir()
	var tools, queries strings.Builder
	for i, thing := range []string{"issue", "invoice", "flight", "song", "recipe", "photo"} {
		fmt.Fprintf(&tools, `{"server":"s%d","name":"create_%s","description":"Creates a new %s for the user.","inputSchema":{}}`+"\n", i, thing, thing)
		fmt.Fprintf(&queries, `{"query":"I want another %s","relevant":["s%d:create_%s","s9:gone"]}`+"\n", thing, i, thing)
	}
	must.Write(t, filepath.Join(set, "tools.jsonl"), tools.String())
	must.Write(t, filepath.Join(set, "queries.jsonl"), queries.String())
	run("go", "run", "./adapter", "--out", data, "mine="+set)
	if info, err := os.Stat(filepath.Join(data, "mine.tools")); err != nil || info.Size() != 6*384*4 {
		t.Errorf("the vectors of 6 tools: %v, %v", info, err)
	}
	for i, line := range bytes.Split(bytes.TrimSpace([]byte(must.Read(t, filepath.Join(data, "mine.queries")))), []byte("\n")) {
		var e struct {
			Tokens   []int32
			Relevant []int
		}
		must.Do(t, json.Unmarshal(line, &e))
		if !slices.Equal(e.Relevant, []int{i}) || e.Tokens[0] != 101 || e.Tokens[len(e.Tokens)-1] != 102 {
			t.Errorf("query %d is %s", i, line)
		}
	}
	if n := strings.Count(must.Read(t, filepath.Join(data, "mine.keywords")), "\n"); n < 5 {
		t.Errorf("%d keyword queries for 6 tools", n)
	}

	pythons := []string{"python3", "/usr/bin/python3"}
	python := slices.IndexFunc(pythons, func(python string) bool { return exec.Command(python, "-c", "import torch").Run() == nil })
	if python < 0 {
		t.Skip("the rest needs Python with torch (Debian: python3-torch)")
	}
	out := filepath.Join(data, "mine.safetensors")
	run(pythons[python], "adapter/train.py", "--data", data, "--out", out, "--steps", "2", "mine="+set)
	model := must.Get(hf.Open(dir))(t)
	defer model.Close()
	if err := model.Adapt([]byte(must.Read(t, out))); err != nil {
		t.Error(err)
	}
}
