//go:build unix

package main_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"toolfinch/internal/await"
)

// A server gets a stored secret, and with SIGHUP the one that took its place. What it
// writes of it is masked, and of the vault it gets nothing.
func TestAChangedSecretIsTakenWithSIGHUP(t *testing.T) {
	const key = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	h := newHouse(t, map[string]server{"clock": {
		Command: "sh", Args: []string{"-c", `env > seen.$TOKEN; echo "my token is $TOKEN" >&2; exec "$0" demo-server clock demo`, program(t)},
		Env: map[string]string{"TOKEN": "${secret:CLOCK}"}, ConnectTimeout: patience.String(),
	}}, map[string]any{"python": map[string]any{"inherit_env": "all"}})
	h.env = append(h.env, "MCPPROXY_VAULT_KEY="+key)
	store := func(value string) {
		cmd := exec.Command(program(t), "secret", "set", "CLOCK", "--config", h.config)
		cmd.Env, cmd.Stdin = h.env, strings.NewReader(value+"\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	store("correct-horse")
	url, pid, log := h.serveLogged(t)
	at := log.wait(t, 0, "my token is ***")
	await.True(t, func() bool { // it reads signals once it serves
		response, err := http.Get(strings.TrimSuffix(url, "/mcp") + "/readyz")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	store("battery-staple")
	if err := syscall.Kill(pid, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	log.wait(t, at, "my token is ***")
	for _, value := range []string{"correct-horse", "battery-staple"} {
		seen, err := os.ReadFile(filepath.Join(h.home, "seen."+value))
		if err != nil || strings.Contains(string(seen), "MCPPROXY_VAULT_KEY") || strings.Contains(string(seen), key) {
			t.Errorf("the server got %v\n%s", err, seen)
		}
		if strings.Contains(log.String(), value) {
			t.Errorf("%s is in the log:\n%s", value, log)
		}
	}
}
