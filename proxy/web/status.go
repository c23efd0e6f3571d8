package web

import "time"

// Status is the state of a running toolfinch, for its socket, GET /api/status and toolfinch status.
// Lists are bounded; the latest and the most important entries are in them.
type Status struct {
	Version string `json:"version"`
	// PID, Configuration, At and Refused are only for the owner.
	PID           int          `json:"pid,omitempty"`
	Configuration string       `json:"configuration,omitempty"` // path of its file
	At            string       `json:"at,omitempty"`            // "stdio", or the address of HTTP
	Refused       string       `json:"refused,omitempty"`       // why the latest configuration is not served
	Store         string       `json:"store,omitempty"`         // why nothing can be stored now
	View          string       `json:"view,omitempty"`          // of all fields below; "" for all views together
	Started       time.Time    `json:"started"`
	Now           time.Time    `json:"now"`
	Views         []ViewStatus `json:"views"`
	// Servers are in configured order.
	Servers  []ServerStatus `json:"servers"`
	Sessions SessionsStatus `json:"sessions"`
	Calls    CallsStatus    `json:"calls"`
	Errors   []CallStatus   `json:"errors"` // failed calls, the latest first
	Tokens   TokensStatus   `json:"tokens"`
	Search   SearchStatus   `json:"search"`
	Limits   []LimitStatus  `json:"limits"` // limits that were reached since the start
	// Replicas are for callers who may know of all calls; nil for the store of one process.
	Replicas *ReplicasStatus `json:"replicas,omitempty"`
}

// ReplicasStatus are the replicas at PostgreSQL's last answer.
type ReplicasStatus struct {
	Differ   []string        `json:"differ"`             // lasting differences between them are a problem
	Sessions *int            `json:"sessions,omitempty"` // sessions in this replica; nil without other replicas
	Shown    []ReplicaStatus `json:"shown"`
}

// ReplicaStatus is one replica.
type ReplicaStatus struct {
	Name    string   `json:"name"`
	ID      string   `json:"id"`
	This    bool     `json:"this,omitempty"` // the answering replica
	Version string   `json:"version"`
	Seconds int      `json:"seconds"` // since its start
	Leads   []string `json:"leads"`   // servers
}

// ViewStatus is a view, and its number of findable tools.
type ViewStatus struct {
	Name  string `json:"name"`
	Tools int    `json:"tools"`
}

// ServerStatus is a server, with its number of held definitions. PID and Stderr are only for the owner.
type ServerStatus struct {
	Upstream
	Held   int      `json:"held,omitempty"`
	PID    int      `json:"pid,omitempty"`    // of its process; 0 without one
	Stderr []string `json:"stderr,omitempty"` // the last lines of its process's standard error
}

// SessionsStatus are the connected clients; the latest of them are shown.
type SessionsStatus struct {
	All   int             `json:"all"`
	Shown []SessionStatus `json:"shown"`
}

// SessionStatus is a session of a legacy client, or a 2026-07-28 client with an event stream or a call
// in the last hour. Since is the begin of the session, the stream or the first of the calls.
type SessionStatus struct {
	View      string    `json:"view"`
	Client    string    `json:"client,omitempty"` // "name version", as the client says
	Era       string    `json:"era"`              // an upstream.Era
	Principal string    `json:"principal,omitempty"`
	Transport string    `json:"transport,omitempty"` // a transport of package identity
	Since     time.Time `json:"since"`
}

// CallsStatus are the calls, reads, prompts and retrievals of clients.
type CallsStatus struct {
	InFlight int          `json:"in_flight"`
	Shown    []CallStatus `json:"shown"` // in flight, the oldest first
	// Last counts all clients' finished calls of the last 5 and 60 minutes; empty for a caller who is
	// not the owner.
	Last []LastCalls `json:"last"`
}

// LastCalls counts the calls finished in the last minutes, including the present one.
type LastCalls struct {
	Minutes int `json:"minutes"`
	Calls   int `json:"calls"`
	Failed  int `json:"failed"` // of them
}

// CallStatus is a running or failed call.
type CallStatus struct {
	Kind      string    `json:"kind"` // identity.EventCall and similar
	Began     time.Time `json:"began"`
	View      string    `json:"view"`
	Server    string    `json:"server,omitempty"`
	Tool      string    `json:"tool,omitempty"` // its ID
	Name      string    `json:"name"`           // the client's name of it
	Client    string    `json:"client,omitempty"`
	Principal string    `json:"principal,omitempty"`
	MS        float64   `json:"ms"`                // its time so far
	Outcome   string    `json:"outcome,omitempty"` // of package identity; "" while it runs
	Reason    string    `json:"reason,omitempty"`
	Said      string    `json:"said,omitempty"` // the message of the final JSON-RPC error
}

// TokensStatus has the tokens that models have read since the start, weighted like in toolfinch
// savings, and the tokens if every tool were listed.
type TokensStatus struct {
	Read      int64 `json:"read"`
	AllListed int64 `json:"all_listed"`
}

// SearchStatus is the state of the search.
type SearchStatus struct {
	Model    string `json:"model,omitempty"`  // of embeddings; "" for words only
	Reason   string `json:"reason,omitempty"` // why search uses only words, against the configuration
	Indexed  int    `json:"indexed"`          // findable definitions
	Embedded int    `json:"embedded"`         // of Indexed, with a vector
}

// LimitStatus is a limit on clients, see package limit.
type LimitStatus struct {
	Name string `json:"name"`
	Used int64  `json:"used"`
	Max  int64  `json:"max"`
	Hits int64  `json:"hits"` // how often it was reached
}

// status answers the view's status, as far as the caller may see it.
func (s *server) status(q *request) (any, error) {
	status := q.backend.Status(q.Context(), q.view)
	status.Version, status.View, status.Servers = s.version, q.view.Name, []ServerStatus{}
	for _, server := range q.servers() {
		status.Servers = append(status.Servers, ServerStatus{Upstream: server, Held: q.view.Catalog.HeldOf(server.Name)})
	}
	return status, nil
}
