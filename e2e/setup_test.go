//go:build unix

package e2e_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/await"
)

// Setup with servers from npm: what works moves, what ends at once or has no program stays in the client, which an agent
// then uses as its file says. An undo restores every byte, and leaves no folder of setup's.
func TestSetupKeepsWhatWorked(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	house{home: home}.leavesNothing(t)
	npm := func(file string) map[string]any {
		return map[string]any{"command": node(t), "args": []string{module(t, file)}}
	}
	memory := npm("@modelcontextprotocol/server-memory/dist/index.js")
	memory["env"] = map[string]string{"MEMORY_FILE_PATH": filepath.Join(home, "memory.jsonl")}
	before, err := json.MarshalIndent(map[string]any{"mcpServers": map[string]any{
		"memory":     memory,
		"everything": npm("@modelcontextprotocol/server-everything/dist/index.js"),
		"slack":      npm("@modelcontextprotocol/server-slack/dist/index.js"), // ends without a token
		"gone":       map[string]any{"command": "no-such-program", "args": []string{"-y", "x"}},
	}}, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	cursor, config := filepath.Join(home, ".cursor/mcp.json"), filepath.Join(home, "xdg/config/toolfinch/toolfinch.yaml")
	project := filepath.Join(home, "project")
	for path, text := range map[string]string{
		cursor: string(before),
		// Somebody else's configuration, in the folder where setup runs.
		filepath.Join(project, "toolfinch.yaml"): "mcp_servers: {theirs: {command: sh, args: [-c, 'touch " + filepath.Join(home, "started") + "']}}\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	env := house{env: environment(t, home)}.sharing().env
	run := func(want int, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(await.Context(t), program(t), args...)
		cmd.Dir, cmd.Env = project, env
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != want {
			t.Fatalf("%q: exit code %d\n%s", args, code, out)
		}
		return string(out)
	}
	out := run(1, "setup", "--yes")
	_, summary, _ := strings.Cut(out, "\nready: ")
	for _, want := range []string{"2 servers with ", "cursor  gone   its program no-such-program is not on PATH", "cursor  slack  ", "SLACK_BOT_TOKEN", "toolfinch, gone, slack", "toolfinch setup --undo", "to uninstall"} {
		if !strings.Contains(summary, want) {
			t.Errorf("the summary does not have %q:\n%s", want, out)
		}
	}
	var after struct {
		Servers map[string]struct {
			Command string
			Args    []string
		} `json:"mcpServers"`
	}
	text, err := os.ReadFile(cursor)
	if err == nil {
		err = json.Unmarshal(text, &after)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(after.Servers)); !slices.Equal(got, []string{"gone", "slack", "toolfinch"}) {
		t.Errorf("the client has %q", got)
	}
	if text, err := os.ReadFile(config); err != nil || strings.Contains(string(text), "slack") || strings.Contains(string(text), "theirs") {
		t.Errorf("the user's configuration: %v\n%s", err, text)
	}
	own := after.Servers["toolfinch"]
	c := newSDKClient(t, env)
	parameters := house{home: home, env: env, config: config}.stdio(t)
	parameters["command"], parameters["args"], parameters["cwd"] = own.Command, own.Args, project
	c.do(t, "connect", parameters, nil)
	c.waitReady(t, 2)
	c.call(t, "everything_echo", map[string]any{"message": "hi"})
	c.leave(t)

	_, stop, found := strings.Cut(run(0, "setup", "--undo", "--dry-run"), "to end it now, first: toolfinch ")
	if !found {
		t.Fatal("the undo does not say how to end what agents share")
	}
	run(0, strings.Fields(strings.ReplaceAll(stop, "~", home))[:3]...)
	await.True(t, func() bool { return !strings.Contains(run(0, "setup", "--undo", "--dry-run"), "toolfinch stop") })
	run(0, "setup", "--undo", "--yes")
	if text, err := os.ReadFile(cursor); string(text) != string(before) {
		t.Errorf("after the undo the client has %v\n%s", err, text)
	}
	if info, err := os.Stat(cursor); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("after the undo its mode is %v, %v", info.Mode(), err)
	}
	for _, path := range []string{filepath.Join(home, "xdg/config"), filepath.Join(home, "started")} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is there", path)
		}
	}
}
