package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"toolfinch/tool"
)

const methodElicit = "elicitation/create"

// questions ask clients on behalf of a server, and know its habits: whether it asks
// clients anything, and when it asks for roots.
type questions struct {
	events Events
	limits *atomic.Pointer[limits]
	lists  *lists        // told that the server has begun to ask
	begun  chan struct{} // closed when the server has begun to ask
	opened *openURLs

	mu          sync.Mutex // guards the fields below; never held over I/O
	interactive bool       // the server has asked clients something
	roots       bool       // the server asks for roots outside of calls
	rootsAgain  bool       // the server has asked again after roots/list_changed
	rootsTold   bool       // the server has been told the roots of a client
}

func newQuestions(events Events, limits *atomic.Pointer[limits], lists *lists, interactive bool) *questions {
	q := &questions{events: events, limits: limits, lists: lists, begun: make(chan struct{}), opened: newOpenURLs(), interactive: interactive}
	if interactive {
		close(q.begun)
	}
	return q
}

// note notes that the server asks clients something.
func (q *questions) note() {
	if q.learn() {
		q.lists.changed()
	}
}

// learn notes that the server asks clients something, without a report. It reports whether
// this was new.
func (q *questions) learn() (fresh bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	fresh = !q.interactive
	if q.interactive = true; fresh {
		close(q.begun)
	}
	return fresh
}

// any reports whether the server has asked clients something.
func (q *questions) any() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.interactive
}

// wantsRoots reports whether the server asks for roots outside of calls: at the start, and
// when they have changed.
func (q *questions) wantsRoots() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.roots
}

// asksRoots notes that the server asks for roots outside of calls.
func (q *questions) asksRoots() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.roots = true
}

// asksAgain notes that the server has asked for roots after it was told of a change.
func (q *questions) asksAgain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.rootsAgain = true
}

// noAnswer notes that the server has not asked for roots in time. It reports whether the
// server ignores root changes; no call waits for such a server again.
func (q *questions) noAnswer() (never bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.roots = q.rootsAgain
	return !q.rootsAgain
}

// ask asks the client of calls, whose clocks stand still meanwhile. The question may
// belong to any of the calls, so it stands until all of them have ended.
func (q *questions) ask(ctx context.Context, of []*call, method string, params json.RawMessage) (json.RawMessage, error) {
	client := of[0].Client
	if client == nil || client.Ask == nil {
		return nil, cannot(tool.Asks[method])
	}
	if method == methodElicit {
		q.opened.add(params, client.Key)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	open := new(atomic.Int64)
	open.Store(int64(len(of)))
	for _, c := range of {
		defer context.AfterFunc(c.open, func() {
			if open.Add(-1) == 0 {
				cancel(context.Cause(c.open))
			}
		})()
		c.clock.hold()
		defer c.clock.release()
	}
	ctx, end := q.patient(ctx)
	defer end()
	if len(of) > 1 && q.events.Reaches != nil && q.events.Ask != nil && q.events.Reaches(client.Key) {
		// A question through a call would delay the call's answer until a human answers.
		result, err := q.events.Ask(ctx, client.Key, method, params)
		return result, askError(ctx, err)
	}
	for _, c := range of {
		result, done, err := c.ask(ctx, method, params)
		if done || ctx.Err() != nil || errors.As(err, new(*tool.RPCError)) {
			return result, askError(ctx, err)
		}
	}
	return nil, cmp.Or(context.Cause(of[len(of)-1].ctx), context.Canceled)
}

// patient bounds the time that a client may take to answer.
func (q *questions) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := q.limits.Load().ask
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w: the client did not answer within %s", ErrTimeout, limit))
}

// askError returns the cause of ctx's end if it ended the question, else err.
func askError(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && !errors.As(err, new(*tool.RPCError)) {
		return context.Cause(ctx)
	}
	return err
}

// toldRoots notes that the server was told the roots of a client.
func (q *questions) toldRoots() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.rootsTold = true
}

// learnRoots asks the client of a 2026-07-28 call for its roots before a connection is
// chosen, if the server asks for roots before each call. The call then gets a connection
// whose server knows them. If the server asks during some calls only, the client is not
// asked here, and the call gets a connection whose server knows no roots.
func (q *questions) learnRoots(ctx context.Context, c *call) error {
	q.mu.Lock()
	asks := q.roots && q.rootsTold
	q.mu.Unlock()
	if !asks || !c.Client.Can(tool.CapabilityRoots) || !c.Client.Modern || c.roots.answer(methodRoots, nil) != nil {
		return nil
	}
	result, err := q.ask(ctx, []*call{c}, methodRoots, nil)
	switch {
	case c.ctx.Err() != nil:
		return context.Cause(c.ctx)
	case err != nil:
		result = noRoots
	}
	c.roots.learn(c.Client, result)
	return nil
}
