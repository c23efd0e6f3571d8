package script

import (
	"encoding/json"
	"errors"
	"fmt"

	"go.starlark.net/starlark"
)

// maxArguments bounds the JSON of the arguments of one call, or of all calls of one
// ctx.parallel.
const maxArguments = 16 << 20

// callContext is ctx, the first argument of functions. Its fields are decoded on first use.
type callContext struct {
	r             *run
	headers, meta starlark.Value // nil before the first use
}

func (c *callContext) String() string        { return "<ctx>" }
func (c *callContext) Type() string          { return "ctx" }
func (c *callContext) Freeze()               {}
func (c *callContext) Truth() starlark.Bool  { return true }
func (c *callContext) Hash() (uint32, error) { return 0, errors.New("unhashable type: ctx") }

func (c *callContext) AttrNames() []string {
	return []string{"call_tool", "client", "headers", "log", "meta", "name", "parallel", "principal", "retrieve", "session", "tool", "upstream", "view"}
}

func (c *callContext) Attr(name string) (starlark.Value, error) {
	if function := hostFunctions[name]; function != nil {
		return function, nil
	}
	info := c.r.info
	switch name {
	case "view":
		return starlark.String(info.View), nil
	case "tool":
		return starlark.String(info.Tool), nil
	case "name":
		return starlark.String(info.Name), nil
	case "upstream":
		return starlark.String(info.Upstream), nil
	case "session":
		return starlark.String(info.Session), nil
	case "client":
		return starlark.String(info.Client), nil
	case "principal":
		if info.Principal == "" {
			return starlark.None, nil
		}
		return starlark.String(info.Principal), nil
	case "headers":
		return c.once(&c.headers, func() (starlark.Value, error) { return c.r.headers() })
	case "meta":
		return c.once(&c.meta, func() (starlark.Value, error) {
			if len(info.Meta) == 0 {
				return new(starlark.Dict), nil
			}
			return decodeRaw(info.Meta)
		})
	}
	return nil, nil
}

func (c *callContext) once(kept *starlark.Value, make func() (starlark.Value, error)) (starlark.Value, error) {
	if *kept == nil {
		v, err := make()
		if err != nil {
			return nil, err
		}
		*kept = v
	}
	return *kept, nil
}

func (r *run) headers() (starlark.Value, error) {
	dict := new(starlark.Dict)
	for _, name := range sortedKeys(r.info.Headers) {
		if err := dict.SetKey(starlark.String(name), starlark.String(r.info.Headers[name])); err != nil {
			return nil, err
		}
	}
	return dict, nil
}

// hostFunctions are the functions of ctx. In a whole script they are globals as
// well.
var hostFunctions = starlark.StringDict{
	"log": builtin("log", func(r *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var v starlark.Value
		if err := starlark.UnpackPositionalArgs("log", args, kwargs, 1, &v); err != nil {
			return nil, err
		}
		s, ok := starlark.AsString(v)
		if !ok {
			s = v.String()
		}
		r.log.say(s)
		return starlark.None, nil
	}),
	"call_tool": builtin("call_tool", callTool),
	"parallel":  builtin("parallel", parallel),
	"retrieve": builtin("retrieve", func(r *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var query string
		limit := 5
		if err := starlark.UnpackArgs("retrieve", args, kwargs, "query", &query, "limit?", &limit); err != nil {
			return nil, err
		}
		if r.door == nil {
			return nil, errNoHost("retrieve")
		}
		search := &request{Query: query, Limit: limit, Search: true}
		if err := r.ask("retrieve", search); err != nil {
			return nil, err
		}
		return decodeRaw(search.result)
	}),
}

// hostError is an error of the Host, maybe from another script.
type hostError struct {
	op  string
	err error
}

func (e *hostError) Error() string { return e.op + ": " + e.err.Error() }
func (e *hostError) Unwrap() error { return e.err }

func errNoHost(function string) error {
	return fmt.Errorf("%s: hooks cannot call tools or search for them, only custom tools and scripts can", function)
}

// ask passes requests through the door.
func (r *run) ask(op string, requests ...*request) error {
	if err := r.door.pass(r.ctx, requests); err != nil {
		return err
	}
	if err := r.alive(); err != nil {
		return err
	}
	if len(requests) == 1 && op != "parallel" && requests[0].err != nil {
		return &hostError{op, requests[0].err}
	}
	return nil
}

// callTool is call_tool(name, arguments={}, **more).
func callTool(r *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	if r.door == nil {
		return nil, errNoHost("call_tool")
	}
	var name string
	var given *starlark.Dict
	if err := starlark.UnpackPositionalArgs("call_tool", args, nil, 1, &name, &given); err != nil {
		return nil, err
	}
	arguments := new(starlark.Dict)
	if given != nil {
		for key, value := range given.Entries() {
			if err := arguments.SetKey(key, value); err != nil {
				return nil, err
			}
		}
	}
	for _, pair := range kwargs {
		if err := arguments.SetKey(pair[0], pair[1]); err != nil {
			return nil, err
		}
	}
	call := &request{Tool: name}
	var err error
	if call.Arguments, err = encodeArguments(arguments, maxArguments); err != nil {
		return nil, fmt.Errorf("call_tool %s: %w", name, err)
	}
	if err := r.ask("call_tool "+name, call); err != nil {
		return nil, err
	}
	return decodeRaw(call.result)
}

// encodeArguments are the arguments of a call as JSON.
func encodeArguments(dict *starlark.Dict, most int) (json.RawMessage, error) {
	raw, err := encode(dict, most)
	if errors.Is(err, errOutput) {
		return nil, limitError("%d bytes of arguments: send less", maxArguments)
	}
	return raw, err
}

// parallel is parallel([{"tool": name, "args": {...}}, ...]). Its result has a {"result": value} or
// {"error": text} for each call, in order.
func parallel(r *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	if r.door == nil {
		return nil, errNoHost("parallel")
	}
	var of starlark.Iterable
	if err := starlark.UnpackPositionalArgs("parallel", args, kwargs, 1, &of); err != nil {
		return nil, err
	}
	var calls []*request
	most := maxArguments
	for element := range starlark.Elements(of) {
		call, err := parallelCall(element, most)
		if err != nil {
			return nil, fmt.Errorf("parallel: call %d: %w", len(calls), err)
		}
		calls = append(calls, call)
		most -= len(call.Arguments)
	}
	if err := r.ask("parallel", calls...); err != nil {
		return nil, err
	}
	return outcomes(calls)
}

// parallelCall reads one call of parallel's argument.
func parallelCall(element starlark.Value, most int) (*request, error) {
	dict, ok := element.(*starlark.Dict)
	if !ok {
		return nil, fmt.Errorf(`want {"tool": name, "args": {...}}, got %s`, element.Type())
	}
	call, arguments := &request{}, new(starlark.Dict)
	for key, value := range dict.Entries() {
		ok := false
		switch key {
		case starlark.String("tool"):
			call.Tool, ok = starlark.AsString(value)
		case starlark.String("args"):
			arguments, ok = value.(*starlark.Dict)
		}
		if !ok {
			return nil, errors.New(`want {"tool": name, "args": {...}} and nothing else`)
		}
	}
	if call.Tool == "" {
		return nil, errors.New(`"tool" is missing`)
	}
	var err error
	call.Arguments, err = encodeArguments(arguments, most)
	return call, err
}

// outcomes makes the result of parallel.
func outcomes(calls []*request) (starlark.Value, error) {
	out := make([]starlark.Value, len(calls))
	for i, call := range calls {
		key, value, err := "result", starlark.Value(starlark.None), call.err
		if err == nil {
			if value, err = decodeRaw(call.result); errors.Is(err, ErrLimit) {
				return nil, err
			}
		}
		if err != nil {
			key, value = "error", starlark.String(err.Error())
		}
		outcome := new(starlark.Dict)
		if err := outcome.SetKey(starlark.String(key), value); err != nil {
			return nil, err
		}
		out[i] = outcome
	}
	return starlark.NewList(out), nil
}
