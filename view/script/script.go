// Package script runs Starlark: the owner's modules in this process, bounded in
// steps and time, and scripts and jq expressions of models each in a process of its
// own, bounded by the operating system as well (Sandbox). It knows neither MCP nor who
// calls.
package script

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"toolfinch/internal/leeway"
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
	Memory int64         // bytes that tools answer in all, and of a model's script what it holds in memory; default 64 MB
	Time   time.Duration // default 5s; calls of tools count. The interpreter looks at it between operations
	Calls  int           // of tools, and searches; default 0, so that none may be called
	Output int           // bytes of the result as JSON; default 1 MB
}

// orDefaults fills in what is zero.
func (l Limits) orDefaults() Limits {
	l.Steps = cmp.Or(l.Steps, 1_000_000)
	l.Memory = cmp.Or(l.Memory, 64<<20)
	l.Time = cmp.Or(l.Time, leeway.Of(5*time.Second))
	l.Output = cmp.Or(l.Output, 1<<20)
	return l
}

// Declared is what a module says of a function with tool(...).
type Declared struct {
	Title        string
	Description  string
	Parameters   []Parameter     // in order; nil when not declared
	Annotations  json.RawMessage // an object; nil when not declared
	OutputSchema json.RawMessage // an object; nil when not declared
	Calls        []string        // "server.tool"; nil when not declared, empty for none
}

// Parameter is a declared parameter of a tool.
type Parameter struct {
	Name     string
	Required bool
	Schema   json.RawMessage // a JSON Schema object without "required"
}

// Param is a parameter of a function, as its signature has it.
type Param struct {
	Name     string
	Optional bool            // it has a default
	Default  json.RawMessage // nil when there is none, or when it is no JSON
}

// ErrLimit is wrapped by the error of a run that reached one of its limits. The
// text says which.
var ErrLimit = errors.New("limit reached")

// AbortError is a run that the script ended with abort(reason).
type AbortError struct{ Reason string }

func (e *AbortError) Error() string { return e.Reason }

// Error is any other end of a script. Its text is for who can fix the script.
type Error struct {
	File    string // base name
	Line    int    // from 1; 0 where no line is to blame
	Message string
	Err     error // what caused it: ErrLimit, a context's error, what the Host returned; or nil
}

// Error returns "file:line: message".
func (e *Error) Error() string {
	switch {
	case e.File == "":
		return e.Message
	case e.Line == 0:
		return e.File + ": " + e.Message
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Message)
}

func (e *Error) Unwrap() error { return e.Err }

func limitError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrLimit, fmt.Sprintf(format, args...))
}
