package proxy

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"toolfinch/configs"
	"toolfinch/proxy/web"
	"toolfinch/register/transport"
)

// connections counts the HTTP connections of clients. The HTTP server reports their states to told.
type connections struct {
	mu     sync.Mutex // guards the fields below; held for look-ups only
	states map[net.Conn]http.ConnState
	idled  int64         // connections that ended while idle
	limit  time.Duration // how long a connection may be idle; 0 before ServeHTTP
}

// told is an http.Server's ConnState.
func (c *connections) told(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateClosed, http.StateHijacked:
		if c.states[conn] == http.StateIdle {
			c.idled++
		}
		delete(c.states, conn)
	default:
		c.states[conn] = state
	}
}

// limits sets how long a connection may be idle.
func (c *connections) limits(idle time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit = idle
}

// limitsOf returns the limits of clients over HTTP.
func limitsOf(config *configs.Config) transport.Limits {
	l := config.HTTP
	return transport.Limits{
		Sessions: int64(config.MaxSessions), SessionIdle: config.SessionTimeout,
		PrincipalSessions: int64(l.PrincipalSessions), AddressSessions: int64(l.AddressSessions), PrincipalStreams: int64(l.PrincipalStreams),
		MessageBytes: int64(l.Body), HeaderBytes: int64(l.Headers), BodyTime: l.BodyTime,
	}
}

// refuse answers a request with an error: as JSON on the paths of the REST API, else as text.
func refuse(w http.ResponseWriter, r *http.Request, status int, reason string) {
	if slices.ContainsFunc(web.Patterns, func(pattern string) bool {
		return r.URL.Path == pattern || strings.HasSuffix(pattern, "/") && strings.HasPrefix(r.URL.Path, pattern)
	}) {
		web.Refuse(w, status, reason)
		return
	}
	http.Error(w, reason, status)
}
