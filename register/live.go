// Package register owns what one client sees: its session, its registered tools, lists, list_changed,
// the hold, the shell hook, and the requests of servers to it. It does not search, dial, store or
// decide what may be called: it gets tools and calls their handlers.
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
	Hook    hook.Command // run after list_changed; no hook without a Line
	// Relists says which clients ("name version") re-list, as learned before.
	Relists map[string]tool.Relists
	// Called has the tools of each caller's last sessions, the latest first.
	Called map[tool.Caller][]tool.Called
	// Subscriptions is shared by all Lives over the same upstreams; nil: resources cannot be subscribed
	// to.
	Subscriptions *Subscriptions
	// Limits is shared by all Lives of the same clients; nil: this Live has its own.
	Limits    *Limits
	Upstreams Upstreams // nil: no upstreams
	Observer  Observer  // nil: no observer
	// Replicated says that other replicas may serve a client's next request. They do not know the lists
	// that this one sent to 2026-07-28 clients.
	Replicated bool
}

// Upstreams are the servers, as a Live uses them.
type Upstreams interface {
	// Complete answers completion/complete. The ref in the call's Params has the upstream's own name.
	Complete(ctx context.Context, server string, call *tool.Call) (tool.Result, error)
	// Task answers tasks/get, tasks/update and tasks/cancel.
	Task(ctx context.Context, method string, call *tool.Call) (tool.Result, error)
	// SetLevel gets the most verbose log level that any client has set, "" for none.
	SetLevel(level string)
	// RootsChanged gets the session of a client whose roots changed.
	RootsChanged(session string)
}

// Observer watches clients. Methods without a context must not block.
type Observer interface {
	// Relists is called when a client ("name version") shows whether it re-lists.
	Relists(client string, relists tool.Relists)
	// Called gets the tools of a caller's last sessions, the latest first, after a change. It must not
	// edit the slice.
	Called(by tool.Caller, called []tool.Called)
	// Listed gets every answer to tools/list; session is "" for a 2026-07-28 client. It must not edit
	// tools.
	Listed(session, client string, tools []*tool.Tool)
	// Calling gets a client's tool call and returns a function for the result, nil after a protocol
	// error. It must not edit either.
	Calling(call *tool.Call) (answered func(tool.Result))
	// Registered is called when a session's tools change and its client is told.
	Registered(session, client string, party identity.Party, change Change)
	// Unknown gets a call with an unknown name.
	Unknown(ctx context.Context, call *tool.Call)
	// Began is called when a client ("name version") has introduced itself.
	Began(ctx context.Context, session, client string)
	// Ended gets a session that has ended, and its client.
	Ended(session string, was Connected)
	// Changed is called when the State of a session changes.
	Changed(session string)
}

// Live is the MCP server for clients, over any transport and in both eras. mcp-go does sessions and
// negotiation; Live answers lists and calls, byte for byte. It has more than 30 methods because each
// request of the protocol and each event needs one; sessions, suspended calls and listeners are types
// of their own.
type Live struct {
	*sessions
	listeners     listeners
	suspended     *suspendedCalls
	subscriptions *Subscriptions
	relists       *relists
	recentCalls   *recentCalls
	direct        direct   // shared by 2026-07-28 clients, see countAsOne
	replicated    bool     // see Options
	process       *session // the 2026-07-28 client on stdio; only its set is used
	notifier      *notifier

	upstreams    Upstreams
	observer     Observer
	served       func(identity.Party) *Served
	fingerprints fingerprintCache
	portable     portableSchemas
	log          *slog.Logger
	mcp          *server.MCPServer

	closing   chan struct{} // closed when event streams must end
	closeOnce sync.Once
}

// servedNow returns what is served to the party of a session's last request.
func (l *Live) servedNow(s *session) *Served {
	return l.served(s.lastParty())
}

// sessionFor returns the session of a call. A 2026-07-28 client on stdio has the session of the
// process.
func (l *Live) sessionFor(call *tool.Call) *session {
	if s := l.session(call.Session); s != nil || call.Client == nil || !call.Client.Modern || call.Header != nil {
		return s
	}
	return l.process
}

// Connected returns the connected clients, unordered.
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
