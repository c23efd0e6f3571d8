package proxy

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"toolfinch/cluster"
	"toolfinch/configs"
	"toolfinch/printable"
	"toolfinch/register"
	"toolfinch/tool"
	"toolfinch/transport"
	"toolfinch/trust"
	"toolfinch/upstream"
	"toolfinch/upstream/conn"
	"toolfinch/view"
)

// placements are the servers of which one process runs in all replicas (upstream.PlacementOne),
// and how the others reach them. Nil has none.
type placements struct {
	desk  *desk
	leads *cluster.Leads
	hands http.RoundTripper // the connections to the other replicas

	mu     sync.Mutex // guards what follows; never held over I/O
	all    map[string]*placed
	serves bool // show has run, close has not
}

// placed serves one server to other replicas as it is: what is held, renamed or left out is
// their business.
type placed struct {
	server string
	live   *register.Live
	http   *transport.Streamable
	shown  atomic.Pointer[register.Served]
	end    context.CancelFunc
	ended  chan struct{}
	at     string // where it runs, as last known, or unplaced; of the loop that watches the replicas
}

// unplaced is where a server runs of which that is not known.
const unplaced = "?"

// newPlacements returns nil where replicas do not reach each other.
func newPlacements(beside *others, d *desk) *placements {
	if beside == nil || beside.hands == nil {
		return nil
	}
	return &placements{desk: d, leads: beside.leads, hands: beside.hands, all: map[string]*placed{}}
}

// elsewhere is upstream.Options.Elsewhere.
func (o *others) elsewhere() func(ctx context.Context, server string) (*upstream.Elsewhere, error) {
	if o == nil || o.hands == nil {
		return nil
	}
	return func(ctx context.Context, server string) (*upstream.Elsewhere, error) {
		for {
			_, changed, _ := o.leads.Replicas()
			at, err := o.leads.Placed(server)
			switch {
			case err == nil && at == "":
				return nil, nil
			case err == nil:
				// That alone: whoever has done with a server does not close what others use.
				hands := struct{ http.RoundTripper }{o.hands}
				return &upstream.Elsewhere{URL: at, Around: func(http.RoundTripper) http.RoundTripper { return hands }, Moved: changed}, nil
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return nil, err
			}
		}
	}
}

// show serves what placed servers have now. It runs on the loop.
func (p *placements) show(ctx context.Context, config *configs.Config, known *knowledge, handler func(*tool.Def) tool.Handler) {
	if p == nil {
		return
	}
	kept := map[string]bool{}
	for _, s := range config.Servers {
		if said := known.said[s.Name]; s.Placement == upstream.PlacementOne {
			kept[s.Name] = true
			one := p.open(ctx, s.Name)
			served := &register.Served{Source: newBare(s.Name, nil, handler), Direct: func(bool) bool { return true }}
			if said != nil {
				served.Source = newBare(s.Name, said.defs, handler)
				served.Instructions = said.instructions
			}
			served.Declared = known.declaredBy(view.Settings{IncludeAll: true}, s.Name)
			one.shown.Store(served)
			one.live.Sync()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serves = true
	for name, one := range p.all {
		if !kept[name] {
			delete(p.all, name)
			go one.close()
		}
	}
}

// open returns what serves a server to other replicas.
func (p *placements) open(ctx context.Context, server string) *placed {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.all[server]; one != nil {
		return one
	}
	one := &placed{server: server, at: unplaced, ended: make(chan struct{})}
	one.shown.Store(&register.Served{Source: newBare(server, nil, nil)})
	d := p.desk
	one.live = register.New(register.Options{
		Version: d.views.version, Subscriptions: d.subscriptions, Limits: d.limits, Upstreams: toPool{d.views.pool, server},
	}, func(trust.Party) *register.Served { return one.shown.Load() }, d.views.log)
	one.http = transport.NewStreamable(one.live, d.connected, nil, d.views.log)
	ctx, one.end = context.WithCancel(ctx)
	go func() {
		defer close(one.ended)
		one.live.Run(ctx)
	}()
	p.all[server] = one
	return one
}

func (o *placed) close() {
	o.http.Close()
	o.live.Close()
	o.end()
	<-o.ended
}

// lives are the live servers.
func (p *placements) lives(server string) (all []*register.Live) {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, one := range p.all {
		if server == "" || name == server {
			all = append(all, one.live)
		}
	}
	return all
}

// close ends all.
func (p *placements) close() {
	if p == nil {
		return
	}
	p.mu.Lock()
	all := p.all
	p.all, p.serves = map[string]*placed{}, false
	p.mu.Unlock()
	for _, one := range all {
		one.close()
	}
}

// find returns a placed server, or nil.
func (p *placements) find(server string) *placed {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[server]
}

// here returns the server that a request of another replica names, which runs here; nil where it does not,
// which the other is told.
func (p *placements) here(w http.ResponseWriter, r *http.Request) *placed {
	server := r.PathValue("server")
	p.mu.Lock()
	one, serves := p.all[server], p.serves
	p.mu.Unlock()
	at, err := p.leads.Placed(server)
	switch {
	case !serves:
		http.Error(w, "this replica serves no other now", http.StatusMisdirectedRequest)
	case one == nil:
		http.Error(w, "no server of this name has placement: one here: the replicas have different configurations", http.StatusNotFound)
	case err == nil && at != "": // it has moved: a chain of replicas would be a circle in the end
		http.Error(w, "another replica runs its process now", http.StatusMisdirectedRequest)
	default:
		return one
	}
	return nil
}

// ServeHTTP serves another replica.
func (p *placements) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if one := p.here(w, r); one != nil {
		one.http.ServeHTTP(w, r)
	}
}

// reconnectPattern is where another replica has a placed server connected anew.
const reconnectPattern = "POST " + cluster.PlacedPattern + "/reconnect"

// reconnect has a placed server connected anew by the replica that runs it, if that is another,
// and returns where. It returns "" where none does so: the server has just moved, or the replica is gone or of
// an older version. Connecting waits for the next.
func (p *placements) reconnect(ctx context.Context, server string) (at string, err error) {
	if p == nil || p.find(server) == nil {
		return "", nil
	}
	if at, err = p.leads.Placed(server); err != nil || at == "" {
		return "", nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, at+"/reconnect", nil)
	if err != nil {
		return "", err
	}
	answer, err := p.hands.RoundTrip(request)
	if err != nil && ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	said := ""
	if err == nil {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
		answer.Body.Close()
		said = printable.Line(strings.TrimSpace(string(text)))
		switch answer.StatusCode {
		case http.StatusNoContent:
			return at, nil
		case http.StatusBadGateway:
			return "", errors.New(said)
		case http.StatusGatewayTimeout:
			return "", conn.Mark(errors.New(said), upstream.ErrTimeout)
		}
	}
	p.desk.views.log.Warn("the replica that ran a server's process does not connect it anew", "server", server, "answer", said, "error", err)
	return "", nil
}

// reconnectPlaced is what reconnect asks for.
func (p *Proxy) reconnectPlaced(w http.ResponseWriter, r *http.Request) {
	one := p.placed.here(w, r)
	if one == nil {
		return
	}
	rows, err := rest{p}.relist(r.Context(), []string{one.server}, p.pool.Reconnect)
	if err != nil { // this replica ends
		http.Error(w, err.Error(), http.StatusMisdirectedRequest)
		return
	}
	err = rows[0].Err
	if failed, ok := errors.AsType[*upstream.Error](err); ok {
		err = failed.Err // which server, and what of it, is known there
	}
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, upstream.ErrTimeout):
		http.Error(w, err.Error(), http.StatusGatewayTimeout)
	default:
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}

// follow connects placed servers anew that run somewhere else than before.
func (p *placements) follow(ctx context.Context, reconnecting *sync.WaitGroup) {
	if p == nil {
		return
	}
	p.mu.Lock()
	all := maps.Clone(p.all)
	p.mu.Unlock()
	for server, one := range all {
		at, err := p.leads.Placed(server)
		if err != nil && p.leads.Withdrew(one.at) {
			at, err = unplaced, nil // calls in flight end there, and others wait for the next leader
		}
		if err != nil || at == one.at {
			continue
		}
		one.at = at
		reconnecting.Go(func() { p.desk.views.pool.Reach(ctx, server, at) })
	}
}

// toPool is what a live server of a placed server asks of the pool.
type toPool struct {
	*upstream.Pool
	server string
}

func (t toPool) SetLevel(level string) { t.SetLogLevelElsewhere(t.server, level) }

func (t toPool) Task(ctx context.Context, method string, call *tool.Call) (tool.Result, error) {
	return t.TaskOf(ctx, t.server, call.Name, method, relayed(call))
}

func relayed(call *tool.Call) *tool.Call {
	of := *call
	of.Relayed = true
	return &of
}

// bare is a server's definitions under their own names.
type bare struct {
	server  string
	handler func(*tool.Def) tool.Handler
	of      map[tool.Kind][]*tool.Tool
	byID    map[tool.ID]*tool.Tool
}

func newBare(server string, defs []*tool.Def, handler func(*tool.Def) tool.Handler) *bare {
	b := &bare{server: server, handler: handler, of: map[tool.Kind][]*tool.Tool{}, byID: map[tool.ID]*tool.Tool{}}
	for _, def := range defs {
		call := handler(def)
		one := &tool.Tool{Name: def.ID.Name, Def: def, Handler: func(ctx context.Context, of *tool.Call) (tool.Result, error) { return call(ctx, relayed(of)) }}
		b.of[def.ID.Kind] = append(b.of[def.ID.Kind], one)
		b.byID[def.ID] = one
	}
	return b
}

func (b *bare) find(kind tool.Kind, name string) (*tool.Tool, bool) {
	return b.ByID(tool.ID{Server: b.server, Kind: kind, Name: name})
}

func (b *bare) ByID(id tool.ID) (*tool.Tool, bool) {
	one, ok := b.byID[id]
	return one, ok
}

func (b *bare) Lookup(name string) (*tool.Tool, bool) { return b.find(tool.KindTool, name) }
func (b *bare) Prompt(name string) (*tool.Tool, bool) { return b.find(tool.KindPrompt, name) }
func (b *bare) OfApp(name string, _ []string) (*tool.Tool, bool) {
	return b.find(tool.KindTool, name)
}
func (b *bare) Tools() []*tool.Tool               { return b.of[tool.KindTool] }
func (b *bare) Items(kind tool.Kind) []*tool.Tool { return b.of[kind] }

// Pinned are all tools: a replica is listed what the server has.
func (b *bare) Pinned() []*tool.Tool                          { return slices.Clone(b.of[tool.KindTool]) }
func (*bare) Nearest(string, int) []string                    { return nil }
func (*bare) Exposed(_, uri string) string                    { return uri }
func (*bare) CacheHint(tool.Kind) (ttl time.Duration, _ bool) { return 0, false }

// Resource takes any URI: a template may have it.
func (b *bare) Resource(uri string) (*tool.Tool, bool) {
	if one, ok := b.find(tool.KindResource, uri); ok {
		return one, true
	}
	if b.handler == nil {
		return nil, false
	}
	def := &tool.Def{ID: tool.ID{Server: b.server, Kind: tool.KindResource, Name: uri}}
	return &tool.Tool{Name: uri, Def: def, Handler: b.handler(def)}, true
}
