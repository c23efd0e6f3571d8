// Package script runs Starlark. The owner's modules run in this process, bounded in steps and time.
// Models' scripts and jq expressions run each in a process of its own, which the operating system
// bounds as well (Sandbox). It knows neither MCP nor callers.
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

// Info describes the call to a script: the attributes of its first argument, ctx, are these in lower
// case.
type Info struct {
	View      string
	Tool      string // the upstream's name of the tool
	Name      string // the name clients see
	Upstream  string // "" for composite and custom tools
	Session   string
	Client    string // name and version, as the client says
	Principal string // "" for nobody
	Headers   map[string]string
	Meta      json.RawMessage // _meta of the request, nil without one
}

// Host gives tools to a script. Without one ctx.call_tool, ctx.parallel and ctx.retrieve fail.
type Host interface {
	// CallTool calls a tool and returns the value of its result. It may be called
	// concurrently.
	CallTool(ctx context.Context, name string, arguments json.RawMessage) (json.RawMessage, error)
	// Retrieve searches tools.
	Retrieve(ctx context.Context, query string, limit int) (json.RawMessage, error)
}

// Limits bound one run. A zero field has its default.
type Limits struct {
	Steps  uint64        // of the interpreter; default 1 million
	Memory int64         // bytes of all tools' answers, and of the memory of a model's script; default 64 MB
	Time   time.Duration // default 5s, including calls of tools. The interpreter checks it between operations
	Calls  int           // of tools, and searches; default 0: none is allowed
	Output int           // bytes of the result as JSON; default 1 MB
}

// orDefaults replaces zero fields by their defaults.
func (l Limits) orDefaults() Limits {
	l.Steps = cmp.Or(l.Steps, 1_000_000)
	l.Memory = cmp.Or(l.Memory, 64<<20)
	l.Time = cmp.Or(l.Time, leeway.Of(5*time.Second))
	l.Output = cmp.Or(l.Output, 1<<20)
	return l
}

// Declared is a module's description of a function, from tool(...).
type Declared struct {
	Title        string
	Description  string
	Parameters   []Parameter     // in order; nil if not declared
	Annotations  json.RawMessage // an object; nil if not declared
	OutputSchema json.RawMessage // an object; nil if not declared
	Calls        []string        // "server.tool"; nil if not declared, empty for none
}

// Parameter is a declared parameter of a tool.
type Parameter struct {
	Name     string
	Required bool
	Schema   json.RawMessage // a JSON Schema object without "required"
}

// Param is a parameter in a function's signature.
type Param struct {
	Name     string
	Optional bool            // it has a default
	Default  json.RawMessage // nil without a default, or if it is no JSON
}

// ErrLimit is wrapped by the error of a run that reached a limit. The text names the limit.
var ErrLimit = errors.New("limit reached")

// AbortError is the end of a run by abort(reason).
type AbortError struct{ Reason string }

func (e *AbortError) Error() string { return e.Reason }

// Error is any other failure of a script. Its text is for the author of the script.
type Error struct {
	File    string // base name
	Line    int    // from 1; 0 without a line
	Message string
	Err     error // the cause: ErrLimit, a context's or the Host's error; or nil
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
