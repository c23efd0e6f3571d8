package register

import (
	"context"

	"github.com/mark3labs/mcp-go/server"

	"toolfinch/wire"
)

// What package transport asks of a Live.

// MCP is the library's server, which handles messages and negotiates.
func (l *Live) MCP() *server.MCPServer { return l.mcp }

// Open makes a session known. A piped one has one connection for everything. push
// takes a message for its client that belongs to none of its requests; it never
// blocks, and reports whether it took it. reaches reports whether the client would
// get it now.
func (l *Live) Open(id string, piped bool, push func(message []byte) bool, reaches func() bool) {
	s := newSession(id)
	s.piped, s.push, s.reaches = piped, push, reaches
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sessions[id] = s
}

// Forget ends a session.
func (l *Live) Forget(id string) {
	l.mu.Lock()
	s := l.sessions[id]
	delete(l.sessions, id)
	l.mu.Unlock()
	if s == nil {
		return
	}
	s.end()
	l.aside(func(ctx context.Context) { l.subscriptions.leave(ctx, id) })
	if s.described().LogLevel != "" {
		l.tellLevel()
	}
	if l.settings.Forget != nil {
		l.settings.Forget(id)
	}
}

// EndAsks lets go of those who wait for the client of a session to answer.
func (l *Live) EndAsks(id string) {
	if s := l.session(id); s != nil {
		s.end()
	}
}

// KnowsHTTP reports whether a session is open that is not piped: of streamable
// HTTP. Piped sessions are nobody's to name.
func (l *Live) KnowsHTTP(id string) bool {
	s := l.session(id)
	return s != nil && !s.piped
}

// Answered takes the reply of a session's client to a request that was sent to it,
// and may be withdrawn by now. It reports false when there was no such request.
func (l *Live) Answered(id string, reply *wire.Inbound) bool {
	s := l.session(id)
	return s != nil && s.answered(reply)
}

// Closing is closed when event streams are to end.
func (l *Live) Closing() <-chan struct{} { return l.closing }

// EndStreams closes Closing.
func (l *Live) EndStreams() { l.closeOnce.Do(func() { close(l.closing) }) }
