// Package transport owns how clients connect (stdio, streamable HTTP, HTTP+SSE) and the lifetime of
// each connection: every write to a client belongs to a counted request or stream. It knows JSON-RPC
// and sessions, not tools: its Host answers requests.
package transport

import (
	"time"

	"github.com/mark3labs/mcp-go/server"

	"toolfinch/internal/wire"
)

const (
	// drainTime bounds the requests in flight after the client has closed its end, toldTime after the
	// program was told to stop.
	drainTime, toldTime = 10 * time.Second, 300 * time.Millisecond
	// keepAlive is the time between signs of life in a quiet event stream.
	keepAlive = 30 * time.Second
)

// Host answers connected clients: a register.Live. Its methods are safe for concurrent use.
type Host interface {
	// MCP returns mcp-go's server, which handles messages and negotiates.
	MCP() *server.MCPServer
	// Open adds a session of a principal, "" for nobody. A piped session has one connection for
	// everything. push queues a message outside of requests, never blocks, and reports whether it took
	// the message. reaches reports whether the client would get a message now.
	Open(session, principal string, piped bool, push func(message []byte) bool, reaches func() bool)
	Forget(session string)
	// EndAsks ends the unanswered requests to the client of a session.
	EndAsks(session string)
	// Answered takes the reply of a session's client. It reports false if the session never sent such a
	// request.
	Answered(session string, reply *wire.Inbound) bool
	// Closing is closed when event streams must end.
	Closing() <-chan struct{}
}
