package upstream

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/upstream/conn"
)

// purpose says which clients a connection is for, and how it is made.
type purpose struct {
	main      bool            // the connection that Watch keeps and lists over
	legacy    bool            // it is made by handshake, even if the server speaks 2026-07-28
	common    bool            // for all legacy clients, beside a main connection of 2026-07-28
	declare   json.RawMessage // client capabilities that the server is told
	owner     string          // key of its only client; "" for several
	principal string          // principal whose login it uses; "" for the login of this process
}

// connection is one connection of a server, with the state that belongs to it alone. It is
// used until it fails once; then a new one is made.
type connection struct {
	link
	purpose
	server   *server
	hasLogin bool // a login existed when the connection was made
	log      *slog.Logger

	calls     calls
	requests  serverRequests
	users     users
	roots     roots
	level     toldLevel
	relisting relisting
	listening listening
}

func newConnection(s *server, p purpose, over *conn.Conn) *connection {
	c := &connection{link: link{over, s.settings.capabilities()}, purpose: p, server: s, log: s.log}
	c.calls.conn, c.calls.byID, c.calls.shared = over, map[int64]*call{}, s.settings.Isolate == IsolateNever
	if p.owner != "" {
		c.users.user, c.users.count = user{key: p.owner, session: true}, oneUser
	}
	c.roots.conn, c.roots.calls, c.roots.questions, c.roots.log = over, &c.calls, s.questions, s.log
	r := &c.requests
	r.conn, r.calls, r.users, r.roots, r.questions, r.log = over, &c.calls, &c.users, &c.roots, s.questions, s.log
	r.cancel, r.asked = map[string]context.CancelCauseFunc{}, make(chan struct{}, maxAsked)
	c.level.conn, c.level.levels, c.level.log = over, &s.levels, s.log
	c.relisting.conn = over
	if p.main {
		c.relisting.lists = s.lists
	}
	l := &c.listening
	l.over, l.subscriptions, l.lists, l.relisting, l.limits, l.log = c.link, &s.subscriptions, s.lists, &c.relisting, &s.limits, s.log
	l.changed = make(chan struct{}, 1)
	return c
}

// dial makes a connection. ctx bounds the dialling alone; it ends after within.
func dial(ctx context.Context, s *server, p purpose, within time.Duration) (*connection, error) {
	o := s.settings
	era, _ := s.health.met()
	var around func(http.RoundTripper) http.RoundTripper
	if s.login != nil {
		around = func(base http.RoundTripper) http.RoundTripper { return s.login.Transport(base, p.principal) }
	}
	var before *conn.Process
	if p.main {
		before = s.process.Load()
	}
	had := s.hasLogin(ctx, p.principal)
	var c *connection
	_, err := conn.Dial(ctx, conn.Options{
		Name: o.Name, Traces: s.env.traces,
		Command: o.Command, Args: o.Args, Env: o.Env, InheritEnv: o.InheritEnv, Cwd: o.Cwd, Sandbox: o.Sandbox.WithOwnPort(int(s.env.ownPort.Load())), Program: s.program, URL: o.URL, Headers: o.Headers, TLS: o.TLS, Around: around, Transport: o.Transport,
		ConnectTimeout: within, Known: era, Legacy: p.legacy || o.Protocol == ProtocolLegacy,
		Capabilities: p.declare, ClientVersion: s.env.version, Log: s.log, Again: s.health.get().Err != nil, Before: before,
		Started: func(process *conn.Process) { s.started(p.main, process) },
	}, func(over *conn.Conn) conn.Handler {
		c = newConnection(s, p, over)
		return c
	})
	if err != nil {
		return nil, err
	}
	c.hasLogin = had || s.hasLogin(ctx, p.principal)
	return c, nil
}

// finishWithin bounds the time that calls get to end before a replaced or removed
// connection is closed.
const finishWithin = 10 * time.Second

// finish closes the connection once no call is in flight over it, or after finishWithin, or
// with the server.
func (c *connection) finish(why error) {
	c.Retire()
	within := leeway.Of(finishWithin)
	patience := time.NewTimer(within)
	defer patience.Stop()
	for waiting := true; waiting; {
		n, ended := c.calls.count()
		if n == 0 {
			break
		}
		select {
		case <-ended:
		case <-patience.C:
			c.log.Warn("calls did not end in time on a connection that is being replaced", "waited", within)
			waiting = false
		case <-c.Life.Done():
			waiting = false
		case <-c.server.life.Done():
			waiting = false
		}
	}
	c.Fail(why)
	c.Close()
}

// Asked is called for each request of the server.
func (c *connection) Asked(stream int64, id json.RawMessage, method string, params json.RawMessage) {
	c.requests.take(stream, id, method, params)
}

// StreamEnded is called when a stream of notifications has ended.
func (c *connection) StreamEnded() { c.relisting.streamEnded() }
