//go:build unix

package e2e_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

// fleet is replicas of toolfinch over one PostgreSQL database, behind haproxy.
type fleet struct {
	url      string // of haproxy
	replicas []*fleetReplica
}

// fleetVaultKey is the variable of the key of sealed secrets.
const fleetVaultKey = "MCPPROXY_VAULT_KEY=MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="

// fleetReplica is a place where a process of a fleet runs, one after another.
type fleetReplica struct {
	house   house
	port    string // where haproxy reaches it
	log     *logWriter
	process string // the program
	cmd     *exec.Cmd
	ended   chan error
}

// free returns a port that nobody listens at.
func free(t *testing.T) string {
	t.Helper()
	_, port, err := net.SplitHostPort(freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// fleetOver is replicas of a program over a database.
func fleetOver(t *testing.T, size int, path, database string, more ...map[string]any) *fleet {
	t.Helper()
	haproxy, err := exec.LookPath("haproxy")
	if err != nil {
		if haproxy = "/usr/sbin/haproxy"; !isThere(haproxy) {
			missing(t, "haproxy is not installed")
		}
	}
	f := &fleet{}
	for range size {
		r := &fleetReplica{port: free(t), process: path}
		r.house = newHouse(t, nil, append([]map[string]any{{
			"store": database, "transport": "http", "listen": "127.0.0.1:" + r.port,
		}}, more...)...)
		r.log = newLog(t, "a replica")
		t.Cleanup(func() { f.stop(t) }) // all, before the first of their houses is looked at
		r.house.env = append(r.house.env, fleetVaultKey)
		r.start(t)
		f.replicas = append(f.replicas, r)
	}
	f.balance(t, haproxy)
	return f
}

func isThere(path string) bool { _, err := os.Stat(path); return err == nil }

// start starts a process, and waits until it is ready.
func (r *fleetReplica) start(t *testing.T) {
	t.Helper()
	r.cmd = exec.Command(r.process, "serve", "--config", r.house.config)
	r.cmd.Env = r.house.env
	r.cmd.Stderr = r.log
	must.Do(t, r.cmd.Start())
	cmd, ended := r.cmd, make(chan error, 1)
	r.ended = ended
	go func() { ended <- cmd.Wait(); close(ended) }()
	await.Nil(t, func() error {
		answer, err := http.Get("http://127.0.0.1:" + r.port + "/readyz")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if text, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%s %s", answer.Status, text)
		}
		return nil
	})
}

// end has a process end as it is told to at a deployment, and waits until it has.
func (r *fleetReplica) end(t *testing.T) {
	t.Helper()
	must.Do(t, r.cmd.Process.Signal(syscall.SIGTERM))
	if err := await.Value(t, r.ended); err != nil {
		t.Errorf("a replica ended with %v", err)
	}
}

// stop ends the processes that run still, all at once because each waits for the balancer to
// look away.
func (f *fleet) stop(t *testing.T) {
	for _, r := range f.replicas {
		_ = r.cmd.Process.Signal(syscall.SIGTERM)
		defer func() { _ = r.cmd.Process.Kill() }()
	}
	for _, r := range f.replicas {
		if err := await.Value(t, r.ended); err != nil {
			t.Errorf("a replica ended with %v", err)
		}
	}
}

// balance starts haproxy before the replicas, as packaging/haproxy.cfg configures it.
func (f *fleet) balance(t *testing.T, haproxy string) {
	t.Helper()
	port := free(t)
	shipped := must.Get(os.ReadFile("../packaging/haproxy.cfg"))(t)
	config, servers, _ := strings.Cut(strings.Replace(string(shipped), "bind :8080", "bind 127.0.0.1:"+port, 1), "\tserver r1 ")
	if want := "replica-1:8080\n\tserver r2 replica-2:8080\n\tserver r3 replica-3:8080\n"; servers != want {
		t.Fatalf("packaging/haproxy.cfg has the servers\n%swant\n%s", servers, want)
	}
	for i, r := range f.replicas {
		config += fmt.Sprintf("\tserver r%d 127.0.0.1:%s\n", i+1, r.port)
	}
	if !strings.Contains(config, "timeout check 1s") {
		t.Fatal("packaging/haproxy.cfg has another timeout of checks")
	}
	config = strings.Replace(config, "timeout check 1s", "timeout check 1m", 1) // who is busy is not away
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	must.Do(t, os.WriteFile(file, []byte(config), 0o600))
	said := newLog(t, "haproxy")
	cmd := exec.Command(haproxy, "-db", "-f", file)
	cmd.Stderr, cmd.Stdout = said, said
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	f.url = "http://127.0.0.1:" + port + "/mcp"
	await.Nil(t, func() error {
		answer, err := http.Get(strings.TrimSuffix(f.url, "/mcp") + "/readyz")
		if err == nil {
			answer.Body.Close()
		}
		return err
	})
}
