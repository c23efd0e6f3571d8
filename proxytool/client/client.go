// Package client owns the client side of the MCP Proxy Extension: it finds the
// proxy tool of a server, lists, describes and calls through it, and can replace an
// ordinary client by sending all lists and calls through it. It makes no transports,
// and knows nothing of what is behind the proxy tool.
package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/leeway"
	"toolfinch/proxytool"
)

// DefaultTimeout is that of WithTimeout.
const DefaultTimeout = 60 * time.Second

// closeTimeout bounds how long Close waits for what ignores that it is over.
const closeTimeout = 15 * time.Second

var (
	// ErrNoProxyTool is wrapped by the error of a connection to a server that has no
	// proxy tool. The text says what was looked for.
	ErrNoProxyTool = errors.New("the server has no proxy tool")
	// ErrClosed is wrapped by the error of every call after Close, and of those that
	// Close ended.
	ErrClosed = errors.New("the client is closed")
	// ErrDialedOnce is returned by the Dial of Once from the second time on.
	ErrDialedOnce = errors.New("the connection is lost, and its transport cannot be dialled again")
)

// Dial makes a transport to the server; it need not be started. It is called
// once by Open and again whenever the connection was lost, never twice at a time.
// ctx ends with the connection, or when it is not made in time.
type Dial func(ctx context.Context) (transport.Interface, error)

// Once is the Dial of an existing transport, started or not. It cannot be dialled
// again when it is lost.
func Once(t transport.Interface) Dial {
	var used sync.Once
	return func(context.Context) (transport.Interface, error) {
		err := ErrDialedOnce
		used.Do(func() { err = nil })
		if err != nil {
			return nil, err
		}
		return t, nil
	}
}

// Client is a connection to a server with a proxy tool, made again when it is
// lost. Its methods are safe for concurrent use.
type Client struct {
	dial        Dial
	toolName    string
	transparent bool
	timeout     time.Duration
	info        mcp.Implementation
	options     []client.ClientOption
	progress    ProgressFunc

	base context.Context // of connections: the values of Open's ctx, never ended
	life context.Context // ends with Close
	end  context.CancelFunc
	work sync.WaitGroup // dialling, and closing what was lost; added to under mu while not closed

	mu       sync.Mutex    // guards what follows; never held over I/O or a handler
	conn     *conn         // nil while there is none
	dialing  *dialing      // nil while nobody dials
	wait     time.Duration // before dialling again; 0 unless the last connection answered nothing
	closed   bool
	handlers []func(mcp.JSONRPCNotification)

	sinks sinks // where progress goes
}

// Option changes what Open makes.
type Option func(*Client)

// WithToolName says what the proxy tool is called; default proxytool.DefaultName. A
// server that lists no tool of that name is searched for one with the parameters
// of a proxy tool.
func WithToolName(name string) Option { return func(c *Client) { c.toolName = name } }

// WithTransparent makes ListTools, ListResources, ListResourceTemplates,
// ListPrompts, CallTool, ReadResource and GetPrompt go through the proxy tool.
// Default: they go to the server itself.
func WithTransparent() Option { return func(c *Client) { c.transparent = true } }

// WithTimeout bounds every call, with the connecting and repeating that it may
// take; default DefaultTimeout. The context of a call can only shorten it. A
// server that hangs is not replaced: on a pipe (stdio) calls go on to end by this
// bound until its process ends or the Client is closed.
func WithTimeout(d time.Duration) Option {
	return func(c *Client) {
		if d > 0 {
			c.timeout = d
		}
	}
}

// WithProgress gives f the progress of every call whose context has no other
// ProgressFunc (OnProgress).
func WithProgress(f ProgressFunc) Option { return func(c *Client) { c.progress = f } }

// WithClientInfo says who the client is; default "proxyclient", without version.
func WithClientInfo(name, version string) Option {
	return func(c *Client) { c.info = mcp.Implementation{Name: name, Version: version} }
}

// WithClientOptions are passed to the mcp-go client of every connection: what it
// answers when the server asks (elicitation, sampling, roots), and which protocol
// it speaks.
func WithClientOptions(options ...client.ClientOption) Option {
	return func(c *Client) { c.options = append(c.options, options...) }
}

// Open connects to a server, initializes the session and finds the proxy tool.
// It dials once; ctx bounds that, with the timeout of WithTimeout, and its values
// reach every later Dial too. Close the Client.
func Open(ctx context.Context, dial Dial, options ...Option) (*Client, error) {
	c := &Client{
		dial:     dial,
		toolName: proxytool.DefaultName,
		timeout:  DefaultTimeout,
		info:     mcp.Implementation{Name: "proxyclient"},
		base:     context.WithoutCancel(ctx),
	}
	c.life, c.end = context.WithCancel(c.base)
	for _, option := range options {
		option(c)
	}
	bound, cancel := c.bound(ctx)
	defer cancel()
	conn, err := c.connect(bound, 1)
	if err != nil {
		err = fmt.Errorf("proxytool: open: %w", because(bound, err))
		return nil, errors.Join(err, c.Close())
	}
	conn.calls.Done()
	return c, nil
}

// ToolName is the name of the proxy tool that was found, or the wanted name while
// there is no connection.
func (c *Client) ToolName() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return c.toolName
	}
	return c.conn.tool
}

// OnNotification adds a handler of the server's notifications, but not of the
// progress that goes to a ProgressFunc. Handlers run one after the other while
// nothing else is read from the connection: they must not call the Client. A
// server of the 2026-07-28 era, and one over HTTP, may say nothing but what
// belongs to a call.
func (c *Client) OnNotification(handler func(mcp.JSONRPCNotification)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handlers = append(slices.Clone(c.handlers), handler)
}

// notified takes every notification of every connection.
func (c *Client) notified(n mcp.JSONRPCNotification) {
	if c.sinks.take(n) {
		return
	}
	c.mu.Lock()
	handlers := c.handlers
	c.mu.Unlock()
	for _, handle := range handlers {
		handle(n)
	}
}

// Close ends the calls in flight and the connection, and waits for their end. It
// returns the transport's error. It may be called twice.
func (c *Client) Close() error {
	c.mu.Lock()
	conn := c.conn
	c.conn, c.closed = nil, true
	c.mu.Unlock()
	c.end()
	done := make(chan error, 1)
	go func() { // ends with the wait, or with what ignores that it is over
		var err error
		if conn != nil {
			err = conn.retire()
		}
		c.work.Wait()
		done <- err
	}()
	timer := time.NewTimer(leeway.Of(closeTimeout))
	defer timer.Stop()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("proxytool: close: %w", err)
		}
		return nil
	case <-timer.C:
		return fmt.Errorf("proxytool: close: something still runs after %s", closeTimeout)
	}
}
