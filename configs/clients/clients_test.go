package clients_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"toolfinch/configs"
	"toolfinch/configs/clients"
	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func machine(goos, home string, pairs ...string) clients.System {
	vars := map[string]string{"HOME": home}
	if goos == "windows" {
		vars = map[string]string{"USERPROFILE": home}
	}
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		vars[name] = value
	}
	return clients.System{GOOS: goos, Dir: "/p", Env: func(name string) (string, bool) {
		value, ok := vars[name]
		return value, ok
	}}
}

func TestWhereClientsKeepTheirServers(t *testing.T) {
	tests := []struct {
		client  string
		linux   string
		darwin  string
		windows string
		project string
	}{
		{"claude-desktop", "/h/.config/Claude/claude_desktop_config.json", "/h/Library/Application Support/Claude/claude_desktop_config.json", "/r/Claude/claude_desktop_config.json", ""},
		{"claude-code", "/h/.claude.json", "/h/.claude.json", "/h/.claude.json", "/p/.mcp.json"},
		{"cursor", "/h/.cursor/mcp.json", "/h/.cursor/mcp.json", "/h/.cursor/mcp.json", "/p/.cursor/mcp.json"},
		{"vscode", "/h/.config/Code/User/mcp.json", "/h/Library/Application Support/Code/User/mcp.json", "/r/Code/User/mcp.json", "/p/.vscode/mcp.json"},
		{"windsurf", "/h/.codeium/windsurf/mcp_config.json", "/h/.codeium/windsurf/mcp_config.json", "/h/.codeium/windsurf/mcp_config.json", ""},
		{"codex", "/h/.codex/config.toml", "/h/.codex/config.toml", "/h/.codex/config.toml", "/p/.codex/config.toml"},
		{"gemini", "/h/.gemini/settings.json", "/h/.gemini/settings.json", "/h/.gemini/settings.json", "/p/.gemini/settings.json"},
		{"opencode", "/h/.config/opencode/opencode.json", "/h/.config/opencode/opencode.json", "/h/.config/opencode/opencode.json", "/p/opencode.json"},
		{"zed", "/h/.config/zed/settings.json", "/h/.config/zed/settings.json", "/r/Zed/settings.json", "/p/.zed/settings.json"},
		{"cline", "/h/.config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
			"/h/Library/Application Support/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
			"/r/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json", ""},
		{"cline-cli", "/h/.cline/data/settings/cline_mcp_settings.json", "/h/.cline/data/settings/cline_mcp_settings.json", "/h/.cline/data/settings/cline_mcp_settings.json", ""},
		{"qwen", "/h/.qwen/settings.json", "/h/.qwen/settings.json", "/h/.qwen/settings.json", "/p/.qwen/settings.json"},
		{"roo", "/h/.config/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
			"/h/Library/Application Support/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
			"/r/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json", "/p/.roo/mcp.json"},
		{"kiro", "/h/.kiro/settings/mcp.json", "/h/.kiro/settings/mcp.json", "/h/.kiro/settings/mcp.json", "/p/.kiro/settings/mcp.json"},
		{"copilot", "/h/.copilot/mcp-config.json", "/h/.copilot/mcp-config.json", "/h/.copilot/mcp-config.json", "/p/.github/mcp.json"},
		{"amp", "/h/.config/amp/settings.json", "/h/.config/amp/settings.json", "/h/.config/amp/settings.json", "/p/.amp/settings.json"},
		{"junie", "/h/.junie/mcp/mcp.json", "/h/.junie/mcp/mcp.json", "/h/.junie/mcp/mcp.json", "/p/.junie/mcp/mcp.json"},
		{"lm-studio", "/h/.lmstudio/mcp.json", "/h/.lmstudio/mcp.json", "/h/.lmstudio/mcp.json", ""},
		{"goose", "/h/.config/goose/config.yaml", "/h/.config/goose/config.yaml", "/r/Block/goose/config/config.yaml", ""},
		{"continue", "/h/.continue/config.yaml", "/h/.continue/config.yaml", "/h/.continue/config.yaml", ""},
	}
	if len(tests) != len(clients.All) {
		t.Errorf("%d clients are tested, %d are known", len(tests), len(clients.All))
	}
	for _, test := range tests {
		c := clients.Find(test.client)
		if c == nil {
			t.Errorf("%s is not known", test.client)
			continue
		}
		for goos, want := range map[string]string{"linux": test.linux, "darwin": test.darwin, "windows": test.windows} {
			sys := machine(goos, "/h")
			if goos == "windows" {
				sys = machine(goos, "/h", "APPDATA=/r")
			}
			f, err := c.File(sys, false)
			if got := filepath.ToSlash(f.Path); got != want || err != nil {
				t.Errorf("%s on %s: %s, %v, want %s", test.client, goos, got, err, want)
			}
			f, err = c.File(sys, true)
			if got := filepath.ToSlash(f.Path); got != test.project || (err != nil) != (test.project == "") {
				t.Errorf("%s on %s in a project: %s, %v, want %s", test.client, goos, got, err, test.project)
			}
		}
	}
}

func TestVariablesMoveTheFiles(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the paths are those of other systems")
	}
	tests := []struct{ client, variable, want string }{
		{"vscode", "XDG_CONFIG_HOME=/x", "/x/Code/User/mcp.json"},
		{"vscode", "XDG_CONFIG_HOME=relative", "/h/.config/Code/User/mcp.json"},
		{"codex", "CODEX_HOME=/x", "/x/config.toml"},
		{"claude-code", "CLAUDE_CONFIG_DIR=/x", "/x/.claude.json"},
		{"goose", "XDG_CONFIG_HOME=/x", "/x/goose/config.yaml"},
		{"continue", "CONTINUE_GLOBAL_DIR=/x", "/x/config.yaml"},
	}
	for _, test := range tests {
		f, err := clients.Find(test.client).File(machine("linux", "/h", test.variable), false)
		if f.Path != test.want || err != nil {
			t.Errorf("%s with %s: %s, %v, want %s", test.client, test.variable, f.Path, err, test.want)
		}
	}
	if f, err := clients.Find("cursor").File(machine("linux", ""), false); err == nil {
		t.Errorf("without a home directory %s", f.Path)
	}
}

// Every file in testdata is what a client has; beside it stands what it is with
// toolfinch in it. Taking that out again gives the first, byte for byte.
func TestConnectAndUndo(t *testing.T) {
	files, err := filepath.Glob("testdata/*.before")
	if err != nil || len(files) < len(editable()) {
		t.Fatal(len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			before := read(t, file)
			id, _, _ := strings.Cut(filepath.Base(file), ".")
			c := clients.Find(id)
			f := clients.File{Client: c, Path: file, Block: c.Block}
			entry := clients.Entry{Command: `/opt/tool "finch"`, Args: []string{"serve", "--config", "/c <1>.yaml"}}
			after := must.Get(f.Set(before, "toolfinch", entry))(t)
			golden := strings.TrimSuffix(file, ".before") + ".after"
			if *update {
				must.Do(t, os.WriteFile(golden, after, 0o644))
			}
			if want := read(t, golden); !bytes.Equal(after, want) {
				t.Errorf("got\n%s\nwant\n%s", after, want)
			}
			servers := must.Get(configs.ServersIn(f, after))(t)
			found := false
			for _, s := range servers {
				found = found || s.Name == "toolfinch" && s.Command == entry.Command && reflect.DeepEqual(s.Args, entry.Args)
			}
			if !found {
				t.Errorf("toolfinch is not among %+v", servers)
			}
			if again, err := f.Set(after, "toolfinch", entry); err != nil || !bytes.Equal(again, after) {
				t.Errorf("once more: %v\n%s", err, again)
			}
			undone := must.Get(f.Remove(after, "toolfinch"))(t)
			// An object that was not there stays behind, empty.
			if !strings.Contains(string(before), c.Block[0]) {
				if s, err := configs.ServersIn(f, undone); len(s) > 0 || err != nil {
					t.Errorf("undone: %+v, %v", s, err)
				}
				return
			}
			if !bytes.Equal(undone, before) {
				t.Errorf("undone\n%s\nwant\n%s", undone, before)
			}
			if other, err := f.Remove(before, "toolfinch"); err != nil || !bytes.Equal(other, before) {
				t.Errorf("removing nothing: %v\n%s", err, other)
			}
		})
	}
}

// Of what connect does, by URL: the key that each client has for it.
func TestConnectByURL(t *testing.T) {
	want := map[string]string{
		"claude-code": `"type": "http"`, "cursor": `"url":`, "vscode": `"type": "http"`, "windsurf": `"serverUrl":`,
		"codex": "url = ", "gemini": `"httpUrl":`, "opencode": `"type": "remote"`, "zed": `"url":`,
		"cline": `"type": "streamableHttp"`, "roo": `"type": "streamable-http"`, "kiro": `"url":`, "copilot": `"tools": ["*"]`,
		"amp": `"amp.mcpServers"`, "junie": `"url":`, "lm-studio": `"url":`, "cline-cli": `"transport":`, "qwen": `"alwaysLoadTools": true`,
	}
	for _, c := range editable() {
		f := clients.File{Client: c, Path: "/p/f", Block: c.Block}
		after, err := f.Set(nil, "toolfinch", clients.Entry{URL: "http://127.0.0.1:8080/mcp"})
		if c.ID == "claude-desktop" {
			if !errors.Is(err, clients.ErrNoURL) {
				t.Errorf("%s: %v", c.ID, err)
			}
			continue
		}
		if err != nil || !strings.Contains(string(after), want[c.ID]) {
			t.Errorf("%s: %v\n%s", c.ID, err, after)
		}
		servers, err := configs.ServersIn(f, after)
		if err != nil || len(servers) != 1 || servers[0].URL != "http://127.0.0.1:8080/mcp" {
			t.Errorf("%s: %+v, %v", c.ID, servers, err)
		}
	}
}

// Each client's own way to name a variable, which import reads as that variable again.
func TestConnectPassesVariablesOn(t *testing.T) {
	want := map[string]string{
		"claude-desktop": "", "zed": "", "claude-code": `"${TOKEN}"`, "cursor": `"${env:TOKEN}"`, "vscode": `"${env:TOKEN}"`,
		"windsurf": `"${env:TOKEN}"`, "codex": `env_vars = ["TOKEN"]`, "gemini": `"${TOKEN}"`, "opencode": `"{env:TOKEN}"`,
		"cline": "", "junie": "", "lm-studio": "", "roo": `"${env:TOKEN}"`, "kiro": `"${TOKEN}"`, "copilot": `"${TOKEN}"`, "amp": `"${TOKEN}"`,
		"cline-cli": "", "qwen": `"${TOKEN}"`,
	}
	for _, c := range editable() {
		f := clients.File{Client: c, Path: "/p/f", Block: c.Block}
		after, err := f.Set(nil, "toolfinch", clients.Entry{Command: "x", Pass: []string{"TOKEN"}, Values: map[string]string{"OTHER": "v\"1"}})
		if err != nil || !strings.Contains(string(after), want[c.ID]) || !strings.Contains(string(after), `"v\"1"`) {
			t.Errorf("%s: %v\n%s", c.ID, err, after)
		}
		if (c.Passing() == clients.PassNone) != (want[c.ID] == "") {
			t.Errorf("%s: passing is %v", c.ID, c.Passing())
		}
		servers, err := configs.ServersIn(f, after)
		if err != nil || len(servers) != 1 || servers[0].Env["OTHER"] != `v"1` {
			t.Errorf("%s: %+v, %v", c.ID, servers, err)
			continue
		}
		got := servers[0].Env["TOKEN"]
		if want[c.ID] != "" && got != "${TOKEN}" && got != "${env:TOKEN}" {
			t.Errorf("%s: read back as %q", c.ID, got)
		}
		if again, err := f.Set(after, "toolfinch", clients.Entry{Command: "x", Pass: []string{"TOKEN"}, Values: map[string]string{"OTHER": "v\"1"}}); err != nil || !bytes.Equal(again, after) {
			t.Errorf("%s: once more: %v\n%s", c.ID, err, again)
		}
	}
}

// A server whose place nobody can edit without touching more is left to people.
func TestTOMLThatIsNotATableIsRefused(t *testing.T) {
	f := clients.File{Client: clients.Find("codex"), Path: "/p/config.toml"}
	for _, data := range []string{
		"mcp_servers = { toolfinch = { command = \"x\" } }\n",
		"[mcp_servers]\ntoolfinch = { command = \"x\" }\n",
		"mcp_servers.toolfinch.command = \"x\"\n",
	} {
		if after, err := f.Remove([]byte(data), "toolfinch"); err == nil || !strings.Contains(err.Error(), "edit it by hand") {
			t.Errorf("%s: removed: %v\n%s", data, err, after)
		}
		if after, err := f.Set([]byte(data), "toolfinch", clients.Entry{Command: "y"}); err == nil || !strings.Contains(err.Error(), "edit it by hand") {
			t.Errorf("%s: set: %v\n%s", data, err, after)
		}
	}
}

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "sub", "f.json")
	must.Do(t, clients.Replace(path, nil, []byte("one")))
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("a new file: %v, %v", info.Mode(), err)
	}
	if err := clients.Replace(path, nil, []byte("two")); !errors.Is(err, clients.ErrChanged) {
		t.Errorf("a file that appeared meanwhile: %v", err)
	}
	if err := clients.Replace(path, []byte("zero"), []byte("two")); !errors.Is(err, clients.ErrChanged) {
		t.Errorf("a file that changed meanwhile: %v", err)
	}
	must.Do(t, os.Chmod(path, 0o640))
	link := filepath.Join(dir, "link.json")
	if err := os.Symlink(filepath.Join("sub", "f.json"), link); err != nil {
		t.Skip("no symbolic links here:", err)
	}
	must.Do(t, clients.Replace(link, []byte("one"), []byte("two")))
	if got := string(read(t, path)); got != "two" {
		t.Errorf("behind the link: %q", got)
	}
	if target, err := os.Readlink(link); err != nil {
		t.Errorf("the link is gone: %s, %v", target, err)
	}
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o640 {
		t.Errorf("the mode did not stay: %v, %v", info.Mode(), err)
	}
	must.Do(t, os.Chmod(path, 0o440))
	if err := clients.Replace(path, []byte("two"), []byte("three")); !errors.Is(err, clients.ErrReadOnly) {
		t.Errorf("a read-only file: %v", err)
	}
	if err := clients.Replace(dir, nil, []byte("x")); err == nil || strings.Contains(err.Error(), dir) {
		t.Errorf("a folder: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "sub", ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if _, err := clients.ReadFile(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) || strings.Contains(err.Error(), dir) {
		t.Errorf("an absent file: %v", err)
	}
}

// Claude Code keeps in its own file which folders it was used in: their shared
// files are found, and the servers that are the user's alone there.
func TestClaudeCodeKnowsItsProjects(t *testing.T) {
	home, project := t.TempDir(), t.TempDir()
	own := `{"projects": {` + string(rawjson.Quote(filepath.ToSlash(project)+"/")) + `: {"mcpServers": {"alone": {"command": "a"}}}, "/gone/away": {}}}`
	must.Do(t, os.WriteFile(filepath.Join(home, ".claude.json"), []byte(own), 0o600))
	sys := machine(runtime.GOOS, home)
	sys.Dir = home
	c := clients.Find("claude-code")
	var places []string
	for _, f := range c.Files(sys) {
		data := must.Get(f.Read())(t)
		servers := must.Get(configs.ServersIn(f, data))(t)
		for _, s := range servers {
			places = append(places, f.Project+": "+s.Name)
		}
		if f.Project != "" && f.Project != project && f.Project != home {
			t.Errorf("a project that is gone: %s", f.Path)
		}
	}
	if want := []string{project + ": alone"}; !reflect.DeepEqual(places, want) {
		t.Errorf("found %v, want %v", places, want)
	}
	if f, err := c.File(sys, false); err != nil || filepath.Base(f.Path) != ".claude.json" || f.Project != "" {
		t.Errorf("connect writes %+v, %v", f, err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	return must.Get(os.ReadFile(path))(t)
}

// Continue has files with servers in folders, too, also in the format of others.
func TestFoldersOfServers(t *testing.T) {
	home := t.TempDir()
	for _, name := range []string{"b.yaml", "a.json", "notes.md"} {
		path := filepath.Join(home, ".continue", "mcpServers", name)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.Do(t, os.WriteFile(path, []byte(`{"mcpServers": {"a": {"command": "a"}}}`), 0o600))
	}
	sys := machine(runtime.GOOS, home)
	var found []string
	for _, f := range clients.Find("continue").Files(sys) {
		data := must.Get(f.Read())(t)
		servers, err := configs.ServersIn(f, data)
		found = append(found, fmt.Sprint(filepath.Base(f.Path), " ", len(servers), " ", err))
	}
	if got := strings.Join(found, ", "); got != "config.yaml 0 <nil>, a.json 1 <nil>, b.yaml 1 <nil>" {
		t.Error(got)
	}
}

// A file in YAML is read and never written.
func TestYAMLIsNotEdited(t *testing.T) {
	for _, c := range clients.All {
		f := clients.File{Client: c, Path: "/p/x", Block: c.Block}
		if _, err := f.Set(nil, "x", clients.Entry{Command: "x"}); errors.Is(err, clients.ErrNoEdit) == c.CanEdit() {
			t.Errorf("%s: %v", c.ID, err)
		}
	}
}

func editable() []*clients.Client {
	return slices.DeleteFunc(slices.Clone(clients.All), func(c *clients.Client) bool { return !c.CanEdit() })
}
