package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"toolfinch/tool"
)

// What a legacy server may ask a client.
const (
	methodElicit = "elicitation/create"
	methodRoots  = "roots/list"
)

const (
	maxAsks     = 1024     // requests of a server over one connection that are being answered
	maxAskBytes = 64 << 20 // of their params, together
	maxAskID    = 1 << 10  // bytes
	// How long to wait until there is but one client that a request can be for;
	// less when another request waits: they may be each other's obstacle.
	clearWithin     = 10 * time.Second
	clearNextWithin = time.Second
)

var (
	errWithdrawn = errors.New("the server has withdrawn its request")
	errUnclear   = &tool.RPCError{Code: tool.CodeInternal, Message: "cannot tell which client this is for; call again"}
	noRoots      = json.RawMessage(`{"roots":[]}`)
)

// asks are the requests of the server over one connection that are being answered.
type asks struct {
	over *connection

	mu      sync.Mutex                         // guards what follows; never held over I/O
	cancel  map[string]context.CancelCauseFunc // by their ID
	count   int                                // with those whose answer is on its way
	bytes   int                                // of their params
	unclear int                                // how many wait to know whom they are for
}

// Asked gets a request of the server.
func (c *connection) Asked(stream int64, id json.RawMessage, method string, params json.RawMessage) {
	a := &c.asks
	if len(id) > maxAskID || id[0] == '{' || id[0] == '[' {
		return // no answer could name it
	}
	ctx, cancel := context.WithCancelCause(c.Life)
	full, twice := a.begin(string(id), len(params), cancel)
	if full || twice { // what is asked twice is answered once
		cancel(nil)
		if !twice && c.Transport == TransportStdio { // a goroutine for each over HTTP is what the limit is against
			c.Respond(id, nil, &tool.RPCError{Code: tool.CodeInternal, Message: "too many requests at once"})
		}
		return
	}
	came := time.Now()
	first := c.calls.suspect(stream, tool.Asks[method]) // before the answer of the call can have been read
	c.Go(func() {
		result, question, err := a.answer(ctx, first, came, id, method, params)
		// With an answer after it gave way, the server would end the call as if the client had refused.
		unwanted := errors.Is(context.Cause(ctx), errWithdrawn) || errors.Is(err, errGaveWay)
		a.mu.Lock()
		delete(a.cancel, string(id))
		a.mu.Unlock()
		cancel(nil)
		if !unwanted {
			c.Respond(id, result, c.refusal(err))
		}
		c.roots.wasSent(question)
		a.mu.Lock()
		a.count--
		a.bytes -= len(params)
		a.mu.Unlock()
	})
}

// begin counts a request in, unless there are too many or its ID is in use.
func (a *asks) begin(id string, size int, cancel context.CancelCauseFunc) (full, twice bool) {
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

// withdraw ends what the server does not want to know any more.
func (a *asks) withdraw(id json.RawMessage) {
	a.mu.Lock()
	cancel := a.cancel[string(id)]
	a.mu.Unlock()
	if cancel != nil {
		cancel(errWithdrawn)
	}
}

// refusal is what the server is told of an error, nil for none.
func (c *connection) refusal(err error) *tool.RPCError {
	if err == nil {
		return nil
	}
	rpc := new(tool.RPCError)
	if errors.As(err, &rpc) {
		return rpc
	}
	c.log.Debug("a request of the upstream was not answered", "error", err)
	rpc = &tool.RPCError{Code: tool.CodeInternal, Message: "the client gave no answer"}
	if errors.Is(err, ErrTimeout) { // ours: it has no internals
		rpc.Message = err.Error()
	}
	return rpc
}

// answer finds out whom a request of the server is for, and asks. first are the
// calls that it could belong to when it came. A question for roots has a number.
func (a *asks) answer(ctx context.Context, first suspects, came time.Time, id json.RawMessage, method string, params json.RawMessage) (result json.RawMessage, question int, err error) {
	c := a.over
	if method == "ping" {
		return nil, 0, nil
	}
	capability, ok := tool.Asks[method]
	if !ok {
		return nil, 0, &tool.RPCError{Code: tool.CodeMethodNotFound, Message: "there is no method " + strconv.Quote(method)}
	}
	select { // the server may ask before the handshake has come to its end here
	case <-c.Ready:
	case <-ctx.Done():
		return nil, 0, context.Cause(ctx)
	}
	if c.Era != EraLegacy { // which asks within the answer to a call, and is told nothing else
		return nil, 0, &tool.RPCError{Code: tool.CodeMethodNotFound, Message: "this revision of the protocol has no requests to clients"}
	}
	c.server.questions.note()
	if method == methodRoots {
		c.users.wantRoots()
		question = c.roots.wasAsked()
		if len(first.calls) == 0 {
			c.server.questions.asksRoots()
			first = c.calls.suspect(0, capability) // for whoever has come meanwhile they are wanted, too
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

// ask asks the client of calls, of which there may be none.
func (a *asks) ask(ctx context.Context, of []*call, method string, params json.RawMessage) (result json.RawMessage, err error) {
	if len(of) == 0 {
		return a.askUser(ctx, method, params)
	}
	c := a.over
	result = of[0].knownRoots(method, params)
	if result == nil {
		result, err = c.server.questions.ask(ctx, of, method, params)
	}
	var rpc *tool.RPCError
	if errors.As(err, &rpc) && rpc.Code == tool.CodeMissingCapability {
		if method != methodRoots { // for roots a server asks as soon as its client is another, whatever is called
			of[0].cancel(rpc) // it is the answer to the whole call
		}
		return nil, &tool.RPCError{Code: tool.CodeMethodNotFound, Message: rpc.Message}
	}
	if method == methodRoots && err != nil && !slices.ContainsFunc(of, (*call).isOpen) && ctx.Err() == nil {
		return a.askUser(ctx, method, params) // a call that just ended was not what they are wanted for
	}
	if method == methodRoots && err == nil {
		of[0].knowRoots(result)
		err = a.mayTell(ctx, of[0], result)
	}
	return result, err
}

// resolve returns the calls of which one is what a request belongs to, none when
// none is in flight. It waits until all calls in flight are of one client.
func (a *asks) resolve(ctx context.Context, seen suspects, capability string) ([]*call, error) {
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
		seen = a.over.calls.suspect(0, capability)
	}
	return seen.calls, seen.err
}

// wait counts those that wait to know whom they are for.
func (a *asks) wait(n int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unclear += n
	return a.unclear
}

// askUser asks the only user of the connection, outside of a call.
func (a *asks) askUser(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	c := a.over
	q, key := &c.server.questions, c.users.session()
	switch {
	case q.events.Ask != nil && key != "":
		ctx, end := q.patient(ctx)
		defer end()
		ask := q.events.Ask
		if method == methodRoots {
			ask = c.roots.ask
		}
		result, err := ask(ctx, key, method, params)
		if method == methodRoots && err == nil {
			if may, _ := c.tell(ofSession(key), key, result); !may {
				return noRoots, nil // the connection is another's by now
			}
		}
		return result, askError(ctx, err)
	case method == methodRoots:
		return noRoots, nil
	}
	return nil, &tool.RPCError{Code: tool.CodeMethodNotFound, Message: "no client is making a call that this could be for"}
}
