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
	"strings"
	"sync"

	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
	"toolfinch/internal/schema"
	"toolfinch/tool"
	"toolfinch/tool/args"
)

// MaxCalls bounds the calls that one call of call_tool makes.
const MaxCalls = 16

// callsOf returns the calls that the arguments of call_tool list; nil: they are a single call. The error is an
// *args.Error.
func callsOf(arguments json.RawMessage) ([]json.RawMessage, error) {
	if name := rawjson.Text(rawjson.Member(arguments, "name")); name != "" && rawjson.Member(arguments, "calls") == nil && !Calls(bare(name)) {
		return nil, nil
	}
	all, _ := unwrapped(objectIn(arguments))
	at := slices.IndexFunc(all, func(m member) bool { return m.is("calls") })
	if at < 0 || unused(all[at].value) && first(all, "name", isText) >= 0 {
		return nil, nil
	}
	list := all[at].value
	if text := schema.Inner(list); text != nil && list[0] == '"' { // some models write an array as text
		list = text
	}
	var calls []json.RawMessage
	switch err := json.Unmarshal(list, &calls); {
	case err != nil || len(calls) == 0:
		return nil, args.Refuse(`calls must be an array like [{"name": "server_tool", "arguments": {...}}, ...]`)
	case len(calls) > MaxCalls:
		return nil, args.Refuse("calls has %d calls: make at most %d at once", len(calls), MaxCalls)
	}
	for i, m := range all {
		if i != at && !unused(m.value) {
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
		a, _ := c.understand(ctx, one)
		names[i] = a.name
		if a.tool != nil && most > KindRead && KindOf(a.tool.Def.Annotations) != KindRead {
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
		result, _, err := c.call(ctx, inner, most, server)
		return result, err
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

// blocksOf returns the content blocks of a result. Structured content is added as text if no block repeats it. What
// is no block becomes text, because clients would refuse all results for it.
func blocksOf(result tool.Result) (blocks []json.RawMessage) {
	raw := json.RawMessage(result)
	data, content := compact(rawjson.Member(raw, "structuredContent")), rawjson.Member(raw, "content")
	switch {
	case !rawjson.IsObject(raw):
		return []json.RawMessage{asBlock(raw)}
	case content == nil && data == nil:
		if rest := rawjson.Without(raw, "isError", "_meta", "resultType"); !rawjson.IsEmpty(rest) {
			blocks = append(blocks, textBlock(string(rest)))
		}
	case content != nil && content[0] != '[' && content[0] != 'n':
		blocks = append(blocks, asBlock(content))
	}
	for block := range rawjson.Elements(content) {
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

// asBlock returns a value that stands for all blocks as one.
func asBlock(value json.RawMessage) json.RawMessage {
	switch text := rawjson.Text(value); {
	case isBlock(value):
		return value
	case text != "":
		return textBlock(text)
	}
	return textBlock(string(value))
}

// mended returns a tool's result in the protocol's shape, because clients refuse any other. Legacy clients take an
// object alone as structured content. Blocks of an unknown type, perhaps of a later revision, stay.
func mended(result tool.Result, modern bool) tool.Result {
	raw := json.RawMessage(result)
	if len(raw) == 0 || !result.Complete() {
		return result
	}
	structured, content, failed := rawjson.Member(raw, "structuredContent"), rawjson.Member(raw, "content"), rawjson.Member(raw, "isError")
	fits := rawjson.IsObject(structured) || structured == nil || modern && string(structured) != "null"
	meta := rawjson.Member(raw, "_meta")
	ok := fits && (content != nil && content[0] == '[' || content == nil && structured != nil) &&
		(failed == nil || failed[0] == 't' || failed[0] == 'f') && (meta == nil || meta[0] == '{')
	for block := range rawjson.Elements(content) {
		kind := rawjson.Text(rawjson.Member(block, "type"))
		ok = ok && (isBlock(block) || kind != "" && !slices.Contains(blockTypes, kind))
	}
	if ok {
		return result
	}
	out := rawjson.NewObject(len(raw))
	if fits && structured != nil {
		out.Add("structuredContent", structured)
		result = tool.Result(rawjson.Without(raw, "structuredContent"))
	}
	out.Add("content", rawjson.Array(blocksOf(result)))
	if rawjson.IsObject(meta) {
		out.Add("_meta", meta)
	}
	if state := rawjson.Member(raw, "resultType"); state != nil {
		out.Add("resultType", state)
	}
	if text := strings.ToLower(strings.Trim(string(failed), `"`)); text == "true" || text == "1" {
		out.Add("isError", []byte("true"))
	}
	return tool.Result(out.JSON())
}

// says reports whether a text equals data, or the only member of data: many servers wrap a plain value as
// {"result": ...}.
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

// blockTypes are the types of blocks whose shape isBlock knows.
var blockTypes = []string{"text", "image", "audio", "resource_link", "resource"}

// isBlock reports whether a value is a content block by the schema of MCP.
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
		result, a, err := c.call(ctx, call, most, server)
		if err != nil || a.tool == nil {
			return result, err
		}
		if result = mended(result, call.Client != nil && call.Client.Modern); a.mended {
			result = c.hinted(call, result, formOf(a.tool.Name, a.arguments))
		}
		return result, nil
	}
}
