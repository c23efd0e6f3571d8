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

// connections counts those of clients over HTTP, which an HTTP server tells of with told.
type connections struct {
	mu     sync.Mutex // guards what follows; held for look-ups only
	states map[net.Conn]http.ConnState
	idled  int64         // that ended while nothing was asked over them
	limit  time.Duration // how long nothing may be asked; 0 before one is served
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

// limits notes how long nothing may be asked over a connection.
func (c *connections) limits(idle time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit = idle
}

// limitsOf are those of clients.
func limitsOf(config *configs.Config) transport.Limits {
	l := config.HTTP
	return transport.Limits{
		Sessions: int64(config.MaxSessions), SessionIdle: config.SessionTimeout,
		PrincipalSessions: int64(l.PrincipalSessions), AddressSessions: int64(l.AddressSessions), PrincipalStreams: int64(l.PrincipalStreams),
		MessageBytes: int64(l.Body), HeaderBytes: int64(l.Headers), BodyTime: l.BodyTime,
	}
}

// refuse answers a request with an error in the form of what it asked for.
func refuse(w http.ResponseWriter, r *http.Request, status int, reason string) {
	if slices.ContainsFunc(web.Patterns, func(pattern string) bool {
		return r.URL.Path == pattern || strings.HasSuffix(pattern, "/") && strings.HasPrefix(r.URL.Path, pattern)
	}) {
		web.Refuse(w, status, reason)
		return
	}
	http.Error(w, reason, status)
}
