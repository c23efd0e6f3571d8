package proxy

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"toolfinch/hook"
	"toolfinch/nearest"
	"toolfinch/register"
	"toolfinch/retrieve"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/upstream"
	"toolfinch/view"
	"toolfinch/web"
)

// ErrNoView is wrapped by the error for a name that no view has.
var ErrNoView = web.ErrNoView

// View is one view of the upstreams: what can be found and called in it, and the
// live server of its clients.
type View struct {
	name    string
	proxy   *Proxy
	catalog *retrieve.Catalog
	live    *register.Live
	now     atomic.Pointer[shown]
	http    func() http.Handler
	sse     func() eventStream

	end   context.CancelFunc // ends the live server's Run; this and ended are the refresh loop's own
	ended chan struct{}
}

// eventStream is served over HTTP+SSE.
type eventStream struct{ events, messages http.Handler }

// shown is what a view is now.
type shown struct {
	settings     view.Settings
	retriever    *retrieve.Retriever
	upstreams    []string // whose tools it has
	offered      register.Offered
	instructions string
}

// views are all that are served, the default view first.
type views struct {
	all    []*View
	byName map[string]*View
}

// View returns the view of that name; "" is the one that clients get who name
// none. The error wraps ErrNoView and says which there are.
func (p *Proxy) View(name string) (*View, error) {
	all := p.views.Load()
	if v := all.byName[cmp.Or(name, p.Only, view.Default)]; v != nil {
		return v, nil
	}
	var names []string
	for _, v := range all.all {
		names = append(names, v.name)
	}
	if near := nearest.Names(name, names, 1, nearest.Loose); len(near) > 0 {
		return nil, fmt.Errorf("%w: %q; did you mean %s?", ErrNoView, name, near[0])
	}
	return nil, fmt.Errorf("%w: %q; there are %s", ErrNoView, name, strings.Join(names, ", "))
}

// served is View, of those that clients reach: Only alone where that is set.
func (p *Proxy) served(name string) (*View, error) {
	v, err := p.View(name)
	if err == nil && p.Only != "" && v.name != p.Only {
		err = fmt.Errorf("%w: %q", ErrNoView, name)
	}
	return v, err
}

// main is the view that clients get who name none. The default view is always
// there, so only a bad Only leads to it in another's place.
func (p *Proxy) main() *View {
	if v, err := p.View(""); err == nil {
		return v
	}
	return p.views.Load().byName[view.Default]
}

// Views returns all views, the default view first.
func (p *Proxy) Views() []*View { return slices.Clone(p.views.Load().all) }

// Problems are what is wrong with the views beside what the upstreams have now.
func (p *Proxy) Problems() []view.Problem { return *p.problems.Load() }

// Retriever answers searches in the view of clients that name none; it works
// from Open on.
func (p *Proxy) Retriever() *retrieve.Retriever { return p.main().Retriever() }

// Tools is the number of tools known in that view.
func (p *Proxy) Tools() int { return p.main().catalog.Len() }

// Settings returns what the view is configured as.
func (v *View) Settings() view.Settings { return v.now.Load().settings }

// Retriever answers searches in the view.
func (v *View) Retriever() *retrieve.Retriever { return v.now.Load().retriever }

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

// newView makes a view that shows nothing yet.
func (p *Proxy) newView(name string, tokens map[string]int) *View {
	kept, err := p.store.Provisions(context.Background(), name)
	if err != nil {
		p.log.Warn("the store could not be read: what clients had provisioned is not known", "view", name, "error", err)
	}
	v := &View{name: name, proxy: p}
	v.catalog = retrieve.NewCatalog(p.upstreamTool, nil, nil)
	v.catalog.LearnTokens(tokens)
	v.live = register.New(register.Settings{
		Version:         p.version,
		Instructions:    func() string { return v.now.Load().instructions },
		Offered:         func() register.Offered { return v.now.Load().offered },
		Hook:            hook.Command{Line: p.first.ListChangedExec},
		Relists:         p.relists,
		Remember:        p.rememberClient,
		SetLevel:        func(level string) { p.levels.set(v, level, p.pool.SetLogLevel) },
		Subscriptions:   p.subscriptions,
		Complete:        p.pool.Complete,
		Task:            v.task,
		RootsChanged:    p.pool.RootsChanged,
		Forget:          func(session string) { p.pool.Forget(session); p.savings.forget(session) },
		Tokens:          func(t *tool.Tool) int { return v.catalog.Tokens(t) },
		Kept:            keptProvisions(kept),
		Keep:            v.keepProvisions,
		Listed:          func(session, client string, tools []*tool.Tool) { p.savings.listed(v, session, client, tools) },
		PrincipalHeader: p.first.PrincipalHeader,
	}, v.catalog, p.log)
	v.http = sync.OnceValue(v.live.HTTP)
	v.sse = sync.OnceValue(func() eventStream {
		events, messages := v.live.SSE("/message")
		return eventStream{events, messages}
	})
	return v
}

func keptProvisions(stored []store.Provision) []register.KeptProvision {
	kept := make([]register.KeptProvision, len(stored))
	for i, s := range stored {
		kept[i] = register.KeptProvision(s)
	}
	return kept
}

// keepProvisions writes what an owner has provisioned.
func (v *View) keepProvisions(ctx context.Context, owner string, set []register.KeptProvision) error {
	stored := make([]store.Provision, len(set))
	for i, kept := range set {
		stored[i] = store.Provision(kept)
	}
	return v.proxy.store.PutProvisions(ctx, v.name, owner, stored)
}

// task is a request about a task of an upstream that the view has something of.
func (v *View) task(ctx context.Context, method string, call *tool.Call) (tool.Result, error) {
	escaped, _, _ := strings.Cut(call.Name, "/") // as upstream.Pool names tasks
	if server, err := url.PathUnescape(escaped); err != nil || !v.has(server) {
		return nil, &tool.RPCError{Code: tool.CodeInvalidParams, Message: "there is no such task"}
	}
	return v.proxy.pool.Task(ctx, method, call)
}

// run runs what the live server does in the background until close.
func (v *View) run(ctx context.Context) {
	ended := make(chan struct{})
	ctx, v.end = context.WithCancel(ctx)
	v.ended = ended
	go func() {
		defer close(ended)
		v.live.Run(ctx)
	}()
}

// endStreams ends the open event streams of all clients. The endpoint is made
// first, if none has come yet: one that comes now must not make it after its end.
func (v *View) endStreams(ctx context.Context) {
	v.http()
	v.live.EndStreams(ctx)
}

// close ends the sessions of the view, and then the view.
func (v *View) close(ctx context.Context) error {
	v.endStreams(ctx)
	v.live.Close(ctx)
	v.proxy.levels.set(v, "", v.proxy.pool.SetLogLevel)
	if v.end != nil {
		v.end()
		<-v.ended
	}
	return v.catalog.Close()
}

// has reports whether the view has something of an upstream.
func (v *View) has(server string) bool { return slices.Contains(v.now.Load().upstreams, server) }

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

// settled reports whether what the view has is known: each of its upstreams was
// listed once, or has failed.
func (v *View) settled() bool {
	failed := map[string]bool{}
	for _, s := range v.proxy.pool.Status() {
		failed[s.Server] = s.State == upstream.StateFailed
	}
	return !slices.ContainsFunc(v.catalog.Servers(), func(s retrieve.Server) bool { return s.Tools == nil && !failed[s.Name] })
}
