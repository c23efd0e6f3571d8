package web

import "time"

// Status is the state of a running toolfinch, for its socket, GET /api/status and toolfinch status.
// Lists are bounded; they keep the latest and the most important entries.
type Status struct {
	Version string `json:"version"`
	// PID, Configuration, At, Shared, Beside and Refused are set only for the owner.
	PID           int          `json:"pid,omitempty"`
	Configuration string       `json:"configuration,omitempty"` // path of the file
	At            string       `json:"at,omitempty"`            // "stdio", or the HTTP address
	Shared        bool         `json:"shared,omitempty"`        // it runs in the background, for all agents of its user
	Beside        []string     `json:"beside,omitempty"`        // why it does not share another process of the configuration
	Refused       string       `json:"refused,omitempty"`       // why the latest configuration is not served
	Store         string       `json:"store,omitempty"`         // why the store cannot store now
	View          string       `json:"view,omitempty"`          // view of all fields below; "" for all views
	Started       time.Time    `json:"started"`
	Now           time.Time    `json:"now"`
	Views         []ViewStatus `json:"views"`
	// Servers are in configured order.
	Servers  []ServerStatus `json:"servers"`
	Sessions SessionsStatus `json:"sessions"`
	Calls    CallsStatus    `json:"calls"`
	Errors   []CallStatus   `json:"errors"` // failed calls, latest first
	Tokens   TokensStatus   `json:"tokens"`
	Search   SearchStatus   `json:"search"`
	Limits   []LimitStatus  `json:"limits"` // limits that were reached since the start
	// Replicas is nil if one process has the store for itself, or if the caller may not see all calls.
	Replicas *ReplicasStatus `json:"replicas,omitempty"`
}

// ReplicasStatus describes the replicas as PostgreSQL last reported them.
type ReplicasStatus struct {
	Differ   []string        `json:"differ"`             // differences between the replicas; a problem only if they last
	Sessions *int            `json:"sessions,omitempty"` // sessions in this replica; nil if replicas share no sessions
	Shown    []ReplicaStatus `json:"shown"`
}

// ReplicaStatus describes one replica.
type ReplicaStatus struct {
	Name    string   `json:"name"`
	ID      string   `json:"id"`
	This    bool     `json:"this,omitempty"` // this replica has answered
	Version string   `json:"version"`
	Seconds int      `json:"seconds"` // since its start
	Leads   []string `json:"leads"`   // servers that the replica leads
}

// ViewStatus is a view with the number of its tools.
type ViewStatus struct {
	Name  string `json:"name"`
	Tools int    `json:"tools"`
}

// ServerStatus is a server with the number of its held definitions. PID and Stderr are set only for the owner.
type ServerStatus struct {
	Upstream
	Held   int      `json:"held,omitempty"`
	PID    int      `json:"pid,omitempty"`    // of the server's process; 0 without a process
	Stderr []string `json:"stderr,omitempty"` // the process's last lines on standard error
}

// SessionsStatus counts the connected clients and shows the latest of them.
type SessionsStatus struct {
	All   int             `json:"all"`
	Shown []SessionStatus `json:"shown"`
}

// SessionStatus is a session of a legacy client, or a 2026-07-28 client that has an event stream or has made a call in
// the last hour. Since is when the session, the stream or the first of these calls began.
type SessionStatus struct {
	View      string    `json:"view"`
	Client    string    `json:"client,omitempty"` // "name version", as the client states it
	Era       string    `json:"era"`              // an upstream.Era
	Principal string    `json:"principal,omitempty"`
	Transport string    `json:"transport,omitempty"` // a transport of package identity
	Since     time.Time `json:"since"`
}

// CallsStatus describes the calls, reads, prompts and retrievals of clients.
type CallsStatus struct {
	InFlight int          `json:"in_flight"`
	Shown    []CallStatus `json:"shown"` // calls in flight, oldest first
	// Last counts the calls of all clients that finished in the last 5 and 60 minutes. It is empty if the caller may
	// see only some calls.
	Last []LastCalls `json:"last"`
}

// LastCalls counts the calls that finished in the last minutes, the current minute included.
type LastCalls struct {
	Minutes int `json:"minutes"`
	Calls   int `json:"calls"`
	Failed  int `json:"failed"` // failed calls in Calls
}

// CallStatus is a running or failed call.
type CallStatus struct {
	Kind      string    `json:"kind"` // identity.EventCall or another event
	Began     time.Time `json:"began"`
	View      string    `json:"view"`
	Server    string    `json:"server,omitempty"`
	Tool      string    `json:"tool,omitempty"` // the tool's ID
	Name      string    `json:"name"`           // the name that the client used
	Client    string    `json:"client,omitempty"`
	Principal string    `json:"principal,omitempty"`
	MS        float64   `json:"ms"`                // duration so far
	Outcome   string    `json:"outcome,omitempty"` // an outcome of package identity; "" while the call runs
	Reason    string    `json:"reason,omitempty"`
	Said      string    `json:"said,omitempty"` // the message of the final JSON-RPC error
}

// TokensStatus counts the tokens that models have read since the start, weighted as in toolfinch savings, and the tokens
// that a list of all tools would have cost.
type TokensStatus struct {
	Read      int64 `json:"read"`
	AllListed int64 `json:"all_listed"`
}

// SearchStatus is the state of the search.
type SearchStatus struct {
	Model    string `json:"model,omitempty"`  // embedding model; "" if search uses only words
	Reason   string `json:"reason,omitempty"` // why search uses only words despite an embedder
	Indexed  int    `json:"indexed"`          // definitions in the index
	Embedded int    `json:"embedded"`         // definitions among Indexed that have a vector
}

// LimitStatus describes a limit on clients, see package limit.
type LimitStatus struct {
	Name string `json:"name"`
	Used int64  `json:"used"`
	Max  int64  `json:"max"`
	Hits int64  `json:"hits"` // how often the limit was reached
}

// status answers with the part of the view's status that the caller may see.
func (s *server) status(q *request) (any, error) {
	status := q.backend.Status(q.Context(), q.view)
	status.Version, status.View, status.Servers = s.version, q.view.Name, []ServerStatus{}
	for _, server := range q.servers() {
		status.Servers = append(status.Servers, ServerStatus{Upstream: server, Held: q.view.Catalog.HeldOf(server.Name)})
	}
	return status, nil
}
