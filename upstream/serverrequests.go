package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/tool"
	"toolfinch/upstream/conn"
)

const (
	maxAsks     = 1024     // open requests of a server over one connection
	maxAskBytes = 64 << 20 // bytes of the params of these requests
	maxAsked    = 32       // requests that a client is asked at a time; others wait
	maxCallAsks = 256      // requests in the course of one call
	// clearWithin bounds the wait until a request can belong to one client only.
	// clearNextWithin is the bound if another request waits too, because two requests may
	// wait for each other.
	clearWithin     = 10 * time.Second
	clearNextWithin = time.Second
)

var (
	errWithdrawn = errors.New("the server has withdrawn its request")
	errUnclear   = &tool.RPCError{Code: tool.CodeInternal, Message: "cannot tell which client this is for; call again"}
)

// serverRequests are the open requests of a legacy server to clients over one connection.
type serverRequests struct {
	conn      *conn.Conn
	calls     *calls
	users     *users
	roots     *roots
	questions *questions
	log       *slog.Logger
	asked     chan struct{} // one for each request that the client is asked

	mu      sync.Mutex                         // guards the fields below; never held over I/O
	cancel  map[string]context.CancelCauseFunc // by the ID of the request
	count   int                                // open requests, including requests being answered
	bytes   int                                // length of the params of the open requests
	unclear int                                // requests that wait until their client is known
}

// take answers a request of the server, without waiting for the answer.
func (a *serverRequests) take(stream int64, id json.RawMessage, method string, params json.RawMessage) {
	c := a.conn
	if len(id) > maxAskID || id[0] == '{' || id[0] == '[' {
		return // no answer could name the request
	}
	ctx, cancel := context.WithCancelCause(c.Life)
	full, twice := a.begin(string(id), len(params), cancel)
	if full || twice { // a repeated ID is answered once
		cancel(nil)
		if !twice && c.Transport == TransportStdio { // over HTTP the refusal itself would need a goroutine
			c.Respond(id, nil, &tool.RPCError{Code: tool.CodeInternal, Message: "too many requests at once"})
		}
		return
	}
	came := time.Now()
	first := a.calls.suspect(stream, tool.Asks[method]) // before the answer of the call can be read
	c.Go(func() {
		result, question, err := a.answer(ctx, first, came, id, method, params)
		// After a call gave way, the server would take an answer for the client's refusal.
		unwanted := errors.Is(context.Cause(ctx), errWithdrawn) || errors.Is(err, errGaveWay)
		a.mu.Lock()
		delete(a.cancel, string(id))
		a.mu.Unlock()
		cancel(nil)
		if !unwanted {
			c.Respond(id, result, a.refusal(err))
		}
		a.roots.wasSent(question)
		a.mu.Lock()
		a.count--
		a.bytes -= len(params)
		a.mu.Unlock()
	})
}

// begin registers a request, unless there are too many or its ID is in use.
func (a *serverRequests) begin(id string, size int, cancel context.CancelCauseFunc) (full, twice bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, twice = a.cancel[id]
	full = a.count >= maxAsks || a.count > 0 && a.bytes+size > maxAskBytes
	if !full && !twice {
		a.cancel[id] = cancel
		a.count++
		a.bytes += size
	}
	return full, twice
}

// withdraw ends a request that the server has cancelled.
func (a *serverRequests) withdraw(id json.RawMessage) {
	a.mu.Lock()
	cancel := a.cancel[string(id)]
	a.mu.Unlock()
	if cancel != nil {
		cancel(errWithdrawn)
	}
}

// refusal returns the error that the server is sent; nil for none.
func (a *serverRequests) refusal(err error) *tool.RPCError {
	if err == nil {
		return nil
	}
	rpc := new(tool.RPCError)
	if errors.As(err, &rpc) {
		return rpc
	}
	a.log.Debug("a request of the upstream was not answered", "error", err)
	rpc = &tool.RPCError{Code: tool.CodeInternal, Message: "the client gave no answer"}
	if errors.Is(err, ErrTimeout) { // the proxy's own error has no internals
		rpc.Message = err.Error()
	}
	return rpc
}

// answer finds the client that a request is for, and asks it. first are the calls that the
// request could belong to when it came. question numbers requests for roots.
func (a *serverRequests) answer(ctx context.Context, first suspects, came time.Time, id json.RawMessage, method string, params json.RawMessage) (result json.RawMessage, question int, err error) {
	c := a.conn
	if method == "ping" {
		return nil, 0, nil
	}
	capability, ok := tool.Asks[method]
	if !ok {
		return nil, 0, &tool.RPCError{Code: tool.CodeMethodNotFound, Message: "there is no method " + strconv.Quote(method)}
	}
	select { // the server may ask before the handshake is complete
	case <-c.Ready:
	case <-ctx.Done():
		return nil, 0, context.Cause(ctx)
	}
	if c.Era != EraLegacy { // a 2026-07-28 server asks in the result of a call
		return nil, 0, &tool.RPCError{Code: tool.CodeMethodNotFound, Message: "this revision of the protocol has no requests to clients"}
	}
	a.questions.note()
	if method == methodRoots {
		a.users.wantRoots()
		question = a.roots.wasAsked()
		if len(first.calls) == 0 {
			a.questions.asksRoots()
			first = a.calls.suspect(0, capability) // the roots apply to calls that came meanwhile, too
		}
	}
	of, err := a.resolve(ctx, first, capability)
	call := ctx
	if len(of) > 0 {
		call = of[0].ctx
	}
	ctx, done := c.Answering(ctx, call, came, id, method, params)
	if err == nil {
		result, err = a.ask(ctx, of, method, params)
	}
	done(result, err)
	return result, question, err
}

// ask asks the client of calls. Without calls it asks the only user of the connection.
func (a *serverRequests) ask(ctx context.Context, of []*call, method string, params json.RawMessage) (result json.RawMessage, err error) {
	if len(of) > 0 && of[0].asked.Add(1) > maxCallAsks {
		return nil, &tool.RPCError{Code: tool.CodeInternal, Message: "too many requests in one call"}
	}
	select {
	case a.asked <- struct{}{}:
		defer func() { <-a.asked }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if len(of) == 0 {
		return a.askUser(ctx, method, params)
	}
	result = of[0].roots.answer(method, params)
	if result == nil {
		result, err = a.questions.ask(ctx, of, method, params)
	}
	var rpc *tool.RPCError
	if errors.As(err, &rpc) && rpc.Code == tool.CodeMissingCapability {
		if method != methodRoots { // questions for roots do not depend on the call
			of[0].cancel(rpc) // the error is the answer to the whole call
		}
		return nil, &tool.RPCError{Code: tool.CodeMethodNotFound, Message: rpc.Message}
	}
	if method == methodRoots && err != nil && !slices.ContainsFunc(of, (*call).isOpen) && ctx.Err() == nil {
		return a.askUser(ctx, method, params) // the call has ended, but the session still has roots
	}
	if method == methodRoots && err == nil {
		of[0].roots.learn(of[0].Client, result)
		err = a.waitToTell(ctx, of[0], result)
	}
	return result, err
}

// resolve returns the calls that a request may belong to; none if no call is in flight. It
// waits until all calls in flight are of one client.
func (a *serverRequests) resolve(ctx context.Context, seen suspects, capability string) ([]*call, error) {
	if !seen.unclear {
		return seen.calls, seen.err
	}
	patience, done := a.patience()
	defer done()
	for seen.unclear {
		select {
		case <-seen.changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-patience:
			return nil, errUnclear
		}
		seen = a.calls.suspect(0, capability)
	}
	return seen.calls, seen.err
}

// wait adds n to the number of requests that wait until their client is known.
func (a *serverRequests) wait(n int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unclear += n
	return a.unclear
}

// askUser asks the only user of the connection outside of a call.
func (a *serverRequests) askUser(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	q, key := a.questions, a.users.session()
	switch {
	case q.events.Ask != nil && key != "":
		ctx, end := q.patient(ctx)
		defer end()
		ask := q.events.Ask
		if method == methodRoots {
			ask = a.roots.ask
		}
		result, err := ask(ctx, key, method, params)
		if method == methodRoots && err == nil {
			if may, _ := a.roots.mayTell(ownerSession(key), key, result); !may {
				return noRoots, nil // the server knows another owner's roots by now
			}
		}
		return result, askError(ctx, err)
	case method == methodRoots:
		return noRoots, nil
	}
	return nil, &tool.RPCError{Code: tool.CodeMethodNotFound, Message: "no client is making a call that this could be for"}
}

// waitToTell waits until the server may be told the roots of a call's client: no call of
// another client is in flight.
func (a *serverRequests) waitToTell(ctx context.Context, of *call, result json.RawMessage) error {
	patience, done := a.patience()
	defer done()
	for {
		may, later := a.roots.mayTell(of.rootsOwner(), of.key(), result)
		if may {
			return nil
		}
		if later == nil {
			return errUnclear
		}
		select {
		case <-later:
		case <-patience:
			return errUnclear
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// patience returns a channel that ends a request's wait until its client is known.
func (a *serverRequests) patience() (over <-chan time.Time, done func()) {
	limit := leeway.Of(clearWithin)
	if a.wait(1) > 1 {
		limit = leeway.Of(clearNextWithin)
	}
	timer := time.NewTimer(limit)
	return timer.C, func() { timer.Stop(); a.wait(-1) }
}
