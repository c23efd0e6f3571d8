// Package register owns what one client sees: its session, the registered set,
// the live server, list_changed, the hold and the shell hook. It neither
// searches nor dials; it gets tools and hands calls to their handlers.
package register

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
	// Tools returns all tools, in a stable order.
	Tools() []*tool.Tool
	// Pinned returns the tools that are listed from the start, in their order.
	Pinned() []*tool.Tool
	// Items returns all prompts, resources or templates, in a stable order.
	Items(kind tool.Kind) []*tool.Tool
	// Prompt finds a prompt by the name clients see.
	Prompt(name string) (*tool.Tool, bool)
	// Resource finds a resource, listed or not, by the URI clients use.
	Resource(uri string) (*tool.Tool, bool)
	// Exposed returns the URI that clients know a server's resource by.
	Exposed(server, uri string) string
	// CacheHint says how long a list may be cached, and whether for everybody.
	CacheHint(kind tool.Kind) (ttl time.Duration, public bool)
}

// Settings of a Live.
type Settings struct {
	Version      string        // of this program
	Instructions func() string // sent with initialize and server/discover
	Offered      func() Offered
	Hook         hook.Command // run after list_changed; no Line, no hook
	// Relists is what is known of clients ("name version"): whether they list
	// tools again after list_changed. Remember, if set, is told of news; it
	// must not block.
	Relists  map[string]bool
	Remember func(client string, relists bool)
	// SetLevel, if set, is told the most verbose level that any client's
	// logging/setLevel asked for.
	SetLevel func(level string)
	// Subscriptions are those of all Lives that serve the same upstreams; nil where
	// resources cannot be subscribed to.
	Subscriptions *Subscriptions
	// Complete, if set, answers completion/complete at an upstream. The ref in the
	// call's Params has the upstream's own name.
	Complete func(ctx context.Context, server string, call *tool.Call) (tool.Result, error)
	// Task, if set, answers tasks/get, tasks/update and tasks/cancel at an upstream.
	Task func(ctx context.Context, method string, call *tool.Call) (tool.Result, error)
	// RootsChanged and Forget, if set, hear of a session whose roots changed, and
	// of one that has ended.
	RootsChanged, Forget func(session string)
	// PrincipalHeader is the HTTP header in which a trusted reverse proxy names who
	// was authenticated; "" for none.
	PrincipalHeader string
	// IdleTimeout ends an HTTP session without requests and without an open
	// stream. Default 30 minutes.
	IdleTimeout time.Duration
}

// Offered is what is declared to clients beside tools: what upstreams offer.
type Offered struct {
	Prompts, Resources, Subscribe, Completions, Logging bool
	Tasks                                               bool // the extension of 2026-07-28
}

// Face is what a Live shows beside what its source has. It may change while
// clients are connected.
type Face struct {
	// Mode names how tools reach clients: when it changes, sessions that stay are
	// shown the new way.
	Mode string
	// Direct reports whether a client that comes now is listed every tool; nil:
	// none is. What a session was shown first it is shown to its end.
	Direct func() bool
	// Search are the meta-tools of clients that are not listed every tool. Meta are
	// those of all.
	Search, Meta []*tool.Tool
	// Register says that retrieved tools are registered, MaxRegistered how many of
	// them per session; default DefaultMaxRegistered.
	Register      bool
	MaxRegistered int
	// SearchTool is the name of the one of Search that finds tools, "" without.
	SearchTool string
	// Around wraps every call, the last outermost.
	Around []tool.Middleware
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
	face     atomic.Pointer[offeredFace]
	mcp      *server.MCPServer
	clients  *clients
	notifier *notifier
	endpoint *server.StreamableHTTPServer // nil unless HTTP is served

	closing   chan struct{} // closed when event streams are to end
	closeOnce sync.Once

	subscriptions *Subscriptions

	leveling sync.Mutex // held over SetLevel, so that the last it hears is the newest

	life     context.Context // of what is done aside
	end      context.CancelFunc
	parking  sync.WaitGroup // calls that outlive the request that made them, and what is done aside
	parkedMu sync.Mutex     // guards what follows; held for look-ups only
	parked   map[string]*parked
	stopped  bool // no call is parked any more

	mu        sync.Mutex // guards what follows; held for look-ups only
	sessions  map[string]*session
	listeners map[string]*listener
	announced seen // what clients were told of last
}

// offeredFace is a Face with the handler of calls that follows from it.
type offeredFace struct {
	Face
	call tool.Handler
}

// New makes a server for source. Offer must be called before it serves.
func New(settings Settings, source Source, log *slog.Logger) *Live {
	if settings.IdleTimeout == 0 {
		settings.IdleTimeout = 30 * time.Minute
	}
	l := &Live{
		settings:  settings,
		source:    source,
		log:       log,
		clients:   newClients(settings.Relists, settings.Remember),
		sessions:  map[string]*session{},
		listeners: map[string]*listener{},
		parked:    map[string]*parked{},
		closing:   make(chan struct{}),
	}
	l.life, l.end = context.WithCancel(context.Background())
	if l.subscriptions = settings.Subscriptions; l.subscriptions == nil {
		l.subscriptions = NewSubscriptions(nil)
	}
	l.Offer(Face{})
	if settings.Hook.Line != "" {
		l.notifier = newNotifier(settings.Hook, log)
	}

	hooks := &server.Hooks{}
	hooks.AddAfterInitialize(func(ctx context.Context, _ any, request *mcp.InitializeRequest, result *mcp.InitializeResult) {
		if s := l.sessionOf(ctx); s != nil {
			info := request.Params.ClientInfo
			s.initialize(clientName(info.Name, info.Version), wire.MessageFrom(ctx))
		}
		l.declare(&result.Capabilities, &result.Instructions)
	})
	hooks.AddAfterDiscover(func(_ context.Context, _ any, _ *mcp.DiscoverRequest, result *mcp.DiscoverResult) {
		l.declare(&result.Capabilities, &result.Instructions)
		if l.offered().Tasks {
			result.Capabilities.Extensions = map[string]any{tool.ExtensionTasks: struct{}{}}
		}
	})
	hooks.AddAfterSetLevel(func(ctx context.Context, _ any, request *mcp.SetLevelRequest, _ *mcp.EmptyResult) {
		if s := l.sessionOf(ctx); s != nil {
			l.setLevel(s, string(request.Params.Level))
		}
	})
	hooks.AddOnUnregisterSession(func(_ context.Context, s server.ClientSession) { l.forget(s.SessionID()) })
	l.mcp = server.NewMCPServer("toolfinch", settings.Version,
		server.WithToolCapabilities(true),
		server.WithPromptCapabilities(true),
		server.WithResourceCapabilities(true, true),
		server.WithCompletions(),
		server.WithLogging(),
		server.WithHooks(hooks),
	)
	l.mcp.AddNotificationHandler("notifications/roots/list_changed", func(ctx context.Context, _ mcp.JSONRPCNotification) {
		if s := l.sessionOf(ctx); s != nil && settings.RootsChanged != nil {
			settings.RootsChanged(s.id)
		}
	})
	l.announced = l.seen()
	// The only tool the library knows: the stub of every request.
	l.mcp.AddTool(mcp.NewTool(wire.StubTool), l.serve)
	return l
}

// offered is what is declared; everything where nothing is said of it.
func (l *Live) offered() Offered {
	if l.settings.Offered == nil {
		return Offered{true, true, true, true, true, false}
	}
	return l.settings.Offered()
}

// declare makes what mcp-go would declare what is offered.
func (l *Live) declare(c *mcp.ServerCapabilities, instructions *string) {
	offered := l.offered()
	if !offered.Prompts {
		c.Prompts = nil
	}
	if !offered.Resources {
		c.Resources = nil
	} else if !offered.Subscribe && c.Resources != nil {
		without := *c.Resources
		without.Subscribe = false
		c.Resources = &without
	}
	if !offered.Completions {
		c.Completions = nil
	}
	if !offered.Logging {
		c.Logging = nil
	}
	if l.settings.Instructions != nil {
		*instructions = l.settings.Instructions()
	}
}

// Offer sets what is shown beside the source's tools. Sync tells clients.
func (l *Live) Offer(face Face) {
	if face.MaxRegistered == 0 {
		face.MaxRegistered = DefaultMaxRegistered
	}
	next := &offeredFace{Face: face, call: l.dispatch}
	for _, wrap := range face.Around {
		next.call = wrap(next.call)
	}
	before := l.face.Swap(next)
	if before == nil || before.Mode == face.Mode {
		return
	}
	for _, s := range l.everySession() {
		s.mu.Lock()
		s.direct = nil
		s.mu.Unlock()
	}
}

// direct reports whether the client of s, nil for one of 2026-07-28, is listed
// every tool.
func (l *Live) direct(s *session) bool {
	direct := l.face.Load().Direct
	if direct == nil || s == nil {
		return direct != nil && direct()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.direct == nil {
		is := direct()
		s.direct = &is
	}
	return *s.direct
}

// Run runs what works in the background, the shell hook, until ctx ends. Calls
// that wait for a 2026-07-28 client to come back end with it.
func (l *Live) Run(ctx context.Context) {
	if l.notifier != nil {
		l.notifier.run(ctx)
	}
	<-ctx.Done()
	l.end()
	l.parkedMu.Lock()
	l.stopped = true
	for state, p := range l.parked {
		delete(l.parked, state)
		p.end()
	}
	l.parkedMu.Unlock()
	l.parking.Wait()
}

// Close ends the sessions and the open event streams of all clients.
func (l *Live) Close(ctx context.Context) {
	l.EndStreams(ctx)
	l.mu.Lock()
	ids := slices.Collect(maps.Keys(l.sessions))
	l.mu.Unlock()
	for _, id := range ids {
		l.forget(id)
	}
}

// Knows reports whether a session is one of this Live's.
func (l *Live) Knows(sessionID string) bool { return l.session(sessionID) != nil }

// aside runs f off the caller's path: upstreams that hang must not keep sessions
// from ending. The end of Run ends ctx, and waits for f.
func (l *Live) aside(f func(ctx context.Context)) {
	l.parkedMu.Lock()
	stopped := l.stopped
	if !stopped {
		l.parking.Go(func() { f(l.life) })
	}
	l.parkedMu.Unlock()
	if stopped {
		f(l.life)
	}
}

// serve is mcp-go's handler of the stub: the answer goes out raw.
func (l *Live) serve(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	x := wire.ExchangeFrom(ctx)
	if x == nil {
		return nil, server.ErrToolNotFound
	}
	modern := server.IsModernRequest(ctx)
	var s *session
	if !modern {
		s = l.sessionOf(ctx)
	}
	result, err := l.handle(ctx, x, s, modern)
	if modern && err == nil {
		result = l.cached(result, x.Method)
	}
	l.answer(x, json.RawMessage(result), err, modern)
	return &mcp.CallToolResult{Content: []mcp.Content{}}, nil
}

func (l *Live) handle(ctx context.Context, x *wire.Exchange, s *session, modern bool) (tool.Result, error) {
	switch x.Method {
	case wire.MethodListTools:
		return l.listTools(s), nil
	case wire.MethodListPrompts, wire.MethodListResources, wire.MethodListTemplates:
		return l.listPage(x)
	case wire.MethodSubscribe, wire.MethodUnsubscribe:
		if s == nil {
			return nil, methodNotFound(x.Method)
		}
		return l.subscribe(ctx, x, s)
	case wire.MethodListen:
		if !modern {
			return nil, methodNotFound(x.Method)
		}
		return l.listen(ctx, x)
	}
	call := &tool.Call{Params: x.Params}
	switch x.Method {
	case wire.MethodGetTask, wire.MethodUpdateTask, wire.MethodCancelTask:
		call.Name = rawjson.Text(rawjson.Member(x.Params, "taskId"))
	case wire.MethodReadResource:
		call.Kind, call.Name = tool.KindResource, rawjson.Text(rawjson.Member(x.Params, "uri"))
	case wire.MethodGetPrompt:
		call.Kind = tool.KindPrompt
		fallthrough
	default:
		call.Name = rawjson.Text(rawjson.Member(x.Params, "name"))
		call.Arguments = rawjson.Member(x.Params, "arguments")
	}
	if modern {
		call.Client = l.modernClient(x.Params)
	} else if s != nil {
		call.Session = s.id
		call.Client = s.described()
		call.Client.Ask = s.asking(call.Client, x)
	}
	if x.Header != nil {
		call.Header = x.Header.Get
		if l.settings.PrincipalHeader != "" {
			call.Principal = x.Header.Get(l.settings.PrincipalHeader)
		}
	}
	call.Notify = x.Notify
	if call.Client != nil {
		call.Notify = leveled(call.Client, x.Notify)
	}
	switch {
	case x.Method == wire.MethodGetTask || x.Method == wire.MethodUpdateTask || x.Method == wire.MethodCancelTask:
		return l.task(ctx, x, call)
	case x.Method == wire.MethodComplete:
		return l.complete(ctx, call)
	case modern && x.Method == wire.MethodCallTool && x.Header != nil:
		if err := l.checkParamHeaders(x, call.Name); err != nil {
			return nil, err
		}
	}
	if modern && call.Client.Answers() {
		return l.serveModern(ctx, x, call)
	}
	return l.face.Load().call(ctx, call)
}

func methodNotFound(method string) error {
	return &tool.RPCError{Code: tool.CodeMethodNotFound, Message: "method not found: " + method}
}

func (l *Live) answer(x *wire.Exchange, result json.RawMessage, err error, modern bool) {
	var rpc *tool.RPCError
	if err != nil && !errors.As(err, &rpc) {
		if x.Method == wire.MethodCallTool {
			// A model can act on a tool error; many clients hide protocol errors from it.
			result = json.RawMessage(tool.ErrorResult(err.Error()))
		} else {
			rpc = &tool.RPCError{Code: tool.CodeInternal, Message: err.Error()}
		}
	}
	if rpc != nil {
		status := 0
		if modern {
			status = statusOf(rpc.Code)
		}
		x.Fail(rpc.JSON(), status)
		return
	}
	if modern && rawjson.Member(result, "resultType") == nil {
		if typed, err := rawjson.Set(result, "resultType", []byte(`"complete"`)); err == nil {
			result = typed
		}
	}
	if len(bytes.TrimSpace(result)) == 0 {
		x.Fail((&tool.RPCError{Code: tool.CodeInternal, Message: "there is no result"}).JSON(), 0)
		return
	}
	x.Result(result)
}

// statusOf is the HTTP status that the 2026-07-28 revision wants for an error.
func statusOf(code int) int {
	switch code {
	case tool.CodeMethodNotFound:
		return http.StatusNotFound
	case tool.CodeInvalidParams, tool.CodeInvalidRequest, tool.CodeMissingCapability, mcp.HEADER_MISMATCH:
		return http.StatusBadRequest
	}
	return 0
}

// dispatch finds the tool by its exposed name, registered or not, and calls it.
func (l *Live) dispatch(ctx context.Context, call *tool.Call) (tool.Result, error) {
	var t *tool.Tool
	var ok bool
	switch call.Kind {
	case tool.KindPrompt:
		t, ok = l.source.Prompt(call.Name)
	case tool.KindResource:
		t, ok = l.source.Resource(call.Name)
	default:
		face := l.face.Load()
		for _, meta := range [][]*tool.Tool{face.Search, face.Meta} {
			for _, t := range meta {
				if t.Name == call.Name {
					return t.Handler(ctx, call)
				}
			}
		}
		t, ok = l.source.Lookup(call.Name)
	}
	if !ok {
		return nil, notFound(call.Kind, call.Name, l.hint(call), call.Client != nil && call.Client.Modern)
	}
	if s := l.session(call.Session); s != nil && call.Kind == tool.KindTool {
		s.mu.Lock()
		s.set = s.set.touch(call.Name)
		s.mu.Unlock()
	}
	return t.Handler(ctx, call)
}

// notFound is the error for a name that nothing has. The code for resources
// changed with the 2026-07-28 revision.
func notFound(kind tool.Kind, name, hint string, modern bool) error {
	rpc := &tool.RPCError{Code: tool.CodeInvalidParams, Message: fmt.Sprintf("unknown %s %q%s", kind, name, hint)}
	if kind == tool.KindResource {
		rpc.Data, _ = json.Marshal(map[string]string{"uri": name})
		if !modern {
			rpc.Code = tool.CodeResourceNotFound
		}
	}
	return rpc
}

// hint is what to do about an unknown tool.
func (l *Live) hint(call *tool.Call) string {
	if call.Kind != tool.KindTool {
		return ""
	}
	hint := ""
	if near := l.source.Nearest(call.Name, 3); len(near) > 0 {
		hint = "; nearest: " + strings.Join(near, ", ")
	}
	if search := l.face.Load().SearchTool; search != "" {
		hint += ". Search with " + search + "."
	}
	return hint
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
	if s != nil && l.direct(s) {
		for _, t := range tools {
			now[t.Name] = true
		}
		return now
	}
	face := l.face.Load()
	if s == nil || !face.Register {
		return now
	}
	var wanted []*tool.Tool
	for _, t := range tools {
		if !now[t.Name] {
			wanted = append(wanted, t)
		}
	}
	s.mu.Lock()
	set, change := s.set.plan(wanted, face.MaxRegistered)
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
	l.Notify(s.id, toolsChanged, nil)
	if l.notifier != nil {
		s.mu.Lock()
		client := s.client
		s.mu.Unlock()
		l.notifier.notify(s.id, client, change)
	}
}

// Sync lets registrations follow the catalog and the face after they changed,
// and tells those clients of a list who see it differently now.
func (l *Live) Sync() {
	now := l.seen()
	l.mu.Lock()
	before := l.announced
	l.announced = now
	l.mu.Unlock()
	offered, all := before.lists[tool.KindTool] != now.lists[tool.KindTool], before.all != now.all
	for _, s := range l.everySession() {
		s.mu.Lock()
		set, change, differs := s.set.sync(l.source.Lookup)
		s.set = set
		direct := s.direct != nil && *s.direct
		s.mu.Unlock()
		switch {
		case direct && !all, !direct && !offered && !differs:
		case offered: // by the owner, who needs no hook for it
			l.Notify(s.id, toolsChanged, nil)
		default:
			l.announce(s, change)
		}
	}
	if before.modern != now.modern {
		l.tellListeners(toolsChanged)
	}
	changed := func(kind tool.Kind) bool { return before.lists[kind] != now.lists[kind] }
	if changed(tool.KindPrompt) {
		l.broadcast(promptsChanged)
	}
	if changed(tool.KindResource) || changed(tool.KindTemplate) {
		l.broadcast(resourcesChanged)
	}
}

// seen are fingerprints of what clients see.
type seen struct {
	lists  map[tool.Kind]string // of tools what is listed without any registered
	all    string               // what a client sees that is listed every tool, "" where none is
	modern string               // what a 2026-07-28 client sees of tools
}

func (l *Live) seen() seen {
	face := l.face.Load()
	now := seen{lists: map[tool.Kind]string{}}
	for _, kind := range tool.Kinds[1:] {
		now.lists[kind] = fingerprint(l.source.Items(kind))
	}
	now.lists[tool.KindTool] = face.Mode + fingerprint(slices.Concat(face.Search, face.Meta, l.source.Pinned()))
	now.modern = now.lists[tool.KindTool]
	if face.Direct != nil {
		now.all = face.Mode + fingerprint(slices.Concat(face.Meta, l.source.Tools()))
		if face.Direct() {
			now.modern = now.all
		}
	}
	return now
}

// fingerprint is the same for lists that look the same.
func fingerprint(items []*tool.Tool) string {
	sum := sha256.New()
	for _, t := range items {
		sum.Write([]byte(t.Name))
		sum.Write([]byte(t.Def.Hash))
	}
	return string(sum.Sum(nil))
}
