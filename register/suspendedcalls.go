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

	"toolfinch/internal/limit"
	"toolfinch/internal/rawjson"
	"toolfinch/internal/wire"
	"toolfinch/tool"
)

// A 2026-07-28 client cannot be sent requests: it gets an input_required result
// and calls again with the answers (specification 2026-07-28, multi round-trip
// requests). Where an upstream of the legacy era asks in the middle of a call,
// that call is parked between the client's requests.

const (
	// gather is how long a call waits for further requests after the first, so that
	// requests made together reach the client together.
	gather = 5 * time.Millisecond
	// givesWay is how long a call stays parked at least before it ends to make room
	// for another.
	givesWay = time.Minute
	// parkedFor is how long a client may take to call again; an upstream may give up
	// earlier. keptFor is how long the result of a call that ended meanwhile is kept.
	suspendedFor = 24 * time.Hour
	keptFor      = 10 * time.Minute
)

// Limits bound the parked calls of all Lives that serve the same clients.
type Limits struct{ calls, bytes *limit.Limit }

const (
	// maxParked bounds the calls that wait for their clients, and maxParkedBytes the
	// bytes of their requests and of the notifications kept for them.
	maxSuspended      = 1000
	maxSuspendedBytes = 64 << 20
)

// NewLimits returns limits with nothing used.
func NewLimits() *Limits {
	const later = "answer what was asked, or try again later"
	return &Limits{
		calls: limit.New("parked_calls", maxSuspended, "calls wait for their clients", later),
		bytes: limit.New("parked_bytes", maxSuspendedBytes, "bytes of calls that wait for their clients", later),
	}
}

// All returns the limits.
func (b *Limits) All() []*limit.Limit { return []*limit.Limit{b.calls, b.bytes} }

// parking holds the calls that wait between two requests of their client, and ends
// whatever outlives the request that began it.
type suspendedCalls struct {
	gather time.Duration // tests lengthen it
	limits *Limits
	log    *slog.Logger

	life    context.Context // of what is done aside
	end     context.CancelFunc
	running sync.WaitGroup // calls that outlive the request that made them, and what is done aside

	mu      sync.Mutex // guards what follows; held for look-ups only
	byState map[string]*suspendedCall
	stopped bool // no call is parked any more
}

func newSuspendedCalls(limits *Limits, log *slog.Logger) *suspendedCalls {
	k := &suspendedCalls{gather: gather, limits: limits, log: log, byState: map[string]*suspendedCall{}}
	k.life, k.end = context.WithCancel(context.Background())
	return k
}

// stop ends all calls that are parked, and what is done aside, and waits for them.
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

// aside runs f off the caller's path: upstreams that hang must not keep sessions
// from ending. stop ends ctx, and waits for f.
func (k *suspendedCalls) aside(f func(ctx context.Context)) {
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

// serve calls handler for a 2026-07-28 client that can be asked something.
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

// attend waits for the result of a call, or what is to be asked: then the call is parked.
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

// park starts a call that outlives the request that made it.
func (k *suspendedCalls) start(ctx context.Context, x *wire.Exchange, call *tool.Call, handler tool.Handler) (*suspendedCall, error) {
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
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
		result, err := k.guarded(life, call, handler)
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

// guarded calls handler and recovers: the call has a goroutine of its own, where
// nothing else would.
func (k *suspendedCalls) guarded(ctx context.Context, call *tool.Call, handler tool.Handler) (result tool.Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			k.log.Error("panic while handling a request", "name", call.Name, "panic", r)
			err = &tool.RPCError{Code: tool.CodeInternal, Message: "internal error"}
		}
	}()
	return handler(ctx, call)
}

// suspend parks the call and returns the input_required result with the requests to
// the client; nil if there are none any more.
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

// inputRequired is the resultType of a result that has requests to the client.
const inputRequired = "input_required"

// keep parks a call. If too many or too large ones are parked, those that waited longest end,
// provided they waited for givesWay.
func (k *suspendedCalls) keep(state string, p *suspendedCall) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return errStopping
	}
	err := k.limits.calls.Take(1)
	if err != nil && k.yielded() {
		err = k.limits.calls.Take(1)
	}
	if err != nil {
		return err
	}
	err = k.limits.bytes.Take(p.size)
	for err != nil && k.yielded() {
		err = k.limits.bytes.Take(p.size)
	}
	if err != nil {
		k.limits.calls.Release(1)
		return err
	}
	k.byState[state] = p
	return nil
}

// yielded ends the call that was parked first, if that is more than givesWay ago,
// and reports whether it did. The caller holds the lock.
func (k *suspendedCalls) yielded() bool {
	var oldest string
	since := time.Now().Add(-givesWay)
	for state, p := range k.byState {
		p.mu.Lock()
		if p.since.Before(since) {
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

// abandon ends the parked call of a state, if there is one: nobody will continue it. The caller
// holds the lock.
func (k *suspendedCalls) abandon(state string) {
	if p := k.take(state); p != nil {
		p.abandon()
	}
}

// take takes out a parked call, nil if there is none of that state. The caller holds the lock.
func (k *suspendedCalls) take(state string) *suspendedCall {
	p := k.byState[state]
	if p != nil {
		delete(k.byState, state)
		k.limits.calls.Release(1)
		k.limits.bytes.Release(p.size)
	}
	return p
}

// resume returns the parked call that a request continues, after it delivered the
// client's answers; nil if the request continues none.
func (k *suspendedCalls) resume(call *tool.Call, x *wire.Exchange) (*suspendedCall, error) {
	state, ours := wire.SuspendedState(call.Params)
	if !ours {
		return nil, nil
	}
	k.mu.Lock()
	p := k.byState[state]
	fits := p != nil && p.owner == call.Owner() && p.kind == call.Kind && p.name == call.Name
	if fits { // else it is another's, or another tool's, and stays where it is
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
		p.signal() // asked again, with a new state
	}
	return p, nil
}
