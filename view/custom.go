package view

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/internal/schema"
	"toolfinch/tool"
	"toolfinch/view/python"
	"toolfinch/view/script"
)

// custom is a compiled tool in Starlark or Python.
type custom struct {
	def    *tool.Def
	view   string
	env    Env
	hooks  *hooks
	run    runner
	calls  []string // tools that the custom tool may call; nil for all
	inputs *inputs
	output *schema.Schema // output schema; nil if none is declared
	limits script.Limits
}

type runner func(ctx context.Context, info *script.Info, host script.Host, limits script.Limits, says func(string), arguments json.RawMessage) (json.RawMessage, error)

// customs makes the custom tools of a view, without hooks. It leaves out tools that cannot be loaded, and writes the
// place of each tool into places.
func customs(s Settings, env Env, h *hooks, places map[string]Place) ([]*tool.Tool, []Problem) {
	var tools []*tool.Tool
	var problems []Problem
	for _, settings := range s.Customs {
		made, wrong := newCustom(s, settings, env, h)
		problems = append(problems, wrong...)
		for _, t := range made {
			places[t.Name] = settings.At
			tools = append(tools, t)
		}
	}
	return tools, problems
}

func newCustom(s Settings, settings Custom, env Env, h *hooks) ([]*tool.Tool, []Problem) {
	if settings.Python != "" {
		return pythonTools(s, settings, env, h)
	}
	name := settings.CalledAs()
	fail := func(err error) ([]*tool.Tool, []Problem) {
		return nil, []Problem{{View: s.Name, At: settings.At, Message: fmt.Sprintf("custom tool %s: %v", name, err)}}
	}
	program, err := env.Program(settings.Module)
	if err != nil {
		return fail(err)
	}
	c := &custom{view: s.Name, env: env, hooks: h, limits: limitsOf(settings.Limits)}
	function, err := program.Function(settings.Function)
	if err != nil {
		return fail(err)
	}
	if c.inputs, err = newInputs(inputsOf(function)); err != nil {
		return fail(fmt.Errorf("parameters: %w", err))
	}
	declared := function.Tool
	if declared == nil {
		declared = &script.Declared{}
	}
	c.run, c.calls = function.CallNamed, declared.Calls
	if declared.OutputSchema != nil {
		if c.output, err = schema.Compile(declared.OutputSchema); err != nil {
			return fail(fmt.Errorf("output_schema: %w", err))
		}
	}
	annotations, problems := annotationsOf(s, settings, env, name, declared)
	t, err := ownTool(s.Name, name, declared.Title, cmp.Or(declared.Description, function.Doc), c.inputs.raw, declared.OutputSchema, annotations)
	if err != nil {
		return fail(err)
	}
	t.Handler, c.def = c.call, t.Def
	h.owns(t.Def)
	return []*tool.Tool{t}, problems
}

// annotationsOf returns the annotations that the module declares, made as strict as the annotations of the called tools;
// nil if neither annotations nor calls are declared.
func annotationsOf(s Settings, settings Custom, env Env, name string, declared *script.Declared) (json.RawMessage, []Problem) {
	if declared.Calls == nil {
		return declared.Annotations, nil
	}
	at := slices.Repeat([]Place{settings.At}, len(declared.Calls))
	least, known, problems := checkCalls(s, env, "custom tool "+name, declared.Calls, at)
	out, lax := stricter(declared.Annotations, least)
	if len(lax) > 0 && known {
		problems = append(problems, Problem{
			View: s.Name, At: settings.At,
			Message: fmt.Sprintf("custom tool %s: its annotations promise more than the tools it calls: %s", name, strings.Join(lax, ", ")),
			Hint:    "clients get the annotations of those tools",
		})
	}
	return out, problems
}

// stricter returns the declared annotations, each at least as strict as in least. lax names the annotations that were
// changed for this.
func stricter(declared json.RawMessage, least tool.Annotations) (annotations json.RawMessage, lax []string) {
	out := declared
	if out == nil {
		out = json.RawMessage(`{}`)
	}
	// unsafe is the value of a hint that warns clients.
	hint := func(name string, floor, unsafe bool) {
		said := rawjson.Member(declared, name)
		value := floor
		switch {
		case string(said) == fmt.Sprint(unsafe):
			value = unsafe
		case string(said) == fmt.Sprint(!unsafe) && floor == unsafe:
			lax = append(lax, name)
		}
		out = set(out, name, fmt.Append(nil, value))
	}
	hint("openWorldHint", least.OpenWorld, true)
	hint("idempotentHint", least.Idempotent, false)
	hint("destructiveHint", least.Destructive, true)
	hint("readOnlyHint", least.ReadOnly, false)
	return out, lax
}

// inputsOf returns the parameters that a function declares or, without a declaration, the parameters of its signature.
func inputsOf(f *script.Function) []Input {
	var list []Input
	if f.Tool != nil && len(f.Tool.Parameters) > 0 {
		for _, p := range f.Tool.Parameters {
			list = append(list, Input{Name: p.Name, Required: p.Required, Schema: p.Schema})
		}
		return list
	}
	for _, p := range f.Params {
		list = append(list, Input{Name: p.Name, Required: !p.Optional, Schema: schemaOf(p.Default)})
	}
	return list
}

// schemaOf derives a parameter's schema from its default value.
func schemaOf(value json.RawMessage) []byte {
	kind := ""
	switch {
	case len(value) == 0 || value[0] == 'n': // without a default, or for None, any value is allowed
		return []byte(`{}`)
	case value[0] == '"':
		kind = "string"
	case value[0] == '{':
		kind = "object"
	case value[0] == '[':
		kind = "array"
	case value[0] == 't', value[0] == 'f':
		kind = "boolean"
	case bytes.ContainsAny(value, ".eE"):
		kind = "number"
	default:
		kind = "integer"
	}
	return fmt.Appendf(nil, `{"type":%q,"default":%s}`, kind, value)
}

func limitsOf(l ScriptLimits) script.Limits {
	l = l.OrDefaults()
	return script.Limits{Steps: l.Steps, Time: l.Time, Calls: l.Calls, Output: l.Output}
}

// call is the handler of a custom tool.
func (c *custom) call(ctx context.Context, call *tool.Call) (tool.Result, error) {
	arguments, err := c.inputs.read(ctx, call.Arguments)
	if err != nil {
		return tool.ErrorResult(err.Error()), nil
	}
	name := c.def.ID.Name
	info := newInfo(c.view, c.env, name, "", call)
	host := &host{call: call, progress: tool.NewProgress(call, 0), find: c.find, retrieve: c.env.Retrieve}
	says := func(text string) {
		c.env.Log.InfoContext(ctx, "custom tool says", "view", c.view, "tool", name, "text", text)
	}
	value, err := c.run(ctx, info, host, c.limits, says, arguments)
	if err != nil && ctx.Err() == nil && !errors.As(err, new(*script.AbortError)) {
		c.env.Log.WarnContext(ctx, "custom tool failed", "view", c.view, "tool", name, "error", err)
	}
	if err == nil && c.output != nil {
		value = orNull(value)
		violations, err := c.output.Check(ctx, structuredOf(value))
		if err != nil {
			violations = []string{err.Error()}
		}
		if len(violations) > 0 {
			c.env.Log.WarnContext(ctx, "custom tool broke its output schema", "view", c.view, "tool", name, "violations", violations)
			return tool.ErrorResult("what the tool returned does not fit its output schema:\n- " + strings.Join(violations, "\n- ")), nil
		}
	}
	if failed := new(python.Error); errors.As(err, &failed) {
		err = errors.New(failed.Reason)
	}
	return scriptResult(ctx, name, value, err)
}

// find finds a tool to call. If the custom tool declares calls, it may call only these tools.
func (c *custom) find(name string) (string, tool.Handler, error) {
	id, handler, err := findHooked(c.env, c.hooks, name)
	if c.calls != nil && !slices.ContainsFunc(c.calls, func(one string) bool {
		t, found := c.env.Find(one)
		return one == name || found && t.Def.ID.String() == id
	}) {
		return "", nil, fmt.Errorf("%q is not among the calls that the tool declares", name)
	}
	return id, handler, err
}

// orNull returns a script's value, null for None.
func orNull(value json.RawMessage) json.RawMessage {
	if value == nil {
		return json.RawMessage(`null`)
	}
	return value
}

// scriptResult returns the result of a tool whose script has ended with value or err.
func scriptResult(ctx context.Context, name string, value json.RawMessage, err error) (tool.Result, error) {
	var abort *script.AbortError
	switch {
	case err == nil && value == nil:
		return tool.TextResult("done"), nil
	case err == nil:
		return valueResult(value, false)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s: %w", name, ctx.Err())
	case errors.As(err, &abort):
		return tool.ErrorResult(cmp.Or(abort.Reason, "aborted")), nil
	}
	return tool.ErrorResult(err.Error()), nil
}

// host gives a script the functions of toolfinch that it may use.
type host struct {
	call     *tool.Call
	progress *tool.Progress
	// find returns the handler of a tool, and the name for the call.
	find     func(name string) (string, tool.Handler, error)
	retrieve func(ctx context.Context, query string, limit int) (json.RawMessage, error)
}

// CallTool implements script.Host.
func (h *host) CallTool(ctx context.Context, name string, arguments json.RawMessage) (json.RawMessage, error) {
	exposed, handler, err := h.find(name)
	if err != nil {
		return nil, err
	}
	return callInner(ctx, h.call, handler, exposed, arguments, h.progress.Part(name))
}

// Retrieve implements script.Host.
func (h *host) Retrieve(ctx context.Context, query string, limit int) (json.RawMessage, error) {
	if h.retrieve == nil {
		return nil, errors.New("there is nothing to search here")
	}
	return h.retrieve(ctx, query, limit)
}
