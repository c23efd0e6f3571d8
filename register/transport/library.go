package transport

import (
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// library is a session as mcp-go needs it. It keeps nothing that grows: the host keeps the client's
// description.
type library struct {
	id string

	mu      sync.Mutex // guards the fields below; held for assignments only
	version string     // negotiated by initialize; "" before
	level   mcp.LoggingLevel
}

func (l *library) SessionID() string { return l.id }
func (l *library) Initialize()       {}
func (l *library) Initialized() bool { return true }

// NotificationChannel is nil: notifications go through the session's outbox.
func (l *library) NotificationChannel() chan<- mcp.JSONRPCNotification { return nil }

func (l *library) ProtocolVersion() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.version
}

func (l *library) SetProtocolVersion(version string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version = version
}

func (l *library) GetLogLevel() mcp.LoggingLevel {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.level
}

func (l *library) SetLogLevel(level mcp.LoggingLevel) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.level = level
}

var (
	_ server.SessionWithLogging         = (*library)(nil)
	_ server.SessionWithProtocolVersion = (*library)(nil)
)
