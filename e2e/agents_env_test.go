//go:build unix

package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"toolfinch/configs"
	"toolfinch/configs/clients"
	"toolfinch/e2e/agents"
	"toolfinch/internal/await"
	"toolfinch/internal/group"
	"toolfinch/internal/must"
)

// Real agents pass on the variables that connect names to them.
func TestAgentsPassVariablesOn(t *testing.T) {
	if !long {
		t.Skip("nothing of toolfinch runs")
	}
	for _, tried := range []struct {
		agent int    // of agents.All
		name  string // of the client
		file  string
	}{
		{0, "opencode", "xdg/config/opencode/opencode.json"},
		{1, "gemini", ".gemini/settings.json"},
		{2, "claude-code", "mcp.json"},
		{3, "codex", "codex/config.toml"},
		{4, "qwen", ".qwen/settings.json"},
		{5, "copilot", "copilot/mcp-config.json"},
	} {
		t.Run(tried.name, func(t *testing.T) {
			home := t.TempDir()
			house{home: home}.leavesNothing(t)
			told := filepath.Join(home, "told")
			script := filepath.Join(home, "server.sh")
			must.Do(t, os.WriteFile(script, []byte("#!/bin/sh\necho \"$TOKEN\" >\"$1.new\"\nmv \"$1.new\" \"$1\"\n"), 0o700))
			// Nobody is at this address: the agents start their servers before they ask a model.
			command, env := prepare(t, agents.All[tried.agent], agents.Run{Home: home, Base: "http://127.0.0.1:9", Prompt: "Write a note.",
				Servers: []agents.Server{{Name: "toolfinch", Command: []string{"none", "serve"}}}})
			path := filepath.Join(home, filepath.FromSlash(tried.file))
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if tried.name == "claude-code" { // whose format is told by the name
				at := slices.Index(command, path)
				path = filepath.Join(home, ".mcp.json")
				command[at] = path
				must.Do(t, os.WriteFile(path, before, 0o600))
			}
			files, err := configs.ClientFiles(path, clients.System{GOOS: runtime.GOOS, Env: os.LookupEnv, Dir: home})
			if err != nil || files[0].Client.ID != tried.name {
				t.Fatalf("%s is read as that of %+v, %v", path, files, err)
			}
			after, err := files[0].Set(before, "toolfinch", clients.Entry{Command: script, Args: []string{told}, Pass: []string{"TOKEN"}})
			if err != nil {
				t.Fatal(err)
			}
			must.Do(t, clients.Replace(path, before, after))

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cmd := exec.CommandContext(ctx, command[0], command[1:]...)
			group.Own(cmd) // with what it starts
			cmd.Cancel = func() error { return group.Kill(cmd) }
			cmd.Dir = t.TempDir()
			cmd.Env = append(env, "PATH="+os.Getenv("PATH"), "HOME="+home, "TOKEN=t0ken")
			for _, name := range []string{"config", "data", "state", "cache"} {
				cmd.Env = append(cmd.Env, "XDG_"+strings.ToUpper(name)+"_HOME="+filepath.Join(home, "xdg", name))
			}
			must.Do(t, cmd.Start())
			var got []byte
			await.Nil(t, func() (err error) {
				got, err = os.ReadFile(told)
				return err
			})
			cancel()
			_ = cmd.Wait() // it was killed
			if string(got) != "t0ken\n" {
				t.Errorf("the server was started with %q", got)
			}
		})
	}
}
