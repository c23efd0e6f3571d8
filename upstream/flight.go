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
// on one after the other, off the read loop. When too many wait for a client,
// the read loop waits for it, and so the upstream does: see conn.pass.
type flight struct {
	call   *tool.Call
	caller context.Context // the caller's own
	token  json.RawMessage // the client's own progress token; nil when it sent none
	ctx    context.Context // of the call; its cause is why it ended
	cancel context.CancelCauseFunc
	limit  *patience       // from one sign of life of the upstream to the next
	total  *patience       // of the whole call
	air    context.Context // of the call until the upstream has answered it
	down   context.CancelFunc

	mu      sync.Mutex // guards what follows; never held over Notify
	waiting []notification
	bytes   int           // of their params
	room    chan struct{} // closed when one of them has been passed on; nil when nobody waits for that
	dropped int           // notifications that the client did not get
	lagging bool          // one was dropped, and the client has not caught up since: nobody waits for it
	passing bool
	over    bool
	work    sync.WaitGroup
	carried sync.WaitGroup // questions that went out beside the answer
}

type notification struct {
	method string
	params json.RawMessage
}

// Bounds of the notifications that wait for one client, in number and in bytes.
// A single one may be longer.
const (
	maxWaiting      = 256
	maxWaitingBytes = 1 << 20
)

// takeOff begins a call within limits, which do not count the time in which its
// client is asked something.
func takeOff(ctx context.Context, call *tool.Call, limits *limits) *flight {
	f := &flight{call: call, caller: ctx}
	if call.Notify != nil {
		f.token = rawjson.Member(rawjson.Member(call.Params, "_meta"), "progressToken")
	}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	f.air, f.down = context.WithCancel(f.ctx)
	within := func(limit time.Duration) *patience {
		return newPatience(limit, func() { f.cancel(fmt.Errorf("%w: no answer within %s", ErrTimeout, limit)) })
	}
	f.limit, f.total = within(limits.call), within(max(limits.total, limits.call))
	return f
}

// land ends the call and what its client is being asked for it alone, and
// returns how many notifications the client did not get. It returns when
// everything that arrived before was passed on, and what is asked beside the
// answer is answered, even if it is for another call: some clients answer no
// question of a call that has been answered.
func (f *flight) land() (dropped int) {
	f.limit.stop()
	f.total.stop()
	f.down()
	f.mu.Lock()
	f.over = true
	f.makeRoom()
	f.mu.Unlock()
	f.carried.Wait()
	f.cancel(nil)
	f.work.Wait()
	return f.dropped
}

// hold stops the clocks while the client is asked something; release lets them
// run again.
func (f *flight) hold()    { f.limit.hold(); f.total.hold() }
func (f *flight) release() { f.limit.release(); f.total.release() }

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

// offer takes a notification for the client, or drops it when the client lags.
// When too much waits for the client, it takes nothing and returns a channel that
// is closed when that has changed.
func (f *flight) offer(n notification) (room <-chan struct{}) {
	if f.call.Notify == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return nil
	}
	if len(f.waiting) >= maxWaiting || len(f.waiting) > 0 && f.bytes+len(n.params) > maxWaitingBytes {
		switch {
		case f.ctx.Err() != nil: // nobody waits for it
			return nil
		case f.lagging:
			f.dropped++
			return nil
		}
		if f.room == nil {
			f.room = make(chan struct{})
		}
		return f.room
	}
	f.waiting = append(f.waiting, n)
	f.bytes += len(n.params)
	if !f.passing {
		f.passing = true
		f.work.Go(f.drain)
	}
	return nil
}

// makeRoom wakes who waits for room. Lock held.
func (f *flight) makeRoom() {
	if f.room != nil {
		close(f.room)
		f.room = nil
	}
}

// drop counts a notification that the client does not get.
func (f *flight) drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.over && f.ctx.Err() == nil {
		f.dropped++
		f.lagging = true
	}
}

func (f *flight) drain() {
	for {
		f.mu.Lock()
		if len(f.waiting) == 0 {
			f.passing, f.lagging = false, false
			f.mu.Unlock()
			return
		}
		next := f.waiting[0]
		f.waiting = f.waiting[1:]
		f.bytes -= len(next.params)
		f.makeRoom()
		f.mu.Unlock()
		f.call.Notify(next.method, next.params)
	}
}

// stallMost is how long in a row clients that read slowly may keep a connection
// from being read on which others wait for answers. That time comes back
// stallEarned times slower than it passes.
const (
	stallMost   = 5 * time.Second
	stallEarned = 4
	stallTick   = 50 * time.Millisecond
)

// stalling is how long a connection may still be kept from being read.
type stalling struct {
	spent time.Duration
	at    time.Time // when spent was right
}

// spend reports whether d was still allowed.
func (s *stalling) spend(d time.Duration, now time.Time) bool {
	if !s.at.IsZero() {
		s.spent = max(0, s.spent-now.Sub(s.at)/stallEarned)
	}
	s.at = now
	if s.spent+d > stallMost {
		return false
	}
	s.spent += d
	return true
}

// pass passes a notification on to the client of a call. It runs on the read
// loop and waits while too much waits for that client: nothing more is read from
// the upstream, which has to wait too. On a stream of the call's own that harms
// nobody; elsewhere it has a bound, after which notifications are dropped.
func (c *conn) pass(stream int64, f *flight, method string, params json.RawMessage) {
	n := notification{method, params}
	for room := f.offer(n); room != nil; room = f.offer(n) {
		if !c.stall(stream, f, room) {
			f.drop()
			return
		}
	}
}

// stall waits for room, and reports whether to try again.
func (c *conn) stall(stream int64, f *flight, room <-chan struct{}) bool {
	tick := time.NewTicker(stallTick)
	defer tick.Stop()
	for waiting := true; waiting; {
		began := time.Now()
		select {
		case <-room:
			waiting = false
		case <-tick.C:
		case <-f.ctx.Done():
			return false
		case <-c.life.Done():
			return false
		}
		if !c.affordable(stream, f, time.Since(began)) {
			return false
		}
	}
	return true
}

// affordable reports whether the connection could go unread for d more, because
// nobody else waited for it or because that was within its bound.
func (c *conn) affordable(stream int64, f *flight, d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if stream != 0 && c.flights[stream] == f {
		return true
	}
	others := c.tap.Waiting()
	for id, one := range c.flights {
		if one == f && c.tap.Waits(id) {
			others--
		}
	}
	return others <= 0 || c.stalling.spend(d, time.Now())
}

// patience is a deadline that can be held, and put off.
type patience struct {
	limit time.Duration

	mu    sync.Mutex // guards what follows
	timer *time.Timer
	left  time.Duration
	since time.Time // when it began to run
	holds int
	held  time.Time // since when it is held; zero while it runs
	over  bool
}

func newPatience(limit time.Duration, end func()) *patience {
	return &patience{limit: limit, left: limit, since: time.Now(), timer: time.AfterFunc(limit, end)}
}

// renew makes the whole limit count from now on.
func (p *patience) renew() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left, p.since = p.limit, time.Now()
	if p.holds == 0 && !p.over {
		p.timer.Reset(p.limit)
	}
}

// hold stops the clock until every hold was released.
func (p *patience) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holds++; p.holds == 1 {
		p.timer.Stop()
		p.held = time.Now()
		p.left -= p.held.Sub(p.since)
	}
}

// heldSince is since when the clock has been stopped, the zero time when it runs.
func (p *patience) heldSince() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

func (p *patience) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holds--; p.holds > 0 {
		return
	}
	p.held = time.Time{}
	if !p.over {
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
