// Package web owns the REST API and its OpenAPI document: over plain HTTP it answers what MCP clients
// get over MCP. The view decides what can be found, provisioned or called, and the caller of this
// package who may come in.
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

// Errors of a Backend with a status of their own. Their text is shown to clients.
var (
	ErrNoView   = errors.New("no such view")
	ErrNoServer = errors.New("no such server")
	ErrStale    = errors.New("it has changed again")
	ErrOwner    = errors.New("the owner decides it: toolfinch pins approve, or toolfinch pins reject")
)

// Backend is the served proxy. Its methods are safe for concurrent use; clients read its errors and the
// texts that it returns.
type Backend interface {
	// View returns the caller's part of the named view, "" for the root. The caller is the party of
	// ctx. The error wraps ErrNoView.
	View(ctx context.Context, name string) (View, error)
	// Upstreams are the enabled servers that the caller may know, in configured order.
	Upstreams(ctx context.Context) []Upstream
	// Status returns a view's status for the caller, without version and servers.
	Status(ctx context.Context, view View) Status
	// Reconnect connects to a server again and lists it, see upstream.Pool. The error wraps
	// ErrNoServer, or is an *upstream.Error of an unreachable server.
	Reconnect(ctx context.Context, name string) (Upstream, error)
	// Reindex lists all servers again, in parallel, and returns one row for each, in configured order.
	Reindex(ctx context.Context) []Reindexed
	// Held returns the held and rejected definitions that the caller may use, of servers for which of
	// is true, by server.
	Held(ctx context.Context, of func(server string) bool) ([]pins.Report, error)
	// Decide approves and rejects reports of Held, each list all or nothing. The error wraps ErrStale
	// if a server has listed another definition since, and ErrOwner if the caller may not use the whole
	// server.
	Decide(ctx context.Context, approve, reject []pins.Report) error
	// Observe records a request that calls no tool. The context is for the request's work; done is
	// called once, with its error. After an error the request must do nothing.
	Observe(ctx context.Context, e identity.Event, call *tool.Call) (_ context.Context, done func(error), err error)
	// Metrics returns the metrics that the caller may know, as telemetry.TextType.
	Metrics(ctx context.Context) ([]byte, error)
	// Permit reports whether the caller may change servers. The error wraps a *identity.ScopeError or
	// ErrOwner.
	Permit(ctx context.Context, level inbound.Level, operation string) error
}

// View is one view of the servers. A request uses one value to its end.
type View struct {
	Name      string
	Catalog   *retrieve.Catalog
	Retriever *retrieve.Retriever
	Sessions  Sessions
	// Started waits for servers that start for the first time; may be nil.
	Started func(ctx context.Context)
	// Whole reports whether the view has all tools of a server, including future ones.
	Whole func(server string) bool
}

// Sessions are the MCP sessions of a view: a register.Live.
type Sessions interface {
	// KnowsHTTP reports whether the principal ("" for nobody) has opened this session over streamable
	// HTTP.
	KnowsHTTP(id, principal string) bool
}

// Upstream is the state of one server.
type Upstream struct {
	Name        string    `json:"name"`
	Description string    `json:"description,omitempty"`
	State       string    `json:"state"` // an upstream.State: pending, ready or failed
	Since       time.Time `json:"since,omitzero"`
	Era         string    `json:"era,omitempty"`       // an upstream.Era, "" while unknown
	Transport   string    `json:"transport,omitempty"` // an upstream.Transport
	Tools       int       `json:"tools"`               // of the server; the API answers the view's number
	Restarts    int       `json:"restarts"`            // number of replaced connections
	// Dropped counts the notifications about calls that did not reach clients.
	Dropped int64  `json:"dropped_notifications"`
	LeftOut int    `json:"left_out,omitempty"` // malformed definitions that are not served
	Mended  int    `json:"mended,omitempty"`   // malformed definitions that are served mended
	Error   string `json:"error,omitempty"`
}

// Reindexed is the result of listing one server again. With Error set nothing has changed.
type Reindexed struct {
	Server       string `json:"server"`
	Tools        int    `json:"tools"` // of the server; the API answers the view's number
	*Differences        // only if the view has the whole server
	Error        string `json:"error,omitempty"`
}

// Differences are counts of tools.
type Differences struct {
	Added   int `json:"added"`   // new
	Removed int `json:"removed"` // missing
	Changed int `json:"changed"` // with another definition
}

// Path begins the paths of a view.
const Path = "/api/"

// Patterns are Handler's patterns for net/http.ServeMux.
var Patterns = []string{Path, "/openapi.json", "/metrics"}

// Handler serves the REST API under /api/, its document at /openapi.json and /api/openapi.json, and
// /metrics. It lets everybody in: the caller puts transport.Clients.Guard in front of it, and answers
// refused requests with Refuse. version is the program's.
func Handler(backend Backend, version string, log *slog.Logger) http.Handler {
	return newServer(backend, version, log)
}
