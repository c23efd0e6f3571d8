package register

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"strconv"
	"strings"
	"sync"

	"toolfinch/internal/rawjson"
	"toolfinch/internal/telemetry"
	"toolfinch/internal/wire"
	"toolfinch/tool"
)

// clientRequests are the requests sent to a legacy client.
type clientRequests struct {
	session string        // ID of the client's session
	prefix  string        // of the requests' IDs; a number follows
	gone    chan struct{} // closed when the client is gone
	endOnce sync.Once

	mu      sync.Mutex // guards the fields below; never held over a write to the client or a wait
	waiting map[string]chan *wire.Inbound
	count   int
}

// end ends all requests.
func (a *clientRequests) end() { a.endOnce.Do(func() { close(a.gone) }) }

func (a *clientRequests) ended() bool {
	select {
	case <-a.gone:
		return true
	default:
		return false
	}
}

// newClientRequests returns no requests. Their IDs have a random prefix: after a takeover the client
// may answer a request of the session's former process.
func newClientRequests(session string) clientRequests {
	return clientRequests{session: session, prefix: "toolfinch-" + strings.ToLower(rand.Text()[:8]) + "-", gone: make(chan struct{}), waiting: map[string]chan *wire.Inbound{}}
}

// request sends a request to the client and waits for the answer. If ctx ends first, the client is
// told.
func (a *clientRequests) request(ctx context.Context, send func([]byte) bool, method string, params json.RawMessage) (result json.RawMessage, err error) {
	params = present(params)
	answer := make(chan *wire.Inbound, 1)
	a.mu.Lock()
	a.count++
	id := strconv.Quote(a.prefix + strconv.Itoa(a.count))
	a.waiting[id] = answer
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		delete(a.waiting, id)
		a.mu.Unlock()
	}()
	ctx, span := telemetry.AskClient(ctx, telemetry.Message{Method: method, ID: json.RawMessage(id), Params: params, Session: a.session})
	defer func() { endSpan(ctx, span, result, err) }()
	params = span.Inject(ctx, params, nil)
	if a.ended() || !send(wire.Message(json.RawMessage(id), method, params)) {
		return nil, errClientGone
	}
	select {
	case reply := <-answer:
		if reply.Error == nil {
			return reply.Result, nil
		}
		rpc := &tool.RPCError{Code: tool.CodeInternal, Raw: reply.Error}
		_ = json.Unmarshal(reply.Error, rpc)
		return nil, rpc
	case <-a.gone:
		return nil, errClientGone
	case <-ctx.Done():
		send(wire.Message(nil, "notifications/cancelled", json.RawMessage(`{"requestId":`+id+`,"reason":"no longer needed"}`)))
		return nil, context.Cause(ctx)
	}
}

// answered delivers a client's reply. It reports false if this session never sent the request. Late
// replies are dropped.
func (a *clientRequests) answered(reply *wire.Inbound) bool {
	a.mu.Lock()
	waiting := a.waiting[string(reply.ID)]
	delete(a.waiting, string(reply.ID))
	number, ours := strings.CutPrefix(rawjson.Text(reply.ID), a.prefix)
	n, err := strconv.Atoi(number)
	late := ours && err == nil && 0 < n && n <= a.count
	a.mu.Unlock()
	if waiting != nil {
		waiting <- reply
	}
	return waiting != nil || late
}

// checkSupported returns an error if the client does not support a request. A legacy client itself
// would answer the same error (schema 2025-11-25).
func checkSupported(c *tool.Client, method string, params json.RawMessage) error {
	capability, known := tool.Asks[method]
	lacks := func(code int, what, required string) error {
		if !c.Modern {
			return &tool.RPCError{Code: code, Message: "the client does not support " + what}
		}
		return &tool.RPCError{
			Code: tool.CodeMissingCapability, Message: "the client lacks a capability that this needs: " + capability,
			Data: json.RawMessage(`{"requiredCapabilities":` + required + `}`),
		}
	}
	declares := func(part string) bool { return rawjson.Member(rawjson.Member(c.Capabilities, capability), part) != nil }
	switch {
	case !known:
		return methodNotFound(method)
	case !c.Can(capability):
		return lacks(tool.CodeMethodNotFound, capability, `{"`+capability+`":{}}`)
	case capability == tool.CapabilitySampling:
		wants := rawjson.Member(params, "tools") != nil || rawjson.Member(params, "toolChoice") != nil
		if wants && !declares("tools") {
			return lacks(tool.CodeInvalidParams, "tools in sampling", `{"sampling":{"tools":{}}}`)
		}
	case capability == tool.CapabilityElicitation:
		url := rawjson.Text(rawjson.Member(params, "mode")) == "url"
		switch {
		case url && !declares("url"):
			return lacks(tool.CodeInvalidParams, "elicitation by URL", `{"elicitation":{"url":{}}}`)
		case !url && declares("url") && !declares("form"): // no declared mode means form
			return lacks(tool.CodeInvalidParams, "elicitation by form", `{"elicitation":{"form":{}}}`)
		}
	}
	return nil
}
