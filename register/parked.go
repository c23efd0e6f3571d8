package register

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"toolfinch/internal/limit"
	"toolfinch/internal/rawjson"
	"toolfinch/internal/telemetry"
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
	parkedFor = 24 * time.Hour
	keptFor   = 10 * time.Minute
)

// Limits bound the parked calls of all Lives that serve the same clients.
type Limits struct{ parked, parkedBytes *limit.Limit }

const (
	// maxParked bounds the calls that wait for their clients, and maxParkedBytes the
	// bytes of their requests and of the notifications kept for them.
	maxParked      = 1000
	maxParkedBytes = 64 << 20
)

// NewLimits returns limits with nothing used.
func NewLimits() *Limits {
	const later = "answer what was asked, or try again later"
	return &Limits{
		parked:      limit.New("parked_calls", maxParked, "calls wait for their clients", later),
		parkedBytes: limit.New("parked_bytes", maxParkedBytes, "bytes of calls that wait for their clients", later),
	}
}

// All returns the limits.
func (b *Limits) All() []*limit.Limit { return []*limit.Limit{b.parked, b.parkedBytes} }

// parking holds the calls that wait between two requests of their client, and ends
// whatever outlives the request that began it.
type parking struct {
	gather time.Duration // tests lengthen it
	limits *Limits
	log    *slog.Logger

	life    context.Context // of what is done aside
	end     context.CancelFunc
	running sync.WaitGroup // calls that outlive the request that made them, and what is done aside

	mu      sync.Mutex // guards what follows; held for look-ups only
	byState map[string]*parked
	stopped bool // no call is parked any more
}

func newParking(limits *Limits, log *slog.Logger) *parking {
	k := &parking{gather: gather, limits: limits, log: log, byState: map[string]*parked{}}
	k.life, k.end = context.WithCancel(context.Background())
	return k
}

// stop ends all calls that are parked, and what is done aside, and waits for them.
func (k *parking) stop() {
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
func (k *parking) aside(f func(ctx context.Context)) {
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

// parked is a call of a 2026-07-28 client during which the upstream may ask its
// client something.
type parked struct {
	owner string // whose alone it is
	kind  tool.Kind
	name  string // exposed
	done  chan outcome
	wake  chan struct{} // holds one signal: something was asked
	end   context.CancelCauseFunc

	progress json.RawMessage // the progress token of the first request
	bytes    *limit.Limit    // of what is kept
	size     int64           // of the request, in bytes

	mu        sync.Mutex // guards what follows; never held over a wait or a write
	since     time.Time  // when it was parked last
	state     string     // the requestState that continues it, "" while a request waits
	ended     bool
	abandoned bool // nobody will continue it: nothing is kept any more
	asks      map[string]*asked
	count     int
	notify    func(string, json.RawMessage) // to the request that waits now; nil while none does
	missed    []missed                      // notifications meanwhile
	unread    int                           // bytes of their params
	dropped   int                           // notifications that found no room among missed
	token     json.RawMessage               // its progress token
	expire    *time.Timer
}

type missed struct {
	method string
	params json.RawMessage
}

// Bounds of the notifications kept until the client calls again, in number and in
// bytes; later ones are dropped.
const (
	maxMissed = 256
	maxUnread = 1 << 20
)

type asked struct {
	method string
	params json.RawMessage
	answer chan json.RawMessage
}

type outcome struct {
	result tool.Result
	err    error
}

// serve calls handler for a 2026-07-28 client that can be asked something.
func (k *parking) serve(ctx context.Context, x *wire.Exchange, call *tool.Call, handler tool.Handler) (tool.Result, error) {
	p, err := k.resume(call, x)
	if err != nil {
		return nil, err
	}
	if p == nil {
		if p, err = k.park(ctx, x, call, handler); err != nil {
			return nil, err
		}
	}
	return k.attend(ctx, p)
}

// attend waits for the result of a call, or what is to be asked: then the call is parked.
func (k *parking) attend(ctx context.Context, p *parked) (tool.Result, error) {
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
func (k *parking) park(ctx context.Context, x *wire.Exchange, call *tool.Call, handler tool.Handler) (*parked, error) {
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	p := &parked{
		owner: call.Owner(), kind: call.Kind, name: call.Name, end: end,
		done: make(chan outcome, 1), wake: make(chan struct{}, 1),
		asks: map[string]*asked{}, notify: x.Notify, bytes: k.limits.parkedBytes, size: int64(len(call.Params)),
	}
	p.progress = progressToken(call.Params)
	p.token = p.progress
	call.Client.Ask = func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
		if err := checkAsk(call.Client, method, params); err != nil {
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
func (k *parking) guarded(ctx context.Context, call *tool.Call, handler tool.Handler) (result tool.Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			k.log.Error("panic while handling a request", "name", call.Name, "panic", r)
			err = &tool.RPCError{Code: tool.CodeInternal, Message: "internal error"}
		}
	}()
	return handler(ctx, call)
}

// tell sends a notification to the request that waits now, or to the next.
func (p *parked) tell(method string, params json.RawMessage) {
	p.mu.Lock()
	notify, token := p.notify, p.token
	switch {
	case notify != nil || p.abandoned:
	case len(p.missed) < maxMissed && p.unread+len(params) <= maxUnread && p.bytes.Take(int64(len(params))) == nil:
		p.missed = append(p.missed, missed{method, params})
		p.unread += len(params)
	default:
		p.dropped++
	}
	p.mu.Unlock()
	if notify != nil {
		p.pass(notify, token, method, params)
	}
}

// attend makes a request the one that waits now, and sends it the notifications that
// were kept.
func (p *parked) attend(notify func(string, json.RawMessage)) {
	for {
		p.mu.Lock()
		late, token := p.missed, p.token
		p.bytes.Release(int64(p.unread))
		if p.missed, p.unread = nil, 0; len(late) == 0 {
			p.notify = notify
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		for _, m := range late {
			p.pass(notify, token, m.method, m.params)
		}
	}
}

// pass sends a notification. The upstream knows the progress token of the first
// request; pass replaces it by the token of the request that waits now.
func (p *parked) pass(notify func(string, json.RawMessage), token json.RawMessage, method string, params json.RawMessage) {
	if method == "notifications/progress" && !bytes.Equal(token, p.progress) {
		if token == nil {
			return
		}
		if own, err := rawjson.Set(params, "progressToken", token); err == nil {
			params = own
		}
	}
	notify(method, params)
}

func progressToken(params json.RawMessage) json.RawMessage {
	return rawjson.Member(rawjson.Member(params, "_meta"), "progressToken")
}

func (p *parked) ask(ctx context.Context, method string, params json.RawMessage) (result json.RawMessage, err error) {
	ctx, span := telemetry.AskClient(ctx, telemetry.Message{Method: method, Params: params})
	defer func() { endSpan(ctx, span, result, err) }()
	a := &asked{method, span.Inject(ctx, params, nil), make(chan json.RawMessage, 1)}
	p.mu.Lock()
	p.count++
	key := strconv.Itoa(p.count)
	p.asks[key] = a
	p.mu.Unlock()
	p.signal()
	select {
	case answer := <-a.answer:
		return answer, nil
	case <-ctx.Done():
		p.mu.Lock()
		delete(p.asks, key)
		p.mu.Unlock()
		return nil, context.Cause(ctx)
	}
}

func (p *parked) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

var errStopping = errors.New("the proxy is stopping")

// suspend parks the call and returns the input_required result with the requests to
// the client; nil if there are none any more.
func (k *parking) suspend(p *parked) (tool.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.asks) == 0 || p.ended {
		return nil, nil
	}
	var requests rawjson.Object
	for _, key := range slices.Sorted(maps.Keys(p.asks)) {
		var request rawjson.Object
		request.AddText("method", p.asks[key].method)
		request.Add("params", present(p.asks[key].params))
		requests.Add(key, request.JSON())
	}
	state := rand.Text()
	if err := k.keep(state, p); err != nil {
		p.end(nil)
		return nil, err
	}
	p.state, p.notify, p.since = state, nil, time.Now()
	p.expire = time.AfterFunc(parkedFor, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.abandon(state)
	})
	var result rawjson.Object
	result.AddText("resultType", inputRequired)
	result.Add("inputRequests", requests.JSON())
	result.AddText("requestState", wire.ParkedPrefix+state)
	return tool.Result(result.JSON()), nil
}

// inputRequired is the resultType of a result that has requests to the client.
const inputRequired = "input_required"

// keep parks a call. If too many or too large ones are parked, those that waited longest end,
// provided they waited for givesWay.
func (k *parking) keep(state string, p *parked) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return errStopping
	}
	err := k.limits.parked.Take(1)
	if err != nil && k.yielded() {
		err = k.limits.parked.Take(1)
	}
	if err != nil {
		return err
	}
	err = k.limits.parkedBytes.Take(p.size)
	for err != nil && k.yielded() {
		err = k.limits.parkedBytes.Take(p.size)
	}
	if err != nil {
		k.limits.parked.Release(1)
		return err
	}
	k.byState[state] = p
	return nil
}

// yielded ends the call that was parked first, if that is more than givesWay ago,
// and reports whether it did. The caller holds the lock.
func (k *parking) yielded() bool {
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
func (k *parking) abandon(state string) {
	if p := k.take(state); p != nil {
		p.abandon()
	}
}

// take takes out a parked call, nil if there is none of that state. The caller holds the lock.
func (k *parking) take(state string) *parked {
	p := k.byState[state]
	if p != nil {
		delete(k.byState, state)
		k.limits.parked.Release(1)
		k.limits.parkedBytes.Release(p.size)
	}
	return p
}

// abandon ends a call that nobody will continue.
func (p *parked) abandon() {
	p.mu.Lock()
	p.bytes.Release(int64(p.unread))
	p.missed, p.unread, p.abandoned = nil, 0, true
	p.mu.Unlock()
	p.end(nil)
}

// resume returns the parked call that a request continues, after it delivered the
// client's answers; nil if the request continues none.
func (k *parking) resume(call *tool.Call, x *wire.Exchange) (*parked, error) {
	state, ours := wire.ParkedState(call.Params)
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
		if a := p.asks[key]; a != nil {
			delete(p.asks, key)
			a.answer <- value
		}
	}
	if len(p.asks) > 0 {
		p.signal() // asked again, with a new state
	}
	return p, nil
}
