package identity

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"
)

// Event is an entry of the audit log. Calls, reads, prompts and retrievals write their entries themselves; everything
// else passes an Event to a Record. It contains no secret. Its texts may come from strangers: the log bounds and
// escapes them.
type Event struct {
	Kind string // a kind below
	// Principal is the ID of the causing principal; "" for the principal of the context, if any.
	Principal string
	// Client is "name version" of the causing client, "" for none.
	Client, Session string
	// View, Server and Tool (an ID or a name) say what the event is about.
	View, Server, Tool string
	DefHash            string // hash of a definition that was held, approved or rejected
	Outcome            string // an outcome below, "" for Success
	Reason             string // why the outcome is not Success
	Details            map[string]string
	Took               time.Duration // duration of what has ended; 0 for none
}

// Kinds of events.
const (
	EventCall      = "tool.call"
	EventRead      = "resource.read"
	EventPrompt    = "prompt.get"
	EventRetrieve  = "retrieve"
	EventRefused   = "auth.refused"   // a request without a valid token or key, or without a scope
	EventLogin     = "login"          // at an upstream
	EventLogout    = "logout"         // at an upstream
	EventRefresh   = "token.refresh"  // a token for an upstream was renewed
	EventHeld      = "pin.held"       // a changed definition is held
	EventApproved  = "pin.approved"   // definitions were approved
	EventRejected  = "pin.rejected"   // definitions were rejected
	EventBaseline  = "pin.baseline"   // the first definitions of a server were approved
	EventKey       = "key.changed"    // an API key was made or revoked
	EventSecret    = "secret.changed" // a secret of the vault was set or removed
	EventConfig    = "config.changed" // a configuration was applied or refused
	EventSpawn     = "upstream.spawn" // a process was started
	EventSessionOn = "session.start"  // a client's session began
	EventSession   = "session.end"    // a client's session ended
	EventPage      = "page.login"     // somebody logged in to the page
	EventStart     = "start"          // toolfinch started
	EventStop      = "stop"           // toolfinch stopped
	EventLost      = "audit.lost"     // events that could not be written
)

// Digest returns a session ID for display: the ID itself would let its reader into the session.
func Digest(session string) string {
	if session == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(session))
	return hex.EncodeToString(sum[:8])
}

// Outcomes of events.
const (
	Begun     = "begun" // a call that may change something will be sent next; a later line has its result
	Success   = "success"
	ToolError = "tool_error" // the tool answered that it failed
	Denied    = "denied"     // by a policy, a gate or a limit, or because the requested thing does not exist
	Failed    = "failed"
	Cancelled = "cancelled"
	Timeout   = "timeout"
)

// Record writes an event to the audit log. Nil drops it. It may wait until the log has room.
type Record func(ctx context.Context, e Event)

// Event calls r, unless it is nil.
func (r Record) Event(ctx context.Context, e Event) {
	if r != nil {
		r(ctx, e)
	}
}

// Decision is a decision about a call.
type Decision struct {
	Allow  bool
	Policy string // policies, scopes or limit that decided; "" for none
}

type decisionKey struct{}

// WithDecision returns a context in which Decide stores its decision, and the Decided that receives it.
func WithDecision(ctx context.Context) (context.Context, *Decided) {
	d := &deciding{Context: ctx}
	return d, &d.Decided
}

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

// Decided is the decision about one call. Read it after the call was answered.
type Decided struct {
	Decision
	Made bool

	mu sync.Mutex // guards the fields while the call runs: a meta-tool may call several tools at once
}

// Decide stores the decision about the call of a context before the call continues. If a call makes other calls, no
// later decision replaces a denial.
func Decide(ctx context.Context, d Decision) {
	if to, ok := ctx.Value(decisionKey{}).(*Decided); ok {
		to.mu.Lock()
		defer to.mu.Unlock()
		if !to.Made || to.Allow {
			to.Decision, to.Made = d, true
		}
	}
}

// Source says where a request comes from.
type Source struct {
	Address   string // the client's address without a port; "" for the parent process
	Transport string // one of the Transports
	Secure    bool   `json:",omitempty"` // over TLS, to this program or to a trusted reverse proxy
}

type sourceKey struct{}

// WithSource returns a context of requests from s.
func WithSource(ctx context.Context, s Source) context.Context {
	return context.WithValue(ctx, sourceKey{}, s)
}

// SourceOf returns where the request of a context comes from, and false if that is unknown.
func SourceOf(ctx context.Context) (Source, bool) {
	s, ok := ctx.Value(sourceKey{}).(Source)
	return s, ok
}
