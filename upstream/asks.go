package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"toolfinch/rawjson"
	"toolfinch/tool"
)

// What a legacy server may ask a client.
const (
	methodElicit = "elicitation/create"
	methodSample = "sampling/createMessage"
	methodRoots  = "roots/list"
)

const (
	maxAsks      = 1024             // requests of a server over one connection that are being answered
	maxAskBytes  = 64 << 20         // of their params, together
	maxAskID     = 1 << 10          // bytes
	answerWithin = 10 * time.Second // for a message of ours to arrive
	// How long to wait until there is but one client that a request can be for;
	// less when another request waits: they may be each other's obstacle.
	causeWithin   = 10 * time.Second
	causeNextTo   = time.Second
	maxRemembered = 1000 // elicitation IDs of a server
)

var (
	errWithdrawn = errors.New("the server has withdrawn its request")
	noRoots      = json.RawMessage(`{"roots":[]}`)
)

// requested gets a request of the upstream. It runs on the read loop, so it
// hands on and returns. mcp-go would answer some transports' requests, others'
// never, and unknown methods with the wrong code.
func (c *conn) requested(stream int64, id json.RawMessage, method string, params json.RawMessage) {
	if len(id) > maxAskID || id[0] == '{' || id[0] == '[' {
		return // no answer could name it
	}
	ctx, cancel := context.WithCancelCause(c.life)
	c.mu.Lock()
	_, twice := c.asks[string(id)]
	full := c.asking >= maxAsks || c.asking > 0 && c.askBytes+len(params) > maxAskBytes
	if !full && !twice {
		c.asks[string(id)] = cancel
		c.asking++
		c.askBytes += len(params)
	}
	c.mu.Unlock()
	if full || twice { // what is asked twice is answered once
		cancel(nil)
		if !twice && c.queue != nil { // a goroutine for each over HTTP is what the limit is against
			c.respond(id, nil, &tool.RPCError{Code: tool.CodeInternal, Message: "too many requests at once"})
		}
		return
	}
	first := c.look(stream, tool.Asks[method]) // before the answer of the call can have been read
	c.spawn(func() {
		result, err := c.ask(ctx, first, method, params)
		withdrawn := errors.Is(context.Cause(ctx), errWithdrawn)
		c.mu.Lock()
		delete(c.asks, string(id))
		c.mu.Unlock()
		cancel(nil)
		if !withdrawn {
			c.respond(id, result, err)
		}
		if method == methodRoots {
			c.rootsSent()
		}
		c.mu.Lock()
		c.asking--
		c.askBytes -= len(params)
		c.mu.Unlock()
	})
}

// withdraw ends what the server does not want to know any more.
func (c *conn) withdraw(id json.RawMessage) {
	c.mu.Lock()
	cancel := c.asks[string(id)]
	c.mu.Unlock()
	if cancel != nil {
		cancel(errWithdrawn)
	}
}

// respond answers a request of the upstream.
func (c *conn) respond(id, result json.RawMessage, err error) {
	member, value := `,"result":`, result
	if err != nil {
		rpc := new(tool.RPCError)
		if !errors.As(err, &rpc) {
			c.log.Debug("a request of the upstream was not answered", "error", err)
			rpc = &tool.RPCError{Code: tool.CodeInternal, Message: "the client gave no answer"}
			if errors.Is(err, ErrTimeout) { // ours: it has no internals
				rpc.Message = err.Error()
			}
		}
		member, value = `,"error":`, rpc.JSON()
	}
	if len(value) == 0 {
		value = json.RawMessage(`{}`)
	}
	message := append(append([]byte(`{"jsonrpc":"2.0","id":`), id...), member...)
	message = append(append(message, rawjson.OneLine(value)...), '}')
	ctx, cancel := context.WithTimeout(c.life, answerWithin)
	defer cancel()
	if err := c.send(ctx, message); err != nil && !c.dead() {
		c.log.Debug("the answer to a request of the upstream was not sent", "error", clean(err))
	}
}

// ask finds out whom a request of the upstream is for, and asks.
func (c *conn) ask(ctx context.Context, first sight, method string, params json.RawMessage) (json.RawMessage, error) {
	if method == "ping" {
		return nil, nil
	}
	capability, ok := tool.Asks[method]
	if !ok {
		return nil, &tool.RPCError{Code: tool.CodeMethodNotFound, Message: "there is no method " + strconv.Quote(method)}
	}
	select { // the server may ask before the handshake has come to its end here
	case <-c.ready:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if c.era == EraLegacy {
		c.server.asks()
	}
	if method == methodRoots {
		c.mu.Lock()
		c.users.roots = true
		c.mu.Unlock()
		if len(first.flights) == 0 {
			c.server.forRoots(true)
		}
	}
	of, err := c.cause(ctx, first, capability)
	switch {
	case err != nil:
		return nil, err
	case len(of) == 0:
		return c.askOwner(ctx, method, params)
	}
	result, err := c.server.askClient(ctx, of, method, params)
	var rpc *tool.RPCError
	if errors.As(err, &rpc) && rpc.Code == tool.CodeMissingCapability {
		if method != methodRoots { // for roots a server asks as soon as its client is another, whatever is called
			of[0].cancel(rpc) // it is the answer to the whole call
		}
		return nil, &tool.RPCError{Code: tool.CodeMethodNotFound, Message: rpc.Message}
	}
	if method == methodRoots && err != nil && !slices.ContainsFunc(of, (*flight).flying) && ctx.Err() == nil {
		return c.askOwner(ctx, method, params) // a call that just ended was not what they are wanted for
	}
	return result, err
}

// sight is which calls a request of the upstream may belong to, at one moment.
type sight struct {
	flights []*flight // of one client, the latest first; none when none is in flight
	unclear bool      // calls of several clients are, and one of these could answer
	err     error     // several are, and none could
	changed <-chan struct{}
}

// look looks. stream is the ID of the request that the question came on the
// stream of, if it did; nothing else says what it belongs to.
func (c *conn) look(stream int64, capability string) sight {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.flights[stream]; f != nil {
		return sight{flights: []*flight{f}}
	}
	var flights []*flight
	several, able := false, false
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(c.flights))) {
		if !c.tap.Waits(id) {
			continue // answered
		}
		f := c.flights[id]
		flights = append(flights, f)
		several = several || f.key() != flights[0].key()
		able = able || f.call.Client.Can(capability)
	}
	seen := sight{flights: flights, unclear: several && able, changed: c.landed}
	if several && !able {
		seen.err = cannot(capability)
	}
	return seen
}

// cause returns the calls of which one is what a request of the upstream
// belongs to, none when none is in flight. It waits until all calls in flight
// are of one client.
func (c *conn) cause(ctx context.Context, seen sight, capability string) ([]*flight, error) {
	if !seen.unclear {
		return seen.flights, seen.err
	}
	c.mu.Lock()
	limit := causeWithin
	if c.waiting > 0 {
		limit = causeNextTo
	}
	c.waiting++
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.waiting--
		c.mu.Unlock()
	}()
	patience := time.NewTimer(limit)
	defer patience.Stop()
	for seen.unclear {
		select {
		case <-seen.changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-patience.C:
			return nil, &tool.RPCError{Code: tool.CodeInternal, Message: "cannot tell which client this is for; call again"}
		}
		seen = c.look(0, capability)
	}
	return seen.flights, seen.err
}

func cannot(capability string) error {
	return &tool.RPCError{Code: tool.CodeMethodNotFound, Message: "the client does not support " + capability}
}

// askClient asks the client of calls, whose deadlines wait meanwhile. Which of
// them wants to know may be uncertain: the question stands until all have ended.
func (s *server) askClient(ctx context.Context, of []*flight, method string, params json.RawMessage) (json.RawMessage, error) {
	client := of[0].call.Client
	if client == nil || client.Ask == nil {
		return nil, cannot(tool.Asks[method])
	}
	if method == methodElicit {
		s.remember(params, client.Key)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	flying := new(atomic.Int64)
	flying.Store(int64(len(of)))
	for _, f := range of {
		defer context.AfterFunc(f.air, func() {
			if flying.Add(-1) == 0 {
				cancel(context.Cause(f.air))
			}
		})()
		f.hold()
		defer f.release()
	}
	ctx, end := s.patient(ctx)
	defer end()
	if len(of) > 1 && s.events.Reaches != nil && s.events.Ask != nil && s.events.Reaches(client.Key) {
		// Beside one of the calls, that one's answer would wait for a human.
		result, err := s.events.Ask(ctx, client.Key, method, params)
		return result, s.asked(ctx, err)
	}
	for _, f := range of {
		result, carried, err := f.carry(ctx, method, params)
		if carried || ctx.Err() != nil || errors.As(err, new(*tool.RPCError)) {
			return result, s.asked(ctx, err)
		}
	}
	return nil, context.Canceled
}

// askOwner asks the one client that a connection belongs to, outside of a call.
func (c *conn) askOwner(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	c.mu.Lock()
	u := c.users
	c.mu.Unlock()
	ask := c.server.events.Ask
	switch {
	case ask != nil && u.count == usedByOne && u.legacy && u.key != "":
		ctx, end := c.server.patient(ctx)
		defer end()
		if method == methodRoots {
			result, err := c.askRoots(ctx, u.key, params)
			return result, c.server.asked(ctx, err)
		}
		result, err := ask(ctx, u.key, method, params)
		return result, c.server.asked(ctx, err)
	case method == methodRoots:
		return noRoots, nil
	}
	return nil, &tool.RPCError{Code: tool.CodeMethodNotFound, Message: "no client is making a call that this could be for"}
}

func (s *server) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := s.limits.Load().ask
	return context.WithTimeoutCause(ctx, limit,
		fmt.Errorf("%w: the client did not answer within %s", ErrTimeout, limit))
}

// asked is err with the reason for which asking ended, if it did.
func (s *server) asked(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && !errors.As(err, new(*tool.RPCError)) {
		return context.Cause(ctx)
	}
	return err
}

// asks notes that the server asks clients something.
func (s *server) asks() {
	s.mu.Lock()
	known := s.interactive
	s.interactive = true
	s.mu.Unlock()
	if !known {
		close(s.hasAsked)
		s.changed()
	}
}

// remember notes which client is to open a URL, so that it learns when that is
// done. params are those of elicitation/create.
func (s *server) remember(params json.RawMessage, key string) {
	id := rawjson.Text(rawjson.Member(params, "elicitationId"))
	if id == "" || len(id) > maxAskID || key == "" || rawjson.Text(rawjson.Member(params, "mode")) != "url" {
		return
	}
	s.opened.add(id, key)
}

// openURLs are the keys of clients by the ID of the URL they were asked to open.
// A server that was changed and its successor share them: either may ask, and
// either may be told that it is done.
type openURLs struct {
	mu      sync.Mutex // guards what follows; never held over I/O
	clients map[string]string
	order   []string // the same IDs, the oldest first
}

func (o *openURLs) add(id, key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.clients[id]; !known {
		if o.order = append(o.order, id); len(o.order) > maxRemembered {
			delete(o.clients, o.order[0])
			o.order = o.order[1:]
		}
	}
	o.clients[id] = key
}

// client is the key of the client that opens the URL of an ID, "" for none.
func (o *openURLs) client(id string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.clients[id]
}

// completed passes on that a URL was dealt with, to the client that has it.
func (c *conn) completed(params json.RawMessage) {
	s := c.server
	key := s.opened.client(rawjson.Text(rawjson.Member(params, "elicitationId")))
	if key == "" {
		return
	}
	const method = "notifications/elicitation/complete"
	c.mu.Lock()
	var latest int64
	for id, f := range c.flights {
		if f.key() == key {
			latest = max(latest, id)
		}
	}
	f := c.flights[latest]
	c.mu.Unlock()
	switch {
	case f != nil:
		c.pass(0, f, method, params)
	case s.events.Notify != nil:
		s.events.Notify(key, method, params)
	}
}
