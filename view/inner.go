package view

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"toolfinch/rawjson"
	"toolfinch/tool"
)

// findHooked returns the handler of an upstream's tool as composite and custom
// tools call it: with the view's hooks around. It is asked for with every call,
// because the tool may have come or gone since the view was made.
func findHooked(env Env, h *hooks, id string) (tool.Handler, error) {
	t, found := env.Find(id)
	if !found { // what is near is for the owner, who reads it in a Problem
		return nil, errors.New(env.missing(id))
	}
	return h.around(t), nil
}

// missing says why there is no tool of an upstream with an ID.
func (e Env) missing(id string) string {
	switch {
	case slices.Contains(e.own, id):
		return fmt.Sprintf("%q is a composite or custom tool of the view; only tools of servers can be called here, as \"server.tool\"", id)
	case e.Pending != nil && e.Pending(id):
		return fmt.Sprintf("the tool %q is not known: its server has not been listed, or is disabled", id)
	}
	return fmt.Sprintf("unknown tool %q", id)
}

// checkCalls looks up the tools that an own tool says it calls, each with its
// place, and returns what it may do at least, and whether all of them are known.
func checkCalls(s Settings, env Env, by string, ids []string, at []Place) (least tool.Annotations, known bool, problems []Problem) {
	known = true
	defs := make([]*tool.Def, 0, len(ids))
	for i, id := range ids {
		if t, found := env.Find(id); found {
			defs = append(defs, t.Def)
			continue
		}
		known = false
		defs = append(defs, nil)
		problem := Problem{View: s.Name, At: at[i], Message: by + ": " + env.missing(id)}
		if near := env.Nearest(id, 3); len(near) > 0 {
			problem.Hint = "did you mean " + orList(near) + "?"
		}
		problem.Warning = !slices.Contains(env.own, id) && env.Pending != nil && env.Pending(id)
		problems = append(problems, problem)
	}
	return floor(defs), known, problems
}

// floor is the least that a tool says of itself which calls these. nil stands
// for one that is not known.
func floor(defs []*tool.Def) tool.Annotations {
	all := tool.Annotations{ReadOnly: true, Idempotent: true}
	for _, def := range defs {
		one := tool.Annotations{Destructive: true, OpenWorld: true}
		if def != nil {
			one = def.Annotations
		}
		all.ReadOnly = all.ReadOnly && one.ReadOnly
		all.Destructive = all.Destructive || one.Destructive && !one.ReadOnly
		all.Idempotent = all.Idempotent && one.Repeatable()
		all.OpenWorld = all.OpenWorld || one.OpenWorld
	}
	return all
}

// hints returns annotations as an object, all of them said.
func hints(a tool.Annotations) json.RawMessage {
	return fmt.Appendf(nil, `{"readOnlyHint":%t,"destructiveHint":%t,"idempotentHint":%t,"openWorldHint":%t}`,
		a.ReadOnly, a.Destructive, a.Idempotent, a.OpenWorld)
}

// pendingIn is the Env with a Pending that knows the servers of base.
func (e Env) pendingIn(base []Upstream) Env {
	if e.Pending == nil {
		e.Pending = func(id string) bool {
			there := false
			for _, u := range base {
				if strings.HasPrefix(id, u.Server+".") {
					if !u.Listed {
						return true
					}
					there = true
				}
			}
			return !there // disabled, or a mistake that package configs has told
		}
	}
	return e
}

// callInner makes a call inside another and returns the value of its result.
// What the tool says of its failure is the error's text.
func callInner(ctx context.Context, call *tool.Call, handler tool.Handler, name string, arguments json.RawMessage, part *part) (json.RawMessage, error) {
	inner, err := call.Inner(name, arguments)
	if err != nil {
		return nil, err
	}
	inner.Notify = part.notify(call.Notify)
	result, err := safely(ctx, handler, inner)
	switch {
	case err != nil && ctx.Err() != nil:
		err = context.Cause(ctx)
	case err != nil:
	case !result.Complete():
		err = errors.New("it answered with a question or a task, which a call inside another tool cannot take")
	case result.Failed():
		err = errors.New(textOf(result.Value()))
	}
	part.finish(err)
	if err != nil {
		return nil, err
	}
	return result.Value(), nil
}

// safely is handler(ctx, call) whose panic is an error: it runs on a goroutine
// of ours, where a panic in a hook of an embedder would end the process.
func safely(ctx context.Context, handler tool.Handler, call *tool.Call) (result tool.Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			slog.ErrorContext(ctx, "panic in a call of a tool", "tool", call.Name, "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("%s: internal error", call.Name)
		}
	}()
	return handler(ctx, call)
}

// textOf is a value as text: a string without its quotes, else its JSON.
func textOf(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}

// valueResult is a result with a value for programs, and as text for others.
func valueResult(value json.RawMessage, failed bool) (tool.Result, error) {
	type block struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	result, err := rawjson.Encode(struct {
		Content    []block         `json:"content"`
		Structured json.RawMessage `json:"structuredContent"`
		IsError    bool            `json:"isError,omitempty"`
	}{[]block{{"text", textOf(value)}}, structuredOf(value), failed})
	return tool.Result(result), err
}

// structuredOf is a value as structured content, which must be an object.
func structuredOf(value json.RawMessage) json.RawMessage {
	if isObject(value) {
		return value
	}
	return append(append(json.RawMessage(`{"result":`), value...), '}')
}

// progress tells a client how far the calls inside its call are: one count for
// all of them, since what each says of itself would contradict the others. A nil
// *progress tells nothing.
type progress struct {
	notify func(method string, params json.RawMessage)
	token  json.RawMessage
	total  int // 0: not known

	// mu guards sum, told and the done of all parts. It is held while the client is
	// told, so that the count never falls; never over a call.
	mu   sync.Mutex
	sum  float64
	told float64
}

// newProgress returns nil when the client asked for no progress.
func newProgress(call *tool.Call, total int) *progress {
	token := rawjson.Member(rawjson.Member(call.Params, "_meta"), "progressToken")
	if call.Notify == nil || token == nil {
		return nil
	}
	return &progress{notify: call.Notify, token: token, total: total}
}

// part is what one call inside another adds to the progress.
type part struct {
	of   *progress
	key  string
	done float64 // 0 to 1
}

func (p *progress) part(key string) *part { return &part{of: p, key: key} }

// notify returns what takes the notifications about the call: the client's own
// outlet, except for progress.
func (x *part) notify(client func(string, json.RawMessage)) func(string, json.RawMessage) {
	if client == nil {
		return nil
	}
	return func(method string, params json.RawMessage) {
		if method != "notifications/progress" {
			client(method, params)
			return
		}
		var said struct {
			Progress, Total float64
			Message         string
		}
		if json.Unmarshal(params, &said) == nil && said.Total > 0 {
			x.reach(min(said.Progress/said.Total, 0.99), said.Message) // the rest is the answer
		}
	}
}

// finish counts the call as done.
func (x *part) finish(err error) {
	if err != nil {
		x.reach(1, "failed")
		return
	}
	x.reach(1, "done")
}

func (x *part) reach(done float64, message string) {
	p := x.of
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if done <= x.done {
		return
	}
	p.sum += done - x.done
	x.done = done
	now := math.Round(p.sum*1000) / 1000
	if now <= p.told {
		return
	}
	p.told = now
	text := x.key
	if message != "" {
		text += ": " + message
	}
	params, err := rawjson.Encode(struct {
		Token    json.RawMessage `json:"progressToken"`
		Progress float64         `json:"progress"`
		Total    int             `json:"total,omitempty"`
		Message  string          `json:"message"`
	}{p.token, now, p.total, text})
	if err == nil {
		p.notify("notifications/progress", params)
	}
}

// ownTool makes a tool of the view itself. annotations may be nil.
func ownTool(server, name, title, description string, input, output, annotations json.RawMessage) (*tool.Tool, error) {
	raw, err := rawjson.Encode(struct {
		Name         string          `json:"name"`
		Title        string          `json:"title,omitempty"`
		Description  string          `json:"description,omitempty"`
		InputSchema  json.RawMessage `json:"inputSchema"`
		OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
		Annotations  json.RawMessage `json:"annotations,omitempty"`
	}{name, title, description, input, output, annotations})
	if err != nil {
		return nil, err
	}
	def, _, err := tool.TakeIn(tool.KindTool, server, raw)
	if err != nil {
		return nil, err
	}
	return &tool.Tool{Name: name, Def: def}, nil
}
