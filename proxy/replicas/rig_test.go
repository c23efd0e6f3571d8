// Package replicas_test has replicas whose sessions are real, over rows in memory. The rows of PostgreSQL are tested in e2e.
package replicas_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"toolfinch/internal/await"
	"toolfinch/internal/identity"
	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
	"toolfinch/proxy/replicas"
	"toolfinch/register"
	"toolfinch/register/transport"
	"toolfinch/store"
	"toolfinch/tool"
)

// rows are the rows of sessions in memory.
type rows struct {
	mu    sync.Mutex // guards what follows
	all   map[[32]byte]store.Session
	sent  int // states that were stored after a session was opened
	away  bool
	taken map[string]func(hash [32]byte) // by replica: hears that another has taken a session

	drops sync.Mutex // held over Drop
}

func (r *rows) do(f func()) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away {
		return &store.Away{Err: errors.New("db.internal refuses connections")}
	}
	f()
	return nil
}

func (r *rows) lose(away bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = away
}

func (r *rows) Put(_ context.Context, s store.Session) (kept bool, err error) {
	err = r.do(func() {
		stored, found := r.all[s.Hash]
		if kept = !found || stored.Replica == s.Replica; kept {
			r.all[s.Hash] = s
		}
	})
	return kept, err
}

func (r *rows) Take(_ context.Context, hash [32]byte, view, principal, replica string) (s store.Session, found bool, err error) {
	var tell func([32]byte)
	err = r.do(func() {
		if s, found = r.all[hash]; !found || s.View != view || s.Principal != principal {
			found = false
			return
		}
		tell = r.taken[s.Replica]
		now := s
		now.Replica = replica
		r.all[hash] = now
	})
	if tell != nil && s.Replica != replica {
		tell(hash)
	}
	return s, found, err
}

func (r *rows) Change(_ context.Context, replica string, states map[[32]byte][]byte) (lost [][32]byte, err error) {
	err = r.do(func() {
		for hash, state := range states {
			r.sent++
			s, found := r.all[hash]
			if !found || s.Replica != replica {
				lost = append(lost, hash)
				continue
			}
			s.State = state
			r.all[hash] = s
		}
	})
	return lost, err
}

func (r *rows) Keep(context.Context, string, [][32]byte) (lost [][32]byte, err error) {
	return nil, nil
}
func (r *rows) Sweep(context.Context, time.Duration) error { return nil }

func (r *rows) Drop(_ context.Context, replica string, all [][32]byte) error {
	r.drops.Lock()
	defer r.drops.Unlock()
	return r.do(func() {
		for _, hash := range all {
			if r.all[hash].Replica == replica {
				delete(r.all, hash)
			}
		}
	})
}

func (r *rows) sessions() []store.Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.all))
}

// has waits until the one row that there is has these texts in its state.
func (r *rows) has(t *testing.T, texts ...string) {
	t.Helper()
	await.True(t, func() bool {
		all := r.sessions()
		return len(all) == 1 && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(string(all[0].State), text) })
	})
}

// shelf is a source of tools by name, which can be replaced.
type shelf map[string]*tool.Tool

func (s shelf) Lookup(name string) (*tool.Tool, bool)   { t, ok := s[name]; return t, ok }
func (shelf) ByID(tool.ID) (*tool.Tool, bool)           { return nil, false }
func (shelf) Nearest(string, int) []string              { return nil }
func (shelf) Tools() []*tool.Tool                       { return nil }
func (shelf) Pinned() []*tool.Tool                      { return nil }
func (shelf) Items(tool.Kind) []*tool.Tool              { return nil }
func (shelf) Prompt(string) (*tool.Tool, bool)          { return nil, false }
func (shelf) Resource(string) (*tool.Tool, bool)        { return nil, false }
func (shelf) OfApp(string, []string) (*tool.Tool, bool) { return nil, false }
func (shelf) Exposed(_, uri string) string              { return uri }
func (shelf) CacheHint(tool.Kind) (time.Duration, bool) { return 0, false }

// replica is one process, with the tools of the tests.
type replica struct {
	t        testing.TB
	id       string
	sessions *replicas.Sessions
	live     *register.Live
	http     *transport.Streamable
	url      string
	calls    chan struct{} // gets a value for each call of "wait"
	done     chan struct{} // a value lets one call of "wait" answer
	stop     func()
}

// start starts replicas over rows.
func start(t testing.TB, size int) (*rows, []*replica) {
	t.Helper()
	all := &rows{all: map[[32]byte]store.Session{}, taken: map[string]func([32]byte){}}
	var started []*replica
	for n := range size {
		started = append(started, newReplica(t, fmt.Sprintf("replica-%d", n), all))
	}
	return all, started
}

func newReplica(t testing.TB, id string, all *rows) *replica {
	r := &replica{t: t, id: id, calls: make(chan struct{}, 100), done: make(chan struct{})}
	log := slog.New(slog.DiscardHandler)
	r.sessions = replicas.NewSessions(id, all, time.Hour, log)
	all.taken[id] = r.sessions.Taken
	tools := r.tools()
	served := &register.Served{Source: tools, Search: []*tool.Tool{tools["find"]}, Register: func(string) register.When { return register.AtOnce }, Declared: register.Declared{Logging: true}}
	delete(tools, "find")
	mux := http.NewServeMux()
	for _, name := range []string{"ops", "other"} { // two views; the tests look at the first
		var view *replicas.View
		live := register.New(register.Options{Version: "1", Observer: changes{&view}, Replicated: true}, func(identity.Party) *register.Served { return served }, log)
		view = r.sessions.View(name, having{live})
		served := transport.NewStreamable(live, transport.NewClients(transport.Limits{}), view, log)
		view.Serve(served)
		mux.Handle("/"+name, served)
		if r.live == nil {
			r.live, r.http = live, served
		}
	}
	server := httptest.NewServer(who(mux))
	r.url = server.URL
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.sessions.Run(ctx) })
	running.Go(func() { r.live.Run(ctx) })
	r.stop = sync.OnceFunc(func() {
		r.live.EndStreams()
		server.CloseClientConnections()
		server.Close()
		cancel()
		running.Wait()
		r.http.Close()
	})
	t.Cleanup(r.stop)
	return r
}

// changes has the rows follow sessions.
type changes struct{ view **replicas.View }

func (c changes) Changed(session string)                                   { (*c.view).Changed(session) }
func (changes) Relists(string, tool.Relists)                               {}
func (changes) Called(tool.Caller, []tool.Called)                          {}
func (changes) Listed(string, string, []*tool.Tool)                        {}
func (changes) Calling(*tool.Call) func(tool.Result)                       { return func(tool.Result) {} }
func (changes) Unknown(context.Context, *tool.Call)                        {}
func (changes) Began(context.Context, string, string)                      {}
func (changes) Registered(string, string, identity.Party, register.Change) {}
func (changes) Ended(string, register.Connected)                           {}

// having is what sessions have.
type having struct{ live *register.Live }

func (h having) State(id string) (json.RawMessage, bool) {
	state, ok := h.live.State(id)
	text, _ := json.Marshal(state)
	return text, ok
}

func (h having) Restore(id string, state json.RawMessage) {
	var s register.State
	_ = json.Unmarshal(state, &s)
	h.live.Restore(id, s)
}

func newTool(t testing.TB, name string, handler tool.Handler) *tool.Tool {
	t.Helper()
	def := must.Get(tool.ParseDef("srv", json.RawMessage(`{"name":"`+name+`","inputSchema":{"type":"object"}}`)))(t)
	return &tool.Tool{Name: name, Def: def, Handler: handler}
}

func (r *replica) tools() shelf {
	tools := shelf{}
	add := func(name string, handler tool.Handler) { tools[name] = newTool(r.t, name, handler) }
	add("echo", func(_ context.Context, call *tool.Call) (tool.Result, error) {
		return tool.TextResult(r.id + " " + string(call.Arguments)), nil
	})
	add("wait", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		r.calls <- struct{}{}
		select {
		case <-r.done:
			return tool.TextResult("waited at " + r.id), nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	})
	add("ask", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		said, err := call.Client.Ask(ctx, "elicitation/create", json.RawMessage(`{"message":"?","requestedSchema":{"type":"object","properties":{}}}`))
		return tool.TextResult("the client said " + string(said)), err
	})
	add("find", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		var found []*tool.Tool
		for name := range rawjson.Elements(rawjson.Member(call.Arguments, "tools")) {
			if t, ok := tools[rawjson.Text(name)]; ok {
				found = append(found, t)
			}
		}
		now, _ := r.live.Register(ctx, call, found, nil)
		return tool.TextResult(strings.Join(slices.Sorted(maps.Keys(now)), " ")), nil
	})
	return tools
}

// who has a header say who makes a request.
func who(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		if name := r.Header.Get("X-User"); name != "" {
			ctx = identity.WithPrincipal(ctx, &identity.Principal{ID: name})
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// client is one of a session that looks at bytes.
type client struct {
	t       testing.TB
	session string
	user    string
}

// connect opens a session at a replica.
func (r *replica) connect(user string) *client {
	r.t.Helper()
	c := &client{t: r.t, user: user}
	answer := c.post(r, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"test","version":"1"}}}`)
	defer answer.Body.Close()
	if c.session = answer.Header.Get("Mcp-Session-Id"); c.session == "" {
		c.t.Fatalf("initialize: %s, no session", answer.Status)
	}
	c.read(answer)
	c.read(c.post(r, `{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	return c
}

func (c *client) do(ctx context.Context, method, url, body string) *http.Response {
	c.t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	if c.session != "" {
		request.Header.Set("Mcp-Session-Id", c.session)
	}
	if c.user != "" {
		request.Header.Set("X-User", c.user)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { answer.Body.Close() })
	return answer
}

func (c *client) post(r *replica, body string) *http.Response {
	c.t.Helper()
	return c.do(c.t.Context(), http.MethodPost, r.url+"/ops", body)
}

// read reads an answer whole.
func (c *client) read(answer *http.Response) string {
	c.t.Helper()
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(text)
}

// call calls a tool and returns the whole answer.
func (c *client) call(r *replica, name, arguments string) string {
	c.t.Helper()
	return c.read(c.post(r, request(1, name, arguments)))
}

// finds has tools registered, as one that lists them once it hears of it, and returns that list.
func (c *client) finds(r *replica, arguments string) (list string) {
	c.t.Helper()
	stream := c.listen(r)
	found := make(chan string, 1)
	go func() { found <- c.call(r, "find", arguments) }()
	for got := stream.next(); !strings.Contains(got, "notifications/tools/list_changed"); got = stream.next() {
		if got == "" {
			c.t.Fatalf("the stream ended: %v", stream.err)
		}
	}
	list = c.read(c.post(r, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`))
	await.Value(c.t, found)
	return list
}

func request(id int, name, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, name, arguments)
}

// events reads the messages of an event stream one by one.
type events struct {
	t   testing.TB
	b   *bufio.Reader
	err error // the end of the stream
}

func (c *client) listen(r *replica) *events {
	c.t.Helper()
	answer := c.do(c.t.Context(), http.MethodGet, r.url+"/ops", "")
	if answer.StatusCode != http.StatusOK {
		c.t.Fatalf("GET: %s %s", answer.Status, c.read(answer))
	}
	return &events{t: c.t, b: bufio.NewReader(answer.Body)}
}

// next is the next message, "" at the end of the stream.
func (e *events) next() string {
	e.t.Helper()
	for {
		line, err := e.b.ReadBytes('\n')
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok && len(bytes.TrimSpace(data)) > 0 {
			return strings.TrimSpace(string(data))
		}
		if err != nil {
			e.err = err
			return ""
		}
	}
}
