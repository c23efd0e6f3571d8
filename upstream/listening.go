package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/leeway"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/upstream/conn"
)

const methodListen = "subscriptions/listen"

const (
	// listenAgainAfter collects changes of the filter, and gives the server time to end the
	// old subscription: servers that keep only one would otherwise end the new subscription.
	listenAgainAfter = 100 * time.Millisecond
	// confirmedWithin bounds the wait for the server's confirmation of a subscription.
	confirmedWithin = 3 * time.Second
)

// listening is the subscription to a 2026-07-28 server over one connection. Each change of
// the wanted filter is a numbered wish; a subscription covers all wishes before it.
type listening struct {
	over          link
	subscriptions *subscriptions
	lists         *lists
	relisting     *relisting
	limits        *atomic.Pointer[limits]
	log           *slog.Logger
	changed       chan struct{} // holds one signal: there is a new wish

	mu        sync.Mutex // guards the fields below; never held over I/O
	wishes    int        // number of the newest wish
	id        int64      // of the open request
	covers    int        // newest wish that the open request covers
	fulfilled int        // newest wish that the server has confirmed
	confirm   event      // fulfilled has grown
	acked     bool       // the server has confirmed a subscription
	silent    bool       // the server does not confirm, so nobody waits for it
}

// begin makes the server report changes over the connection.
func (l *listening) begin() {
	c := l.over
	if c.Era == EraModern {
		c.Go(l.run)
		return
	}
	uris := l.subscriptions.all()
	if len(uris) == 0 {
		return
	}
	c.Go(func() {
		ctx, cancel := context.WithTimeout(c.Life, l.limits.Load().call)
		defer cancel()
		for _, uri := range uris {
			if err := c.subscribe(ctx, uri, true); err != nil {
				l.log.Warn("a subscription was not renewed", "uri", uri, "error", conn.Plain(err))
			}
		}
	})
}

// again makes a wish: the subscription is opened again soon with the present filter. It
// returns the number of the wish.
func (l *listening) again() int {
	l.mu.Lock()
	l.wishes++
	mine := l.wishes
	l.mu.Unlock()
	wake(l.changed)
	return mine
}

// confirmed waits at most confirmedWithin until the server has confirmed a wish.
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

// acknowledged notes the server's confirmation of a subscription.
func (l *listening) acknowledged(params json.RawMessage) {
	id := strings.Trim(string(rawjson.Member(rawjson.Member(params, "_meta"), mcp.MetaKeySubscriptionID)), `"`)
	l.mu.Lock()
	defer l.mu.Unlock()
	if id == strconv.FormatInt(l.id, 10) {
		l.silent, l.acked = false, true
		l.fulfil(l.covers)
	}
}

// isConfirmed reports whether the server has confirmed a subscription.
func (l *listening) isConfirmed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked
}

// fulfil wakes the callers that wait for a wish. The lock is held.
func (l *listening) fulfil(wishes int) {
	if wishes > l.fulfilled {
		l.fulfilled = wishes
		l.confirm.happen()
	}
}

// run keeps a subscription open until the connection ends. It opens a new one if the server
// ends it or the filter changes.
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
			l.lists.changed(tool.Kinds...) // a change may have been missed in between
			continue
		case unknownMethod(err):
			return
		}
		l.log.Debug("the subscription has ended", "error", err)
		if !c.Pause(c.Life, delays.Next()) {
			return
		}
		l.relisting.streamEnded()
	}
}

var errOtherFilter = errors.New("other notifications are wanted")

// once keeps one subscription open. The error is errOtherFilter if the filter has changed.
func (l *listening) once() error {
	c := l.over
	drainSignal(l.changed)
	ctx, cancel := context.WithCancelCause(c.Life)
	defer cancel(nil)
	ended := make(chan error, 1)
	l.mu.Lock()
	l.covers = l.wishes
	filter := l.filter()
	if filter == nil { // there is nothing to listen for
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

// filter returns the notifications to listen for; nil for none.
func (l *listening) filter() json.RawMessage {
	var out rawjson.Object
	for _, list := range []struct{ capability, member string }{
		{"tools", "toolsListChanged"}, {"prompts", "promptsListChanged"}, {"resources", "resourcesListChanged"},
	} {
		if string(rawjson.Member(rawjson.Member(l.over.Capabilities, list.capability), "listChanged")) == "true" {
			out.Add(list.member, []byte("true"))
		}
	}
	if l.over.tellsGroups() {
		out.Add("groupsListChanged", []byte("true")) // not in the draft: named like the others
	}
	if uris := l.subscriptions.all(); len(uris) > 0 {
		out.Add("resourceSubscriptions", rawjson.Of(uris))
	}
	if out.Empty() {
		return nil
	}
	return out.JSON()
}
