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
	return p.ServeClient(ctx, "", in, out)
}

// ServeClient is ServeStdio for the named view; "" is the root. It may be called for several clients at once.
func (p *Proxy) ServeClient(ctx context.Context, view string, in io.Reader, out io.Writer) error {
	now := p.now.Load()
	v, err := p.reachable(now, view)
	if err != nil {
		return err
	}
	return transport.Stdio(p.traces.On(ctx), now.endpoints[v.Name].live, p.desk.connected, in, out, p.log)
}

// ServeHTTP serves clients on listener until ctx ends: streamable HTTP at /mcp and, for each view, at /mcp/{view},
// HTTP+SSE at /sse, the REST API at /api, the page at /, and /healthz and /readyz. When ctx ends, calls in flight get
// http_limits.drain to finish.
func (p *Proxy) ServeHTTP(ctx context.Context, listener net.Listener) error {
	if err := p.MayListen(listener.Addr()); err != nil {
		return err
	}
	server := &http.Server{
		Handler:           p.lastly(p.Handler()),
		ConnState:         p.connections.told,
		ErrorLog:          slog.NewLogLogger(p.log.Handler(), slog.LevelDebug), // failed connections matter only for debugging
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       cmp.Or(p.first.HTTP.IdleTime, configs.DefaultHTTPLimits.IdleTime),
		MaxHeaderBytes:    2 * cmp.Or(p.first.HTTP.Headers, configs.DefaultHTTPLimits.Headers), // twice the limit, so that Guard can answer headers that are slightly too long
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

// ServePage serves the page, and nothing else, on listener until ctx ends.
func (p *Proxy) ServePage(ctx context.Context, listener net.Listener) error {
	if at, ok := listener.Addr().(*net.TCPAddr); ok {
		p.pool.SetOwnPort(at.Port)
	}
	mux := http.NewServeMux()
	for _, pattern := range page.Patterns {
		mux.Handle(pattern, p.desk.connected.Counted(p.servedPage().Alone(), refuse))
	}
	server := &http.Server{
		Handler:  p.desk.connected.Guard(mux, transport.Names{Pages: []string{page.Path}}, refuse),
		ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelDebug), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: configs.DefaultHTTPLimits.IdleTime,
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	err := server.Serve(listener)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// cut ends the running requests. Requests of MCP get a moment to answer with an error.
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

// MayListen returns an error if clients may not be served at an address. An address that other machines reach needs a
// configuration that says who may enter.
func (p *Proxy) MayListen(at net.Addr) error { return p.first.Auth.CheckListener(at) }

const messagePattern = "POST /message"

// sessionPaths returns the handler of a view's endpoint for each path of MCP clients.
func (p *Proxy) sessionPaths() map[string]func(e *endpoint) http.Handler {
	streamable := func(e *endpoint) http.Handler { return e.http }
	return map[string]func(e *endpoint) http.Handler{
		"/mcp": streamable, "/mcp/{$}": streamable, "/mcp/{view}": streamable, "/mcp/{view}/{$}": streamable, messagePattern: func(e *endpoint) http.Handler { return http.HandlerFunc(e.sse.Messages) },
	}
}

// to passes a request to the view that the request names.
func (p *Proxy) to(serve func(e *endpoint) http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		now := p.now.Load()
		v, err := p.reachable(now, r.PathValue("view"))
		if err != nil {
			reason := "no such view"
			if r.PathValue("view") == "" { // the owner has configured a root without a view
				reason = err.Error()
			}
			http.Error(w, reason, http.StatusNotFound)
			return
		}
		serve(now.endpoints[v.Name]).ServeHTTP(w, r)
	}
}

// Handler returns the handler of all HTTP requests. Call it once. Before serving it at an address that other machines
// reach, call MayListen.
func (p *Proxy) Handler() http.Handler {
	mux := http.NewServeMux()
	enter := func(pattern string, target func(*http.Request) inbound.Target, next http.Handler) {
		mux.Handle(pattern, p.desk.entrance.Enter(next, target))
	}
	inPath := func(r *http.Request) inbound.Target { return inbound.Target{View: r.PathValue("view")} }
	inQuery := func(r *http.Request) inbound.Target { return inbound.Target{View: r.URL.Query().Get("view")} }
	bySSE := func(*http.Request) inbound.Target { return inbound.Target{SSE: true} }
	for _, pattern := range []string{"/sse", "/sse/{$}"} {
		enter(pattern, bySSE, p.to(func(e *endpoint) http.Handler { return http.HandlerFunc(e.sse.Events) }))
	}
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
		mux.Handle(pattern, p.desk.connected.Counted(p.servedPage(), refuse))
	}
	api := p.api()
	for _, pattern := range web.Patterns {
		target := inQuery
		if pattern != web.Path && p.only == "" {
			target = func(*http.Request) inbound.Target { return inbound.Target{Any: true} }
		}
		enter(pattern, target, api)
	}
	return p.desk.connected.Guard(p.traces.Around(mux), transport.Names{Hosts: p.hosts(), Origins: p.first.Origins, Pages: []string{page.Path, callbackPath}}, refuse)
}

// hosts returns the configured host names by which clients reach the proxy, in addition to names of this machine.
func (p *Proxy) hosts() []string {
	hosts := p.namedHosts()
	if host, _, err := net.SplitHostPort(p.first.Listen); err == nil && host != "" {
		hosts = append(hosts, strings.ToLower(host))
	}
	return hosts
}

// api returns the handler of the REST API.
func (p *Proxy) api() http.Handler {
	return p.ifREST(p.desk.connected.Counted(p.withSession(web.Handler(rest{p}, p.version, p.log)), refuse))
}

// ifREST calls next if the configuration enables the REST API.
func (p *Proxy) ifREST(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.now.Load().Config.REST {
			http.NotFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ready answers 200 once a tool can be found, or no server is pending. The status is "degraded" while every server of
// the view has failed, and while the store does not answer. A degraded replica still answers 200: it serves the tools
// it knows, and other replicas depend on the same servers and store. The status is "draining", with 503, once the
// replica was told to stop. Strangers get only the status.
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

// withSession takes over the session that a request of the REST API names, if another replica has it.
func (p *Proxy) withSession(api http.Handler) http.Handler {
	if p.desk.sessions == nil {
		return api
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(mcp.HeaderSessionID)
		now := p.now.Load()
		if v, err := p.viewIn(now, r.URL.Query().Get("view")); err == nil && id != "" && identity.NameOf(r.Context()) == "" {
			if e := now.endpoints[v.Name]; !e.live.Knows(id) {
				_ = e.http.Take(r.Context(), id) // after an error the API answers that the session is unknown
			}
		}
		api.ServeHTTP(w, r)
	})
}

// lastly closes each connection after its next answer while this replica drains. Idle connections stay open until
// load balancers have looked away, because a request may be on its way over one of them.
func (p *Proxy) lastly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// lookAway divides the time to drain: in the first fifth, requests are still answered while load balancers read from
// /readyz that this replica ends.
const lookAway = 5

// leave waits until load balancers have looked away, and returns the rest of the time to drain.
func (p *Proxy) leave(drain time.Duration) (left time.Duration) {
	if p.desk.sessions == nil {
		return drain
	}
	p.draining.Store(true)
	p.log.Info("this replica is about to end: its sessions go on at others", "within", drain)
	time.Sleep(drain / lookAway)
	return drain - drain/lookAway
}
