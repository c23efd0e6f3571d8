package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"toolfinch/tool"
	"toolfinch/upstream/conn"
	"toolfinch/upstream/login"
)

// delivery is one request of a call on its way to a server and back.
type delivery struct {
	request
	server *server
	call   *call
}

// errGaveWay is why calls end that keep others from the server.
var errGaveWay = errors.New("the client has not answered what the server asked, and others wait for the server; call again")

// notRepeated goes with the error of a call that was sent over a connection which
// was lost before the answer.
const notRepeated = "it may have been carried out, and is not repeated because the tool is annotated neither as idempotent nor as read-only"

// begin begins a call of a client that sends r. finish ends it.
func (s *server) begin(ctx context.Context, of *tool.Call, r request) *delivery {
	return &delivery{request: r, server: s, call: begin(ctx, of, s.limits.Load())}
}

// finish ends the call, and says which notifications were dropped.
func (d *delivery) finish() {
	d.call.end()
	if dropped := d.call.notices.dropped; dropped > 0 {
		d.server.dropped.Add(int64(dropped))
		d.server.log.Warn("notifications of a call were dropped: its client reads too slowly", "name", d.call.Name, "dropped", dropped)
	}
}

// fail is an error for the caller.
func (d *delivery) fail(err error) error {
	return &Error{Server: d.server.settings.Name, Op: d.op, Err: d.call.ended(err)}
}

// send sends the request, over new connections and again if need be and
// allowed, and returns the result and the era of the server that gave it. Errors
// are *tool.RPCError or *Error.
func (d *delivery) send() (json.RawMessage, Era, error) {
	s := d.server
	var sentAgain, repeated bool // after what was not sent, and what may have been
	for {
		c, result, err := d.attempt()
		if err == nil {
			s.health.exchanged(nil)
			return result, c.Era, nil
		}
		if needed, ok := errors.AsType[*login.Needed](err); ok {
			return nil, EraLegacy, d.needsLogin(c, needed) // whose words for a page it has
		}
		if c == nil {
			return nil, EraUnknown, d.fail(fmt.Errorf("connect: %w", conn.Mark(conn.Plain(err), ErrNotConnected)))
		}
		if errors.Is(context.Cause(d.call.ctx), errGaveWay) { // it says nothing of the server
			return nil, c.Era, d.fail(errGaveWay)
		}
		if d.call.givenUp(err) { // nor does this
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
		if err = conn.Plain(err); !errors.Is(err, errReplaced) { // nor does that
			s.health.exchanged(err)
		}
		if again && !safe && d.def != nil {
			err = fmt.Errorf("%w; %s", err, notRepeated)
		}
		return nil, c.Era, d.fail(err)
	}
}

// failed gives the connection up when err says that it is of no more use.
func (c *connection) failed(err error) bool {
	lost := conn.FailureOf(err).Lost
	if lost {
		c.Fail(conn.Plain(err))
	}
	return lost
}

// attempt sends the request once. The connection is nil when there was none.
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
	c.level.raise(c, client)
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
	return c, result, err
}

// enter puts the call among those of a connection. Another client's roots may have
// become known to the server since the connection was chosen: then another is.
func (d *delivery) enter() (*use, *conn.Reply, error) {
	for d.call.ctx.Err() == nil {
		u, err := d.server.sharing.acquire(d.call.ctx, d.call, d.request)
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
