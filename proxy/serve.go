package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"toolfinch/web"
)

// drain is how long calls in flight may go on at shutdown.
const drain = 10 * time.Second

// ServeStdio serves one client on in and out until it closes in.
func (p *Proxy) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	v, err := p.View(p.Only)
	if err != nil {
		return err
	}
	return v.live.ServeStdio(ctx, in, out)
}

// ServeHTTP serves clients on listener until ctx ends: streamable HTTP at /mcp,
// and of each view at /mcp/{view}, HTTP+SSE at /sse, the REST API at /api, /healthz
// and /readyz. Calls in flight get 10 s then.
func (p *Proxy) ServeHTTP(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler:           p.Handler(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	for _, v := range p.views.Load().all {
		v.endStreams(ctx)
	}
	err := server.Shutdown(ctx)
	if err != nil {
		err = server.Close() // what still runs is cut off
	}
	if served := <-failed; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// Handler is everything that is served over HTTP. It is asked for once.
func (p *Proxy) Handler() http.Handler {
	mux := http.NewServeMux()
	to := func(serve func(v *View) http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			v, err := p.served(r.PathValue("view"))
			if err != nil {
				http.Error(w, "no such view", http.StatusNotFound)
				return
			}
			serve(v).ServeHTTP(w, r)
		}
	}
	mux.Handle("/mcp", to(func(v *View) http.Handler { return v.http() }))
	mux.Handle("/mcp/{view}", to(func(v *View) http.Handler { return v.http() }))
	mux.Handle("/sse", to(func(v *View) http.Handler { return v.sse().events }))
	mux.Handle("POST /message", to(func(v *View) http.Handler { return v.sse().messages }))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", p.ready)
	rest := p.ifREST(web.Handler(house{p}, p.version, p.log))
	for _, pattern := range web.Patterns {
		mux.Handle(pattern, rest)
	}
	return guard(mux, p.config.Load().Origins)
}

// ifREST is next as long as the configuration has the REST API served.
func (p *Proxy) ifREST(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.config.Load().REST {
			http.NotFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ready answers 200 once there is something to find, or no server left to wait for.
func (p *Proxy) ready(w http.ResponseWriter, _ *http.Request) {
	v := p.main()
	h := v.health()
	w.Header().Set("Content-Type", "application/json")
	if v.catalog.Len() == 0 && h.Pending > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(map[string]int{
		"tools": v.catalog.Len(), "servers_ready": h.Ready, "servers_pending": h.Pending, "servers_failed": h.Failed,
	})
}

// guard keeps web pages out: a browser that was led here by a page, through a
// rebound DNS name or a cross-site request, shows it in Host or Origin.
func guard(next http.Handler, origins []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && isLoopback(local.String()) && !isLoopback(r.Host) {
			http.Error(w, "the Host header names no loopback address", http.StatusForbidden)
			return
		}
		if origin := r.Header.Get("Origin"); origin != "" && !slices.Contains(origins, origin) && !isLoopbackOrigin(origin) {
			http.Error(w, "this Origin is not allowed; see allowed_origins", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func isLoopbackOrigin(origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && isLoopback(u.Host)
}

// isLoopback reports whether a host, with or without a port, is this machine.
func isLoopback(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback()
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}
