//go:build unix

package e2e_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

// waitReady waits until toolfinch serves, and takes signals.
func waitReady(t *testing.T, url string) {
	t.Helper()
	await.True(t, func() bool {
		response, err := http.Get(strings.TrimSuffix(url, "/mcp") + "/readyz")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
}

// A server gets a stored secret, and with SIGHUP the one that took its place. What it
// writes of it is masked, and of the vault it gets nothing.
func TestAChangedSecretIsTakenWithSIGHUP(t *testing.T) {
	t.Parallel()
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
	life := h.start(t)
	url, pid, log := life.url, life.pid, life.log
	at := log.wait(t, 0, "my token is ***")
	waitReady(t, url)
	store("battery-staple")
	must.Do(t, syscall.Kill(pid, syscall.SIGHUP))
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

// A keyring may be away, or a key file, when the configuration is read anew: the key that
// was had at the start is still there.
func TestAReloadAsksForTheKeyNoMore(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the keyring of this system cannot be led elsewhere")
	}
	h := newHouse(t, map[string]server{"clock": {
		Command: program(t), Args: []string{"demo-server", "clock", "demo"}, Env: map[string]string{"TOKEN": "${secret:CLOCK}"}, ConnectTimeout: patience.String(),
	}})
	h.env = append(h.env, "DBUS_SESSION_BUS_ADDRESS=unix:path=/nonexistent")
	cmd := exec.Command(program(t), "secret", "set", "CLOCK", "--config", h.config)
	cmd.Env, cmd.Stdin = h.env, strings.NewReader("correct-horse")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "because no keyring can be used") {
		t.Fatalf("%v: %s", err, out)
	}
	keys, _ := filepath.Glob(filepath.Join(h.home, "data", "keys", "*.key"))
	if len(keys) != 1 {
		t.Fatalf("key files: %v", keys)
	}
	life := h.start(t)
	url, pid, log := life.url, life.pid, life.log
	waitReady(t, url)
	must.Do(t, os.Remove(keys[0]))
	at := len(log.String())
	must.Do(t, syscall.Kill(pid, syscall.SIGHUP))
	log.wait(t, at, "configuration reloaded")
	if strings.Contains(log.String()[at:], "left out") {
		t.Errorf("the server is lost: %s", log.String()[at:])
	}
	// One that starts now says what is missing, and serves what needs no secret.
	out, err := h.output(t, "secret", "list")
	if err == nil || !strings.Contains(string(out), "CLOCK") {
		t.Errorf("%s, %v", out, err)
	}
}
