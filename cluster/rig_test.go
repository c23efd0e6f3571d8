package cluster_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"toolfinch/cluster"
	"toolfinch/configs"
	"toolfinch/internal/await"
	"toolfinch/rawjson"
	"toolfinch/register"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/transport"
	"toolfinch/trust"
)

// rows are the rows of sessions in memory.
type rows struct {
	mu   sync.Mutex // guards what follows
	all  map[[32]byte]store.Session
	sent [][32]byte // the sessions of which Change got a state
	away bool
	asks atomic.Int64

	drops sync.Mutex // held over Drop
}

var errAway = fmt.Errorf("the database is away")

func (r *rows) do(f func()) error {
	r.asks.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away {
		return errAway
	}
	f()
	return nil
}

func (r *rows) Put(_ context.Context, s store.Session) (kept bool, err error) {
	err = r.do(func() {
		stored, found := r.all[s.Hash]
		if kept = !found || stored.Home == s.Home; kept {
			r.all[s.Hash] = s
		}
	})
	return kept, err
}

func (r *rows) Find(_ context.Context, hash [32]byte) (s store.Session, found bool, err error) {
	err = r.do(func() { s, found = r.all[hash] })
	return s, found, err
}

func (r *rows) Move(_ context.Context, hash [32]byte, from, to, address string) (moved bool, err error) {
	err = r.do(func() {
		s, found := r.all[hash]
		if moved = found && s.Home == from; moved {
			s.Home, s.Address = to, address
			r.all[hash] = s
		}
	})
	return moved, err
}

func (r *rows) Release(_ context.Context, hash [32]byte, home string, state []byte) (released bool, err error) {
	err = r.do(func() {
		s, found := r.all[hash]
		if released = found && s.Home == home; released {
			s.Home, s.Address, s.State = "", "", state
			r.all[hash] = s
		}
	})
	return released, err
}

func (r *rows) Change(_ context.Context, home string, states map[[32]byte][]byte) (lost [][32]byte, err error) {
	err = r.do(func() {
		for hash, state := range states {
			r.sent = append(r.sent, hash)
			s, found := r.all[hash]
			if !found || s.Home != home {
				lost = append(lost, hash)
				continue
			}
			s.State = state
			r.all[hash] = s
		}
	})
	return lost, err
}

func (r *rows) Keep(ctx context.Context, home string, all [][32]byte) (lost [][32]byte, err error) {
	err = r.do(func() {
		for _, hash := range all {
			if r.all[hash].Home != home {
				lost = append(lost, hash)
			}
		}
	})
	return lost, err
}

func (r *rows) Drop(_ context.Context, home string, all [][32]byte) error {
	r.drops.Lock()
	defer r.drops.Unlock()
	return r.do(func() {
		for _, hash := range all {
			if r.all[hash].Home == home {
				delete(r.all, hash)
			}
		}
	})
}

func (r *rows) Sweep(context.Context, time.Duration) error { return nil }

func (r *rows) sessions() []store.Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.all))
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

// team is replicas over the same rows.
type team struct {
	t        testing.TB
	rows     *rows
	replicas []*replica

	mu    sync.Mutex           // guards what follows
	cut   map[[2]*replica]bool // who does not reach whom
	links map[[2]*replica]int  // connections that are open, by who opened them
}

// sever has two replicas reach each other no more. No request is with either of them for the other.
func (all *team) sever(a, b *replica) {
	all.t.Helper()
	all.mu.Lock()
	all.cut[[2]*replica{a, b}], all.cut[[2]*replica{b, a}] = true, true
	all.mu.Unlock()
	all.part(a, b)
}

// part ends the connections between two replicas.
func (all *team) part(a, b *replica) {
	all.t.Helper()
	await.True(all.t, func() bool {
		a.homes.HangUp()
		b.homes.HangUp()
		all.mu.Lock()
		defer all.mu.Unlock()
		return all.links[[2]*replica{a, b}]+all.links[[2]*replica{b, a}] == 0
	})
}

// dial connects r with another replica.
func (r *replica) dial(ctx context.Context, network, address string) (net.Conn, error) {
	all := r.team
	all.mu.Lock()
	defer all.mu.Unlock()
	i := slices.IndexFunc(all.replicas, func(to *replica) bool { return to.me.Address == address })
	if i < 0 {
		return nil, syscall.ECONNREFUSED
	}
	pair := [2]*replica{r, all.replicas[i]}
	if all.cut[pair] {
		return nil, os.ErrDeadlineExceeded // without the wait
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	all.links[pair]++
	return &link{conn, sync.OnceFunc(func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		all.links[pair]--
	})}, nil
}

// link is a connection between replicas.
type link struct {
	net.Conn
	closed func()
}

func (l *link) Close() error {
	defer l.closed()
	return l.Conn.Close()
}

// replica is one process of a team, with the tools of the tests.
type replica struct {
	team  *team
	me    cluster.Peer
	homes *cluster.Homes
	live  *register.Live
	http  *transport.Streamable
	url   string                          // where clients come
	calls chan *tool.Call                 // gets each call of "wait", and nil for each of the API
	ended chan error                      // gets how each ended
	done  chan struct{}                   // a value lets one call of "wait" answer
	by    atomic.Pointer[context.Context] // of the last call
	gone  atomic.Bool
	stop  func()

	handed    chan string // gets what became of each request that was handed on
	restoring func()      // is called before a session is restored; nil: nothing
}

// newTeam starts replicas. extra changes the tools of each.
func newTeam(t testing.TB, size int, extra func(n int, tools shelf)) *team {
	t.Helper()
	all := &team{t: t, rows: &rows{all: map[[32]byte]store.Session{}}, cut: map[[2]*replica]bool{}, links: map[[2]*replica]int{}}
	for n := range size {
		all.replicas = append(all.replicas, all.start(n, extra))
	}
	return all
}

func (all *team) there(_ context.Context, id string) (bool, error) {
	return slices.ContainsFunc(all.replicas, func(r *replica) bool { return r.me.ID == id && !r.gone.Load() }), all.rows.do(func() {})
}

func (all *team) ask(_ context.Context, id string, hash [32]byte) error {
	for _, r := range all.replicas {
		if r.me.ID == id {
			r.homes.Asked(hash)
		}
	}
	return all.rows.do(func() {})
}

func (all *team) start(n int, extra func(n int, tools shelf)) *replica {
	t := all.t
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{team: all, me: cluster.Peer{ID: fmt.Sprintf("replica-%d", n), Address: listener.Addr().String()},
		calls: make(chan *tool.Call, 100), ended: make(chan error, 100), done: make(chan struct{}), handed: make(chan string, 10_000)}
	log := slog.New(slog.DiscardHandler)
	keys := []configs.ClusterKey{key(1), key(2)}
	secure := peer(t, keys...)
	if r.homes, err = cluster.NewHomes(cluster.Options{Keys: keys, Hands: cluster.Reach(secure), Me: r.me, Rows: all.rows, Peers: r.peers, There: all.there, Ask: all.ask, Forwarded: r.took, Idle: time.Hour, Log: log}); err != nil {
		t.Fatal(err)
	}
	r.homes.DialBy(r.dial)
	tools := r.tools()
	if extra != nil {
		extra(n, tools)
	}
	served := &register.Served{Source: tools, Search: []*tool.Tool{tools["find"]}, Register: func(string) register.When { return register.AtOnce }, Declared: register.Declared{Logging: true}}
	delete(tools, "find")
	var view *cluster.View
	r.live = register.New(register.Options{Version: "1", Observer: changes{&view}}, func(trust.Party) *register.Served { return served }, log)
	view = r.homes.View("ops", having{r})
	clients := transport.NewClients(transport.Limits{})
	r.http = transport.NewStreamable(r.live, clients, view, log)
	view.Serve(r.http)
	sse := transport.NewSSE(r.live, clients, "/message", view, log)

	mux := http.NewServeMux()
	mux.Handle("/mcp", r.http)
	mux.HandleFunc("/message", sse.Messages)
	mux.HandleFunc("/api", func(w http.ResponseWriter, q *http.Request) {
		sent, _ := io.ReadAll(q.Body)
		r.http.Beside(w, q, sent, http.HandlerFunc(r.api))
	})
	inside := r.homes.Inside(mux)
	outside := http.NewServeMux()
	outside.Handle("/", mux)
	outside.HandleFunc("/sse", sse.Events)
	server := httptest.NewServer(who(outside))
	r.url = server.URL
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = cluster.Serve(ctx, listener, cluster.NewServer(secure, inside)) })
	running.Go(func() { r.homes.Run(ctx) })
	running.Go(func() { r.live.Run(ctx) })
	r.stop = sync.OnceFunc(func() {
		r.gone.Store(true)
		cancel()
		server.CloseClientConnections()
		r.live.EndStreams()
		server.Close()
		running.Wait()
		for _, other := range all.replicas { // else a request may be sent over a connection that is broken, and is lost
			all.part(r, other)
		}
	})
	t.Cleanup(r.stop)
	return r
}

// took hears of a request that was handed on.
func (r *replica) took(outcome string, _ time.Duration) {
	select {
	case r.handed <- outcome:
	default: // a benchmark
	}
}

// api answers a call that is no message of MCP.
func (r *replica) api(w http.ResponseWriter, q *http.Request) {
	r.calls <- nil
	select {
	case <-r.done:
		fmt.Fprintln(w, "waited at", r.me.ID)
	case <-q.Context().Done():
	}
}

// changes has the rows follow sessions.
type changes struct{ view **cluster.View }

func (c changes) Changed(session string)                                { (*c.view).Changed(session) }
func (changes) Relists(string, tool.Relists)                            {}
func (changes) Called(tool.Caller, []tool.Called)                       {}
func (changes) Listed(string, string, []*tool.Tool)                     {}
func (changes) Calling(*tool.Call) func(tool.Result)                    { return func(tool.Result) {} }
func (changes) Unknown(context.Context, *tool.Call)                     {}
func (changes) Began(context.Context, string, string)                   {}
func (changes) Registered(string, string, trust.Party, register.Change) {}
func (changes) Ended(string, register.Connected)                        {}

// having is what sessions have.
type having struct{ *replica }

func (h having) State(id string) (json.RawMessage, bool) {
	state, ok := h.live.State(id)
	text, _ := json.Marshal(state)
	return text, ok
}

func (h having) Restore(id string, state json.RawMessage, lost bool) {
	var s register.State
	_ = json.Unmarshal(state, &s)
	if h.restoring != nil {
		h.restoring()
	}
	h.live.Restore(id, s, lost)
}

// peers are the other replicas that run.
func (r *replica) peers() (peers []cluster.Peer) {
	for _, other := range r.team.replicas {
		if other != r && !other.gone.Load() {
			peers = append(peers, other.me)
		}
	}
	return peers
}

func newTool(t testing.TB, name string, handler tool.Handler) *tool.Tool {
	t.Helper()
	def, err := tool.ParseDef("srv", json.RawMessage(`{"name":"`+name+`","inputSchema":{"type":"object"}}`))
	if err != nil {
		t.Fatal(err)
	}
	return &tool.Tool{Name: name, Def: def, Handler: handler}
}

func (r *replica) tools() shelf {
	tools := shelf{}
	add := func(name string, handler tool.Handler) {
		tools[name] = newTool(r.team.t, name, func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			r.by.Store(&ctx)
			return handler(ctx, call)
		})
	}
	add("echo", func(_ context.Context, call *tool.Call) (tool.Result, error) {
		return tool.TextResult(r.me.ID + " " + string(call.Arguments)), nil
	})
	add("wait", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		call.Notify("notifications/progress", json.RawMessage(`{"progressToken":1,"progress":1}`))
		r.calls <- call
		select {
		case <-r.done:
			r.ended <- nil
			return tool.TextResult("waited at " + r.me.ID), nil
		case <-ctx.Done():
			r.ended <- context.Cause(ctx)
			return nil, context.Cause(ctx)
		}
	})
	add("ask", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		said, err := call.Client.Ask(ctx, "elicitation/create", json.RawMessage(`{"message":"?","requestedSchema":{"type":"object","properties":{}}}`))
		return tool.TextResult("the client said " + string(said)), err
	})
	add("lacks", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		return nil, &trust.ScopeError{Operation: "calling lacks", Needed: "mcp:write", Ask: []string{"mcp:write"}}
	})
	add("find", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		var found []*tool.Tool
		for name := range rawjson.Elements(rawjson.Member(call.Arguments, "tools")) {
			if t, ok := tools[rawjson.Text(name)]; ok {
				found = append(found, t)
			}
		}
		now, _ := r.live.Register(ctx, call, found)
		return tool.TextResult(strings.Join(slices.Sorted(maps.Keys(now)), " ")), nil
	})
	return tools
}

// who has headers say who makes a request, with which groups, and from where.
func who(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := trust.WithSource(r.Context(), trust.Source{Address: "192.0.2.7", Transport: trust.TransportHTTP})
		if name := r.Header.Get("X-User"); name != "" {
			ctx = trust.WithPrincipal(ctx, &trust.Principal{ID: name, Groups: []string{"ops"}, Scopes: []string{"mcp:read"}})
			ctx = trust.WithChallenge(ctx, func(e *trust.ScopeError) string { return `Bearer error="insufficient_scope", scope="` + e.Needed + `"` })
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
	r.team.t.Helper()
	c := &client{t: r.team.t, user: user}
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
	request.Header.Set("Toolfinch-Carried", "forged") // no client says such a thing
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
	return c.do(c.t.Context(), http.MethodPost, r.url+"/mcp", body)
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
	answer := c.do(c.t.Context(), http.MethodGet, r.url+"/mcp", "")
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
