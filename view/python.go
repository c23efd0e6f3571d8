package view

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/view/python"
	"toolfinch/view/script"
)

// errNoPython is the error if Env.Python is nil.
var errNoPython = errors.New("nothing runs Python here")

// inPython makes a hook from a Python function. After a call, the function gets the data of the result, and its return
// value replaces the data.
func (h *hooks) inPython(name string, configured *Hook) (event, error) {
	if h.env.Python == nil {
		return nil, errNoPython
	}
	kind := python.Kind(name)
	if _, err := h.env.Python.Load(kind, configured.Python); err != nil {
		return nil, err
	}
	return func(ctx context.Context, info *script.Info, arguments, result json.RawMessage) (json.RawMessage, error) {
		request := python.Request{
			Kind: kind, Path: configured.Python, Args: arguments, Context: rawjson.Of(contextOf(info)),
			Timeout: configured.timeout(),
		}
		if kind == python.PostCall {
			request.Data = dataOf(result)
		}
		answer, err := h.env.Python.Call(ctx, request)
		if failed := new(python.Error); errors.As(err, &failed) && failed.Misanswered {
			return nil, &answerError{failed.Reason, true}
		}
		if err != nil {
			return nil, err
		}
		if reason := rawjson.Member(answer, "abort"); reason != nil {
			return nil, &AbortError{Reason: rawjson.Text(reason)}
		}
		if data := rawjson.Member(answer, "result"); data != nil {
			changed, err := withData(result, data)
			if err == nil {
				changed, err = asResult(changed)
			}
			return changed, closed(err)
		}
		changed := rawjson.Member(answer, "args")
		if changed != nil && !isObject(changed) {
			return nil, closed(noArguments(changed))
		}
		return changed, nil
	}, nil
}

// closed makes a hook's wrong answer fail the call regardless of on_error.
func closed(err error) error {
	if wrong := new(answerError); errors.As(err, &wrong) {
		return &answerError{wrong.text, true}
	}
	return err
}

// dataOf returns the data of a result for Python: the structured content, else the text (parsed if it is JSON), else the
// blocks.
func dataOf(result json.RawMessage) json.RawMessage { return unpacked(tool.Result(result).Value()) }

// unpacked parses a text that is JSON, and returns any other value unchanged.
func unpacked(value json.RawMessage) json.RawMessage {
	if text := strings.TrimSpace(rawjson.Text(value)); text != "" && json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return value
}

// withData replaces the data of a result and keeps its shape. One text replaces all texts that accompany structured
// content, because they only repeat it.
func withData(result, data json.RawMessage) (json.RawMessage, error) {
	value, text := tool.Result(result).Value(), textOf(data)
	var others []json.RawMessage
	switch structured := rawjson.Member(result, "structuredContent"); {
	case structured != nil && string(structured) != "null":
		if !isObject(data) {
			return nil, &answerError{text: "the tool answers structured content, an object; the hook returned " + excerpt(data)}
		}
		for block := range rawjson.Elements(rawjson.Member(result, "content")) {
			if rawjson.Text(rawjson.Member(block, "type")) != "text" {
				others = append(others, block)
			}
		}
		result = set(result, "structuredContent", data)
	case value[0] == '[' && data[0] == '[': // blocks of several types
		return set(result, "content", data), nil
	case unpacked(value)[0] == '"' && json.Valid([]byte(rawjson.Text(value))): // the text was a JSON string
		text = string(data)
	}
	blocks := append([]json.RawMessage{rawjson.Of(map[string]string{"type": "text", "text": text})}, others...)
	return set(result, "content", rawjson.Array(blocks)), nil
}

// pythonTools makes the custom tools of a dotted path: one for a function, or one for each function with @custom_tool of
// a module.
func pythonTools(s Settings, settings Custom, env Env, h *hooks) ([]*tool.Tool, []Problem) {
	var tools []*tool.Tool
	fail := func(err error) ([]*tool.Tool, []Problem) {
		return nil, []Problem{{View: s.Name, At: settings.At, Message: fmt.Sprintf("custom tool %s: %v", cmp.Or(settings.Name, settings.Python), err)}}
	}
	if env.Python == nil {
		return fail(errNoPython)
	}
	functions, err := env.Python.Load(python.Tool, settings.Python)
	if err == nil && settings.Name != "" && len(functions) > 1 {
		err = fmt.Errorf("%s has %d custom tools, which cannot all have one name: name a function", settings.Python, len(functions))
	}
	if err != nil {
		return fail(err)
	}
	for _, f := range functions {
		var list []Input
		for _, p := range f.Parameters {
			list = append(list, Input{Name: p.Name, Required: p.Required, Schema: p.Schema})
		}
		c := &custom{view: s.Name, env: env, hooks: h, limits: limitsOf(settings.Limits), run: runInPython(env.Python, settings.Python, f.Name)}
		if c.inputs, err = newInputs(list); err != nil {
			return fail(fmt.Errorf("parameters of %s: %w", f.Name, err))
		}
		t, err := ownTool(s.Name, cmp.Or(settings.Name, f.Name), "", f.Description, c.inputs.raw, nil, nil)
		if err != nil {
			return fail(err)
		}
		t.Handler, c.def = c.call, t.Def
		h.owns(t.Def)
		tools = append(tools, t)
	}
	return tools, nil
}

// runInPython makes the runner of a Python function. Clients may see its error.
func runInPython(host *python.Host, path, name string) runner {
	return func(ctx context.Context, info *script.Info, calls script.Host, limits script.Limits, _ func(string), arguments json.RawMessage) (json.RawMessage, error) {
		var n atomic.Int64
		value, err := host.Call(ctx, python.Request{
			Kind: python.Tool, Path: path, Name: name, Args: arguments, Context: rawjson.Of(contextOf(info)), Timeout: limits.Time, Output: limits.Output,
			CallTool: func(ctx context.Context, name string, arguments json.RawMessage) (json.RawMessage, error) {
				if n.Add(1) > int64(limits.Calls) {
					return nil, fmt.Errorf("limit reached: %d calls of tools", limits.Calls)
				}
				value, err := calls.CallTool(ctx, name, arguments)
				return unpacked(value), err
			},
		})
		if string(value) == "null" {
			value = nil
		}
		return value, err
	}
}
