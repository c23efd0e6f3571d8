package retrieve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
	"toolfinch/internal/schema"
	"toolfinch/retrieve/gate"
	"toolfinch/tool"
	"toolfinch/tool/args"
)

// Kind is how much a tool may do, by its annotations. A tool without annotations counts
// as destructive, as in the MCP specification.
type Kind int

// The kinds, weakest first.
const (
	KindRead Kind = iota
	KindWrite
	KindDestructive
)

func (k Kind) String() string { return [...]string{"read", "write", "destructive"}[k] }

// KindOf returns the kind of a tool.
func KindOf(a tool.Annotations) Kind {
	switch {
	case a.ReadOnly:
		return KindRead
	case a.Destructive:
		return KindDestructive
	}
	return KindWrite
}

// caller calls what a client names, once its arguments fit and the gate admits it.
type caller struct {
	catalog   *Catalog
	gate      *gate.Gate                                                                          // nil: every tool can be called
	validate  func(server string) bool                                                            // nil: arguments are checked for all servers
	unchecked func(id tool.ID, err error)                                                         // nil: nobody hears
	refused   func(ctx context.Context, call *tool.Call, name string, t *tool.Tool, reason error) // nil: nobody hears
	used      func(call *tool.Call, t *tool.Tool)                                                 // nil: nobody hears
	search    string                                                                              // the meta-tool that finds tools
	absent    func() []Absent                                                                     // servers that cannot be called now
	offers    func(name string) bool                                                              // the meta-tools; nil: none is known
}

// CallTool returns the handler of call_tool for tools up to the given kind, and for
// prompts and resources, which only read. With a server it calls that server's alone,
// with "" those of all.
func (c *caller) CallTool(most Kind, server string) tool.Handler {
	return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		switch calls, err := callsOf(call.Arguments); {
		case err != nil:
			return tool.ErrorResult(err.Error()), nil
		case calls != nil:
			return c.callAll(ctx, call, calls, most, server)
		}
		return c.call(ctx, call, most, server)
	}
}

// call makes the call that the arguments of call_tool name.
func (c *caller) call(ctx context.Context, call *tool.Call, most Kind, server string) (tool.Result, error) {
	name, arguments, err := parseCall("name", call.Arguments)
	if err != nil {
		return tool.ErrorResult(err.Error()), nil
	}
	t, err := c.catalog.Find(name)
	if errors.Is(err, tool.ErrNotFound) {
		return c.callOther(ctx, call, name, arguments, server)
	}
	if server != "" && t.Def.ID.Server != server {
		return c.noSuch(ctx, call, name, server), nil
	}
	if kind := KindOf(t.Def.Annotations); kind > most {
		err := fmt.Errorf("%s is a %s tool: call it with call_tool_%s", t.Name, kind, kind)
		c.refuse(ctx, call, name, t, err)
		return tool.ErrorResult(err.Error()), nil
	}
	result, err := c.checked(t)(ctx, CallOf(call, t, name, arguments))
	var misfit *argumentsError
	if errors.As(err, &misfit) {
		return tool.ErrorResult(misfit.Error()), nil
	}
	return result, err
}

// argumentsError says what is wrong with the arguments of a call, and the schema.
type argumentsError struct {
	tool       *tool.Tool
	violations []string
}

func (e *argumentsError) Error() string {
	return fmt.Sprintf("the arguments do not fit %s:\n- %s\nIts input schema is:\n%s",
		e.tool.Name, printable.Lines(strings.Join(e.violations, "\n- ")), printable.JSON(e.tool.Def.InputSchema))
}

// checked returns the tool's handler behind the gate and the check of arguments. The
// gate comes first: a tool that is not provisioned reveals nothing else.
func (c *caller) checked(t *tool.Tool) tool.Handler {
	return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		if gate := c.gate; gate != nil {
			if err := gate.Admit(ctx, call, t.Def.ID); err != nil {
				c.refuse(ctx, call, call.Name, t, err)
				return nil, err
			}
		}
		if c.validate == nil || c.validate(t.Def.ID.Server) {
			if err := c.fit(ctx, t, call.Arguments); err != nil {
				c.refuse(ctx, call, call.Name, t, err)
				return nil, err
			}
		}
		if c.used != nil {
			c.used(call, t)
		}
		return t.Handler(ctx, call)
	}
}

// fit checks the arguments of a call. The error is an *argumentsError, or that of ctx.
// If the schema cannot be used, the arguments pass and unchecked is told once.
func (c *caller) fit(ctx context.Context, t *tool.Tool, arguments json.RawMessage) error {
	schemas := &c.catalog.schemas
	violations, err := schemas.check(ctx, t.Def, arguments)
	switch {
	case errors.Is(err, schema.ErrSchema):
		if c.unchecked != nil && schemas.first(t.Def) {
			c.unchecked(t.Def.ID, err)
		}
		return nil
	case errors.Is(err, schema.ErrValue):
		violations = []string{err.Error()}
	case err != nil:
		return err
	}
	if len(violations) > 0 {
		return &argumentsError{t, violations}
	}
	return nil
}

// CallOf returns the call of t that a meta-tool makes for its own caller: call with
// another name and other arguments. t may be a prompt, or a resource with the URI name.
func CallOf(call *tool.Call, t *tool.Tool, name string, arguments json.RawMessage) *tool.Call {
	inner := *call
	inner.Kind, inner.Name, inner.Arguments = t.Def.ID.Kind, t.Name, arguments
	switch inner.Kind {
	case tool.KindPrompt:
		inner.Arguments = tool.TextArguments(arguments)
		inner.Params = namedParams(call.Params, "name", name)
	case tool.KindResource, tool.KindTemplate:
		inner.Kind, inner.Arguments = tool.KindResource, nil
		inner.Params = namedParams(call.Params, "uri", name)
	}
	return &inner
}

// callOther gets the prompt, or reads the resource, of that name.
func (c *caller) callOther(ctx context.Context, call *tool.Call, name string, arguments json.RawMessage, server string) (tool.Result, error) {
	t, found := c.catalog.Prompt(name)
	if !found {
		if slices.ContainsFunc(c.catalog.Items(tool.KindTemplate), func(t *tool.Tool) bool { return t.Name == name }) {
			return tool.ErrorResult(fmt.Sprintf("%s is a template: fill in what stands in braces and send the uri that results", rawjson.Clip(name, 128))), nil
		}
		// Servers are asked for unlisted resources only if the name looks like a URI.
		if t, found = c.catalog.resource(name, strings.Contains(name, "://")); !found {
			return c.noSuch(ctx, call, name, server), nil
		}
	}
	if server != "" && t.Def.ID.Server != server {
		return c.noSuch(ctx, call, name, server), nil
	}
	result, err := t.Handler(ctx, CallOf(call, t, name, arguments))
	if err != nil {
		return nil, err
	}
	return asToolResult(t.Def.ID.Kind, result), nil
}

// namedParams returns the params of call_tool as those of another request: with the
// requested name, and without the tool's name and arguments.
func namedParams(params json.RawMessage, key, name string) json.RawMessage {
	if params == nil {
		return nil
	}
	out := rawjson.NewObject(len(params) + len(name))
	out.AddText(key, name)
	for member, value := range rawjson.Members(params) {
		if member == "name" || member == "arguments" || member == key {
			continue
		}
		out.Add(member, value)
	}
	return rawjson.Unique(out.JSON())
}

// asToolResult converts a result of prompts/get or resources/read to one of tools/call:
// messages and contents become content blocks, and structured content holds the whole
// result. An incomplete result stays as it is.
func asToolResult(kind tool.Kind, result tool.Result) tool.Result {
	if state := rawjson.Text(rawjson.Member(result, "resultType")); state != "" && state != "complete" {
		return result
	}
	var blocks []json.RawMessage
	if kind == tool.KindPrompt {
		for message := range rawjson.Elements(rawjson.Member(result, "messages")) {
			if content := rawjson.Member(message, "content"); content != nil {
				blocks = append(blocks, content)
			}
		}
	} else {
		for content := range rawjson.Elements(rawjson.Member(result, "contents")) {
			var block rawjson.Object
			block.AddText("type", "resource")
			block.Add("resource", content)
			blocks = append(blocks, block.JSON())
		}
	}
	var out rawjson.Object
	out.Add("content", rawjson.Array(blocks))
	out.Add("structuredContent", result)
	return tool.Result(out.JSON())
}

// refuse tells of a call that is not made.
func (c *caller) refuse(ctx context.Context, call *tool.Call, name string, t *tool.Tool, reason error) {
	if c.refused != nil {
		c.refused(ctx, call, name, t, reason)
	}
}

// noSuch is the answer to a call of a name that no tool has, or none of that server.
func (c *caller) noSuch(ctx context.Context, call *tool.Call, name, server string) tool.Result {
	c.refuse(ctx, call, name, nil, tool.ErrNotFound)
	return tool.ErrorResult(c.unknown(name, server))
}

// unknown is the error for such a name.
func (c *caller) unknown(name, server string) string {
	text := fmt.Sprintf("unknown tool %q", rawjson.Clip(name, 128))
	if near := c.catalog.Nearest(name, 3); len(near) > 0 && server == "" {
		text += "; nearest: " + strings.Join(near, ", ")
	}
	return text + c.Because(name) + ". Find tools with " + c.searchTool(server) + "."
}

// parseCall reads {"name": ..., "arguments": {...}}, or with another key for the
// name. Its errors are *args.Errors.
func parseCall(key string, raw json.RawMessage) (name string, arguments json.RawMessage, err error) {
	arguments = json.RawMessage(`{}`)
	err = args.Read("this tool", raw, args.Text(key, &name), args.Object("arguments", &arguments),
		args.Hidden(args.Func("calls", func(value json.RawMessage) error {
			if unused(value) {
				return nil
			}
			return args.Refuse("one call has no calls of its own")
		})))
	example := fmt.Sprintf(`send {%q: "server_tool", "arguments": {...}}`, key)
	switch {
	case err != nil:
		return "", nil, args.Refuse(`%v; the tool's own arguments go into "arguments": %s`, err, example)
	case name == "":
		return "", nil, args.Refuse("%s is missing: %s", key, example)
	}
	return name, arguments, nil
}

// schemas holds compiled input schemas by the hash of their definition.
type schemas struct {
	*schema.Cache
	mu   sync.Mutex      // guards said
	said map[string]bool // hashes of definitions for which first has returned true
}

// forget forgets all schemas once there are more than most: some are of definitions
// that are gone.
func (s *schemas) forget(most int) {
	s.Forget(most)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.said) > most {
		clear(s.said)
	}
}

// check returns what is wrong with the arguments. The error is schema.ErrSchema if only
// the upstream can tell, schema.ErrValue if nobody should try.
func (s *schemas) check(ctx context.Context, def *tool.Def, arguments json.RawMessage) ([]string, error) {
	if def.InputSchema == nil {
		return nil, nil
	}
	return s.Check(ctx, def.Hash, def.InputSchema, arguments)
}

// first reports whether this is its first call with def.
func (s *schemas) first(def *tool.Def) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.said[def.Hash] {
		return false
	}
	if s.said == nil {
		s.said = map[string]bool{}
	}
	s.said[def.Hash] = true
	return true
}
