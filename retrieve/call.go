package retrieve

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/tool/args"
)

// call makes the one call that the arguments of call_tool name.
func (c *caller) call(ctx context.Context, call *tool.Call, most Kind, server string) (tool.Result, error) {
	asked, err := c.understand(ctx, "name", call.Arguments)
	t, name := asked.tool, asked.name
	switch {
	case t == nil && name != "":
		if meta := c.metaTool(name); meta != nil && server == "" {
			return c.callMeta(ctx, call, meta, asked.arguments, most)
		}
		return c.callNonTool(ctx, call, name, asked.arguments, server)
	case t != nil && server != "" && t.Def.ID.Server != server:
		return c.noSuch(ctx, call, name, server), nil
	case t != nil && KindOf(t.Def.Annotations) > most:
		kind := KindOf(t.Def.Annotations)
		err := fmt.Errorf("%s is a %s tool: call it with call_tool_%s", t.Name, kind, kind)
		c.refuse(ctx, call, name, t, err)
		return tool.ErrorResult(err.Error()), nil
	}
	result, err := c.made(ctx, call, asked, err)
	var misfit *argumentsError
	var unclear *args.Error
	if errors.As(err, &misfit) || errors.As(err, &unclear) {
		return tool.ErrorResult(err.Error()), nil
	}
	return result, err
}

// made makes a call of a tool that was understood, unless problem says what is wrong with it.
func (c *caller) made(ctx context.Context, call *tool.Call, asked asked, problem error) (tool.Result, error) {
	if asked.tool == nil {
		return nil, problem
	}
	inner := CallOf(call, asked.tool, asked.name, asked.arguments)
	if problem != nil {
		if c.gate != nil { // an unprovisioned tool reveals nothing else
			if err := c.gate.Admit(ctx, inner, asked.tool.Def.ID); err != nil {
				problem = err
			}
		}
		c.refuse(ctx, call, asked.name, asked.tool, problem)
		return nil, problem
	}
	result, err := c.checked(asked.tool)(ctx, inner)
	if err != nil {
		return nil, err
	}
	result = mended(result, call.Client != nil && call.Client.Modern)
	if asked.mended {
		result = c.hinted(call, result, formOf(asked.key, asked.tool.Name, asked.arguments))
	}
	return result, err
}

// callMeta calls a meta-tool through call_tool.
func (c *caller) callMeta(ctx context.Context, call *tool.Call, meta *tool.Tool, arguments json.RawMessage, most Kind) (tool.Result, error) {
	switch {
	case KindOf(meta.Def.Annotations) > most:
		return tool.ErrorResult(meta.Name + " is a tool of toolfinch itself: call it directly, not through another one"), nil
	case call.Depth >= tool.MaxDepth:
		return tool.ErrorResult(tool.ErrTooDeep.Error()), nil
	}
	inner := CallOf(call, meta, meta.Name, arguments)
	inner.Depth++
	result, err := meta.Handler(ctx, inner)
	if err != nil {
		return nil, err
	}
	return c.hinted(call, result, meta.Name+", called directly"), nil
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

// MaxCalls bounds the calls that one call of call_tool makes.
const MaxCalls = 16

// callsOf returns the calls that the arguments of call_tool list; nil: they are a single call. The error is an
// *args.Error.
func callsOf(arguments json.RawMessage) ([]json.RawMessage, error) {
	all := membersOf(arguments)
	var list json.RawMessage
	if several := slices.Collect(rawjson.Elements(arguments)); len(several) > 1 && rawjson.IsObject(several[0]) {
		list = arguments
	}
	i := slices.IndexFunc(all, func(m member) bool { return slices.Contains(callsKeys, m.folded) })
	if i >= 0 {
		list = all[i].value
	}
	if list == nil || unused(list) && !unused(rawjson.Member(arguments, "name")) {
		return nil, nil
	}
	if text := args.Plain(list); list[0] == '"' && text != nil { // some models write an array as text
		list = text
	}
	if rawjson.IsObject(list) {
		list = rawjson.Array([]json.RawMessage{list})
	}
	var calls []json.RawMessage
	switch err := json.Unmarshal(list, &calls); {
	case err != nil || len(calls) == 0:
		return nil, args.Refuse(`calls must be an array like [{"name": "server_tool", "arguments": {...}}, ...]`)
	case len(calls) > MaxCalls:
		return nil, args.Refuse("calls has %d calls: make at most %d at once", len(calls), MaxCalls)
	}
	for j, m := range all {
		if j != i && !unused(m.value) {
			return nil, args.Refuse("send either calls or %s, not both", rawjson.Clip(m.key, 64))
		}
	}
	return calls, nil
}

// callAll makes several calls for one caller. If all only read, they run side by side; else in order until one
// fails, because the next may build on it. Each has its own result or error. Structured content becomes text,
// because some clients show their model nothing beside structured content.
func (c *caller) callAll(ctx context.Context, call *tool.Call, calls []json.RawMessage, most Kind, server string) (tool.Result, error) {
	names, reads := make([]string, len(calls)), true
	for i, one := range calls {
		asked, _ := c.understand(ctx, "name", one)
		names[i] = asked.name
		t := asked.tool
		if t == nil {
			t = c.metaTool(asked.name)
		}
		if t != nil && most > KindRead && KindOf(t.Def.Annotations) != KindRead {
			reads = false
		}
	}
	progress := tool.NewProgress(call, len(calls))
	results := make([]tool.Result, len(calls))
	var running sync.WaitGroup
	for i, one := range calls {
		if ctx.Err() != nil {
			break
		}
		if i > 0 && !reads && results[i-1].Failed() {
			for rest := range results[i:] {
				results[i+rest] = tool.ErrorResult(fmt.Sprintf("not called, as call %d failed", i))
			}
			break
		}
		running.Go(func() {
			results[i] = c.callOne(ctx, call, names[i], one, most, server, progress.Part(names[i]))
		})
		if !reads {
			running.Wait()
		}
	}
	running.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return joined(names, results), nil
}

// callOne makes one of several calls as if it were the client's only call, but a 2026-07-28 client is asked while
// it runs. An error becomes a result.
func (c *caller) callOne(ctx context.Context, call *tool.Call, name string, one json.RawMessage, most Kind, server string, part *tool.Part) tool.Result {
	inner, err := call.Inner(name, one)
	if err != nil {
		return tool.ErrorResult(err.Error())
	}
	inner.Depth, inner.Client, inner.Notify = call.Depth, inner.Client.WithoutTasks(), part.Notify(call.Notify)
	result, err := tool.Safely(ctx, func(ctx context.Context, inner *tool.Call) (tool.Result, error) {
		return c.call(ctx, inner, most, server)
	}, inner)
	switch {
	case err != nil:
		result = tool.ErrorResult(err.Error())
	case !result.Complete():
		err = errors.New("incomplete")
		result = tool.ErrorResult("it answers with a question or a task: call it alone")
	case result.Failed():
		err = errors.New("failed")
	}
	part.Finish(err)
	return result
}

// label matches the line before each result.
var label = regexp.MustCompile(`\[\d+\] `)

// joined combines the results: each content follows a line with its number and name. If a result itself has such a
// line, all lines get a random mark. The joined result is an error if all results are.
func joined(names []string, results []tool.Result) tool.Result {
	all := make([][]json.RawMessage, len(results))
	mark := ""
	for i, result := range results {
		all[i] = blocksOf(result)
		for _, block := range all[i] {
			if mark == "" && (label.MatchString(rawjson.Text(rawjson.Member(block, "text"))) || label.Match(block)) {
				mark = " " + rand.Text()[:6]
			}
		}
	}
	var blocks []json.RawMessage
	failures := 0
	for i, result := range results {
		label := fmt.Sprintf("[%d%s] %s", i+1, mark, rawjson.Clip(printable.Line(names[i]), 128))
		if result.Failed() {
			failures++
			label += " failed"
		}
		blocks = append(append(blocks, textBlock(label+":")), all[i]...)
	}
	var out rawjson.Object
	out.Add("content", rawjson.Array(blocks))
	if failures == len(results) {
		out.Add("isError", []byte("true"))
	}
	return tool.Result(out.JSON())
}

// CallTool returns the handler of call_tool for tools up to the given kind, and for prompts and resources, which
// only read. It calls the named server's tools only; "" for all servers.
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
