package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"toolfinch/rawjson"
	"toolfinch/tool"
)

// flight is one call of a client, from when it came until it is answered,
// however often it is sent to the upstream meanwhile. Notifications are passed
// on one after the other, off the read loop, so that a client that does not
// read holds up its own call and no other.
type flight struct {
	call   *tool.Call
	caller context.Context // the caller's own
	token  json.RawMessage // the client's own progress token; nil when it sent none
	ctx    context.Context // of the call; its cause is why it ended
	cancel context.CancelCauseFunc
	limit  *patience
	air    context.Context // of the call until the upstream has answered it
	down   context.CancelFunc

	mu      sync.Mutex // guards what follows; never held over Notify
	waiting []notification
	bytes   int // of their params
	passing bool
	over    bool
	work    sync.WaitGroup
	carried sync.WaitGroup // questions that went out beside the answer
}

type notification struct {
	method string
	params json.RawMessage
}

// Bounds of the notifications that wait for one client, in number and in bytes;
// more are dropped.
const (
	maxWaiting      = 256
	maxWaitingBytes = 4 << 20
)

// takeOff begins a call that may take as long as limit, not counting the time
// in which its client is asked something.
func takeOff(ctx context.Context, call *tool.Call, limit time.Duration) *flight {
	f := &flight{call: call, caller: ctx}
	if call.Notify != nil {
		f.token = rawjson.Member(rawjson.Member(call.Params, "_meta"), "progressToken")
	}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	f.air, f.down = context.WithCancel(f.ctx)
	f.limit = newPatience(limit, func() {
		f.cancel(fmt.Errorf("%w: no answer within %s", ErrTimeout, limit))
	})
	return f
}

// land ends the call, and what its client is being asked for it alone. It
// returns when everything that arrived before was passed on, and what is asked
// beside the answer is answered, though it be for another call: some clients
// answer no question of a call that has been answered.
func (f *flight) land() {
	f.limit.stop()
	f.down()
	f.mu.Lock()
	f.over = true
	f.mu.Unlock()
	f.carried.Wait()
	f.cancel(nil)
	f.work.Wait()
}

// abandoned reports whether err is that the caller has given the call up, for
// whatever cause.
func (f *flight) abandoned(err error) bool {
	return errors.Is(err, context.Canceled) ||
		errors.Is(f.caller.Err(), context.Canceled) && errors.Is(err, context.Cause(f.caller))
}

// ended is err, marked as what it is when it came of the end of the caller's
// context: that may have a cause of its own.
func (f *flight) ended(err error) error {
	if !errors.Is(err, context.Cause(f.caller)) {
		return err
	}
	if errors.Is(f.caller.Err(), context.DeadlineExceeded) {
		return marked{err, ErrTimeout}
	}
	return marked{err, f.caller.Err()}
}

// flying reports whether the upstream has not answered the call.
func (f *flight) flying() bool { return f.air.Err() == nil }

// carry asks the client beside the answer of the call. It reports false when
// the call could not carry the question to its end.
func (f *flight) carry(ctx context.Context, method string, params json.RawMessage) (result json.RawMessage, carried bool, err error) {
	f.mu.Lock()
	if f.over {
		f.mu.Unlock()
		return nil, false, context.Canceled
	}
	f.carried.Add(1)
	f.mu.Unlock()
	defer f.carried.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(f.ctx, func() { cancel(context.Cause(f.ctx)) })()
	result, err = f.call.Client.Ask(ctx, method, params)
	return result, err == nil || f.ctx.Err() == nil, err
}

// key tells calls of different clients apart.
func (f *flight) key() string {
	if f.call.Client == nil {
		return ""
	}
	return f.call.Client.Key
}

// pass passes a notification of the upstream on to the client.
func (f *flight) pass(method string, params json.RawMessage) {
	if f.call.Notify == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over || len(f.waiting) >= maxWaiting || f.bytes+len(params) > maxWaitingBytes {
		return
	}
	f.waiting = append(f.waiting, notification{method, params})
	f.bytes += len(params)
	if !f.passing {
		f.passing = true
		f.work.Go(f.drain)
	}
}

func (f *flight) drain() {
	for {
		f.mu.Lock()
		if len(f.waiting) == 0 {
			f.passing = false
			f.mu.Unlock()
			return
		}
		next := f.waiting[0]
		f.waiting = f.waiting[1:]
		f.bytes -= len(next.params)
		f.mu.Unlock()
		f.call.Notify(next.method, next.params)
	}
}

// patience is a deadline that can be held.
type patience struct {
	mu    sync.Mutex // guards what follows
	timer *time.Timer
	left  time.Duration
	since time.Time // when it began to run
	holds int
	over  bool
}

func newPatience(limit time.Duration, end func()) *patience {
	return &patience{left: limit, since: time.Now(), timer: time.AfterFunc(limit, end)}
}

// hold stops the clock until every hold was released.
func (p *patience) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holds++; p.holds == 1 {
		p.timer.Stop()
		p.left -= time.Since(p.since)
	}
}

func (p *patience) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holds--; p.holds == 0 && !p.over {
		p.since = time.Now()
		p.timer.Reset(max(p.left, 0))
	}
}

func (p *patience) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	p.timer.Stop()
}
