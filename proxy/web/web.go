// Package web owns the REST API and its OpenAPI document: over plain
// HTTP it answers what MCP clients get over MCP. It does not decide what can be
// found, provisioned or called, which is up to the view, nor who may come in, which
// is up to its caller.
package web

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/retrieve"
	"toolfinch/tool"
	"toolfinch/trust/inbound"
	"toolfinch/trust/pins"
)

// Errors of a Backend that the API tells apart. Their text is shown to clients.
var (
	ErrNoView   = errors.New("no such view")
	ErrNoServer = errors.New("no such server")
	ErrStale    = errors.New("it has changed again")
	ErrOwner    = errors.New("the owner decides it: toolfinch pins approve, or toolfinch pins reject")
)

// Backend is what is served. Its methods are safe for concurrent use; the texts of
// its errors, and those in what it returns, are shown to clients.
type Backend interface {
	// View returns what the maker of the request of ctx has of the view of that name; "" is
	// the one of clients that name none.
	// The error wraps ErrNoView.
	View(ctx context.Context, name string) (View, error)
	// Upstreams are the servers that the maker of the request of ctx may know of, in
	// configured order, without those that are disabled.
	Upstreams(ctx context.Context) []Upstream
	// Status returns what a view does, of that what the maker of the request of ctx may see;
	// without version and servers.
	Status(ctx context.Context, view View) Status
	// Reconnect connects to a server anew and lists it, see upstream.Pool. The
	// error wraps ErrNoServer, or is an *upstream.Error of a server that cannot be
	// reached.
	Reconnect(ctx context.Context, name string) (Upstream, error)
	// Reindex lists all servers anew, in parallel, and returns one row for each, in
	// configured order.
	Reindex(ctx context.Context) []Reindexed
	// Held returns the definitions of servers that of takes which wait for approval, or were
	// rejected, by server: those that the maker of the request of ctx may use.
	Held(ctx context.Context, of func(server string) bool) ([]pins.Report, error)
	// Decide approves and rejects what Held returned, each list all or nothing. The error wraps
	// ErrStale where a server has listed something else since, and ErrOwner where the maker
	// of the request may not use all that a server has.
	Decide(ctx context.Context, approve, reject []pins.Report) error
	// Observe has what a request does that is no call of a tool taken down. The context is
	// for what is done; done is called once, with its error. After an error nothing is to be done.
	Observe(ctx context.Context, e identity.Event, call *tool.Call) (_ context.Context, done func(error), err error)
	// Metrics returns what is counted, as telemetry.TextType, of what the maker of the
	// request of ctx may know.
	Metrics(ctx context.Context) ([]byte, error)
	// Permit reports whether who makes the request of a context may do what changes
	// servers. The error wraps a *identity.ScopeError or ErrOwner.
	Permit(ctx context.Context, level inbound.Level, operation string) error
}

// View is one view of the servers. A request uses the values it got to its end.
type View struct {
	Name      string
	Catalog   *retrieve.Catalog
	Retriever *retrieve.Retriever
	Sessions  Sessions
	// Started waits for servers that are starting for the first time; nil without any.
	Started func(ctx context.Context)
	// Whole reports whether the view has all tools of a server, future ones too.
	Whole func(server string) bool
}

// Sessions are the MCP sessions of a view: a register.Live.
type Sessions interface {
	// KnowsHTTP reports whether a session is one that requests may name.
	// that this principal opened, "" for nobody.
	KnowsHTTP(id, principal string) bool
}

// Upstream is what is known of one server.
type Upstream struct {
	Name        string    `json:"name"`
	Description string    `json:"description,omitempty"`
	State       string    `json:"state"` // an upstream.State: pending, ready or failed
	Since       time.Time `json:"since,omitzero"`
	Era         string    `json:"era,omitempty"`       // an upstream.Era, "" while unknown
	Transport   string    `json:"transport,omitempty"` // an upstream.Transport
	Tools       int       `json:"tools"`               // the API tells how many of them the view has
	Restarts    int       `json:"restarts"`            // how often a connection took the place of one that had ended
	// Dropped is how many notifications about calls clients did not get.
	Dropped int64  `json:"dropped_notifications"`
	LeftOut int    `json:"left_out,omitempty"` // malformed definitions of the server that are not served
	Mended  int    `json:"mended,omitempty"`   // malformed definitions of the server that are served mended
	Error   string `json:"error,omitempty"`
}

// Reindexed is what listing one server anew brought. With Error set nothing was
// learned, and what was known stays.
type Reindexed struct {
	Server       string `json:"server"`
	Tools        int    `json:"tools"` // that it has now; the API tells how many of them the view has
	*Differences        // the API tells them where the view has the whole server
	Error        string `json:"error,omitempty"`
}

// Differences are counts of tools.
type Differences struct {
	Added   int `json:"added"`   // that it had not before
	Removed int `json:"removed"` // that it had before
	Changed int `json:"changed"` // whose definition is another now
}

// Path is where what belongs to a view is.
const Path = "/api/"

// Patterns are those of net/http.ServeMux under which Handler is to be served.
var Patterns = []string{Path, "/openapi.json", "/metrics"}

// Handler serves the REST API under /api/, the document that describes it at
// /openapi.json and /api/openapi.json, and /metrics. It lets everybody in: the
// caller puts the guard of MCP in front of it, and answers refused requests with
// Refuse. version is the program's.
func Handler(backend Backend, version string, log *slog.Logger) http.Handler {
	return newServer(backend, version, log)
}
