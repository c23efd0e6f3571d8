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

// Upstream has the tools, prompts and resources of one upstream. The Name of a tool is empty unless the configuration
// gives it an exact name. Its ID and the name in Raw are always the upstream's.
type Upstream struct {
	Server string
	Listed bool // false until the upstream is listed for the first time: its tools are unknown
	Tools  []*tool.Tool
	// After Base, Output has the overrides' settings for large results, and OutputDefault the setting of other tools.
	// In a compiled view, Output has the tools whose large results are kept, and OutputDefault is nil.
	Output        map[tool.ID]*OutputCache
	OutputDefault *OutputCache
	Trim          int // Trim of the server's settings

	source []*tool.Tool // Tools that Compile has read
	hidden []string     // names of the tools that Base has left out, because the server's settings hide them
}

// Compiled is a view of the upstreams as they are now.
type Compiled struct {
	Settings  Settings
	Upstreams []Upstream   // upstreams that have items or may get some, in the order of the catalog
	Own       []*tool.Tool // composite and custom tools; the server of their IDs is the view's name
	Meta      []*tool.Tool // run_script, if the view offers it
}

// Keeps reports whether large results of some of the view's tools are kept.
func (v *Compiled) Keeps() bool {
	return slices.ContainsFunc(v.Upstreams, func(u Upstream) bool { return len(u.Output) > 0 })
}

// Env has the dependencies of a view. Its functions run during calls, so they must be safe for concurrent use.
type Env struct {
	Log *slog.Logger
	// Program loads the Starlark module at an absolute path. It loads a module again only if the file has changed.
	Program func(path string) (*script.Program, error)
	// Python runs hooks and custom tools with a dotted path.
	Python *python.Host
	// Scripts runs models' scripts. If it is nil, run_script answers with an error.
	Scripts *script.Sandbox
	// Find finds any upstream's tool, as Base has made it, by "server.tool", "server:tool" or its name in the root.
	// Nearest returns similar IDs. Composite and custom tools may use all these tools, because the owner wrote them.
	Find    func(id string) (*tool.Tool, bool)
	Nearest func(id string, n int) []string
	// Before is the previous view with the same Settings and Env, or nil. Its upstreams are reused if they have the
	// same slice of Tools.
	Before *Compiled
	// Pending reports whether the tool with this ID may still appear, because it is hidden or its server is disabled or
	// was never listed. If Pending is nil, Compile decides by the upstreams.
	Pending func(id string) bool
	// Retrieve is called by custom tools. It searches the root view, or this view if there is no root view. It returns
	// an array of tools like retrieve_tools.
	Retrieve func(ctx context.Context, query string, limit int) (json.RawMessage, error)
	// Within finds a tool of the view by its exposed name or "server.tool". Search searches the view. Both have only the
	// rights of ctx's principal, because a model wrote the calling script.
	Within func(ctx context.Context, name string) (*tool.Tool, error)
	Search func(ctx context.Context, query string, limit int) (json.RawMessage, error)
	// Headers are the names of the HTTP headers that hooks may see.
	Headers []string
	// Around wraps the handler of an upstream's tool that a composite or custom tool calls; may be nil.
	Around func(t *tool.Tool, handler tool.Handler) tool.Handler
	// Keep returns a middleware that keeps large results (package output); may be nil.
	Keep func(OutputCache) tool.Middleware
	// MaskSecrets returns a middleware that hides secrets in the answers of a server ("" for the view's own tools). It
	// may be nil or return nil.
	MaskSecrets func(server string) tool.Middleware

	own []string // names of the view's composite and custom tools, both "name" and "view.name"
}

// PreCall is a hook before a call. It returns new arguments (nil for no change) or an error. The error *AbortError
// refuses the call.
type PreCall func(ctx context.Context, info *script.Info, arguments json.RawMessage) (json.RawMessage, error)

// PostCall is a hook after a call. It returns a new result (nil for no change) or an error.
type PostCall func(ctx context.Context, info *script.Info, arguments json.RawMessage, result tool.Result) (tool.Result, error)

// AbortError refuses a call. Hooks return it; the model reads the text.
type AbortError struct{ Reason string }

func (e *AbortError) Error() string { return e.Reason }
