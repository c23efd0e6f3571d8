package configs

import (
	"cmp"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"toolfinch/internal/document"
	"toolfinch/view"
)

// hooks are the hooks of a view. The block's on_error and timeout are defaults.
type hooks struct{}

// hooksBlock is a hooks block while it is read.
type hooksBlock struct {
	view.Hooks
	keep    bool // on_error: continue
	timeout time.Duration
}

var hooksKeys = section[hooksBlock]{keys: keys{
	{
		name:  "pre_call",
		doc:   "runs before each call",
		value: in(func(h *hooksBlock) **view.Hook { return &h.PreCall }).is(hook{}),
	},
	{
		name:  "post_call",
		doc:   "runs after each call",
		value: in(func(h *hooksBlock) **view.Hook { return &h.PostCall }).is(hook{}),
	},
	{
		name:  "on_error",
		doc:   "for hooks without their own",
		value: in(func(h *hooksBlock) *bool { return &h.keep }).is(onError{on: "continue"}),
	},
	{
		name:  "timeout",
		doc:   "for hooks without their own",
		value: in(func(h *hooksBlock) *time.Duration { return &h.timeout }).is(duration{}, view.DefaultHookTimeout),
	},
}}

func (hooks) read(d *decoder, n *document.Node, label string, to *view.Hooks) bool {
	h := hooksKeys.fresh()
	if !hooksKeys.read(d, n, label, &h) {
		return false
	}
	for _, one := range []struct {
		key  string
		hook *view.Hook
	}{{"pre_call", h.PreCall}, {"post_call", h.PostCall}} {
		if one.hook == nil {
			continue
		}
		if n.Find(one.key).Given("on_error") == nil {
			one.hook.Continue = h.keep
		}
		if n.Find(one.key).Given("timeout") == nil {
			one.hook.Timeout = h.timeout
		}
	}
	*to = h.Hooks
	return true
}

func (hooks) show(s *secrets, h view.Hooks) *document.Node {
	n := &document.Node{Kind: document.Mapping}
	for _, p := range []document.Pair{{Key: document.NewText("pre_call"), Value: hook{}.show(s, h.PreCall)}, {Key: document.NewText("post_call"), Value: hook{}.show(s, h.PostCall)}} {
		if p.Value != nil {
			n.Pairs = append(n.Pairs, p)
		}
	}
	if len(n.Pairs) == 0 {
		return nil
	}
	return n
}

func (hooks) schema() schema { return hooksKeys.schema() }

// hook is file:function, a dotted path of Python, or a mapping.
type hook struct{}

var hookKeys = section[view.Hook]{keys: keys{
	{
		name:  "starlark",
		doc:   "`file.star:function`",
		value: in(all[view.Hook]).is(function[view.Hook]{in: func(h *view.Hook) (module, name *string) { return &h.Module, &h.Function }}),
	},
	{
		name:  "python",
		doc:   "a dotted path, such as `hooks.memory.inject`",
		value: in(func(h *view.Hook) *string { return &h.Python }).is(str{check: dottedPath}),
	},
	{
		name:  "command",
		doc:   "a program and its arguments",
		value: in(func(h *view.Hook) *[]string { return &h.Command }).is(list[string]{item: str{word: true, empty: true}, mask: (*secrets).words}),
	},
	{
		name:  "on_error",
		doc:   "a failed hook fails the call; `continue`: it is only logged",
		value: in(func(h *view.Hook) *bool { return &h.Continue }).is(onError{on: "continue"}),
	},
	{
		name:  "timeout",
		doc:   "limit for one run",
		value: in(func(h *view.Hook) *time.Duration { return &h.Timeout }).is(duration{}, view.DefaultHookTimeout),
	},
}}

func (hook) read(d *decoder, n *document.Node, label string, to **view.Hook) bool {
	h := view.Hook{At: placeOf(n)}
	starlark, command, python := n.Given("starlark"), n.Given("command"), n.Given("python")
	switch {
	case n.Kind == document.Text && isDotted(n.Text):
		h.Python = n.Text
	case n.Kind == document.Text:
		if !hookKeys.find("starlark").value.read(d, n, label, &h) {
			return false
		}
	case n.Kind != document.Mapping:
		d.fail(n, label+" must be text or a mapping, not "+string(n.Kind), "file.star:function, module.function of Python, or {command: [program, argument]}")
		return false
	case !hookKeys.read(d, n, label, &h):
		return false
	case starlark != nil && command != nil:
		d.fail(command, label+" has both starlark and command", "keep one")
		return false
	case python != nil && (starlark != nil || command != nil):
		d.fail(python, label+" has python beside starlark or command", "keep one")
		return false
	case starlark == nil && command == nil && python == nil:
		d.fail(n, label+" has neither starlark, command nor python", "")
		return false
	case command != nil && command.Kind == document.List && len(command.Items) == 0:
		d.fail(command, label+".command is empty", "write the program and its arguments")
		return false
	case command != nil:
		h.Dir = d.dir
		if len(h.Command) == len(command.Items) && len(h.Command) > 0 {
			h.Command[0] = d.program(command.Items[0], label+".command[0]", h.Command[0])
		}
	}
	*to = &h
	return true
}

func (hook) show(s *secrets, h *view.Hook) *document.Node {
	if h == nil {
		return nil
	}
	return hookKeys.show(s, *h)
}

func (hook) schema() schema { return anyOf(anyText, hookKeys.schema()) }

// function is file:function of a Starlark module, or a dotted path if python is not nil.
type function[T any] struct {
	in     func(to *T) (module, name *string)
	python func(to *T) *string
}

var functionName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (k function[T]) read(d *decoder, n *document.Node, label string, to *T) bool {
	var text string
	if !d.text(n, label, &text) {
		return false
	}
	if k.python != nil && isDotted(text) {
		*k.python(to) = text
		return true
	}
	colon := strings.LastIndexByte(text, ':')
	hint := "like hooks/example.star:function, or hooks.example.function for Python"
	if module, name, ok := strings.Cut(text, ".py"); ok {
		hint = "Python is named by a dotted path, like " + strings.NewReplacer("/", ".", `\`, ".").Replace(module) + "." + cmp.Or(strings.TrimPrefix(name, ":"), "function")
	}
	if colon < 1 || !functionName.MatchString(text[colon+1:]) || strings.HasSuffix(text[:colon], ".py") {
		d.mustBe(n, label, "a file of Starlark and a function in it", hint)
		return false
	}
	file := filepath.FromSlash(text[:colon])
	if !d.absolute(n, label, &file) {
		return false
	}
	if !isFile(file) {
		d.fail(n, label+" names a file that is not there: "+asWritten(n), "a relative path starts at the folder of this file")
		return false
	}
	module, name := k.in(to)
	*module, *name = file, text[colon+1:]
	return true
}

func (k function[T]) show(s *secrets, from T) *document.Node {
	module, name := k.in(&from)
	switch {
	case k.python != nil && *k.python(&from) != "":
		return document.NewText(*k.python(&from))
	case *module == "":
		return nil
	}
	return document.NewText(s.known(*module) + ":" + *name)
}

func (function[T]) schema() schema { return anyText }

// limitKeys are the keys of run_script, which a custom tool has, too.
var limitKeys = section[view.ScriptLimits]{keys: scriptLimits(all[view.ScriptLimits])}

// scriptLimits are the keys of a script's limits in a T.
func scriptLimits[T any](of func(*T) *view.ScriptLimits) keys {
	return keys{
		{
			name:  "max_calls",
			doc:   "calls of other tools",
			value: in(func(to *T) *int { return &of(to).Calls }).is(number[int]{1, 100_000}, view.DefaultScriptCalls),
		},
		{
			name:  "max_steps",
			doc:   "steps of the interpreter",
			value: in(func(to *T) *uint64 { return &of(to).Steps }).is(number[uint64]{1, 2_000_000_000}, view.DefaultScriptSteps),
		},
		{
			name:  "timeout",
			doc:   "limit for one run",
			value: in(func(to *T) *time.Duration { return &of(to).Time }).is(duration{}, view.DefaultScriptTime),
		},
		{
			name:  "max_output",
			doc:   "bytes of the result as JSON",
			value: in(func(to *T) *int { return &of(to).Output }).is(size{}, view.DefaultScriptOutput),
		},
	}
}

// customKeys are the keys of a custom tool.
var customKeys = section[view.Custom]{keys: append(keys{
	{
		name: "module",
		doc:  "`file.star:function`, or a dotted Python path of a function or module",
		value: in(all[view.Custom]).is(function[view.Custom]{
			in:     func(c *view.Custom) (module, name *string) { return &c.Module, &c.Function },
			python: func(c *view.Custom) *string { return &c.Python },
		}),
	},
	{
		name: "name", without: "the function's",
		doc:   "what clients call the tool",
		value: in(func(c *view.Custom) *string { return &c.Name }).is(str{}),
	},
}, scriptLimits(func(c *view.Custom) *view.ScriptLimits { return &c.Limits })...)}

// custom is a tool in Starlark or Python: file:function, a dotted path, or a mapping.
type custom struct{}

func (custom) read(d *decoder, n *document.Node, label string, c *view.Custom) bool {
	*c = customKeys.fresh()
	c.At = placeOf(n)
	module, name := n, n.Given("name")
	switch n.Kind {
	case document.Text:
		if !customKeys.find("module").value.read(d, n, label, c) {
			return false
		}
	case document.Mapping:
		customKeys.read(d, n, label, c)
		if module = n.Given("module"); module == nil {
			d.fail(n, label+" has no module", "write module: file.star:function")
			return false
		}
	default:
		d.fail(n, label+" must be text or a mapping, not "+string(n.Kind), "like hooks/example.star:function")
		return false
	}
	switch {
	case name != nil && name.Kind == document.Text:
		d.claim(name, label+".name", c.Name)
	case c.Function != "":
		d.claim(module, label+": its function", c.Function)
	}
	return true
}

func (custom) show(s *secrets, c view.Custom) *document.Node { return customKeys.show(s, c) }
func (custom) schema() schema                                { return anyOf(anyText, customKeys.schema()) }
