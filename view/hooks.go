package view

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"toolfinch/internal/hook"
	"toolfinch/internal/rawjson"
	"toolfinch/internal/telemetry"
	"toolfinch/tool"
	"toolfinch/view/python"
	"toolfinch/view/script"
)

// The events of hooks. The settings of hooks have the same names.
const (
	preCall  = "pre_call"
	postCall = "post_call"
)

// hookLimits returns limits for a hook of the owner. Hooks read whole results, with images.
func hookLimits(configured *Hook) script.Limits {
	return script.Limits{
		Time:   configured.timeout(),
		Steps:  20_000_000,
		Output: hook.MaxAnswer,
	}
}

// hooks are the loaded hooks of one view. A nil *hooks has no hooks.
type hooks struct {
	view string
	env  Env
	pre  []loaded
	post []loaded
	// own are the composite and custom tools, which have no upstream. It is written only while the view is compiled,
	// before the first call.
	own map[*tool.Def]bool
}

// loaded is a loaded hook.
type loaded struct {
	name     string // name in the log
	run      event
	lenient  bool // has on_error: continue
	starlark bool // returns arguments or a result directly, not in a command's answer object
}

// event runs a hook. It returns new arguments or a new result, or nil for no change. result is nil before the call.
type event func(ctx context.Context, info *script.Info, arguments, result json.RawMessage) (json.RawMessage, error)

// newHooks loads the hooks of a view. A hook that cannot be loaded becomes a hook that always fails, because without it,
// forbidden calls would pass.
func newHooks(s Settings, env Env) (*hooks, []Problem) {
	if s.Hooks.PreCall == nil && s.Hooks.PostCall == nil && len(s.Hooks.Pre) == 0 && len(s.Hooks.Post) == 0 {
		return nil, nil
	}
	h := &hooks{view: s.Name, env: env, own: map[*tool.Def]bool{}}
	var problems []Problem
	configured := func(name string, hook *Hook) []loaded {
		if hook == nil {
			return nil
		}
		run, logged, err := h.load(name, hook)
		if err != nil {
			problems = append(problems, Problem{View: s.Name, At: hook.At, Message: name + " hook: " + err.Error()})
		}
		return []loaded{{logged, run, hook.Continue, hook.Module != ""}}
	}
	for i, run := range s.Hooks.Pre {
		h.pre = append(h.pre, loaded{name: fmt.Sprintf("Go function %d", i+1),
			run: func(ctx context.Context, info *script.Info, arguments, _ json.RawMessage) (json.RawMessage, error) {
				return run(ctx, info, arguments)
			}})
	}
	h.pre = append(h.pre, configured(preCall, s.Hooks.PreCall)...)
	h.post = configured(postCall, s.Hooks.PostCall)
	for i, run := range s.Hooks.Post {
		h.post = append(h.post, loaded{name: fmt.Sprintf("Go function %d", i+1),
			run: func(ctx context.Context, info *script.Info, arguments, result json.RawMessage) (json.RawMessage, error) {
				changed, err := run(ctx, info, arguments, tool.Result(result))
				return json.RawMessage(changed), err
			}})
	}
	return h, problems
}

// owns marks def as the definition of a composite or custom tool.
func (h *hooks) owns(def *tool.Def) {
	if h != nil {
		h.own[def] = true
	}
}

func (h *hooks) around(t *tool.Tool) tool.Handler {
	if h == nil {
		return t.Handler
	}
	return h.layer(t.Def)(t.Handler)
}

// layer returns the hooks of a tool as a middleware, nil without hooks. If a hook refuses the call or fails without
// on_error: continue, the answer is a tool error for the model.
func (h *hooks) layer(def *tool.Def) tool.Middleware {
	if h == nil {
		return nil
	}
	return func(next tool.Handler) tool.Handler { return h.handler(def, next) }
}

func (h *hooks) handler(def *tool.Def, next tool.Handler) tool.Handler {
	upstream := def.ID.Server
	if h.own[def] {
		upstream = ""
	}
	return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		info := newInfo(h.view, h.env, def.ID.Name, upstream, call)
		with := *call
		call = &with
		// If two members have the same name, a hook might check one and the server use the other.
		call.Arguments = rawjson.Unique(call.Arguments)
		arguments := call.Arguments
		if len(arguments) == 0 || string(arguments) == "null" {
			arguments = json.RawMessage(`{}`)
		}
		changed, answer, err := h.run(ctx, def, info, preCall, arguments, nil)
		if answer != nil || err != nil {
			return answer, err
		}
		if changed != nil {
			if isEmpty(changed) && !isEmpty(arguments) { // probably a mistake: a hook that changes nothing returns None
				h.env.Log.InfoContext(ctx, "hook removed all arguments", "view", h.view, "tool", info.Name)
			}
			call.Arguments, arguments = changed, changed
		}
		if len(h.post) == 0 {
			return next(ctx, call)
		}
		call.Client = call.Client.WithoutTasks() // a task's result would not pass through the hooks
		result, err := next(ctx, call)
		if err != nil || !result.Complete() {
			return result, err
		}
		result = rawjson.Unique(result)
		changed, answer, err = h.run(ctx, def, info, postCall, arguments, json.RawMessage(result))
		switch {
		case answer != nil || err != nil:
			return answer, err
		case changed != nil:
			return tool.Result(changed), nil
		}
		return result, nil
	}
}

// run runs the hooks of an event for a tool, one after another. It returns the changed arguments or the changed result
// (nil for no change), or an answer that ends the call.
func (h *hooks) run(ctx context.Context, def *tool.Def, info *script.Info, name string, arguments, result json.RawMessage) (changed json.RawMessage, answer tool.Result, err error) {
	all, value, refused := h.pre, &arguments, "refused: "
	if name == postCall {
		all, value, refused = h.post, &result, "the tool was called, but its result is withheld: "
	}
	for _, one := range all {
		ctx, ran := telemetry.Start(ctx, telemetry.StageHook, one.name)
		got, err := one.run(ctx, info, arguments, result)
		ran(err)
		shape := ""
		if one.starlark && err == nil && got != nil {
			shape = answersAs(name, got, arguments, def)
		}
		switch {
		case err != nil || got == nil:
		case shape != "":
			err = &answerError{fmt.Sprintf("it returned {%q: ...}, which is how a command answers: %s", shape, instead), true}
		case name == postCall:
			got, err = asResult(got)
		case !isObject(got):
			err = noArguments(got)
		}
		var abort *AbortError
		switch {
		case errors.As(err, &abort):
			return nil, tool.ErrorResult(strings.TrimSuffix(refused+abort.Reason, ": ")), nil
		case err != nil:
			var wrong *answerError
			lenient := one.lenient && !(errors.As(err, &wrong) && wrong.closed)
			if answer, err := h.failed(ctx, info, name, one.name, lenient, err); answer != nil || err != nil {
				return nil, answer, err
			}
		case got != nil:
			*value, changed = got, got
		}
	}
	return changed, nil, nil
}

// failed logs a hook's failure and returns the answer, nil if the call goes on. The answer has only the part of the
// error that clients may see.
func (h *hooks) failed(ctx context.Context, info *script.Info, event, name string, lenient bool, err error) (tool.Result, error) {
	if ctx.Err() != nil { // cancelled by the client: no failure of the hook
		return nil, fmt.Errorf("%s hook of view %q: %w", event, h.view, ctx.Err())
	}
	h.env.Log.ErrorContext(ctx, "hook failed", "view", h.view, "event", event, "hook", name, "tool", info.Name, "continue", lenient, "error", err)
	if lenient {
		return nil, nil
	}
	text := fmt.Sprintf("hook %s of view %q failed: %s.", event, h.view, publicReason(err))
	if event == preCall {
		return tool.ErrorResult(text + " The tool was not called."), nil
	}
	return tool.ErrorResult(text + " The tool was called; its result is withheld."), nil
}

// publicReason returns the part of a hook's error that clients may see.
func publicReason(err error) string {
	var (
		answer   *answerError
		program  *hook.Error
		inPython *python.Error
		inScript *script.Error
	)
	switch {
	case errors.As(err, &answer): // must be first, because it may wrap an error with paths
		return answer.text
	case errors.As(err, &program):
		return program.Reason
	case errors.As(err, &inPython):
		return inPython.Reason
	case errors.As(err, &inScript):
		return strings.TrimSuffix(inScript.Error(), ".")
	}
	return "the log of toolfinch says why"
}

// answerError is a mistake in a hook or in its answer. Clients may see the text.
type answerError struct {
	text   string
	closed bool // the call fails regardless of on_error, because the hook may have wanted to refuse it
}

func (e *answerError) Error() string { return e.text }

func noArguments(got json.RawMessage) error {
	return &answerError{text: "the arguments it returned are not an object: " + excerpt(got)}
}

func isObject(raw []byte) bool {
	return bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) && json.Valid(raw)
}

func isEmpty(object json.RawMessage) bool {
	for range rawjson.Members(object) {
		return false
	}
	return true
}

// load loads a hook. If loading fails, run is a hook that always fails.
func (h *hooks) load(name string, configured *Hook) (run event, logged string, err error) {
	if configured.Module != "" {
		logged = filepath.Base(configured.Module) + ":" + configured.Function
		function, err := h.function(name, configured)
		return orFailing(inScript(h.env.Log, name, logged, function, hookLimits(configured)), err), logged, err
	}
	if configured.Python == "" {
		program := hook.Program{Argv: configured.Command, Dir: configured.Dir, Timeout: configured.timeout()}
		return inCommand(name, program), filepath.Base(configured.Command[0]), program.Check()
	}
	run, err = h.inPython(name, configured)
	return orFailing(run, err), configured.Python, err
}

// orFailing returns run if err is nil, else a hook that always fails with err.
func orFailing(run event, err error) event {
	if err == nil {
		return run
	}
	return func(context.Context, *script.Info, json.RawMessage, json.RawMessage) (json.RawMessage, error) {
		return nil, fmt.Errorf("%w: %w", &answerError{text: "it could not be loaded"}, err)
	}
}

func (h *hooks) function(name string, configured *Hook) (*script.Function, error) {
	program, err := h.env.Program(configured.Module)
	if err != nil {
		return nil, err
	}
	function, err := program.Function(configured.Function)
	if err != nil {
		return nil, err
	}
	takes := []string{"ctx", "args"}
	if name == postCall {
		takes = append(takes, "result")
	}
	required := 1
	for _, parameter := range function.Params {
		if !parameter.Optional {
			required++
		}
	}
	if required > len(takes) || 1+len(function.Params) < len(takes) {
		return nil, fmt.Errorf("%s does not take (%s), which %s is called with", configured.Function, strings.Join(takes, ", "), name)
	}
	return function, nil
}

// instead tells the author of a Starlark hook what to return in place of a command's answer object.
const instead = `call abort("reason") to refuse, return the new arguments or result themselves`

// answersAs reports a Starlark hook that returns a command's answer by mistake: {"abort": ...}, {"args": {...}} or
// {"result": {...}}. It returns the name of the member, else "". Names of the tool's arguments are no mistakes.
func answersAs(name string, got, arguments json.RawMessage, def *tool.Def) string {
	known := func(member string) bool {
		return name == preCall && (rawjson.Member(arguments, member) != nil ||
			rawjson.Member(rawjson.Member(def.InputSchema, "properties"), member) != nil)
	}
	changes, n, abort, changed := "args", 0, false, false
	if name == postCall {
		changes = "result"
	}
	for member, value := range rawjson.Members(got) {
		switch n++; {
		case known(member):
			return ""
		case member == "abort":
			abort = true
		case member == changes && isObject(value):
			changed = true
		default:
			return ""
		}
	}
	switch {
	case abort:
		return "abort"
	case changed && n == 1:
		return changes
	}
	return ""
}

func inScript(log *slog.Logger, name, logged string, function *script.Function, limits script.Limits) event {
	return func(ctx context.Context, info *script.Info, arguments, result json.RawMessage) (json.RawMessage, error) {
		say := func(text string) {
			log.InfoContext(ctx, "hook says", "view", info.View, "hook", logged, "tool", info.Name, "text", text)
		}
		values := []json.RawMessage{arguments, result}
		if name == preCall {
			values = values[:1]
		}
		got, err := function.Call(ctx, info, nil, limits, say, values...)
		var abort *script.AbortError
		if errors.As(err, &abort) {
			return nil, &AbortError{Reason: abort.Reason}
		}
		return got, err
	}
}

// hookRequest is the input of a command hook.
type hookRequest struct {
	Event  string          `json:"event"`
	Ctx    hookContext     `json:"ctx"`
	Args   json.RawMessage `json:"args"`
	Result json.RawMessage `json:"result,omitempty"`
}

// hookContext is a script.Info for a command hook. All members are always present.
type hookContext struct {
	View      string            `json:"view"`
	Tool      string            `json:"tool"`
	Name      string            `json:"name"`
	Upstream  string            `json:"upstream"`
	Session   string            `json:"session"`
	Client    string            `json:"client"`
	Principal *string           `json:"principal"` // null without a principal
	Headers   map[string]string `json:"headers"`
	Meta      json.RawMessage   `json:"meta"`
}

func inCommand(name string, program hook.Program) event {
	changes := "args"
	if name == postCall {
		changes = "result"
	}
	return func(ctx context.Context, info *script.Info, arguments, result json.RawMessage) (json.RawMessage, error) {
		request, err := rawjson.Encode(hookRequest{Event: name, Ctx: contextOf(info), Args: arguments, Result: result})
		if err != nil {
			return nil, fmt.Errorf("write the request of the hook: %w", err)
		}
		answer, err := program.Exchange(ctx, nil, request)
		if err != nil {
			return nil, err
		}
		return readAnswer(answer, changes)
	}
}

// readAnswer reads the answer of a command hook. An unknown member is an error, because the hook expects that it has an
// effect.
func readAnswer(answer []byte, changes string) (changed json.RawMessage, err error) {
	for key, value := range rawjson.Members(answer) {
		switch {
		case string(value) == "null":
		case key == "abort":
			var reason string
			if json.Unmarshal(value, &reason) != nil {
				return nil, &answerError{text: `the "abort" it answered is not text`}
			}
			return nil, &AbortError{Reason: reason}
		case key == changes:
			changed = value
		default:
			return nil, &answerError{text: fmt.Sprintf(`it answered a member %.40q; it can answer {}, {"%s": {...}} or {"abort": "reason"}`, key, changes)}
		}
	}
	return changed, nil
}

func contextOf(info *script.Info) hookContext {
	c := hookContext{
		View: info.View, Tool: info.Tool, Name: info.Name, Upstream: info.Upstream,
		Session: info.Session, Client: info.Client, Headers: info.Headers, Meta: info.Meta,
	}
	if info.Principal != "" {
		c.Principal = &info.Principal
	}
	if c.Headers == nil {
		c.Headers = map[string]string{}
	}
	if c.Meta == nil {
		c.Meta = json.RawMessage(`{}`)
	}
	return c
}

// newInfo returns the facts about a call that hooks and scripts may know. Scripts look up headers by lower-case names.
func newInfo(view string, env Env, name, upstream string, call *tool.Call) *script.Info {
	info := &script.Info{
		View: view, Tool: name, Name: call.Name, Upstream: upstream,
		Session: call.Session, Principal: call.Principal, Meta: rawjson.Member(call.Params, "_meta"),
	}
	if call.Client != nil {
		info.Client = call.Client.Name
	}
	if call.Header == nil {
		return info
	}
	for _, header := range env.Headers {
		if value := call.Header(header); value != "" {
			if info.Headers == nil {
				info.Headers = make(map[string]string, len(env.Headers))
			}
			info.Headers[strings.ToLower(header)] = value
		}
	}
	return info
}
