//go:build unix

package e2e_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"toolfinch/internal/await"
	"toolfinch/internal/fetch"
)

// fleet is replicas of toolfinch over one PostgreSQL database, behind haproxy, which takes them
// in turn whatever a request is, unless it sticks.
type fleet struct {
	url      string // of haproxy
	replicas []*fleetReplica
	balancer string // file with the configuration of haproxy
	// rebalance has haproxy end, with all connections, and another one take its place.
	rebalance func()
}

// fleetKeys are what replicas share: the one in use, and the one that is to take its place.
var fleetKeys = []string{"MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=", "MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI="}

// fleetVaultKey is the variable of the key of sealed secrets.
const fleetVaultKey = "MCPPROXY_VAULT_KEY=MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="

// fleetReplica is a place where a process of a fleet runs, one after another.
type fleetReplica struct {
	house   house
	program string // "" for the one under test
	port    string // where haproxy reaches it
	log     *logWriter
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

// fleetOver is replicas over a database.
func fleetOver(t *testing.T, size int, database string, servers map[string]server, more ...map[string]any) *fleet {
	t.Helper()
	return fleetReached(t, size, database, servers, func(inside string) string { return inside }, more...)
}

// fleetReached is replicas that reach each other by other addresses than those that they listen at.
func fleetReached(t *testing.T, size int, database string, servers map[string]server, reached func(inside string) string, more ...map[string]any) *fleet {
	t.Helper()
	haproxy, err := exec.LookPath("haproxy")
	if err != nil {
		if haproxy = "/usr/sbin/haproxy"; !isThere(haproxy) {
			missing(t, "haproxy is not installed")
		}
	}
	f := &fleet{}
	for n := range size {
		r := &fleetReplica{port: free(t)}
		inside := "127.0.0.1:" + free(t)
		r.house = newHouse(t, servers, append([]map[string]any{{
			"store": database, "transport": "http", "listen": "127.0.0.1:" + r.port,
			"cluster": map[string]any{
				"keys": fleetKeys, "listen": inside, "address": reached(inside),
				"name": fmt.Sprintf("replica-%d", n+1), "drain": "15s",
			},
		}}, more...)...)
		t.Cleanup(func() { f.stop(t) }) // all, before the first of their houses is looked at
		r.house.env = append(r.house.env, fleetVaultKey)
		r.start(t)
		f.replicas = append(f.replicas, r)
	}
	f.balance(t, haproxy)
	return f
}

func isThere(path string) bool { _, err := os.Stat(path); return err == nil }

// rotate moves the second of the fleet's keys to the front, for the next start.
func (r *fleetReplica) rotate(t *testing.T) {
	t.Helper()
	config, err := os.ReadFile(r.house.config)
	if err != nil {
		t.Fatal(err)
	}
	rotated := strings.NewReplacer(fleetKeys[0], fleetKeys[1], fleetKeys[1], fleetKeys[0]).Replace(string(config))
	if rotated == string(config) {
		t.Fatal("the configuration has none of the keys")
	}
	if err := os.WriteFile(r.house.config, []byte(rotated), 0o600); err != nil {
		t.Fatal(err)
	}
}

// start starts a process, and waits until it is ready.
func (r *fleetReplica) start(t *testing.T) {
	t.Helper()
	r.cmd = exec.Command(cmp.Or(r.program, program(t)), "serve", "--config", r.house.config)
	r.cmd.Env = r.house.env
	r.log = &logWriter{}
	r.cmd.Stderr = r.log
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cmd, log, ended := r.cmd, r.log, make(chan error, 1)
	r.ended = ended
	go func() { ended <- cmd.Wait(); close(ended) }()
	await.Nil(t, func() error {
		answer, err := http.Get("http://127.0.0.1:" + r.port + "/readyz")
		if err != nil {
			return fmt.Errorf("%w\n%s", err, log)
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
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-r.ended:
		if err != nil {
			t.Errorf("a replica ended with %v\n%s", err, r.log)
		}
	case <-time.After(patience):
		t.Fatalf("a replica does not end\n%s", r.log)
	}
	r.log.check(t)
}

// stop ends the processes that run still, all at once because each waits for the balancer to
// look away, and shows what they said to a test that failed.
func (f *fleet) stop(t *testing.T) {
	for _, r := range f.replicas {
		_ = r.cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, r := range f.replicas {
		select {
		case err := <-r.ended:
			if err != nil {
				t.Errorf("a replica ended with %v", err)
			}
		case <-time.After(patience):
			t.Error("a replica does not end")
			_ = r.cmd.Process.Kill()
			<-r.ended
		}
		r.log.check(t)
	}
}

// balance starts haproxy before the replicas, as packaging/haproxy.cfg configures it, but for
// stickiness: nothing may depend on it.
func (f *fleet) balance(t *testing.T, haproxy string) {
	t.Helper()
	port := free(t)
	shipped, err := os.ReadFile("../packaging/haproxy.cfg")
	if err != nil {
		t.Fatal(err)
	}
	config, servers, _ := strings.Cut(strings.Replace(string(shipped), "bind :8080", "bind 127.0.0.1:"+port, 1), "\tserver r1 ")
	if want := "replica-1:8080\n\tserver r2 replica-2:8080\n\tserver r3 replica-3:8080\n"; servers != want {
		t.Fatalf("packaging/haproxy.cfg has the servers\n%swant\n%s", servers, want)
	}
	for i, r := range f.replicas {
		config += fmt.Sprintf("\tserver r%d 127.0.0.1:%s\n", i+1, r.port)
	}
	if lines := strings.Count(config, "\tstick"); lines != 3 {
		t.Fatalf("packaging/haproxy.cfg has %d lines for stickiness", lines)
	}
	config = strings.ReplaceAll(config, "\tstick", "\t# stick")
	if !strings.Contains(config, "timeout check 1s") {
		t.Fatal("packaging/haproxy.cfg has another timeout of checks")
	}
	config = strings.Replace(config, "timeout check 1s", "timeout check 1m", 1) // who is busy is not away
	f.balancer = filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(f.balancer, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	said := &logWriter{}
	var cmd *exec.Cmd
	start := func() {
		t.Helper()
		cmd = exec.Command(haproxy, "-db", "-f", f.balancer)
		cmd.Stderr, cmd.Stdout = said, said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	end := func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	f.rebalance = func() { end(); start() }
	start()
	t.Cleanup(func() {
		end()
		if t.Failed() {
			t.Logf("haproxy said:\n%s", said)
		}
	})
	f.url = "http://127.0.0.1:" + port + "/mcp"
	f.balanced(t)
}

// balanced waits until haproxy answers.
func (f *fleet) balanced(t *testing.T) {
	t.Helper()
	await.Nil(t, func() error {
		answer, err := http.Get(strings.TrimSuffix(f.url, "/mcp") + "/readyz")
		if err == nil {
			answer.Body.Close()
		}
		return err
	})
}

// stick has haproxy send what belongs to a session to one replica, as packaging/haproxy.cfg
// configures it.
func (f *fleet) stick(t *testing.T) {
	t.Helper()
	config, err := os.ReadFile(f.balancer)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.balancer, []byte(strings.ReplaceAll(string(config), "\t# stick", "\tstick")), 0o600); err != nil {
		t.Fatal(err)
	}
	f.rebalance()
	f.balanced(t)
}

// forwards is how many requests replicas have handed to others.
func (f *fleet) forwards(t *testing.T) (all float64) {
	t.Helper()
	for _, r := range f.replicas {
		all += r.metric(t, `toolfinch_forward_duration_seconds_count{outcome="answered"}`)
	}
	return all
}

// metric is one of the replica's; 0 where it has none of that name.
func (r *fleetReplica) metric(t *testing.T, name string) (value float64) {
	t.Helper()
	_, after, _ := strings.Cut(fetch.Send(t, http.MethodGet, "http://127.0.0.1:"+r.port+"/metrics", "").Body, "\n"+name+" ")
	_, _ = fmt.Sscan(after, &value)
	return value
}

// tokenIn finds the token that the preview of a large answer names.
var tokenIn = regexp.MustCompile(`\b[A-Z2-7]{26}\b`)

// goClient is a client of the Go SDK.
type goClient struct {
	*mcp.ClientSession
	progress atomic.Int64
	changed  atomic.Int64 // list_changed
}

func (f *fleet) goClient(t *testing.T, name string) *goClient {
	t.Helper()
	return goClientAt(t, f.url, name, legacyRevision)
}

func goClientAt(t *testing.T, url, name, revision string) *goClient {
	t.Helper()
	c := &goClient{}
	client := mcp.NewClient(&mcp.Implementation{Name: name, Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { c.progress.Add(1) },
		ToolListChangedHandler: func(_ context.Context, r *mcp.ToolListChangedRequest) {
			c.changed.Add(1)
			go func() { _, _ = r.Session.ListTools(t.Context(), nil) }() // as agents do; else each first search is held
		},
	})
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	c.ClientSession = session
	return c
}

// call calls a tool, and returns the text of its answer.
func (c *goClient) call(ctx context.Context, name string, arguments map[string]any, progress string) (string, error) {
	params := &mcp.CallToolParams{Name: name, Arguments: arguments}
	if progress != "" {
		params.SetProgressToken(progress)
	}
	result, err := c.CallTool(ctx, params)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(result.Content)
	return string(text), err
}

// overREST calls a tool over the REST API for a session of MCP.
func (r *fleetReplica) overREST(t *testing.T, session string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, "http://127.0.0.1:"+r.port+"/api/proxy/execute", strings.NewReader(`{"tool_id":"everything_echo","arguments":{"message":"over REST"}}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Mcp-Session-Id", session)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusOK || !strings.Contains(string(text), "over REST") {
		t.Errorf("over REST: %s %s", answer.Status, text)
	}
}
