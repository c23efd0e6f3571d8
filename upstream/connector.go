package upstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// connector keeps one connection of a server: it makes the connection when a caller needs
// it, and again when the connection has died.
type connector struct {
	server *server
	purpose
	fresh chan struct{} // main connector only: holds one signal that there is a new connection

	mu      sync.Mutex // guards the fields below; never held over I/O
	now     *connection
	dialing *dialing
	asked   bool // somebody waits for the next attempt
	closed  bool
}

// dialing is one attempt to connect. Any number of callers wait for it.
type dialing struct {
	start  *start
	ctx    context.Context // ends when the attempt is given up
	giveUp context.CancelCauseFunc
	done   chan struct{}
	conn   *connection
	err    error
}

func newDialing(life context.Context, asked bool) *dialing {
	d := &dialing{start: newStart(asked), done: make(chan struct{})}
	d.ctx, d.giveUp = context.WithCancelCause(life)
	return d
}

// connect returns a connection that is not known to be dead. If there is none, it makes one,
// before the servers that nobody waits for. Callers at the same time share one attempt.
func (l *connector) connect(ctx context.Context) (*connection, error) {
	l.ask()
	return l.connectInTurn(ctx)
}

// ask puts the running attempt, or else the next one, before the starts that nobody waits for.
func (l *connector) ask() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dialing != nil {
		l.server.env.starts.ask(l.dialing.start)
	} else {
		l.asked = l.now == nil || l.now.Service.Err() != nil
	}
}

// connectInTurn is connect for a caller that can wait until other servers have started.
func (l *connector) connectInTurn(ctx context.Context) (*connection, error) {
	for {
		d, c, err := l.begin()
		if d == nil {
			return c, err
		}
		select {
		case <-d.done:
			if !errors.Is(d.err, errReplaced) {
				return d.conn, d.err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// begin returns the present connection, or the running attempt to make one. It begins an
// attempt if none runs.
func (l *connector) begin() (*dialing, *connection, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now != nil && l.now.Service.Err() == nil {
		return nil, l.now, nil
	}
	if l.ended() {
		return nil, nil, ErrClosed
	}
	if l.dialing == nil {
		d, old := newDialing(l.server.life, l.asked), l.now
		l.now, l.dialing, l.asked = nil, d, false
		l.server.work.Go(func() {
			if old != nil {
				l.server.work.Go(func() { old.finish(errReplaced) }) // it waits for calls to end
			}
			l.dial(d)
		})
	}
	return l.dialing, nil, nil
}

// ended reports whether no attempt may begin any more. The lock is held.
func (l *connector) ended() bool { return l.closed || l.server.life.Err() != nil }

// dial carries out an attempt.
func (l *connector) dial(d *dialing) {
	defer d.giveUp(nil)
	c, err := l.attempt(d)
	l.mu.Lock()
	current, gone := l.dialing == d, l.closed
	if current {
		l.dialing = nil
		if !gone {
			l.now = c
		}
	}
	l.mu.Unlock()
	if c != nil && (gone || !current) {
		c.Close()
		c, err = nil, ErrClosed // the client has left meanwhile
	}
	d.conn, d.err = c, err
	if current {
		l.dialled(c, err)
	} else {
		d.err = errReplaced // callers wait for the new attempt instead
	}
	close(d.done)
}

// attempt makes a connection once it is the server's turn to start.
func (l *connector) attempt(d *dialing) (*connection, error) {
	s := l.server
	if s.settings.Fault != "" {
		return nil, fmt.Errorf("the configuration cannot be used: %s", s.settings.Fault)
	}
	done, err := s.turn(d.ctx, d.start)
	if err != nil {
		return nil, err
	}
	defer done()
	within := s.connectWithin()
	if l.main {
		s.health.starts(s.fetches())
	}
	ctx, cancel := context.WithTimeoutCause(d.ctx, within, fmt.Errorf("%w: no connection within %s", ErrTimeout, within))
	defer cancel()
	if err := context.Cause(ctx); err != nil { // the attempt was given up before it began
		return nil, err
	}
	return dial(ctx, s, l.purpose, within)
}

// current returns the present connection; nil if there is none.
func (l *connector) current() *connection {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == nil || l.now.Service.Err() != nil {
		return nil
	}
	return l.now
}

// isLast reports whether no other connection has replaced c.
func (l *connector) isLast(c *connection) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now == c
}

// isClosed reports whether the connector was closed, alone or with its server.
func (l *connector) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended()
}

// close ends the connection for good.
func (l *connector) close() {
	if c := l.leave(); c != nil {
		c.Close()
	}
}

// finish is close, but gives calls in flight time to end: see connection.finish.
func (l *connector) finish() {
	if c := l.leave(); c != nil {
		c.finish(ErrClosed)
	}
}

// leave closes the connector without its connection, and returns the connection; nil for
// none.
func (l *connector) leave() *connection {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.now
	l.now, l.closed = nil, true
	return c
}

// swap replaces the connection old by c. It reports false if old was replaced already.
func (l *connector) swap(old, c *connection) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended() || l.now != old || l.dialing != nil {
		return false
	}
	l.now = c
	return true
}

// replace makes callers wait for the attempt next, if it is not nil. end gives up the old
// attempt, and closes the old connection once its calls have ended. ok is false if no attempt
// may begin any more.
func (l *connector) replace(next *dialing) (end func(closing *sync.WaitGroup), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if next != nil && l.ended() {
		return nil, false
	}
	old, attempt := l.now, l.dialing
	l.now, l.dialing = nil, next
	return func(closing *sync.WaitGroup) {
		if attempt != nil {
			attempt.giveUp(errReplaced)
			closing.Go(func() { <-attempt.done })
		}
		if old != nil {
			closing.Go(func() { old.finish(errReplaced) })
		}
	}, true
}

// spawn calls f with the present connection in a goroutine. It reports false if the connector
// is closed. It does not wait.
func (l *connector) spawn(f func(old *connection)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.now
	if l.ended() {
		return false
	}
	l.server.work.Go(func() { f(old) })
	return true
}

// dialled follows every attempt to connect, before callers get the connection.
func (l *connector) dialled(c *connection, err error) {
	s := l.server
	if err != nil {
		if l.main {
			s.health.exchanged(err)
		}
		return
	}
	if l.main {
		s.noHandshake.Store(false)
		s.health.dialled(c.Era, c.Transport)
	}
	s.log.Debug("connected", "era", c.Era, "main", l.main)
	if c.hasLogin && !s.hasLogin(s.life, l.principal) { // the login ended while the connection was made
		c.Retire()
	}
	c.level.tell() // before the first call over the connection
	if l.common {
		s.lists.also(&c.link)
	}
	if l.main || l.common && c.Transport == TransportStdio {
		c.listening.begin()
	}
	wake(l.fresh)
}
