package proxy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/configs"
	"toolfinch/internal/identity"
	"toolfinch/proxy/web"
	"toolfinch/proxy/web/page"
	"toolfinch/register/transport"
	"toolfinch/trust/inbound"
)

// ServeStdio serves one client on in and out until it closes in.
func (p *Proxy) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	now := p.now.Load()
	v, err := p.viewIn(now, "")
	if err != nil {
		return err
	}
	return transport.Stdio(p.traces.On(ctx), now.endpoints[v.Name].live, p.desk.connected, in, out, p.log)
}

// ServeHTTP serves clients on listener until ctx ends: streamable HTTP at /mcp,
// and of each view at /mcp/{view}, HTTP+SSE at /sse, the REST API at /api, the page at
// /, /healthz and /readyz. Calls in flight get http_limits.drain then.
func (p *Proxy) ServeHTTP(ctx context.Context, listener net.Listener) error {
	if err := p.MayListen(listener.Addr()); err != nil {
		return err
	}
	server := &http.Server{
		Handler:           p.lastly(p.Handler()),
		ConnState:         p.connections.told,
		ErrorLog:          slog.NewLogLogger(p.log.Handler(), slog.LevelDebug), // connections that come to nothing
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       cmp.Or(p.first.HTTP.IdleTime, configs.DefaultHTTPLimits.IdleTime),
		MaxHeaderBytes:    2 * cmp.Or(p.first.HTTP.Headers, configs.DefaultHTTPLimits.Headers), // who sends a little too much is told by Guard
	}
	p.connections.limits(server.IdleTimeout)
	p.logins.listensAt(listener.Addr())
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	within := p.leave(cmp.Or(p.first.HTTP.Drain, configs.DefaultHTTPLimits.Drain))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	for _, e := range p.now.Load().endpoints {
		e.live.EndStreams()
	}
	err := server.Shutdown(ctx)
	if err != nil {
		err = p.cut(server)
	}
	if served := <-failed; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// cut ends what still runs: requests of MCP get a moment to say so.
func (p *Proxy) cut(server *http.Server) error {
	for _, e := range p.now.Load().endpoints {
		e.http.Cut()
	}
	saying, cancel := context.WithTimeout(context.Background(), transport.CutWithin)
	defer cancel()
	if server.Shutdown(saying) == nil {
		return nil
	}
	return server.Close()
}

// MayListen reports whether clients may be served at an address: beyond this machine only
// where the configuration says who may come in.
func (p *Proxy) MayListen(at net.Addr) error { return p.first.Auth.CheckListener(at) }

const messagePattern = "POST /message"

// sessionPaths are the patterns of requests of clients, and what of a view serves them.
func (p *Proxy) sessionPaths() map[string]func(e *endpoint) http.Handler {
	streamable := func(e *endpoint) http.Handler { return e.http }
	return map[string]func(e *endpoint) http.Handler{
		"/mcp": streamable, "/mcp/{view}": streamable, messagePattern: func(e *endpoint) http.Handler { return http.HandlerFunc(e.sse.Messages) },
	}
}

// to serves the view that a request names.
func (p *Proxy) to(serve func(e *endpoint) http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		now := p.now.Load()
		v, err := p.reachable(now, r.PathValue("view"))
		if err != nil {
			reason := "no such view"
			if r.PathValue("view") == "" { // it is refused by the owner, who says so
				reason = err.Error()
			}
			http.Error(w, reason, http.StatusNotFound)
			return
		}
		serve(now.endpoints[v.Name]).ServeHTTP(w, r)
	}
}

// Handler is everything that is served over HTTP. It is asked for once. Whoever serves it
// at an address that other machines reach asks MayListen first.
func (p *Proxy) Handler() http.Handler {
	mux := http.NewServeMux()
	enter := func(pattern string, target func(*http.Request) inbound.Target, next http.Handler) {
		mux.Handle(pattern, p.desk.entrance.Enter(next, target))
	}
	inPath := func(r *http.Request) inbound.Target { return inbound.Target{View: r.PathValue("view")} }
	inQuery := func(r *http.Request) inbound.Target { return inbound.Target{View: r.URL.Query().Get("view")} }
	bySSE := func(*http.Request) inbound.Target { return inbound.Target{SSE: true} }
	enter("/sse", bySSE, p.to(func(e *endpoint) http.Handler { return http.HandlerFunc(e.sse.Events) }))
	for pattern, serve := range p.sessionPaths() {
		target := inPath
		if pattern == messagePattern {
			target = bySSE
		}
		enter(pattern, target, p.to(serve))
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /readyz", p.desk.entrance.Know(http.HandlerFunc(p.ready), inPath))
	for _, pattern := range inbound.MetadataPatterns {
		mux.HandleFunc(pattern, p.desk.entrance.Metadata)
	}
	mux.Handle(callbackPath, p.desk.connected.Counted(p.logins, refuse))
	for _, pattern := range page.Patterns {
		mux.Handle(pattern, p.desk.connected.Counted(p.desk.page(), refuse))
	}
	api := p.api()
	for _, pattern := range web.Patterns {
		target := inQuery
		if pattern != web.Path && p.only == "" {
			target = func(*http.Request) inbound.Target { return inbound.Target{Any: true} }
		}
		enter(pattern, target, api)
	}
	return p.desk.connected.Guard(p.traces.Around(mux), transport.Names{Hosts: p.hosts(), Origins: p.first.Origins, Page: page.Path}, refuse)
}

// hosts are the names by which clients reach the proxy, beside those of this machine.
func (p *Proxy) hosts() []string {
	hosts := p.namedHosts()
	if host, _, err := net.SplitHostPort(p.first.Listen); err == nil && host != "" {
		hosts = append(hosts, strings.ToLower(host))
	}
	return hosts
}

// namedHosts are the hosts that the owner has written for clients to use.
func (p *Proxy) namedHosts() []string {
	hosts := slices.Clone(p.first.Hosts)
	if u, err := url.Parse(p.first.Auth.Resource); err == nil && u.Host != "" {
		hosts = append(hosts, strings.ToLower(u.Host))
	}
	return hosts
}

// api is the REST API.
func (p *Proxy) api() http.Handler {
	return p.ifREST(p.desk.connected.Counted(p.withSession(web.Handler(rest{p}, p.version, p.log)), refuse))
}

// ifREST is next as long as the configuration has the REST API served.
func (p *Proxy) ifREST(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.now.Load().Config.REST {
			http.NotFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ready answers 200 once there is something to find, or no server left to wait for.
// Its status is degraded while every server of the view has failed, and while the store
// does not answer. Both stay 200: another replica has the same servers and store, and this
// one still answers what it knows. It is draining once a replica was told to stop.
// Strangers are told the status alone.
func (p *Proxy) ready(w http.ResponseWriter, r *http.Request) {
	tools, h := p.Tools(), p.health()
	w.Header().Set("Content-Type", "application/json")
	draining := p.draining.Load()
	if tools == 0 && h.Pending > 0 || draining {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	status := "ready"
	away := p.store.Trouble()
	switch {
	case draining:
		status = "draining"
	case tools == 0 && h.Pending > 0:
		status = "starting"
	case away != nil || h.Failed > 0 && h.Ready+h.Pending == 0:
		status = "degraded"
	}
	told := map[string]any{"status": status}
	if !p.desk.entrance.Strangers(r) {
		told["tools"], told["servers_ready"], told["servers_pending"], told["servers_failed"] = tools, h.Ready, h.Pending, h.Failed
		if away != nil {
			told["store"] = away.Brief()
		}
	}
	_ = json.NewEncoder(w).Encode(told)
}

// withSession has the session that a request of the REST API names here, if it is another replica's.
func (p *Proxy) withSession(api http.Handler) http.Handler {
	if p.desk.sessions == nil {
		return api
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(mcp.HeaderSessionID)
		now := p.now.Load()
		if v, err := p.viewIn(now, r.URL.Query().Get("view")); err == nil && id != "" && identity.NameOf(r.Context()) == "" {
			if e := now.endpoints[v.Name]; !e.live.Knows(id) {
				_ = e.http.Take(r.Context(), id) // the API says that it does not know the session
			}
		}
		api.ServeHTTP(w, r)
	})
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

// lookAway is the part of the time to drain in which load balancers notice that this replica is about to end, as
// /readyz says. Requests that come meanwhile are answered.
const lookAway = 5

// leave waits until load balancers have looked away, and returns what is left of the time to drain.
func (p *Proxy) leave(drain time.Duration) (left time.Duration) {
	if p.desk.sessions == nil {
		return drain
	}
	p.draining.Store(true)
	p.log.Info("this replica is about to end: its sessions go on at others", "within", drain)
	time.Sleep(drain / lookAway)
	return drain - drain/lookAway
}
