//go:build unix

package e2e_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolfinch/e2e/agents"
	"toolfinch/internal/fetch"
	"toolfinch/internal/must"
)

// hanging is a server that starts and never says a word.
func hanging(t testing.TB) server {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hangs.mjs")
	must.Do(t, os.WriteFile(path, []byte("process.stdin.resume(); setInterval(() => {}, 1000)\n"), 0o600))
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
		must.Do(t, load.Start())
		defer load.Wait()
		defer load.Process.Kill()
	}
	life := newHouse(t, servers, map[string]any{"starting": 2}).start(t)
	waitServers(t, life.url, n)
	life.stop(t)
}

// readyServers returns how many servers are ready.
func readyServers(t testing.TB, url string) int {
	t.Helper()
	var state struct {
		Ready int `json:"servers_ready"`
	}
	must.Do(t, json.Unmarshal([]byte(fetch.Send(t, http.MethodGet, strings.TrimSuffix(url, "/mcp")+"/readyz", "").Body), &state))
	return state.Ready
}

// Codex looks at what it was listed within about a second. At the first start of its servers, one of which hangs, its
// model is offered toolfinch's tools with its first request, over stdio. A busy machine may be too slow for Codex some
// times.
func TestCodexIsOfferedToolsAtAColdStart(t *testing.T) { // alone, because Codex does not wait
	for range 10 {
		if offered(t, agents.All[3], besideAHangingServer(t, true), nil) {
			return
		}
	}
	t.Error("Codex offers its model no tool of toolfinch")
}

// Every agent offers its model toolfinch's tools with its first request, though one of its servers hangs: at the first
// start and at later ones, over stdio and HTTP.
func TestAgentsBesideAHangingServer(t *testing.T) {
	if !long {
		t.Skip("set TOOLFINCH_LONG=1: this takes half an hour")
	}
	for _, a := range agents.All {
		runs := 5
		if a.Name == "claude-code" || a.Name == "codex" {
			runs = 10
		}
		for _, over := range []string{"stdio", "HTTP"} {
			cold, warm := 0, 0
			for range runs {
				h := besideAHangingServer(t, over == "stdio")
				var at *life
				if over == "HTTP" {
					at = h.start(t)
				}
				if offered(t, a, h, at) {
					cold++
				}
				if offered(t, a, h, at) {
					warm++
				}
				if at != nil {
					at.stop(t)
				}
			}
			t.Logf("%s over %s: cold %d, warm %d of %d", a.Name, over, cold, warm, runs)
			if cold < runs || warm < runs {
				t.Errorf("%s over %s is offered tools %d times cold and %d times warm, want %d", a.Name, over, cold, warm, runs)
			}
		}
	}
}

// besideAHangingServer is a house of three published servers and one that hangs.
func besideAHangingServer(t *testing.T, shared bool) house {
	t.Helper()
	servers := upstreams(t, "files", "memory", "everything")
	servers["hangs"] = hanging(t)
	return newHouse(t, servers, map[string]any{"direct_below": 12_000, "shared": shared, "keep_running": "1ms"}).sharing()
}

// offered runs an agent, and reports whether its model was offered toolfinch's tools. at is the toolfinch that serves
// over HTTP; nil over stdio.
func offered(t *testing.T, a agents.Agent, h house, at *life) bool {
	t.Helper()
	to := agents.Server{Command: []string{program(t), "serve", "--config", h.config}}
	if at != nil {
		to = agents.Server{URL: at.url}
	}
	m := &model{path: filepath.Join(h.files, "note.txt"), content: "Written by " + a.Name + ".\n"}
	runAgent(t, a, h, m, to, false)
	return len(m.turns) > 0
}

// Eight agents of one user work at once over stdio, through one toolfinch and one copy of each server that needs no
// connection for each agent. opencode has XDG folders of its own here, and so a toolfinch of its own.
func TestEightAgentsAtOnce(t *testing.T) {
	if !long {
		t.Skip("set TOOLFINCH_LONG=1: this starts eight agents at once")
	}
	h := newHouse(t, upstreams(t, "files", "memory", "everything"), map[string]any{"shared": true, "keep_running": "1m", "start_wait": patience.String()}).sharing()
	h.env = slices.DeleteFunc(h.env, func(pair string) bool { // Codex and Gemini CLI pass no proxies on
		name, _, _ := strings.Cut(pair, "=")
		return strings.HasSuffix(strings.ToUpper(name), "_PROXY")
	})
	t.Run("agents", func(t *testing.T) {
		for _, a := range agents.All {
			t.Run(a.Name, func(t *testing.T) {
				t.Parallel()
				m := &model{path: filepath.Join(h.files, a.Name+".txt"), content: "Written by " + a.Name + ".\n"}
				talk(t, a, h, m, agents.Server{Command: []string{program(t), "serve", "--config", h.config}}, false)
				m.wrote(t, m.turns[len(m.turns)-1])
			})
		}
	})
	all := h.shared(t)
	servers := 0
	for _, p := range processes() {
		if strings.Contains(environmentOf(p.pid), h.home) && slices.ContainsFunc([]string{"server-memory", "server-everything"}, func(name string) bool { return strings.Contains(p.command, name) }) {
			servers++
		}
	}
	if len(all) != 2 || servers != 4 {
		t.Errorf("%d toolfinches and %d servers run for eight agents: %+v", len(all), servers, all)
	}
	h.said(t, "stop")
}
