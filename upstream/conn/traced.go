package conn

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"toolfinch/internal/telemetry"
	"toolfinch/tool"
)

// traced is exchange within a span; the server gets the span's context.
func (c *Conn) traced(ctx context.Context, reply *Reply, method string, params json.RawMessage, header http.Header) (json.RawMessage, error) {
	ctx, span := c.options.Traces.Ask(ctx, c.message(strconv.AppendInt(nil, reply.ID, 10), method, params), c.peer)
	if c.Transport != TransportStdio && header == nil {
		header = http.Header{}
	}
	params = span.Inject(ctx, params, header)
	result, err := c.exchange(ctx, reply, method, params, header)
	if c.Transport != TransportStdio {
		span.Spoke(reply.proto)
	}
	end(ctx, span, result, err)
	return result, err
}

// Answering begins the span of a server's request that came at since, if there are traces. call is the context of the
// call that the request belongs to, or ctx. The returned context belongs to the span; done ends the span with the
// answer.
func (c *Conn) Answering(ctx, call context.Context, since time.Time, id json.RawMessage, method string, params json.RawMessage) (_ context.Context, done func(json.RawMessage, error)) {
	ctx, span := c.options.Traces.Asked(ctx, call, c.message(id, method, params), c.peer, since)
	return ctx, func(result json.RawMessage, err error) {
		if call.Err() != nil {
			ctx = call
		}
		end(ctx, span, result, err)
	}
}

// message describes a request over the connection for its span.
func (c *Conn) message(id json.RawMessage, method string, params json.RawMessage) telemetry.Message {
	m := telemetry.Message{Method: method, ID: id, Params: params}
	if s, ok := c.channel.(*streamable); ok {
		m.Session = s.sessionID()
	}
	m.Version, _ = c.spoken.Load().(string)
	return m
}

// end ends a span with the answer of its request.
func end(ctx context.Context, span *telemetry.Span, result json.RawMessage, err error) {
	if err == nil {
		span.Result(result)
	} else if rpc, ok := errors.AsType[*tool.RPCError](err); ok {
		span.Refused(rpc.Code)
	} else {
		span.Failed(kindOf(ctx, err))
	}
}

// kindOf names in one word why a request has no answer (attribute error.type of OpenTelemetry).
func kindOf(ctx context.Context, err error) string {
	status, ok := errors.AsType[*StatusError](err)
	switch {
	case ok:
		return strconv.Itoa(status.Code)
	case errors.Is(err, ErrNotConnected):
		return "not_connected"
	case errors.Is(err, ErrClosed):
		return "connection_closed"
	case errors.Is(err, ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case ctx.Err() != nil, errors.Is(err, context.Canceled):
		return "cancelled"
	}
	return "_OTHER"
}

// peer describes the server for spans; nil without traces.
func (o *Options) peer(transport Transport) *telemetry.Peer {
	if o.Traces == nil {
		return nil
	}
	peer := &telemetry.Peer{Name: o.Name, Pipe: transport == TransportStdio}
	if at, err := url.Parse(o.URL); err == nil && !peer.Pipe {
		peer.Address = at.Hostname()
		peer.Port, _ = strconv.Atoi(at.Port())
		if peer.Port == 0 {
			peer.Port = map[string]int{"http": 80, "https": 443}[at.Scheme]
		}
	}
	return peer
}
