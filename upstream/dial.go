package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/rawjson"
	"toolfinch/tool"
	"toolfinch/wire"
)

// dial makes a connection for a line. ctx bounds the dialling alone.
func dial(ctx context.Context, l *line) (*conn, error) {
	s := l.server.settings
	known := l.server.knownEra()
	if s.Protocol == ProtocolLegacy {
		known = EraLegacy
	}
	attempt := func(how func(context.Context, *conn, Era, json.RawMessage) error, era Era) (*conn, error) {
		c := newConn(l)
		err := how(ctx, c, era, l.declare)
		if err == nil {
			return c, nil
		}
		if c.client != nil {
			c.close()
		}
		c.stop(ErrClosed)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	if s.Command != "" {
		c, err := attempt(dialStdio, known)
		if errors.Is(err, errNoVersions) {
			return attempt(dialStdio, EraLegacy)
		}
		if !errors.As(err, new(refused)) || s.Protocol == ProtocolLegacy {
			return c, err
		}
		if known == EraUnknown {
			// It knows no handshake: it was only slow to answer the probe.
			return attempt(dialStdio, EraModern)
		}
		return attempt(dialStdio, EraUnknown) // the server has changed
	}
	if s.Transport == TransportSSE {
		return attempt(dialSSE, EraLegacy)
	}
	if known != EraLegacy {
		c, err := attempt(dialHTTP, EraUnknown)
		switch {
		case err == nil && c.era == EraModern:
			return c, nil
		case err == nil:
			c.close() // a legacy session without the stream that list_changed comes on
		case !errors.Is(err, transport.ErrLegacySSEServer) && !errors.Is(err, errNoVersions):
			return nil, err
		}
	}
	c, err := attempt(dialHTTP, EraLegacy)
	switch {
	case err == nil || ctx.Err() != nil:
		return c, err
	case errors.Is(err, transport.ErrLegacySSEServer) && s.Transport != TransportHTTP:
		if c, sseErr := attempt(dialSSE, EraLegacy); sseErr == nil {
			return c, nil
		}
	}
	if known == EraLegacy && s.Protocol != ProtocolLegacy && errors.As(err, new(refused)) {
		if c, modern := attempt(dialHTTP, EraUnknown); modern == nil {
			if c.era == EraModern {
				return c, nil
			}
			c.close()
		}
	}
	return nil, err
}

func dialStdio(ctx context.Context, c *conn, era Era, declare json.RawMessage) error {
	p, err := start(c.settings, c.log)
	if err != nil {
		return err
	}
	c.process = p
	c.queue = wire.NewQueue(p.stdin, func(error) {
		p.kill() // one that has closed its input is of no more use, whatever it says
	})
	read := make(chan struct{})
	pipe := transport.NewIO(wire.Lines(p.stdout, c.tap, c.log, func() { close(read) }), c.queue, io.NopCloser(strings.NewReader("")))
	c.client = newClient(declaringIO{pipe, declare}, era)
	if err := c.client.Start(c.life); err != nil {
		return err
	}
	c.spawn(func() { c.follow(p, read) })
	return c.initialize(ctx)
}

// follow fails the connection when the child has ended, or says no more. What
// it said last is read first: it may be answers.
func (c *conn) follow(p *process, read <-chan struct{}) {
	select {
	case <-p.exited:
		select {
		case <-read:
		case <-time.After(grace): // someone else holds its stdout
		case <-c.life.Done():
		}
		c.fail(fmt.Errorf("%w: the process ended (%s)", ErrClosed, p.state))
	case <-read:
		select {
		case <-p.exited: // the usual reason; it says more
			c.fail(fmt.Errorf("%w: the process ended (%s)", ErrClosed, p.state))
		case <-time.After(grace):
			c.fail(fmt.Errorf("%w: the process has closed its output", ErrClosed))
		case <-c.life.Done():
		}
	case <-c.life.Done():
	}
}

func dialHTTP(ctx context.Context, c *conn, era Era, declare json.RawMessage) error {
	options := []transport.StreamableHTTPCOption{
		transport.WithHTTPBasicClient(c.httpClient()),
		transport.WithHTTPHeaders(c.settings.Headers),
		transport.WithHTTPLogger(quietLog(c.log)),
	}
	if era == EraLegacy {
		//lint:ignore SA1019 the stream is how a legacy server says list_changed
		options = append(options, transport.WithContinuousListening())
	}
	t, err := transport.NewStreamableHTTP(c.settings.URL, options...)
	if err != nil {
		return errBadURL
	}
	c.http, c.client = t, newClient(declaringHTTP{t, declare}, era)
	if err := c.client.Start(c.life); err != nil {
		return err
	}
	return c.initialize(ctx)
}

func dialSSE(ctx context.Context, c *conn, era Era, declare json.RawMessage) error {
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
	c.http, c.client = t, newClient(declaringSSE{t, declare}, era)
	// The stream lives as long as the connection, so it cannot have the
	// dialling's context; that one ends it while it is being opened.
	opening := context.AfterFunc(ctx, func() { c.stop(context.Cause(ctx)) })
	defer opening()
	if err := c.client.Start(c.life); err != nil {
		return c.explain(err, false)
	}
	return c.initialize(ctx)
}

// errBadURL says no more: the error of the library holds the URL, and that secrets.
var errBadURL = errors.New("the configured URL is none")

// httpClient keeps more connections than the two of the default.
func (c *conn) httpClient() *http.Client {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost = 64
	context.AfterFunc(c.life, base.CloseIdleConnections)
	return &http.Client{
		Transport: wire.RoundTripper(base, c.tap),
		// Only Authorization and cookies would be left out for another host, not
		// the other headers that may hold a secret.
		CheckRedirect: func(request *http.Request, via []*http.Request) error {
			if request.URL.Host != via[0].URL.Host || len(via) > 5 {
				return errors.New("the server redirects to another host: configure that URL")
			}
			return nil
		},
	}
}

// quietLog keeps the library's own lines, which repeat what we report, for debugging.
func quietLog(log *slog.Logger) *slog.Logger {
	return slog.New(slog.NewTextHandler(debugWriter{log}, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

type debugWriter struct{ log *slog.Logger }

func (w debugWriter) Write(p []byte) (int, error) {
	w.log.Debug("mcp-go", "line", strings.TrimSpace(string(p)))
	return len(p), nil
}

// The transports of mcp-go, which would write a client's capabilities as far as
// it knows them: these write them as they are.
type (
	declaringIO struct {
		*transport.Stdio
		declare json.RawMessage
	}
	declaringHTTP struct {
		*transport.StreamableHTTP
		declare json.RawMessage
	}
	declaringSSE struct {
		*transport.SSE
		declare json.RawMessage
	}
)

func (t declaringIO) SendRequest(ctx context.Context, r transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	return t.Stdio.SendRequest(ctx, declaring(r, t.declare))
}

func (t declaringHTTP) SendRequest(ctx context.Context, r transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	return t.StreamableHTTP.SendRequest(ctx, declaring(r, t.declare))
}

func (t declaringSSE) SendRequest(ctx context.Context, r transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	return t.SSE.SendRequest(ctx, declaring(r, t.declare))
}

// declaring is a request of the negotiation with the given capabilities.
func declaring(r transport.JSONRPCRequest, capabilities json.RawMessage) transport.JSONRPCRequest {
	params, err := json.Marshal(r.Params)
	if err != nil {
		return r
	}
	if r.Method == string(mcp.MethodInitialize) {
		params, err = rawjson.Set(params, "capabilities", capabilities)
	} else if meta := rawjson.Member(params, "_meta"); rawjson.Member(meta, mcp.MetaKeyClientCapabilities) != nil {
		if meta, err = rawjson.Set(meta, mcp.MetaKeyClientCapabilities, capabilities); err == nil {
			params, err = rawjson.Set(params, "_meta", meta)
		}
	}
	if err == nil {
		r.Params = json.RawMessage(params)
	}
	return r
}

func newClient(t transport.Interface, era Era) *client.Client {
	if era == EraLegacy {
		//lint:ignore SA1019 most servers speak the handshake; the verdict saves the probe
		return client.NewClient(t, client.WithLegacyProtocolOnly())
	}
	if era == EraModern {
		return client.NewClient(t, client.WithDiscoverTimeout(-1)) // no longer a guess
	}
	return client.NewClient(t)
}

// initialize negotiates: server/discover or the handshake.
func (c *conn) initialize(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.life, func() { cancel(context.Cause(c.life)) })()
	result, err := c.client.Initialize(ctx, mcp.InitializeRequest{Params: mcp.InitializeParams{ClientInfo: clientInfo()}})
	if err != nil {
		if errors.Is(err, transport.ErrTransportClosed) { // follow knows why
			<-ctx.Done()
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, transport.ErrLegacySSEServer):
			return refused{err}
		case c.http != nil:
			if err = c.explain(err, true); errors.As(err, new(undelivered)) {
				return err
			}
		default:
			err = clean(err)
		}
		return refused{fmt.Errorf("initialize: %w", plain(err))}
	}
	c.version = result.ProtocolVersion
	c.era = EraLegacy
	if mcp.IsModernProtocol(c.version) {
		c.era = EraModern
		c.mu.Lock()
		modern := c.versions
		c.mu.Unlock()
		if !modern {
			return errNoVersions
		}
	}
	c.capabilities = result.Capabilities
	c.instructions = result.Instructions
	close(c.ready)
	return nil
}

// errNoVersions is about a server that answers any method with an empty result:
// an answer to server/discover names versions.
var errNoVersions = errors.New("it answers server/discover without naming a version")

// refused wraps the error of a server that is there and does not want to talk
// this way. Another era may be what it wants.
type refused struct{ error }

func (r refused) Unwrap() error { return r.error }

// introduced keeps what the server says of itself as it was sent. It sees the
// answers of the negotiation, the one that counts last.
func (c *conn) introduced(result json.RawMessage) {
	info, abilities := rawjson.Member(result, "serverInfo"), rawjson.Member(result, "capabilities")
	if info == nil {
		info = rawjson.Member(rawjson.Member(result, "_meta"), mcp.MetaKeyServerInfo)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if info != nil {
		c.info = info
	}
	if abilities != nil {
		c.abilities = abilities
	}
	if rawjson.Member(result, "supportedVersions") != nil {
		c.versions = true
	}
}

func (c *conn) introduction() json.RawMessage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.info
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

// offers returns the server's capabilities.
func (c *conn) offers() json.RawMessage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.abilities
}

// relistAfter is the shortest time between two lists that are due to a stream
// of notifications having ended: some servers end theirs all the time.
const relistAfter = 30 * time.Second

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
