package transport_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"toolfinch/internal/await"
	"toolfinch/internal/identity"
	"toolfinch/internal/must"
	"toolfinch/internal/pipes"
	"toolfinch/register"
	"toolfinch/register/transport"
	"toolfinch/tool"
)

// shelf is a source of tools by name.
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

func TestMain(m *testing.M) {
	pipes.Install()
	os.Exit(m.Run())
}

// alarm fails a test for whatever net/http logs: the panics of its handlers.
type alarm struct{ t testing.TB }

func (a alarm) Write(p []byte) (int, error) {
	a.t.Errorf("net/http: %.300s", p)
	return len(p), nil
}

// ready is what a bystander is answered.
const ready = `{"ready":true}`

// house is a live server over all HTTP transports, behind the guard.
type house struct {
	t       testing.TB
	live    *register.Live
	http    *transport.Streamable
	clients *transport.Clients
	url     string

	started chan *tool.Call // gets each call of "wait"
	ended   chan error      // gets how each call of "wait" ended
	release chan struct{}   // a value lets one call of "wait" answer
	wrap    atomic.Pointer[func(http.Handler) http.Handler]
}

// around has what comes next pass a handler.
func (h *house) around(wrap func(http.Handler) http.Handler) { h.wrap.Store(&wrap) }

func newHouse(t testing.TB, limits transport.Limits) *house {
	t.Helper()
	h := &house{t: t, clients: transport.NewClients(limits), started: make(chan *tool.Call, 100), ended: make(chan error, 100), release: make(chan struct{})}
	tools := shelf{}
	add := func(name string, handler tool.Handler) {
		def := must.Get(tool.ParseDef("srv", json.RawMessage(`{"name":"`+name+`","inputSchema":{"type":"object"}}`)))(t)
		tools[name] = &tool.Tool{Name: name, Def: def, Handler: handler}
	}
	add("echo", func(_ context.Context, call *tool.Call) (tool.Result, error) {
		return tool.TextResult(string(call.Arguments)), nil
	})
	add("wait", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		h.started <- call
		select {
		case <-h.release:
			h.ended <- nil
			return tool.TextResult("waited"), nil
		case <-ctx.Done():
			h.ended <- context.Cause(ctx)
			return nil, context.Cause(ctx)
		}
	})
	add("tell", func(_ context.Context, call *tool.Call) (tool.Result, error) {
		call.Notify("notifications/progress", json.RawMessage(`{"progressToken":1,"progress":1}`))
		return tool.TextResult("told"), nil
	})
	served := &register.Served{Source: tools}
	log := slog.New(slog.DiscardHandler)
	h.live = register.New(register.Options{Version: "1"}, func(identity.Party) *register.Served { return served }, log)
	h.http = transport.NewStreamable(h.live, h.clients, nil, log)
	sse := transport.NewSSE(h.live, h.clients, "/message", log)
	mux := http.NewServeMux()
	mux.Handle("/mcp", h.http)
	mux.HandleFunc("/sse", sse.Events)
	mux.HandleFunc("/message", sse.Messages)
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, ready) })
	refuse := func(w http.ResponseWriter, _ *http.Request, status int, reason string) { http.Error(w, reason, status) }
	mux.Handle("/counted", h.clients.Counted(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "counted")
	}), refuse))
	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if wrap := h.wrap.Load(); wrap != nil {
			(*wrap)(mux).ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
	server := pipes.NewServer(t, h.clients.Guard(known(inner), transport.Names{Hosts: []string{"tools.example.com", "other.example.com:81"}}, refuse))
	server.Config.ErrorLog = stdlog.New(alarm{t}, "", 0)
	h.url = server.URL
	t.Cleanup(func() {
		close(h.release)
		h.live.EndStreams()
		h.http.Close()
	})
	return h
}

// known has headers say who makes a request, and where it comes from.
func known(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		if name := r.Header.Get("X-User"); name != "" {
			ctx = identity.WithPrincipal(ctx, &identity.Principal{ID: name})
		}
		next.ServeHTTP(w, r.WithContext(identity.WithSource(ctx, identity.Source{Address: r.Header.Get("X-From")})))
	})
}

// do sends a request; header are names and values in turn.
func (h *house) do(ctx context.Context, method, path, body string, header ...string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, h.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Add(header[i], header[i+1])
	}
	return http.DefaultClient.Do(request)
}

// answer is do that reads the answer to its end.
func (h *house) answer(method, body string, header ...string) (status int, got string) {
	h.t.Helper()
	response, err := h.do(h.t.Context(), method, "/mcp", body, header...)
	if err != nil {
		h.t.Fatal(err)
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return response.StatusCode, string(all)
}

func greeting(version string) string {
	return `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"` + version + `","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
}

func toolCall(id, name string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + name + `","arguments":{}}}`
}

// session opens a session and returns the header that names it.
func (h *house) session(version string, header ...string) []string {
	h.t.Helper()
	response, err := h.do(h.t.Context(), http.MethodPost, "/mcp", greeting(version), header...)
	if err != nil {
		h.t.Fatal(err)
	}
	defer response.Body.Close()
	id := response.Header.Get("Mcp-Session-Id")
	if id == "" {
		all, _ := io.ReadAll(response.Body)
		h.t.Fatalf("initialize: %s %s", response.Status, all)
	}
	return append([]string{"Mcp-Session-Id", id}, header...)
}

// modern is a request of the 2026-07-28 era, with its headers.
func modern(id, method, members string) (body string, header []string) {
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	if members != "" {
		members += ","
	}
	body = fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s%s}}`, id, method, members, meta)
	header = []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method}
	if _, name, ok := strings.Cut(members, `"name":"`); ok {
		name, _, _ = strings.Cut(name, `"`)
		header = append(header, "Mcp-Name", name)
	}
	return body, header
}

// pending is a request whose answer may be long in coming.
type pending struct {
	drop   context.CancelFunc
	answer chan string
}

func (h *house) post(body string, header ...string) *pending {
	ctx, cancel := context.WithCancel(h.t.Context())
	p := &pending{cancel, make(chan string, 1)}
	go func() {
		defer cancel()
		response, err := h.do(ctx, http.MethodPost, "/mcp", body, header...)
		if err != nil {
			p.answer <- err.Error()
			return
		}
		defer response.Body.Close()
		all, _ := io.ReadAll(response.Body)
		p.answer <- string(all)
	}()
	return p
}

// listen opens the event stream of a session and returns its messages.
func (h *house) listen(session []string) (messages <-chan string, end func()) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	response, err := h.do(ctx, http.MethodGet, "/mcp", "", session...)
	if err != nil || response.StatusCode != http.StatusOK {
		cancel()
		h.t.Fatalf("GET: %v, %v", response, err)
	}
	got := make(chan string, 1000)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer response.Body.Close()
		lines := bufio.NewScanner(response.Body)
		for lines.Scan() {
			if message, ok := strings.CutPrefix(lines.Text(), "data: "); ok && message != "" {
				got <- message
			}
		}
	}()
	return got, func() { cancel(); <-ended }
}

// dial opens a connection to write on by hand.
func (h *house) dial() net.Conn {
	h.t.Helper()
	conn, err := h.connect()
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { conn.Close() })
	return conn
}

// used is how much of a limit is used now.
func (h *house) used(name string) int64 {
	h.t.Helper()
	for _, b := range h.clients.Limits() {
		if b.Name() == name {
			return b.Used()
		}
	}
	h.t.Fatalf("there is no limit %s", name)
	return 0
}

func want(t testing.TB, what, got, part string) {
	t.Helper()
	if !strings.Contains(got, part) {
		t.Errorf("%s: %.300s\nwant %s", what, got, part)
	}
}

func next(t testing.TB, messages <-chan string, part string) {
	t.Helper()
	for {
		if message := await.Value(t, messages); strings.Contains(message, part) {
			return
		}
	}
}
