package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"toolfinch/configs/clients"
	"toolfinch/internal/must"
)

// The plan of setup names what a server lacks here, and starts nothing to find out.
func TestThePlanNamesWhatIsMissing(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the paths are those of another system")
	}
	there := must.Write(t, filepath.Join(t.TempDir(), "server"), "")
	must.Do(t, os.Chmod(there, 0o755))
	for _, test := range []struct {
		name   string
		server clients.Server
		want   string // "" for nothing
	}{
		{"a program on PATH", clients.Server{Command: "sh"}, ""},
		{"no program on PATH", clients.Server{Command: "no-such-program"}, "no-such-program is not on PATH"},
		{"no program on PATH, with a PATH of its own", clients.Server{Command: "no-such-program", Env: map[string]string{"PATH": "/opt"}}, ""},
		{"a path", clients.Server{Command: there}, ""},
		{"a path to nothing", clients.Server{Command: there + "x"}, there + "x is not there"},
		{"a variable", clients.Server{Command: "${HOME}/server"}, ""},
		{"a program of Windows", clients.Server{Command: `C:\Program Files\nodejs\npx.cmd`}, `nodejs\npx.cmd is a path of Windows`},
		{"an argument of Windows", clients.Server{Command: "sh", Args: []string{"d:/notes"}}, "d:/notes is a path of Windows"},
		{"a folder of Windows", clients.Server{Command: "sh", Cwd: `\\host\share`}, `\\host\share is a path of Windows`},
		{"an argument with a colon", clients.Server{Command: "sh", Args: []string{"a:b", "http://c"}}, ""},
		{"a URL", clients.Server{URL: "https://example.com/mcp"}, ""},
	} {
		if got := missingHere(test.server); got != test.want && (test.want == "" || !strings.Contains(got, test.want)) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
