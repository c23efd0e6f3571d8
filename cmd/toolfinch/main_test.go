package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain makes the test binary the program itself, for the scripts and for
// the servers they start.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"toolfinch": main})
}

// TestScripts runs the command line as terminal sessions.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "../../testdata/scripts",
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("MCPPROXY_DATA_DIR", env.WorkDir+"/data")
			return nil
		},
	})
}
