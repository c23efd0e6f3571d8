// Package register owns what one client sees: its session, the registered set,
// lists, list_changed, the hold and the shell hook; and what servers ask of it. It
// neither searches nor dials nor stores, and does not decide what may be called: it
// gets tools and hands calls to their handlers.
package register

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolfinch/internal/hook"
	"toolfinch/internal/identity"
	"toolfinch/internal/rawjson"
	"toolfinch/internal/wire"
	"toolfinch/tool"
)

// Options of a Live.
type Options struct {
	Version string       // of this program
	Hook    hook.Command // run after list_changed; no Line, no hook
	// Relists is what is known of clients ("name version").
	Relists map[string]tool.Relists
	// Called are the tools that callers called in their last sessions, the last first.
	Called map[tool.Caller][]tool.Called
	// Subscriptions are those of all Lives that serve the same upstreams; nil where
	// resources cannot be subscribed to.
	Subscriptions *Subscriptions
	// Limits are those of all Lives that serve the same clients; nil: of this one.
	Limits    *Limits
	Upstreams Upstreams // nil: there are none
	Observer  Observer  // nil: nobody
	// Replicated says that others may serve a client's next request, as they do without
	// knowing what a client that has no session was shown here.
	Replicated bool
}

// Upstreams is what a Live asks of the servers behind it.
type Upstreams interface {
	// Complete answers completion/complete. The ref in the call's Params has the
	// upstream's own name.
	Complete(ctx context.Context, server string, call *tool.Call) (tool.Result, error)
	// Task answers tasks/get, tasks/update and tasks/cancel.
	Task(ctx context.Context, method string, call *tool.Call) (tool.Result, error)
	// SetLevel hears the most verbose level that any client's logging/setLevel asked for, "" for none.
	SetLevel(level string)
	// RootsChanged hears of a session whose client has other roots.
	RootsChanged(session string)
}

// Observer hears of clients. Its methods must not block, but for those that get a context.
type Observer interface {
	// Relists hears what is known of a client ("name version"), when that is news.
	Relists(client string, relists tool.Relists)
	// Called hears of the tools that a caller called in its last sessions, the last
	// first, when that is news. It must not change them.
	Called(by tool.Caller, called []tool.Called)
	// Listed hears of every answer to tools/list; session is "" for a 2026-07-28
	// client. It must not change tools.
	Listed(session, client string, tools []*tool.Tool)
	// Calling hears of a client's call of a tool, and returns what hears of its answer,
	// nil where that is an error of the protocol. It must not change either.
	Calling(call *tool.Call) (answered func(tool.Result))
	// Registered hears that the tools of a session have changed, whose client is told so now.
	Registered(session, client string, party identity.Party, change Change)
	// Unknown hears of a call of a name that nothing has.
	Unknown(ctx context.Context, call *tool.Call)
	// Began hears of a session whose client ("name version") has introduced itself.
	Began(ctx context.Context, session, client string)
	// Ended hears of a session that has ended, and whose it was.
	Ended(session string, was Connected)
	// Changed hears that the State of a session has changed.
	Changed(session string)
}

// Live is the MCP server that clients talk to, over any transport and in both
// protocol eras. mcp-go carries sessions and negotiation; lists and calls are
// answered from here, byte for byte.
type Live struct {
	*sessions
	listeners     listeners
	parking       *parking
	subscriptions *Subscriptions
	clients       *clients
	recent        *recent
	direct        direct   // of 2026-07-28 clients
	replicated    bool     // see Options
	process       *session // of the 2026-07-28 client on stdio; it has nothing but a set
	notifier      *notifier

	upstreams Upstreams
	observer  Observer
	served    func(identity.Party) *Served
	announced announced
	log       *slog.Logger
	mcp       *server.MCPServer

	closing   chan struct{} // closed when event streams are to end
	closeOnce sync.Once
}

// New makes a server of what served returns for a party, which is asked once for each
// request and must not block. Whoever changes that calls Sync.
func New(options Options, served func(identity.Party) *Served, log *slog.Logger) *Live {
	l := &Live{
		upstreams: options.Upstreams, observer: options.Observer,
		subscriptions: options.Subscriptions, served: served, replicated: options.Replicated, log: log,
		listeners: listeners{byKey: map[string]*listener{}}, process: newSession(""), closing: make(chan struct{}),
	}
	if l.subscriptions == nil {
		l.subscriptions = NewSubscriptions(nil)
	}
	if options.Limits == nil {
		options.Limits = NewLimits()
	}
	if l.upstreams == nil {
		l.upstreams = nothing{}
	}
	if l.observer == nil {
		l.observer = nothing{}
	}
	l.sessions = &sessions{log: log, verbose: l.upstreams.SetLevel, byID: map[string]*session{}}
	l.parking = newParking(options.Limits, log)
	l.clients = newClients(options.Relists, l.observer.Relists)
	l.recent = newRecent(options.Called, l.observer.Called)
	if options.Hook.Line != "" {
		l.notifier = newNotifier(options.Hook, log)
	}
	l.mcp = l.newMCP(options.Version)
	return l
}

// nothing is upstreams that answer nothing, and an observer that hears nothing.
type nothing struct{}

func (nothing) Complete(context.Context, string, *tool.Call) (tool.Result, error) {
	return nil, methodNotFound(wire.MethodComplete)
}

func (nothing) Task(_ context.Context, method string, _ *tool.Call) (tool.Result, error) {
	return nil, methodNotFound(method)
}

func (nothing) SetLevel(string)                       {}
func (nothing) RootsChanged(string)                   {}
func (nothing) Relists(string, tool.Relists)          {}
func (nothing) Called(tool.Caller, []tool.Called)     {}
func (nothing) Listed(string, string, []*tool.Tool)   {}
func (nothing) Calling(*tool.Call) func(tool.Result)  { return func(tool.Result) {} }
func (nothing) Unknown(context.Context, *tool.Call)   {}
func (nothing) Began(context.Context, string, string) {}

func (nothing) Registered(string, string, identity.Party, Change) {}
func (nothing) Ended(string, Connected)                           {}
func (nothing) Changed(string)                                    {}

// newMCP returns the library's server around l.
func (l *Live) newMCP(version string) *server.MCPServer {
	hooks := &server.Hooks{}
	hooks.AddAfterInitialize(func(ctx context.Context, _ any, request *mcp.InitializeRequest, result *mcp.InitializeResult) {
		info := request.Params.ClientInfo
		if s := l.sessionOf(ctx); s != nil {
			s.initialize(info.Name, info.Version, wire.MessageFrom(ctx))
			l.observer.Began(ctx, s.id, clientName(info.Name, info.Version))
		}
		party := partyOf(ctx, &tool.Client{Program: clientPart(info.Name), Version: clientPart(info.Version)})
		l.servedTo(l.sessionOf(ctx), party).declare(&result.Capabilities, &result.Instructions)
	})
	hooks.AddAfterDiscover(func(ctx context.Context, _ any, _ *mcp.DiscoverRequest, result *mcp.DiscoverResult) {
		served := l.served(partyOf(ctx, modernClient(rawjson.Member(wire.MessageFrom(ctx), "params"))))
		served.declare(&result.Capabilities, &result.Instructions)
		if served.Declared.Tasks {
			if result.Capabilities.Extensions == nil {
				result.Capabilities.Extensions = map[string]any{}
			}
			result.Capabilities.Extensions[tool.ExtensionTasks] = struct{}{}
		}
	})
	hooks.AddAfterSetLevel(func(ctx context.Context, _ any, request *mcp.SetLevelRequest, _ *mcp.EmptyResult) {
		if s := l.sessionOf(ctx); s != nil {
			l.setLevel(s, string(request.Params.Level))
			l.observer.Changed(s.id)
		}
	})
	library := server.NewMCPServer("toolfinch", version,
		server.WithToolCapabilities(true),
		server.WithPromptCapabilities(true),
		server.WithResourceCapabilities(true, true),
		server.WithCompletions(),
		server.WithLogging(),
		server.WithHooks(hooks),
	)
	library.AddNotificationHandler("notifications/roots/list_changed", func(ctx context.Context, _ mcp.JSONRPCNotification) {
		if s := l.sessionOf(ctx); s != nil {
			s.roots.changed()
			l.upstreams.RootsChanged(s.id)
		}
	})
	// The only tool the library knows: the stub of every request.
	library.AddTool(mcp.NewTool(wire.StubTool), l.serve)
	return library
}

// MCP is the library's server, which handles messages and negotiates.
func (l *Live) MCP() *server.MCPServer { return l.mcp }

// Run runs the shell hook until ctx ends. Calls that wait for a 2026-07-28 client
// to come back end with it.
func (l *Live) Run(ctx context.Context) {
	if l.notifier != nil {
		l.notifier.run(ctx)
	}
	<-ctx.Done()
	l.parking.stop()
}

// Closing is closed when event streams are to end.
func (l *Live) Closing() <-chan struct{} { return l.closing }

// EndStreams closes Closing.
func (l *Live) EndStreams() { l.closeOnce.Do(func() { close(l.closing) }) }

// Close ends the sessions and the open event streams of all clients.
func (l *Live) Close() {
	l.EndStreams()
	l.sessions.mu.Lock()
	ids := slices.Collect(maps.Keys(l.byID))
	l.sessions.mu.Unlock()
	for _, id := range ids {
		l.Forget(id)
	}
}

// Forget ends a session.
func (l *Live) Forget(id string) {
	s := l.remove(id)
	if s == nil {
		return
	}
	l.parking.aside(func(ctx context.Context) { l.subscriptions.leave(ctx, id) })
	l.observer.Ended(id, s.connected())
}
