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

// dial makes a connection. ctx bounds the dialling alone. Where the replica that runs the server
// cannot be reached, it waits until that can be or another replica runs the server.
func dial(ctx context.Context, l *connector) (*connection, error) {
	s := l.server
	if s.places == nil {
		return dialAt(ctx, l, nil)
	}
	last := errors.New("the replica that runs the server: it does not answer")
	for again := conn.NewDelays(awayDelay); ; {
		at, err := s.places(ctx, s.settings.Name)
		if err != nil {
			return nil, err
		}
		c, err := dialAt(ctx, l, at)
		if at == nil || err == nil {
			return c, err
		}
		if ctx.Err() == nil {
			if last = err; !passes(err) {
				return nil, err
			}
		}
		select {
		case <-at.Moved:
		case <-time.After(again.Next()):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %v; %w", context.Cause(ctx), last, errUnplaced) // the text of last alone
		}
	}
}

// awayDelay is the first delay before a replica that could not be reached is tried again.
const awayDelay = 50 * time.Millisecond

// passes reports whether err is that a replica is gone, does not answer, or does not run the server now.
func passes(err error) bool {
	if status, answered := errors.AsType[*conn.StatusError](err); answered {
		return status.Code == http.StatusMisdirectedRequest
	}
	slow, ok := errors.AsType[net.Error](err)
	return errors.Is(err, ErrNotConnected) || errors.Is(err, ErrClosed) || ok && slow.Timeout()
}

var errUnplaced = errors.New("no other has taken its place")
