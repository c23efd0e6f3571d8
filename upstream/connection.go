package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/leeway"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/upstream/conn"
)

// connection is one connection of a server and what is known of it alone. It is
// used until it fails once, then another is dialled.
type connection struct {
	*conn.Conn
	server *server
	main   bool // notifications of changed lists count
	login  bool // there was a login when it was made, or by then
	log    *slog.Logger

	calls     calls
	asks      asks
	users     users
	roots     roots
	level     toldLevel
	listening listening

	mu        sync.Mutex // guards what follows
	relisted  time.Time  // when a stream's end led to a new list
	relisting bool       // it is about to
}

func newConnection(l *connector, link *conn.Conn) *connection {
	c := &connection{Conn: link, server: l.server, main: l.main, log: l.server.log}
	c.calls.conn, c.calls.byID, c.calls.shared = link, map[int64]*call{}, l.server.settings.Isolate == IsolateNever
	c.asks.over, c.asks.cancel = c, map[string]context.CancelCauseFunc{}
	c.roots.over = c
	c.listening.over, c.listening.changed = c, make(chan struct{}, 1)
	if l.owner != "" {
		c.users.user, c.users.count = user{key: l.owner, session: true}, oneUser
	}
	return c
}

// dial makes a connection. ctx bounds the dialling alone.
func dial(ctx context.Context, l *connector) (*connection, error) {
	s := l.server.settings
	era, _ := l.server.health.met()
	var around func(http.RoundTripper) http.RoundTripper
	if l.server.login != nil {
		around = func(base http.RoundTripper) http.RoundTripper { return l.server.login.Transport(base, l.principal) }
	}
	var before *conn.Process
	if l.main {
		before = l.server.process.Load()
	}
	had := l.hasLogin(ctx)
	var c *connection
	_, err := conn.Dial(ctx, conn.Options{
		Name: s.Name, Traces: l.server.traces,
		Command: s.Command, Args: s.Args, Env: s.Env, InheritEnv: s.InheritEnv, Cwd: s.Cwd, Sandbox: s.Sandbox.WithOwnPort(l.server.ownPort), Program: l.server.program, URL: s.URL, Headers: s.Headers, Around: around, Transport: s.Transport,
		ConnectTimeout: s.ConnectTimeout, Known: era, Legacy: l.legacy || s.Protocol == ProtocolLegacy,
		Capabilities: l.declare, ClientVersion: l.server.version, Log: l.server.log, Started: l.started, Again: l.server.health.get().Err != nil, Before: before,
	}, func(link *conn.Conn) conn.Handler {
		c = newConnection(l, link)
		return c
	})
	if err != nil {
		return nil, err
	}
	c.login = had || l.hasLogin(ctx)
	return c, nil
}

// hasLogin reports whether there is a login that connections are made with.
func (l *connector) hasLogin(ctx context.Context) bool {
	return l.server.login != nil && l.server.login.Has(ctx, l.principal)
}

// finishWithin is how long calls over what was removed or replaced may take to end
// before their connections are closed.
const finishWithin = 10 * time.Second

// finish ends the connection once no call is in flight over it, or after
// finishWithin, or with the server.
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

// relistAfter is the shortest time between two lists that are due to a stream
// of notifications having ended: some servers end theirs all the time.
const relistAfter = 30 * time.Second

// StreamEnded asks for new lists, at once or when it may: the server may be gone, or they may
// have changed while nobody listened.
func (c *connection) StreamEnded() {
	if !c.main {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.relisting {
		return
	}
	c.relisting = true
	wait := time.Until(c.relisted.Add(relistAfter))
	c.Go(func() {
		again := wait <= 0 || c.Pause(c.Life, wait)
		c.mu.Lock()
		c.relisting, c.relisted = false, time.Now()
		c.mu.Unlock()
		if again && !c.Dead() {
			c.server.lists.changed(tool.Kinds...)
		}
	})
}

// maxNotice bounds a notification, in bytes: many may wait for many clients.
const maxNotice = 1 << 20

// listChanged are the notifications after which lists are asked for again.
var listChanged = map[string][]tool.Kind{
	"notifications/tools/list_changed":     {tool.KindTool},
	"notifications/prompts/list_changed":   {tool.KindPrompt},
	"notifications/resources/list_changed": {tool.KindResource, tool.KindTemplate},
}

// Notified gets what the server notifies.
func (c *connection) Notified(stream int64, method string, params json.RawMessage) {
	s := c.server
	if kinds := listChanged[method]; kinds != nil {
		if c.main {
			s.lists.changed(kinds...)
		}
		return
	}
	if len(params) > maxNotice {
		level := slog.LevelDebug
		if s.dropped.Add(1) == 1 { // a server can send many
			level = slog.LevelWarn
		}
		s.log.Log(context.Background(), level, "a notification is too long and was dropped", "method", method, "bytes", len(params))
		return
	}
	if strings.HasPrefix(method, notificationsTasks) {
		c.taskNotified(stream, method, params)
		return
	}
	switch method {
	case "notifications/progress":
		c.progressed(stream, method, params)
	case "notifications/message":
		c.logged(stream, method, s.mask.json(params))
	case "notifications/resources/updated":
		if s.events.Updated != nil {
			s.events.Updated(s.settings.Name, rawjson.Text(rawjson.Member(params, "uri")), ownSubscription(params))
		}
	case "notifications/elicitation/complete":
		c.completed(method, params)
	case "notifications/cancelled":
		c.asks.withdraw(rawjson.Member(params, "requestId"))
	case "notifications/subscriptions/acknowledged":
		c.listening.acknowledged(params)
	default:
		for _, of := range c.calls.about(stream) { // whatever it is, it came with a call
			c.calls.pass(stream, of, method, params)
		}
	}
}

// progressed passes progress on to the call that it is about.
func (c *connection) progressed(stream int64, method string, params json.RawMessage) {
	token := strings.Trim(string(rawjson.Member(params, "progressToken")), `"`)
	id, _ := strconv.ParseInt(strings.TrimPrefix(token, tokenPrefix), 10, 64)
	of := c.calls.of(id)
	if of == nil {
		return
	}
	of.clock.renew()
	if of.token == nil {
		return
	}
	if own, err := rawjson.Set(params, "progressToken", of.token); err == nil {
		c.calls.pass(stream, of, method, own)
	}
}

// logged passes a log message on to the calls that it may be about, or where there
// is none, to whoever listens.
func (c *connection) logged(stream int64, method string, params json.RawMessage) {
	s := c.server
	targets, asked := c.calls.about(stream), c.level.current() != ""
	for _, of := range targets {
		if c.wantsLog(of, asked, params) {
			c.calls.pass(stream, of, method, params)
		}
	}
	if len(targets) > 0 {
		return
	}
	if s.events.Log != nil {
		s.events.Log(s.settings.Name, c.users.session(), asked, params)
	}
	s.log.Debug("log message of the upstream", "params", string(bytes.TrimSpace(params[:min(len(params), 500)])))
}

// completed passes on that a URL was dealt with, to the client that has it.
func (c *connection) completed(method string, params json.RawMessage) {
	key := c.server.questions.opened.client(params)
	if key == "" {
		return
	}
	if of := c.calls.latest(key); of != nil {
		c.calls.pass(0, of, method, params)
	} else if c.server.events.Notify != nil {
		c.server.events.Notify(key, method, params)
	}
}

// ownSubscription takes the ID of our subscription out of a notification: it
// means nothing to anybody else.
func ownSubscription(params json.RawMessage) json.RawMessage {
	meta := rawjson.Member(params, "_meta")
	if rawjson.Member(meta, mcp.MetaKeySubscriptionID) == nil {
		return params
	}
	rest := without(meta, mcp.MetaKeySubscriptionID)
	if rawjson.IsEmpty(rest) {
		return without(params, "_meta")
	}
	if out, err := rawjson.Set(params, "_meta", rest); err == nil {
		return out
	}
	return params
}

// own sends a request of our own: members, and the _meta that the protocol wants.
func (c *connection) own(ctx context.Context, method string, members *rawjson.Object) (json.RawMessage, error) {
	params := c.ownParams(members)
	return c.Request(ctx, method, params, c.header(method, params, nil, ""))
}

func (c *connection) ownParams(members *rawjson.Object) json.RawMessage {
	if c.Era == EraModern {
		members.Add("_meta", c.meta(nil, "", "", []byte(capabilities)))
	}
	return members.JSON()
}

// header returns the HTTP headers that a 2026-07-28 server wants with a request
// about what def defines, or about a task; nil and "" for neither.
func (c *connection) header(method string, params json.RawMessage, def *tool.Def, task string) http.Header {
	if c.Era != EraModern || c.Transport == TransportStdio {
		return nil
	}
	header := http.Header{}
	header.Set(mcp.HeaderMethod, method)
	name := task
	if def != nil {
		name = def.ID.Name
	}
	if encoded, ok := mcp.EncodeHeaderValue(name); ok && name != "" {
		header.Set(mcp.HeaderName, encoded)
	}
	// Checked again: the definition may be one that the store remembered.
	if typed := annotated(def); typed != nil && mcp.ValidateParamHeaderAnnotations(typed) == nil {
		for name, value := range mcp.GenerateParamHeaders(typed, params) {
			header.Set(name, value)
		}
	}
	return header
}
