package identity

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"
)

// Event is something that the audit log records. Calls and what is like them
// (reads, prompts, retrievals) record themselves; everything else says so with a
// Record. An Event has no secret in it. Strings of strangers need no preparation: the
// log bounds them and escapes what is not printable.
type Event struct {
	Kind string // one of the constants below
	// Principal is the ID of who caused it, "" for that of the context, if any.
	Principal string
	// Client is "name version" of the client that caused it, "" for none.
	Client, Session string
	// View, Server and Tool (an ID or a name) are what it is about.
	View, Server, Tool string
	DefHash            string // of a definition that was held, approved or rejected
	Outcome            string // one of the outcomes below, "" for Success
	Reason             string // of an outcome that is not Success
	Details            map[string]string
	Took               time.Duration // of what has ended with it; 0 for nothing
}

// Kinds of events.
const (
	EventCall      = "tool.call"
	EventRead      = "resource.read"
	EventPrompt    = "prompt.get"
	EventRetrieve  = "retrieve"
	EventRefused   = "auth.refused"   // a request without a valid token or key, or without a scope
	EventLogin     = "login"          // at an upstream
	EventLogout    = "logout"         // of an upstream
	EventRefresh   = "token.refresh"  // of a token for an upstream
	EventHeld      = "pin.held"       // a definition that changed
	EventApproved  = "pin.approved"   // or a part of a server's definitions
	EventRejected  = "pin.rejected"   // likewise
	EventBaseline  = "pin.baseline"   // the first definitions of a server
	EventKey       = "key.changed"    // an API key was made or revoked
	EventSecret    = "secret.changed" // a secret of the vault was set or removed
	EventConfig    = "config.changed" // or refused
	EventSpawn     = "upstream.spawn" // a process was started
	EventSessionOn = "session.start"  // of a client
	EventSession   = "session.end"    // likewise
	EventPage      = "page.login"     // somebody was let in to the page
	EventStart     = "start"          // of toolfinch
	EventStop      = "stop"           // likewise
	EventLost      = "audit.lost"     // events that could not be written
)

// Digest is a session ID as it is shown: the ID itself would let its reader into the
// session.
func Digest(session string) string {
	if session == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(session))
	return hex.EncodeToString(sum[:8])
}

// Outcomes of events.
const (
	Begun     = "begun" // a call that may change something is about to be sent; another line says what came of it
	Success   = "success"
	ToolError = "tool_error" // the tool answered that it failed
	Denied    = "denied"     // by a policy, a gate, a limit, or because there is no such thing
	Failed    = "failed"
	Cancelled = "cancelled"
	Timeout   = "timeout"
)

// Record takes an event down. Nil takes nothing. It may wait until the log has room.
type Record func(ctx context.Context, e Event)

// Event calls r, unless it is nil.
func (r Record) Event(ctx context.Context, e Event) {
	if r != nil {
		r(ctx, e)
	}
}

// Decision is what a policy decided of a call.
type Decision struct {
	Allow  bool
	Policy string // which one decided; "" for none
}

type decisionKey struct{}

// WithDecision returns a context in which Decide notes what was decided, and where.
func WithDecision(ctx context.Context) (context.Context, *Decided) {
	d := &deciding{Context: ctx}
	return d, &d.Decided
}

// deciding is a context with what was decided in it.
type deciding struct {
	context.Context
	Decided
}

func (d *deciding) Value(key any) any {
	if _, ok := key.(decisionKey); ok {
		return &d.Decided
	}
	return d.Context.Value(key)
}

// Decided is the decision about one call, once it was made. It is read when the call has
// been answered.
type Decided struct {
	Decision
	Made bool

	mu sync.Mutex // guards the fields while the call runs: a meta-tool may call several tools at once
}

// Decide notes what was decided of the call of a context, for the audit log, before what
// was decided is done. Where a call makes others, a denial stays noted.
func Decide(ctx context.Context, d Decision) {
	if to, ok := ctx.Value(decisionKey{}).(*Decided); ok {
		to.mu.Lock()
		defer to.mu.Unlock()
		if !to.Made || to.Allow {
			to.Decision, to.Made = d, true
		}
	}
}

// Source is where a request comes from.
type Source struct {
	Address   string // of the client, without a port; "" where it is the parent process
	Transport string // one of the Transports
	Secure    bool   `json:",omitempty"` // over TLS: to this program, or to a reverse proxy that is believed
}

type sourceKey struct{}

// WithSource returns a context of requests that come from there.
func WithSource(ctx context.Context, s Source) context.Context {
	return context.WithValue(ctx, sourceKey{}, s)
}

// SourceOf returns where the request of a context comes from, and false if that was
// not said.
func SourceOf(ctx context.Context) (Source, bool) {
	s, ok := ctx.Value(sourceKey{}).(Source)
	return s, ok
}
