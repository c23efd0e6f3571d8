package register

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/limit"
	"toolfinch/internal/rawjson"
	"toolfinch/internal/wire"
	"toolfinch/tool"
)

// A 2026-07-28 client cannot be sent requests: it gets an input_required result and calls again with
// the answers (specification 2026-07-28, multi round-trip requests). If a legacy upstream asks during a
// call, the call is suspended between the client's requests.

const (
	// gather is the wait for further requests after the first, so that requests made together reach the
	// client together.
	gather = 5 * time.Millisecond
	// givesWay is how long a suspended call is safe from being ended for another call.
	givesWay = time.Minute
	// suspendedFor is how long a client may take to call again; an upstream may give up earlier.
	// keptFor is how long the result of a call that has ended meanwhile is kept.
	suspendedFor = 24 * time.Hour
	keptFor      = 10 * time.Minute
)

// Limits bound the suspended calls of all Lives that serve the same clients.
type Limits struct{ calls, bytes *limit.Limit }

const (
	// maxSuspended bounds the suspended calls, maxSuspendedBytes the bytes of their requests and kept
	// notifications.
	maxSuspended      = 1000
	maxSuspendedBytes = 64 << 20
)

// NewLimits returns unused limits.
func NewLimits() *Limits {
	const later = "answer what was asked, or try again later"
	return &Limits{
		calls: limit.New("parked_calls", maxSuspended, "calls wait for their clients", later),
		bytes: limit.New("parked_bytes", maxSuspendedBytes, "bytes of calls that wait for their clients", later),
	}
}

// All returns the limits.
func (b *Limits) All() []*limit.Limit { return []*limit.Limit{b.calls, b.bytes} }

// suspendedCalls has the calls that wait for the next request of their client. It also waits for
// background work that outlives its request.
type suspendedCalls struct {
	gather time.Duration // tests lengthen it
	limits *Limits
	log    *slog.Logger

	life    context.Context // of background work
	end     context.CancelFunc
	running sync.WaitGroup // calls that outlive their request, and background work

	mu      sync.Mutex // guards the fields below; held for look-ups only
	byState map[string]*suspendedCall
	stopped bool // no call may be suspended
}

func newSuspendedCalls(limits *Limits, log *slog.Logger) *suspendedCalls {
	k := &suspendedCalls{gather: gather, limits: limits, log: log, byState: map[string]*suspendedCall{}}
	k.life, k.end = context.WithCancel(context.Background())
	return k
}

// stop ends all suspended calls and background work, and waits for them.
func (k *suspendedCalls) stop() {
	k.end()
	k.mu.Lock()
	k.stopped = true
	for state := range k.byState {
		k.abandon(state)
	}
	k.mu.Unlock()
	k.running.Wait()
}

// background runs f in a goroutine: a hanging upstream must not keep a session from ending. stop ends
// ctx and waits for f.
func (k *suspendedCalls) background(f func(ctx context.Context)) {
	k.mu.Lock()
	stopped := k.stopped
	if !stopped {
		k.running.Go(func() { f(k.life) })
	}
	k.mu.Unlock()
	if stopped {
		f(k.life)
	}
}

// serve calls handler for a 2026-07-28 client that answers requests.
func (k *suspendedCalls) serve(ctx context.Context, x *wire.Exchange, call *tool.Call, handler tool.Handler) (tool.Result, error) {
	p, err := k.resume(call, x)
	if err != nil {
		return nil, err
	}
	if p == nil {
		if p, err = k.start(ctx, x, call, handler); err != nil {
			return nil, err
		}
	}
	return k.attend(ctx, p)
}

// attend waits for the result of a call, or suspends the call when the upstream asks.
func (k *suspendedCalls) attend(ctx context.Context, p *suspendedCall) (tool.Result, error) {
	for {
		select {
		case out := <-p.done:
			return out.result, out.err
		case <-ctx.Done():
			p.end(context.Cause(ctx))
			return nil, context.Cause(ctx)
		case <-p.wake:
		}
		select {
		case out := <-p.done:
			return out.result, out.err
		case <-time.After(k.gather):
		}
		if result, err := k.suspend(p); result != nil || err != nil {
			return result, err
		}
	}
}

// start starts a call that outlives its request.
func (k *suspendedCalls) start(ctx context.Context, x *wire.Exchange, call *tool.Call, handler tool.Handler) (*suspendedCall, error) {
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	context.AfterFunc(life, identity.Outlives(ctx, func() { end(errRevoked) }))
	p := &suspendedCall{
		owner: call.Owner(), kind: call.Kind, name: call.Name, end: end,
		done: make(chan outcome, 1), wake: make(chan struct{}, 1),
		requests: map[string]*pendingRequest{}, notify: x.Notify, bytes: k.limits.bytes, size: int64(len(call.Params)),
	}
	p.progress = progressToken(call.Params)
	p.token = p.progress
	call.Client.Ask = func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
		if err := checkSupported(call.Client, method, params); err != nil {
			return nil, err
		}
		return p.ask(ctx, method, params)
	}
	call.Notify = leveled(call.Client, p.tell)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		end(nil)
		return nil, errStopping
	}
	k.running.Go(func() {
		defer end(nil)
		result, err := k.recovering(life, call, handler)
		p.done <- outcome{result, err}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.dropped > 0 {
			k.log.Warn("notifications of a call were dropped: they waited for its client to come back", "name", call.Name, "dropped", p.dropped)
		}
		p.ended = true
		if p.state != "" {
			p.expire.Reset(keptFor)
		}
	})
	return p, nil
}

// recovering calls handler and recovers: the call's own goroutine has no other recovery.
func (k *suspendedCalls) recovering(ctx context.Context, call *tool.Call, handler tool.Handler) (result tool.Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			k.log.Error("panic while handling a request", "name", call.Name, "panic", r)
			err = &tool.RPCError{Code: tool.CodeInternal, Message: "internal error"}
		}
	}()
	return handler(ctx, call)
}

// suspend suspends the call and returns the input_required result with the upstream's requests; nil
// without requests.
func (k *suspendedCalls) suspend(p *suspendedCall) (tool.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.requests) == 0 || p.ended {
		return nil, nil
	}
	var requests rawjson.Object
	for _, key := range slices.Sorted(maps.Keys(p.requests)) {
		var request rawjson.Object
		request.AddText("method", p.requests[key].method)
		request.Add("params", present(p.requests[key].params))
		requests.Add(key, request.JSON())
	}
	state := rand.Text()
	if err := k.keep(state, p); err != nil {
		p.end(nil)
		return nil, err
	}
	p.state, p.notify, p.since = state, nil, time.Now()
	p.expire = time.AfterFunc(suspendedFor, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.abandon(state)
	})
	var result rawjson.Object
	result.AddText("resultType", inputRequired)
	result.Add("inputRequests", requests.JSON())
	result.AddText("requestState", wire.SuspendedPrefix+state)
	return tool.Result(result.JSON()), nil
}

// inputRequired is the resultType of a result with requests to the client.
const inputRequired = "input_required"

// keep takes a call in. An owner with suspended calls must find as much room free as they take, so that others always
// find some. Without room, the owner's longest suspended call ends, or, if it has none, the longest of all, if it has
// waited for longer than givesWay.
func (k *suspendedCalls) keep(state string, p *suspendedCall) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return errStopping
	}
	for {
		own, err := k.admit(p)
		if err == nil {
			k.byState[state] = p
			return nil
		}
		if !k.makeRoom(func(other *suspendedCall) bool { return own == 0 || other.owner == p.owner }) {
			return err
		}
	}
}

// admit takes a call's part of the limits, and returns how many calls its owner has. The caller holds the lock.
func (k *suspendedCalls) admit(p *suspendedCall) (own int64, err error) {
	var size int64
	for _, other := range k.byState {
		if other.owner == p.owner {
			own++
			size += other.size
		}
	}
	if err := k.limits.calls.TakeBelow(1, maxSuspended-own); err != nil {
		return own, err
	}
	if err := k.limits.bytes.TakeBelow(p.size, maxSuspendedBytes-size); err != nil {
		k.limits.calls.Release(1)
		return own, err
	}
	return own, nil
}

// makeRoom ends the longest suspended call of some, if its time exceeds givesWay, and reports whether it did. The caller
// holds the lock.
func (k *suspendedCalls) makeRoom(among func(*suspendedCall) bool) bool {
	var oldest string
	since := time.Now().Add(-givesWay)
	for state, p := range k.byState {
		p.mu.Lock()
		if among(p) && p.since.Before(since) {
			oldest, since = state, p.since
		}
		p.mu.Unlock()
	}
	if oldest == "" {
		return false
	}
	k.abandon(oldest)
	return true
}

// abandon ends the suspended call of a state, if any. The caller holds the lock.
func (k *suspendedCalls) abandon(state string) {
	if p := k.take(state); p != nil {
		p.abandon()
	}
}

// take removes a suspended call and returns it, nil for an unknown state. The caller holds the lock.
func (k *suspendedCalls) take(state string) *suspendedCall {
	p := k.byState[state]
	if p != nil {
		delete(k.byState, state)
		k.limits.calls.Release(1)
		k.limits.bytes.Release(p.size)
	}
	return p
}

// resume delivers the client's answers and returns the suspended call that the request continues; nil
// if it continues none.
func (k *suspendedCalls) resume(call *tool.Call, x *wire.Exchange) (*suspendedCall, error) {
	state, ours := wire.SuspendedState(call.Params)
	if !ours {
		return nil, nil
	}
	k.mu.Lock()
	p := k.byState[state]
	fits := p != nil && p.owner == call.Owner() && p.kind == call.Kind && p.name == call.Name
	if fits { // otherwise the call belongs to another owner or tool, and stays
		k.take(state)
	}
	k.mu.Unlock()
	if !fits {
		return nil, &tool.RPCError{Code: tool.CodeInvalidParams, Message: "this requestState continues no call of " + call.Name + ": it has ended, was continued already, or waits in another process, which a load balancer must send the answers to"}
	}
	responses := rawjson.Member(call.Params, "inputResponses")
	p.mu.Lock()
	p.expire.Stop()
	p.state, p.token = "", progressToken(call.Params)
	p.mu.Unlock()
	p.attend(x.Notify)
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, value := range rawjson.Members(responses) {
		if a := p.requests[key]; a != nil {
			delete(p.requests, key)
			a.answer <- value
		}
	}
	if len(p.requests) > 0 {
		p.signal() // suspends again, with a new state
	}
	return p, nil
}
