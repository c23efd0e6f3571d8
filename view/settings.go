// Package view makes views: from upstreams' definitions it makes tools that are selected, renamed, described anew, and
// have bound arguments and hooks, and it adds composite and custom tools. It does not dial upstreams, search, or list
// tools to clients.
package view

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/trust/leaks"
)

// Settings are the settings of one view, as the owner wrote them.
type Settings struct {
	Name        string // unique; part of the names of the endpoint and of meta-tools
	Description string // optional; shown to clients
	At          Place

	Allow       Allow       // default AllowAll
	Exposure    Exposure    // default ExposureAuto
	DirectBelow int         // ExposureAuto lists all definitions if they have fewer tokens; 0: never
	SearchStyle SearchStyle // default SearchSummary
	Schemas     Schemas     // default SchemasByClient
	Trim        int         // most bytes of a description in lists and answers; 0: the server's setting, TrimOff: no limit

	Tools      []UpstreamTools // in file order
	IncludeAll bool            // all items of all servers; Tools then only change some of them
	Exclude    []Pattern       // patterns for "server.tool"; they remove tools that IncludeAll or a glob has selected

	Skills     []SkillPattern // the view's skills; with IncludeAll they only rename
	Hooks      Hooks
	Composites []Composite
	Customs    []Custom
	RunScript  *ScriptLimits // nil: run_script is not offered

	Secrets leaks.Mode // secrets in answers; "": the setting of the server or of the top level

	Gating    *Gating // nil: tools need no provisioning
	ProxyTool string  // name of the proxy tool; "" for none
}

// Gating makes clients provision tools before a call. It bounds the tools that a client has provisioned at one time.
// Zero means no bound.
type Gating struct {
	MaxTokens int           // tokens of the definitions; default DefaultMaxTokens
	MaxTools  int           // number of tools; default DefaultMaxTools
	TTL       time.Duration // how long a tool is provisioned, unless the client says; 0: no end
}

// Defaults of Gating and of the proxy tool's name.
const (
	DefaultMaxTokens = 8000
	DefaultMaxTools  = 40
	DefaultProxyTool = "proxy"
)

// Exposure says how clients get the tools of a view.
type Exposure string

// The exposures.
const (
	ExposureAuto            Exposure = "auto"              // like direct below DirectBelow tokens, else like retrieve
	ExposureDirect          Exposure = "direct"            // all tools are listed
	ExposureRetrieve        Exposure = "retrieve"          // retrieve_tools, registration and call_tool
	ExposureSearch          Exposure = "search"            // {view}_search_tools, {view}_describe_tool, {view}_call_tool
	ExposureSearchPerServer Exposure = "search_per_server" // these three meta-tools for each server
)

// Exposures are all exposures, default first.
var Exposures = []Exposure{ExposureAuto, ExposureDirect, ExposureRetrieve, ExposureSearch, ExposureSearchPerServer}

// Schemas says which input schemas clients are listed.
type Schemas string

// The values of Schemas.
const (
	SchemasByClient Schemas = "by_client" // portable for clients known to pass schemas on unmended
	SchemasAsIs     Schemas = "as_is"
	SchemasPortable Schemas = "portable" // mended for all model providers (tool.Portable)
)

// SearchStyle is the form of a search tool's answer.
type SearchStyle string

// The search styles.
const (
	SearchSummary SearchStyle = "summary" // an object: tools with name, first sentence and signature, the confidence, and absent servers
	SearchPlain   SearchStyle = "plain"   // a list of tools with name, description and parameters
)

// Default is the name of the root view.
const Default = "default"

// Place is a position in a configuration. The zero Place means no position.
type Place struct{ Line, Column int } // counted from 1

// Allow says what clients may do with a view's tools. Policies apply, too.
type Allow string

// AllowAll removes no tools. AllowReadOnly removes tools unless their annotations say that they only read.
const (
	AllowAll      Allow = "all"
	AllowReadOnly Allow = "read_only"
)

// Problem is a mistake in the settings of a view that is visible only with the upstreams' definitions.
type Problem struct {
	View    string // "" for settings under a server
	At      Place
	Message string
	Hint    string // what the owner can do; "" if Message says it
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

// UpstreamTools selects tools of one upstream and changes them.
type UpstreamTools struct {
	Name   string
	At     Place
	Tools  []Override   // in file order; for a tool, an exact name is used first, then the last matching glob
	Output *OutputCache // for all its tools; nil: none, or the server's setting
	Trim   int          // only under a server; 0 means TrimOff

	Secrets leaks.Mode // only under a server; "": the setting of the top level
}

// TrimOff keeps whole descriptions.
const TrimOff = -1

// OutputCache says which results are kept, so that models can read them in parts.
type OutputCache struct {
	MinSize int           // bytes of the smallest kept result; 0: none is kept
	Preview int           // bytes that the model gets at once; default DefaultPreview
	TTL     time.Duration // how long a result is kept; default DefaultOutputTTL
}

// Defaults of OutputCache.
const (
	DefaultMinSize   = 20_000
	DefaultPreview   = 2_000
	DefaultOutputTTL = time.Hour
)

// Override selects a tool by name, or tools by a glob, and changes their definitions for clients. nil means no change.
type Override struct {
	Tool        string // the upstream's name of the tool, or a glob as in path.Match, but * matches / too
	At          Place
	Name        string  // exact name for clients; not for globs
	Title       *string // {original} stands for the upstream's title
	Description *string // {original} stands for the upstream's description
	Disabled    bool
	Parameters  []Parameter
	Output      *OutputCache // nil: the server's setting

	hooked bool // a hook before the call may set hidden parameters
}

// Pattern is a glob with its place.
type Pattern struct {
	Glob string
	At   Place
}

// SkillPattern selects skills by "server.uri". The last one that matches a skill counts.
type SkillPattern struct {
	Pattern
	Under string // the path below which clients see them; "": as elsewhere
}

// Parameter changes one top-level property of a tool's input schema. Values are JSON.
type Parameter struct {
	Name        string // the upstream's name of the property
	At          Place
	Rename      string  // name for clients; "" for no change
	Description *string // {original} stands for the upstream's description
	Default     []byte  // sent if the client sends no value; shown in the schema; makes the parameter optional
	Hidden      bool    // not in the schema; Default or a hook may set the value
	Value       []byte  // always sent; hides the parameter
}

// Hooks of a view see every call of its tools.
type Hooks struct {
	PreCall, PostCall *Hook // nil for none
	// Pre and Post are functions of an embedding program. Pre runs before PreCall, Post after PostCall.
	Pre  []PreCall
	Post []PostCall
}

// Hook is a function in a Starlark module, a command, or a function in Python.
type Hook struct {
	At       Place
	Module   string        // absolute path of a Starlark module; "" for other hooks
	Function string        // function in Module
	Python   string        // dotted path of a function; "" for other hooks
	Command  []string      // program and arguments
	Dir      string        // working directory of Command
	Timeout  time.Duration // default DefaultHookTimeout
	Continue bool          // a failure of the hook is only logged; default: the call fails
}

// DefaultHookTimeout bounds one run of a hook.
const DefaultHookTimeout = 5 * time.Second

func (h *Hook) timeout() time.Duration {
	return cmp.Or(h.Timeout, leeway.Of(DefaultHookTimeout))
}

// Composite is a tool that calls several tools at once.
type Composite struct {
	Name        string
	At          Place
	Title       string
	Description string
	Inputs      []Input
	Steps       []Step
	LeftOut     int           // number of removed steps: their server is disabled
	FailFast    bool          // a failed step fails the whole call; default: its error is reported under its key
	Concurrency int           // most steps at one time; default DefaultConcurrency
	Timeout     time.Duration // for steps without a Timeout; default DefaultStepTimeout
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
	// Schema is a JSON Schema: type, description, default, enum, items, ... It is never empty: {} accepts any value.
	Schema []byte
}

// Step is one call of a composite.
type Step struct {
	Key  string
	At   Place
	Tool string // "server.tool", "server:tool" or a name for clients
	// Args is a JSON object. In its texts, {inputs.x} stands for an input, {steps.x.path} for a part of another step's
	// result, {{ and }} for braces. If a placeholder is the whole text, the value keeps its type. A member that is only
	// {inputs.x} is left out if the call lacks the input.
	Args    []byte
	Timeout time.Duration // 0: the composite's Timeout
}

// Custom is a tool in Starlark (a function, or a value of tool(...)) or in Python (a function, or a module with several
// tools).
type Custom struct {
	At       Place
	Module   string // absolute path; "" for Python
	Function string // name of the global in Module
	Python   string // dotted path; replaces Module and Function
	Name     string // name for clients; "" for Function, or for the name in Python
	Limits   ScriptLimits
}

// CalledAs is the name for clients, or the name of a Python module with several tools.
func (c Custom) CalledAs() string {
	return cmp.Or(c.Name, c.Function, c.Python[strings.LastIndexByte(c.Python, '.')+1:])
}

// ScriptLimits bound one run of a custom tool or of run_script. Zero means the default.
type ScriptLimits struct {
	Calls  int           // calls of other tools; default 50
	Steps  uint64        // steps of the interpreter; default 10 million
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

// OrDefaults replaces zero fields with their defaults.
func (l ScriptLimits) OrDefaults() ScriptLimits {
	return ScriptLimits{
		Calls:  cmp.Or(l.Calls, DefaultScriptCalls),
		Steps:  cmp.Or(l.Steps, DefaultScriptSteps),
		Time:   cmp.Or(l.Time, DefaultScriptTime),
		Output: cmp.Or(l.Output, DefaultScriptOutput),
	}
}
