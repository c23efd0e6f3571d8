package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/upstream/conn"
)

// call is one call of a client, from its arrival to its answer. It may be sent to the
// server several times.
type call struct {
	*tool.Call
	caller   context.Context // the caller's context
	token    json.RawMessage // the client's own progress token; nil if it sent none
	ctx      context.Context // ends with the call; its cause is why the call ended
	cancel   context.CancelCauseFunc
	open     context.Context // ends when the server has answered
	answered context.CancelFunc
	clock    *clock
	notices  notificationQueue
	roots    callRoots
	asked    atomic.Int32 // requests of the server in the course of the call

	mu     sync.Mutex     // guards over; never held over a question
	over   bool           // no question may start any more: end waits for running questions
	asking sync.WaitGroup // questions to the client outside the answer
}

// begin begins a call within limits. The time of questions to its client does not count.
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

// end ends the call. It returns after all earlier notifications have reached the client
// and the questions asked through this call are answered, even if they belong to another
// call: some clients answer no question of a call that has ended.
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

// givenUp reports whether err means that the caller has cancelled the call.
func (c *call) givenUp(err error) bool {
	return errors.Is(err, context.Canceled) ||
		errors.Is(c.caller.Err(), context.Canceled) && errors.Is(err, context.Cause(c.caller))
}

// ended marks err with the kind of the end of the caller's context, if that end caused
// err: the context may have a cause of its own.
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

// ask asks the client outside the answer of the call. done is false if the call ended
// before the client answered.
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

// key distinguishes calls of different clients.
func (c *call) key() string {
	if c.Client == nil {
		return ""
	}
	return c.Client.Key
}

// rootsOwner returns the owner of the roots that a server may know when it gets the call.
func (c *call) rootsOwner() rootsOwner { return c.roots.owner(c.Client) }
