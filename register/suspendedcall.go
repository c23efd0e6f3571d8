package register

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"

	"toolfinch/internal/limit"
	"toolfinch/internal/rawjson"
	"toolfinch/internal/telemetry"
	"toolfinch/tool"
)

// parked is a call of a 2026-07-28 client during which the upstream may ask its
// client something.
type suspendedCall struct {
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
	requests  map[string]*pendingRequest
	count     int
	notify    func(string, json.RawMessage) // to the request that waits now; nil while none does
	waiting   []notification                // notifications meanwhile
	unread    int                           // bytes of their params
	dropped   int                           // notifications that found no room among missed
	token     json.RawMessage               // its progress token
	expire    *time.Timer
}

// tell sends a notification to the request that waits now, or to the next.
func (p *suspendedCall) tell(method string, params json.RawMessage) {
	p.mu.Lock()
	notify, token := p.notify, p.token
	switch {
	case notify != nil || p.abandoned:
	case len(p.waiting) < maxMissed && p.unread+len(params) <= maxUnread && p.bytes.Take(int64(len(params))) == nil:
		p.waiting = append(p.waiting, notification{method, params})
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
func (p *suspendedCall) attend(notify func(string, json.RawMessage)) {
	for {
		p.mu.Lock()
		late, token := p.waiting, p.token
		p.bytes.Release(int64(p.unread))
		if p.waiting, p.unread = nil, 0; len(late) == 0 {
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
func (p *suspendedCall) pass(notify func(string, json.RawMessage), token json.RawMessage, method string, params json.RawMessage) {
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

func (p *suspendedCall) ask(ctx context.Context, method string, params json.RawMessage) (result json.RawMessage, err error) {
	ctx, span := telemetry.AskClient(ctx, telemetry.Message{Method: method, Params: params})
	defer func() { endSpan(ctx, span, result, err) }()
	a := &pendingRequest{method, span.Inject(ctx, params, nil), make(chan json.RawMessage, 1)}
	p.mu.Lock()
	p.count++
	key := strconv.Itoa(p.count)
	p.requests[key] = a
	p.mu.Unlock()
	p.signal()
	select {
	case answer := <-a.answer:
		return answer, nil
	case <-ctx.Done():
		p.mu.Lock()
		delete(p.requests, key)
		p.mu.Unlock()
		return nil, context.Cause(ctx)
	}
}

func (p *suspendedCall) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// abandon ends a call that nobody will continue.
func (p *suspendedCall) abandon() {
	p.mu.Lock()
	p.bytes.Release(int64(p.unread))
	p.waiting, p.unread, p.abandoned = nil, 0, true
	p.mu.Unlock()
	p.end(nil)
}

type pendingRequest struct {
	method string
	params json.RawMessage
	answer chan json.RawMessage
}

type outcome struct {
	result tool.Result
	err    error
}

// Bounds of the notifications kept until the client calls again, in number and in
// bytes; later ones are dropped.
const (
	maxMissed = 256
	maxUnread = 1 << 20
)

// present returns params to send: roots/list needs none, but the client of the Go SDK insists.
func present(params json.RawMessage) json.RawMessage {
	if params == nil {
		return json.RawMessage(`{}`)
	}
	return params
}

// endSpan ends the span of a request to a client with its answer.
func endSpan(ctx context.Context, span *telemetry.Span, result json.RawMessage, err error) {
	rpc, ok := errors.AsType[*tool.RPCError](err)
	switch {
	case err == nil:
		span.Result(result)
	case ok:
		span.Refused(rpc.Code)
	case errors.Is(err, errClientGone):
		span.Failed("connection_closed")
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		span.Failed("timeout")
	default:
		span.Failed("cancelled")
	}
}
