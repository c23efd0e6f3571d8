package proxy

import (
	"context"
	"sync"
	"time"

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
}

// endpoint is what stays of a view while the view is replaced: the index of its catalogs and the live server of its
// clients.
type endpoint struct {
	view string
	root *retrieve.Catalog
	desk *desk // nil in a Workspace, with everything below
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

// now is the view that the endpoint serves now: one without anything before it is
// served first, and after it was removed.
func (e *endpoint) now() *View {
	if now := e.desk.views.now.Load(); now.endpoints[e.view] == e {
		return now.ByName[e.view]
	}
	return &View{Name: e.view, Catalog: e.root}
}

// Started waits until no server of the view is starting for the first time, or for start_wait at most, and
// returns the view that is served then to the maker of the request of ctx. A server that the store knows is
// not waited for.
func (e *endpoint) Started(ctx context.Context) *View {
	for {
		all := e.desk.views.now.Load()
		v := e.now()
		left := time.Until(v.StartsUntil)
		if len(v.Starting) == 0 || left <= 0 || ctx.Err() != nil {
			return v.Of(ctx)
		}
		timer := time.NewTimer(left)
		select {
		case <-all.replaced:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// shown returns what tells the live server what it serves.
func (e *endpoint) shown() func(identity.Party) *register.Served {
	nothing := &register.Served{Source: e.root}
	return func(party identity.Party) *register.Served {
		if v := e.now().As(party); v.Shown.Source != nil {
			return &v.Shown
		}
		return nothing
	}
}

// terms tells the gate what holds now.
func (e *endpoint) terms() gate.Terms {
	v := e.now()
	return gate.Terms{Catalog: v.Catalog, Budget: v.Budget}
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

// close ends the sessions of the view, and its index.
func (e *endpoint) close() error {
	if e.live != nil {
		e.closeLive()
	}
	return e.root.Close()
}

func (e *endpoint) closeLive() {
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
