package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/leeway"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/upstream/conn"
)

const methodListen = "subscriptions/listen"

// maxSubscriptions is how many resources of a server are followed at once.
const maxSubscriptions = 10_000

var errTooManySubscriptions = &tool.RPCError{Code: tool.CodeInternal, Message: "too many resources of the server are subscribed to"}

// subscriptions are the resources that a server is to tell changes of.
type subscriptions struct {
	mu   sync.Mutex // guards uris; never held over I/O
	uris map[string]bool
}

// set adds or removes a resource. It reports whether that changes anything; the
// error is that there are too many.
func (w *subscriptions) set(uri string, on bool) (changed bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.uris[uri] == on {
		return false, nil
	}
	if !on {
		delete(w.uris, uri)
		return true, nil
	}
	if len(w.uris) >= maxSubscriptions {
		return false, errTooManySubscriptions
	}
	w.uris[uri] = true
	return true, nil
}

// all are the resources, in order.
func (w *subscriptions) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.uris))
}

// subscribe notes a resource that the server is to tell changes of, on every
// connection to come, and tells it on the one there is.
func (s *server) subscribe(ctx context.Context, uri string, on bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.limits.Load().call, ErrTimeout)
	defer cancel()
	if on && s.perUser() { // it would be with the login of whoever runs the proxy
		return &tool.RPCError{Code: tool.CodeMethodNotFound, Message: "the server has no subscriptions: each user has a login of their own"}
	}
	c, err := s.main.current(), error(nil)
	if c == nil && on {
		c, err = s.connect(ctx)
	}
	if c != nil && on && string(rawjson.Member(rawjson.Member(c.Capabilities, "resources"), "subscribe")) != "true" {
		return &tool.RPCError{Code: tool.CodeMethodNotFound, Message: "the server has no subscriptions to resources"}
	}
	changed, tooMany := s.subscriptions.set(uri, on)
	if tooMany != nil {
		return tooMany
	}
	if err != nil {
		s.log.Debug("a subscription waits for the upstream", "error", conn.Plain(err))
	}
	if side := s.sharing.beside(); side != nil && changed {
		if err := side.subscribe(ctx, uri, on); err != nil {
			s.log.Debug("the connection of legacy clients has no such subscription", "uri", uri, "error", conn.Plain(err))
		}
	}
	if c == nil || !changed {
		return nil // a connection to come begins with all of them
	}
	switch {
	case c.Era == EraLegacy:
		err = c.subscribe(ctx, uri, on)
	case on:
		err = c.listening.confirmed(ctx, c.listening.again())
	default: // nobody misses anything while it is still in place, so many at once are one
		c.listening.again()
	}
	rpc, refused := errors.AsType[*tool.RPCError](err)
	switch {
	case err == nil:
		return nil
	case refused:
		if on {
			_, _ = s.subscriptions.set(uri, false)
		}
		return rpc
	case c.failed(err), c.Service.Err() != nil:
		return nil // the next connection begins with it
	}
	op := "subscribe "
	if !on {
		op = "unsubscribe "
	}
	return &Error{Server: s.settings.Name, Op: op + uri, Err: conn.Plain(err)}
}

// subscribe tells a legacy server about one resource.
func (c *connection) subscribe(ctx context.Context, uri string, on bool) error {
	method := "resources/subscribe"
	if !on {
		method = "resources/unsubscribe"
	}
	members := rawjson.NewObject(len(uri) + 16)
	members.AddText("uri", uri)
	_, err := c.own(ctx, method, members)
	return err
}

// listen begins to have the server tell of changes over the connection.
func (c *connection) listen() {
	if c.Era == EraModern {
		c.Go(c.listening.run)
		return
	}
	uris := c.server.subscriptions.all()
	if len(uris) == 0 {
		return
	}
	c.Go(func() {
		ctx, cancel := context.WithTimeout(c.Life, c.server.limits.Load().call)
		defer cancel()
		for _, uri := range uris {
			if err := c.subscribe(ctx, uri, true); err != nil {
				c.log.Warn("a subscription was not renewed", "uri", uri, "error", conn.Plain(err))
			}
		}
	})
}

const (
	// listenAgainAfter gathers changes of the filter, and gives a server time to
	// end the subscription before the next: some keep one a connection, and would
	// take the end of the old one for that of the new one.
	listenAgainAfter = 100 * time.Millisecond
	// confirmedWithin is how long a subscription waits for the server to confirm it.
	confirmedWithin = 3 * time.Second
)

// listening is the one subscription to a 2026-07-28 server over a connection. Wishes
// for another filter are numbered; a stream covers all that came before it.
type listening struct {
	over    *connection
	changed chan struct{} // holds one signal: there is a new wish

	mu        sync.Mutex // guards what follows; never held over I/O
	wishes    int
	id        int64 // of the request that is open
	covers    int   // the wishes that it covers
	fulfilled int   // the wishes that the server has confirmed
	confirm   event // fulfilled grows
	silent    bool  // the server does not confirm: it is not waited for
}

// again has the subscription opened again with what is wanted now, soon. It returns
// the number of that wish.
func (l *listening) again() int {
	l.mu.Lock()
	l.wishes++
	mine := l.wishes
	l.mu.Unlock()
	wake(l.changed)
	return mine
}

// confirmed waits a while for the server to confirm a subscription with a wish.
func (l *listening) confirmed(ctx context.Context, mine int) error {
	ctx, cancel := context.WithTimeout(ctx, leeway.Of(confirmedWithin))
	defer cancel()
	for {
		l.mu.Lock()
		done, confirm := l.fulfilled >= mine || l.silent, l.confirm.next()
		l.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-confirm:
		case <-ctx.Done():
			l.mu.Lock()
			defer l.mu.Unlock()
			l.silent = l.fulfilled < mine // not every server confirms
			return nil
		case <-l.over.Life.Done():
			return conn.Failure{Err: context.Cause(l.over.Life), Sent: true, Lost: true}
		}
	}
}

// acknowledged notes that the server has confirmed a subscription.
func (l *listening) acknowledged(params json.RawMessage) {
	id := strings.Trim(string(rawjson.Member(rawjson.Member(params, "_meta"), mcp.MetaKeySubscriptionID)), `"`)
	l.mu.Lock()
	defer l.mu.Unlock()
	if id == strconv.FormatInt(l.id, 10) {
		l.silent = false
		l.fulfil(l.covers)
	}
}

// fulfil tells those who wait for a subscription that it is in place. Lock held.
func (l *listening) fulfil(wishes int) {
	if wishes > l.fulfilled {
		l.fulfilled = wishes
		l.confirm.happen()
	}
}

// run asks the server for what has changed, in one subscription, and again whenever
// that ends or other resources are wanted, until the connection ends.
func (l *listening) run() {
	c := l.over
	delays := conn.NewDelays(conn.FirstDelay)
	for {
		err := l.once()
		switch {
		case c.Dead():
			return
		case errors.Is(err, errOtherFilter):
			delays.Reset()
			if !c.Pause(c.Life, listenAgainAfter) {
				return
			}
			c.server.lists.changed(tool.Kinds...) // nobody has listened for a moment
			continue
		case unknownMethod(err):
			return
		}
		c.log.Debug("the subscription has ended", "error", err)
		if !c.Pause(c.Life, delays.Next()) {
			return
		}
		c.StreamEnded()
	}
}

var errOtherFilter = errors.New("other notifications are wanted")

// once keeps one subscription open. The error is errOtherFilter when it was ended
// here, because another is wanted.
func (l *listening) once() error {
	c := l.over
	drainSignal(l.changed)
	ctx, cancel := context.WithCancelCause(c.Life)
	defer cancel(nil)
	ended := make(chan error, 1)
	l.mu.Lock()
	l.covers = l.wishes
	filter := l.filter()
	if filter == nil { // nothing to listen for
		l.fulfil(l.covers)
		l.mu.Unlock()
	} else {
		reply := c.ExpectStanding()
		defer c.Forget(reply)
		l.id = reply.ID
		l.mu.Unlock()
		var members rawjson.Object
		members.Add("notifications", filter)
		params := c.ownParams(&members)
		c.Go(func() {
			_, err := c.Exchange(ctx, reply, methodListen, params, c.header(methodListen, params, nil, ""))
			ended <- err
		})
	}
	select {
	case <-l.changed:
		cancel(errOtherFilter)
		return errOtherFilter
	case err := <-ended:
		return err
	case <-c.Life.Done():
		return context.Cause(c.Life)
	}
}

// filter is what to listen for, nil for nothing.
func (l *listening) filter() json.RawMessage {
	var out rawjson.Object
	for _, one := range []struct{ capability, member string }{
		{"tools", "toolsListChanged"}, {"prompts", "promptsListChanged"}, {"resources", "resourcesListChanged"},
	} {
		if string(rawjson.Member(rawjson.Member(l.over.Capabilities, one.capability), "listChanged")) == "true" {
			out.Add(one.member, []byte("true"))
		}
	}
	if uris := l.over.server.subscriptions.all(); len(uris) > 0 {
		out.Add("resourceSubscriptions", rawjson.Of(uris))
	}
	if out.Empty() {
		return nil
	}
	return out.JSON()
}
