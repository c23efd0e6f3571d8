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
	done   chan struct{} // closed when change is there
	over   chan struct{} // closed when the connections before are closed, too
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

// reconnect connects anew. See Pool.Reconnect.
func (s *server) reconnect(ctx context.Context) Change {
	fail := func(err error) Change {
		return Change{Server: s.settings.Name, Err: &Error{Server: s.settings.Name, Op: "reconnect", Err: err}}
	}
	for {
		r, mine := s.renew()
		if mine && !s.begin(r) {
			s.renewed(r, fail(ErrClosed))
			s.renewalOver(r)
		}
		wait := r.done
		if !mine {
			select {
			case <-r.done: // it began before this one was wanted
				wait = r.over
			default:
			}
		}
		select {
		case <-wait:
			if wait == r.done {
				return r.change
			}
		case <-ctx.Done():
			return fail(context.Cause(ctx))
		}
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
	s.renewal = &renewal{done: make(chan struct{}), over: make(chan struct{})}
	return s.renewal, true
}

// renewed tells what a renewal has brought.
func (s *server) renewed(r *renewal, change Change) {
	r.change = change
	close(r.done)
}

// renewalOver lets the next renewal begin.
func (s *server) renewalOver(r *renewal) {
	s.mu.Lock()
	s.renewal = nil
	s.mu.Unlock()
	close(r.over)
}

// begin carries a renewal out. It does not wait. It reports false when the server
// is being closed.
func (s *server) begin(r *renewal) bool {
	main := s.seats.main.line
	main.mu.Lock()
	defer main.mu.Unlock()
	if main.ended() {
		return false
	}
	old := main.conn
	s.work.Go(func() {
		defer s.renewalOver(r)
		if old == nil || old.dead() || !s.renewBeside(old, r) {
			s.renewAfter(r)
		}
	})
	return true
}

// renewBeside makes the new connection while the old one serves, so that calls in
// flight end where they are. It reports false when no second connection came up:
// many servers hold something that only one process can have.
func (s *server) renewBeside(old *conn, r *renewal) bool {
	main := s.seats.main.line
	ctx, cancel := context.WithTimeoutCause(s.life, s.settings.ConnectTimeout, ErrTimeout)
	defer cancel()
	c, err := dial(ctx, main)
	if err != nil {
		s.log.Debug("no second connection came up beside the one that is to be replaced", "error", plain(err))
		return false
	}
	if main.swap(old, c) {
		s.dialled(main, c, nil)
	} else {
		c.close() // the old one has ended meanwhile: refresh uses what took its place
	}
	var closing sync.WaitGroup
	closing.Go(func() { old.finish(errRenewed) }) // Watch leaves it for the new one
	s.replaceOthers(&closing)
	wake(s.anew)
	s.renewed(r, s.refresh(s.life))
	closing.Wait()
	return true
}

// renewAfter closes all connections, once the calls over them have ended, and then
// dials the main one; the others when they are needed. New calls wait for it. An
// attempt to connect is given up.
func (s *server) renewAfter(r *renewal) {
	main := s.seats.main.line
	next := newDialing(s.life)
	main.mu.Lock()
	if main.ended() {
		main.mu.Unlock()
		next.giveUp(nil)
		s.renewed(r, Change{Server: s.settings.Name, Err: &Error{Server: s.settings.Name, Op: "reconnect", Err: ErrClosed}})
		return
	}
	before := main.replace(next)
	main.mu.Unlock()
	wake(s.anew) // now that whoever is woken waits for next
	var closing, listing sync.WaitGroup
	before.end(&closing)
	s.replaceOthers(&closing)
	listing.Go(func() { s.renewed(r, s.refresh(s.life)) })
	closing.Wait()
	main.dial(next)
	listing.Wait()
}

// replaceOthers ends the connections beside the main one; closing is done when
// they are closed.
func (s *server) replaceOthers(closing *sync.WaitGroup) {
	for _, l := range s.lines() {
		if !l.main {
			l.mu.Lock()
			before := l.replace(nil)
			l.mu.Unlock()
			before.end(closing)
		}
	}
}

// swap makes c the connection of the line in place of old, unless something has
// taken its place already.
func (l *line) swap(old, c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended() || l.conn != old || l.dialing != nil {
		return false
	}
	l.conn = c
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

// end ends the attempt to make a connection at once, and the connection once the
// calls over it have ended; closing is done when nothing is left of it.
func (r replaced) end(closing *sync.WaitGroup) {
	if r.dialing != nil {
		r.dialing.giveUp(errRenewed)
		closing.Go(func() { <-r.dialing.done })
	}
	if r.conn != nil {
		closing.Go(func() { r.conn.finish(errRenewed) })
	}
}
