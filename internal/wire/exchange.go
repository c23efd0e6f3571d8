// Package wire owns the messages of clients as bytes: it checks and parses them (Inbound), and has them
// answered without losing a byte. It knows JSON-RPC and framing, not tools or connections.
//
// A request becomes an Exchange. mcp-go gets a small stub of it, always a call of one tool, and does
// eras and negotiation. The handler answers on the Exchange with raw bytes, which replace the stub's
// answer.
package wire

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/identity"
	"toolfinch/internal/rawjson"
)

// StubTool is the one tool that mcp-go calls: the builder of the server registers the handler of all
// requests under it.
const StubTool = "toolfinch"

// Methods of the requests that become an Exchange. mcp-go answers the requests of the connection:
// initialize, server/discover, ping, logging/setLevel.
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
	MethodListSkills    = "skills/list" // the extension of SEP-2640
	MethodGetSkill      = "skills/get"
	MethodReadDirectory = "resources/directory/read"
	MethodGetTask       = "tasks/get" // the extension of 2026-07-28
	MethodUpdateTask    = "tasks/update"
	MethodCancelTask    = "tasks/cancel"
	MethodListGroups    = "groups/list" // a draft extension
	MethodGetGroup      = "groups/get"
)

func exchanged(method string) bool {
	switch method {
	case MethodCallTool, MethodListTools, MethodGetPrompt, MethodListPrompts, MethodReadResource, MethodListResources,
		MethodListTemplates, MethodSubscribe, MethodUnsubscribe, MethodComplete, MethodListen,
		MethodListSkills, MethodGetSkill, MethodReadDirectory, MethodGetTask, MethodUpdateTask, MethodCancelTask,
		MethodListGroups, MethodGetGroup:
		return true
	}
	return false
}

// Exchange is one request of a client. Its methods are safe for concurrent use; after the answer they
// do nothing.
type Exchange struct {
	Method string
	ID     json.RawMessage
	Params json.RawMessage // as sent; nil without params
	Header http.Header     // of the HTTP request; nil on other transports

	// Lacks is set if the answer is a missing scope.
	Lacks *identity.ScopeError

	mu       sync.Mutex // guards the fields below; held during a write, so that no message overtakes another
	send     func(message []byte) error
	notified time.Time // time of the last notification
	answer   []byte    // the whole response message, nil before
	closed   bool
}

type exchangeKey struct{}

// NewExchange returns nil for a message that mcp-go answers itself. send writes a message to the client
// before the answer; it is never called concurrently.
func NewExchange(m *Inbound, send func(message []byte) error) *Exchange {
	if !m.IsRequest() || !exchanged(m.Method) {
		return nil
	}
	return &Exchange{Method: m.Method, ID: m.ID, Params: m.Params, send: send}
}

// ExchangeFrom returns the Exchange of a handler's request, nil if it did not come through this
// package.
func ExchangeFrom(ctx context.Context) *Exchange {
	x, _ := ctx.Value(exchangeKey{}).(*Exchange)
	return x
}

// Context returns a context that carries x to the handler.
func (x *Exchange) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}

// Stub returns the message for mcp-go: a call of StubTool with the request's ID and the part of its
// _meta that the library knows. So the request's size costs nothing, and the library can read all of
// the stub.
func (x *Exchange) Stub() []byte {
	out := make([]byte, 0, len(x.ID)+512)
	out = append(append(out, `{"jsonrpc":"2.0","id":`...), x.ID...)
	out = append(out, `,"method":"`+MethodCallTool+`","params":{"name":"`+StubTool+`"`...)
	if meta := rawjson.Member(x.Params, "_meta"); meta != nil {
		out = append(append(out, `,"_meta":`...), known(meta)...)
	}
	return append(out, "}}"...)
}

// known is the part of a request's _meta that mcp-go knows. Of the client's capabilities it only needs
// their existence.
func known(meta json.RawMessage) []byte {
	if meta[0] != '{' {
		return meta // the library refuses it
	}
	out := rawjson.NewObject(len(meta))
	for key, value := range rawjson.Members(meta) {
		switch {
		case key == mcp.MetaKeyClientCapabilities && value[0] == '{':
			value = json.RawMessage(`{}`)
		case key != "progressToken" && !strings.HasPrefix(key, protocolPrefix):
			continue
		}
		out.Add(key, value)
	}
	return out.JSON()
}

// protocolPrefix begins the protocol's own keys of _meta.
const protocolPrefix = "io.modelcontextprotocol/"

// Result answers with a result object.
func (x *Exchange) Result(result json.RawMessage) { x.settle(`,"result":`, result) }

// Fail answers with an error object.
func (x *Exchange) Fail(object json.RawMessage) { x.settle(`,"error":`, object) }

// afterNotification is the pause of an answer after a notification. Clients that dispatch notifications
// in a later turn of their event loop than answers, such as the TypeScript SDK, lose a call's last
// notification if both arrive in one read.
const afterNotification = 5 * time.Millisecond

func (x *Exchange) settle(member string, value json.RawMessage) {
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
	x.answer = out
}

// Notify sends a notification to the client before the answer.
func (x *Exchange) Notify(method string, params json.RawMessage) {
	x.Send(Message(nil, method, params))
}

// Send sends a notification or a request to the client before the answer. It reports whether it could.
func (x *Exchange) Send(message []byte) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.answer != nil || x.closed {
		return false
	}
	if x.send(message) != nil {
		return false
	}
	x.notified = time.Now()
	return true
}

// Message is a request, or a notification without an ID, on one line.
func Message(id json.RawMessage, method string, params json.RawMessage) []byte {
	out := make([]byte, 0, len(id)+len(method)+len(params)+56)
	out = append(out, `{"jsonrpc":"2.0"`...)
	if id != nil {
		out = append(append(out, `,"id":`...), id...)
	}
	out = append(append(out, `,"method":`...), rawjson.Quote(method)...)
	if params != nil {
		out = append(append(out, `,"params":`...), rawjson.OneLine(params)...)
	}
	return append(out, '}')
}

// Answer ends the exchange and returns the response message, nil if no handler answered.
func (x *Exchange) Answer() []byte {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	return x.answer
}

type messageKey struct{}

// WithMessage returns a context with a message that mcp-go handles itself.
func WithMessage(ctx context.Context, message []byte) context.Context {
	return context.WithValue(ctx, messageKey{}, message)
}

// MessageFrom returns the raw message of a hook of mcp-go; nil for an Exchange.
func MessageFrom(ctx context.Context) []byte {
	message, _ := ctx.Value(messageKey{}).([]byte)
	return message
}
