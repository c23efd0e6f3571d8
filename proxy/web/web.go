// Package web owns the REST API and its OpenAPI document, for programs that do not speak MCP. It does not decide which
// tools can be found, provisioned or called (the view does) or which clients are let in (the caller of this package
// does).
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

// Errors of a Backend. Each has its own HTTP status. Clients are shown their text.
var (
	ErrNoView   = errors.New("no such view")
	ErrNoServer = errors.New("no such server")
	ErrStale    = errors.New("it has changed again")
	ErrOwner    = errors.New("the owner decides it: toolfinch pins approve, or toolfinch pins reject")
)

// Backend is the proxy that the API serves. Its methods are safe for concurrent use. Clients can read the errors and
// texts that it returns.
type Backend interface {
	// View returns the part of the named view ("" for the root) that the caller may use. The caller is the party of
	// ctx. The error wraps ErrNoView.
	View(ctx context.Context, name string) (View, error)
	// Upstreams returns the enabled servers that the caller may know, in configured order.
	Upstreams(ctx context.Context) []Upstream
	// Status returns a view's status for the caller, without version and servers.
	Status(ctx context.Context, view View) Status
	// Reconnect connects to a server again and lists it, see upstream.Pool. The error wraps ErrNoServer; for an
	// unreachable server it is an *upstream.Error.
	Reconnect(ctx context.Context, name string) (Upstream, error)
	// Reindex lists all servers again, in parallel, and returns one row for each server in configured order.
	Reindex(ctx context.Context) []Reindexed
	// Held returns the held and rejected definitions that the caller may use, sorted by server. It leaves out
	// servers for which of returns false.
	Held(ctx context.Context, of func(server string) bool) ([]pins.Report, error)
	// Decide approves and rejects reports of Held. Each list is decided as a whole or not at all. The error
	// wraps ErrStale if a server has listed another definition since, and ErrOwner if the caller may not use the
	// whole server.
	Decide(ctx context.Context, approve, reject []pins.Report) error
	// Observe records a request that calls no tool. The request runs with the returned context and then calls done
	// once, with its error. If Observe returns an error, the request must not run.
	Observe(ctx context.Context, e identity.Event, call *tool.Call) (_ context.Context, done func(error), err error)
	// Metrics returns the metrics that the caller may know, as telemetry.TextType.
	Metrics(ctx context.Context) ([]byte, error)
	// Permit returns an error unless the caller may make changes of this level. The error wraps an
	// *identity.ScopeError or ErrOwner.
	Permit(ctx context.Context, level inbound.Level, operation string) error
}

// View is one view of the servers, at one time.
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

// Sessions knows a view's MCP sessions. A register.Live implements it.
type Sessions interface {
	// KnowsHTTP reports whether the principal ("" for no principal) has opened this session over streamable HTTP.
	KnowsHTTP(id, principal string) bool
}

// Upstream is the state of one server.
type Upstream struct {
	Name        string    `json:"name"`
	Description string    `json:"description,omitempty"`
	State       string    `json:"state"` // an upstream.State
	Since       time.Time `json:"since,omitzero"`
	Era         string    `json:"era,omitempty"`       // an upstream.Era; "" while unknown
	Transport   string    `json:"transport,omitempty"` // an upstream.Transport
	Tools       int       `json:"tools"`               // tools of the server; the API answers with the view's number
	Restarts    int       `json:"restarts"`            // replaced connections
	// Dropped counts the notifications about calls that clients did not get.
	Dropped int64  `json:"dropped_notifications"`
	LeftOut int    `json:"left_out,omitempty"` // malformed definitions that are not served
	Mended  int    `json:"mended,omitempty"`   // malformed definitions that are repaired and served
	Error   string `json:"error,omitempty"`    // while it starts, why it failed last
	// Failed is when it failed last; zero once it was listed again.
	Failed time.Time `json:"failed_at,omitzero"`
}

// Reindexed is the result of listing one server again. If Error is set, nothing has changed.
type Reindexed struct {
	Server       string `json:"server"`
	Tools        int    `json:"tools"` // tools of the server; the API answers with the view's number
	*Differences        // nil unless the whole server is in the view
	Error        string `json:"error,omitempty"`
}

// Differences counts tools.
type Differences struct {
	Added   int `json:"added"`   // new
	Removed int `json:"removed"` // missing
	Changed int `json:"changed"` // tools with another definition
}

// Path is the prefix of most paths, see Patterns.
const Path = "/api/"

// Patterns are the patterns for net/http.ServeMux that Handler serves.
var Patterns = []string{Path, "/openapi.json", "/metrics"}

// Handler serves the REST API under /api/, its document at /openapi.json and /api/openapi.json, and /metrics. It lets
// everybody in: the caller puts transport.Clients.Guard in front of it and answers refused requests with Refuse.
// version is the version of the program.
func Handler(backend Backend, version string, log *slog.Logger) http.Handler {
	return newServer(backend, version, log)
}
