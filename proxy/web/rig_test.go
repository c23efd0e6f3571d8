package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/await"
	"toolfinch/internal/identity"
	"toolfinch/proxy/web"
	"toolfinch/register"
	"toolfinch/register/transport"
	"toolfinch/retrieve"
	"toolfinch/retrieve/gate"
	"toolfinch/tool"
	"toolfinch/trust/inbound"
	"toolfinch/trust/pins"
	"toolfinch/upstream"
)

// strange is a result with everything that a typed structure would lose.
const strange = `{"content":[{"type":"text","text":"a<b>&c"}],"structuredContent":{"z":123456789012345678901234567890,"a":1.0,"e":"\u003c"},  "_meta":{"a/b":[1e400]},"unknown":null}`

// clockTools are of a server inside the test.
var clockTools = []string{
	`{"name":"now","description":"Tell the current time in a city","inputSchema":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"x":12345678901234567890},"annotations":{"readOnlyHint":true}}`,
	`{"name":"strange","description":"Answer with strange numbers"}`,
	`{"name":"echo","description":"Answer with the arguments, <as> & where they came"}`,
	`{"name":"fail","description":"Fail by its own word"}`,
	`{"name":"refuse","description":"Answer with a protocol error"}`,
	`{"name":"empty","description":"Answer with nothing"}`,
	`{"name":"burn","description":"Burn down the handler"}`,
	`{"name":"wait","description":"Wait until nobody waits any more"}`,
}

// rig is a backend with three servers: clock in the test, hang whose calls time
// out, and dead that nobody can reach; and the views default, gated and tight,
// the last with a budget of one tool.
type rig struct {
	t       testing.TB
	handler http.Handler
	pool    *upstream.Pool
	views   map[string]web.View
	log     *await.Log      // what was logged, as lines of JSON
	calls   chan *tool.Call // that reached echo
	events  chan identity.Event
	waiting chan struct{} // gets one for each call of wait that has begun
}

// never is a timeout of what never comes; all that comes has await.Bound.
const never = time.Millisecond

func newRig(t testing.TB) *rig {
	r := &rig{t: t, views: map[string]web.View{}, log: &await.Log{}, calls: make(chan *tool.Call, 100), waiting: make(chan struct{}, 100), events: make(chan identity.Event, 100)}
	mute := httptest.NewServer(mcpServer{method: "initialize"})
	t.Cleanup(mute.Close)
	hang := httptest.NewServer(mcpServer{})
	t.Cleanup(hang.Close)
	reach := func(name, url string, connect, call time.Duration) upstream.Settings {
		return upstream.Settings{
			Name: name, URL: url, Transport: upstream.TransportHTTP, Protocol: upstream.ProtocolLegacy,
			ConnectTimeout: connect, CallTimeout: call,
		}
	}
	silent := slog.New(slog.DiscardHandler)
	r.pool = upstream.NewPool([]upstream.Settings{
		reach("hang", hang.URL, await.Bound, await.Bound), reach("dead", "http://127.0.0.1:1", await.Bound, await.Bound), reach("mute", mute.URL, never, await.Bound),
	}, upstream.Options{})
	t.Cleanup(func() {
		if err := r.pool.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for name, budget := range map[string]*gate.Budget{
		"default": nil, "gated": {MaxTools: 5, MaxTokens: 100_000}, "tight": {MaxTools: 1, MaxTokens: 100_000},
	} {
		r.views[name] = r.view(name, budget, silent)
	}
	api := web.Handler(r, "1.2.3", slog.New(slog.NewJSONHandler(r.log, nil)))
	r.handler = http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if name := request.Header.Get("X-User"); name != "" {
			request = request.WithContext(identity.WithPrincipal(request.Context(), &identity.Principal{ID: name}))
		}
		api.ServeHTTP(w, request)
	})
	return r
}

func (r *rig) view(name string, budget *gate.Budget, log *slog.Logger) web.View {
	root := retrieve.NewCatalog(r.handle)
	r.t.Cleanup(func() { _ = root.Close() })
	shown := &register.Served{Source: root}
	terms := gate.Terms{Catalog: root, Budget: budget}
	live := register.New(register.Options{Version: "1"}, func(identity.Party) *register.Served { return shown }, log)
	gated := gate.New(gate.Options{Clients: live}, func() gate.Terms { return terms }, log)
	settings := retrieve.Settings{Validate: func(string) bool { return true }}
	if budget != nil {
		settings.Gate, shown.Granted = gated, gated.Granted
	}
	servers := []retrieve.Server{
		{Name: "clock", Description: "Clocks of the world", Tools: r.tools("clock", clockTools...)},
		{Name: "hang", Tools: r.tools("hang", `{"name":"sleep","description":"Sleep for ever"}`)},
		{Name: "dead", Tools: r.tools("dead", `{"name":"rise","description":"Rise again"}`)},
		{Name: "mute"},
	}
	for _, s := range servers {
		for i, t := range s.Tools {
			s.Tools[i] = &tool.Tool{Def: t.Def, Handler: gated.Layer(t.Def.ID)(t.Handler)}
		}
	}
	catalog, err := root.With(r.t.Context(), retrieve.Contents{Servers: servers, Reserved: retrieve.Reserved()})
	if err != nil {
		r.t.Fatal(err)
	}
	shown.Source, terms.Catalog = catalog, catalog
	whole := func(string) bool { return name == "default" }
	return web.View{Name: name, Catalog: catalog, Retriever: retrieve.New(catalog, settings), Sessions: live, Whole: whole}
}

func (r *rig) tools(server string, raw ...string) []*tool.Tool {
	var defs []*tool.Def
	for _, definition := range raw {
		def, err := tool.ParseDef(server, json.RawMessage(definition))
		if err != nil {
			r.t.Fatal(err)
		}
		defs = append(defs, def)
	}
	return tool.Of(defs, r.handle)
}

// handle is the handler of every tool.
func (r *rig) handle(def *tool.Def) tool.Handler {
	return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		switch def.ID.Server {
		case "hang":
			return nil, fmt.Errorf("%w: no answer", upstream.ErrTimeout)
		case "dead":
			return r.pool.Call(ctx, def, call)
		}
		switch def.ID.Name {
		case "strange":
			return tool.Result(strange), nil
		case "echo":
			r.calls <- call
			return tool.Result(`{"content":[],"structuredContent":` + string(call.Arguments) + `}`), nil
		case "fail":
			return tool.ErrorResult("it rained"), nil
		case "refuse":
			return nil, &tool.RPCError{Code: -32000, Message: "not today"}
		case "empty":
			return nil, nil
		case "burn":
			panic("secret of the backend")
		case "wait":
			r.waiting <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return tool.TextResult("noon"), nil
	}
}

// The rig is a web.Backend.

func (r *rig) View(_ context.Context, name string) (web.View, error) {
	if name == "" {
		name = "default"
	}
	v, ok := r.views[name]
	if !ok {
		return web.View{}, fmt.Errorf("%w: %q", web.ErrNoView, name)
	}
	return v, nil
}

func (r *rig) Upstreams(context.Context) []web.Upstream {
	servers := []web.Upstream{{Name: "clock", Description: "Clocks of the world", State: "ready", Tools: 99, LeftOut: 1, Mended: 2}}
	for _, s := range r.pool.Status() {
		of := web.Upstream{Name: s.Server, State: string(s.State), Since: s.Since, Era: string(s.Era), Transport: s.Transport, Tools: s.Tools, Restarts: s.Restarts, Dropped: s.Dropped}
		if s.Err != nil {
			of.Error = s.Err.Error()
		}
		servers = append(servers, of)
	}
	return append(servers, web.Upstream{Name: "elsewhere", State: "ready"})
}

func (r *rig) Reconnect(ctx context.Context, name string) (web.Upstream, error) {
	if change := r.pool.Refresh(ctx, name); change.Err != nil {
		return web.Upstream{}, change.Err
	}
	for _, s := range r.Upstreams(ctx) {
		if s.Name == name {
			return s, nil
		}
	}
	return web.Upstream{}, web.ErrNoServer
}

func (r *rig) Held(_ context.Context, of func(string) bool) ([]pins.Report, error) {
	held := func(server, name string) pins.Report {
		return pins.Report{Held: pins.Held{ID: tool.ID{Server: server, Name: name}, Hash: "h-" + name, Raw: json.RawMessage(`{"name":"` + name + `"}`)}}
	}
	all := []pins.Report{held("clock", "later"), held("clock", "gone"), held("elsewhere", "secret")}
	return slices.DeleteFunc(all, func(r pins.Report) bool { return !of(r.ID.Server) }), nil
}

func (r *rig) Decide(_ context.Context, approve, _ []pins.Report) error {
	if len(approve) > 0 && approve[0].ID.Name == "gone" {
		return fmt.Errorf("%w: look at it once more", web.ErrStale)
	}
	return nil
}

func (r *rig) Reindex(context.Context) []web.Reindexed {
	return []web.Reindexed{
		{Server: "clock", Tools: 99, Differences: &web.Differences{Added: 1}},
		{Server: "dead", Differences: &web.Differences{}, Error: "upstream dead: connect: no"},
		{Server: "elsewhere", Differences: &web.Differences{}},
	}
}

func (r *rig) Observe(ctx context.Context, e identity.Event, _ *tool.Call) (context.Context, func(error), error) {
	return ctx, func(err error) {
		if err != nil {
			e.Outcome, e.Reason = identity.Failed, err.Error()
		}
		select {
		case r.events <- e:
		default: // nobody looks
		}
	}, nil
}

func (r *rig) Metrics(context.Context) ([]byte, error) { return []byte("toolfinch_tools 10\n"), nil }

func (r *rig) Permit(context.Context, inbound.Level, string) error { return nil }

func (r *rig) Status(_ context.Context, view web.View) web.Status {
	began := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	call := web.CallStatus{Kind: identity.EventCall, Began: began, View: view.Name, Server: "clock", Tool: "clock.now", Name: "clock_now", Client: "agent 1", Principal: "alice", MS: 1.5}
	failed := call
	failed.Outcome, failed.Reason = identity.Timeout, "timed out"
	return web.Status{
		Store:   "PostgreSQL has not answered",
		Started: began, Now: began.Add(time.Hour), Views: []web.ViewStatus{{Name: view.Name, Tools: 10}},
		Sessions: web.SessionsStatus{All: 2, Shown: []web.SessionStatus{{View: view.Name, Client: "agent 1", Era: "legacy", Principal: "alice", Transport: identity.TransportHTTP, Since: began}}},
		Calls:    web.CallsStatus{InFlight: 1, Shown: []web.CallStatus{call}, Last: []web.LastCalls{{Minutes: 5, Calls: 3, Failed: 1}}},
		Errors:   []web.CallStatus{failed}, Tokens: web.TokensStatus{Read: 10, AllListed: 100},
		Search: web.SearchStatus{Model: "model", Reason: "the embedder fails", Indexed: 10, Embedded: 5},
		Limits: []web.LimitStatus{{Name: "sessions", Used: 6, Max: 7, Hits: 1}},
		Replicas: &web.ReplicasStatus{Differ: []string{"they run different versions"}, Sessions: new(2), Shown: []web.ReplicaStatus{
			{Name: "replica-1", ID: "abc", This: true, Version: "v1.2.3", Seconds: 60, Leads: []string{"clock"}},
		}},
	}
}

// fire is a backend where nothing works.
type fire struct{}

func (fire) View(context.Context, string) (web.View, error) { panic("secret of the backend") }
func (fire) Status(context.Context, web.View) web.Status    { panic("secret of the backend") }
func (fire) Upstreams(context.Context) []web.Upstream       { panic("secret of the backend") }
func (fire) Metrics(context.Context) ([]byte, error)        { panic("secret of the backend") }
func (fire) Observe(context.Context, identity.Event, *tool.Call) (context.Context, func(error), error) {
	panic("secret of the backend")
}
func (fire) Permit(context.Context, inbound.Level, string) error { return nil }
func (fire) Held(context.Context, func(string) bool) ([]pins.Report, error) {
	return nil, errors.New("secret of the backend")
}
func (fire) Decide(context.Context, []pins.Report, []pins.Report) error {
	return errors.New("secret of the backend")
}
func (fire) Reindex(context.Context) []web.Reindexed { panic("secret of the backend") }
func (fire) Reconnect(context.Context, string) (web.Upstream, error) {
	return web.Upstream{}, errors.New("secret of the backend")
}

// session begins an MCP session in a view.
func (r *rig) session(view string) string {
	r.t.Helper()
	request := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	answer := httptest.NewRecorder()
	transport.NewStreamable(r.views[view].Sessions.(*register.Live), transport.NewClients(transport.Limits{}), nil, slog.New(slog.DiscardHandler)).ServeHTTP(answer, request)
	id := answer.Header().Get("Mcp-Session-Id")
	if id == "" {
		r.t.Fatalf("no session: %s", answer.Body)
	}
	return id
}

// ask sends a request; each of header is "Name: value". A body is JSON unless
// header says otherwise.
func (r *rig) ask(method, target, body string, header ...string) *httptest.ResponseRecorder {
	return ask(r.handler, method, target, body, header...)
}

func ask(handler http.Handler, method, target, body string, header ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, target, strings.NewReader(body))
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		request.Header.Set(name, value)
	}
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, request)
	return answer
}

// mcpServer is an MCP server over HTTP that never answers one method; with "" it
// answers all.
type mcpServer struct{ method string }

func (s mcpServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	body, _ := io.ReadAll(r.Body)
	if json.Unmarshal(body, &m) != nil || m.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	result := `{}`
	switch m.Method {
	case s.method:
		<-r.Context().Done()
		return
	case "initialize":
		result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`
	case "tools/list":
		result = `{"tools":[{"name":"sleep","description":"Sleep for a while"}]}`
	case "tools/call":
		result = strange
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

func serverOf(name string, tools []*tool.Tool) retrieve.Server {
	return retrieve.Server{Name: name, Tools: tools}
}
