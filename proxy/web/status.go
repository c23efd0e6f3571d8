package web

import "time"

// Status is what a running toolfinch does: what its socket, GET /api/status and toolfinch
// status say. Lists are bounded; the last and the most important are in them.
type Status struct {
	Version string `json:"version"`
	// PID, Configuration, At and Refused are for the owner alone.
	PID           int          `json:"pid,omitempty"`
	Configuration string       `json:"configuration,omitempty"` // path of its file
	At            string       `json:"at,omitempty"`            // "stdio", or the address of HTTP
	Refused       string       `json:"refused,omitempty"`       // why the configuration as it was edited last is not served
	Store         string       `json:"store,omitempty"`         // why nothing can be stored now
	View          string       `json:"view,omitempty"`          // that all else is of; "" for all views together
	Started       time.Time    `json:"started"`
	Now           time.Time    `json:"now"`
	Views         []ViewStatus `json:"views"`
	// Servers are in configured order.
	Servers  []ServerStatus `json:"servers"`
	Sessions SessionsStatus `json:"sessions"`
	Calls    CallsStatus    `json:"calls"`
	Errors   []CallStatus   `json:"errors"` // finished calls that did not succeed, the last first
	Tokens   TokensStatus   `json:"tokens"`
	Search   SearchStatus   `json:"search"`
	Limits   []LimitStatus  `json:"limits"` // that were reached since the start
	// Replicas are for who may know of all calls; nil where the store is one process's.
	Replicas *ReplicasStatus `json:"replicas,omitempty"`
}

// ReplicasStatus are the replicas that were there when PostgreSQL last answered.
type ReplicasStatus struct {
	Differ   []string        `json:"differ"`             // what differs between them that should not for long
	Sessions *int            `json:"sessions,omitempty"` // that live in this one; nil where it serves no other replica
	Shown    []ReplicaStatus `json:"shown"`
}

// ReplicaStatus is one replica.
type ReplicaStatus struct {
	Name    string   `json:"name"`
	ID      string   `json:"id"`
	This    bool     `json:"this,omitempty"` // which tells of itself
	Version string   `json:"version"`
	Seconds int      `json:"seconds"` // how long it has been there
	Leads   []string `json:"leads"`   // servers
}

// ViewStatus is a view, and how many tools can be found in it.
type ViewStatus struct {
	Name  string `json:"name"`
	Tools int    `json:"tools"`
}

// ServerStatus is a server, and how many of its definitions wait for approval. PID and Stderr
// are for the owner alone.
type ServerStatus struct {
	Upstream
	Held   int      `json:"held,omitempty"`
	PID    int      `json:"pid,omitempty"`    // of its process; 0 where none runs
	Stderr []string `json:"stderr,omitempty"` // what its process wrote last to its standard error
}

// SessionsStatus are clients that are connected: of all of them, the last that came are
// shown.
type SessionsStatus struct {
	All   int             `json:"all"`
	Shown []SessionStatus `json:"shown"`
}

// SessionStatus is a session of a client of the legacy era; or a client of 2026-07-28, which
// has no sessions: with an event stream, or that called something within the last hour. Since
// is when the session, the stream or the first of the calls began.
type SessionStatus struct {
	View      string    `json:"view"`
	Client    string    `json:"client,omitempty"` // "name version", as it says itself
	Era       string    `json:"era"`              // an upstream.Era
	Principal string    `json:"principal,omitempty"`
	Transport string    `json:"transport,omitempty"` // one of trust's transports
	Since     time.Time `json:"since"`
}

// CallsStatus are the calls, reads, prompts and retrievals of clients.
type CallsStatus struct {
	InFlight int          `json:"in_flight"`
	Shown    []CallStatus `json:"shown"` // of those in flight, the oldest first
	// Last are counts of all clients' finished calls, of the last 5 and 60 minutes; none for
	// who is known by name and is not the owner.
	Last []LastCalls `json:"last"`
}

// LastCalls counts the calls that finished within some minutes, the present one included.
type LastCalls struct {
	Minutes int `json:"minutes"`
	Calls   int `json:"calls"`
	Failed  int `json:"failed"` // of them
}

// CallStatus is a call that runs, or one that did not succeed.
type CallStatus struct {
	Kind      string    `json:"kind"` // identity.EventCall and its like
	Began     time.Time `json:"began"`
	View      string    `json:"view"`
	Server    string    `json:"server,omitempty"`
	Tool      string    `json:"tool,omitempty"` // its ID
	Name      string    `json:"name"`           // what the client called
	Client    string    `json:"client,omitempty"`
	Principal string    `json:"principal,omitempty"`
	MS        float64   `json:"ms"`                // how long it took, or has run
	Outcome   string    `json:"outcome,omitempty"` // one of trust's; "" while it runs
	Reason    string    `json:"reason,omitempty"`
	Said      string    `json:"said,omitempty"` // the message of the JSON-RPC error that it ended with
}

// TokensStatus is what models have read since the start, weighed as toolfinch savings
// weighs it, and what they would have with every tool listed.
type TokensStatus struct {
	Read      int64 `json:"read"`
	AllListed int64 `json:"all_listed"`
}

// SearchStatus says how tools are found.
type SearchStatus struct {
	Model    string `json:"model,omitempty"`  // that embeds; "" for words alone
	Reason   string `json:"reason,omitempty"` // why words decide alone, where they should not
	Indexed  int    `json:"indexed"`          // definitions that can be found
	Embedded int    `json:"embedded"`         // of them, those with a vector
}

// LimitStatus is a limit of what clients can make grow, see package limit.
type LimitStatus struct {
	Name string `json:"name"`
	Used int64  `json:"used"`
	Max  int64  `json:"max"`
	Hits int64  `json:"hits"` // how often it was reached
}

// status answers what the view does, as far as the caller may see it.
func (s *server) status(q *request) (any, error) {
	status := q.backend.Status(q.Context(), q.view)
	status.Version, status.View, status.Servers = s.version, q.view.Name, []ServerStatus{}
	for _, server := range q.servers() {
		status.Servers = append(status.Servers, ServerStatus{Upstream: server, Held: q.view.Catalog.HeldOf(server.Name)})
	}
	return status, nil
}
