package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/leeway"
)

// cancelTimeout bounds telling the server that a call is given up.
const cancelTimeout = 5 * time.Second

var errNoAnswer = errors.New("the transport returned no answer")

// tap is a transport that keeps the bytes of results, which mcp-go's typed
// results lose some of, and that never holds up a caller whose context has ended:
// a child that does not read, or a handler in the same process, would.
type tap struct {
	transport.Interface
	work sync.WaitGroup // requests that run, some of them given up
}

// tapInto returns the transport for mcp-go, which asks transports what they can
// do, and the tap in it.
func tapInto(inner transport.Interface) (transport.Interface, *tap) {
	t := &tap{Interface: inner}
	if http, ok := inner.(transport.HTTPConnection); ok {
		return &httpTap{tap: t, http: http}, t
	}
	return t, t
}

func (t *tap) SetRequestHandler(handler transport.RequestHandler) {
	if both, ok := t.Interface.(transport.BidirectionalInterface); ok {
		both.SetRequestHandler(handler)
	}
}

func (t *tap) RequiresLegacyProtocol() bool {
	legacy, ok := t.Interface.(interface{ RequiresLegacyProtocol() bool })
	return ok && legacy.RequiresLegacyProtocol()
}

func (t *tap) SendRequest(ctx context.Context, request transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	of, _ := ctx.Value(tripKey{}).(*trip)
	if of == nil {
		of = &trip{}
	}
	if request.Params == nil {
		of.sent.Store(true)
	} else {
		request.Params = &watched{request.Params, of}
	}
	type answer struct {
		response *transport.JSONRPCResponse
		err      error
	}
	answered := make(chan answer, 1)
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: func() { of.heard.Add(1) }})
	t.work.Go(func() {
		response, err := t.Interface.SendRequest(traced, request)
		if err == nil && response == nil {
			err = errNoAnswer
		}
		answered <- answer{response, err}
	})
	var a answer
	select {
	case a = <-answered:
	case <-ctx.Done():
	}
	if err := ctx.Err(); err != nil { // a handler in the same process answers that it was cancelled
		a = answer{err: err}
	}
	of.err, of.raw = a.err, nil
	if a.err == nil {
		of.answered = true
		of.raw = a.response.Result
	}
	return a.response, a.err
}

// watched are params that record when they are encoded: params that were never
// encoded were never sent.
type watched struct {
	params any
	trip   *trip
}

func (w *watched) MarshalJSON() ([]byte, error) {
	w.trip.sent.Store(true)
	return json.Marshal(w.params)
}

// httpTap tells a server of the legacy era of a request that is given up, which
// mcp-go leaves to the end of the HTTP request: it says nothing in that era.
type httpTap struct {
	*tap
	http    transport.HTTPConnection
	version atomic.Value // string
}

func (t *httpTap) SetProtocolVersion(version string) {
	t.version.Store(version)
	t.http.SetProtocolVersion(version)
}

func (t *httpTap) SendRequest(ctx context.Context, request transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	response, err := t.tap.SendRequest(ctx, request)
	version, _ := t.version.Load().(string) // "" before the session is initialized
	if err != nil && ctx.Err() != nil && version != "" && !mcp.IsModernProtocol(version) {
		t.cancel(ctx, request.ID)
	}
	return response, err
}

func (t *httpTap) cancel(ctx context.Context, id mcp.RequestId) {
	why := ctx.Err().Error()
	ctx, end := context.WithTimeout(context.WithoutCancel(ctx), leeway.Of(cancelTimeout))
	t.work.Go(func() {
		defer end()
		_ = t.Interface.SendNotification(ctx, mcp.JSONRPCNotification{
			JSONRPC: mcp.JSONRPC_VERSION,
			Notification: mcp.Notification{
				Method: string(mcp.MethodNotificationCancelled),
				Params: mcp.NotificationParams{AdditionalFields: map[string]any{"requestId": id, "reason": why}},
			},
		})
	})
}
