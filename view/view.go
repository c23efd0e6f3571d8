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

// Upstream is one upstream's tools, prompts and resources. The Name of a tool is empty unless the
// configuration gives it an exact name. ID and the name in Raw are always the upstream's own.
type Upstream struct {
	Server string
	Listed bool // false before its first list: its tools are unknown
	Tools  []*tool.Tool
	// Base writes the overrides' settings for large results into Output, and the setting of other tools
	// into OutputDefault. In a compiled view, Output has the tools whose large results are kept, and
	// OutputDefault is nil.
	Output        map[tool.ID]*OutputCache
	OutputDefault *OutputCache
	Trim          int // of the server's settings

	source []*tool.Tool // the Tools that Compile read
}

// Compiled is a view over the present upstreams.
type Compiled struct {
	Settings  Settings
	Upstreams []Upstream   // with at least one item, in the order of the catalog
	Own       []*tool.Tool // composite and custom tools; the server of their IDs is the view's name
	Meta      []*tool.Tool // run_script, if offered
}

// Keeps reports whether large results of some of the view's tools are kept.
func (v *Compiled) Keeps() bool {
	return slices.ContainsFunc(v.Upstreams, func(u Upstream) bool { return len(u.Output) > 0 })
}

// Env is what a view needs from its caller. Its functions run during calls, and must be safe for
// concurrent use.
type Env struct {
	Log *slog.Logger
	// Program loads the Starlark module at an absolute path, once until the file changes.
	Program func(path string) (*script.Program, error)
	// Python runs hooks and custom tools with a dotted path.
	Python *python.Host
	// Scripts runs models' scripts. If nil, run_script answers an error.
	Scripts *script.Sandbox
	// Find finds any upstream's tool, as Base made it, by "server.tool", "server:tool" or its root
	// name; Nearest returns similar IDs. Composite and custom tools, which the owner wrote, call them.
	Find    func(id string) (*tool.Tool, bool)
	Nearest func(id string, n int) []string
	// Before is the last view of the same Settings and Env, or nil. Upstreams whose Tools are the same
	// slice are reused.
	Before *Compiled
	// Pending reports whether the tool with this ID may still appear: its server is disabled or was
	// never listed. If nil, Compile decides by its upstreams.
	Pending func(id string) bool
	// Retrieve searches the root, else the view, for custom tools. It returns an array of tools like
	// retrieve_tools.
	Retrieve func(ctx context.Context, query string, limit int) (json.RawMessage, error)
	// Within finds a tool of the view by its exposed name or "server.tool", and Search searches the
	// view, both with the rights of ctx's principal: a model wrote the script that asks.
	Within func(ctx context.Context, name string) (*tool.Tool, error)
	Search func(ctx context.Context, query string, limit int) (json.RawMessage, error)
	// Headers are the names of the HTTP headers that hooks may see.
	Headers []string
	// Around wraps the handler of an upstream's tool for composite and custom tools; may be nil.
	Around func(t *tool.Tool, handler tool.Handler) tool.Handler
	// Keep keeps large results (package output).
	Keep func(OutputCache) tool.Middleware
	// MaskSecrets hides secrets in a server's answers from clients; "" are the view's own tools. It may
	// be nil, and return nil.
	MaskSecrets func(server string) tool.Middleware

	own []string // names of the view's composite and custom tools, and "view.name"
}

// PreCall is a hook before a call. It returns new arguments, nil for no change, or an error; an
// *AbortError refuses the call.
type PreCall func(ctx context.Context, info *script.Info, arguments json.RawMessage) (json.RawMessage, error)

// PostCall is a hook after a call. It returns a new result, nil for no change.
type PostCall func(ctx context.Context, info *script.Info, arguments json.RawMessage, result tool.Result) (tool.Result, error)

// AbortError is a hook's refusal of a call. Its text is for the model.
type AbortError struct{ Reason string }

func (e *AbortError) Error() string { return e.Reason }
