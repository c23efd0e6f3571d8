package view

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"

	"toolfinch/tool"
	"toolfinch/view/python"
	"toolfinch/view/script"
)

// Upstream is what one upstream brings to views: its tools, prompts and resources.
// The Name of a tool is empty unless the configuration gives it an exact name. ID
// and the name in Raw are always the upstream's own.
type Upstream struct {
	Server string
	Listed bool // false while it has never been listed: what it has is not known
	Tools  []*tool.Tool
	// Base fills in Output, the overrides' settings for large results, and
	// OutputDefault, those for the other tools. In a compiled view, Output has the tools
	// whose large results are kept, and OutputDefault is nil.
	Output        map[tool.ID]*OutputCache
	OutputDefault *OutputCache
	Trim          int // what stands under the server

	of []*tool.Tool // Tools of what Compile made it of
}

// Compiled is the result of Compile: a view over the upstreams as they are now.
type Compiled struct {
	Settings  Settings
	Upstreams []Upstream   // those it has something of, in the order of the catalog
	Own       []*tool.Tool // composite and custom tools; the server of their IDs is the view's name
	Meta      []*tool.Tool // run_script, when it is offered
}

// Keeps reports whether large results of some of the view's tools are kept.
func (v *Compiled) Keeps() bool {
	return slices.ContainsFunc(v.Upstreams, func(u Upstream) bool { return len(u.Output) > 0 })
}

// Env is what a view needs from its caller. Its functions run during calls, and must
// be safe for concurrent use.
type Env struct {
	Log *slog.Logger
	// Program loads the Starlark module at an absolute path, or returns the one that
	// was loaded before, if the file has not changed.
	Program func(path string) (*script.Program, error)
	// Python runs hooks and custom tools that are named by a dotted path.
	Python *python.Host
	// Scripts runs what a model wrote. Nil: run_script answers that nothing does.
	Scripts *script.Sandbox
	// Find finds any upstream's tool, as Base made it, by "server.tool", "server:tool" or
	// the name that it has beside all others; Nearest the IDs that look like id. Composite
	// and custom tools, which the owner wrote, call these.
	Find    func(id string) (*tool.Tool, bool)
	Nearest func(id string, n int) []string
	// Before is the view as the same Settings and surroundings had it, nil for none: what it
	// has of upstreams whose Tools are the very same slice is taken over.
	Before *Compiled
	// Pending reports whether the tool with this ID may still appear: its server has not
	// been listed, or is disabled. If nil, Compile decides by its upstreams.
	Pending func(id string) bool
	// Retrieve searches what the root serves, else the view, for custom tools: an array of
	// tools as retrieve_tools answers it.
	Retrieve func(ctx context.Context, query string, limit int) (json.RawMessage, error)
	// Within finds a tool of the view by the name clients see or "server.tool", and
	// Search searches the view, as whoever makes the request of the context may: for
	// run_script, which a model wrote.
	Within func(ctx context.Context, name string) (*tool.Tool, error)
	Search func(ctx context.Context, query string, limit int) (json.RawMessage, error)
	// Headers are the names of the HTTP headers that hooks may see.
	Headers []string
	// Around wraps the handler of a tool of an upstream that a composite or custom tool
	// calls; nil: nothing does.
	Around func(t *tool.Tool, handler tool.Handler) tool.Handler
	// Keep keeps large results (package output).
	Keep func(OutputCache) tool.Middleware
	// Guard keeps secrets in a server's answers from clients; "" are the view's own tools.
	// It may be nil, and return nil.
	Guard func(server string) tool.Middleware

	own []string // names of the view's composite and custom tools, and "view.name"
}

// PreCall is a hook before a call. It returns the arguments to call with, nil
// for those that were sent, or an error, an *AbortError to refuse the call.
type PreCall func(ctx context.Context, info *script.Info, arguments json.RawMessage) (json.RawMessage, error)

// PostCall is a hook after a call. It returns the result to answer with, nil for
// the one that came.
type PostCall func(ctx context.Context, info *script.Info, arguments json.RawMessage, result tool.Result) (tool.Result, error)

// AbortError is a call that a hook refused. Its text is for the model.
type AbortError struct{ Reason string }

func (e *AbortError) Error() string { return e.Reason }
