//go:build unix

package e2e_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

// A newcomer who has Cursor, with one server, goes through docs/getting-started.md: every command of the
// page runs, in its order and with its servers, and the file that it writes is there.
func TestGettingStarted(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/getting-started.md")
	if err != nil {
		t.Fatal(err)
	}
	installed := modules(t)
	home := t.TempDir()
	dir := filepath.Join(home, "project")
	for _, folder := range []string{dir, filepath.Join(home, ".cursor")} {
		must.Do(t, os.Mkdir(folder, 0o755))
	}
	if err := os.Symlink(installed, filepath.Join(dir, "node_modules")); err != nil { // npx takes what is there
		t.Fatal(err)
	}
	cursor, err := json.Marshal(map[string]any{"mcpServers": map[string]any{
		"memory": map[string]any{"command": node(t), "args": []string{module(t, "@modelcontextprotocol/server-memory/dist/index.js")}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	must.Do(t, os.WriteFile(filepath.Join(home, ".cursor/mcp.json"), cursor, 0o600))
	must.Do(t, os.WriteFile(filepath.Join(dir, "package.json"), []byte("{}"), 0o600))
	house{home: home}.leavesNothing(t)
	env := append(environment(t, home), "npm_config_offline=true")
	ran := 0
	for _, block := range regexp.MustCompile(`(?m)(?:^    .*\n)+`).FindAllString(string(page), -1) {
		block = strings.ReplaceAll("\n"+block, "\n    ", "\n")[1:]
		if strings.Contains(block, "mcp_servers:") {
			must.Do(t, os.WriteFile(filepath.Join(dir, "toolfinch.yaml"), []byte(block), 0o600))
			continue
		}
		for line := range strings.Lines(block) {
			line = strings.TrimSpace(strings.Replace(line, "go run ./cmd/toolfinch", "toolfinch", 1))
			if strings.HasPrefix(line, "go install") {
				continue // of what runs here
			}
			if line == "toolfinch setup" || line == "toolfinch connect cursor" {
				line += " --yes" // they ask at a terminal
			}
			ran++
			cmd := exec.CommandContext(await.Program(t), "sh", "-c", line)
			cmd.Dir, cmd.Env = dir, env
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v\n%s", line, err, out)
			}
			if strings.HasPrefix(line, "toolfinch search") && !strings.Contains(firstLineWith(string(out), "files_"), "files_write_file") {
				t.Errorf("%s: files_write_file does not come first\n%s", line, out)
			}
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "hello.txt")); string(got) != "hi" {
		t.Errorf("the file that the page writes has %q, %v", got, err)
	}
	if ran < 10 {
		t.Errorf("only %d commands ran: the test reads past them", ran)
	}
	// What an agent meets then: it retrieves, is listed what was found, and calls it.
	c := newSDKClient(t, env)
	parameters := house{home: home, env: env, config: filepath.Join(dir, "toolfinch.yaml")}.stdio(t)
	parameters["cwd"] = dir
	c.do(t, "connect", parameters, nil)
	if got := names(c.list(t)); !slices.Equal(got, []string{"retrieve_tools", "call_tool"}) {
		t.Errorf("an agent is listed %q at the start", got)
	}
	c.retrieve(t, map[string]any{"query": "write text to a file"})
	var after []listed
	c.do(t, "relisted", nil, &after)
	if got := names(after); !slices.Contains(got, "files_write_file") {
		t.Errorf("an agent that has found files_write_file is listed %q", got)
	}
	c.call(t, "files_write_file", map[string]any{"path": "found.txt", "content": "found"})
	if got, err := os.ReadFile(filepath.Join(dir, "found.txt")); string(got) != "found" {
		t.Errorf("the file that the agent writes has %q, %v", got, err)
	}
}

func firstLineWith(text, part string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			return line
		}
	}
	return ""
}
