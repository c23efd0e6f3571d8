package proxy

import (
	"context"
	"sync"

	"toolfinch/internal/hook"
	"toolfinch/internal/identity"
	"toolfinch/internal/limit"
	"toolfinch/proxy/replicas"
	"toolfinch/proxy/savings"
	"toolfinch/proxy/web/page"
	"toolfinch/register"
	"toolfinch/register/transport"
	"toolfinch/retrieve"
	"toolfinch/retrieve/gate"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/trust/inbound"
)

// desk is what the live servers of all views share.
type desk struct {
	views         *views
	store         *store.Store
	meter         *savings.Meter
	counter       *counter
	subscriptions *register.Subscriptions
	connected     *transport.Clients
	entrance      *inbound.Gate
	page          func() *page.Server // is made when it is first asked for
	limits        *register.Limits
	provisioned   *limit.Limit
	relists       map[string]tool.Relists                              // what was known of clients at the start
	later         func(what string, write func(context.Context) error) // the refresh loop's
	levels        levels
	sessions      *replicas.Sessions // nil: they are not stored
	keysChanged   chan struct{}      // holds one signal
}

// endpoint is what stays of a view while what it shows changes: the live server of
// its clients.
type endpoint struct {
	desk *desk
	view string
	root *retrieve.Catalog
	live *register.Live
	gate *gate.Gate
	http *transport.Streamable
	sse  *transport.SSE

	sessions *replicas.View // nil: they are not stored

	end   context.CancelFunc // ends the live server's Run; this and ended are the refresh loop's own
	ended chan struct{}
}

// provisions is what is stored of what an owner has provisioned.
func (e *endpoint) provisions(ctx context.Context, owner string) ([]tool.Provisioned, error) {
	return e.desk.store.Usage().ProvisionsOf(ctx, e.view, owner)
}

// open makes what a new view is served by.
func (d *desk) open(v *View) *endpoint {
	kept, err := d.store.Usage().Provisions(context.Background(), v.name)
	if err != nil {
		d.views.log.Warn("the store could not be read: what clients had provisioned is not known", "view", v.name, "error", err)
	}
	called, err := d.store.Usage().Called(context.Background(), v.name)
	if err != nil {
		d.views.log.Warn("the store could not be read: what clients called before is not known", "view", v.name, "error", err)
	}
	e := &endpoint{desk: d, view: v.name, root: v.root}
	behind := liveHost{e}
	options := register.Options{
		Version:       d.views.version,
		Hook:          hook.Command{Line: d.views.first.ListChangedExec},
		Relists:       d.relists,
		Called:        called,
		Subscriptions: d.subscriptions,
		Limits:        d.limits,
		Upstreams:     behind,
		Observer:      behind,
		Replicated:    d.sessions != nil,
	}
	e.live = register.New(options, e.shown(), d.views.log)
	gating := gate.Options{Clients: e.live, Store: behind, Kept: kept, Limit: d.provisioned}
	if d.views.others != nil {
		gating.Read = e.provisions
	}
	e.gate = gate.New(gating, e.terms, d.views.log)
	var stored transport.Sessions
	if d.sessions != nil {
		e.sessions = d.sessions.View(v.name, having{e})
		stored = e.sessions
	}
	e.http = transport.NewStreamable(e.live, d.connected, stored, d.views.log)
	e.sse = transport.NewSSE(e.live, d.connected, "/message", d.views.log)
	if e.sessions != nil {
		e.sessions.Serve(e.http)
	}
	return e
}

// now is the view that the endpoint serves now: one without anything before it is
// served first, and after it was removed.
func (e *endpoint) now() *View {
	if v := e.desk.views.now.Load().byName[e.view]; v != nil && v.endpoint == e {
		return v
	}
	return &View{name: e.view, endpoint: e, catalog: e.root}
}

// shown returns what tells the live server what it serves.
func (e *endpoint) shown() func(identity.Party) *register.Served {
	nothing := &register.Served{Source: e.root}
	return func(party identity.Party) *register.Served {
		if v := e.now().as(party); v.shown.Source != nil {
			return &v.shown
		}
		return nothing
	}
}

// terms tells the gate what holds now.
func (e *endpoint) terms() gate.Terms {
	v := e.now()
	return gate.Terms{Catalog: v.catalog, Budget: v.budget}
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

// close ends the sessions of the view.
func (e *endpoint) close() {
	e.http.Close()
	e.live.Close()
	e.desk.levels.set(e, "", e.desk.views.pool.SetLogLevel)
	if e.end != nil {
		e.end()
		<-e.ended
	}
}

// levels are the most verbose levels of log messages that the clients of each
// view ask for.
type levels struct {
	mu sync.Mutex // guards by; held while upstreams are told, so that the last they hear is the newest
	by map[*endpoint]string
}

// set takes the level of a view, "" for none, and tells the most verbose of all.
func (l *levels) set(e *endpoint, level string, tell func(level string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.by = map[*endpoint]string{}
	}
	if level == "" && l.by[e] == "" {
		return
	}
	l.by[e] = level
	if level == "" {
		delete(l.by, e)
	}
	for _, level := range tool.LogLevels {
		for _, wanted := range l.by {
			if wanted == level {
				tell(level)
				return
			}
		}
	}
}
