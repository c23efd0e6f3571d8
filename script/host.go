package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"go.starlark.net/starlark"
)

// maxParallel is how many calls of one ctx.parallel run at a time.
const maxParallel = 8

// maxArguments bounds the JSON of the arguments of one call.
const maxArguments = 16 << 20

// callContext is ctx, the first argument of functions. Its fields become values
// when they are asked for.
type callContext struct {
	r             *run
	headers, meta starlark.Value // nil until asked for
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
				return c.r.decode("{}")
			}
			return c.r.decodeRaw(info.Meta)
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
	if err := r.alloc(sizeDict); err != nil {
		return nil, err
	}
	dict := new(starlark.Dict)
	for _, name := range sortedKeys(r.info.Headers) {
		if err := r.set(dict, starlark.String(name), starlark.String(r.info.Headers[name])); err != nil {
			return nil, err
		}
	}
	return dict, nil
}

// hostFunctions are the functions of ctx. In a whole script they are globals as
// well.
var hostFunctions = map[string]*starlark.Builtin{
	"log": builtin("log", func(r *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var v starlark.Value
		if err := starlark.UnpackPositionalArgs("log", args, kwargs, 1, &v); err != nil {
			return nil, err
		}
		if err := r.allocText(v); err != nil {
			return nil, err
		}
		s, ok := starlark.AsString(v)
		if !ok {
			s = v.String()
		}
		r.say(s)
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
		if r.host == nil {
			return nil, errNoHost("retrieve")
		}
		if err := r.takeCalls(1); err != nil {
			return nil, err
		}
		found, err := r.host.Retrieve(r.ctx, query, limit)
		if err != nil {
			return nil, &hostError{"retrieve", err}
		}
		return r.decodeRaw(found)
	}),
}

// hostError is what a host returned: of another script, perhaps, whose errors are
// not those of this one.
type hostError struct {
	op  string
	err error
}

func (e *hostError) Error() string { return e.op + ": " + e.err.Error() }
func (e *hostError) Unwrap() error { return e.err }

func errNoHost(function string) error {
	return fmt.Errorf("%s: hooks cannot call tools or search for them, only custom tools and scripts can", function)
}

// takeCalls is called before n tools are, or are searched for.
func (r *run) takeCalls(n int) error {
	if n > r.calls {
		return limitError("%d calls of tools: make fewer, or raise the limit of calls", r.limits.Calls)
	}
	r.calls -= n
	return nil
}

// callTool is call_tool(name, arguments={}, **more).
func callTool(r *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	if r.host == nil {
		return nil, errNoHost("call_tool")
	}
	var name string
	var given *starlark.Dict
	if err := starlark.UnpackPositionalArgs("call_tool", args, nil, 1, &name, &given); err != nil {
		return nil, err
	}
	if err := r.alloc(sizeDict); err != nil {
		return nil, err
	}
	arguments := new(starlark.Dict)
	if given != nil {
		for key, value := range given.Entries() {
			if err := r.set(arguments, key, value); err != nil {
				return nil, err
			}
		}
	}
	for _, pair := range kwargs {
		if err := r.set(arguments, pair[0], pair[1]); err != nil {
			return nil, err
		}
	}
	if err := r.takeCalls(1); err != nil {
		return nil, err
	}
	raw, err := r.arguments(arguments)
	if err != nil {
		return nil, fmt.Errorf("call_tool %s: %w", name, err)
	}
	result, err := r.host.CallTool(r.ctx, name, raw)
	if err != nil {
		return nil, &hostError{"call_tool " + name, err}
	}
	return r.decodeRaw(result)
}

// arguments are the arguments of a call as JSON.
func (r *run) arguments(dict *starlark.Dict) (json.RawMessage, error) {
	if err := r.weigh(dict, 1); err != nil {
		return nil, err
	}
	raw, err := encode(dict, min(maxArguments, int(r.memory/2)))
	if errors.Is(err, errOutput) {
		return nil, limitError("%d bytes of arguments", min(maxArguments, int(r.memory/2)))
	}
	if err != nil {
		return nil, err
	}
	return raw, r.alloc(2 * int64(len(raw)))
}

// parallelCall is one call of parallel.
type parallelCall struct {
	tool      string
	arguments json.RawMessage
	result    json.RawMessage
	err       error
}

// parallel is parallel([{"tool": name, "args": {...}}, ...]): a list, in the same
// order, of {"result": value} or {"error": text}.
func parallel(r *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	if r.host == nil {
		return nil, errNoHost("parallel")
	}
	var of starlark.Iterable
	if err := starlark.UnpackPositionalArgs("parallel", args, kwargs, 1, &of); err != nil {
		return nil, err
	}
	elements, err := r.elements(of, -1)
	if err != nil {
		return nil, err
	}
	if err := r.takeCalls(len(elements)); err != nil {
		return nil, err
	}
	calls := make([]parallelCall, len(elements))
	for i, element := range elements {
		if err := r.parallelCall(&calls[i], element); err != nil {
			return nil, fmt.Errorf("parallel: call %d: %w", i, err)
		}
	}
	fit := callAll(r.ctx, r.host, calls, r.memory)
	if err := r.alive(); err != nil {
		return nil, err
	}
	if !fit {
		return nil, r.alloc(-1)
	}
	return r.outcomes(calls)
}

// parallelCall reads one element of the list that parallel takes.
func (r *run) parallelCall(call *parallelCall, element starlark.Value) error {
	dict, ok := element.(*starlark.Dict)
	if !ok {
		return fmt.Errorf(`want {"tool": name, "args": {...}}, got %s`, element.Type())
	}
	arguments := new(starlark.Dict)
	for key, value := range dict.Entries() {
		ok := false
		switch key {
		case starlark.String("tool"):
			call.tool, ok = starlark.AsString(value)
		case starlark.String("args"):
			arguments, ok = value.(*starlark.Dict)
		}
		if !ok {
			return errors.New(`want {"tool": name, "args": {...}} and nothing else`)
		}
	}
	if call.tool == "" {
		return errors.New(`"tool" is missing`)
	}
	var err error
	call.arguments, err = r.arguments(arguments)
	return err
}

// callAll makes the calls, some at a time, and returns when all have ended. Those
// not begun when ctx ends are not. It reports whether their results fit in so many
// bytes, and drops those that do not.
func callAll(ctx context.Context, host Host, calls []parallelCall, memory int64) (fit bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var left atomic.Int64
	left.Store(memory)
	next := make(chan *parallelCall, len(calls))
	for i := range calls {
		next <- &calls[i]
	}
	close(next)
	var running sync.WaitGroup
	for range min(maxParallel, len(calls)) {
		running.Go(func() {
			for call := range next {
				if call.err = ctx.Err(); call.err == nil {
					call.make(ctx, host)
				}
				if left.Add(-int64(len(call.result))) < 0 {
					call.result = nil
					cancel()
				}
			}
		})
	}
	running.Wait()
	return left.Load() >= 0
}

// make makes the call. A panic in a host must not end the program: here nobody
// else would recover it.
func (c *parallelCall) make(ctx context.Context, host Host) {
	defer func() {
		if caught := recover(); caught != nil {
			c.err = fmt.Errorf("panic: %v", caught)
		}
	}()
	c.result, c.err = host.CallTool(ctx, c.tool, c.arguments)
}

// outcomes is what parallel returns.
func (r *run) outcomes(calls []parallelCall) (starlark.Value, error) {
	out := make([]starlark.Value, len(calls))
	for i, call := range calls {
		if err := r.alloc(sizeDict + sizeSlot); err != nil {
			return nil, err
		}
		outcome := new(starlark.Dict)
		key, value := "result", starlark.Value(starlark.None)
		err := call.err
		if err == nil {
			if value, err = r.decodeRaw(call.result); errors.Is(err, ErrLimit) {
				return nil, err
			}
		}
		if err != nil {
			key, value = "error", starlark.String(err.Error())
			if err := r.alloc(int64(sizeText + len(err.Error()))); err != nil {
				return nil, err
			}
		}
		if err := outcome.SetKey(starlark.String(key), value); err != nil {
			return nil, err
		}
		out[i] = outcome
	}
	return starlark.NewList(out), nil
}
