// Package register owns what one client sees: its session, the registered set,
// lists, list_changed, the hold and the shell hook; and what servers ask of it. It
// neither searches nor dials nor stores, and does not decide what may be called: it
// gets tools and hands calls to their handlers.
package register

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
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

// Source is the tools, prompts and resources that a Live serves; the catalog
// implements it. It never changes. Its methods are called for every list and call
// and must not block.
type Source interface {
	// Lookup finds a tool by the name clients see.
	Lookup(name string) (*tool.Tool, bool)
	// OfApp finds the tool that an app (MCP Apps) calls by the name it has at the
	// app's server, which is one of open, the likeliest first, or unknown.
	OfApp(name string, open []string) (*tool.Tool, bool)
	// ByID finds a tool by its ID.
	ByID(id tool.ID) (*tool.Tool, bool)
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
	Version string       // of this program
	Hook    hook.Command // run after list_changed; no Line, no hook
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
	// Limits are those of all Lives that serve the same clients; nil: of this one.
	Limits *Limits
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
	// Listed, if set, is told of every answer to tools/list; session is "" for a
	// 2026-07-28 client. It must not block, nor change tools.
	Listed func(session, client string, tools []*tool.Tool)
}

// Live is the MCP server that clients talk to, over any transport and in both
// protocol eras. mcp-go carries sessions and negotiation; lists and calls are
// answered from here, byte for byte.
type Live struct {
	settings Settings
	served   func() *Served
	log      *slog.Logger
	mcp      *server.MCPServer
	clients  *clients
	notifier *notifier

	closing   chan struct{} // closed when event streams are to end
	closeOnce sync.Once

	subscriptions *Subscriptions
	limits        *Limits

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

// New makes a server of what served returns, which is asked once for each request
// and must not block. Whoever changes that calls Sync.
func New(settings Settings, served func() *Served, log *slog.Logger) *Live {
	l := &Live{
		settings:  settings,
		served:    served,
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
	if l.limits = settings.Limits; l.limits == nil {
		l.limits = NewLimits()
	}
	if settings.Hook.Line != "" {
		l.notifier = newNotifier(settings.Hook, log)
	}

	hooks := &server.Hooks{}
	hooks.AddAfterInitialize(func(ctx context.Context, _ any, request *mcp.InitializeRequest, result *mcp.InitializeResult) {
		if s := l.sessionOf(ctx); s != nil {
			info := request.Params.ClientInfo
			s.initialize(clientName(info.Name, info.Version), wire.MessageFrom(ctx))
		}
		l.served().declare(&result.Capabilities, &result.Instructions)
	})
	hooks.AddAfterDiscover(func(_ context.Context, _ any, _ *mcp.DiscoverRequest, result *mcp.DiscoverResult) {
		served := l.served()
		served.declare(&result.Capabilities, &result.Instructions)
		if served.Offered.Tasks {
			if result.Capabilities.Extensions == nil {
				result.Capabilities.Extensions = map[string]any{}
			}
			result.Capabilities.Extensions[tool.ExtensionTasks] = struct{}{}
		}
	})
	hooks.AddAfterSetLevel(func(ctx context.Context, _ any, request *mcp.SetLevelRequest, _ *mcp.EmptyResult) {
		if s := l.sessionOf(ctx); s != nil {
			l.setLevel(s, string(request.Params.Level))
		}
	})
	l.mcp = server.NewMCPServer("toolfinch", settings.Version,
		server.WithToolCapabilities(true),
		server.WithPromptCapabilities(true),
		server.WithResourceCapabilities(true, true),
		server.WithCompletions(),
		server.WithLogging(),
		server.WithHooks(hooks),
	)
	l.mcp.AddNotificationHandler("notifications/roots/list_changed", func(ctx context.Context, _ mcp.JSONRPCNotification) {
		s := l.sessionOf(ctx)
		if s == nil {
			return
		}
		s.rootsChanged()
		if settings.RootsChanged != nil {
			settings.RootsChanged(s.id)
		}
	})
	l.announced = seenOf(served())
	// The only tool the library knows: the stub of every request.
	l.mcp.AddTool(mcp.NewTool(wire.StubTool), l.serve)
	return l
}

// declare makes what mcp-go would declare what is offered.
func (v *Served) declare(c *mcp.ServerCapabilities, instructions *string) {
	if !v.Offered.Prompts {
		c.Prompts = nil
	}
	if !v.Offered.Resources {
		c.Resources = nil
	} else if !v.Offered.Subscribe && c.Resources != nil {
		without := *c.Resources
		without.Subscribe = false
		c.Resources = &without
	}
	if !v.Offered.Completions {
		c.Completions = nil
	}
	if !v.Offered.Logging {
		c.Logging = nil
	}
	if len(v.Offered.Extensions) > 0 {
		c.Extensions = map[string]any{}
		for name, value := range v.Offered.Extensions {
			c.Extensions[name] = value
		}
	}
	*instructions = v.Instructions
}

// Run runs the shell hook until ctx ends. Calls that wait for a 2026-07-28 client
// to come back end with it.
func (l *Live) Run(ctx context.Context) {
	var running sync.WaitGroup
	if l.notifier != nil {
		running.Go(func() { l.notifier.run(ctx) })
	}
	<-ctx.Done()
	running.Wait()
	l.end()
	l.parkedMu.Lock()
	l.stopped = true
	for state := range l.parked {
		l.unparked(state).abandon()
	}
	l.parkedMu.Unlock()
	l.parking.Wait()
}

// Close ends the sessions and the open event streams of all clients.
func (l *Live) Close() {
	l.EndStreams()
	l.mu.Lock()
	ids := slices.Collect(maps.Keys(l.sessions))
	l.mu.Unlock()
	for _, id := range ids {
		l.Forget(id)
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
	served := l.served()
	result, err := l.handle(ctx, served, x, s, modern)
	if modern && err == nil {
		result = l.cached(served, result, x)
	}
	l.answer(x, json.RawMessage(result), err, modern)
	return &mcp.CallToolResult{Content: []mcp.Content{}}, nil
}

func (l *Live) handle(ctx context.Context, served *Served, x *wire.Exchange, s *session, modern bool) (tool.Result, error) {
	call := l.callOf(x, s, modern)
	if s != nil && served.gated() {
		s.shown.by(call.Owner())
	}
	switch x.Method {
	case wire.MethodListTools:
		return l.listTools(served, call, s), nil
	case wire.MethodListPrompts, wire.MethodListResources, wire.MethodListTemplates:
		return listPage(served, x)
	case wire.MethodSubscribe, wire.MethodUnsubscribe:
		if s == nil {
			return nil, methodNotFound(x.Method)
		}
		return l.subscribe(ctx, served, x, s)
	case wire.MethodListen:
		if !modern {
			return nil, methodNotFound(x.Method)
		}
		return l.listen(ctx, served, x, call.Owner())
	}
	switch {
	case x.Method == wire.MethodGetTask || x.Method == wire.MethodUpdateTask || x.Method == wire.MethodCancelTask:
		return l.task(ctx, served, x, call)
	case x.Method == wire.MethodComplete:
		return l.complete(ctx, served, call)
	case modern && x.Method == wire.MethodCallTool && x.Header != nil:
		if err := checkParamHeaders(served, x, call.Name); err != nil {
			return nil, err
		}
	}
	if modern && call.Client.Answers() {
		return l.serveModern(ctx, served, x, call)
	}
	return l.dispatch(ctx, served, call)
}

// callOf is a request as a call.
func (l *Live) callOf(x *wire.Exchange, s *session, modern bool) *tool.Call {
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
		call.Principal = PrincipalOf(x.Header, l.settings.PrincipalHeader)
	}
	call.Notify = x.Notify
	if call.Client != nil {
		call.Notify = leveled(call.Client, x.Notify)
	}
	return call
}

// maxPrincipal is the longest name of a principal, in bytes.
const maxPrincipal = 1024

// PrincipalOf is who was authenticated, by the header of that name, which a trusted
// reverse proxy sets. It is "" when the header is absent, comes more than once, so
// that somebody else may have set one of them, or has more than 1,024 bytes; and
// when name is "".
func PrincipalOf(header http.Header, name string) string {
	if name == "" {
		return ""
	}
	if values := header.Values(name); len(values) == 1 && len(values[0]) <= maxPrincipal {
		return values[0]
	}
	return ""
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
		x.Fail(rpc.JSON())
		return
	}
	if modern && rawjson.Member(result, "resultType") == nil {
		if typed, err := rawjson.Set(result, "resultType", []byte(`"complete"`)); err == nil {
			result = typed
		}
	}
	if len(bytes.TrimSpace(result)) == 0 {
		x.Fail((&tool.RPCError{Code: tool.CodeInternal, Message: "there is no result"}).JSON())
		return
	}
	x.Result(result)
}

// dispatch finds the tool by its exposed name, registered or not, and calls it.
func (l *Live) dispatch(ctx context.Context, served *Served, call *tool.Call) (tool.Result, error) {
	var t *tool.Tool
	var ok bool
	s := l.session(call.Session)
	switch call.Kind {
	case tool.KindPrompt:
		t, ok = served.Prompt(call.Name)
	case tool.KindResource:
		if t, ok = served.Resource(call.Name); ok {
			s.reads(t.Def.ID)
		}
	default:
		if meta := served.metaTool(call.Name); meta != nil {
			return meta.Handler(ctx, call)
		}
		if t, ok = served.Lookup(call.Name); !ok {
			t, ok = served.OfApp(call.Name, s.appsOpen())
		}
	}
	if !ok {
		return nil, notFound(call.Kind, call.Name, served.hint(call), call.Client != nil && call.Client.Modern)
	}
	if s != nil && call.Kind == tool.KindTool {
		s.mu.Lock()
		s.set = s.set.touch(t.Name)
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
func (v *Served) hint(call *tool.Call) string {
	if call.Kind != tool.KindTool {
		return ""
	}
	hint := ""
	if near := v.Nearest(call.Name, 3); len(near) > 0 {
		hint = "; nearest: " + strings.Join(near, ", ")
	}
	if v.SearchTool != "" {
		hint += ". Search with " + v.SearchTool + "."
	}
	return hint
}
