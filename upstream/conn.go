package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/tool"
	"toolfinch/wire"
)

// conn is one live connection: negotiated, able to send raw requests. It is
// used until it fails once, then another is dialled.
type conn struct {
	settings Settings
	log      *slog.Logger
	tap      *wire.Tap
	client   *client.Client
	http     transport.Interface // nil on stdio
	queue    *wire.Queue         // nil on HTTP
	process  *process            // nil on HTTP

	era          Era
	version      string // negotiated protocol version
	info         json.RawMessage
	instructions string
	capabilities mcp.ServerCapabilities

	life context.Context // ends with the connection; its cause is why
	stop context.CancelCauseFunc
	work sync.WaitGroup // goroutines of this connection
	once sync.Once
}

// dead reports whether the connection has failed or was closed.
func (c *conn) dead() bool { return c.life.Err() != nil }

// fail ends the connection: what waits on it fails with err.
func (c *conn) fail(err error) {
	c.stop(err)
	c.tap.FailAll(context.Cause(c.life), true)
}

// close ends the connection and everything that belongs to it. Bounded.
func (c *conn) close() {
	c.fail(ErrClosed)
	c.once.Do(func() {
		if c.process != nil {
			c.process.end()
			_ = c.queue.Close()
		}
		_ = c.client.Close() // HTTP: ends the session, within 5 s
	})
	c.work.Wait()
}

// undelivered wraps the error of a request that never reached the upstream.
type undelivered struct{ error }

func (u undelivered) Unwrap() error { return u.error }

// broken wraps an error after which the connection is of no more use.
type broken struct{ error }

func (b broken) Unwrap() error { return b.error }

// request sends a request and returns the raw result. An error answer comes
// back as *tool.RPCError.
func (c *conn) request(ctx context.Context, method string, params json.RawMessage, header http.Header) (json.RawMessage, error) {
	id, reply := c.tap.Expect()
	defer c.tap.Forget(id)
	var err error
	if c.queue != nil {
		err = c.writeLine(id, method, params)
	} else {
		err = c.postRequest(ctx, id, method, params, header, reply)
	}
	if err == nil {
		select {
		case <-reply.Done:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		// A 2026-07-28 server over HTTP takes the end of the request for it.
		if ctx.Err() != nil && (c.era == EraLegacy || c.queue != nil) {
			c.cancel(id, context.Cause(ctx))
		}
		return nil, c.explain(ctx, err)
	}
	switch {
	case reply.Error != nil:
		return nil, rpcError(reply.Error)
	case reply.Err != nil && c.dead():
		return nil, broken{reply.Err}
	case reply.Err != nil:
		return nil, reply.Err
	}
	return reply.Result, nil
}

func (c *conn) writeLine(id int64, method string, params json.RawMessage) error {
	line := make([]byte, 0, len(params)+len(method)+64)
	line = append(line, `{"jsonrpc":"2.0","id":`...)
	line = strconv.AppendInt(line, id, 10)
	line = append(append(line, `,"method":`...), strconv.Quote(method)...)
	if params != nil {
		line = append(append(line, `,"params":`...), wire.OneLine(params)...)
	}
	if _, err := c.queue.Write(append(line, '}', '\n')); err != nil {
		if errors.Is(err, wire.ErrNotReading) {
			return undelivered{err}
		}
		return undelivered{broken{context.Cause(c.life)}}
	}
	return nil
}

// postRequest sends over HTTP and returns when the answer was taken in by the
// tap, or cannot come any more.
func (c *conn) postRequest(ctx context.Context, id int64, method string, params json.RawMessage, header http.Header, reply *wire.Reply) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.life, func() { cancel(context.Cause(c.life)) })()
	request := transport.JSONRPCRequest{JSONRPC: mcp.JSONRPC_VERSION, ID: mcp.NewRequestId(id), Method: method, Header: header}
	if params != nil {
		request.Params = params
	}
	response, err := c.http.SendRequest(ctx, request)
	select {
	case <-reply.Done: // the tap has it, whatever the library makes of its stub
		return nil
	default:
	}
	switch {
	case err != nil:
		return err
	case response.Error != nil: // an error without our ID
		return &tool.RPCError{Code: response.Error.Code, Message: response.Error.Message}
	}
	return errors.New("the answer was lost")
}

// explain tells what the failure of an HTTP request means.
func (c *conn) explain(ctx context.Context, err error) error {
	var rpc *tool.RPCError
	var dial *net.OpError
	switch {
	case errors.As(err, &rpc) || errors.As(err, new(undelivered)):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case c.dead():
		return broken{context.Cause(c.life)}
	case errors.Is(err, wire.ErrTooLarge):
		return wire.ErrTooLarge
	case errors.Is(err, transport.ErrSessionTerminated):
		return undelivered{broken{errors.New("the session has ended")}}
	case errors.Is(err, transport.ErrAuthorizationRequired):
		return errors.New("the server wants authorization (401): set it under headers")
	case errors.As(err, &dial) && dial.Op == "dial", errors.Is(err, syscall.ECONNREFUSED):
		return undelivered{broken{errors.New("connection refused")}}
	case errors.As(err, &dial):
		return broken{errors.New("connection lost")}
	}
	return broken{errors.New(clean(err))}
}

// clean is an error's text without the library's wrapping and without the URL,
// which may hold a secret.
func clean(err error) string {
	var withURL interface{ Unwrap() error }
	text := err.Error()
	for e := err; e != nil; e = errors.Unwrap(e) {
		if u, ok := e.(interface{ Timeout() bool }); ok {
			if inner, ok := u.(interface{ Unwrap() error }); ok && strings.Contains(e.Error(), "http") {
				withURL = inner
			}
		}
	}
	if withURL != nil && withURL.Unwrap() != nil {
		text = withURL.Unwrap().Error()
	}
	text = strings.ReplaceAll(text, "transport error: ", "")
	text = strings.ReplaceAll(text, "failed to send request: ", "")
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:300], "") + "..."
	}
	return text
}

// cancel tells the upstream to stop working on a request, off the caller's path.
func (c *conn) cancel(id int64, why error) {
	params, _ := json.Marshal(map[string]any{"requestId": id, "reason": why.Error()})
	c.work.Go(func() {
		ctx, cancel := context.WithTimeout(c.life, 5*time.Second)
		defer cancel()
		_ = c.notify(ctx, "notifications/cancelled", params)
	})
}

func (c *conn) notify(ctx context.Context, method string, params json.RawMessage) error {
	if c.queue != nil {
		line := append([]byte(`{"jsonrpc":"2.0","method":`), strconv.Quote(method)...)
		line = append(append(append(line, `,"params":`...), wire.OneLine(params)...), '}', '\n')
		_, err := c.queue.Write(line)
		return err
	}
	var fields map[string]any
	_ = json.Unmarshal(params, &fields)
	return c.http.SendNotification(ctx, mcp.JSONRPCNotification{JSONRPC: mcp.JSONRPC_VERSION,
		Notification: mcp.Notification{Method: method, Params: mcp.NotificationParams{AdditionalFields: fields}}})
}

func rpcError(raw json.RawMessage) *tool.RPCError {
	e := &tool.RPCError{Raw: raw, Code: tool.CodeInternal}
	_ = json.Unmarshal(raw, e)
	return e
}

// meta is what a request to a 2026-07-28 server carries in _meta.
func (c *conn) meta(level string) map[string]any {
	m := map[string]any{
		mcp.MetaKeyProtocolVersion:    c.version,
		mcp.MetaKeyClientCapabilities: struct{}{},
		mcp.MetaKeyClientInfo:         clientInfo(),
	}
	if level != "" {
		m[mcp.MetaKeyLogLevel] = level
	}
	return m
}

// protocolKeys are the keys of a client's own protocol in _meta: they speak of
// its connection to us, not of ours to the upstream.
var protocolKeys = map[string]bool{
	mcp.MetaKeyProtocolVersion:    true,
	mcp.MetaKeyClientCapabilities: true,
	mcp.MetaKeyClientInfo:         true,
	mcp.MetaKeyLogLevel:           true,
}

// withMeta returns params with the _meta that this connection's protocol wants:
// a progress token of ours, if not empty, in place of the client's, and
// everything else of the client's as it is.
func (c *conn) withMeta(params json.RawMessage, progressToken, level string) (json.RawMessage, error) {
	var out bytes.Buffer
	add := func(key string, value []byte) {
		if out.Len() > 0 {
			out.WriteByte(',')
		}
		name, _ := json.Marshal(key)
		out.Write(name)
		out.WriteByte(':')
		out.Write(value)
	}
	for key, value := range wire.Members(wire.Member(params, "_meta")) {
		switch {
		case key == "progressToken" && progressToken != "":
			add(key, []byte(strconv.Quote(progressToken)))
		case key != "progressToken" && !protocolKeys[key]:
			add(key, value)
		}
	}
	if c.era == EraModern {
		for key, value := range c.meta(level) {
			raw, err := json.Marshal(value)
			if err != nil {
				return nil, err
			}
			add(key, raw)
		}
	}
	if out.Len() == 0 && wire.Member(params, "_meta") == nil {
		return params, nil
	}
	return wire.Set(params, "_meta", []byte("{"+out.String()+"}"))
}

// header returns the HTTP headers that a 2026-07-28 server wants with a request.
func (c *conn) header(method string, params json.RawMessage, def *tool.Def) http.Header {
	if c.era != EraModern || c.http == nil {
		return nil
	}
	header := http.Header{}
	for name, value := range mcp.StandardHeaders(c.version, mcp.MCPMethod(method), params) {
		header.Set(name, value)
	}
	if def != nil && bytes.Contains(def.InputSchema, []byte("x-mcp-header")) {
		var typed mcp.Tool
		if json.Unmarshal(def.Raw, &typed) == nil && mcp.ValidateParamHeaderAnnotations(&typed) == nil {
			for name, value := range mcp.GenerateParamHeaders(&typed, params) {
				header.Set(name, value)
			}
		}
	}
	return header
}

// Version is told to upstreams as this client's version.
var Version = "dev"

func clientInfo() mcp.Implementation { return mcp.Implementation{Name: "toolfinch", Version: Version} }
