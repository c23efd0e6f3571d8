// Package tool owns the central noun of this program: a tool is a definition plus a handler. Upstream tools,
// meta-tools, composites and scripts are all Tools; a Middleware in a Layer wraps a call. It knows no transport and
// no store.
package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"toolfinch/internal/rawjson"
)

// ErrNotFound is returned if no tool has the requested name or ID.
var ErrNotFound = errors.New("no such tool")

// Tool is a definition and the handler of its calls. Name is the name that clients see; it matches
// ^[a-zA-Z0-9_-]{1,64}$ and is unique in its catalog. The handler of a prompt gets the prompt. The Name of a
// resource is the URI that clients see, and its handler reads it.
type Tool struct {
	Name    string
	Def     *Def
	Handler Handler
	View    string // the view whose policies apply

	layers    []layered // innermost first; Handler is the result
	innermost Handler   // nil without layers
}

// Of returns a tool without a name for each definition.
func Of(defs []*Def, handler func(*Def) Handler) []*Tool {
	tools := make([]*Tool, len(defs))
	for i, def := range defs {
		tools[i] = &Tool{Def: def, Handler: handler(def)}
	}
	return tools
}

// layered is a middleware in its layer, and the handler of it and all layers inside it.
type layered struct {
	layer   Layer
	around  Middleware
	handler Handler
}

// With returns the tool with a middleware added in a layer; the tool itself if around is nil. Of two middlewares in
// one layer, the later one is outside.
func (t *Tool) With(layer Layer, around Middleware) *Tool {
	if around == nil {
		return t
	}
	next := *t
	if len(t.layers) == 0 {
		next.innermost = t.Handler
	}
	at := len(t.layers) // innermost first
	for at > 0 && t.layers[at-1].layer < layer {
		at--
	}
	next.layers = slices.Insert(slices.Clip(t.layers), at, layered{layer: layer, around: around})
	if at == len(t.layers) {
		next.Handler = around(t.Handler)
		next.layers[at].handler = next.Handler
		return &next
	}
	next.layers = slices.Clone(next.layers)
	next.Handler = next.innermost
	if at > 0 {
		next.Handler = next.layers[at-1].handler
	}
	for i := at; i < len(next.layers); i++ {
		next.Handler = next.layers[i].around(next.Handler)
		next.layers[i].handler = next.Handler
	}
	return &next
}

// Layers returns the layers around the tool's handler, outermost first.
func (t *Tool) Layers() []Layer {
	out := make([]Layer, 0, len(t.layers))
	for _, one := range slices.Backward(t.layers) {
		out = append(out, one.layer)
	}
	return out
}

// Same reports whether two lists are the same non-empty slice.
func Same(a, b []*Tool) bool { return len(a) > 0 && len(a) == len(b) && &a[0] == &b[0] }

// Handler answers a call. If the tool itself reports a failure, it returns a Result with isError; an error means
// that the tool gave no answer. An *RPCError reaches the caller unchanged: code, message and data.
type Handler func(ctx context.Context, call *Call) (Result, error)

// Middleware wraps a handler: limits, audit, hooks.
type Middleware func(Handler) Handler

// Call is one tools/call (prompts/get, resources/read) on its way to a handler.
type Call struct {
	Kind      Kind            // of the called tool
	Name      string          // the called exposed name; the URI of a resource
	Arguments json.RawMessage // the arguments object as sent; nil when absent
	// Params is the whole params object as sent, with _meta and unknown fields; nil if no client's tools/call made
	// the call.
	Params json.RawMessage
	// Request is the ID of the client's request as sent; nil if there is none.
	Request json.RawMessage
	// Session is the ID of the client's session; "" if there is none (a shell command, a 2026-07-28 client).
	Session string
	// Notify sends the caller a notification about this call before the answer; nil if the caller takes none. It is
	// safe for concurrent use, and does nothing after the answer.
	Notify func(method string, params json.RawMessage)
	// Client is the client that made the call; nil if there is none to ask.
	Client *Client
	// Principal is the authenticated principal; "" if there is none.
	Principal string
	// Header returns the first value of a header of the HTTP request; "" if it is absent. Header is nil on other
	// transports.
	Header func(name string) string
	// Depth counts the tools that led to this call: 0 for a client's own call, 1 for a step of a composite tool or
	// a call of a script, and so on.
	Depth int
	// Local says that a command of the owner made the call, not a client: it need not provision tools.
	Local bool
}

// MaxDepth bounds Depth: tools may call each other.
const MaxDepth = 8

// ErrTooDeep is returned by Inner at MaxDepth.
var ErrTooDeep = fmt.Errorf("tools call each other more than %d deep", MaxDepth)

// Listed returns the definition as clients see it: the upstream's own bytes under the exposed name or URI.
func (t *Tool) Listed() json.RawMessage { return t.ListedTo(true) }

// ListedTo is Listed for a client of 2026-07-28, or of the legacy era.
func (t *Tool) ListedTo(modern bool) json.RawMessage {
	raw := t.Def.Raw
	if !modern && t.Def.Legacy != nil {
		raw = t.Def.Legacy
	}
	switch {
	case t.Name == t.Def.ID.Name:
		return raw
	case t.Def.ID.Kind == KindSkill:
		raw = skillUnder(raw, strings.TrimSuffix(t.Def.ID.Name, SkillFile), strings.TrimSuffix(t.Name, SkillFile))
	}
	out, err := rawjson.Set(raw, t.Def.ID.Kind.Key(), rawjson.Quote(t.Name))
	if err != nil { // ParseDef accepts objects only
		return raw
	}
	return out
}

// Anonymous is the Owner of all calls without a principal and a session.
const Anonymous = "anonymous"

const sessionOwner = "session "

// Relists says whether a client asks for its list again while its answer is held for that.
type Relists int

// The values of Relists. Stores have the numbers.
const (
	RelistsNever Relists = iota // or it failed to do so twice
	RelistsAlways
	RelistsMostly // it failed to do so once
)

// Caller is a client program, and its principal if known.
type Caller struct{ Principal, Client string } // Client is "name version"

// Called is a tool that a client called in its last sessions.
type Called struct {
	Name     string `json:"name"`
	Sessions uint8  `json:"sessions"` // bit n: called in the n-th session before the last
}

// Owner returns whose call it is, and who may see its answer again: the principal, else the session, else
// Anonymous.
func (c *Call) Owner() string {
	switch {
	case c.Principal != "":
		return PrincipalOwner(c.Principal)
	case c.Session != "":
		return SessionOwner(c.Session)
	}
	return Anonymous
}

// PrincipalOwner returns the owner of a principal's calls.
func PrincipalOwner(principal string) string { return "principal " + principal }

// SessionOwner returns the owner of a session's calls without a principal.
func SessionOwner(session string) string { return sessionOwner + session }

// SessionOf returns the session of an owner; is is false for another owner.
func SessionOf(owner string) (session string, is bool) {
	if session, is = strings.CutPrefix(owner, sessionOwner); !is {
		return "", false
	}
	return session, true
}

// Inner returns a call that c makes of another tool: for the same client, with the _meta of c and no other
// parameters. A 2026-07-28 client cannot answer questions of the inner call by calling again, so it is asked while
// the call runs, as in the legacy era.
func (c *Call) Inner(name string, arguments json.RawMessage) (*Call, error) {
	if c.Depth >= MaxDepth {
		return nil, ErrTooDeep
	}
	inner := *c
	inner.Kind, inner.Name, inner.Arguments, inner.Depth = KindTool, name, arguments, c.Depth+1
	inner.Params = nil
	if meta := rawjson.Member(c.Params, "_meta"); meta != nil {
		inner.Params = append(append(json.RawMessage(`{"_meta":`), meta...), '}')
	}
	if c.Client != nil && c.Client.Modern {
		legacy := *c.Client
		legacy.Modern = false
		inner.Client = &legacy
	}
	return &inner, nil
}

// Client is the maker of a call: the facts that an upstream may know, and a way to ask while the call runs.
type Client struct {
	// Name is the client's own name and version, or ""; Program and Version are its parts.
	Name, Program, Version string
	// Key is equal for all calls of one session and for no others. A 2026-07-28 client has no session: each call
	// has its own key.
	Key string
	// Modern is true in the 2026-07-28 era: the client accepts an input_required result and answers by calling
	// again.
	Modern bool
	// Capabilities is the object that the client declared; nil if none.
	Capabilities json.RawMessage
	// LogLevel is the least severe level of log messages that the client wants. In the 2026-07-28 era "" means no
	// messages, in the legacy era no choice.
	LogLevel string
	// Ask sends a request of the upstream (elicitation/create, sampling/createMessage, roots/list) to the client
	// and returns its result. It may wait for a human until ctx ends. An *RPCError is the client's answer, or says
	// that it lacks the capability: CodeMethodNotFound, or CodeMissingCapability, which is then the answer to the
	// whole call.
	Ask func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error)
}

// Capabilities that upstreams' requests need.
const (
	CapabilityElicitation = "elicitation"
	CapabilitySampling    = "sampling"
	CapabilityRoots       = "roots"
)

// Asks maps each request that an upstream may make of a client to the capability that it needs.
var Asks = map[string]string{
	"elicitation/create":     CapabilityElicitation,
	"sampling/createMessage": CapabilitySampling,
	"roots/list":             CapabilityRoots,
}

// LogLevels are the levels of log messages (RFC 5424), the least severe first.
var LogLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// ExtensionApps is MCP Apps, as capabilities name it.
const ExtensionApps = "io.modelcontextprotocol/ui"

// ExtensionTasks is the tasks extension of 2026-07-28, as capabilities name it.
const ExtensionTasks = "io.modelcontextprotocol/tasks"

// ExtensionGroups is the draft of groups (progressive disclosure), as capabilities name it.
const ExtensionGroups = "io.modelcontextprotocol/groups"

// Can reports whether the client declared a capability.
func (c *Client) Can(capability string) bool {
	return c != nil && rawjson.Member(c.Capabilities, capability) != nil
}

// WithoutTasks returns the client without the tasks extension: its calls are answered with the result itself.
func (c *Client) WithoutTasks() *Client {
	if c == nil || rawjson.Member(rawjson.Member(c.Capabilities, "extensions"), ExtensionTasks) == nil {
		return c
	}
	rest := rawjson.Without(rawjson.Member(c.Capabilities, "extensions"), ExtensionTasks)
	with := *c
	with.Capabilities, _ = rawjson.Set(c.Capabilities, "extensions", rest)
	return &with
}

// Answers reports whether the client can answer any question.
func (c *Client) Answers() bool {
	return c.Can(CapabilityElicitation) || c.Can(CapabilitySampling) || c.Can(CapabilityRoots)
}

// Result is the result object of tools/call: {"content": [...], ...}; of
// prompts/get: {"messages": [...], ...}; of resources/read: {"contents": [...], ...}.
type Result json.RawMessage

// Failed reports whether the tool reports a failure.
func (r Result) Failed() bool { return string(rawjson.Member(json.RawMessage(r), "isError")) == "true" }

// Complete reports whether r answers the call. It is incomplete if it asks the client for input (2026-07-28), or
// names a task and has no content.
func (r Result) Complete() bool {
	switch rawjson.Text(rawjson.Member(json.RawMessage(r), "resultType")) {
	case "input_required", "task":
		return some(rawjson.Member(json.RawMessage(r), "content")) || rawjson.Member(json.RawMessage(r), "structuredContent") != nil
	}
	return true
}

// some reports whether an array has elements. mcp-go sends an empty array with requests for input.
func some(array json.RawMessage) bool {
	for range rawjson.Elements(array) {
		return true
	}
	return false
}

// Value returns a tool's result for programs: its structured content, else its text as a JSON string if all content
// is text (blocks joined by line breaks), else the array of content blocks.
func (r Result) Value() json.RawMessage {
	if structured := rawjson.Member(json.RawMessage(r), "structuredContent"); structured != nil && string(structured) != "null" {
		return structured
	}
	content := rawjson.Member(json.RawMessage(r), "content")
	var texts []string
	for block := range rawjson.Elements(content) {
		if rawjson.Text(rawjson.Member(block, "type")) != "text" {
			return content
		}
		texts = append(texts, rawjson.Text(rawjson.Member(block, "text")))
	}
	return rawjson.Quote(strings.Join(texts, "\n"))
}

// TextArguments returns the arguments of a prompt as texts: models send the number 5 for "5", and null for nothing.
func TextArguments(arguments json.RawMessage) json.RawMessage {
	var out rawjson.Object
	for name, value := range rawjson.Members(arguments) {
		switch {
		case string(value) == "null":
		case value[0] == '"':
			out.Add(name, value)
		default:
			out.AddText(name, string(value))
		}
	}
	return out.JSON()
}

// RPCError is a JSON-RPC error object. Raw, if set, is the object as an upstream sent it, with unknown members.
type RPCError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
	Raw     json.RawMessage `json:"-"`
}

// JSON-RPC 2.0 and MCP error codes in use here.
const (
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
	// CodeResourceNotFound is of the legacy era; later it is CodeInvalidParams.
	CodeResourceNotFound = -32002
	// CodeMissingCapability is of the 2026-07-28 era.
	CodeMissingCapability = -32021
	// CodeURLElicitation is of revision 2025-11-25: the client must open a URL and call again.
	CodeURLElicitation = -32042
)

func (e *RPCError) Error() string { return fmt.Sprintf("%s (code %d)", e.Message, e.Code) }

// JSON returns the error object to send.
func (e *RPCError) JSON() json.RawMessage {
	if e.Raw != nil {
		return e.Raw
	}
	out, err := json.Marshal(e)
	if err != nil { // Data is not JSON: leave it out
		out, _ = json.Marshal(&RPCError{Code: e.Code, Message: e.Message})
	}
	return out
}

// TextResult returns a result with one text block.
func TextResult(text string) Result { return textResult(text, false) }

// ErrorResult returns a tool error that the model reads: one text block, isError.
func ErrorResult(text string) Result { return textResult(text, true) }

func textResult(text string, isError bool) Result {
	out := append(Result(`{"content":[{"type":"text","text":`), rawjson.Quote(text)...)
	if isError {
		return append(out, `}],"isError":true}`...)
	}
	return append(out, `}]}`...)
}
