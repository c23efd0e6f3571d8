// Package script runs the owner's and the model's Starlark: sandboxed, without
// I/O, bounded in steps, memory and time. It knows neither MCP nor who calls.
package script

import (
	"context"
	"encoding/json"
	"time"
)

// Info is what a script may know of the call that it runs for: its first
// argument, ctx, has these as attributes, in lower case.
type Info struct {
	View      string
	Tool      string // the upstream's name of the tool
	Name      string // the name clients see
	Upstream  string // "" for composite and custom tools
	Session   string
	Client    string // name and version, as it says
	Principal string // "" for nobody
	Headers   map[string]string
	Meta      json.RawMessage // _meta of the request, nil without
}

// Host is what a script can do beside computing. ctx.call_tool, ctx.parallel and
// ctx.retrieve are errors without one.
type Host interface {
	// CallTool calls a tool and returns the value of its result. It may be called
	// concurrently.
	CallTool(ctx context.Context, name string, arguments json.RawMessage) (json.RawMessage, error)
	// Retrieve searches tools.
	Retrieve(ctx context.Context, query string, limit int) (json.RawMessage, error)
}

// Limits bound one run. Zero fields are at their defaults.
type Limits struct {
	Steps  uint64        // of the interpreter; default 1 million
	Memory int64         // bytes allocated in all; default 64 MB
	Time   time.Duration // default 5s; calls of tools count
	Calls  int           // of tools; default none
	Output int           // bytes of the result as JSON; default 1 MB
}
