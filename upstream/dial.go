package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"

	"toolfinch/rawjson"
	"toolfinch/tool"
	"toolfinch/wire"
)

// dial makes a connection for a line. ctx bounds the dialling alone.
func dial(ctx context.Context, l *line) (*conn, error) {
	s := l.server.settings
	attempt := func(how func(context.Context, *conn, Era) error, known Era) (*conn, error) {
		c := newConn(l)
		err := how(ctx, c, known)
		if err == nil {
			return c, nil
		}
		c.close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	how, known := dialHTTP, l.server.knownEra()
	switch {
	case s.Command != "":
		how = dialStdio
	case s.Transport == TransportSSE:
		how = dialSSE
	}
	c, err := attempt(how, known)
	if errors.Is(err, errNoPost) && s.Transport != TransportHTTP {
		c, sseErr := attempt(dialSSE, EraLegacy)
		if sseErr == nil || errors.Is(sseErr, errForeign) {
			return c, sseErr
		}
	}
	if errors.Is(err, errUnheard) {
		return attempt(how, EraModern)
	}
	return c, err
}

func dialStdio(ctx context.Context, c *conn, known Era) error {
	p, err := start(c.settings, c.log)
	if err != nil {
		return err
	}
	c.process = p
	c.queue = wire.NewQueue(p.stdin, func(error) {
		p.kill() // one that has closed its input is of no more use, whatever it says
	})
	read := make(chan struct{})
	c.spawn(func() {
		// Nothing is left of what it says: the tap takes it all.
		_, _ = io.Copy(io.Discard, wire.Lines(p.stdout, c.tap, c.log, func() { close(read) }))
	})
	c.spawn(func() { c.follow(p, read) })
	return c.negotiate(ctx, known)
}

// follow fails the connection when the child has ended, or says no more. What
// it said last is read first: it may be answers, or why it ended.
func (c *conn) follow(p *process, read <-chan struct{}) {
	select {
	case <-p.exited:
		select {
		case <-read:
		case <-time.After(grace): // someone else holds its stdout
		case <-c.life.Done():
		}
		c.fail(p.ended())
	case <-read:
		select {
		case <-p.exited: // the usual reason; it says more
			c.fail(p.ended())
		case <-time.After(grace):
			c.fail(fmt.Errorf("%w: the process has closed its output", ErrClosed))
		case <-c.life.Done():
		}
	case <-c.life.Done():
	}
}

func dialHTTP(ctx context.Context, c *conn, known Era) error {
	t, err := transport.NewStreamableHTTP(c.settings.URL,
		transport.WithHTTPBasicClient(c.httpClient()),
		transport.WithHTTPHeaders(c.settings.Headers),
		transport.WithHTTPLogger(quietLog(c.log)),
		//lint:ignore SA1019 the stream, opened after a handshake, is how a legacy server says list_changed
		transport.WithContinuousListening(),
	)
	if err != nil {
		return errBadURL
	}
	c.http = t
	if err := t.Start(c.life); err != nil {
		return err
	}
	return c.negotiate(ctx, known)
}

func dialSSE(ctx context.Context, c *conn, known Era) error {
	t, err := transport.NewSSE(c.settings.URL,
		transport.WithHTTPClient(c.httpClient()),
		transport.WithHeaders(c.settings.Headers),
		transport.WithSSELogger(quietLog(c.log)),
		transport.WithEndpointTimeout(c.settings.ConnectTimeout),
		transport.WithResponseTimeout(24*time.Hour), // ours is the call's context
	)
	if err != nil {
		return errBadURL
	}
	t.SetConnectionLostHandler(func(error) { c.fail(fmt.Errorf("%w: the event stream ended", ErrClosed)) })
	c.http, c.legacy = t, true
	// The stream lives as long as the connection, so it cannot have the
	// dialling's context; that one ends it while it is being opened.
	opening := context.AfterFunc(ctx, func() { c.stop(context.Cause(ctx)) })
	defer opening()
	if err := t.Start(c.life); err != nil {
		return c.explain(err, false)
	}
	return c.negotiate(ctx, known)
}

// errForeign is about an HTTP+SSE server that wants messages to be sent elsewhere.
var errForeign = errors.New("its event stream names an endpoint at another origin, which is not followed: configure the URL of that origin")

// endpoint gets the endpoint that an HTTP+SSE server names for messages.
func (c *conn) endpoint(named string) {
	own, err := url.Parse(c.settings.URL)
	if err != nil {
		return
	}
	to, err := own.Parse(named)
	if err == nil && origin(to) != origin(own) {
		c.fail(fmt.Errorf("%w (%s)", errForeign, origin(to)))
	}
}

// errBadURL says no more: the error of the library holds the URL, and that secrets.
var errBadURL = errors.New("the configured URL is none")

// quietLog keeps the library's own lines, which repeat what we report, for debugging.
func quietLog(log *slog.Logger) *slog.Logger {
	return slog.New(slog.NewTextHandler(debugWriter{log}, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

type debugWriter struct{ log *slog.Logger }

func (w debugWriter) Write(p []byte) (int, error) {
	w.log.Debug("mcp-go", "line", strings.TrimSpace(string(p)))
	return len(p), nil
}

// transport is the way that the connection was dialled.
func (c *conn) transport() Transport {
	switch c.http.(type) {
	case nil:
		return TransportStdio
	case *transport.SSE:
		return TransportSSE
	}
	return TransportHTTP
}

// has reports whether the server declared a capability.
func (c *conn) has(capability string) bool {
	value := rawjson.Member(c.offers, capability)
	return value != nil && string(value) != "null"
}

// relistAfter is the shortest time between two lists that are due to a stream
// of notifications having ended: some servers end theirs all the time.
const relistAfter = 30 * time.Second

// streamStands is how long a stream of notifications has to stand so that the
// next one is opened without a long delay.
const streamStands = 10 * time.Second

// streamOpening delays the streams of notifications that follow the first. mcp-go
// asks for one each second, for as long as the connection lives.
func (c *conn) streamOpening(ctx context.Context) error {
	c.mu.Lock()
	again, delay := c.reopen, time.Duration(0)
	switch {
	case again == nil:
		c.reopen = newDelays(firstDelay)
	case time.Since(c.opened) > streamStands:
		again.reset()
		fallthrough
	default:
		delay = again.next()
	}
	c.mu.Unlock()
	if delay > 0 && !c.pause(ctx, delay) {
		return ErrClosed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opened = time.Now()
	return nil
}

// streamEnded asks for new lists: the server may be gone, or they may have
// changed while nobody listened.
func (c *conn) streamEnded() {
	c.mu.Lock()
	soon := time.Since(c.streamed) < relistAfter
	if !soon {
		c.streamed = time.Now()
	}
	c.mu.Unlock()
	if !soon && !c.dead() && c.main {
		c.server.changed(tool.Kinds...)
	}
}
