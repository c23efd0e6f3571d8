//go:build unix

package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"toolfinch/internal/await"
	"toolfinch/internal/postgres"
)

// crowd is clients of both eras behind the balancer, each of which checks that what it is
// answered, asked and told is its own.
type crowd struct {
	t     *testing.T
	fleet *fleet
	all   []*member

	placed  string          // the server with one process in all replicas
	ctx     context.Context // of the work
	stop    context.CancelFunc
	working sync.WaitGroup
	calls   atomic.Int64

	mu     sync.Mutex // guards what follows; never held over a call
	killed []death
	failed []failure
}

// death is the time in which a killed replica ended.
type death struct{ from, to time.Time }

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

const (
	legacyRevision = "2025-11-25"
	modernRevision = "2026-07-28"
)

// join adds clients of one era.
func (c *crowd) join(version string, count int) {
	c.t.Helper()
	for i := range count {
		m := &member{name: fmt.Sprintf("%s-%d", version, i)}
		var first sync.Once
		client := mcp.NewClient(&mcp.Implementation{Name: m.name, Version: "1"}, &mcp.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
				m.told.Add(1)
				if !strings.HasPrefix(r.Params.Message, m.name+" ") {
					m.strays.Add(1)
				}
			},
			ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				m.asked.Add(1)
				if !strings.HasPrefix(r.Params.Message, m.name+" ") {
					m.strays.Add(1)
				}
				return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": r.Params.Message}}, nil
			},
			ToolListChangedHandler: func(_ context.Context, r *mcp.ToolListChangedRequest) {
				first.Do(func() { go func() { _, _ = r.Session.ListTools(c.t.Context(), nil) }() }) // else the first search is held
			},
		})
		session, err := client.Connect(c.t.Context(), &mcp.StreamableClientTransport{Endpoint: c.fleet.url, MaxRetries: 20}, &mcp.ClientSessionOptions{ProtocolVersion: version})
		if err != nil {
			c.t.Fatalf("%s: %v", m.name, err)
		}
		m.ClientSession, m.id = session, session.ID()
		if _, err := m.call(c.t.Context(), "retrieve_tools", "", map[string]any{"query": "say an identifier again", "limit": 1, "server": "up0"}); err != nil {
			c.t.Fatalf("%s: %v", m.name, err)
		}
		c.all = append(c.all, m)
	}
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
				if i%4 > 0 && server == c.placed { // who waits for it goes on with the next at once, which takes so many that can be asked
					server = "up0"
				}
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
				ctx, cancel := context.WithTimeout(c.t.Context(), patience)
				text, err := m.call(ctx, name, progress, arguments)
				cancel()
				if err == nil && !strings.Contains(text, want) {
					c.t.Errorf("%s with %q is answered %s", name, id, text)
				}
				if err != nil {
					c.fail(failure{name + " " + id, began, time.Now(), err})
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

// scripted is clients of the TypeScript SDK in a process of their own (crowd.mjs).
type scripted struct {
	end  io.Closer // its standard input
	done chan error
}

// invite has clients of the TypeScript SDK work beside the others: so many of each era.
func (c *crowd) invite(each, upstreams int) *scripted {
	c.t.Helper()
	file, err := filepath.Abs("../testdata/node/crowd.mjs")
	if err != nil {
		c.t.Fatal(err)
	}
	argument, _ := json.Marshal(map[string]any{"url": c.fleet.url, "each": each, "upstreams": upstreams, "timeout": (noticed - 2*time.Second).Milliseconds()})
	cmd := exec.CommandContext(c.t.Context(), node(c.t), file, string(argument))
	cmd.Env = c.fleet.replicas[0].house.env
	log := &logWriter{}
	cmd.Stderr = log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	s := &scripted{end: stdin, done: make(chan error, 1)}
	ready := make(chan struct{})
	go func() {
		left := 2 * each
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var line struct {
				Ready                        bool
				Failed, Error, Wrong, Client string
				Began, End                   int64
				Modern, Kept, Registered     bool
				Calls, Told, Asked, Changed  int64
			}
			switch err := json.Unmarshal(lines.Bytes(), &line); {
			case err != nil:
				c.t.Errorf("the TypeScript clients say %s", lines.Text())
			case line.Ready:
				close(ready)
			case line.Failed != "":
				c.fail(failure{line.Failed, time.UnixMilli(line.Began), time.UnixMilli(line.End), errors.New(line.Error)})
			case line.Client != "":
				left--
				c.calls.Add(line.Calls)
				if line.Told == 0 || line.Asked == 0 || !line.Kept || !line.Modern && (line.Changed == 0 || !line.Registered) {
					c.t.Errorf("a TypeScript client says %s", lines.Text())
				}
			default:
				c.t.Error(line.Wrong)
			}
		}
		err := cmd.Wait()
		if err != nil || left != 0 {
			err = fmt.Errorf("the TypeScript clients ended with %v, without a word of %d of them\n%s", err, left, log)
		}
		s.done <- err
	}()
	select {
	case <-ready:
	case err := <-s.done:
		c.t.Fatal(err)
	case <-time.After(patience):
		c.t.Fatalf("the TypeScript clients do not connect\n%s", log)
	}
	return s
}

// leave ends the clients, and waits until they have said how it went.
func (s *scripted) leave(t *testing.T) {
	t.Helper()
	_ = s.end.Close()
	if err := await.Value(t, s.done); err != nil {
		t.Error(err)
	}
}

func (c *crowd) fail(f failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = append(c.failed, f)
}

// progress waits until the clients were answered that many times more.
func (c *crowd) progress(calls int64) {
	c.t.Helper()
	from := c.calls.Load()
	await.True(c.t, func() bool { return c.calls.Load() >= from+calls })
}

// kill ends a replica as a crash does.
func (c *crowd) kill(r *fleetReplica) {
	c.t.Helper()
	from := time.Now()
	if err := r.cmd.Process.Kill(); err != nil {
		c.t.Fatal(err)
	}
	<-r.ended
	c.mu.Lock()
	defer c.mu.Unlock()
	c.killed = append(c.killed, death{from, time.Now()})
}

// costs reports whether a failure is one that a death explains: the call was in flight then, and
// its client heard of it soon. The answer to a question may have been in flight, too, which no
// client sends twice: then the call waits for it. The TypeScript SDKs do not tell a call that
// the stream of its answer, which had begun with progress, has ended.
// A call that began when the replica was gone can only have met the balancer, which notices that
// within a second, or a few where the machine is busy.
func (d death) costs(f failure) bool {
	says := func(texts ...string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(f.err.Error(), text) })
	}
	const balancer = "Bad Gateway"
	unanswered := (strings.Contains(f.what, "_ask ") || strings.Contains(f.what, "_steps v")) && says("deadline exceeded", "timed out")
	soon := f.end.Before(d.to.Add(noticed)) || errors.Is(f.err, context.DeadlineExceeded) && unanswered
	inFlight := f.began.Before(d.to) && (unanswered || says(balancer, "may or may not have happened", "may have been carried out", "with a process that is gone", // as docs/scale.md says; else the client's own connection ended
		"EOF", "request terminated without response", "connection reset", "connection closed", "fetch failed", "terminated"))
	late := f.began.Before(d.to.Add(5*time.Second)) && says(balancer)
	return f.end.After(d.from) && soon && (inFlight || late)
}

// noticed is how long a client may wait for the answer of a replica that was killed.
const noticed = 30 * time.Second

// judge fails the test for each call that failed though no replica was killed meanwhile.
func (c *crowd) judge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	reasons := map[string]int{}
	for _, f := range c.failed {
		if !slices.ContainsFunc(c.killed, func(d death) bool { return d.costs(f) }) {
			c.t.Errorf("%s failed after %v: %v", f.what, f.end.Sub(f.began).Round(time.Millisecond), f.err)
		}
		reason := f.err.Error()
		if i := strings.LastIndex(reason, `": `); i >= 0 {
			reason = reason[i:]
		}
		reasons[reason]++
	}
	c.t.Logf("%d calls, %d failed with a replica that was killed: %v", c.calls.Load(), len(c.failed), reasons)
}

// grower is an upstream made with the Go SDK, whose tools say what they were told. grow
// adds a tool, and leave closes its connections.
func grower(t *testing.T, name string) (url string, grow func(n int), leave func()) {
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
			time.Sleep(20 * time.Millisecond)                                                                                                                    // a call that lasts is what a drain waits for
		}
		return said(in.ID), nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "ask", Description: "Ask the user what the answer is."}, func(ctx context.Context, r *mcp.CallToolRequest, in told) (*mcp.CallToolResult, any, error) {
		ctx, cancel := context.WithTimeout(ctx, noticed-3*time.Second) // its client may be gone, or the replica that had the answer
		defer cancel()
		answer, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: in.ID, RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{"answer": map[string]any{"type": "string"}}}})
		if err != nil {
			return nil, nil, err
		}
		return said(fmt.Sprint(answer.Content["answer"])), nil, nil
	})
	http := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(func() {
		http.CloseClientConnections()
		http.Close()
	})
	return http.URL, func(n int) {
		mcp.AddTool(server, &mcp.Tool{Name: fmt.Sprintf("grown_%d", n), Description: "A tool that came later."}, func(_ context.Context, _ *mcp.CallToolRequest, in told) (*mcp.CallToolResult, any, error) {
			return said(in.ID), nil, nil
		})
	}, http.CloseClientConnections
}

// Replicas that come and go and a database that does cost what was in flight where a process was
// killed, and nothing else: no session, nothing registered, no answer or question that is
// another's. TOOLFINCH_CHAOS says how long it goes on after the first round, "2m" for one: then
// there are 64 clients of each era, and 8 of the TypeScript SDK.
func TestReplicasUnderChaos(t *testing.T) {
	const upstreams = 10
	clients, scripts := 8, 2 // of each era
	lasts, _ := time.ParseDuration(os.Getenv("TOOLFINCH_CHAOS"))
	if lasts > 0 {
		clients, scripts = 64, 8
	}
	database := postgres.New(t)
	servers := map[string]any{}
	var grow []func(int)
	var leaves []func()
	kept, err := filepath.Abs("../testdata/node/kept.mjs")
	if err != nil {
		t.Fatal(err)
	}
	keeps := filepath.Join(t.TempDir(), "kept")
	placed := fmt.Sprintf("up%d", upstreams-1)
	servers[placed] = map[string]any{
		"command": node(t), "args": []string{kept}, "env": map[string]string{"KEPT_LOG": keeps}, "connect_timeout": patience.String(), "placement": "one",
	}
	for i := range upstreams - 1 {
		name := fmt.Sprintf("up%d", i)
		url, more, leave := grower(t, name)
		servers[name], grow, leaves = map[string]any{"url": url, "changes": "allow"}, append(grow, more), append(leaves, leave)
	}
	url := database.Database(t)
	f := fleetOver(t, 3, url, nil, map[string]any{"mcp_servers": servers, "tool_views": map[string]any{
		"default": map[string]any{"include_all": true},
		"gated":   map[string]any{"include_all": true, "gating": true},
	}})
	c := &crowd{t: t, fleet: f, placed: placed}
	c.ctx, c.stop = context.WithCancel(t.Context())
	defer c.stop()
	idle, _ := f.replicas[0].goroutines(t) // it leads all servers
	c.join(legacyRevision, clients)
	c.join(modernRevision, clients)
	var gated []*goClient
	for i := range max(2, clients/8) { // each is waited for after a change of its list, which it does not ask for
		gated = append(gated, goClientAt(t, f.url+"/gated", fmt.Sprint("gated-", i), legacyRevision))
	}
	c.work(upstreams)
	typescript := c.invite(scripts, upstreams)
	c.progress(500)
	end := time.Now().Add(lasts)
	for round := 0; round == 0 || time.Now().Before(end); round++ {
		drained, killed := f.replicas[round%3], f.replicas[(round+1)%3]
		database.Restart(t) // what is provisioned meanwhile is stored when it answers, which a drain waits for
		var each sync.WaitGroup
		for i, one := range gated {
			each.Go(func() {
				wanted := fmt.Sprintf("up%d_echo", (i+round)%upstreams)
				if result, err := one.CallTool(t.Context(), &mcp.CallToolParams{Name: "provision_tools", Arguments: map[string]any{"tool_ids": []string{wanted}}}); err != nil || result.IsError {
					t.Errorf("gated-%d: %s is provisioned with %+v %v", i, wanted, result, err)
				}
			})
		}
		each.Wait()
		drained.end(t)
		if log := drained.log.String(); strings.Contains(log, "could not be handed over") {
			t.Errorf("a replica that was drained says %s", log)
		}
		c.progress(200)
		drained.start(t)
		c.kill(killed)
		c.progress(200)
		killed.start(t)
		// Without PostgreSQL the server with one process would get no other.
		one := goClientAt(t, "http://127.0.0.1:"+drained.port+"/mcp", fmt.Sprint("waits-", round), legacyRevision)
		await.Nil(t, func() error {
			_, err := one.call(t.Context(), placed+"_echo", map[string]any{"id": "gated"}, "")
			return err
		})
		if err := one.Close(); err != nil {
			t.Error(err)
		}
		grow[round%len(grow)](round)
		database.Pause(t)
		c.progress(200)
		database.Resume(t)
		c.progress(200)
		for i, one := range gated {
			each.Go(func() { // what it has provisioned, and nothing else
				for n := range upstreams {
					text, err := one.call(t.Context(), fmt.Sprintf("up%d_echo", (i+n)%upstreams), map[string]any{"id": "gated"}, "")
					if is, should := err == nil && text == `[{"type":"text","text":"gated"}]`, n <= round; is != should || !is && err == nil && !strings.Contains(text, "not provisioned") {
						t.Errorf("gated-%d: a call of what was to be provisioned in round %d is answered %s %v", i, n+1, text, err)
					}
				}
			})
		}
		each.Wait()
		t.Logf("round %d: %d calls", round+1, c.calls.Load())
	}
	c.stop()
	c.working.Wait()
	typescript.leave(t)
	c.judge()
	once(t, keeps)
	for _, m := range c.all {
		if m.strays.Load() > 0 {
			t.Errorf("%s got %d messages of others", m.name, m.strays.Load())
		}
		if m.ID() != m.id {
			t.Errorf("%s has another session", m.name)
		}
		if m.told.Load() == 0 || m.asked.Load() == 0 {
			t.Errorf("%s was told of progress %d times and asked %d times", m.name, m.told.Load(), m.asked.Load())
		}
		if m.closed.Load() {
			continue
		}
		if strings.HasPrefix(m.name, legacyRevision) {
			tools, err := m.ListTools(t.Context(), nil)
			if err != nil {
				t.Errorf("%s: %v", m.name, err)
			} else if !slices.ContainsFunc(tools.Tools, func(one *mcp.Tool) bool { return one.Name == "up0_echo" }) {
				var names []string
				for _, one := range tools.Tools {
					names = append(names, one.Name)
				}
				t.Errorf("%s has lost what it had registered: %s", m.name, names)
			}
		}
	}
	for _, one := range gated {
		if err := one.Close(); err != nil {
			t.Error(err)
		}
	}
	f.equal(t)
	closed := 0 // their SDK need not have ended their sessions
	for _, m := range c.all {
		if m.closed.Load() {
			closed++
			continue
		}
		if err := m.Close(); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	await.Nil(t, func() error {
		var left int
		if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM sessions`).Scan(&left); err != nil || left > closed {
			return fmt.Errorf("%d sessions are stored whose clients have ended them: %w", left, err)
		}
		return nil
	})
	for _, leave := range leaves {
		leave() // connections that nobody uses are kept for a while
	}
	for i, r := range f.replicas {
		await.Nil(t, func() error {
			// So are those that one client has of its own: a stream, and what reads and writes it.
			if now, own := r.goroutines(t); now > idle+3*own+40 {
				return fmt.Errorf("replica %d has %d goroutines with %d connections of clients that have gone, and one without clients had %d", i+1, now, own, idle)
			}
			return nil
		})
	}
	f.stop(t)
	await.Nil(t, func() error {
		var left int
		err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'toolfinch' AND datname = current_database()`).Scan(&left)
		if err != nil || left > 0 {
			return fmt.Errorf("%d connections are left: %w", left, err)
		}
		return nil
	})
}

// once says that no call was carried out twice, as the server wrote it down.
func once(t *testing.T, keeps string) {
	t.Helper()
	text, err := os.ReadFile(keeps)
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]bool{}
	for id := range strings.Lines(string(text)) {
		if made[id] && id != "gated\n" {
			t.Errorf("the call %s was carried out twice", id)
		}
		made[id] = true
	}
	t.Logf("%d calls of the server with one process", len(made))
	if len(made) == 0 {
		t.Error("none")
	}
}

// goroutines is how many a replica has, and how many connections to servers that are one
// client's own.
func (r *fleetReplica) goroutines(t *testing.T) (all, own int) {
	t.Helper()
	answer, err := http.Get("http://127.0.0.1:" + r.port + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line, n := range map[string]*int{"go_goroutines ": &all, `toolfinch_limit_used{limit="asking_connections"} `: &own} {
		_, after, _ := strings.Cut(string(text), "\n"+line)
		if _, err := fmt.Sscan(after, n); err != nil {
			t.Fatalf("/metrics has no %s: %v", line, err)
		}
	}
	return all, own
}

// equal waits until all replicas serve the same catalogue.
func (f *fleet) equal(t *testing.T) {
	t.Helper()
	await.Nil(t, func() error {
		var first string
		for i, r := range f.replicas {
			answer, err := http.Get("http://127.0.0.1:" + r.port + "/api/tools?limit=1000")
			if err != nil {
				return err
			}
			text, err := io.ReadAll(answer.Body)
			answer.Body.Close()
			switch {
			case err != nil || answer.StatusCode != http.StatusOK:
				return fmt.Errorf("%s %.300s: %w", answer.Status, text, err)
			case i == 0:
				first = string(text)
			case string(text) != first:
				return fmt.Errorf("replica %d serves other tools than the first:\n%.3000s\n%.3000s", i+1, text, first)
			}
		}
		return nil
	})
}
