package upstream

import (
	"context"
	"fmt"
	"sync"

	"toolfinch/tool"
)

// errRenewed is why a connection ends that another is to take the place of.
var errRenewed = fmt.Errorf("%w: the server is being connected anew", ErrClosed)

// renewal is one Reconnect that any number of callers wait for.
type renewal struct {
	done   chan struct{}
	change Change
}

// refresh connects if need be and lists everything.
func (s *server) refresh(ctx context.Context) Change {
	c, err := s.connect(ctx)
	if err != nil {
		return Change{Server: s.settings.Name, Err: &Error{Server: s.settings.Name, Op: "connect", Err: marked{plain(err), ErrNotConnected}}}
	}
	return s.list(ctx, c, tool.Kinds)
}

// reconnect closes what connections there are and connects anew. See
// Pool.Reconnect.
func (s *server) reconnect(ctx context.Context) Change {
	r, mine := s.renew()
	if mine && !s.replaceConnections(func() { s.renewed(r, s.refresh(s.life)) }) {
		s.renewed(r, Change{Server: s.settings.Name, Err: &Error{Server: s.settings.Name, Op: "reconnect", Err: ErrClosed}})
	}
	select {
	case <-r.done:
		return r.change
	case <-ctx.Done():
		return Change{Server: s.settings.Name, Err: &Error{Server: s.settings.Name, Op: "reconnect", Err: context.Cause(ctx)}}
	}
}

// renew returns the renewal that runs, and whether it is a new one, which the
// caller is to carry out.
func (s *server) renew() (r *renewal, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.renewal != nil {
		return s.renewal, false
	}
	s.renewal = &renewal{done: make(chan struct{})}
	return s.renewal, true
}

// renewed ends a renewal.
func (s *server) renewed(r *renewal, change Change) {
	s.mu.Lock()
	s.renewal = nil
	s.mu.Unlock()
	r.change = change
	close(r.done)
}

// replaceConnections ends all connections and dials the main one anew once they
// are closed; the others when they are needed. It does not wait: then is called
// while that one is being dialled. It reports false, and then is not called, when
// the server is being closed.
func (s *server) replaceConnections(then func()) bool {
	main := s.seats.main.line
	next := newDialing(s.life)
	main.mu.Lock()
	if main.ended() {
		main.mu.Unlock()
		next.giveUp(nil)
		return false
	}
	before := main.replace(next)
	s.work.Go(func() {
		wake(s.anew) // now that whoever is woken waits for next
		var closing sync.WaitGroup
		before.end(&closing)
		for _, l := range s.lines() {
			if !l.main {
				l.mu.Lock()
				before := l.replace(nil)
				l.mu.Unlock()
				before.end(&closing)
			}
		}
		s.work.Go(then)
		closing.Wait()
		main.dial(next)
	})
	main.mu.Unlock()
	return true
}

// replaced is what a line had before. Either may be nil.
type replaced struct {
	conn    *conn
	dialing *dialing
}

// replace makes next what callers wait for, nil for nothing. Lock held.
func (l *line) replace(next *dialing) replaced {
	before := replaced{l.conn, l.dialing}
	l.conn, l.dialing = nil, next
	return before
}

// end ends the connection, or the attempt to make one, at once; closing is done
// when nothing is left of it.
func (r replaced) end(closing *sync.WaitGroup) {
	if r.dialing != nil {
		r.dialing.giveUp(errRenewed)
		closing.Go(func() { <-r.dialing.done })
	}
	if r.conn != nil {
		r.conn.fail(errRenewed)
		closing.Go(r.conn.close)
	}
}
