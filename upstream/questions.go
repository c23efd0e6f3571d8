package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// questions are what a server asks clients, over whatever connection: whether it
// asks any, and which client is to open which URL.
type questions struct {
	events  Events
	limits  *atomic.Pointer[limits]
	changed func()        // the server has begun to ask
	begun   chan struct{} // closed when it has
	opened  *openURLs

	mu          sync.Mutex // guards what follows; never held over I/O
	interactive bool       // it has asked clients something
	roots       bool       // it asks for roots by itself
	rootsAgain  bool       // it has asked for them when told that they are others
	rootsTold   bool       // it knows those of some client
}

// note notes that the server asks clients something.
func (q *questions) note() {
	if q.learn() {
		q.changed()
	}
}

// learn is note where others know it already. It reports whether it is new here.
func (q *questions) learn() (fresh bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	fresh = !q.interactive
	if q.interactive = true; fresh {
		close(q.begun)
	}
	return fresh
}

// any reports whether the server has asked clients something.
func (q *questions) any() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.interactive
}

// wantsRoots reports whether the server asks for roots by itself: at the start, and
// when they are others.
func (q *questions) wantsRoots() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.roots
}

// asksRoots notes that the server asks for roots by itself.
func (q *questions) asksRoots() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.roots = true
}

// asksAgain notes that the server has asked for roots when it was told that they
// are others.
func (q *questions) asksAgain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.rootsAgain = true
}

// noAnswer notes that the server has not asked for roots in time, and reports
// whether it is one that does not: then nobody waits for that again.
func (q *questions) noAnswer() (never bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.roots = q.rootsAgain
	return !q.rootsAgain
}

// ask asks the client of calls, whose clocks wait meanwhile. Which of them wants to
// know may be uncertain: the question stands until all have ended.
func (q *questions) ask(ctx context.Context, of []*call, method string, params json.RawMessage) (json.RawMessage, error) {
	client := of[0].Client
	if client == nil || client.Ask == nil {
		return nil, cannot(tool.Asks[method])
	}
	if method == methodElicit {
		q.opened.add(params, client.Key)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	open := new(atomic.Int64)
	open.Store(int64(len(of)))
	for _, c := range of {
		defer context.AfterFunc(c.open, func() {
			if open.Add(-1) == 0 {
				cancel(context.Cause(c.open))
			}
		})()
		c.clock.hold()
		defer c.clock.release()
	}
	ctx, end := q.patient(ctx)
	defer end()
	if len(of) > 1 && q.events.Reaches != nil && q.events.Ask != nil && q.events.Reaches(client.Key) {
		// Beside one of the calls, that one's answer would wait for a human.
		result, err := q.events.Ask(ctx, client.Key, method, params)
		return result, askError(ctx, err)
	}
	for _, c := range of {
		result, done, err := c.ask(ctx, method, params)
		if done || ctx.Err() != nil || errors.As(err, new(*tool.RPCError)) {
			return result, askError(ctx, err)
		}
	}
	return nil, cmp.Or(context.Cause(of[len(of)-1].ctx), context.Canceled)
}

// patient bounds how long a client may take to answer.
func (q *questions) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := q.limits.Load().ask
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w: the client did not answer within %s", ErrTimeout, limit))
}

// askError is err with the reason for which asking ended, if it did.
func askError(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && !errors.As(err, new(*tool.RPCError)) {
		return context.Cause(ctx)
	}
	return err
}

// maxOpened is how many URLs of a server are remembered with their clients.
const maxOpened = 1000

// openURLs are the keys of clients by the ID of the URL they were asked to open,
// so that each learns when that is done. A server that was changed and its
// successor share them: either may ask, and either may be told that it is done.
type openURLs struct {
	mu      sync.Mutex // guards what follows; never held over I/O
	clients map[string]string
	order   []string // the same IDs, the oldest first
}

// add notes a client that is to open a URL; params are those of elicitation/create.
func (o *openURLs) add(params json.RawMessage, key string) {
	id := rawjson.Text(rawjson.Member(params, "elicitationId"))
	if id == "" || len(id) > maxAskID || key == "" || rawjson.Text(rawjson.Member(params, "mode")) != "url" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.clients[id]; !known {
		if o.order = append(o.order, id); len(o.order) > maxOpened {
			delete(o.clients, o.order[0])
			o.order = o.order[1:]
		}
	}
	o.clients[id] = key
}

// client returns the key of the client that params name the URL of, "" for none.
func (o *openURLs) client(params json.RawMessage) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.clients[rawjson.Text(rawjson.Member(params, "elicitationId"))]
}
