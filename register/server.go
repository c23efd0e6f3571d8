package register

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolfinch/internal/identity"
	"toolfinch/internal/rawjson"
	"toolfinch/internal/wire"
	"toolfinch/tool"
)

// New makes a server. It calls served once per request; served must not block. Call Sync when its
// result changes.
func New(options Options, served func(identity.Party) *Served, log *slog.Logger) *Live {
	l := &Live{
		upstreams: options.Upstreams, observer: options.Observer,
		subscriptions: options.Subscriptions, served: func(p identity.Party) *Served { return served(p).to(p.Groups) }, replicated: options.Replicated, log: log,
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
	l.suspended = newSuspendedCalls(options.Limits, log)
	l.relists = newRelists(options.Relists, l.observer.Relists)
	l.recentCalls = newRecentCalls(options.Called, l.observer.Called)
	if options.Hook.Line != "" {
		l.notifier = newNotifier(options.Hook, log)
	}
	l.mcp = l.newMCP(options.Version)
	return l
}

// nothing implements Upstreams and Observer without any effect.
type nothing struct{}

func (nothing) Complete(context.Context, string, *tool.Call) (tool.Result, error) {
	return nil, methodNotFound(wire.MethodComplete)
}

func (nothing) Task(_ context.Context, method string, _ *tool.Call) (tool.Result, error) {
	return nil, methodNotFound(method)
}

func (nothing) SetLevel(string) {}

func (nothing) RootsChanged(string) {}

func (nothing) Relists(string, tool.Relists) {}

func (nothing) Called(tool.Caller, []tool.Called) {}

func (nothing) Listed(string, string, []*tool.Tool) {}

func (nothing) Calling(*tool.Call) func(tool.Result) { return func(tool.Result) {} }

func (nothing) Unknown(context.Context, *tool.Call) {}

func (nothing) Began(context.Context, string, string) {}

func (nothing) Registered(string, string, identity.Party, Change) {}

func (nothing) Ended(string, Connected) {}

func (nothing) Changed(string) {}

// newMCP returns mcp-go's server around l.
func (l *Live) newMCP(version string) *server.MCPServer {
	hooks := &server.Hooks{}
	hooks.AddAfterInitialize(func(ctx context.Context, _ any, request *mcp.InitializeRequest, result *mcp.InitializeResult) {
		info := request.Params.ClientInfo
		if s := l.sessionOf(ctx); s != nil {
			s.initialize(info.Name, info.Version, wire.MessageFrom(ctx))
			l.observer.Began(ctx, s.id, clientName(info.Name, info.Version))
		}
		party := partyOf(ctx, &tool.Client{Program: clientPart(info.Name), Version: clientPart(info.Version), Capabilities: rawjson.Member(rawjson.Member(wire.MessageFrom(ctx), "params"), "capabilities")})
		l.servedTo(l.sessionOf(ctx), party).declare(&result.Capabilities, &result.Instructions)
	})
	hooks.AddAfterDiscover(func(ctx context.Context, _ any, _ *mcp.DiscoverRequest, result *mcp.DiscoverResult) {
		client := modernClient(rawjson.Member(wire.MessageFrom(ctx), "params"))
		served := l.served(partyOf(ctx, client))
		served.declare(&result.Capabilities, &result.Instructions)
		if served.Legacy != nil && served.Legacy(client.Name) {
			result.SupportedVersions = slices.DeleteFunc(slices.Clone(result.SupportedVersions), mcp.IsModernProtocol)
		}
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
	// The stub of every request is the only tool that mcp-go knows.
	library.AddTool(mcp.NewTool(wire.StubTool), l.serve)
	return library
}

// MCP returns mcp-go's server, which handles messages and negotiates.
func (l *Live) MCP() *server.MCPServer { return l.mcp }

// Run runs the shell hook until ctx ends. Suspended calls end with ctx.
func (l *Live) Run(ctx context.Context) {
	if l.notifier != nil {
		l.notifier.run(ctx)
	}
	<-ctx.Done()
	l.suspended.stop()
}

// Closing is closed when event streams must end.
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
	l.suspended.background(func(ctx context.Context) { l.subscriptions.leave(ctx, id) })
	l.observer.Ended(id, s.connected())
}
