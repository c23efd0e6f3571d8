package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/upstream/conn"
	"toolfinch/upstream/login"
)

// delivery sends the request of one call to a server until it is answered.
type delivery struct {
	request
	server  *server
	sharing *sharing
	call    *call
}

// notRepeated explains the error of a call whose connection was lost after the call was
// sent.
const notRepeated = "it may have been carried out, and is not repeated because the tool is annotated neither as idempotent nor as read-only"

// deliver begins a call that sends r. finish ends it.
func deliver(ctx context.Context, over *sharing, of *tool.Call, r request) *delivery {
	s := over.server
	return &delivery{request: r, server: s, sharing: over, call: begin(ctx, of, s.limits.Load())}
}

// finish ends the call, and logs dropped notifications.
func (d *delivery) finish() {
	d.call.end()
	if dropped := d.call.notices.dropped; dropped > 0 {
		d.server.dropped.Add(int64(dropped))
		d.server.log.Warn("notifications of a call were dropped: its client reads too slowly", "name", d.call.Name, "dropped", dropped)
	}
}

// fail returns an error for the caller.
func (d *delivery) fail(err error) error {
	return &Error{Server: d.server.settings.Name, Op: d.op, Err: d.call.ended(err)}
}

// send sends the request, and repeats it over a new connection if the first was lost and the
// request may be repeated. It returns the result and the era of the server. Errors are
// *tool.RPCError or *Error.
func (d *delivery) send() (json.RawMessage, Era, error) {
	s := d.server
	var sentAgain, repeated bool // the request was repeated: because it was not sent; although it may have been sent
	for {
		c, result, err := d.attempt()
		if err == nil {
			s.health.exchanged(nil)
			return result, c.Era, nil
		}
		if needed, ok := errors.AsType[*login.Needed](err); ok {
			return nil, EraLegacy, d.needsLogin(c, needed) // an error that opens a page has the form of the legacy era
		}
		if c == nil {
			return nil, EraUnknown, d.fail(fmt.Errorf("connect: %w", conn.Mark(conn.Plain(err), ErrNotConnected)))
		}
		if errors.Is(context.Cause(d.call.ctx), errGaveWay) { // such an error says nothing about the server's health
			return nil, c.Era, d.fail(errGaveWay)
		}
		if d.call.givenUp(err) { // a cancelled call says nothing about the server's health
			return nil, c.Era, d.fail(cmp.Or(context.Cause(d.call.caller), context.Canceled))
		}
		failure := conn.FailureOf(err)
		again := c.failed(err) || failure.Again
		safe := !failure.Sent || d.repeatable
		retried := &sentAgain
		if failure.Sent {
			retried = &repeated
		}
		if again && safe && !*retried && d.call.ctx.Err() == nil {
			*retried = true
			continue
		}
		if rpc, ok := errors.AsType[*tool.RPCError](err); ok {
			s.health.exchanged(nil)
			return nil, c.Era, rpc
		}
		if err = conn.Plain(err); !errors.Is(err, errReplaced) { // errReplaced says nothing about the server's health
			s.health.exchanged(err)
		}
		if again && !safe && d.def != nil {
			err = fmt.Errorf("%w; %s", err, notRepeated)
		}
		return nil, c.Era, d.fail(err)
	}
}

// needsLogin begins the login that the call needs, and returns the error for the caller.
func (d *delivery) needsLogin(c *connection, needed *login.Needed) error {
	if len(needed.Scopes) == 0 && d.server.principal(d.call.Call) == "" { // the shared login does not work
		d.server.health.exchanged(needed)
		if c != nil && c.main {
			c.Fail(needed) // so that the connection is made again after the login
		}
	}
	err := d.server.needsLogin(d.call, &d.request, needed)
	if rpc, ok := errors.AsType[*tool.RPCError](err); ok {
		return rpc
	}
	return d.fail(err)
}

// attempt sends the request once. The connection is nil if there was none.
func (d *delivery) attempt() (*connection, json.RawMessage, error) {
	client := d.call.Client
	u, reply, err := d.enter()
	if err != nil {
		return nil, nil, err
	}
	c, answered := u.connection, false
	defer func() { u.end(answered) }()
	defer c.Forget(reply)
	defer c.calls.remove(reply.ID)
	if d.needs != "" && !c.Has(d.needs) {
		return c, d.without, nil
	}
	c.level.raise(client)
	if u.alone {
		if err := c.roots.prepare(d.call, c.users.become(client)); err != nil {
			return c, nil, err
		}
	} else {
		c.users.add(client)
	}
	params := c.params(d.request, d.call.Call, reply.ID)
	result, err := c.Exchange(d.call.ctx, reply, d.method, params, c.header(d.method, params, d.def, d.task))
	answered = err == nil
	if rawjson.TooDeep(result) {
		return c, nil, errTooDeep
	}
	return c, result, err
}

var errTooDeep = fmt.Errorf("the answer nests deeper than %d", rawjson.MaxDepth)

// enter leases a connection and registers the call there. If the server has learned another
// owner's roots since the connection was chosen, it leases another.
func (d *delivery) enter() (*lease, *conn.Reply, error) {
	for d.call.ctx.Err() == nil {
		u, err := d.sharing.acquire(d.call.ctx, d.call, d.request)
		if err != nil {
			return nil, nil, err
		}
		reply := u.Expect()
		if u.calls.add(reply.ID, d.call) {
			return u, reply, nil
		}
		u.Forget(reply)
		u.end(false)
	}
	return nil, nil, context.Cause(d.call.ctx)
}
