package retrieve

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"

	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/tool/args"
)

// MaxCalls is how many calls one call of call_tool may make.
const MaxCalls = 16

// callsOf returns the calls that a call of call_tool names; nil: it is itself one. The
// error is an *args.Error.
func callsOf(arguments json.RawMessage) ([]json.RawMessage, error) {
	list := rawjson.Member(arguments, "calls")
	if list == nil || unused(list) && !unused(rawjson.Member(arguments, "name")) {
		return nil, nil
	}
	if text := rawjson.Text(list); text != "" { // some models write arrays so
		list = json.RawMessage(text)
	}
	var calls []json.RawMessage
	switch err := json.Unmarshal(list, &calls); {
	case err != nil || len(calls) == 0:
		return nil, args.Refuse(`calls must be an array like [{"name": "server_tool", "arguments": {...}}, ...]`)
	case len(calls) > MaxCalls:
		return nil, args.Refuse("calls has %d calls: make at most %d at once", len(calls), MaxCalls)
	}
	for member, value := range rawjson.Members(arguments) {
		if member != "calls" && !unused(value) {
			return nil, args.Refuse("send either calls or %s, not both", member)
		}
	}
	return calls, nil
}

// callAll makes several calls for the maker of one: side by side if all only read, else
// in their order until one fails, because the next may build on it. Each has its own
// result or error. Their structured content becomes text, because clients that show a
// model structured content show it nothing else.
func (c *caller) callAll(ctx context.Context, call *tool.Call, calls []json.RawMessage, most Kind, server string) (tool.Result, error) {
	names, reads := make([]string, len(calls)), true
	for i, one := range calls {
		names[i], _, _ = parseCall("name", one)
		if t, err := c.catalog.Find(names[i]); err == nil && most > KindRead && KindOf(t.Def.Annotations) != KindRead {
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

// callOne makes one of several calls. It is the client's own, as if it were made alone,
// but that a 2026-07-28 client is asked while it runs. An error is its result.
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

// label begins the line before each result.
var label = regexp.MustCompile(`\[\d+\] `)

// joined is the result of several calls: the content of each after a line with its
// number and name, and a mark where a result could be taken for such lines. It is an
// error if all are.
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

// blocksOf are the content blocks of a result, and its structured content as text if
// none of them has it. What is no block becomes text: clients would refuse all results
// for it.
func blocksOf(result tool.Result) []json.RawMessage {
	data := compact(rawjson.Member(json.RawMessage(result), "structuredContent"))
	var blocks []json.RawMessage
	for block := range rawjson.Elements(rawjson.Member(json.RawMessage(result), "content")) {
		if says(rawjson.Text(rawjson.Member(block, "text")), data) {
			data = nil
		}
		if !isBlock(block) {
			block = textBlock(string(block))
		}
		blocks = append(blocks, block)
	}
	if data != nil && string(data) != "null" {
		blocks = append(blocks, textBlock(string(data)))
	}
	return blocks
}

// says reports whether a text is data, or the only member of data: many servers wrap
// what is no object as {"result": ...}.
func says(text string, data json.RawMessage) bool {
	if data == nil || text == "" {
		return false
	}
	members, only := 0, data
	for _, value := range rawjson.Members(data) {
		members, only = members+1, value
	}
	if members == 1 && (rawjson.Text(only) == text || bytes.Equal(compact([]byte(text)), only)) {
		return true
	}
	return bytes.Equal(compact([]byte(text)), data)
}

// isBlock reports whether a value is a content block as the schema of MCP has it.
func isBlock(value json.RawMessage) bool {
	has := func(of json.RawMessage, members ...string) bool {
		return !slices.ContainsFunc(members, func(member string) bool {
			return !bytes.HasPrefix(rawjson.Member(of, member), []byte{'"'})
		})
	}
	switch rawjson.Text(rawjson.Member(value, "type")) {
	case "text":
		return has(value, "text")
	case "image", "audio":
		return has(value, "data", "mimeType")
	case "resource_link":
		return has(value, "name", "uri")
	case "resource":
		resource := rawjson.Member(value, "resource")
		return has(resource, "uri", "text") || has(resource, "uri", "blob")
	}
	return false
}

func textBlock(text string) json.RawMessage {
	var block rawjson.Object
	block.AddText("type", "text")
	block.AddText("text", text)
	return block.JSON()
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
