// Package wire is the thin byte-level layer around mcp-go's transports: it
// gives back the bytes that the library's typed structures would lose. It
// knows JSON-RPC and framing, and nothing of tools.
//
// On the server side a request becomes an Exchange. mcp-go sees a small stub
// of it and does what it is good at: sessions, negotiation, validation,
// cancellation. The handler answers on the Exchange with raw bytes, and the
// stub's answer is replaced as it is written, in JSON, SSE or a line alike.
package wire

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"toolfinch/rawjson"
)

// StubTool is the one tool name that mcp-go sees in a tools/call: whoever
// builds the server registers the handler of all tools under it.
const StubTool = "toolfinch"

const (
	methodCall = "tools/call"
	methodList = "tools/list"
)

// Exchange is one tools/call or tools/list of a client. Its methods are safe
// for concurrent use; after the answer was written they do nothing.
type Exchange struct {
	Method string
	Params json.RawMessage // as sent; nil when absent

	id   json.RawMessage
	name string // of a tools/call

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
			x.id = value
		case "method":
			x.Method = rawjson.Text(value)
		case "params":
			x.Params = value
		}
	}
	if len(x.id) == 0 || string(x.id) == "null" || (x.Method != methodCall && x.Method != methodList) {
		return nil
	}
	x.name = rawjson.Text(rawjson.Member(x.Params, "name"))
	if x.Method == methodCall && x.name == "" {
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

// Stub returns the message for mcp-go: the request itself, with a tools/call
// cut down to what the library validates, so that its size costs nothing.
func (x *Exchange) Stub() []byte {
	params := x.Params
	if x.Method == methodCall {
		params = []byte(`{"name":"` + StubTool + `"}`)
		if meta := rawjson.Member(x.Params, "_meta"); meta != nil {
			params, _ = rawjson.Set(params, "_meta", meta)
		}
	}
	out := append([]byte(`{"jsonrpc":"2.0","id":`), x.id...)
	out = append(append(out, `,"method":`...), strconv.Quote(x.Method)...)
	if params != nil {
		out = append(append(out, `,"params":`...), params...)
	}
	return append(out, '}')
}

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
	out := make([]byte, 0, len(value)+len(x.id)+40)
	out = append(append(out, `{"jsonrpc":"2.0","id":`...), x.id...)
	out = append(append(append(out, member...), rawjson.OneLine(value)...), '}')
	x.answer, x.status = out, status
}

// Notify sends a notification to the client that waits for this answer.
func (x *Exchange) Notify(method string, params json.RawMessage) {
	out := append([]byte(`{"jsonrpc":"2.0","method":`), strconv.Quote(method)...)
	if params != nil {
		out = append(append(out, `,"params":`...), rawjson.OneLine(params)...)
	}
	out = append(out, '}')
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.answer == nil && !x.closed {
		x.send(out)
		x.notified = time.Now()
	}
}

// Answer ends the exchange and returns the response message, nil when no
// handler gave one.
func (x *Exchange) Answer() []byte {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	return x.answer
}

// Name is the tool that a tools/call names.
func (x *Exchange) Name() string { return x.name }
