package e2e_test

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"toolfinch/configs"
	"toolfinch/embed/models"
	"toolfinch/internal/must"
)

// long has the tests run whole that CI runs in a short form: TOOLFINCH_LONG=1.
var long = os.Getenv("TOOLFINCH_LONG") != ""

// leeway is the variable of the time that the program leaves other processes.
const leeway = "toolfinch/internal/leeway.more"

// builds is the folder of the programs that the tests build.
var builds string

// build makes the program once for all tests, as it is shipped but for the time that it leaves other
// processes, of which a busy machine needs more.
func build(name string, flags ...string) (string, error) {
	path := filepath.Join(builds, name, "toolfinch")
	ldflags := "-ldflags=-s -w -X " + leeway + "=3s"
	cmd := exec.Command("go", append(append([]string{"build", ldflags}, flags...), "-o", path, "./cmd/toolfinch")...)
	cmd.Dir = ".."
	if name == "raced" {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build toolfinch: %w\n%s", err, out)
	}
	return path, nil
}

var (
	buildProgram = sync.OnceValues(func() (string, error) { return build("built") })
	// SQLite is C in Go's clothes: the detector does not see its memory and doubles its cost.
	buildRaced = sync.OnceValues(func() (string, error) {
		return build("raced", "-race", "-gcflags=modernc.org/sqlite/lib=-race=false", "-gcflags=modernc.org/libc=-race=false", "-gcflags=modernc.org/memory=-race=false")
	})
)

// program is the path of toolfinch, which is in PATH under this name, too.
func program(t testing.TB) string { return built(t, buildProgram) }

// raced is the program with the race detector, whose reports are in its house: see leavesNothing.
func raced(t testing.TB) string { return built(t, buildRaced) }

// busy is the program for a test in which many clients do things at once: with the race detector where
// everything must run or there is a C compiler.
func busy(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath(cmp.Or(os.Getenv("CC"), "gcc")); err == nil || os.Getenv("TOOLFINCH_TEST_REQUIRE") == "all" {
		return raced(t)
	}
	return program(t)
}

func built(t testing.TB, build func() (string, error)) string {
	t.Helper()
	path := must.Get(build())(t)
	return path
}

// TestMain makes the test binary the server called sly, for the scripts and for the program.
func TestMain(m *testing.M) {
	testscript.Main(apart{m}, map[string]func(){"sly": sly})
}

// apart runs the tests apart from what the user has set and has pulled. Where
// the user's models are is left in TOOLFINCH_TEST_MODELS, for tests of those.
type apart struct{ testscript.TestingM }

func (a apart) Run() int {
	users, err := models.Dir()
	if err != nil {
		users = "" // there is none
	}
	folder, err := os.MkdirTemp("", "toolfinch-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	builds = folder
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "MCPPROXY_") || strings.HasPrefix(name, "OPENAI_") {
			os.Unsetenv(name)
		}
	}
	os.Setenv("TOOLFINCH_TEST_MODELS", users)
	os.Setenv("MCPPROXY_MODELS_DIR", filepath.Join(folder, "models"))
	os.Setenv("MCPPROXY_SHARED", "false") // a toolfinch in the background outlives its test
	path, err := buildProgram()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	os.Setenv("PATH", filepath.Dir(path)+string(os.PathListSeparator)+os.Getenv("PATH"))
	defer func() { closeChromium() }()
	return a.TestingM.Run()
}

// trustFiles trusts each configuration of a script, at its place and as toolfinch.yaml of the folder: a script may copy
// one over another.
func trustFiles(dir string) error {
	list := configs.Trusted{Path: filepath.Join(dir, ".local/share/toolfinch/trusted.json")}
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) || path == list.Path {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return errors.Join(list.Add(filepath.Join(filepath.Dir(path), "toolfinch.yaml"), data), list.Add(path, data))
	})
}

// TestScripts runs the command line as terminal sessions.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("../testdata/scripts/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	registry := startRegistry(t)
	testscript.Run(t, testscript.Params{
		Files:               files,
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("MCPPROXY_DATA_DIR", env.WorkDir+"/data")
			env.Setenv("MCPPROXY_SHARED", "false")
			env.Setenv("MCPPROXY_MODELS_DIR", env.WorkDir+"/models")
			env.Setenv("REGISTRY", registry)
			if err := trustFiles(env.WorkDir); err != nil {
				return err
			}
			env.Setenv("UNSEEN", `[\x00-\x08\x0b-\x1f\x7f-\x9f\x{ad}\x{61c}\x{200b}-\x{200f}\x{2028}-\x{202e}\x{2060}-\x{206f}\x{feff}\x{e0000}-\x{e01ef}]`)
			return nil
		},
	})
}
