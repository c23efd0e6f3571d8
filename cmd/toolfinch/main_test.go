package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"toolfinch/embed/models"
)

// programs are what the test binary is by the name that it is started under.
var programs = map[string]func(){"toolfinch": main}

// TestMain makes the test binary the program itself, for the scripts and for
// the servers they start.
func TestMain(m *testing.M) {
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
	os.Setenv("MCPPROXY_SHARED", "false") // a toolfinch in the background outlives its test
	return a.TestingM.Run()
}
