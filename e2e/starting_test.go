//go:build unix

package e2e_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"toolfinch/e2e/agents"
	"toolfinch/internal/await"
	"toolfinch/internal/fetch"
)

// hanging is a server that starts and never says a word.
func hanging(t testing.TB) server {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hangs.mjs")
	if err := os.WriteFile(path, []byte("process.stdin.resume(); setInterval(() => {}, 1000)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return server{Command: node(t), Args: []string{path}}
}

// Twelve published servers start while every core is busy and one server hangs: all that can come up do, within the
// time that a server has by default.
func TestServersStartOnABusyMachine(t *testing.T) { // alone, because it makes the machine busy
	servers := upstreams(t, "brave", "context7", "everything", "figma", "files", "github", "gitlab", "maps", "memory", "slack", "tavily", "thinking")
	n := len(servers)
	for name, s := range servers {
		s.ConnectTimeout = ""
		servers[name] = s
	}
	servers["hangs"] = hanging(t)
	for range 4 {
		load := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
		if err := load.Start(); err != nil {
			t.Fatal(err)
		}
		defer load.Wait()
		defer load.Process.Kill()
	}
	life := newHouse(t, servers, map[string]any{"starting": 2}).start(t)
	for i := range n { // the next one comes, however long all take
		await.True(t, func() bool { return readyServers(t, life.url) > i })
	}
	life.stop(t)
}

// readyServers returns how many servers are ready.
func readyServers(t testing.TB, url string) int {
	t.Helper()
	var state struct {
		Ready int `json:"servers_ready"`
	}
	if err := json.Unmarshal([]byte(fetch.Send(t, http.MethodGet, strings.TrimSuffix(url, "/mcp")+"/readyz", "").Body), &state); err != nil {
		t.Fatal(err)
	}
	return state.Ready
}

// Codex looks at what it was listed within about a second. At the first start of its servers, one of which hangs, its
// model is offered toolfinch's tools with its first request, over stdio. A busy machine may be too slow for Codex once or
// twice.
func TestCodexIsOfferedToolsAtAColdStart(t *testing.T) {
	t.Parallel()
	codex := agents.All[3]
	servers := upstreams(t, "files", "memory", "everything")
	servers["hangs"] = hanging(t)
	for range 3 {
		h := newHouse(t, servers, map[string]any{"direct_below": 12_000})
		m := &model{path: filepath.Join(h.files, "note.txt"), content: "Written by Codex.\n"}
		runAgent(t, codex, h, m, agents.Server{Command: []string{program(t), "serve", "--config", h.config}}, false)
		if len(m.turns) > 0 { // of those in which the tools are offered
			return
		}
	}
	t.Error("Codex offers its model no tool of toolfinch")
}
