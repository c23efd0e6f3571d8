package retrieve

import (
	"cmp"
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

// call makes the one call that the arguments of call_tool mean, and returns it.
func (c *caller) call(ctx context.Context, call *tool.Call, most Kind, server string) (result tool.Result, a asked, err error) {
	a, err = c.understand(ctx, call.Arguments)
	t := a.tool
	switch {
	case t == nil && err == nil:
		result, err = c.callNonTool(ctx, call, a.name, a.arguments, server)
		return result, a, err
	case t == nil:
	case server != "" && t.Def.ID.Server != server:
		return c.noSuch(ctx, call, a.name, server), asked{}, nil
	default:
		result, err = c.made(ctx, call, a, most, err)
	}
	if errors.As(err, new(*argumentsError)) || errors.As(err, new(*args.Error)) {
		return tool.ErrorResult(err.Error()), asked{}, nil
	}
	return result, a, err
}

// made calls a tool, unless misfit says why the arguments do not fit.
func (c *caller) made(ctx context.Context, call *tool.Call, a asked, most Kind, misfit error) (tool.Result, error) {
	inner := CallOf(call, a.tool, a.name, a.arguments)
	if kind := KindOf(a.tool.Def.Annotations); kind > most {
		misfit = args.Refuse("%s is a %s tool: call it with call_tool_%s", a.tool.Name, kind, kind)
	} else if misfit != nil && c.gate != nil { // an unprovisioned tool reveals nothing else
		misfit = cmp.Or(c.gate.Admit(ctx, inner, a.tool.Def.ID), misfit)
	}
	if misfit != nil {
		c.refuse(ctx, call, a.name, a.tool, misfit)
		return nil, misfit
	}
	return c.checked(a.tool)(ctx, inner)
}

// callNonTool gets the prompt or reads the resource of that name.
func (c *caller) callNonTool(ctx context.Context, call *tool.Call, name string, arguments json.RawMessage, server string) (tool.Result, error) {
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

// asToolResult converts a result of prompts/get or resources/read into a tool result: messages and contents become
// content blocks, and structured content holds the whole result. An incomplete result stays unchanged.
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
