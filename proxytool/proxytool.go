// Package proxytool owns the proxy tool of the MCP Proxy Extension: one tool over
// tools, resources and prompts, its arguments, its answers, and the decoding of
// answers. It connects to no server and searches nothing: a Source does.
package proxytool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/tool/args"
)

// DefaultName is the name that clients look for first.
const DefaultName = "proxy"

// maxShown bounds a client's text in messages and logs, in bytes.
const maxShown = 128

// Item is one definition of a list.
type Item struct {
	Path string          // name of a tool or prompt, URI or URI template of a resource
	Raw  json.RawMessage // the object as tools/list (...) has it: valid JSON
}

// Source is a set of tools, resources and prompts for the proxy tool. Its methods get the call of the
// proxy tool, with its caller; they may be called concurrently. It lists and answers only items that
// the caller can reach without the proxy tool. An *args.Error becomes an error result; every other
// error is returned unchanged.
type Source interface {
	// List returns the items that pass the filter (nil: all) in the order of the
	// source; for resources, the resources and then the templates.
	List(ctx context.Context, call *tool.Call, t Type, filter *Filter) ([]Item, error)
	// Info returns one definition; for a URI of a template, the template.
	Info(ctx context.Context, call *tool.Call, t Type, path string) (Item, error)
	// Call returns the result object of tools/call, resources/read or prompts/get.
	// args is an object or nil: for a prompt an object of strings, for a resource nil.
	Call(ctx context.Context, call *tool.Call, t Type, path string, args json.RawMessage) (json.RawMessage, error)
}

// Find returns the index of the item with the path, -1 if there is none. Clients of other servers may
// use a resource's name, so an unambiguous name counts too.
func Find(items []Item, path string) int {
	var named []int
	for i, item := range items {
		if item.Path == path {
			return i
		}
		if nameOf(item) == path {
			named = append(named, i)
		}
	}
	if len(named) != 1 {
		return -1
	}
	return named[0]
}

// IsURI reports whether the path of a resource is certainly a URI, not a name or template.
func IsURI(path string) bool { return strings.Contains(path, "://") && !strings.Contains(path, "{") }

func nameOf(item Item) string { return rawjson.Text(rawjson.Member(item.Raw, "name")) }

// Unknown returns the error for an unknown path, with similar paths.
func Unknown(t Type, path string, near []string) error {
	hint := ""
	if len(near) > 0 {
		hint = "; nearest: " + strings.Join(near, ", ")
	}
	return args.Refuse("there is no %s %q%s", t, rawjson.Clip(path, maxShown), hint)
}

// Callable returns nil if the item can be called by its path. A resource template with variables
// cannot.
func (i Item) Callable() error {
	if !isTemplate(i.Raw) || !strings.Contains(i.Path, "{") {
		return nil
	}
	return args.Refuse("%s is a template: fill in what stands in braces and call the URI that results", rawjson.Clip(i.Path, maxShown))
}

const description = "Proxy to the tools, resources and prompts of this server through one tool: " +
	"list what there is, get info about one, call it (call a tool, read a resource, get a prompt), or run several operations as a batch."

const inputSchema = `{"type":"object","properties":{` +
	`"action":{"type":"string","enum":["list","info","call","batch"]},` +
	`"type":{"type":"string","enum":["tool","resource","prompt"],"description":"Required, except for batch"},` +
	`"path":{"type":"string","description":"For info and call: name of the tool or prompt, URI of the resource"},` +
	`"args":{"type":"object","description":"For call: arguments of the tool or prompt"},` +
	`"filter":{"type":"object","description":"For list","properties":{"prefix":{"type":"string"},"server":{"type":"string"},` +
	`"tags":{"type":"array","items":{"type":"string"}},"query":{"type":"string","description":"What it should do"}}},` +
	`"limit":{"type":"integer","minimum":1,"maximum":1000,"description":"For list; default about 32 kB"},` +
	`"offset":{"type":"integer","minimum":0,"description":"For list"},` +
	`"cursor":{"type":"string","description":"For list: nextCursor of the page before"},` +
	`"operations":{"type":"array","maxItems":50,"items":{"type":"object"},"description":"For batch: each with action, type, path, ..."}` +
	`},"required":["action"]}`

// New returns the proxy tool of that name over a source. It logs its uses, without
// arguments and results: calls, batches and refusals as Info, the rest as Debug. A nil
// log logs nothing. The name must not be empty.
func New(name string, source Source, log *slog.Logger) *tool.Tool {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	var raw rawjson.Object
	raw.AddText("name", name)
	raw.AddText("description", description)
	raw.Add("inputSchema", []byte(inputSchema))
	raw.Add("_meta", []byte(`{"anthropic/alwaysLoad":true}`)) // as for every tool that leads to other tools
	def, err := tool.ParseDef("toolfinch", raw.JSON())
	if err != nil {
		panic("proxytool: " + err.Error()) // the name is empty
	}
	p := &proxy{source: source, log: log}
	return &tool.Tool{Name: name, Def: def, Handler: p.handle}
}

type proxy struct {
	source Source
	log    *slog.Logger
}

func (p *proxy) handle(ctx context.Context, call *tool.Call) (tool.Result, error) {
	op := read(call.Arguments)
	return p.run(ctx, call, op, op.check())
}

// run answers and logs an operation; invalid is the error of its check.
func (p *proxy) run(ctx context.Context, call *tool.Call, op Operation, invalid error) (tool.Result, error) {
	start := time.Now()
	var result json.RawMessage
	err := invalid
	if err == nil {
		result, err = p.answer(ctx, call, op)
	}
	var wrong *args.Error
	refused := errors.As(err, &wrong)
	p.audit(ctx, call, op, outcome(tool.Result(result), err, refused), time.Since(start))
	if refused {
		return tool.ErrorResult(wrong.Error()), nil
	}
	return tool.Result(result), err
}

func (p *proxy) answer(ctx context.Context, call *tool.Call, op Operation) (json.RawMessage, error) {
	label := Label{Action: op.Action, Type: op.Type, Path: op.Path}
	switch op.Action {
	case ActionBatch:
		return p.batch(ctx, call, op.Operations)
	case ActionList:
		items, err := p.source.List(ctx, call, op.Type, op.Filter)
		if err != nil {
			return nil, err
		}
		items, page, err := cut(items, op)
		if err != nil {
			return nil, err
		}
		label.Data, label.Many, label.Page = dataOf(op.Type), &yes, &page
		return one(embedJSON(uriOf(label), join(items), label)), nil
	case ActionInfo:
		item, err := p.source.Info(ctx, call, op.Type, op.Path)
		if err != nil {
			return nil, err
		}
		label.Data, label.Many = dataOf(op.Type), &no
		return one(embedJSON(uriOf(label), item.Raw, label)), nil
	}
	args := op.Args
	switch {
	case op.Type == TypeResource || !op.hasArgs():
		args = nil
	case op.Type == TypePrompt:
		args = tool.TextArguments(args)
	}
	result, err := p.source.Call(ctx, call, op.Type, op.Path, args)
	if err != nil {
		return nil, err
	}
	return called(result, label)
}

var yes, no = true, false

// called converts the result of a call to a result of the proxy tool. An incomplete result, which asks
// the client, stays unchanged.
func called(result json.RawMessage, label Label) (json.RawMessage, error) {
	if !rawjson.IsObject(result) {
		return nil, fmt.Errorf("%s %s: the answer is not a result", label.Type, rawjson.Clip(label.Path, maxShown))
	}
	if !tool.Result(result).Complete() {
		return result, nil
	}
	switch label.Type {
	case TypePrompt:
		label.Data = DataPromptResult
		return one(PromptAsToolContent(result, label)), nil
	case TypeResource:
		content := []json.RawMessage{}
		for c := range rawjson.Elements(rawjson.Member(result, "contents")) {
			content = append(content, ResourceAsToolContent(c, label))
		}
		return labelEmpty(swap(result, "contents", "content", rawjson.Array(content)), label), nil
	}
	members := label.object()
	result = eachContent(result, func(item json.RawMessage) json.RawMessage { return annotate(item, members) })
	return labelEmpty(result, label), nil
}

// one returns a result with one content item.
func one(item json.RawMessage) json.RawMessage {
	var out rawjson.Object
	out.Add("content", rawjson.Array([]json.RawMessage{item}))
	return out.JSON()
}

func join(items []Item) json.RawMessage {
	raw := make([]json.RawMessage, len(items))
	for i, item := range items {
		raw[i] = item.Raw
	}
	return rawjson.Array(raw)
}

func outcome(result tool.Result, err error, refused bool) string {
	switch {
	case refused:
		return "refused"
	case err != nil:
		return "error"
	case !result.Complete():
		return "incomplete"
	case result.Failed():
		return "failed"
	}
	return "ok"
}

func (p *proxy) audit(ctx context.Context, call *tool.Call, op Operation, outcome string, took time.Duration) {
	level := slog.LevelInfo
	if (op.Action == ActionList || op.Action == ActionInfo) && outcome != "refused" {
		level = slog.LevelDebug
	}
	if !p.log.Enabled(ctx, level) {
		return
	}
	client := ""
	if call.Client != nil {
		client = call.Client.Name
	}
	p.log.LogAttrs(ctx, level, "proxy",
		slog.String("action", rawjson.Clip(string(op.Action), maxShown)), slog.String("type", rawjson.Clip(string(op.Type), maxShown)), slog.String("path", rawjson.Clip(printable.URI(op.Path), maxShown)),
		slog.String("principal", call.Principal), slog.String("session", call.Session), slog.String("client", rawjson.Clip(client, maxShown)),
		slog.String("outcome", outcome), slog.Duration("duration", took))
}
