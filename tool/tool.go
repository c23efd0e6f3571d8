// Package tool owns the noun of this program: a tool is a definition plus a
// handler. Upstream tools, meta-tools and whatever comes later are all Tools;
// what wraps a call is a Middleware in the place of its Layer. It knows no transport and no store.
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

// ErrNotFound is returned when no tool has the name or ID asked for.
var ErrNotFound = errors.New("no such tool")

// Tool is a definition and what to do when it is called. Name is what clients
// see; it matches ^[a-zA-Z0-9_-]{1,64}$ and is unique in its catalog. A prompt
// is a Tool whose handler gets it; a resource is one whose Name is the URI that
// clients see, and whose handler reads it.
type Tool struct {
	Name    string
	Def     *Def
	Handler Handler
	View    string // whose tool it is, where policies hold

	layers    []layered // around innermost, which is the first of them; Handler is the last
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

// layered is a middleware in its place, and the handler that it and all layers below it make.
type layered struct {
	layer   Layer
	around  Middleware
	handler Handler
}

// With returns the tool with a middleware in the place of a layer; the tool itself if around is nil. Of two
// in one place the later one is outside.
func (t *Tool) With(layer Layer, around Middleware) *Tool {
	if around == nil {
		return t
	}
	next := *t
	if len(t.layers) == 0 {
		next.innermost = t.Handler
	}
	at := len(t.layers) // they stand innermost first
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

// Layers are the layers around the tool's handler, outermost first.
func (t *Tool) Layers() []Layer {
	out := make([]Layer, 0, len(t.layers))
	for _, one := range slices.Backward(t.layers) {
		out = append(out, one.layer)
	}
	return out
}

// Same reports whether two lists are one and the same slice, and have something.
func Same(a, b []*Tool) bool { return len(a) > 0 && len(a) == len(b) && &a[0] == &b[0] }

// Handler answers a call. A tool that fails by its own word returns a Result
// (with isError inside); an error means that no answer of the tool exists.
// An *RPCError is passed to the caller as it is, code, message and data.
type Handler func(ctx context.Context, call *Call) (Result, error)

// Middleware wraps a handler: limits, audit, hooks.
type Middleware func(Handler) Handler

// Call is one tools/call (prompts/get, resources/read) on its way to a handler.
type Call struct {
	Kind      Kind            // of what is called
	Name      string          // the exposed name that was called; the URI of a resource
	Arguments json.RawMessage // the arguments object as sent; nil when absent
	// Params is the whole params object of the request as sent, with _meta and
	// unknown fields. Nil when the call does not come from a client's tools/call.
	Params json.RawMessage
	// Request is the ID of the client's request as sent, nil where there is none.
	Request json.RawMessage
	// Session is the ID of the client session that caused the call, "" when
	// there is none (a shell command, a 2026-07-28 client).
	Session string
	// Notify sends a notification about this call to the client that made it,
	// before the answer. Nil when the caller takes none. It is safe for
	// concurrent use and does nothing once the call was answered.
	Notify func(method string, params json.RawMessage)
	// Client is who made the call. Nil when it is nobody that could be asked.
	Client *Client
	// Principal is who the client was authenticated as, "" for nobody.
	Principal string
	// Header returns the first value of a header of the HTTP request that made
	// the call, "" without one. Nil on other transports.
	Header func(name string) string
	// Depth counts the tools that this call was made by: 0 for a client's own,
	// 1 for a step of a composite tool or a call of a script, and so on.
	Depth int
	// Local says that a command of the owner made the call, no client: what clients
	// must provision first it need not.
	Local bool
}

// MaxDepth bounds Depth: tools that call tools may call each other.
const MaxDepth = 8

// ErrTooDeep is returned by Inner for a call from MaxDepth.
var ErrTooDeep = fmt.Errorf("tools call each other more than %d deep", MaxDepth)

// Listed is the definition as clients see it: the upstream's own bytes under the
// exposed name or URI.
func (t *Tool) Listed() json.RawMessage { return t.ListedTo(true) }

// ListedTo is Listed for a client of 2026-07-28, or else for one of the legacy era.
func (t *Tool) ListedTo(modern bool) json.RawMessage {
	raw := t.Def.Raw
	if !modern && t.Def.Legacy != nil {
		raw = t.Def.Legacy
	}
	if t.Name == t.Def.ID.Name {
		return raw
	}
	out, err := rawjson.Set(raw, t.Def.ID.Kind.Key(), rawjson.Quote(t.Name))
	if err != nil { // ParseDef lets only objects in
		return raw
	}
	return out
}

// Anonymous is the Owner of all calls without a principal and a session.
const Anonymous = "anonymous"

const sessionOwner = "session "

// Relists is whether a client asks for its list again while it is waited for.
type Relists int

// What is known of it. The numbers are in stores.
const (
	RelistsNever Relists = iota // or it failed to twice
	RelistsAlways
	RelistsMostly // it failed to once
)

// Caller is a client program, and who uses it where that is known.
type Caller struct{ Principal, Client string } // Client is "name version"

// Called is a tool that a client called in its last sessions.
type Called struct {
	Name     string `json:"name"`
	Sessions uint8  `json:"sessions"` // bit n: in the n-th session before the last
}

// Owner is who the call acts for, and who may see its answer again: the principal,
// else the session, else Anonymous.
func (c *Call) Owner() string {
	switch {
	case c.Principal != "":
		return PrincipalOwner(c.Principal)
	case c.Session != "":
		return SessionOwner(c.Session)
	}
	return Anonymous
}

// PrincipalOwner is the Owner of the calls of a principal.
func PrincipalOwner(principal string) string { return "principal " + principal }

// SessionOwner is the Owner of the calls of a session without a principal.
func SessionOwner(session string) string { return sessionOwner + session }

// SessionOf returns the session that an owner is; is reports whether it is one.
func SessionOf(owner string) (session string, is bool) {
	if session, is = strings.CutPrefix(owner, sessionOwner); !is {
		return "", false
	}
	return session, true
}

// Inner is a call that c makes of another tool: for the same client, with its
// _meta, and no other parameters of c. A 2026-07-28 client cannot answer it by
// calling again, so it is to be asked while the call runs, as in the legacy era.
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

// Client is who made a call: what an upstream may know of it, and may ask it
// while the call runs.
type Client struct {
	// Name is the client's name and version, as it says, "" when it did not; Program
	// and Version are its parts.
	Name, Program, Version string
	// Key is the same for all calls of one session and for no others. A
	// 2026-07-28 client has no session: its key is one of the call.
	Key string
	// Modern says that it is of the 2026-07-28 era: it takes an input_required
	// result and answers by calling again.
	Modern bool
	// Capabilities is the object it declared, nil when it declared none.
	Capabilities json.RawMessage
	// LogLevel is the least severe level of log messages that it wants. "" means
	// none in the 2026-07-28 era, and in the legacy era that it did not say.
	LogLevel string
	// Ask sends a request of the upstream (elicitation/create,
	// sampling/createMessage, roots/list) to the client and returns its result.
	// It may wait for a human; ctx ends that. An *RPCError is the client's answer,
	// or says that it lacks the capability: CodeMethodNotFound, or
	// CodeMissingCapability, which is then the answer to the whole call.
	Ask func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error)
}

// Capabilities of a client that an upstream may make requests of.
const (
	CapabilityElicitation = "elicitation"
	CapabilitySampling    = "sampling"
	CapabilityRoots       = "roots"
)

// Asks are the requests that an upstream may make of a client, each with the
// capability that the client needs for it.
var Asks = map[string]string{
	"elicitation/create":     CapabilityElicitation,
	"sampling/createMessage": CapabilitySampling,
	"roots/list":             CapabilityRoots,
}

// LogLevels are the levels of log messages (RFC 5424), the least severe first.
var LogLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// ExtensionTasks is the tasks extension of 2026-07-28, as capabilities name it.
const ExtensionTasks = "io.modelcontextprotocol/tasks"

// Can reports whether the client declared a capability.
func (c *Client) Can(capability string) bool {
	return c != nil && rawjson.Member(c.Capabilities, capability) != nil
}

// WithoutTasks is the client as if it had not declared the tasks extension: what
// it calls is answered with the result itself.
func (c *Client) WithoutTasks() *Client {
	if c == nil || rawjson.Member(rawjson.Member(c.Capabilities, "extensions"), ExtensionTasks) == nil {
		return c
	}
	rest := rawjson.Without(rawjson.Member(c.Capabilities, "extensions"), ExtensionTasks)
	with := *c
	with.Capabilities, _ = rawjson.Set(c.Capabilities, "extensions", rest)
	return &with
}

// Answers reports whether the client could be asked anything at all.
func (c *Client) Answers() bool {
	return c.Can(CapabilityElicitation) || c.Can(CapabilitySampling) || c.Can(CapabilityRoots)
}

// Result is the result object of tools/call: {"content": [...], ...}; of
// prompts/get: {"messages": [...], ...}; of resources/read: {"contents": [...], ...}.
type Result json.RawMessage

// Failed reports whether the tool says that it failed.
func (r Result) Failed() bool { return string(rawjson.Member(json.RawMessage(r), "isError")) == "true" }

// Complete reports whether r answers the call: it does not when it asks the
// client for input (2026-07-28), or names a task, and has no content.
func (r Result) Complete() bool {
	switch rawjson.Text(rawjson.Member(json.RawMessage(r), "resultType")) {
	case "input_required", "task":
		return some(rawjson.Member(json.RawMessage(r), "content")) || rawjson.Member(json.RawMessage(r), "structuredContent") != nil
	}
	return true
}

// some reports whether an array has elements. mcp-go sends an empty one with what
// asks for input.
func some(array json.RawMessage) bool {
	for range rawjson.Elements(array) {
		return true
	}
	return false
}

// Value is what a program wants of the result of a tool: its structured content,
// else its text as a JSON string when it has nothing but text (the blocks joined
// by line breaks), else the array of content blocks.
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

// TextArguments returns the arguments of a prompt, which are all text: models send
// the number 5 for "5", and null for nothing.
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

// RPCError is a JSON-RPC error object. Raw, when set, is the object as an
// upstream sent it, with members this program does not know.
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
	// CodeResourceNotFound is of the legacy era; since then it is CodeInvalidParams.
	CodeResourceNotFound = -32002
	// CodeMissingCapability is of the 2026-07-28 era.
	CodeMissingCapability = -32021
	// CodeURLElicitation is of revision 2025-11-25: the client is to open a URL
	// and call again.
	CodeURLElicitation = -32042
)

func (e *RPCError) Error() string { return fmt.Sprintf("%s (code %d)", e.Message, e.Code) }

// JSON returns the error object to send.
func (e *RPCError) JSON() json.RawMessage {
	if e.Raw != nil {
		return e.Raw
	}
	out, err := json.Marshal(e)
	if err != nil { // Data is no JSON: leave it out rather than fail
		out, _ = json.Marshal(&RPCError{Code: e.Code, Message: e.Message})
	}
	return out
}

// TextResult is a result with one text block.
func TextResult(text string) Result { return textResult(text, false) }

// ErrorResult is a tool error that the model reads: one text block, isError.
func ErrorResult(text string) Result { return textResult(text, true) }

func textResult(text string, isError bool) Result {
	out := append(Result(`{"content":[{"type":"text","text":`), rawjson.Quote(text)...)
	if isError {
		return append(out, `}],"isError":true}`...)
	}
	return append(out, `}]}`...)
}
