// Package register owns what one client sees: its session, the registered set,
// the live server, list_changed, the hold and the shell hook. It neither
// searches nor dials; it gets tools and hands calls to their handlers.
package register

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolfinch/hook"
	"toolfinch/rawjson"
	"toolfinch/tool"
	"toolfinch/wire"
)

// Source is what a Live serves; the catalog implements it. Its methods are
// called for every list and call and must not block.
type Source interface {
	// Lookup finds a tool by the name clients see.
	Lookup(name string) (*tool.Tool, bool)
	// Nearest returns up to n exposed names that look like name.
	Nearest(name string, n int) []string
	// Pinned returns the tools that are listed from the start, in their order.
	Pinned() []*tool.Tool
}

// Settings of a Live.
type Settings struct {
	Version       string       // of this program
	Instructions  string       // sent with initialize and server/discover
	Register      bool         // false: retrieved tools are not registered (CALL_TOOL)
	MaxRegistered int          // per session; default 40
	Hook          hook.Command // run after list_changed; no Line, no hook
	// Relists is what is known of clients ("name version"): whether they list
	// tools again after list_changed. Remember, if set, is told of news; it
	// must not block.
	Relists  map[string]bool
	Remember func(client string, relists bool)
	// SetLevel, if set, is told the level of a client's logging/setLevel.
	SetLevel func(ctx context.Context, level string)
	// IdleTimeout ends an HTTP session without requests and without an open
	// stream. Default 30 minutes.
	IdleTimeout time.Duration
}

// DefaultMaxRegistered is how many tools a session may have registered.
const DefaultMaxRegistered = 40

// Live is the MCP server that clients talk to, over any transport and in both
// protocol eras. mcp-go carries sessions and negotiation; lists and calls are
// answered from here, byte for byte.
type Live struct {
	settings Settings
	source   Source
	log      *slog.Logger
	meta     []*tool.Tool
	call     tool.Handler
	mcp      *server.MCPServer
	clients  *clients
	notifier *notifier
	endpoint *server.StreamableHTTPServer // nil unless HTTP is served

	closing   chan struct{} // closed when event streams are to end
	closeOnce sync.Once

	mu       sync.Mutex // guards sessions and pinned; held for look-ups only
	sessions map[string]*session
	pinned   []byte // what of the pinned tools was announced last
}

// session is one legacy-era client. A 2026-07-28 client has none: its list is
// stable by that revision's rules.
type session struct {
	id string

	mu       sync.Mutex // guards what follows; never held over a write to the client or a wait
	set      Set
	client   string        // "name version", "" until initialize
	listed   chan struct{} // closed by the next tools/list
	notified time.Time     // of the last list_changed that no tools/list followed yet
}

// New makes a server for source. Offer must be called before it serves.
func New(settings Settings, source Source, log *slog.Logger) *Live {
	if settings.MaxRegistered == 0 {
		settings.MaxRegistered = DefaultMaxRegistered
	}
	if settings.IdleTimeout == 0 {
		settings.IdleTimeout = 30 * time.Minute
	}
	l := &Live{
		settings: settings,
		source:   source,
		log:      log,
		clients:  newClients(settings.Relists, settings.Remember),
		sessions: map[string]*session{},
		closing:  make(chan struct{}),
	}
	l.call = l.dispatch
	if settings.Hook.Line != "" {
		l.notifier = newNotifier(settings.Hook, log)
	}

	hooks := &server.Hooks{}
	hooks.AddAfterInitialize(func(ctx context.Context, _ any, request *mcp.InitializeRequest, _ *mcp.InitializeResult) {
		if s := l.sessionOf(ctx); s != nil {
			info := request.Params.ClientInfo
			s.mu.Lock()
			s.client = strings.TrimSpace(info.Name + " " + info.Version)
			s.mu.Unlock()
		}
	})
	hooks.AddAfterListTools(func(ctx context.Context, _ any, _ *mcp.ListToolsRequest, _ *mcp.ListToolsResult) {
		l.list(ctx)
	})
	hooks.AddAfterSetLevel(func(ctx context.Context, _ any, request *mcp.SetLevelRequest, _ *mcp.EmptyResult) {
		if settings.SetLevel != nil {
			settings.SetLevel(ctx, string(request.Params.Level))
		}
	})
	hooks.AddOnUnregisterSession(func(_ context.Context, s server.ClientSession) { l.forget(s.SessionID()) })
	l.mcp = server.NewMCPServer("toolfinch", settings.Version,
		server.WithToolCapabilities(true),
		server.WithLogging(),
		server.WithInstructions(settings.Instructions),
		server.WithHooks(hooks),
	)
	// The only tool the library knows: the stub of every call.
	l.mcp.AddTool(mcp.NewTool(wire.StubTool), l.serveCall)
	return l
}

// Offer sets the meta-tools, which every client sees first and always, and the
// middleware around every call.
func (l *Live) Offer(meta []*tool.Tool, around ...tool.Middleware) {
	l.meta = meta
	l.call = l.dispatch
	for _, wrap := range around {
		l.call = wrap(l.call)
	}
}

// Run runs what works in the background, the shell hook, until ctx ends.
func (l *Live) Run(ctx context.Context) {
	if l.notifier != nil {
		l.notifier.run(ctx)
	}
}

// serveCall is mcp-go's handler of the stub: the answer goes out raw.
func (l *Live) serveCall(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	x := wire.ExchangeFrom(ctx)
	if x == nil {
		return nil, server.ErrToolNotFound
	}
	call := &tool.Call{
		Name:      x.Name(),
		Arguments: rawjson.Member(x.Params, "arguments"),
		Params:    x.Params,
		Notify:    x.Notify,
	}
	modern := server.IsModernRequest(ctx)
	if s := l.sessionOf(ctx); s != nil && !modern {
		call.Session = s.id
	}
	result, err := l.call(ctx, call)
	l.answer(x, json.RawMessage(result), err, modern)
	return &mcp.CallToolResult{Content: []mcp.Content{}}, nil
}

func (l *Live) answer(x *wire.Exchange, result json.RawMessage, err error, modern bool) {
	var rpc *tool.RPCError
	switch {
	case errors.As(err, &rpc):
		status := 0
		if modern {
			status = statusOf(rpc.Code)
		}
		x.Fail(rpc.JSON(), status)
		return
	case err != nil:
		// A model can act on a tool error; many clients hide protocol errors from it.
		result = json.RawMessage(tool.ErrorResult(err.Error()))
	}
	if modern && rawjson.Member(result, "resultType") == nil {
		if typed, err := rawjson.Set(result, "resultType", []byte(`"complete"`)); err == nil {
			result = typed
		}
	}
	if len(bytes.TrimSpace(result)) == 0 {
		x.Fail((&tool.RPCError{Code: tool.CodeInternal, Message: "the tool gave no result"}).JSON(), 0)
		return
	}
	x.Result(result)
}

// statusOf is the HTTP status that the 2026-07-28 revision wants for an error.
func statusOf(code int) int {
	switch code {
	case tool.CodeMethodNotFound:
		return http.StatusNotFound
	case tool.CodeInvalidParams, tool.CodeInvalidRequest:
		return http.StatusBadRequest
	}
	return 0
}

// dispatch finds the tool by its exposed name, registered or not, and calls it.
func (l *Live) dispatch(ctx context.Context, call *tool.Call) (tool.Result, error) {
	for _, t := range l.meta {
		if t.Name == call.Name {
			return t.Handler(ctx, call)
		}
	}
	t, ok := l.source.Lookup(call.Name)
	if !ok {
		return nil, &tool.RPCError{Code: tool.CodeInvalidParams, Message: l.unknown(call.Name)}
	}
	if s := l.session(call.Session); s != nil {
		s.mu.Lock()
		s.set = s.set.touch(call.Name)
		s.mu.Unlock()
	}
	return t.Handler(ctx, call)
}

func (l *Live) unknown(name string) string {
	message := fmt.Sprintf("unknown tool %q", name)
	if near := l.source.Nearest(name, 3); len(near) > 0 {
		message += "; nearest: " + strings.Join(near, ", ")
	}
	return message + ". Search with retrieve_tools."
}

// list answers tools/list: meta-tools, pinned tools, then what is registered.
func (l *Live) list(ctx context.Context) {
	x := wire.ExchangeFrom(ctx)
	if x == nil {
		return
	}
	tools := append([]*tool.Tool{}, l.meta...)
	pinned := l.source.Pinned()
	tools = append(tools, pinned...)
	modern := server.IsModernRequest(ctx)
	if s := l.sessionOf(ctx); s != nil && !modern {
		for _, r := range l.relisted(s).tools {
			if !contains(pinned, r.Name) {
				tools = append(tools, r.Tool)
			}
		}
	}
	out := []byte(`{"tools":[`)
	for i, t := range tools {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, Listed(t)...)
	}
	out = append(out, ']')
	if modern {
		// What the revision requires of a list; it may be asked for any time.
		out = append(out, `,"resultType":"complete","ttlMs":0,"cacheScope":"private"`...)
	}
	x.Result(append(out, '}'))
}

// Listed is the definition of a tool as a client sees it: the upstream's own
// bytes under the exposed name.
func Listed(t *tool.Tool) json.RawMessage {
	name, _ := json.Marshal(t.Name)
	out, err := rawjson.Set(t.Def.Raw, "name", name)
	if err != nil { // ParseDef lets only objects in
		return t.Def.Raw
	}
	return out
}

func contains(tools []*tool.Tool, name string) bool {
	for _, t := range tools {
		if t.Name == name {
			return true
		}
	}
	return false
}

// relisted notes that the client of s asked for the list, which ends its hold,
// and returns what is registered.
func (l *Live) relisted(s *session) Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.listed)
	s.listed = make(chan struct{})
	if !s.notified.IsZero() && time.Since(s.notified) < holdCap {
		l.clients.relisted(s.client)
	}
	s.notified = time.Time{}
	return s.set
}

// Register puts tools on the live server of a session: one change of its set
// and one list_changed. It returns once the client has asked for the new list,
// as far as it is known to do so (see hold), and reports which of the tools
// are registered now. Without a session, or with registration off, none are.
func (l *Live) Register(ctx context.Context, sessionID string, tools []*tool.Tool) map[string]bool {
	now := map[string]bool{}
	for _, t := range l.source.Pinned() {
		now[t.Name] = true
	}
	s := l.session(sessionID)
	if s == nil || !l.settings.Register {
		return now
	}
	var wanted []*tool.Tool
	for _, t := range tools {
		if !now[t.Name] {
			wanted = append(wanted, t)
		}
	}
	s.mu.Lock()
	set, change := s.set.plan(wanted, l.settings.MaxRegistered)
	s.set = set
	listed, client := s.listed, s.client
	if !change.Empty() {
		s.notified = time.Now()
	}
	s.mu.Unlock()
	for _, name := range set.names() {
		now[name] = true
	}
	if !change.Empty() {
		l.announce(s, change)
		l.hold(ctx, client, listed)
	}
	return now
}

// announce tells one session, and the owner's hook, that its list changed.
func (l *Live) announce(s *session, change Change) {
	err := l.mcp.SendNotificationToSpecificClient(s.id, mcp.MethodNotificationToolsListChanged, nil)
	if err != nil {
		l.log.Debug("list_changed not sent", "session", s.id, "error", err)
	}
	if l.notifier != nil {
		s.mu.Lock()
		client := s.client
		s.mu.Unlock()
		l.notifier.notify(s.id, client, change)
	}
}

// Sync lets registrations follow the catalog after it changed. Only sessions
// that see a difference are told, or all when the pinned tools differ.
func (l *Live) Sync() {
	var pinned []byte
	for _, t := range l.source.Pinned() {
		pinned = append(append(pinned, t.Name...), t.Def.Hash...)
	}
	l.mu.Lock()
	everyone := !bytes.Equal(pinned, l.pinned)
	l.pinned = pinned
	sessions := make([]*session, 0, len(l.sessions))
	for _, s := range l.sessions {
		sessions = append(sessions, s)
	}
	l.mu.Unlock()

	for _, s := range sessions {
		s.mu.Lock()
		set, change, changed := s.set.sync(l.source.Lookup)
		s.set = set
		s.mu.Unlock()
		if changed && !everyone {
			l.announce(s, change)
		}
	}
	if everyone {
		l.mcp.SendNotificationToAllClients(mcp.MethodNotificationToolsListChanged, nil)
	}
}

// sessionOf returns the session of the request being handled. A stream's
// session is made by its first request.
func (l *Live) sessionOf(ctx context.Context) *session {
	current := server.ClientSessionFromContext(ctx)
	if current == nil {
		return nil
	}
	return l.session(current.SessionID())
}

func (l *Live) session(id string) *session {
	if id == "" {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sessions[id]
}

func (l *Live) remember(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sessions[id] = &session{id: id, listed: make(chan struct{})}
}

func (l *Live) forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sessions, id)
}
