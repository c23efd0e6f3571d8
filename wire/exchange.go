// Package wire is the thin byte-level layer around mcp-go's transports: it
// gives back the bytes that the library's typed structures would lose. It
// knows JSON-RPC and framing, and nothing of tools.
//
// On the server side a request becomes an Exchange. mcp-go sees a small stub
// of it, always a call of one tool, and does what it is good at: sessions,
// negotiation, validation, cancellation. The handler answers on the Exchange
// with raw bytes, and the stub's answer is replaced as it is written, in JSON,
// SSE or a line alike.
package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/rawjson"
)

// StubTool is the one tool that mcp-go sees called: whoever builds the server
// registers the handler of all requests under it.
const StubTool = "toolfinch"

// Methods of the requests that become an Exchange. What is left to mcp-go is
// the connection: initialize, server/discover, ping, logging/setLevel.
const (
	MethodCallTool      = "tools/call"
	MethodListTools     = "tools/list"
	MethodGetPrompt     = "prompts/get"
	MethodListPrompts   = "prompts/list"
	MethodReadResource  = "resources/read"
	MethodListResources = "resources/list"
	MethodListTemplates = "resources/templates/list"
	MethodSubscribe     = "resources/subscribe"
	MethodUnsubscribe   = "resources/unsubscribe"
	MethodComplete      = "completion/complete"
	MethodListen        = "subscriptions/listen"
	MethodGetTask       = "tasks/get" // the extension of 2026-07-28
	MethodUpdateTask    = "tasks/update"
	MethodCancelTask    = "tasks/cancel"
)

func exchanged(method string) bool {
	switch method {
	case MethodCallTool, MethodListTools, MethodGetPrompt, MethodListPrompts, MethodReadResource, MethodListResources,
		MethodListTemplates, MethodSubscribe, MethodUnsubscribe, MethodComplete, MethodListen,
		MethodGetTask, MethodUpdateTask, MethodCancelTask:
		return true
	}
	return false
}

// Exchange is one request of a client. Its methods are safe for concurrent use;
// after the answer was written they do nothing.
type Exchange struct {
	Method string
	ID     json.RawMessage
	Params json.RawMessage // as sent; nil when absent
	Header http.Header     // of the HTTP request; nil on other transports

	mu       sync.Mutex // guards what follows; held while a message is written, so that none overtakes another
	send     func(message []byte)
	notified time.Time // when the last notification was sent
	answer   []byte    // the whole response message, nil until given
	status   int       // HTTP status of an error answer, 0 for 200
	closed   bool
}

type exchangeKey struct{}

// NewExchange takes one message apart. It returns nil when the message is none
// of those an Exchange is for, or no valid JSON: mcp-go answers those itself.
// send writes one message to the client ahead of the answer; it is never
// called concurrently.
func NewExchange(message []byte, send func(message []byte)) *Exchange {
	if !json.Valid(message) {
		return nil
	}
	x := &Exchange{send: send}
	for key, value := range rawjson.Members(message) {
		switch key {
		case "id":
			x.ID = value
		case "method":
			x.Method = rawjson.Text(value)
		case "params":
			x.Params = value
		}
	}
	if isNull(x.ID) || !exchanged(x.Method) {
		return nil
	}
	return x
}

// ExchangeFrom returns the Exchange that a handler of mcp-go was called for,
// nil when the request did not come through this package.
func ExchangeFrom(ctx context.Context) *Exchange {
	x, _ := ctx.Value(exchangeKey{}).(*Exchange)
	return x
}

// Context returns a context that carries x to the handler.
func (x *Exchange) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}

// Stub returns the message for mcp-go: a call of StubTool with the request's ID
// and of its _meta what the library knows, so that the size of the request costs
// nothing, and nothing in it is more than the library can read.
func (x *Exchange) Stub() []byte {
	out := make([]byte, 0, len(x.ID)+512)
	out = append(append(out, `{"jsonrpc":"2.0","id":`...), x.ID...)
	out = append(out, `,"method":"`+MethodCallTool+`","params":{"name":"`+StubTool+`"`...)
	if meta := rawjson.Member(x.Params, "_meta"); meta != nil {
		out = append(append(out, `,"_meta":`...), known(meta)...)
	}
	return append(out, "}}"...)
}

// known is what mcp-go knows of a request's _meta. Of the client's capabilities
// it wants to see only that there are some.
func known(meta json.RawMessage) []byte {
	if meta[0] != '{' {
		return meta // it refuses that
	}
	out := []byte{'{'}
	for key, value := range rawjson.Members(meta) {
		switch {
		case key == mcp.MetaKeyClientCapabilities && value[0] == '{':
			value = json.RawMessage(`{}`)
		case key != "progressToken" && !strings.HasPrefix(key, protocolPrefix):
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		quoted, _ := json.Marshal(key) // a string is never refused
		out = append(append(append(out, quoted...), ':'), value...)
	}
	return append(out, '}')
}

// protocolPrefix is that of the protocol's own keys of _meta.
const protocolPrefix = "io.modelcontextprotocol/"

// Result answers with a result object.
func (x *Exchange) Result(result json.RawMessage) { x.settle(`,"result":`, result, 0) }

// Fail answers with an error object. status is the HTTP status that goes with
// it where the protocol wants one, 0 for 200.
func (x *Exchange) Fail(object json.RawMessage, status int) { x.settle(`,"error":`, object, status) }

// afterNotification is how long an answer waits after a notification. Clients
// that dispatch notifications in a later turn of their event loop than answers,
// as the TypeScript SDK does, lose the last one of a call when both arrive in
// one read.
const afterNotification = 5 * time.Millisecond

func (x *Exchange) settle(member string, value json.RawMessage, status int) {
	x.mu.Lock()
	wait := afterNotification - time.Since(x.notified)
	x.mu.Unlock()
	if wait > 0 {
		time.Sleep(wait)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.answer != nil || x.closed {
		return
	}
	out := make([]byte, 0, len(value)+len(x.ID)+40)
	out = append(append(out, `{"jsonrpc":"2.0","id":`...), x.ID...)
	out = append(append(append(out, member...), rawjson.OneLine(value)...), '}')
	x.answer, x.status = out, status
}

// Notify sends a notification to the client that waits for this answer.
func (x *Exchange) Notify(method string, params json.RawMessage) {
	x.Send(Message(nil, method, params))
}

// Send sends a message of its own, a notification or a request, to the client
// that waits for this answer. It reports whether it could.
func (x *Exchange) Send(message []byte) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.answer != nil || x.closed {
		return false
	}
	x.send(message)
	x.notified = time.Now()
	return true
}

// Message is a request, or without an ID a notification, on one line.
func Message(id json.RawMessage, method string, params json.RawMessage) []byte {
	out := make([]byte, 0, len(id)+len(method)+len(params)+56)
	out = append(out, `{"jsonrpc":"2.0"`...)
	if id != nil {
		out = append(append(out, `,"id":`...), id...)
	}
	quoted, _ := json.Marshal(method) // a string is never refused
	out = append(append(out, `,"method":`...), quoted...)
	if params != nil {
		out = append(append(out, `,"params":`...), rawjson.OneLine(params)...)
	}
	return append(out, '}')
}

// Answer ends the exchange and returns the response message, nil when no
// handler gave one.
func (x *Exchange) Answer() []byte {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	return x.answer
}

// ParseReply takes an answer of a client apart; nil for what is none.
func ParseReply(message []byte) *ClientReply {
	if !json.Valid(message) {
		return nil
	}
	r := &ClientReply{}
	for key, value := range rawjson.Members(message) {
		switch key {
		case "id":
			r.ID = value
		case "method":
			return nil
		case "result":
			r.Result = value
		case "error":
			r.Error = value
		}
	}
	if isNull(r.ID) || r.Result == nil && r.Error == nil {
		return nil
	}
	return r
}

// ClientReply is an answer of a client to a request that was sent to it. One of
// Result and Error is set.
type ClientReply struct {
	ID, Result, Error json.RawMessage
}

type messageKey struct{}

// WithMessage returns a context with a message that mcp-go handles itself.
func WithMessage(ctx context.Context, message []byte) context.Context {
	return context.WithValue(ctx, messageKey{}, message)
}

// MessageFrom returns the message that a hook of mcp-go was called for, as it
// was sent; nil for an Exchange.
func MessageFrom(ctx context.Context) []byte {
	message, _ := ctx.Value(messageKey{}).([]byte)
	return message
}

// MethodRaw is a notification that stands for another message: its parameter
// "message" holds the bytes that are written instead, in base64. It is how what
// belongs to no exchange gets through mcp-go's queues as it is.
const MethodRaw = "toolfinch/raw"

// Raw returns the parameters of MethodRaw for a message.
func Raw(message []byte) map[string]any { return map[string]any{"message": message} }

// unwrap returns the message that b, written by mcp-go, stands for, else b.
func unwrap(b []byte) []byte {
	if !bytes.Contains(b[:min(len(b), 200)], []byte(`"`+MethodRaw+`"`)) {
		return b
	}
	var stood []byte
	if json.Unmarshal(rawjson.Member(rawjson.Member(b, "params"), "message"), &stood) != nil || stood == nil {
		return b
	}
	return stood
}
