package proxy

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/cluster"
	"toolfinch/configs"
	"toolfinch/internal/leeway"
	"toolfinch/register"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/transport"
	"toolfinch/trust"
)

// addressOf is where other replicas reach this one, as the configuration says it.
func addressOf(c *configs.Cluster) (string, error) {
	if c.Address != "" {
		return c.Address, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("the name of this machine is not known (write cluster.address): %w", err)
	}
	_, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(host, port), nil
}

// newHomes returns where sessions live; nil where this process is all there is.
func newHomes(config *configs.Config, o options, beside *others, db *store.Store) (*cluster.Homes, error) {
	rows, shared := db.Sessions()
	if !config.Replicated() || !shared {
		return nil, nil
	}
	me := cluster.Peer{ID: beside.me.ID, Address: beside.me.Address}
	return cluster.NewHomes(cluster.Options{
		Keys: config.Cluster.Keys, Hands: beside.hands, Me: me, Rows: rows, Peers: beside.leads.Peers, There: db.Replicas().There, Idle: config.SessionTimeout, Log: o.log,
		Forwarded: o.observer.metrics.Forwarded,
		Ask: func(ctx context.Context, id string, hash [32]byte) error {
			return db.Replicas().Ask(ctx, store.Topic{Kind: store.TopicSession, Key: id}, hex.EncodeToString(hash[:]))
		},
	})
}

// having is what sessions of a view have, as cluster keeps it.
type having struct{ *endpoint }

// had is that of one session, as JSON.
type had struct {
	Session     register.State     `json:"session"`
	Provisioned []tool.Provisioned `json:"provisioned,omitempty"` // what the session has of its own
}

// State returns what a session has.
func (h having) State(id string) (json.RawMessage, bool) {
	session, ok := h.live.State(id)
	if !ok {
		return nil, false
	}
	state, err := json.Marshal(had{session, h.gate.Of(tool.SessionOwner(id))})
	return state, err == nil
}

// Restore gives a session what it had.
func (h having) Restore(id string, state json.RawMessage, lost bool) {
	var had had
	if err := json.Unmarshal(state, &had); err != nil {
		h.desk.views.log.Warn("what a session had in another replica cannot be read", "view", h.view, "error", err)
		return
	}
	h.gate.Take(tool.SessionOwner(id), had.Provisioned)
	h.live.Restore(id, had.Session, lost)
}

// Changed hears of a session that has something else now.
func (b behind) Changed(session string) {
	if b.of.home != nil {
		b.of.home.Changed(session)
	}
}

// atHome has requests of the REST API that name a session answered where the session lives.
func (p *Proxy) atHome(api http.Handler) http.Handler {
	if p.homes == nil {
		return api
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(mcp.HeaderSessionID)
		v, err := p.View(r.URL.Query().Get("view"))
		if err != nil || id == "" || trust.NameOf(r.Context()) != "" || !v.live.KnowsHTTP(id, "") && !v.home.Names(r.Context(), id) {
			api.ServeHTTP(w, r)
			return
		}
		sent, err := io.ReadAll(r.Body)
		if err != nil {
			status, reason := transport.BodyStatus(err)
			refuse(w, r, status, reason)
			return
		}
		v.http.Beside(w, r, sent, api)
	})
}

// inside serves the other replicas.
func (p *Proxy) inside() http.Handler {
	mux := http.NewServeMux()
	for pattern, serve := range p.sessionPaths() {
		mux.Handle(pattern, p.to(serve))
	}
	mux.Handle("/api/", p.api())
	mux.HandleFunc("GET "+callbackPath, func(w http.ResponseWriter, r *http.Request) {
		if !p.logins.Awaits(r) {
			cluster.NotHere(w)
			return
		}
		p.logins.ServeHTTP(w, r)
	})
	outer := http.NewServeMux()
	outer.Handle(cluster.PlacedPattern, p.traces.Around(p.placed))
	outer.HandleFunc(reconnectPattern, p.reconnectPlaced)
	outer.HandleFunc(cluster.PresentPattern, p.others.leads.Present)
	outer.Handle("/", p.homes.Inside(p.desk.connected.Bounded(p.traces.Around(mux), refuse)))
	return outer
}

// listenInside opens the port for other replicas, if this is one.
func (p *Proxy) listenInside() (net.Listener, error) {
	if p.homes == nil {
		return nil, nil
	}
	listener, err := net.Listen("tcp", p.first.Cluster.Listen)
	if err != nil {
		return nil, fmt.Errorf("cluster.listen: %w", err)
	}
	p.inner = cluster.NewServer(p.others.secure, p.inside())
	p.inner.ErrorLog = p.errorLog()
	return listener, nil
}

// errorLog takes what net/http says of connections that come to nothing, which who scans ports
// makes happen.
func (p *Proxy) errorLog() *log.Logger { return slog.NewLogLogger(p.log.Handler(), slog.LevelDebug) }

// serveInside serves the other replicas until ctx ends.
func (p *Proxy) serveInside(ctx context.Context, listener net.Listener) error {
	if err := cluster.Serve(ctx, listener, p.inner); err != nil {
		return fmt.Errorf("serve other replicas at %s: %w", listener.Addr(), err)
	}
	return nil
}

// withdrawing is how long before the end of the time to drain the other replicas are told, at the
// latest, that servers run here no more; and how long that may take.
const withdrawing = 3 * time.Second

// withdraw tells the other replicas that servers run here no more, once nothing of the clients of
// this one is in flight or was parked here, which other replicas hand on. What still is near the end
// of ctx goes on: who calls a server here over another replica is told in time even so, waits
// for its next leader, and does not come back.
func (p *Proxy) withdraw(ctx context.Context, server *http.Server) {
	if p.inner == nil {
		return
	}
	end, _ := ctx.Deadline()
	before, cancel := context.WithDeadline(ctx, end.Add(-withdrawing))
	defer cancel()
	_ = server.Shutdown(before) // first: a call that is in flight may be parked
	for _, v := range p.now.Load().views {
		v.live.Finish(before)
	}
	telling, cancel := context.WithTimeout(context.WithoutCancel(ctx), leeway.Of(withdrawing))
	defer cancel()
	p.others.leads.Withdraw(telling)
}

// finishInside takes no more requests of other replicas, and waits for those in flight: what is none
// of a session here, as are calls of servers that run here alone. Run cuts off what is in flight
// at the end of ctx.
func (p *Proxy) finishInside(ctx context.Context) {
	if p.inner == nil {
		return
	}
	for _, live := range p.placed.lives("") {
		live.Finish(ctx)
		live.EndStreams()
	}
	_ = p.inner.Shutdown(ctx)
}

// lastly has each connection end with its next answer once this replica is about to end. Those
// that are idle stay until load balancers have looked away: one may just have sent a request.
func (p *Proxy) lastly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// lookAway is the part of the time to drain in which load balancers notice that this replica
// is about to end.
const lookAway = 5

// release hands all sessions over to other replicas, and leaves load balancers time to look
// away. It returns within drain, with what is left of it for requests that are none of a session
// here.
func (p *Proxy) release(ctx context.Context, drain time.Duration) (left time.Duration) {
	begun := time.Now()
	away := time.NewTimer(drain / lookAway)
	defer away.Stop()
	ctx, cancel := context.WithTimeout(ctx, drain)
	defer cancel()
	p.homes.Drain()
	p.others.leads.End()
	p.draining.Store(true)
	p.log.Info("this replica is about to end: its sessions go to others", "within", drain)
	var releasing sync.WaitGroup
	for _, v := range p.now.Load().views {
		releasing.Go(func() { v.http.Release(ctx) })
	}
	releasing.Wait()
	select {
	case <-away.C:
	case <-ctx.Done():
	}
	p.homes.EndStreams()
	return max(drain-time.Since(begun), time.Second)
}
