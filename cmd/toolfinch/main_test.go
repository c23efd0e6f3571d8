package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"toolfinch/embed/models"
	"toolfinch/internal/await"
	"toolfinch/internal/leeway"
)

// programs are what the test binary is by the name that it is started under.
var programs = map[string]func(){"toolfinch": main, "newer": newer, "sly": sly}

// newer is a later version of the program.
func newer() {
	version = "v98.7.6"
	main()
}

// TestMain makes the test binary the program itself, for the scripts and for
// the servers they start.
func TestMain(m *testing.M) {
	leeway.More.Store(int64(3 * time.Second)) // less than elsewhere: here some of it is waited out by real clients
	testscript.Main(apart{m}, programs)
}

// apart runs the tests apart from what the user has set and has pulled. Where
// the user's models are is left in TOOLFINCH_TEST_MODELS, for tests of those.
type apart struct{ testscript.TestingM }

func (a apart) Run() int {
	users, err := models.Dir()
	if err != nil {
		users = "" // there is none
	}
	none, err := os.MkdirTemp("", "toolfinch-no-models-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(none)
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "MCPPROXY_") || strings.HasPrefix(name, "OPENAI_") {
			os.Unsetenv(name)
		}
	}
	os.Setenv("TOOLFINCH_TEST_MODELS", users)
	os.Setenv("MCPPROXY_MODELS_DIR", none)
	return a.TestingM.Run()
}

// scripts are the files of all scripts; with -short, of those that serve.
func scripts(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("../../testdata/scripts/*.txtar")
	if err != nil || len(all) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	if !testing.Short() {
		return all
	}
	return slices.DeleteFunc(all, func(file string) bool {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return !bytes.Contains(text, []byte("toolfinch serve"))
	})
}

// TestScripts runs the command line as terminal sessions.
func TestScripts(t *testing.T) {
	registry := startRegistry(t)
	testscript.Run(t, testscript.Params{
		Files:               scripts(t),
		RequireExplicitExec: true,
		Deadline:            time.Now().Add(4 * await.Bound), // of all scripts: a loop of a shell has no bound of its own
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("MCPPROXY_DATA_DIR", env.WorkDir+"/data")
			env.Setenv("MCPPROXY_MODELS_DIR", env.WorkDir+"/models")
			env.Setenv("REGISTRY", registry)
			env.Setenv("UNSEEN", `[\x00-\x08\x0b-\x1f\x7f-\x9f\x{ad}\x{61c}\x{200b}-\x{200f}\x{2028}-\x{202e}\x{2060}-\x{206f}\x{feff}\x{e0000}-\x{e01ef}]`)
			return nil
		},
	})
}
