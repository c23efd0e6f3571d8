//go:build unix

package main_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"toolfinch/internal/await"
	"toolfinch/internal/postgres"
)

// fleet is replicas of toolfinch over one PostgreSQL database, behind haproxy, which takes them
// in turn whatever a request is.
type fleet struct {
	url      string // of haproxy
	replicas []*fleetReplica
	balancer string // file with the configuration of haproxy
	// rebalance has haproxy end, with all connections, and another one take its place.
	rebalance func()
}

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
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
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
	t.Cleanup(func() { f.stop(t) })
	for n := range size {
		r := &fleetReplica{port: free(t)}
		inside := "127.0.0.1:" + free(t)
		r.house = newHouse(t, servers, append([]map[string]any{{
			"store": database, "transport": "http", "listen": "127.0.0.1:" + r.port,
			"cluster": map[string]any{
				"keys": []string{"MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="}, "listen": inside, "address": reached(inside),
				"name": fmt.Sprintf("replica-%d", n+1), "drain": "15s",
			},
		}}, more...)...)
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
	r.cmd = exec.Command(cmp.Or(r.program, program(t)), "serve", "--config", r.house.config)
	r.cmd.Env = append(r.house.env, fleetVaultKey)
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

// balance starts haproxy before the replicas, as packaging/haproxy.cfg configures it.
func (f *fleet) balance(t *testing.T, haproxy string) {
	t.Helper()
	port := free(t)
	shipped, err := os.ReadFile("../../packaging/haproxy.cfg")
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

// stick has haproxy send what belongs to a session to the replica that opened it, by the lines
// of packaging/haproxy.cfg that are for that.
func (f *fleet) stick(t *testing.T) {
	t.Helper()
	config, err := os.ReadFile(f.balancer)
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(config), "\t# stick"); lines != 3 {
		t.Fatalf("packaging/haproxy.cfg has %d lines for stickiness", lines)
	}
	if err := os.WriteFile(f.balancer, []byte(strings.ReplaceAll(string(config), "\t# stick", "\tstick")), 0o600); err != nil {
		t.Fatal(err)
	}
	f.rebalance()
	f.balanced(t)
}

// tokenIn finds the token that the preview of a large answer names.
var tokenIn = regexp.MustCompile(`\b[A-Z2-7]{26}\b`)

// goClient is a client of the Go SDK, in a session of a revision before 2026-07-28.
type goClient struct {
	*mcp.ClientSession
	progress atomic.Int64
	changed  atomic.Int64 // list_changed
}

func (f *fleet) goClient(t *testing.T, name string) *goClient {
	t.Helper()
	c := &goClient{}
	client := mcp.NewClient(&mcp.Implementation{Name: name, Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { c.progress.Add(1) },
		ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { c.changed.Add(1) },
	})
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: f.url}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
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

// A balancer that sticks saves handing requests over, and loses no session with its replica.
func TestABalancerThatSticks(t *testing.T) {
	t.Parallel()
	url, _, _ := grower(t, "up")
	f := fleetOver(t, 2, postgres.Start(t), nil, map[string]any{"mcp_servers": map[string]any{"up": map[string]any{"url": url}}})
	f.stick(t)
	c := f.goClient(t, "client")
	defer c.Close()
	for range 6 {
		if text, err := c.call(t.Context(), "up_echo", map[string]any{"id": "one"}, ""); err != nil || !strings.Contains(text, "one") {
			t.Fatal(text, err)
		}
	}
	if n := f.forwards(t); n > 0 {
		t.Errorf("%v requests were handed over", n)
	}
	id := c.ID()
	for _, r := range f.replicas {
		if err := r.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-r.ended
		await.Nil(t, func() error { // 502 until the balancer looks away
			_, err := c.call(t.Context(), "up_echo", map[string]any{"id": "two"}, "")
			return err
		})
		r.start(t)
	}
	if c.ID() != id {
		t.Error("the client has another session")
	}
}

// forwards is how many requests replicas have handed to others.
func (f *fleet) forwards(t *testing.T) (all float64) {
	t.Helper()
	for _, r := range f.replicas {
		answer, err := http.Get("http://127.0.0.1:" + r.port + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(text), `toolfinch_forward_duration_seconds_count{outcome="answered"} `)
		var n float64
		_, _ = fmt.Sscan(after, &n) // there is none where nothing was handed over
		all += n
	}
	return all
}

// When the balancer restarts, calls in flight over it fail, and sessions go on.
func TestABalancerThatRestartsLosesNoSession(t *testing.T) {
	t.Parallel()
	f := fleetOver(t, 2, postgres.Start(t), upstreams(t, "everything"))
	c := f.goClient(t, "client")
	defer c.Close()
	if _, err := c.call(t.Context(), "retrieve_tools", map[string]any{"query": "echo a message", "limit": 1}, ""); err != nil {
		t.Fatal(err)
	}
	id, failed := c.ID(), make(chan error)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := c.call(ctx, "everything_trigger-long-running-operation", map[string]any{"duration": 300, "steps": 3000}, "p")
		failed <- err
	}()
	await.True(t, func() bool { return c.progress.Load() > 0 })
	f.rebalance()
	if err := await.Value(t, failed); err == nil {
		t.Error("a call in flight over the balancer was answered")
	}
	await.Nil(t, func() error {
		text, err := c.call(t.Context(), "everything_echo", map[string]any{"message": "still here"}, "")
		if err == nil && !strings.Contains(text, "still here") {
			t.Errorf("a call is answered %s", text)
		}
		return err
	})
	if c.ID() != id {
		t.Error("the client has another session")
	}
	for _, r := range f.replicas {
		await.Nil(t, func() error {
			answer, err := http.Get("http://127.0.0.1:" + r.port + "/metrics")
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			if text, _ := io.ReadAll(answer.Body); !strings.Contains(string(text), "toolfinch_calls_in_flight 0") {
				return errors.New("a call without a client goes on")
			}
			return nil
		})
	}
}

// A rolling restart of all replicas loses no call and no session, and clients notice nothing.
func TestARollingRestartLosesNothing(t *testing.T) {
	t.Parallel() // most of the time somebody waits
	probe, err := filepath.Abs("../../testdata/node/probe.mjs")
	if err != nil {
		t.Fatal(err)
	}
	servers := upstreams(t, "everything")
	servers["probe"] = script(t, probe)
	f := fleetOver(t, 3, postgres.Start(t), servers)
	const clients = 6
	var all []*goClient
	for i := range clients {
		c := f.goClient(t, fmt.Sprint("client-", i))
		if _, err := c.call(t.Context(), "retrieve_tools", map[string]any{"query": "echo a message", "limit": 1}, ""); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	ts := newSDKClient(t, f.replicas[0].house.env)
	ts.do(t, "connect", map[string]any{"url": f.url}, nil)

	for n := range len(f.replicas) { // what cancels a call comes through another replica than the call, if not each time
		if got := ts.try(t, "probe_wait_until_cancelled", map[string]any{}, map[string]any{"abortAfter": 1}); got.Error == nil {
			t.Errorf("a call that the client gave up answered %+v", got)
		}
		await.Nil(t, func() error {
			var reasons []string
			text := ts.call(t, "probe_cancelled_waits", map[string]any{}).text()
			if err := json.Unmarshal([]byte(text), &reasons); err != nil || len(reasons) != n+1 {
				return fmt.Errorf("after %d calls were given up, the server was told %s: %w", n+1, text, err)
			}
			return nil
		})
	}

	for _, r := range f.replicas { // the session lives in one of them
		r.overREST(t, all[0].ID())
	}

	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	var calls, long atomic.Int64
	for i, c := range all {
		ids := []string{c.ID()}
		working.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				said := fmt.Sprintf("client %d call %d", i, n)
				text, err := c.call(t.Context(), "everything_echo", map[string]any{"message": said}, "")
				if err != nil || !strings.Contains(text, said) {
					t.Errorf("%s is answered %s %v", said, text, err)
					return
				}
				calls.Add(1)
			}
			if c.ID() != ids[0] {
				t.Errorf("client %d has another session", i)
			}
		})
		working.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				text, err := c.call(t.Context(), "everything_trigger-long-running-operation", map[string]any{"duration": 1, "steps": 2}, fmt.Sprint(i, "-", n))
				if err != nil || !strings.Contains(text, "completed") {
					t.Errorf("a long call of client %d is answered %s %v", i, text, err)
					return
				}
				long.Add(1)
			}
		})
	}
	working.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			said := fmt.Sprint("typescript ", n)
			if got := ts.call(t, "everything_echo", map[string]any{"message": said}).text(); !strings.Contains(got, said) {
				t.Errorf("%s is answered %s", said, got)
				return
			}
			time.Sleep(20 * time.Millisecond) // this SDK keeps a listener for each call
		}
	})
	progress := func(least int64) {
		t.Helper()
		from := calls.Load()
		await.True(t, func() bool { return calls.Load() >= from+least || t.Failed() })
	}
	progress(50)
	for i, r := range f.replicas {
		r.end(t)
		progress(20)
		r.start(t)
		progress(20)
		t.Logf("replica %d was replaced after %d calls and %d long ones", i+1, calls.Load(), long.Load())
	}
	stop()
	working.Wait()
	for i, c := range all {
		if c.progress.Load() == 0 {
			t.Errorf("client %d has heard of no progress", i)
		}
		if c.changed.Load() > 1 {
			t.Errorf("client %d was told %d times that its list has changed", i, c.changed.Load())
		}
		tools, err := c.ListTools(t.Context(), nil)
		if err != nil {
			t.Errorf("client %d: %v", i, err)
			continue
		}
		var names []string
		for _, one := range tools.Tools {
			names = append(names, one.Name)
		}
		if !strings.Contains(strings.Join(names, " "), "everything_echo") {
			t.Errorf("client %d is listed %q, without what it had registered", i, names)
		}
		if err := c.Close(); err != nil {
			t.Errorf("client %d: %v", i, err)
		}
	}
}

// Of a replica that is killed only the calls in flight are lost; sessions go on elsewhere, with
// what is kept for them.
func TestAKilledReplicaLosesNoSession(t *testing.T) {
	t.Parallel()
	everything := script(t, module(t, everythingJS), "stdio")
	f := fleetOver(t, 3, postgres.Start(t), nil, map[string]any{"mcp_servers": map[string]any{"everything": map[string]any{
		"command": everything.Command, "args": everything.Args, "connect_timeout": everything.ConnectTimeout, "output_cache": true,
	}}})
	const clients = 12
	var all []*goClient
	var kept []string // the token of a large answer for each
	for i := range clients {
		c := f.goClient(t, fmt.Sprint("client-", i))
		if _, err := c.call(t.Context(), "retrieve_tools", map[string]any{"query": "echo a message", "limit": 1}, ""); err != nil {
			t.Fatal(err)
		}
		text, err := c.call(t.Context(), "everything_echo", map[string]any{"message": strings.Repeat(fmt.Sprintf("line of %d\n", i), 3000)}, "")
		token := tokenIn.FindString(text)
		if err != nil || token == "" {
			t.Fatalf("a large answer is %.500s %v", text, err)
		}
		all, kept = append(all, c), append(kept, token)
	}
	// Each has a call in flight when a replica is lost.
	var working sync.WaitGroup
	var lost, done atomic.Int64
	for _, c := range all {
		working.Go(func() {
			text, err := c.call(t.Context(), "everything_trigger-long-running-operation", map[string]any{"duration": 6, "steps": 6}, "p"+c.ID())
			switch {
			case err != nil:
				lost.Add(1)
				t.Logf("a call is lost: %v", err)
			case strings.Contains(text, "completed"):
				done.Add(1)
			default:
				t.Errorf("a call is answered %s", text)
			}
		})
	}
	for _, c := range all {
		await.True(t, func() bool { return c.progress.Load() > 0 })
	}
	if err := f.replicas[0].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-f.replicas[0].ended
	for i, c := range all {
		// A request that haproxy had on its way to the replica is answered by nobody.
		await.Nil(t, func() error {
			said := fmt.Sprint("after the end ", i)
			text, err := c.call(t.Context(), "everything_echo", map[string]any{"message": said}, "")
			if err == nil && !strings.Contains(text, said) {
				t.Errorf("%s is answered %s", said, text)
			}
			return err
		})
		for whose, token := range kept {
			text, err := c.call(t.Context(), "read_output", map[string]any{"token": token, "offset": 20_000}, "")
			if reads := strings.Contains(text, fmt.Sprintf("line of %d\\n", whose)); err != nil || reads != (whose == i) {
				t.Errorf("client %d reads what is kept for client %d: %.300s %v", i, whose, text, err)
			}
		}
		tools, err := c.ListTools(t.Context(), nil)
		if err != nil {
			t.Errorf("client %d: %v", i, err)
			continue
		}
		text, _ := json.Marshal(tools.Tools)
		if !strings.Contains(string(text), "everything_echo") {
			t.Errorf("client %d has lost what it had registered", i)
		}
	}
	working.Wait()
	t.Logf("%d calls were lost, %d answered", lost.Load(), done.Load())
	if lost.Load() == 0 || done.Load() == 0 {
		t.Errorf("%d calls were lost with a replica, %d answered: both are wanted", lost.Load(), done.Load())
	}
	for _, c := range all {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}
