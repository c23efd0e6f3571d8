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

// suspendedCall is a call of a 2026-07-28 client during which the upstream may ask the client.
type suspendedCall struct {
	owner string // only this owner may continue it
	kind  tool.Kind
	name  string // exposed
	done  chan outcome
	wake  chan struct{} // holds one signal: a request was added
	end   context.CancelCauseFunc

	progress json.RawMessage // the progress token of the first request
	bytes    *limit.Limit    // the limit of kept bytes
	size     int64           // of the request, in bytes

	mu           sync.Mutex // guards the fields below; never held over a wait or a write
	since        time.Time  // the last suspension
	state        string     // the requestState that continues the call, "" while a request waits
	ended        bool
	abandoned    bool // nobody will continue the call: notifications are not kept
	requests     map[string]*pendingRequest
	count        int
	notify       func(string, json.RawMessage) // sends to the waiting request; nil without one
	waiting      []notification                // notifications for the next request
	waitingBytes int                           // bytes of their params
	dropped      int                           // notifications without room in waiting
	token        json.RawMessage               // the progress token of the waiting request
	expire       *time.Timer
}

// tell sends a notification to the waiting request, or keeps it for the next.
func (p *suspendedCall) tell(method string, params json.RawMessage) {
	p.mu.Lock()
	notify, token := p.notify, p.token
	switch {
	case notify != nil || p.abandoned:
	case len(p.waiting) < maxMissed && p.waitingBytes+len(params) <= maxUnread && p.bytes.Take(int64(len(params))) == nil:
		p.waiting = append(p.waiting, notification{method, params})
		p.waitingBytes += len(params)
	default:
		p.dropped++
	}
	p.mu.Unlock()
	if notify != nil {
		p.pass(notify, token, method, params)
	}
}

// attend makes a request the waiting one, and sends it the kept notifications.
func (p *suspendedCall) attend(notify func(string, json.RawMessage)) {
	for {
		p.mu.Lock()
		late, token := p.waiting, p.token
		p.bytes.Release(int64(p.waitingBytes))
		if p.waiting, p.waitingBytes = nil, 0; len(late) == 0 {
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

// pass sends a notification. The upstream knows the progress token of the first request; pass replaces
// it by the token of the waiting request.
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
	p.bytes.Release(int64(p.waitingBytes))
	p.waiting, p.waitingBytes, p.abandoned = nil, 0, true
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

// Bounds of the kept notifications, in number and in bytes; later ones are dropped.
const (
	maxMissed = 256
	maxUnread = 1 << 20
)

// present returns params, or an empty object: roots/list needs no params, but the client of the Go SDK
// does.
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
