package conn

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"toolfinch/telemetry"
	"toolfinch/tool"
)

// traced is exchange within a span, whose context the server gets.
func (c *Conn) traced(ctx context.Context, reply *Reply, method string, params json.RawMessage, header http.Header) (json.RawMessage, error) {
	var session string
	if s, ok := c.channel.(*streamable); ok {
		session = s.sessionID()
	}
	version, _ := c.spoken.Load().(string)
	ctx, span := c.options.Traces.Ask(ctx, telemetry.Message{
		Method: method, ID: strconv.AppendInt(nil, reply.ID, 10), Params: params, Session: session, Version: version,
	}, c.peer)
	if c.Transport != TransportStdio && header == nil {
		header = http.Header{}
	}
	params = span.Inject(ctx, params, header)
	result, err := c.exchange(ctx, reply, method, params, header)
	if c.Transport != TransportStdio {
		span.Spoke(reply.proto)
	}
	if err == nil {
		span.Result(result)
	} else if rpc, ok := errors.AsType[*tool.RPCError](err); ok {
		span.Refused(rpc.Code)
	} else {
		span.Failed(kindOf(ctx, err))
	}
	return result, err
}

// kindOf is why a request has no answer, in one of a few words.
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
	case ctx.Err() != nil:
		return "cancelled"
	}
	return "_OTHER"
}

// asPeer is the server as spans have it; nil without traces.
func (c *Conn) asPeer() *telemetry.Peer {
	if c.options.Traces == nil {
		return nil
	}
	peer := &telemetry.Peer{Name: c.options.Name, Pipe: c.Transport == TransportStdio}
	if at, err := url.Parse(c.options.URL); err == nil && !peer.Pipe {
		peer.Address = at.Hostname()
		peer.Port, _ = strconv.Atoi(at.Port())
		if peer.Port == 0 {
			peer.Port = map[string]int{"http": 80, "https": 443}[at.Scheme]
		}
	}
	return peer
}
