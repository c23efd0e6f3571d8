package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"toolfinch/configs"
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

// aHome makes a home folder with a file of Cursor, and returns both.
func aHome(t *testing.T, cursor string) (home, file string) {
	t.Helper()
	home = t.TempDir()
	for _, name := range []string{"HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA"} {
		t.Setenv(name, home)
	}
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, "config"))
	t.Setenv("XDG_DATA_HOME", filepath.Join(home, "data"))
	t.Chdir(home)
	file = filepath.Join(home, ".cursor", "mcp.json")
	must.Do(t, os.MkdirAll(filepath.Dir(file), 0o700))
	return home, must.Write(t, file, cursor)
}

// Two servers of a client.
const (
	works = `"clock": {"command": "toolfinch", "args": ["demo-server", "clock", "../../demo"]}`
	fails = `"broken": {"command": "false"}`
)

// Between its plan and its writing setup waits for servers and for a person. What changes then was neither agreed to nor
// checked.
func TestSetupStopsIfTheServersChangeMeanwhile(t *testing.T) {
	const ours = "mcp_servers:\n  other: {command: toolfinch}\n"
	for _, test := range []struct {
		name, cursor, config string
		unchecked            bool
		want                 string // "" for no error
	}{
		{"nothing", `{"mcpServers": {` + works + `}}`, ours, false, ""},
		{"other state in the client's file", `{"windows": 3, "mcpServers": {` + works + `}}`, ours, false, ""},
		{"a further server", `{"mcpServers": {` + works + `, ` + fails + `}}`, ours, false, "mcp.json has changed meanwhile; nothing was written"},
		{"another command", `{"mcpServers": {` + strings.Replace(works, "clock\",", "files\",", 1) + `}}`, ours, false, "mcp.json has changed meanwhile; nothing was written"},
		{"the configuration", `{"mcpServers": {` + works + `}}`, ours + "top_k: 3\n", false, "ours.yaml has changed meanwhile; nothing was written"},
		{"the configuration is gone", `{"mcpServers": {` + works + `}}`, "", false, "ours.yaml has changed meanwhile; nothing was written"},
		{"a server that was not to be moved", `{"mcpServers": {` + works + `}}`, ours, true, `server "clock" could not be moved before, and was not checked`},
	} {
		t.Run(test.name, func(t *testing.T) {
			home, file := aHome(t, `{"mcpServers": {`+works+`}}`)
			s := &settings{config: must.Write(t, filepath.Join(home, "ours.yaml"), ours)}
			cmd := newSetup(s)
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)
			p := must.Get(s.planSetup(cmd, []*clients.Client{clients.Find("cursor")}, setupFlags{}))(t)
			must.Write(t, file, test.cursor)
			if test.config == "" {
				must.Do(t, os.Remove(s.config))
			} else {
				must.Write(t, s.config, test.config)
			}
			if test.unchecked {
				p.check = nil
			}
			err := p.planAgain(cmd)
			if got := fmt.Sprint(err); (err != nil) != (test.want != "") || !strings.Contains(got, test.want) && test.want != "" {
				t.Fatalf("%v, want %q", err, test.want)
			}
			if err != nil {
				return
			}
			must.Do(t, p.write(cmd))
			if got := must.Read(t, file); strings.Contains(got, "clock") || strings.Contains(test.cursor, "windows") != strings.Contains(got, "windows") {
				t.Errorf("the client's file is\n%s", got)
			}
		})
	}
}

// The check stores a server's lists under its planned name. So the second plan keeps the name, whatever becomes of another
// server of the same name.
func TestSetupKeepsTheNamesThatWereChecked(t *testing.T) {
	for _, test := range []struct {
		name, command          string
		disableFailed          bool
		planned, checked, kept []string
	}{
		{"the other fails", "false", false, []string{"fs", "fs-2"}, []string{"fs", "fs-2"}, []string{"fs-2"}},
		{"the other fails, and moves disabled", "false", true, []string{"fs", "fs-2"}, []string{"fs", "fs-2"}, []string{"fs", "fs-2"}},
		{"the other has no program", "no-such-program", false, []string{"fs"}, []string{"fs"}, []string{"fs"}},
		{"the other has no program, and moves disabled", "no-such-program", true, []string{"fs"}, []string{"fs"}, []string{"fs-2", "fs"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			home, _ := aHome(t, `{"mcpServers": {"fs": {"command": "`+test.command+`"}}}`)
			other := filepath.Join(home, ".codeium", "windsurf", "mcp_config.json")
			must.Do(t, os.MkdirAll(filepath.Dir(other), 0o700))
			must.Write(t, other, `{"mcpServers": {"fs": {"command": "toolfinch", "args": ["demo-server"]}}}`)
			s := &settings{config: filepath.Join(home, "ours.yaml")}
			cmd := newSetup(s)
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)
			p := must.Get(s.planSetup(cmd, []*clients.Client{clients.Find("cursor"), clients.Find("windsurf")}, setupFlags{}))(t)
			names := func() (names []string) {
				for _, server := range must.Get(configs.ServersOf(s.config, p.config.After))(t) {
					names = append(names, server.Name)
				}
				return names
			}
			if got := names(); !slices.Equal(got, test.planned) || !slices.Equal(p.check, test.checked) {
				t.Fatalf("planned %q, to check %q", got, p.check)
			}
			if test.command == "false" {
				p.left = append(p.left, leftServer{server: p.rows[0].server, why: "it ended"})
			}
			p.disableFailed = test.disableFailed
			must.Do(t, p.planAgain(cmd))
			if got, works := names(), test.checked[len(test.checked)-1:]; !slices.Equal(got, test.kept) || !slices.Equal(p.check, works) {
				t.Errorf("after the check %q, moved and enabled %q", got, p.check)
			}
		})
	}
}
