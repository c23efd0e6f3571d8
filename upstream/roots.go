package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"toolfinch/tool"
)

const (
	// rootsWithin is how long the first call of a session waits for the server to
	// take the session's roots.
	rootsWithin = 2 * time.Second
	// rootsTakenIn is how long a server has to take in roots that it was sent.
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
	count int           // how often the server was sent roots
	sent  event         // count grows
}

// prepare has the server ask for the roots of a session before its first call over
// the connection is sent, so that the server does not work with other permissions
// after it. stale says that it has asked for those of somebody else.
func (r *roots) prepare(c *call, stale bool) {
	if stale {
		r.tell()
	}
	if r.over.Era != EraLegacy || !c.Client.Can(tool.CapabilityRoots) || c.Client.Modern {
		return
	}
	r.mu.Lock()
	isFirst := r.of != c.Client.Key
	if isFirst {
		r.of, r.first, r.known = c.Client.Key, c, make(chan struct{})
		r.begun.happen()
	}
	known, wanted := r.known, 1
	if stale {
		wanted = r.count + 1
	}
	r.mu.Unlock()
	if !isFirst {
		select {
		case <-known:
		case <-c.ctx.Done():
		}
		return
	}
	defer func() {
		r.mu.Lock()
		r.first = nil
		r.mu.Unlock()
		close(known)
	}()
	questions := &r.over.server.questions
	if questions.wantsRoots() && !r.waitSent(c.ctx, wanted) && c.ctx.Err() == nil && !r.over.Dead() {
		questions.setRoots(false) // nobody waits for that again
	}
}

// waitSent waits a while until the server was sent roots so many times.
func (r *roots) waitSent(ctx context.Context, times int) bool {
	ctx, cancel := context.WithTimeout(ctx, rootsWithin)
	defer cancel()
	for {
		r.mu.Lock()
		done, sent := r.count >= times, r.sent.next()
		r.mu.Unlock()
		if done {
			return r.over.Pause(ctx, rootsTakenIn)
		}
		select {
		case <-sent:
		case <-ctx.Done():
			return false
		case <-r.over.Life.Done():
			return false
		}
	}
}

// answered notes that the server was sent roots.
func (r *roots) answered() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	r.sent.happen()
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
		timer := time.NewTimer(rootsWithin)
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
		ctx, cancel := context.WithTimeout(c.Life, rootsToldWithin)
		defer cancel()
		if err := c.Notify(ctx, "notifications/roots/list_changed", nil); err != nil && !errors.Is(err, context.Canceled) {
			c.log.Debug("the upstream was not told of other roots", "error", err)
		}
	})
}
