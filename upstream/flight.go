package upstream

import (
	"context"
	"encoding/json"
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
	token  json.RawMessage // the client's own progress token; nil when it sent none
	ctx    context.Context // of the call; its cause is why it ended
	cancel context.CancelCauseFunc
	limit  *patience

	mu      sync.Mutex // guards what follows; never held over Notify
	waiting []notification
	passing bool
	over    bool
	work    sync.WaitGroup
}

type notification struct {
	method string
	params json.RawMessage
}

// maxWaiting bounds the notifications that wait for one client; more are dropped.
const maxWaiting = 256

// takeOff begins a call that may take as long as limit, not counting the time
// in which its client is asked something.
func takeOff(ctx context.Context, call *tool.Call, limit time.Duration) *flight {
	f := &flight{call: call}
	if call.Notify != nil {
		f.token = rawjson.Member(rawjson.Member(call.Params, "_meta"), "progressToken")
	}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	f.limit = newPatience(limit, func() {
		f.cancel(fmt.Errorf("%w: no answer within %s", ErrTimeout, limit))
	})
	return f
}

// land ends the call, and whatever its client is being asked. It returns when
// everything that arrived before was passed on.
func (f *flight) land() {
	f.limit.stop()
	f.cancel(nil)
	f.mu.Lock()
	f.over = true
	f.mu.Unlock()
	f.work.Wait()
}

// flying reports whether the call has not ended.
func (f *flight) flying() bool { return f.ctx.Err() == nil }

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
	if f.over || len(f.waiting) >= maxWaiting {
		return
	}
	f.waiting = append(f.waiting, notification{method, params})
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
