package retrieve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
	"toolfinch/internal/schema"
	"toolfinch/retrieve/gate"
	"toolfinch/tool"
)

// caller calls the tool that a client names, if the arguments fit and the gate admits the call.
type caller struct {
	catalog   *Catalog
	gate      *gate.Gate                                                                          // nil: every tool can be called
	validate  func(server string) bool                                                            // nil: checked for all servers
	unchecked func(id tool.ID, err error)                                                         // nil: nobody hears
	refused   func(ctx context.Context, call *tool.Call, name string, t *tool.Tool, reason error) // nil: nobody hears
	used      func(call *tool.Call, t *tool.Tool)                                                 // nil: nobody hears
	search    string                                                                              // name of the meta-tool that finds tools
	absent    func() []Absent                                                                     // servers that cannot be called now
	meta      func(name string) *tool.Tool                                                        // the meta-tool of a name that clients have; may be nil
}

// Kind says how much a tool may do, by its annotations. Without annotations a tool counts as destructive, as in the
// MCP specification.
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

// argumentsError lists what is wrong with the arguments of a call, and shows the schema.
type argumentsError struct {
	tool       *tool.Tool
	violations []string
}

func (e *argumentsError) Error() string {
	return fmt.Sprintf("the arguments do not fit %s:\n- %s\nIts input schema is:\n%s",
		e.tool.Name, printable.Lines(strings.Join(e.violations, "\n- ")), printable.JSON(e.tool.Def.InputSchema))
}

// checked returns the tool's handler behind the gate and the check of arguments. The gate comes first: an
// unprovisioned tool reveals nothing else.
func (c *caller) checked(t *tool.Tool) tool.Handler {
	return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		if gate := c.gate; gate != nil {
			if err := gate.Admit(ctx, call, t.Def.ID); err != nil {
				c.refuse(ctx, call, call.Name, t, err)
				return nil, err
			}
		}
		if c.validate == nil || c.validate(t.Def.ID.Server) {
			if err := c.checkArguments(ctx, t, call.Arguments); err != nil {
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

// fit returns arguments that fit the tool's schema. The error is an *argumentsError or ctx's.
func (c *caller) fit(ctx context.Context, t *tool.Tool, arguments json.RawMessage) (json.RawMessage, error) {
	if c.validate != nil && !c.validate(t.Def.ID.Server) {
		return arguments, nil
	}
	misfit := c.checkArguments(ctx, t, arguments)
	if !errors.As(misfit, new(*argumentsError)) {
		return arguments, misfit
	}
	if mended, violations, err := c.catalog.schemas.Mend(ctx, t.Def.Hash, t.Def.InputSchema, arguments); err == nil && violations == nil {
		return mended, nil
	}
	return arguments, misfit
}

// checkArguments checks the arguments of a call. The error is an *argumentsError or ctx's. If the schema cannot be
// used, the arguments pass, and unchecked is told once.
func (c *caller) checkArguments(ctx context.Context, t *tool.Tool, arguments json.RawMessage) error {
	schemas := &c.catalog.schemas
	violations, err := schemas.check(ctx, t.Def, arguments)
	switch {
	case errors.Is(err, schema.ErrSchema):
		if c.unchecked != nil && schemas.firstReport(t.Def) {
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

// CallOf returns the call of t that a meta-tool makes for its own caller: call with another name and arguments. t
// may also be a prompt, or a resource whose URI is name.
func CallOf(call *tool.Call, t *tool.Tool, name string, arguments json.RawMessage) *tool.Call {
	inner := *call
	inner.Kind, inner.Name, inner.Arguments = t.Def.ID.Kind, t.Name, arguments
	switch inner.Kind {
	case tool.KindPrompt:
		inner.Arguments = tool.TextArguments(arguments)
		inner.Params = namedParams(call.Params, "name", name)
	case tool.KindResource, tool.KindTemplate, tool.KindSkill:
		inner.Kind, inner.Arguments = tool.KindResource, nil
		inner.Params = namedParams(call.Params, "uri", name)
	}
	return &inner
}

// namedParams turns the params of call_tool into params of another request: with the requested name, without the
// tool's name and arguments.
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

// refuse reports a refused call.
func (c *caller) refuse(ctx context.Context, call *tool.Call, name string, t *tool.Tool, reason error) {
	if c.refused != nil {
		c.refused(ctx, call, name, t, reason)
	}
}

// metaTool returns the meta-tool that a name means; nil for none.
func (c *caller) metaTool(name string) *tool.Tool {
	if c.meta == nil {
		return nil
	}
	return c.meta(bare(name))
}

// hinted ends the answer to a mended call with the right form, once a session.
func (c *caller) hinted(call *tool.Call, result tool.Result, form string) tool.Result {
	content := rawjson.Member(json.RawMessage(result), "content")
	if len(content) == 0 || content[0] != '[' || !result.Complete() || !c.catalog.told.first(call.Session, "form") {
		return result
	}
	blocks := append(slices.Collect(rawjson.Elements(content)), textBlock("Understood; the right form is "+form))
	if with, err := rawjson.Set(result, "content", rawjson.Array(blocks)); err == nil {
		return with
	}
	return result
}
