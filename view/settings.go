// Package view owns the making of views: definitions go in, and tools come out, selected, renamed, with
// new descriptions, bound arguments and hooks, beside composite and custom tools. It dials no upstream,
// searches nothing and lists nothing to clients.
package view

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/trust/leaks"
)

// Settings is one view as its owner wrote it.
type Settings struct {
	Name        string // unique; names its endpoint and its meta-tools
	Description string // optional; shown to clients
	At          Place

	Allow       Allow       // default AllowAll
	Exposure    Exposure    // default ExposureAuto
	DirectBelow int         // ExposureAuto lists all definitions below this many tokens; 0: never
	SearchStyle SearchStyle // default SearchSummary
	Trim        int         // bytes of a description in lists and answers; 0: the server's setting, TrimOff: all

	Tools      []UpstreamTools // in file order
	IncludeAll bool            // everything of every server; Tools then only change some of it
	Exclude    []Pattern       // over "server.tool", among the tools of IncludeAll and globs

	Hooks      Hooks
	Composites []Composite
	Customs    []Custom
	RunScript  *ScriptLimits // nil: run_script is not offered

	Secrets leaks.Mode // in answers; "": the setting of the server or the top level

	Gating    *Gating // nil: found tools may be called
	ProxyTool string  // name of the proxy tool; "" for none
}

// Gating says that tools must be provisioned before a call, and how many a client may have at a time. A
// zero bound is none.
type Gating struct {
	MaxTokens int           // of the definitions; default DefaultMaxTokens
	MaxTools  int           // default DefaultMaxTools
	TTL       time.Duration // of a provisioned tool, unless the client gives a time; 0: no end
}

// Defaults of Gating, and of the proxy tool's name.
const (
	DefaultMaxTokens = 8000
	DefaultMaxTools  = 40
	DefaultProxyTool = "proxy"
)

// Exposure is how the tools of a view reach a client.
type Exposure string

// The exposures.
const (
	ExposureAuto            Exposure = "auto"              // direct below DirectBelow, else retrieve
	ExposureDirect          Exposure = "direct"            // all are listed
	ExposureRetrieve        Exposure = "retrieve"          // retrieve_tools, registration and call_tool
	ExposureSearch          Exposure = "search"            // {view}_search_tools, {view}_describe_tool, {view}_call_tool
	ExposureSearchPerServer Exposure = "search_per_server" // the same three for each server
)

// Exposures are all exposures, the default first.
var Exposures = []Exposure{ExposureAuto, ExposureDirect, ExposureRetrieve, ExposureSearch, ExposureSearchPerServer}

// SearchStyle is the form of a search tool's answer.
type SearchStyle string

// The search styles.
const (
	SearchSummary SearchStyle = "summary" // an object: names, first sentences and signatures, how sure it is, what is missing
	SearchPlain   SearchStyle = "plain"   // a list of name, description and parameters
)

// Default is the name of the root view.
const Default = "default"

// Place is a position in a configuration. The zero Place is nowhere.
type Place struct{ Line, Column int } // from 1

// Allow is what clients may do with a view's tools, beside policies.
type Allow string

// AllowAll removes nothing. AllowReadOnly leaves tools whose annotations say that they only read; tools
// without annotations count as writing.
const (
	AllowAll      Allow = "all"
	AllowReadOnly Allow = "read_only"
)

// Problem is a mistake in a view that only the upstreams' definitions reveal.
type Problem struct {
	View    string // "" for settings under a server
	At      Place
	Message string
	Hint    string // what to do; "" if the message says it
	// Warning says that the problem may go away once a server is listed.
	Warning bool
}

// Error returns one line.
func (p Problem) Error() string {
	text := p.Message
	if p.View != "" {
		text = fmt.Sprintf("view %q: %s", p.View, text)
	}
	if p.Hint != "" {
		text += " (" + p.Hint + ")"
	}
	return text
}

// UpstreamTools says which tools of one upstream a view has, and their changes.
type UpstreamTools struct {
	Name   string
	At     Place
	Tools  []Override   // in file order; an exact name wins, then the last matching glob
	Output *OutputCache // of all its tools; nil for none, or for the server's setting
	Trim   int          // under a server; 0 is TrimOff

	Secrets leaks.Mode // under a server; "": the setting of the top level
}

// TrimOff leaves descriptions whole.
const TrimOff = -1

// OutputCache says which results are kept to be read in parts.
type OutputCache struct {
	MinSize int           // bytes of the smallest kept result; 0: none
	Preview int           // bytes that the model gets at once; default DefaultPreview
	TTL     time.Duration // how long the result can be read; default DefaultOutputTTL
}

// Defaults of OutputCache.
const (
	DefaultMinSize   = 20_000
	DefaultPreview   = 2_000
	DefaultOutputTTL = time.Hour
)

// Override selects a tool, by name or glob, and changes its definition for clients. nil leaves a field
// unchanged.
type Override struct {
	Tool        string // the upstream's name, or a glob of path.Match where * crosses /
	At          Place
	Name        string  // the exact exposed name; not for globs; "" for none
	Title       *string // {original} stands for the upstream's
	Description *string // {original} stands for the upstream's
	Disabled    bool
	Parameters  []Parameter
	Output      *OutputCache // nil for the server's setting

	hooked bool // a hook before the call may send hidden parameters
}

// Pattern is a glob and its place.
type Pattern struct {
	Glob string
	At   Place
}

// Parameter changes one top-level property of a tool's input schema. Values are JSON.
type Parameter struct {
	Name        string // the tool's own
	At          Place
	Rename      string  // for clients; "" for no change
	Description *string // {original} stands for the tool's own
	Default     []byte  // sent if the client sends none, and shown in the schema; makes it optional
	Hidden      bool    // not in the schema; Default is sent, if any, or a value from a hook before the call
	Value       []byte  // always sent; hides it
}

// Hooks of a view see every call of its tools.
type Hooks struct {
	PreCall, PostCall *Hook // nil for none
	// Pre and Post are functions of an embedding program. Pre run before PreCall, Post after PostCall.
	Pre  []PreCall
	Post []PostCall
}

// Hook is a function in a Starlark module, a command, or a function in Python.
type Hook struct {
	At       Place
	Module   string        // absolute path of a Starlark module; "" for other hooks
	Function string        // of Module
	Python   string        // dotted path of a function; "" for other hooks
	Command  []string      // program and arguments
	Dir      string        // working directory of Command
	Timeout  time.Duration // default DefaultHookTimeout
	Continue bool          // a failing hook is logged and the call goes on; default: the call fails
}

// DefaultHookTimeout bounds one run of a hook.
const DefaultHookTimeout = 5 * time.Second

func (h *Hook) timeout() time.Duration {
	return cmp.Or(h.Timeout, leeway.Of(DefaultHookTimeout))
}

// Composite is a tool that calls several at once.
type Composite struct {
	Name        string
	At          Place
	Title       string
	Description string
	Inputs      []Input
	Steps       []Step
	LeftOut     int           // number of removed steps, whose server is disabled
	FailFast    bool          // on_error: fail. One failed step fails the whole; default: it is reported under its key
	Concurrency int           // steps at a time; default DefaultConcurrency
	Timeout     time.Duration // of each step without its own; default DefaultStepTimeout
}

// Defaults of Composite.
const (
	DefaultConcurrency = 8
	DefaultStepTimeout = 60 * time.Second
)

// Input is a parameter of a composite or custom tool.
type Input struct {
	Name     string
	Required bool
	// Schema is a JSON Schema: type, description, default, enum, items, ...; never empty, {} accepts
	// any value.
	Schema []byte
}

// Step is one call of a composite.
type Step struct {
	Key  string
	At   Place
	Tool string // "server.tool", "server:tool" or an exposed name
	// Args is a JSON object. In its texts {inputs.x} stands for an input, {steps.x.path} for a part of
	// another step's result: with its type if it is the whole text, else as text. {{ and }} stand for
	// braces. Without an optional input, a member that is {inputs.x} alone is left out.
	Args    []byte
	Timeout time.Duration // 0: the composite's
}

// Custom is a tool in Starlark (a function, or the value of tool(...)), or in Python under a dotted
// path: a function, or a module with several tools.
type Custom struct {
	At       Place
	Module   string // absolute path; "" for Python
	Function string // name of the module's global
	Python   string // dotted path, in place of Module and Function
	Name     string // "" for Function, or for the name in Python
	Limits   ScriptLimits
}

// CalledAs is the clients' name of the tool, if the settings say it.
func (c Custom) CalledAs() string {
	return cmp.Or(c.Name, c.Function, c.Python[strings.LastIndexByte(c.Python, '.')+1:])
}

// ScriptLimits bound one run of a custom tool or of run_script. A zero field has its default.
type ScriptLimits struct {
	Calls  int           // of other tools; default 50
	Steps  uint64        // of the interpreter; default 10 million
	Time   time.Duration // default 60s
	Output int           // bytes of the result as JSON; default 100 kB
}

// Defaults of ScriptLimits.
const (
	DefaultScriptCalls  = 50
	DefaultScriptSteps  = 10_000_000
	DefaultScriptTime   = 60 * time.Second
	DefaultScriptOutput = 100_000
)

// OrDefaults replaces zero fields by their defaults.
func (l ScriptLimits) OrDefaults() ScriptLimits {
	return ScriptLimits{
		Calls:  cmp.Or(l.Calls, DefaultScriptCalls),
		Steps:  cmp.Or(l.Steps, DefaultScriptSteps),
		Time:   cmp.Or(l.Time, DefaultScriptTime),
		Output: cmp.Or(l.Output, DefaultScriptOutput),
	}
}
