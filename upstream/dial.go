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

	"toolfinch/wire"
)

// dial makes a connection. ctx bounds the dialling alone; known is the era the
// server was found in before. notify gets the upstream's notifications.
func dial(ctx context.Context, s Settings, known Era, notify func(string, json.RawMessage), log *slog.Logger) (*conn, error) {
	if s.Protocol == ProtocolLegacy {
		known = EraLegacy
	}
	attempt := func(how func(context.Context, *conn, Era) error, era Era) (*conn, error) {
		c := &conn{settings: s, log: log, tap: &wire.Tap{Notify: notify}}
		c.life, c.stop = context.WithCancelCause(context.Background())
		err := how(ctx, c, era)
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
		if err != nil && known != EraUnknown && s.Protocol != ProtocolLegacy && ctx.Err() == nil {
			return attempt(dialStdio, EraUnknown) // the server may have changed
		}
		return c, err
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
		case !errors.Is(err, transport.ErrLegacySSEServer):
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
	if known == EraLegacy && s.Protocol != ProtocolLegacy {
		if c, modern := attempt(dialHTTP, EraUnknown); modern == nil {
			if c.era == EraModern {
				return c, nil
			}
			c.close()
		}
	}
	return nil, err
}

func dialStdio(ctx context.Context, c *conn, era Era) error {
	p, err := start(c.settings, c.log)
	if err != nil {
		return err
	}
	c.process = p
	c.queue = wire.NewQueue(p.stdin)
	pipe := transport.NewIO(wire.Lines(p.stdout, c.tap, c.log), c.queue, io.NopCloser(strings.NewReader("")))
	c.client = newClient(pipe, era)
	if err := c.client.Start(c.life); err != nil {
		return err
	}
	c.work.Go(func() {
		select {
		case <-p.exited:
			c.fail(fmt.Errorf("%w: the process ended (%s)", ErrClosed, p.state))
		case <-c.life.Done():
		}
	})
	return c.initialize(ctx)
}

func dialHTTP(ctx context.Context, c *conn, era Era) error {
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
		return err
	}
	c.http, c.client = t, newClient(t, era)
	if err := c.client.Start(c.life); err != nil {
		return err
	}
	return c.initialize(ctx)
}

func dialSSE(ctx context.Context, c *conn, era Era) error {
	t, err := transport.NewSSE(c.settings.URL,
		transport.WithHTTPClient(c.httpClient()),
		transport.WithHeaders(c.settings.Headers),
		transport.WithSSELogger(quietLog(c.log)),
		transport.WithEndpointTimeout(c.settings.ConnectTimeout),
		transport.WithResponseTimeout(24*time.Hour), // ours is the call's context
	)
	if err != nil {
		return err
	}
	t.SetConnectionLostHandler(func(error) { c.fail(fmt.Errorf("%w: the event stream ended", ErrClosed)) })
	c.http, c.client = t, newClient(t, era)
	// The stream lives as long as the connection, so it cannot have the
	// dialling's context; that one ends it while it is being opened.
	opening := context.AfterFunc(ctx, func() { c.stop(context.Cause(ctx)) })
	if err := c.client.Start(c.life); err != nil {
		return err
	}
	opening()
	return c.initialize(ctx)
}

// httpClient keeps more connections than the two of the default.
func (c *conn) httpClient() *http.Client {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost = 64
	context.AfterFunc(c.life, base.CloseIdleConnections)
	return &http.Client{Transport: wire.RoundTripper(base, c.tap)}
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

func newClient(t transport.Interface, era Era) *client.Client {
	if era == EraLegacy {
		//lint:ignore SA1019 most servers speak the handshake; the verdict saves the probe
		return client.NewClient(t, client.WithLegacyProtocolOnly())
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
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, transport.ErrLegacySSEServer) {
			return err
		}
		explained := c.explain(ctx, err)
		return fmt.Errorf("initialize: %w", explained)
	}
	c.version = result.ProtocolVersion
	c.era = EraLegacy
	if mcp.IsModernProtocol(c.version) {
		c.era = EraModern
	}
	c.capabilities = result.Capabilities
	c.instructions = result.Instructions
	c.info, err = json.Marshal(result.ServerInfo)
	if err != nil {
		return err
	}
	if c.era == EraModern && c.capabilities.Tools != nil && c.capabilities.Tools.ListChanged {
		c.work.Go(func() { _ = c.client.Listen(c.life, mcp.SubscriptionFilter{ToolsListChanged: true}) })
	}
	return nil
}
