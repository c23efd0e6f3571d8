package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/upstream/conn"
)

// call is one call of a client, from when it came until it is answered, however
// often it is sent to the server meanwhile.
type call struct {
	*tool.Call
	caller   context.Context // the caller's own
	token    json.RawMessage // the client's own progress token; nil when it sent none
	ctx      context.Context // of the call; its cause is why it ended
	cancel   context.CancelCauseFunc
	open     context.Context // ends when the server has answered
	answered context.CancelFunc
	clock    *clock
	notices  notices

	mu     sync.Mutex      // guards over and roots; never held over a question
	over   bool            // no question starts any more: end waits for them
	roots  json.RawMessage // what a 2026-07-28 client answered to roots/list, nil while that is not known
	asking sync.WaitGroup  // questions to the client beside the answer
}

// begin begins a call within limits, which do not count the time in which its
// client is asked something.
func begin(ctx context.Context, of *tool.Call, limits *limits) *call {
	c := &call{Call: of, caller: ctx}
	if of.Notify != nil {
		c.token = rawjson.Member(rawjson.Member(of.Params, "_meta"), "progressToken")
	}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	c.open, c.answered = context.WithCancel(c.ctx)
	c.notices.notify, c.notices.life = of.Notify, c.ctx
	c.clock = newClock(limits.call, max(limits.total, limits.call), func(limit time.Duration) {
		c.cancel(fmt.Errorf("%w: no answer within %s", ErrTimeout, limit))
	})
	return c
}

// end ends the call and what its client is being asked for it alone. It returns
// when everything that arrived before was passed on, and what is asked beside the
// answer is answered, even if it is for another call: some clients answer no
// question of a call that has been answered.
func (c *call) end() {
	c.clock.stop()
	c.answered()
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.notices.end()
	c.asking.Wait()
	c.cancel(nil)
	c.notices.work.Wait()
}

// givenUp reports whether err is that the caller has given the call up, for
// whatever cause.
func (c *call) givenUp(err error) bool {
	return errors.Is(err, context.Canceled) ||
		errors.Is(c.caller.Err(), context.Canceled) && errors.Is(err, context.Cause(c.caller))
}

// ended is err, marked as what it is when it came of the end of the caller's
// context: that may have a cause of its own.
func (c *call) ended(err error) error {
	if !errors.Is(err, context.Cause(c.caller)) {
		return err
	}
	if errors.Is(c.caller.Err(), context.DeadlineExceeded) {
		return conn.Mark(err, ErrTimeout)
	}
	return conn.Mark(err, c.caller.Err())
}

// isOpen reports whether the server has not answered the call.
func (c *call) isOpen() bool { return c.open.Err() == nil }

// ask asks the client beside the answer of the call. done is false when the call
// could not see the question to its end.
func (c *call) ask(ctx context.Context, method string, params json.RawMessage) (result json.RawMessage, done bool, err error) {
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return nil, false, context.Canceled
	}
	c.asking.Add(1)
	c.mu.Unlock()
	defer c.asking.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })()
	result, err = c.Client.Ask(ctx, method, params)
	return result, err == nil || c.ctx.Err() == nil, err
}

// key tells calls of different clients apart.
func (c *call) key() string {
	if c.Client == nil {
		return ""
	}
	return c.Client.Key
}

// calls are the calls in flight over one connection.
type calls struct {
	conn   *conn.Conn
	shared bool // whatever the server knows, by the owner's will

	mu      sync.Mutex // guards what follows; never held over I/O
	byID    map[int64]*call
	told    string // whose roots the server knows, as of call.whose; "" for nobody's
	ended   event  // one of them has
	stalled stallBudget
}

// add puts a call where what the server says of its request finds it. It reports
// false if the call must not be sent: the server knows the roots of another client.
func (t *calls) add(id int64, c *call) bool {
	whose := c.whose()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.told != "" && t.told != whose {
		return false
	}
	t.byID[id] = c
	return true
}

func (t *calls) remove(id int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, id)
	t.ended.happen()
}

// of returns the call of a request, nil for none.
func (t *calls) of(id int64) *call {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

// about returns the calls that a message on a stream may be about: the stream's
// own, else all in flight, because nothing says which. Some servers send what they
// have to say on whatever stream of the session is open.
func (t *calls) about(stream int64) []*call {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.byID[stream]; c != nil {
		return []*call{c}
	}
	return slices.Collect(maps.Values(t.byID))
}

// latest returns the last call that a client has made, nil for none in flight.
func (t *calls) latest(key string) *call {
	t.mu.Lock()
	defer t.mu.Unlock()
	var last int64
	for id, c := range t.byID {
		if c.key() == key {
			last = max(last, id)
		}
	}
	return t.byID[last]
}

// count is how many there are, and what is closed when one of them ends.
func (t *calls) count() (n int, ended <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byID), t.ended.next()
}

// giveUp ends all calls, to whose clients err says why.
func (t *calls) giveUp(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.byID {
		c.cancel(err)
	}
}

// unanswered is since when the client has been asked something in every call; the
// zero time unless there are as many as expected, at least one.
func (t *calls) unanswered(expected int) (since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.byID) < max(expected, 1) {
		return since
	}
	for _, c := range t.byID {
		held := c.clock.heldSince()
		if held.IsZero() {
			return held
		}
		if since.IsZero() || held.Before(since) {
			since = held
		}
	}
	return since
}

// suspects are the calls that a question of the server may belong to, at one moment.
type suspects struct {
	calls   []*call // of one client, the latest first; none when none is in flight
	unclear bool    // they are of several clients, one of whom could answer
	err     error   // they are of several clients, none of whom could
	changed <-chan struct{}
}

// suspect returns the calls that a question on a stream may belong to. Nothing else
// says what it belongs to.
func (t *calls) suspect(stream int64, capability string) suspects {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.byID[stream]; c != nil {
		return suspects{calls: []*call{c}}
	}
	var found []*call
	several, able := false, false
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(t.byID))) {
		if !t.conn.Waits(id) {
			continue // answered
		}
		c := t.byID[id]
		found = append(found, c)
		several = several || c.key() != found[0].key()
		able = able || c.Client.Can(capability)
	}
	out := suspects{calls: found, unclear: several && able, changed: t.ended.next()}
	if several && !able {
		out.err = cannot(capability)
	}
	return out
}

func cannot(capability string) error {
	return &tool.RPCError{Code: tool.CodeMethodNotFound, Message: "the client does not support " + capability}
}
