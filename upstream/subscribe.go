package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/rawjson"
	"toolfinch/tool"
)

const methodListen = "subscriptions/listen"

// maxSubscriptions is how many resources of a server are followed at once.
const maxSubscriptions = 10_000

var errTooManySubscriptions = &tool.RPCError{Code: tool.CodeInternal, Message: "too many resources of the server are subscribed to"}

// listening is the state of the one subscription to a 2026-07-28 server; of
// conn, and guarded by its lock.
type listening struct {
	changed chan struct{} // holds one signal: other resources are wanted
	wanted  int           // how often that was
	id      int64         // of the request that is open
	covers  int           // the value of wanted that it was sent with
	acked   int           // the highest value of covers that the server has confirmed
	heard   chan struct{} // closed, and replaced, when acked grows
	silent  bool          // the server does not confirm: it is not waited for
}

// subscribe notes a resource that the server is to tell changes of, on every
// connection to come, and tells it on the one there is.
func (s *server) subscribe(ctx context.Context, uri string, on bool) error {
	op := "subscribe"
	if !on {
		op = "unsubscribe"
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.limits.Load().call, ErrTimeout)
	defer cancel()
	main := s.seats.main.line
	c, err := main.current(), error(nil)
	if c == nil && on {
		c, err = main.connect(ctx)
	}
	if c != nil && on && string(rawjson.Member(rawjson.Member(c.offers, "resources"), "subscribe")) != "true" {
		return &tool.RPCError{Code: tool.CodeMethodNotFound, Message: "the server has no subscriptions to resources"}
	}
	s.mu.Lock()
	if on && len(s.subscriptions) >= maxSubscriptions && !s.subscriptions[uri] {
		s.mu.Unlock()
		return errTooManySubscriptions
	}
	changed := s.subscriptions[uri] != on
	if on {
		s.subscriptions[uri] = true
	} else {
		delete(s.subscriptions, uri)
	}
	s.mu.Unlock()
	if err != nil {
		s.log.Debug("a subscription waits for the upstream", "error", plain(err))
	}
	if side := s.beside(); side != nil && changed {
		if err := side.subscribe(ctx, uri, on); err != nil {
			s.log.Debug("the connection of legacy clients has no such subscription", "uri", uri, "error", plain(err))
		}
	}
	if c == nil || !changed {
		return nil // a connection to come begins with all of them
	}
	switch {
	case c.era == EraLegacy:
		err = c.subscribe(ctx, uri, on)
	case on:
		err = c.confirmed(ctx, c.relisten())
	default: // nobody misses anything while it is still in place, so many at once are one
		c.relisten()
	}
	var rpc *tool.RPCError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &rpc):
		if on {
			s.mu.Lock()
			delete(s.subscriptions, uri)
			s.mu.Unlock()
		}
		return rpc
	case s.lost(c, err):
		return nil
	}
	return &Error{Server: s.settings.Name, Op: op + " " + uri, Err: plain(err)}
}

// wantedURIs are the resources subscribed to, in order.
func (s *server) wantedURIs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.subscriptions))
}

// subscribe tells a legacy server about one resource.
func (c *conn) subscribe(ctx context.Context, uri string, on bool) error {
	method := "resources/subscribe"
	if !on {
		method = "resources/unsubscribe"
	}
	members := rawjson.NewObject(len(uri) + 16)
	members.AddText("uri", uri)
	_, err := c.request(ctx, method, c.ownParams(members), nil)
	return err
}

// attend begins to listen on the main connection.
func (c *conn) attend() {
	if c.era == EraModern {
		c.spawn(c.keepListening)
		return
	}
	uris := c.server.wantedURIs()
	if len(uris) == 0 {
		return
	}
	c.spawn(func() {
		ctx, cancel := context.WithTimeout(c.life, c.server.limits.Load().call)
		defer cancel()
		for _, uri := range uris {
			if err := c.subscribe(ctx, uri, true); err != nil {
				c.log.Warn("a subscription was not renewed", "uri", uri, "error", plain(err))
			}
		}
	})
}

const (
	// relistenAfter gathers changes of the filter, and gives a server time to
	// end the subscription before the next: some keep one a connection, and would
	// take the end of the old one for that of the new one.
	relistenAfter = 100 * time.Millisecond
	// ackWithin is how long a subscription waits for the server to confirm it.
	ackWithin = 3 * time.Second
)

// relisten has the subscription opened again with what is wanted now, soon. It
// returns the number of that wish.
func (c *conn) relisten() int {
	c.mu.Lock()
	c.listen.wanted++
	mine := c.listen.wanted
	c.mu.Unlock()
	wake(c.listen.changed)
	return mine
}

// confirmed waits a while for the server to confirm a subscription with a wish.
func (c *conn) confirmed(ctx context.Context, mine int) error {
	ctx, cancel := context.WithTimeout(ctx, ackWithin)
	defer cancel()
	c.mu.Lock()
	silent := c.listen.silent
	c.mu.Unlock()
	if silent {
		return nil
	}
	for {
		c.mu.Lock()
		done, heard := c.listen.acked >= mine, c.listen.heard
		c.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-heard:
		case <-ctx.Done():
			c.mu.Lock()
			defer c.mu.Unlock()
			c.listen.silent = c.listen.acked < mine // not every server confirms
			return nil
		case <-c.life.Done():
			return broken{context.Cause(c.life)}
		}
	}
}

// acknowledged notes that the server has confirmed a subscription.
func (c *conn) acknowledged(params json.RawMessage) {
	id := strings.Trim(string(rawjson.Member(rawjson.Member(params, "_meta"), mcp.MetaKeySubscriptionID)), `"`)
	c.mu.Lock()
	defer c.mu.Unlock()
	if id == strconv.FormatInt(c.listen.id, 10) {
		c.listen.silent = false
		c.confirm(c.listen.covers)
	}
}

// confirm tells those who wait for a subscription that it is in place. Lock held.
func (c *conn) confirm(covers int) {
	if covers > c.listen.acked {
		c.listen.acked = covers
		close(c.listen.heard)
		c.listen.heard = make(chan struct{})
	}
}

// keepListening asks a 2026-07-28 server for what has changed, in one
// subscription, and again whenever that ends or other resources are wanted,
// until the connection ends.
func (c *conn) keepListening() {
	again := newDelays(firstDelay)
	for {
		reopen, err := c.listenOnce()
		switch {
		case c.dead():
			return
		case reopen:
			again.reset()
			if !c.pause(c.life, relistenAfter) {
				return
			}
			c.server.changed(tool.Kinds...) // nobody has listened for a moment
			continue
		case unknownMethod(err):
			return
		}
		c.log.Debug("the subscription has ended", "error", err)
		if !c.pause(c.life, again.next()) {
			return
		}
		c.streamEnded()
	}
}

// listenOnce keeps one subscription open. reopen says that it was ended here,
// because another is wanted.
func (c *conn) listenOnce() (reopen bool, err error) {
	drainSignal(c.listen.changed)
	c.mu.Lock()
	covers := c.listen.wanted
	c.mu.Unlock()
	filter := c.filter()
	if filter == nil { // nothing to listen for
		c.mu.Lock()
		c.confirm(covers)
		c.mu.Unlock()
		select {
		case <-c.listen.changed:
			return true, nil
		case <-c.life.Done():
			return false, context.Cause(c.life)
		}
	}
	id, reply := c.tap.ExpectStanding()
	defer c.tap.Forget(id)
	c.mu.Lock()
	c.listen.id, c.listen.covers = id, covers
	c.mu.Unlock()
	ctx, cancel := context.WithCancelCause(c.life)
	defer cancel(nil)
	ended := make(chan struct{})
	c.spawn(func() {
		select {
		case <-c.listen.changed:
			cancel(errOtherFilter)
		case <-ended:
		case <-ctx.Done():
		}
	})
	members := rawjson.NewObject(256)
	members.Add("notifications", filter)
	params := c.ownParams(members)
	_, err = c.exchange(ctx, id, reply, methodListen, params, c.header(methodListen, params, nil, ""))
	close(ended)
	return errors.Is(context.Cause(ctx), errOtherFilter), err
}

var errOtherFilter = errors.New("other notifications are wanted")

// filter is what to listen for, nil for nothing.
func (c *conn) filter() json.RawMessage {
	offers := c.offers
	out := rawjson.NewObject(128)
	for _, one := range []struct{ capability, member string }{
		{"tools", "toolsListChanged"}, {"prompts", "promptsListChanged"}, {"resources", "resourcesListChanged"},
	} {
		if string(rawjson.Member(rawjson.Member(offers, one.capability), "listChanged")) == "true" {
			out.Add(one.member, []byte("true"))
		}
	}
	if uris := c.server.wantedURIs(); len(uris) > 0 {
		if raw, err := json.Marshal(uris); err == nil {
			out.Add("resourceSubscriptions", raw)
		}
	}
	if out.Empty() {
		return nil
	}
	return out.JSON()
}
