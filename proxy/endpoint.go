package proxy

import (
	"context"
	"sync"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/limit"
	"toolfinch/proxy/replicas"
	"toolfinch/proxy/savings"
	"toolfinch/register"
	"toolfinch/register/transport"
	"toolfinch/retrieve"
	"toolfinch/retrieve/gate"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/trust/inbound"
)

// desk has the state that the live servers of all views share.
type desk struct {
	views         *views
	store         *store.Store
	meter         *savings.Meter
	counter       *counter
	subscriptions *register.Subscriptions
	connected     *transport.Clients
	entrance      *inbound.Gate
	limits        *register.Limits
	provisioned   *limit.Limit
	relists       map[string]tool.Relists                              // as stored at the start, by client
	later         func(what string, write func(context.Context) error) // loop.later
	levels        levels
	sessions      *replicas.Sessions // nil: sessions are not stored
	keysChanged   chan struct{}      // holds one signal
}

// endpoint has the parts of a view that stay when the view is replaced: the index of its catalogs and the live
// server of its clients.
type endpoint struct {
	view string
	root *retrieve.Catalog
	desk *desk // nil in a Workspace, as are all fields below
	live *register.Live
	gate *gate.Gate
	http *transport.Streamable
	sse  *transport.SSE

	sessions *replicas.View // nil: sessions are not stored

	end   context.CancelFunc // ends the live server's Run; only the refresh loop uses end and ended
	ended chan struct{}
}

// provisions returns the stored tools that an owner has provisioned.
func (e *endpoint) provisions(ctx context.Context, owner string) ([]tool.Provisioned, error) {
	return e.desk.store.Usage().ProvisionsOf(ctx, e.view, owner)
}

// now returns the view that the endpoint serves now. The view is empty before it is first served, and after it was
// removed.
func (e *endpoint) now() *View {
	if now := e.desk.views.now.Load(); now.endpoints[e.view] == e {
		return now.ByName[e.view]
	}
	return &View{Name: e.view, Catalog: e.root}
}

// Started waits until no server of the view is starting for the first time, but at most for start_wait. It returns
// the view that the caller then has. It does not wait for servers whose tools are in the store.
func (e *endpoint) Started(ctx context.Context) *View {
	for {
		all := e.desk.views.now.Load()
		v := e.now()
		left := time.Until(v.StartsUntil)
		e.desk.views.pool.Ask(v.Starting...)
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

// Renewed has the servers of the view listed again that do not say when their lists change, and those that an unknown
// name may be of; with "" for a client that lists. It returns the view that the caller then has.
func (e *endpoint) Renewed(ctx context.Context, name string) *View {
	v := e.now().Of(ctx)
	var named []string
	for _, s := range v.Contents.Servers {
		if s.MayName(name) {
			named = append(named, s.Name)
		}
	}
	e.desk.views.pool.Renew(ctx, v.Upstreams, named)
	return e.now().Of(ctx)
}

// shown returns the function that tells the live server what a party is served.
func (e *endpoint) shown() func(identity.Party) *register.Served {
	nothing := &register.Served{Source: e.root}
	return func(party identity.Party) *register.Served {
		if v := e.now().As(party); v.Shown.Source != nil {
			return &v.Shown
		}
		return nothing
	}
}

// terms returns the catalog and the budget that the gate uses now.
func (e *endpoint) terms() gate.Terms {
	v := e.now()
	return gate.Terms{Catalog: v.Catalog, Budget: v.Budget}
}

// run runs the live server and the gate in the background until close.
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

// levels has the most verbose log level that clients ask for, by view.
type levels struct {
	mu sync.Mutex // guards by; held while upstreams are told, so that the newest level reaches them last
	by map[*endpoint]string
}

// set sets the level of a view, "" for none, and passes the most verbose level of all views to tell.
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
	tell("") // the last client that wanted one has left
}
