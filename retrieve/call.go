package retrieve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/tool/args"
)

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

// unused reports whether an argument is none: some models fill in those they do not use.
func unused(value json.RawMessage) bool {
	switch string(compact(value)) {
	case "", "null", `""`, "{}", "[]", `"{}"`, `"[]"`:
		return true
	}
	return false
}

// compact is JSON without spaces between its parts, nil for what is no JSON.
func compact(value []byte) []byte {
	var out bytes.Buffer
	if json.Compact(&out, value) != nil {
		return nil
	}
	return out.Bytes()
}
