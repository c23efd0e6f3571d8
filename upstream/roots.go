package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"toolfinch/tool"
)

const (
	// rootsWithin is how long the first call of a session waits for the server to
	// take the session's roots.
	rootsWithin = 2 * time.Second
	// rootsTakenIn is how long a server has to take in roots that it was sent.
	rootsTakenIn = 50 * time.Millisecond
)

// rooting is what a connection's server knows of the roots of its client; of
// conn, and guarded by its lock.
type rooting struct {
	of       string        // key of the session whose roots it was made to ask for
	with     *flight       // that session's first call, while it waits for that
	begun    chan struct{} // closed once with is set for the first time
	settled  chan struct{} // closed when the first call of that session waits no more
	answers  int           // how often the server was sent roots
	answered chan struct{} // closed, and replaced, when answers grows
}

// settleRoots has the server ask for the roots of a session before its first call
// over the connection is sent, so that the server does not work with other
// permissions after it. stale says that it has asked for those of somebody else.
func (c *conn) settleRoots(f *flight, stale bool) {
	if stale {
		c.tellRoots()
	}
	client := f.call.Client
	if c.era != EraLegacy || !client.Can(tool.CapabilityRoots) || client.Modern {
		return
	}
	c.mu.Lock()
	r := &c.rooting
	first := r.of != client.Key
	if first {
		r.of, r.with, r.settled = client.Key, f, make(chan struct{})
		if r.begun != nil {
			close(r.begun)
			r.begun = nil
		}
	}
	settled, wanted := r.settled, 1
	if stale {
		wanted = r.answers + 1
	}
	c.mu.Unlock()
	if !first {
		select {
		case <-settled:
		case <-f.ctx.Done():
		}
		return
	}
	defer func() {
		c.mu.Lock()
		r.with = nil
		c.mu.Unlock()
		close(settled)
	}()
	if c.server.asksForRoots() && !c.sentRoots(f.ctx, wanted) && f.ctx.Err() == nil && !c.dead() {
		c.server.forRoots(false) // nobody waits for that again
	}
}

// sentRoots waits a while until the server was sent roots so many times.
func (c *conn) sentRoots(ctx context.Context, times int) bool {
	ctx, cancel := context.WithTimeout(ctx, rootsWithin)
	defer cancel()
	for {
		c.mu.Lock()
		done, answered := c.rooting.answers >= times, c.rooting.answered
		c.mu.Unlock()
		if done {
			return c.pause(ctx, rootsTakenIn)
		}
		select {
		case <-answered:
		case <-ctx.Done():
			return false
		case <-c.life.Done():
			return false
		}
	}
}

// rootsSent notes that the server was sent roots.
func (c *conn) rootsSent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rooting.answers++
	close(c.rooting.answered)
	c.rooting.answered = make(chan struct{})
}

// asksForRoots reports whether the server asks for roots by itself: at the start,
// and when they are others.
func (s *server) asksForRoots() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rooted
}

func (s *server) forRoots(asks bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rooted = asks
}

// askRoots asks the session that a connection belongs to for its roots. One that
// can be sent nothing outside of a call is asked with its first call over it.
func (c *conn) askRoots(ctx context.Context, key string, params json.RawMessage) (json.RawMessage, error) {
	ask, reaches := c.server.events.Ask, c.server.events.Reaches
	if reaches != nil && !reaches(key) {
		if f := c.firstCall(ctx); f != nil {
			result, _, err := f.carry(ctx, methodRoots, params)
			return result, err
		}
	}
	return ask(ctx, key, methodRoots, params)
}

// firstCall waits a while for the first call of the connection's session, and
// returns it while it waits for the roots.
func (c *conn) firstCall(ctx context.Context) *flight {
	c.mu.Lock()
	begun := c.rooting.begun
	c.mu.Unlock()
	if begun != nil {
		timer := time.NewTimer(rootsWithin)
		defer timer.Stop()
		select {
		case <-begun:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rooting.with
}

// tellRoots says that the roots are others now, off the caller's path.
func (c *conn) tellRoots() {
	if c.era != EraLegacy {
		return
	}
	c.spawn(func() {
		ctx, cancel := context.WithTimeout(c.life, answerWithin)
		defer cancel()
		if err := c.notify(ctx, "notifications/roots/list_changed", nil); err != nil && !errors.Is(err, context.Canceled) {
			c.log.Debug("the upstream was not told of other roots", "error", clean(err))
		}
	})
}
