// Package register owns what one client sees: its session, the registered set,
// lists, list_changed, the hold and the shell hook; and what servers ask of it. It
// neither searches nor dials nor stores, and does not decide what may be called: it
// gets tools and hands calls to their handlers.
package register

import (
	"context"
	"log/slog"
	"sync"

	"github.com/mark3labs/mcp-go/server"

	"toolfinch/internal/hook"
	"toolfinch/internal/identity"
	"toolfinch/tool"
)

// Options of a Live.
type Options struct {
	Version string       // of this program
	Hook    hook.Command // run after list_changed; no Line, no hook
	// Relists is what is known of clients ("name version").
	Relists map[string]tool.Relists
	// Called are the tools that callers called in their last sessions, the last first.
	Called map[tool.Caller][]tool.Called
	// Subscriptions are those of all Lives that serve the same upstreams; nil where
	// resources cannot be subscribed to.
	Subscriptions *Subscriptions
	// Limits are those of all Lives that serve the same clients; nil: of this one.
	Limits    *Limits
	Upstreams Upstreams // nil: there are none
	Observer  Observer  // nil: nobody
	// Replicated says that others may serve a client's next request, as they do without
	// knowing what a client that has no session was shown here.
	Replicated bool
}

// Upstreams is what a Live asks of the servers behind it.
type Upstreams interface {
	// Complete answers completion/complete. The ref in the call's Params has the
	// upstream's own name.
	Complete(ctx context.Context, server string, call *tool.Call) (tool.Result, error)
	// Task answers tasks/get, tasks/update and tasks/cancel.
	Task(ctx context.Context, method string, call *tool.Call) (tool.Result, error)
	// SetLevel hears the most verbose level that any client's logging/setLevel asked for, "" for none.
	SetLevel(level string)
	// RootsChanged hears of a session whose client has other roots.
	RootsChanged(session string)
}

// Observer hears of clients. Its methods must not block, but for those that get a context.
type Observer interface {
	// Relists hears what is known of a client ("name version"), when that is news.
	Relists(client string, relists tool.Relists)
	// Called hears of the tools that a caller called in its last sessions, the last
	// first, when that is news. It must not change them.
	Called(by tool.Caller, called []tool.Called)
	// Listed hears of every answer to tools/list; session is "" for a 2026-07-28
	// client. It must not change tools.
	Listed(session, client string, tools []*tool.Tool)
	// Calling hears of a client's call of a tool, and returns what hears of its answer,
	// nil where that is an error of the protocol. It must not change either.
	Calling(call *tool.Call) (answered func(tool.Result))
	// Registered hears that the tools of a session have changed, whose client is told so now.
	Registered(session, client string, party identity.Party, change Change)
	// Unknown hears of a call of a name that nothing has.
	Unknown(ctx context.Context, call *tool.Call)
	// Began hears of a session whose client ("name version") has introduced itself.
	Began(ctx context.Context, session, client string)
	// Ended hears of a session that has ended, and whose it was.
	Ended(session string, was Connected)
	// Changed hears that the State of a session has changed.
	Changed(session string)
}

// Live is the MCP server that clients talk to, over any transport and in both
// protocol eras. mcp-go carries sessions and negotiation; lists and calls are
// answered from here, byte for byte.
type Live struct {
	*sessions
	listeners     listeners
	suspended     *suspendedCalls
	subscriptions *Subscriptions
	relists       *relists
	recentCalls   *recentCalls
	direct        direct   // of 2026-07-28 clients
	replicated    bool     // see Options
	process       *session // of the 2026-07-28 client on stdio; it has nothing but a set
	notifier      *notifier

	upstreams    Upstreams
	observer     Observer
	served       func(identity.Party) *Served
	fingerprints fingerprintCache
	log          *slog.Logger
	mcp          *server.MCPServer

	closing   chan struct{} // closed when event streams are to end
	closeOnce sync.Once
}

// servedNow is what is served to the party that made the last request in a session.
func (l *Live) servedNow(s *session) *Served {
	return l.served(s.by())
}

// sessionFor is the session of a call. On stdio a 2026-07-28 client has one, too: the
// process.
func (l *Live) sessionFor(call *tool.Call) *session {
	if s := l.session(call.Session); s != nil || call.Client == nil || !call.Client.Modern || call.Header != nil {
		return s
	}
	return l.process
}

// Connected returns the clients that are there, in no order.
func (l *Live) Connected() []Connected {
	var all []Connected
	for _, s := range l.everySession() {
		all = append(all, s.connected())
	}
	for _, t := range l.listeners.all() {
		all = append(all, Connected{Client: clientName(t.party.Client, t.party.Version), Principal: principalOf(t.party), Transport: t.party.Transport, Modern: true, Since: t.since})
	}
	return all
}
