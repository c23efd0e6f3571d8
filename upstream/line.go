package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
)

// line is a connection that is made when it is needed, and made again when it
// has died.
type line struct {
	server  *server
	main    bool            // the one that Watch keeps and lists over
	legacy  bool            // it is one with a handshake, whatever else the server speaks
	common  bool            // of all legacy clients beside the main one; see server.common
	declare json.RawMessage // the client capabilities told to the server
	owner   string          // key of the client it is for; "" for nobody in particular

	mu      sync.Mutex // guards what follows; never held over I/O
	conn    *conn
	dialing *dialing
	closed  bool
}

// dialing is one attempt to connect that any number of callers wait for.
type dialing struct {
	ctx    context.Context // ends when the attempt is to be given up
	giveUp context.CancelCauseFunc
	done   chan struct{}
	conn   *conn
	err    error
}

func newDialing(life context.Context) *dialing {
	d := &dialing{done: make(chan struct{})}
	d.ctx, d.giveUp = context.WithCancelCause(life)
	return d
}

// connect returns a connection that works as far as is known, dialling one if
// there is none. Callers at the same time share one attempt.
func (l *line) connect(ctx context.Context) (*conn, error) {
	for {
		d, c, err := l.begin()
		if d == nil {
			return c, err
		}
		select {
		case <-d.done:
			if !errors.Is(d.err, errRenewed) {
				return d.conn, d.err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// begin returns the connection that there is, or else the attempt to make one
// that runs, begun now if need be.
func (l *line) begin() (*dialing, *conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil && !l.conn.dead() {
		return nil, l.conn, nil
	}
	if l.ended() {
		return nil, nil, ErrClosed
	}
	if l.dialing == nil {
		d, old := newDialing(l.server.life), l.conn
		l.conn, l.dialing = nil, d
		l.server.work.Go(func() {
			if old != nil {
				l.server.work.Go(old.close) // it may take its time
			}
			l.dial(d)
		})
	}
	return l.dialing, nil, nil
}

// ended reports whether nothing is to be begun any more. Lock held.
func (l *line) ended() bool { return l.closed || l.server.life.Err() != nil }

func (l *line) dial(d *dialing) {
	s := l.server
	defer d.giveUp(nil)
	ctx, cancel := context.WithTimeoutCause(d.ctx, s.settings.ConnectTimeout,
		fmt.Errorf("%w: no connection within %s", ErrTimeout, s.settings.ConnectTimeout))
	defer cancel()
	var c *conn
	err := context.Cause(ctx) // it may be given up before it begins
	if err == nil {
		c, err = dial(ctx, l)
	}
	l.mu.Lock()
	current := l.dialing == d
	if current {
		l.dialing = nil
	}
	gone := l.closed
	if err == nil && current && !gone {
		l.conn = c
	}
	l.mu.Unlock()
	if err == nil && (gone || !current) {
		c.close()
		c, err = nil, ErrClosed // its client left meanwhile
	}
	d.conn, d.err = c, err
	if current {
		s.dialled(l, c, err)
	} else {
		d.err = errRenewed // whoever waits for it is to wait for what took its place
	}
	close(d.done)
}

// current returns the connection there is, nil when there is none.
func (l *line) current() *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil || l.conn.dead() {
		return nil
	}
	return l.conn
}

// given reports whether the line was given up.
func (l *line) given() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended()
}

// barrier returns once nobody is inside connect's critical section.
func (l *line) barrier() {
	l.mu.Lock()
	defer l.mu.Unlock()
}

// close ends the connection for good.
func (l *line) close() {
	l.mu.Lock()
	c := l.conn
	l.conn, l.closed = nil, true
	l.mu.Unlock()
	if c != nil {
		c.close()
	}
}
