// Package transport owns how clients connect (stdio, streamable HTTP, HTTP+SSE) and
// the lifetime of each connection: nothing is written to a client outside of a
// request or stream that is counted. It knows JSON-RPC and sessions, and nothing of
// tools: what is asked is answered by its Host.
package transport

import (
	"time"

	"github.com/mark3labs/mcp-go/server"

	"toolfinch/internal/wire"
)

const (
	// drainTime is how long requests in flight may go on after the client closed its
	// end, and toldTime after the program was told to stop.
	drainTime, toldTime = 10 * time.Second, 300 * time.Millisecond
	// keepAlive is how often a quiet event stream gets a sign of life.
	keepAlive = 30 * time.Second
)

// Host answers the clients that connect: a register.Live. Its methods are safe for
// concurrent use.
type Host interface {
	// MCP is the library's server, which handles messages and negotiates.
	MCP() *server.MCPServer
	// Open makes a session of a principal known, "" for nobody. A piped one has one connection for everything.
	// push takes a message for its client that belongs to none of its requests; it
	// never blocks, and reports whether it took it. reaches reports whether the
	// client would get it now.
	Open(session, principal string, piped bool, push func(message []byte) bool, reaches func() bool)
	// Forget ends a session.
	Forget(session string)
	// EndAsks lets go of those who wait for the client of a session to answer.
	EndAsks(session string)
	// Answered takes the reply of a session's client to a request that was sent to
	// it, and may be withdrawn by now. It reports false when there was no such request.
	Answered(session string, reply *wire.Inbound) bool
	// Closing is closed when event streams are to end.
	Closing() <-chan struct{}
}
