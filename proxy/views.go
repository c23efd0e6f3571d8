package proxy

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"toolfinch/configs"
	"toolfinch/gate"
	"toolfinch/hook"
	"toolfinch/nearest"
	"toolfinch/register"
	"toolfinch/retrieve"
	"toolfinch/tool"
	"toolfinch/transport"
	"toolfinch/upstream"
	"toolfinch/view"
	"toolfinch/web"
)

// ErrNoView is wrapped by the error for a name that no view has.
var ErrNoView = web.ErrNoView

// served is all that is served at one time. It never changes; one store replaces it.
type served struct {
	config   *configs.Config
	views    []*View // the default view first
	byName   map[string]*View
	problems []view.Problem // what is wrong with the views beside what the upstreams have
	modules  []string       // the files of the views' Starlark modules
	complete bool           // each upstream has been listed, or has failed, since Open
	ready    chan struct{}  // closed when what is served became complete
}

// View is one view of the upstreams at one time: what can be found and called in
// it. It never changes, and answers as it is even when another has taken its place.
type View struct {
	*endpoint
	settings  view.Settings
	upstreams []string // whose tools it has
	problems  []view.Problem
	contents  retrieve.Contents
	catalog   *retrieve.Catalog
	retriever *retrieve.Retriever
	shown     register.Served
	budget    *gate.Budget // nil: not gated
}

// endpoint is what stays of a view while what it shows changes: the live server of
// its clients.
type endpoint struct {
	name  string
	proxy *Proxy
	root  *retrieve.Catalog // what the view's catalogs are made from
	live  *register.Live
	gate  *gate.Gate
	http  *transport.Streamable
	sse   *transport.SSE

	end   context.CancelFunc // ends the live server's Run; this and ended are the refresh loop's own
	ended chan struct{}
}

// View returns the view of that name; "" is the one that clients get who name
// none. The error wraps ErrNoView and says which there are.
func (p *Proxy) View(name string) (*View, error) {
	all := p.served.Load()
	if v := all.byName[cmp.Or(name, p.options.only, view.Default)]; v != nil {
		return v, nil
	}
	var names []string
	for _, v := range all.views {
		names = append(names, v.name)
	}
	if near := nearest.Names(name, names, 1, nearest.Loose); len(near) > 0 {
		return nil, fmt.Errorf("%w: %q; did you mean %s?", ErrNoView, name, near[0])
	}
	return nil, fmt.Errorf("%w: %q; there are %s", ErrNoView, name, strings.Join(names, ", "))
}

// reachable is View, of those that clients reach: one alone where WithView says so.
func (p *Proxy) reachable(name string) (*View, error) {
	v, err := p.View(name)
	if err == nil && p.options.only != "" && v.name != p.options.only {
		err = fmt.Errorf("%w: %q", ErrNoView, name)
	}
	return v, err
}

// main is the view of clients that name none. Open and Reload make sure that there is one.
func (p *Proxy) main() *View {
	return p.served.Load().byName[cmp.Or(p.options.only, view.Default)]
}

// Ready returns a channel that is closed once each upstream has been listed or has
// failed since Open, and what that brought is served. It needs Run. After a Reload
// that brings servers it is another channel.
func (p *Proxy) Ready() <-chan struct{} { return p.served.Load().ready }

// Views returns all views, the default view first.
func (p *Proxy) Views() []*View { return slices.Clone(p.served.Load().views) }

// Problems are what is wrong with the views beside what the upstreams have now.
func (p *Proxy) Problems() []view.Problem { return p.served.Load().problems }

// Retriever answers searches in the view of clients that name none; it works
// from Open on.
func (p *Proxy) Retriever() *retrieve.Retriever { return p.main().Retriever() }

// Tools is the number of tools known in that view.
func (p *Proxy) Tools() int { return p.main().catalog.Len() }

// Settings returns what the view is configured as.
func (v *View) Settings() view.Settings { return v.settings }

// Retriever answers searches in the view.
func (v *View) Retriever() *retrieve.Retriever { return v.retriever }

// Tools returns the tools of the view, sorted by the names clients see.
func (v *View) Tools() []*tool.Tool { return v.catalog.Tools() }

// Find finds a tool of the view by the name clients see or by "server.tool".
func (v *View) Find(name string) (*tool.Tool, error) { return v.catalog.Find(name) }

// Nearest returns up to n names of tools that look like name.
func (v *View) Nearest(name string, n int) []string { return v.catalog.Nearest(name, n) }

// Call calls a tool of the view for the owner, with all that is around it but the
// gate. notify, which may be nil, gets what the tool says meanwhile.
func (v *View) Call(ctx context.Context, t *tool.Tool, arguments json.RawMessage, notify func(method string, params json.RawMessage)) (tool.Result, error) {
	return t.Handler(ctx, &tool.Call{Name: t.Name, Arguments: arguments, Notify: notify, Local: true})
}

// newEndpoint makes what a new view is served by.
func (p *Proxy) newEndpoint(name string) *endpoint {
	kept, err := p.store.Provisions(context.Background(), name)
	if err != nil {
		p.log.Warn("the store could not be read: what clients had provisioned is not known", "view", name, "error", err)
	}
	e := &endpoint{name: name, proxy: p, root: retrieve.NewCatalog(p.upstreamTool)}
	e.root.LearnTokens(p.tokens)
	e.live = register.New(register.Settings{
		Version:       p.options.version,
		Hook:          hook.Command{Line: p.first.ListChangedExec},
		Relists:       p.relists,
		Remember:      p.rememberClient,
		SetLevel:      func(level string) { p.levels.set(e, level, p.pool.SetLogLevel) },
		Subscriptions: p.subscriptions,
		Limits:        p.limits,
		Complete:      p.pool.Complete,
		Task:          e.task,
		RootsChanged:  p.pool.RootsChanged,
		Forget:        func(session string) { p.pool.Forget(session); p.savings.Forget(session); e.gate.Drop(session) },
		Listed: func(session, client string, tools []*tool.Tool) {
			p.savings.Listed(metered{e.view()}, session, client, tools)
		},
		PrincipalHeader: p.first.PrincipalHeader,
	}, e.shown(), p.log)
	e.gate = gate.New(gate.Options{Clients: e.live, Store: e, Kept: kept, Limit: p.provisioned}, e.terms, p.log)
	e.http = transport.NewStreamable(e.live, p.connected, p.log)
	e.sse = transport.NewSSE(e.live, p.connected, "/message", p.log)
	return e
}

// view is the view that the endpoint serves now: one without anything before it is
// served first, and after it was removed.
func (e *endpoint) view() *View {
	if v := e.proxy.served.Load().byName[e.name]; v != nil && v.endpoint == e {
		return v
	}
	return &View{endpoint: e, catalog: e.root}
}

// shown returns what tells the live server what it serves.
func (e *endpoint) shown() func() *register.Served {
	nothing := &register.Served{Source: e.root}
	return func() *register.Served {
		if v := e.view(); v.shown.Source != nil {
			return &v.shown
		}
		return nothing
	}
}

// terms tells the gate what holds now.
func (e *endpoint) terms() gate.Terms {
	v := e.view()
	return gate.Terms{Catalog: v.catalog, Budget: v.budget}
}

// Keep writes what an owner has provisioned in the view.
func (e *endpoint) Keep(ctx context.Context, owner string, set []tool.Provisioned) error {
	return e.proxy.store.PutProvisions(ctx, e.name, owner, set)
}

// task is a request about a task of an upstream that the view has something of.
func (e *endpoint) task(ctx context.Context, method string, call *tool.Call) (tool.Result, error) {
	escaped, _, _ := strings.Cut(call.Name, "/") // as upstream.Pool names tasks
	if server, err := url.PathUnescape(escaped); err != nil || !e.view().has(server) {
		return nil, &tool.RPCError{Code: tool.CodeInvalidParams, Message: "there is no such task"}
	}
	return e.proxy.pool.Task(ctx, method, call)
}

// run runs what the live server does in the background until close.
func (e *endpoint) run(ctx context.Context) {
	ended := make(chan struct{})
	ctx, e.end = context.WithCancel(ctx)
	e.ended = ended
	go func() {
		defer close(ended)
		var running sync.WaitGroup
		running.Go(func() { e.gate.Run(ctx) })
		e.live.Run(ctx)
		running.Wait()
	}()
}

// close ends the sessions of the view, and then the view.
func (e *endpoint) close(context.Context) error {
	e.http.Close()
	e.live.Close()
	e.proxy.levels.set(e, "", e.proxy.pool.SetLogLevel)
	if e.end != nil {
		e.end()
		<-e.ended
	}
	return e.root.Close()
}

// has reports whether the view has something of an upstream.
func (v *View) has(server string) bool { return slices.Contains(v.upstreams, server) }

// health counts the upstreams of the view by their state.
func (v *View) health() retrieve.Health {
	listed := map[string]bool{}
	for _, s := range v.catalog.Servers() {
		listed[s.Name] = s.Tools != nil
	}
	var h retrieve.Health
	for _, s := range v.proxy.pool.Status() {
		switch {
		case !v.has(s.Server):
		case s.State == upstream.StateFailed:
			h.Failed++
		case s.State == upstream.StateReady && listed[s.Server]:
			h.Ready++
		default:
			h.Pending++
		}
	}
	return h
}
