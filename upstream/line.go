package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
)

// line is a connection that is made when it is needed, and made again when it
// has died.
type line struct {
	server  *server
	main    bool            // the one that Watch keeps and lists over
	declare json.RawMessage // the client capabilities told to the server
	owner   string          // key of the client it is for; "" for nobody in particular

	mu      sync.Mutex // guards what follows; never held over I/O
	conn    *conn
	dialing *dialing
	closed  bool
}

// dialing is one attempt to connect that any number of callers wait for.
type dialing struct {
	done chan struct{}
	conn *conn
	err  error
}

// connect returns a connection that works as far as is known, dialling one if
// there is none. Callers at the same time share one attempt.
func (l *line) connect(ctx context.Context) (*conn, error) {
	l.mu.Lock()
	if l.conn != nil && !l.conn.dead() {
		defer l.mu.Unlock()
		return l.conn, nil
	}
	if l.closed || l.server.life.Err() != nil {
		l.mu.Unlock()
		return nil, ErrClosed
	}
	d := l.dialing
	if d == nil {
		d = &dialing{done: make(chan struct{})}
		l.dialing = d
		old := l.conn
		l.conn = nil
		l.server.work.Go(func() { l.dial(d, old) })
	}
	l.mu.Unlock()
	select {
	case <-d.done:
		return d.conn, d.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (l *line) dial(d *dialing, old *conn) {
	s := l.server
	if old != nil {
		s.work.Go(old.close) // it may take its time
	}
	ctx, cancel := context.WithTimeoutCause(s.life, s.settings.ConnectTimeout,
		fmt.Errorf("%w: no connection within %s", ErrTimeout, s.settings.ConnectTimeout))
	defer cancel()
	c, err := dial(ctx, l)
	l.mu.Lock()
	l.dialing = nil
	gone := err == nil && l.closed
	if err == nil && !gone {
		l.conn = c
	}
	l.mu.Unlock()
	if gone { // its client left meanwhile
		c.close()
		c, err = nil, ErrClosed
	}
	d.conn, d.err = c, err
	s.dialled(l, c, err)
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
