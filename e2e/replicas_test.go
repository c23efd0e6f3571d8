//go:build unix

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"toolfinch/e2e/postgres"
	"toolfinch/internal/await"
	"toolfinch/internal/fetch"
	"toolfinch/internal/must"
)

// The revisions of the two eras.
const (
	legacyRevision = "2025-11-25"
	modernRevision = "2026-07-28"
)

// Replicas over one database share what it has: keys, and what a principal has provisioned. A balancer
// brings a client to any of them. A key that is revoked takes its sessions and provisioned tools with it at all of
// them: one that is made again under its name is somebody else.
func TestReplicasShareTheStore(t *testing.T) {
	t.Parallel()
	url, _ := grower(t, "up")
	f := fleetOver(t, 2, program(t), postgres.Start(t), map[string]any{
		"auth": "keys", "gating": map[string]any{"max_tools": 3}, "mcp_servers": map[string]any{"up": map[string]any{"url": url}},
	})
	made, err := f.replicas[0].house.output(t, "key", "create", "team")
	if err != nil {
		t.Fatal(err)
	}
	key := strings.TrimSpace(string(made))
	ask := func(r *fleetReplica, path, body string) (int, string) {
		got := fetch.Send(t, http.MethodPost, "http://127.0.0.1:"+r.port+path, body, "Authorization: Bearer "+key)
		return got.Status, got.Body
	}
	executes := func(r *fleetReplica, want int) {
		t.Helper()
		await.Nil(t, func() error {
			if status, text := ask(r, "/api/proxy/execute", `{"tool_id":"up_echo","arguments":{"id":"shared"}}`); status != want {
				return fmt.Errorf("%d %s, want %d", status, text, want)
			}
			return nil
		})
	}
	for _, r := range f.replicas {
		executes(r, http.StatusBadRequest) // not provisioned
	}
	await.Nil(t, func() error {
		if status, text := ask(f.replicas[0], "/api/tools/provision", `{"tool_ids":["up_echo"]}`); status != http.StatusOK {
			return fmt.Errorf("%d %s", status, text)
		}
		return nil
	})
	for _, r := range f.replicas {
		executes(r, http.StatusOK)
	}
	session, stream := listens(t, "http://127.0.0.1:"+f.replicas[0].port+"/mcp", key)
	must.Get(f.replicas[1].house.output(t, "key", "revoke", "team"))(t)
	await.Value(t, stream)
	for _, r := range f.replicas {
		executes(r, http.StatusUnauthorized)
	}
	if made, err = f.replicas[1].house.output(t, "key", "create", "team"); err != nil {
		t.Fatal(err)
	}
	key = strings.TrimSpace(string(made))
	for _, r := range f.replicas {
		executes(r, http.StatusBadRequest) // not provisioned
		got := fetch.Send(t, http.MethodPost, "http://127.0.0.1:"+r.port+"/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
			"Authorization: Bearer "+key, "Content-Type: application/json", "Accept: application/json, text/event-stream", "Mcp-Session-Id: "+session)
		if got.Status != http.StatusNotFound {
			t.Errorf("the session of the revoked key: %d %.200s", got.Status, got.Body)
		}
	}
}

// listens opens a session with its event stream. ended is closed at the end of that.
func listens(t *testing.T, url, key string) (session string, ended <-chan struct{}) {
	t.Helper()
	send := func(method, body string) *http.Response {
		request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header = http.Header{"Authorization": {"Bearer " + key}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
		if session != "" {
			request.Header.Set("Mcp-Session-Id", session)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v, %v", method, response, err)
		}
		return response
	}
	opened := send(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+legacyRevision+`","capabilities":{},"clientInfo":{"name":"e2e","version":"1"}}}`)
	opened.Body.Close()
	session = opened.Header.Get("Mcp-Session-Id")
	stream, done := send(http.MethodGet, ""), make(chan struct{})
	go func() {
		defer close(done)
		defer stream.Body.Close()
		_, _ = io.Copy(io.Discard, stream.Body)
	}()
	return session, done
}

// crowd is clients of both eras behind the balancer, each of which checks that what it is
// answered, asked and told is its own.
type crowd struct {
	t       *testing.T
	fleet   *fleet
	all     []*member
	ctx     context.Context // of the work
	working sync.WaitGroup
	calls   atomic.Int64

	mu      sync.Mutex // guards what follows; never held over a call
	changes []change
	failed  []failure
}

// change is the time in which a replica ended, killed or told to, or another one began.
type change struct {
	from, to time.Time
	killed   bool
}

// failure is a call that failed, and the time that it took.
type failure struct {
	what       string
	began, end time.Time
	err        error
}

// member is one client.
type member struct {
	*mcp.ClientSession
	name   string
	id     string // of its session
	told   atomic.Int64
	asked  atomic.Int64
	strays atomic.Int64 // what was another's
	closed atomic.Bool  // by the SDK, which does that where half an answer comes
}

// addresses counts those of clients.
var addresses atomic.Int32

// enter connects a client.
func enter(t *testing.T, url, name, revision string) *member {
	t.Helper()
	m := &member{name: name}
	own := func(count *atomic.Int64, message string) {
		count.Add(1)
		if !strings.HasPrefix(message, m.name+" ") {
			m.strays.Add(1)
		}
	}
	var first sync.Once
	// As the balancer sticks clients of 2026-07-28 by their addresses, each has its own.
	from := &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(addresses.Add(1)))}
	web := &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{LocalAddr: from}).DialContext, MaxIdleConnsPerHost: 8}}
	t.Cleanup(web.CloseIdleConnections)
	client := mcp.NewClient(&mcp.Implementation{Name: name, Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { own(&m.told, r.Params.Message) },
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			own(&m.asked, r.Params.Message)
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": r.Params.Message}}, nil
		},
		ToolListChangedHandler: func(_ context.Context, r *mcp.ToolListChangedRequest) {
			first.Do(func() { go func() { _, _ = r.Session.ListTools(t.Context(), nil) }() }) // else the first search is held
		},
	})
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url, MaxRetries: 20, HTTPClient: web}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	m.ClientSession, m.id = session, session.ID()
	return m
}

// call returns the text of an answer.
func (m *member) call(ctx context.Context, name, progress string, arguments map[string]any) (string, error) {
	params := &mcp.CallToolParams{Name: name, Arguments: arguments}
	if progress != "" {
		params.SetProgressToken(progress)
	}
	result, err := m.CallTool(ctx, params)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(result)
	if err == nil && result.IsError {
		err = errors.New(string(text))
	}
	return string(text), err
}

// work has every client call one thing after another until the end.
func (c *crowd) work(upstreams int) {
	for i, m := range c.all {
		c.working.Go(func() {
			for n := 0; c.ctx.Err() == nil; n++ {
				id := fmt.Sprintf("%s %d", m.name, n)
				server := fmt.Sprintf("up%d", (i+n)%upstreams)
				name, progress, arguments, want := server+"_echo", "", map[string]any{"id": id}, id
				switch n % 8 {
				case 2:
					name, progress = server+"_steps", id
				case 4:
					name = server + "_ask"
				case 6:
					name, arguments, want = "retrieve_tools", map[string]any{"query": "say an identifier again", "limit": 1, "server": "up0"}, "up0_echo"
				}
				began := time.Now()
				text, err := m.call(await.Context(c.t), name, progress, arguments)
				if err == nil && !strings.Contains(text, want) {
					c.t.Errorf("%s with %q is answered %s", name, id, text)
				}
				if err != nil {
					c.mu.Lock()
					c.failed = append(c.failed, failure{name + " " + id, began, time.Now(), err})
					c.mu.Unlock()
				}
				c.calls.Add(1)
				if errors.Is(err, mcp.ErrConnectionClosed) {
					m.closed.Store(true)
					return
				}
			}
		})
	}
}

// progress waits until the clients were answered that many times more.
func (c *crowd) progress(calls int64) {
	c.t.Helper()
	from := c.calls.Load()
	await.True(c.t, func() bool { return c.calls.Load() >= from+calls })
}

// change has a replica end, or begin.
func (c *crowd) change(do func(*testing.T), killed bool) {
	c.t.Helper()
	from := time.Now()
	do(c.t)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes = append(c.changes, change{from, time.Now(), killed})
}

// kill ends a replica as a crash does.
func (r *fleetReplica) kill(t *testing.T) {
	t.Helper()
	must.Do(t, r.cmd.Process.Kill())
	await.Value(t, r.ended)
}

// costs reports whether a failure is one that a change explains: the call was in flight then. Of a replica that is not
// killed, that is a call which had asked its client something: the answer comes to another replica, as the balancer sees it.
// The answer to a question may have been in flight, too, which no client sends twice: then the call waits for it.
// A call that began when the replica was gone can only have met the balancer, which notices that soon.
func (d change) costs(f failure) bool {
	says := func(texts ...string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(f.err.Error(), text) })
	}
	const balancer = "Bad Gateway"
	const noticed = 5 * time.Second
	asked := strings.Contains(f.what, "_ask ")
	if asked && f.end.After(d.from) && f.began.Before(d.to.Add(noticed)) && says("the client gave no answer", "continues no call", "may or may not have happened") {
		return true
	}
	if !d.killed {
		return false
	}
	unanswered := asked && says("deadline exceeded", "not within")
	inFlight := f.began.Before(d.to) && (unanswered || says(balancer, "may or may not have happened", "may have been carried out", // as docs/scale.md says; else the client's own connection ended
		"EOF", "request terminated without response", "connection reset", "connection closed"))
	late := f.began.Before(d.to.Add(noticed)) && says(balancer)
	return f.end.After(d.from) && (inFlight || late)
}

// judge fails the test for each call that failed though no replica ended or began meanwhile.
func (c *crowd) judge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.failed {
		if !slices.ContainsFunc(c.changes, func(d change) bool { return d.costs(f) }) {
			c.t.Errorf("%s failed after %v: %v", f.what, f.end.Sub(f.began).Round(time.Millisecond), f.err)
		}
	}
	c.t.Logf("%d calls, %d failed with a replica that ended or began", c.calls.Load(), len(c.failed))
	for _, m := range c.all {
		if m.strays.Load() > 0 {
			c.t.Errorf("%s got %d messages of others", m.name, m.strays.Load())
		}
		if m.ID() != m.id {
			c.t.Errorf("%s has another session", m.name)
		}
		if m.told.Load() == 0 || m.asked.Load() == 0 {
			c.t.Errorf("%s was told of progress %d times and asked %d times", m.name, m.told.Load(), m.asked.Load())
		}
		if m.closed.Load() {
			continue
		}
		if err := m.Close(); err != nil {
			c.t.Errorf("%s: %v", m.name, err)
		}
	}
}

// grower is an upstream made with the Go SDK, whose tools say what they were told. leave closes its
// connections.
func grower(t *testing.T, name string) (url string, leave func()) {
	t.Helper()
	type told struct {
		ID string `json:"id"`
	}
	server := mcp.NewServer(&mcp.Implementation{Name: name, Version: "1"}, nil)
	said := func(id string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: id}}}
	}
	mcp.AddTool(server, &mcp.Tool{Name: "echo", Description: "Say an identifier again."}, func(_ context.Context, _ *mcp.CallToolRequest, in told) (*mcp.CallToolResult, any, error) {
		return said(in.ID), nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "steps", Description: "Count to three, and tell of each step."}, func(ctx context.Context, r *mcp.CallToolRequest, in told) (*mcp.CallToolResult, any, error) {
		for i := range 3 {
			_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Message: in.ID, Progress: float64(i)}) // its client may be gone
		}
		return said(in.ID), nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "ask", Description: "Ask the user what the answer is."}, func(ctx context.Context, r *mcp.CallToolRequest, in told) (*mcp.CallToolResult, any, error) {
		answer, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: in.ID, RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{"answer": map[string]any{"type": "string"}}}})
		if err != nil {
			return nil, nil, err
		}
		return said(fmt.Sprint(answer.Content["answer"])), nil, nil
	})
	served := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	// A question of a replica that was killed is answered by nobody: who asked is not waited for.
	t.Cleanup(func() { _ = served.Config.Close() })
	return served.URL, served.CloseClientConnections
}

// Replicas that come and go and a database that does cost what was in flight where a process was
// killed, and nothing else: no session, nothing provisioned, no answer or question that is
// another's. A deployment costs calls that wait for a client's answer. TOOLFINCH_CHAOS says how long it goes on after the first round, "2m" for one: then
// there are 64 clients of each era.
func TestReplicasUnderChaos(t *testing.T) {
	t.Parallel()
	clients, upstreams := 4, 3 // clients of each era
	lasts, _ := time.ParseDuration(os.Getenv("TOOLFINCH_CHAOS"))
	if lasts > 0 {
		clients, upstreams = 64, 9
	}
	database := postgres.New(t)
	servers := map[string]any{}
	for i := range upstreams {
		name := fmt.Sprintf("up%d", i)
		url, leave := grower(t, name)
		defer leave() // connections that nobody uses are kept for a while
		servers[name] = map[string]any{"url": url}
	}
	f := fleetOver(t, 3, busy(t), database.Database(t), map[string]any{"mcp_servers": servers, "tool_views": map[string]any{
		"default": map[string]any{"include_all": true},
		"gated":   map[string]any{"include_all": true, "gating": true},
	}})
	c := &crowd{t: t, fleet: f}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	c.ctx = ctx
	for _, revision := range []string{legacyRevision, modernRevision} {
		for i := range clients {
			m := enter(t, f.url, fmt.Sprintf("%s-%d", revision, i), revision)
			await.Nil(t, func() error {
				_, err := m.call(t.Context(), "up0_echo", "", map[string]any{"id": "first"})
				return err
			})
			c.all = append(c.all, m)
		}
	}
	gated := enter(t, f.url+"/gated", "gated", legacyRevision)
	c.work(upstreams)
	c.progress(100)
	end := time.Now().Add(lasts)
	for round := 0; round == 0 || time.Now().Before(end); round++ {
		drained, killed := f.replicas[round%3], f.replicas[(round+1)%3]
		database.Restart(t)
		wanted := fmt.Sprintf("up%d_echo", round%upstreams)
		await.Nil(t, func() error { // refused until the replica has its database again
			_, err := gated.call(t.Context(), "provision_tools", "", map[string]any{"tool_ids": []string{wanted}})
			return err
		})
		c.change(drained.end, false)
		c.progress(100)
		c.change(drained.start, false)
		c.change(killed.kill, true)
		c.progress(100)
		c.change(killed.start, false)
		database.Pause(t)
		c.progress(100)
		database.Resume(t)
		c.progress(100)
		for n := range upstreams { // what it has provisioned, and nothing else
			text, err := gated.call(t.Context(), fmt.Sprintf("up%d_echo", n), "", map[string]any{"id": "gated"})
			if is, should := err == nil, n <= round; is != should || !is && !strings.Contains(err.Error(), "not provisioned") {
				t.Errorf("a call of up%d in round %d is answered %s %v", n, round+1, text, err)
			}
		}
	}
	stop()
	c.working.Wait()
	if err := gated.Close(); err != nil {
		t.Error(err)
	}
	c.judge()
}
