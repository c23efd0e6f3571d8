package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// How often a lost connection is dialled for one call (or those that wait with
// it), and the waits between: the first, doubled each time. The longest comes
// before a connection in place of several that answered nothing.
const (
	redials    = 5
	firstDelay = 100 * time.Millisecond
	maxDelay   = 5 * time.Second
)

// conn is one initialized session with the server.
type conn struct {
	mcp   *client.Client
	tap   *tap
	tool  string         // name of the proxy tool
	calls sync.WaitGroup // over it; added to under the client's mu while it is the current one
	end   context.CancelCauseFunc

	answered atomic.Bool // a call over it was answered
}

// retire closes the connection after the calls over it have ended; their timeouts
// bound the wait.
func (c *conn) retire() error {
	c.calls.Wait()
	return c.close()
}

func (c *conn) close() error {
	err := c.tap.Close()
	c.end(ErrClosed)
	c.tap.work.Wait()
	return err
}

// dialing is a series of attempts to connect that any number of callers wait for.
type dialing struct {
	done chan struct{}
	err  error
}

// connect returns the connection, dialling up to so many times if there is none.
// It counts as one of its calls: the caller is to end that.
func (c *Client) connect(ctx context.Context, attempts int) (*conn, error) {
	for {
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return nil, ErrClosed
		}
		if conn := c.conn; conn != nil {
			conn.calls.Add(1)
			c.mu.Unlock()
			return conn, nil
		}
		d := c.dialing
		if d == nil {
			d = &dialing{done: make(chan struct{})}
			c.dialing = d
			wait := c.wait
			c.work.Go(func() { c.redial(d, wait, attempts) })
		}
		c.mu.Unlock()
		select {
		case <-d.done:
			if d.err != nil {
				return nil, d.err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// redial fills in c.conn and ends d.
func (c *Client) redial(d *dialing, wait time.Duration, attempts int) {
	c.pause(wait)
	var made *conn
	for delay := firstDelay; ; delay *= 2 {
		var again bool
		made, again, d.err = c.dialOnce()
		attempts--
		if d.err == nil || !again || attempts < 1 || !c.pause(delay) {
			break
		}
	}
	c.mu.Lock()
	c.dialing = nil
	if c.closed {
		d.err = ErrClosed
	} else {
		c.conn = made // nil with an error
	}
	c.mu.Unlock()
	if made != nil && d.err != nil { // Close did not see it
		_ = made.close()
	}
	close(d.done)
}

// pause reports whether it waited to the end.
func (c *Client) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.life.Done():
		return false
	}
}

// dialOnce makes a connection. again says that another attempt may do better.
func (c *Client) dialOnce() (made *conn, again bool, err error) {
	ctx, end := context.WithCancelCause(c.base)
	late := time.AfterFunc(c.timeout, func() {
		end(fmt.Errorf("not connected within %s: %w", c.timeout, context.DeadlineExceeded))
	})
	closed := context.AfterFunc(c.life, func() { end(ErrClosed) })
	fail := func(t *tap, again bool, err error) (*conn, bool, error) {
		late.Stop()
		closed()
		err = because(ctx, err)
		if t != nil {
			_ = t.Close()
		}
		end(ErrClosed)
		if t != nil {
			t.work.Wait()
		}
		return nil, again, err
	}
	inner, err := c.dial(ctx)
	if err != nil {
		return fail(nil, !errors.Is(err, ErrDialedOnce), err)
	}
	wrapped, t := tapInto(inner)
	made = &conn{mcp: client.NewClient(wrapped, c.options...), tap: t, end: end}
	made.mcp.OnNotification(c.notified)
	trip := &trip{}
	if made.tool, err = c.greet(context.WithValue(ctx, tripKey{}, trip), made.mcp, trip); err != nil {
		return fail(t, trip.failed(), err)
	}
	if !late.Stop() || !closed() {
		return fail(t, false, context.Cause(ctx))
	}
	return made, false, nil
}

// greet starts a session, and returns the name of the proxy tool.
func (c *Client) greet(ctx context.Context, session *client.Client, trip *trip) (string, error) {
	if err := session.Start(ctx); err != nil {
		trip.err = err
		return "", fmt.Errorf("start: %w", err)
	}
	hello := mcp.InitializeRequest{Params: mcp.InitializeParams{ClientInfo: c.info}}
	if _, err := session.Initialize(ctx, hello); err != nil {
		return "", fmt.Errorf("initialize: %w", err)
	}
	return detect(ctx, session, trip, c.toolName)
}

// do sends something over the connection; over a new one once more, if the first
// was lost and either that is safe by its nature or it never got there.
func (c *Client) do(ctx context.Context, what string, repeatable bool, send func(context.Context, *conn) error) error {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	for again := false; ; again = true {
		conn, err := c.connect(ctx, redials)
		if err != nil {
			return fmt.Errorf("proxytool: %s: connect: %w", what, because(ctx, err))
		}
		trip := &trip{}
		err = send(context.WithValue(ctx, tripKey{}, trip), conn)
		conn.calls.Done()
		if trip.answered {
			conn.answered.Store(true)
		}
		lost := ctx.Err() == nil && trip.lost()
		if lost {
			c.drop(conn)
		}
		if err == nil {
			return nil
		}
		if !lost || again || !repeatable && !trip.unsent() {
			return fmt.Errorf("proxytool: %s: %w", what, because(ctx, err))
		}
	}
}

// drop gives up a connection. Where one after the other can be made and is lost
// at the first call, dialling takes longer and longer.
func (c *Client) drop(lost *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != lost { // another call did, or Close does
		return
	}
	c.conn = nil
	if lost.answered.Load() {
		c.wait = 0
	} else {
		c.wait = min(max(2*c.wait, firstDelay), maxDelay)
	}
	c.work.Go(func() { _ = lost.retire() })
}

// bound is ctx as every call has it: bounded, and ended by Close.
func (c *Client) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(c.life, func() { stop(ErrClosed) })
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("no answer within %s", c.timeout))
	return ctx, func() {
		unhook()
		cancel()
		stop(nil)
	}
}

// because adds the cause of ctx's end to err, if err comes from it.
func because(ctx context.Context, err error) error {
	if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(ctx.Err(), cause) {
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return ctx.Err()
}

// trip records the requests of one call: the tap fills in the trip of its context.
// All but sent and heard is read and written by the goroutine that calls.
type trip struct {
	sent     atomic.Bool     // a request was, or may have been, written
	heard    atomic.Int64    // HTTP responses that began
	answered bool            // a request was answered, whatever the answer
	raw      json.RawMessage // the last result, as it came; nil when the last answer was none
	err      error           // of the transport, about the last request; nil when it was answered
}

type tripKey struct{}

// failed reports whether the transport failed in a way that may pass.
func (t *trip) failed() bool {
	var auth *transport.AuthorizationRequiredError
	var oauth *transport.OAuthAuthorizationRequiredError
	return t.err != nil && !errors.As(t.err, &auth) && !errors.As(t.err, &oauth) && !errors.Is(t.err, transport.ErrLegacySSEServer)
}

// Beginnings of errors that mcp-go has no value or type for: the server answered
// a request with an HTTP status that says no to it, and what was to go on with an
// answer that had begun failed.
const (
	textStatus = "request failed with status "
	textResume = "failed to resume "
)

func (t *trip) says(text string) bool { return strings.HasPrefix(t.err.Error(), text) }

// lost reports whether the connection is lost, so that a new one may work. It is not
// lost if the server only refused a request with a status.
func (t *trip) lost() bool { return t.failed() && !t.says(textStatus) }

// unsent reports whether the server has not seen the call: it says so itself, or the
// request never left. A failure after a response began may be that of its rest,
// requested again: the call itself has arrived.
func (t *trip) unsent() bool {
	if t.answered {
		return false
	}
	if !t.sent.Load() {
		return true
	}
	switch t.heard.Load() {
	case 0:
		var op *net.OpError
		return errors.As(t.err, &op) && op.Op == "dial" || errors.Is(t.err, transport.ErrSessionTerminated)
	case 1:
		// Another request can have learned that the session is over, so that this
		// one does not ask any more.
		return errors.Is(t.err, transport.ErrSessionTerminated) && !t.says(textResume)
	}
	return false
}
