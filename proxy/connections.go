package proxy

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"toolfinch/configs"
	"toolfinch/internal/limit"
	"toolfinch/proxy/web"
	"toolfinch/register/transport"
)

// connections counts the HTTP connections of clients, and bounds them. The HTTP server reports their states to told.
type connections struct {
	bound *limit.Limit

	mu    sync.Mutex // guards the fields below; held for look-ups only
	open  map[net.Conn]*connection
	heard int64         // state changes so far
	idled int64         // connections that ended while idle
	limit time.Duration // how long a connection may be idle; 0 before ServeHTTP
}

type connection struct {
	state http.ConnState
	since int64 // connections.heard at the last change of state
}

// maxConnections bounds the connections of clients where the process may have many descriptors.
const maxConnections = 20_000

func newConnections() *connections {
	c := &connections{open: map[net.Conn]*connection{}}
	c.bound = limit.Measured("connections", connectionsOf(descriptors()), "connections are busy", "close some", c.count)
	return c
}

// connectionsOf returns how many connections clients may have beside the files and pipes of servers.
func connectionsOf(descriptors int64) int64 {
	return min(max(descriptors-descriptors/4-64, 16), maxConnections)
}

func (c *connections) count() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64(len(c.open))
}

// told is an http.Server's ConnState. Past the bound, the connection that has been silent for longest is closed; the new
// one itself, if none is silent.
func (c *connections) told(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard++
	known := c.open[conn]
	switch {
	case state == http.StateClosed || state == http.StateHijacked:
		if known != nil && known.state == http.StateIdle {
			c.idled++
		}
		delete(c.open, conn)
		return
	case known != nil:
		known.state, known.since = state, c.heard
		return
	case int64(len(c.open)) >= c.bound.Max():
		_ = c.bound.Refuse() // counted
		silent := c.silent()
		if silent == nil {
			_ = conn.Close()
			return
		}
		_ = silent.Close()
		delete(c.open, silent)
	}
	c.open[conn] = &connection{state, c.heard}
}

// silent returns the connection without a request that has been silent for longest; nil for none. The caller holds the lock.
func (c *connections) silent() (longest net.Conn) {
	since := c.heard
	for conn, is := range c.open {
		if is.state != http.StateActive && is.since < since {
			longest, since = conn, is.since
		}
	}
	return longest
}

// limits sets how long a connection may be idle.
func (c *connections) limits(idle time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit = idle
}

// limitsOf returns the limits of clients over HTTP. At most half of the connections may be event streams.
func limitsOf(config *configs.Config, connections int64) transport.Limits {
	l := config.HTTP
	return transport.Limits{
		Sessions: int64(config.MaxSessions), SessionIdle: config.SessionTimeout,
		PrincipalSessions: int64(l.PrincipalSessions), AddressSessions: int64(l.AddressSessions), PrincipalStreams: int64(l.PrincipalStreams),
		EventStreams: min(connections/2, transport.DefaultEventStreams), MessageBytes: int64(l.Body), HeaderBytes: int64(l.Headers), BodyTime: l.BodyTime,
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
