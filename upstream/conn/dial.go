package conn

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// opensWithin bounds how long a new connection waits for its stream of notifications: some servers send no headers
// before the first message.
const opensWithin = 2 * time.Second

// Dial makes a connection. ctx bounds the dialling alone. handler is called for each attempt, because some servers
// are tried in several ways; the last handler stays with the connection.
func Dial(ctx context.Context, options Options, handler func(*Conn) Handler) (*Conn, error) {
	attempt := func(over Transport, known Era) (*Conn, error) {
		c := newConn(options, over, handler)
		err := c.channel.open(ctx)
		if err == nil {
			err = c.negotiate(ctx, known)
		}
		if err == nil {
			if s, ok := c.channel.(*streamable); ok && c.Era == EraLegacy {
				c.Go(s.listen)
				select { // a server drops what it sends outside of calls while there is no stream
				case <-s.opened:
				case <-time.After(opensWithin):
				case <-ctx.Done():
				}
			}
			return c, nil
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
			if s, ok := c.channel.(*stdio); ok && s.process != nil {
				err = withLastWords(fmt.Errorf("%w: "+processSilent+"%s", err, c.odd.Load()), s.process.stderr.Words())
			}
		}
		c.Close()
		return nil, err
	}
	over := TransportHTTP
	switch {
	case options.Command != "":
		over = TransportStdio
	case options.Transport == TransportSSE:
		over = TransportSSE
	}
	c, err := attempt(over, options.Known)
	if errors.Is(err, errNoPost) && options.Transport != TransportHTTP && over == TransportHTTP {
		c, sseErr := attempt(TransportSSE, EraLegacy)
		if sseErr == nil || errors.Is(sseErr, ErrForeign) {
			return c, sseErr
		}
	}
	if errors.Is(err, errUnheard) {
		return attempt(over, EraModern)
	}
	return c, err
}
