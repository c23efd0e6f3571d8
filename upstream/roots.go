package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/tool"
)

const (
	// rootsWithin is how long the first call of a session waits for the server to
	// take the session's roots. A process on a busy machine may need seconds to ask.
	rootsWithin = 5 * time.Second
	// rootsTakenIn is how long a server has to take in roots that it has read.
	rootsTakenIn = 50 * time.Millisecond
	// rootsToldWithin is how long the server may take to hear of other roots.
	rootsToldWithin = 10 * time.Second
)

// roots is what a connection's server knows of the roots of its client.
type roots struct {
	over *connection

	mu    sync.Mutex    // guards what follows; never held over I/O
	of    string        // key of the session whose roots the server was made to ask for
	first *call         // that session's first call, while it waits for that
	begun event         // first is set
	known chan struct{} // closed when the first call of that session waits no more
	asked int           // how often the server has asked; its questions have numbers from 1
	sent  int           // the newest question that was answered
	grown event         // asked or sent is more
}

// errOtherRoots ends a call whose server would work without the roots of its client.
var errOtherRoots = fmt.Errorf("%w: the server did not ask for this client's roots within %s; call again", ErrTimeout, rootsWithin)

// prepare has the server ask for the roots of a session before its first call over
// the connection is sent, so that the server does not work with other permissions
// after it. A 2026-07-28 client has no session: each of its calls is a first one.
// stale says that the server has asked for the roots of somebody else.
func (r *roots) prepare(c *call, stale bool) error {
	if told := r.over.calls.whose(); c.Client != nil && c.Client.Modern && told != "" && told == c.whose() {
		return nil // it knows them from the call before
	}
	r.mu.Lock()
	asked := r.asked // before the server can have asked because of this call
	r.mu.Unlock()
	if stale {
		r.tell()
	}
	if r.over.Era != EraLegacy || !c.Client.Can(tool.CapabilityRoots) {
		return nil
	}
	r.mu.Lock()
	isFirst := r.of != c.Client.Key
	if isFirst {
		r.of, r.first, r.known = c.Client.Key, c, make(chan struct{})
		r.begun.happen()
	}
	known, wanted := r.known, 1
	if stale {
		wanted = asked + 1
	}
	r.mu.Unlock()
	if !isFirst {
		select {
		case <-known:
		case <-c.ctx.Done():
		}
		return nil
	}
	defer func() {
		r.mu.Lock()
		r.first = nil
		r.mu.Unlock()
		close(known)
	}()
	questions := &r.over.server.questions
	switch {
	case !questions.wantsRoots():
	case r.waitSent(c, wanted):
		if stale {
			questions.asksAgain()
		}
	case c.ctx.Err() == nil && !r.over.Dead() && !questions.noAnswer():
		return errOtherRoots
	}
	return nil
}

// waitSent waits a while until a question was answered, or one after it. How long the
// client of a 2026-07-28 call takes to answer does not count: it answers with another
// request.
func (r *roots) waitSent(c *call, question int) bool {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	timer := time.AfterFunc(leeway.Of(rootsWithin), cancel)
	defer timer.Stop()
	for {
		r.mu.Lock()
		asked, sent, grown := r.asked >= question, r.sent >= question, r.grown.next()
		r.mu.Unlock()
		if sent {
			r.takenIn(ctx)
			return true
		}
		if asked && c.Client.Modern {
			timer.Stop()
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return false
		case <-r.over.Life.Done():
			return false
		}
	}
}

// takenIn waits a while until the server has taken in roots that it was sent: once it
// has answered what was sent after them, it has at least read them.
func (r *roots) takenIn(ctx context.Context) {
	_, _ = r.over.Request(ctx, "ping", nil, nil)
	r.over.Pause(ctx, rootsTakenIn)
}

// wasAsked counts a question, and returns its number.
func (r *roots) wasAsked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	r.grown.happen()
	return r.asked
}

// wasSent notes that a question was answered; 0 is none.
func (r *roots) wasSent(question int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = max(r.sent, question)
	r.grown.happen()
}

// ask asks a session for its roots. One that can be sent nothing outside of a call
// is asked with its first call over the connection.
func (r *roots) ask(ctx context.Context, key, method string, params json.RawMessage) (json.RawMessage, error) {
	events := r.over.server.events
	if events.Reaches != nil && !events.Reaches(key) {
		if c := r.firstCall(ctx); c != nil {
			result, _, err := c.ask(ctx, method, params)
			return result, err
		}
	}
	return events.Ask(ctx, key, method, params)
}

// firstCall waits a while for the first call of the connection's session, and
// returns it while it waits for the roots.
func (r *roots) firstCall(ctx context.Context) *call {
	r.mu.Lock()
	none, begun := r.of == "", r.begun.next()
	r.mu.Unlock()
	if none {
		timer := time.NewTimer(leeway.Of(rootsWithin))
		defer timer.Stop()
		select {
		case <-begun:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first
}

// tell says that the roots are others now, off the caller's path.
func (r *roots) tell() {
	c := r.over
	if c.Era != EraLegacy {
		return
	}
	c.Go(func() {
		ctx, cancel := context.WithTimeout(c.Life, leeway.Of(rootsToldWithin))
		defer cancel()
		if err := c.Notify(ctx, "notifications/roots/list_changed", nil); err != nil && !errors.Is(err, context.Canceled) {
			c.log.Debug("the upstream was not told of other roots", "error", err)
		}
	})
}
