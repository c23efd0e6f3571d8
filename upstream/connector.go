package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
)

// connector keeps one connection of a server: it is made when it is needed, and
// made again when it has died.
type connector struct {
	server  *server
	main    bool            // the one that Watch keeps and lists over
	legacy  bool            // it connects by handshake, whatever else the server speaks
	common  bool            // of all legacy clients beside the main one; see sharing.common
	declare json.RawMessage // the client capabilities told to the server
	owner   string          // key of the client it is for; "" for nobody in particular
	// principal is whose login it uses; "" for that of this process.
	principal string

	mu      sync.Mutex // guards what follows; never held over I/O
	now     *connection
	dialing *dialing
	closed  bool
}

// dialing is one attempt to connect that any number of callers wait for.
type dialing struct {
	ctx    context.Context // ends when the attempt is to be given up
	giveUp context.CancelCauseFunc
	done   chan struct{}
	conn   *connection
	err    error
}

func newDialing(life context.Context) *dialing {
	d := &dialing{done: make(chan struct{})}
	d.ctx, d.giveUp = context.WithCancelCause(life)
	return d
}

// connect returns a connection that works as far as is known, dialling one if
// there is none. Callers at the same time share one attempt.
func (l *connector) connect(ctx context.Context) (*connection, error) {
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

// begin returns the connection that there is, or else the attempt to make one
// that runs, begun now if need be.
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
		d, old := newDialing(l.server.life), l.now
		l.now, l.dialing = nil, d
		l.server.work.Go(func() {
			if old != nil {
				l.server.work.Go(func() { old.finish(errReplaced) }) // it may take its time
			}
			l.dial(d)
		})
	}
	return l.dialing, nil, nil
}

// ended reports whether nothing is to be begun any more. Lock held.
func (l *connector) ended() bool { return l.closed || l.server.life.Err() != nil }

// dial carries an attempt out.
func (l *connector) dial(d *dialing) {
	s := l.server
	defer d.giveUp(nil)
	ctx, cancel := context.WithTimeoutCause(d.ctx, s.settings.ConnectTimeout,
		fmt.Errorf("%w: no connection within %s", ErrTimeout, s.settings.ConnectTimeout))
	defer cancel()
	var c *connection
	err := context.Cause(ctx) // it may be given up before it begins
	if s.settings.Fault != "" {
		err = fmt.Errorf("the configuration cannot be used: %s", s.settings.Fault)
	}
	if err == nil {
		c, err = dial(ctx, l)
	}
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
		c, err = nil, ErrClosed // its client left meanwhile
	}
	d.conn, d.err = c, err
	if current {
		s.dialled(l, c, err)
	} else {
		d.err = errReplaced // whoever waits for it is to wait for what took its place
	}
	close(d.done)
}

// current returns the connection there is, nil when there is none.
func (l *connector) current() *connection {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == nil || l.now.Service.Err() != nil {
		return nil
	}
	return l.now
}

// isLast reports whether no connection has taken the place of c.
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

// finish is close once no call is in flight, as of connection.finish.
func (l *connector) finish() {
	if c := l.leave(); c != nil {
		c.finish(ErrClosed)
	}
}

// leave makes no connection any more, and returns the one that there is, nil for none.
func (l *connector) leave() *connection {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.now
	l.now, l.closed = nil, true
	return c
}

// swap makes c the connection in place of old, unless something has taken its
// place already.
func (l *connector) swap(old, c *connection) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended() || l.now != old || l.dialing != nil {
		return false
	}
	l.now = c
	return true
}

// replace makes next what callers wait for, nil for nothing. end ends what there was
// before: an attempt at once, a connection once the calls over it have ended. It
// reports false when nothing is to be begun any more.
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
