package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"toolfinch/upstream/conn"
)

// Elsewhere is where another process serves the tools of a server as they are, over
// streamable HTTP.
type Elsewhere struct {
	URL    string
	Around func(base http.RoundTripper) http.RoundTripper // sends the requests in the place of base
	Moved  <-chan struct{}                                // closed when another process may run it
}

// url is as of connection.at.
func (e *Elsewhere) url() *string {
	if e == nil {
		return new(string)
	}
	return &e.URL
}

// dial makes the connection of an attempt. ctx bounds the dialling alone. Where the replica that runs the
// server cannot be reached, it waits until that can be or another replica runs the server.
func dial(ctx context.Context, l *connector, d *dialing) (*connection, error) {
	s := l.server
	if s.places == nil {
		return dialAt(ctx, l, nil)
	}
	last := errors.New("the replica that runs the server: it does not answer")
	for again := conn.NewDelays(awayDelay); ; {
		at, err := s.places(ctx, s.settings.Name)
		if err != nil {
			return nil, conn.Mark(err, errUnplaced)
		}
		d.to.Store(at.url())
		c, err := dialAt(ctx, l, at)
		if at == nil || err == nil {
			return c, err
		}
		d.to.Store(nil)
		if ctx.Err() == nil {
			if last = err; !passes(err) {
				return nil, err
			}
		}
		select {
		case <-at.Moved:
		case <-time.After(min(again.Next(), awayMost)):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %v; %w", context.Cause(ctx), last, errUnplaced) // the text of last alone
		}
	}
}

// awayDelay is the first delay before a replica that could not be reached is tried again, awayMost the longest.
const awayDelay, awayMost = 50 * time.Millisecond, time.Second

// passes reports whether err is that a replica is gone, does not answer, or does not run the server now.
func passes(err error) bool {
	if status, answered := errors.AsType[*conn.StatusError](err); answered {
		return status.Code == http.StatusMisdirectedRequest
	}
	slow, ok := errors.AsType[net.Error](err)
	return errors.Is(err, ErrNotConnected) || errors.Is(err, ErrClosed) || ok && slow.Timeout()
}

var errUnplaced = errors.New("no other has taken its place")
