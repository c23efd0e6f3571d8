package configs

import (
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"toolfinch/tool"
	"toolfinch/view"
)

// viewName fits into a URL, and before the names of a view's own tools.
var viewName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,32}$`)

// viewKeys describes all keys of a view.
var viewKeys = section[view.Settings]{sep: ": ", check: checkView, keys: []key[view.Settings]{
	{
		name:  "description",
		doc:   "told to clients",
		value: in(func(v *view.Settings) *string { return &v.Description }).is(prose),
	},
	{
		name: "exposure_mode",
		doc: "`direct` lists the tools as they are; `retrieve` offers `retrieve_tools`; `search` offers `NAME_search_tools`, `NAME_describe_tool` and `NAME_call_tool`; " +
			"`search_per_server` three such for each server; `auto` is `direct` while the definitions cost up to `direct_below` tokens, else `retrieve`",
		value: in(func(v *view.Settings) *view.Exposure { return &v.Exposure }).is(choice[view.Exposure]{words: view.Exposures}, view.ExposureAuto),
	},
	{
		name:  "direct_below",
		doc:   "tokens",
		value: in(func(v *view.Settings) *int { return &v.DirectBelow }).is(number[int]{1, 10_000_000}, view.DefaultDirectBelow),
	},
	{
		name:  "tools",
		doc:   "by server, then by tool; see [below](#tools-of-a-view)",
		value: in(func(v *view.Settings) *[]view.UpstreamTools { return &v.Tools }).is(viewTools{}),
	},
	{
		name: "include_all", without: "`false`",
		doc:   "every tool of every server; `tools` then says what changes of them",
		value: in(func(v *view.Settings) *bool { return &v.IncludeAll }).is(boolean{only: true}),
	},
	{
		name:  "exclude",
		doc:   "patterns over `server.tool`: what `include_all` and patterns under `tools` shall not bring",
		value: in(func(v *view.Settings) *[]view.Pattern { return &v.Exclude }).is(list[view.Pattern]{item: pattern{}}),
	},
	{
		name:  "hooks",
		doc:   "see [Hooks](#hooks)",
		value: in(func(v *view.Settings) *view.Hooks { return &v.Hooks }).is(hooks{}),
	},
	{
		name:  "composite_tools",
		doc:   "see [Composite tools](#composite-tools)",
		value: in(func(v *view.Settings) *[]view.Composite { return &v.Composites }).is(composites),
	},
	{
		name:  "custom_tools",
		doc:   "tools written in Starlark: a list of `file.star:function`, or of mappings; see [Custom tools](#custom-tools)",
		value: in(func(v *view.Settings) *[]view.Custom { return &v.Customs }).is(list[view.Custom]{item: custom{}}),
	},
	{
		name: "run_script", without: "`false`",
		doc:   "whether a model may send a script that calls tools of the view: `true`, or the limits of [custom tools](#custom-tools)",
		value: in(func(v *view.Settings) **view.ScriptLimits { return &v.RunScript }).is(onOff[view.ScriptLimits]{section: limitKeys}),
	},
	{
		name: "gating", without: "the top level's",
		doc:   "see [Gating](#gating)",
		value: in(func(v *view.Settings) **view.Gating { return &v.Gating }).is(gatingKind),
	},
	{
		name: "proxy_tool", without: "the top level's",
		doc:   "see [The proxy tool](#the-proxy-tool)",
		value: in(func(v *view.Settings) *string { return &v.ProxyTool }).is(proxyTool{}),
	},
}}

// viewOrigin is where a view came from and which names it gives.
type viewOrigin struct {
	key, value *node
	label      string
	taken      claims
}

// views are the views by name, read once all servers are known.
type views struct{}

func (views) read(d *decoder, n *node, label string, to *[]view.Settings) bool {
	if n.outside() {
		d.fail(n, label+" can only be set in the file", "")
		return false
	}
	if n.kind != kindMapping {
		d.fail(n, label+" must be a mapping of names to views, not "+string(n.kind), "")
		return false
	}
	names := []string{view.Default}
	for _, p := range d.unique(n, "view") {
		name := p.key.text
		if i := slices.IndexFunc(names, func(other string) bool { return other != name && strings.EqualFold(other, name) }); i >= 0 {
			d.fail(p.key, fmt.Sprintf("views %q and %q differ in case only", names[i], shorten(name)), "")
		}
		names = append(names, name)
		if !viewName.MatchString(name) {
			d.fail(p.key, fmt.Sprintf("illegal view name %q: 1 to 32 letters, digits, _ and -", shorten(name)), "it becomes part of a URL and of names of tools")
		}
		d.taken = make(claims)
		from := viewOrigin{p.key, p.value, fmt.Sprintf("view %q", shorten(name)), d.taken}
		v := viewKeys.fresh()
		v.Name, v.At = name, placeOf(p.key)
		if viewKeys.read(d, p.value, from.label, &v) {
			*to = append(*to, v)
			d.views = append(d.views, from)
		}
	}
	return true
}

func (views) show(s *secrets, list []view.Settings) *node {
	return named[view.Settings]{item: viewKeys, name: func(v *view.Settings) string { return v.Name }}.show(s, list)
}

// completeViews gives the views what they leave to the top level, once environment
// and flags are known too, and looks at what can be wrong with it.
func (d *decoder) completeViews(c *Config) {
	hasDefault := false
	for i, from := range d.views {
		v, at := &c.Views[i], from.key
		hasDefault = hasDefault || v.Name == view.Default
		if from.value.given("gating") == nil {
			v.Gating = c.Gating
		}
		if own := from.value.given("proxy_tool"); own != nil {
			at = own
		} else {
			v.ProxyTool = c.ProxyTool
		}
		d.checkGating(v, from.value, from.label)
		d.checkProxyTool(c, v, from.taken, at, from.label)
	}
	if !hasDefault {
		from := d.origins["proxy_tool"]
		d.checkProxyTool(c, &view.Settings{Name: view.Default, IncludeAll: true, ProxyTool: c.ProxyTool}, nil, from.node, from.label)
	}
}

// checkView looks at what several keys of a view say together.
func checkView(d *decoder, n *node, label string, v *view.Settings) {
	tools := n.given("tools")
	for _, name := range d.searchTools(v, tools) {
		if other, taken := d.taken[name]; taken {
			d.failOwn(other.node, other.label)
		}
		d.taken[name] = origin{}
	}
	hint := `write "*": {} for all of them`
	if v.IncludeAll {
		hint = "include_all has brought them already"
	}
	if tools != nil {
		for _, p := range tools.pairs {
			if p.value.kind == kindNull || p.value.kind == kindMapping && len(p.value.pairs) == 0 {
				d.warn(p.key, label+": tools."+shorten(p.key.text)+" names no tools", hint)
			}
		}
	}
	selects, globs := false, false
	for _, s := range v.Tools {
		for _, o := range s.Tools {
			selects = selects || !o.Disabled
			globs = globs || isGlob(o.Tool)
		}
	}
	if !selects && !v.IncludeAll && len(v.Composites)+len(v.Customs) == 0 {
		d.warn(&node{line: v.At.Line, column: v.At.Column}, label+" has nothing in it", "name tools under tools, or write include_all: true")
	}
	if exclude := n.given("exclude"); exclude != nil && !v.IncludeAll && !globs {
		d.warn(exclude, label+": exclude is not used without include_all or a pattern of tools", "")
	}
}

// searchTools are the names of the tools that search the view, or each of its
// servers.
func (d *decoder) searchTools(v *view.Settings, tools *node) []string {
	switch v.Exposure {
	case view.ExposureSearch:
		return searchNames(v.Name)
	case view.ExposureSearchPerServer:
	default:
		return nil
	}
	var names []string
	seen := map[string]int{}
	for _, server := range d.known {
		if d.off[server] || !v.IncludeAll && (tools == nil || tools.find(server) == nil) {
			continue
		}
		prefix := server
		first := searchNames(server)[0]
		if seen[first]++; seen[first] > 1 { // servers a.b and a_b
			prefix = fmt.Sprintf("%d_%s", seen[first], server)
		}
		names = append(names, searchNames(prefix)...)
	}
	return names
}

var notInToolName = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

// searchNames are the names that package retrieve, which is not below this one,
// gives the tools that search what prefix names.
func searchNames(prefix string) []string {
	prefix = notInToolName.ReplaceAllString(prefix, "_")
	prefix = prefix[:min(len(prefix), 64-len("_describe_tool"))]
	return []string{prefix + "_search_tools", prefix + "_describe_tool", prefix + "_call_tool"}
}

// viewTools is what a view has of each server.
type viewTools struct{}

func (viewTools) read(d *decoder, n *node, label string, to *[]view.UpstreamTools) bool {
	if n.kind != kindMapping {
		d.fail(n, label+" must be a mapping of servers to their tools, not "+string(n.kind), "")
		return false
	}
	taken := d.taken
	for _, p := range d.unique(n, "server") {
		name := p.key.text
		d.taken = taken
		switch {
		case !d.knowsServer(name):
			d.fail(p.key, fmt.Sprintf("%s: there is no server %q", label, shorten(name)), d.serverHint(name))
		case d.off[name]:
			d.warn(p.key, fmt.Sprintf("%s: server %q is disabled: its tools are left out", label, name), "")
			d.taken = make(claims) // looked at, and taken by nobody
		}
		s := view.UpstreamTools{Name: name, At: placeOf(p.key)}
		if p.value.kind != kindNull {
			overrides.read(d, p.value, label+"."+shorten(name), &s.Tools)
		}
		if !d.off[name] {
			*to = append(*to, s)
		}
	}
	d.taken = taken
	return true
}

func (viewTools) show(s *secrets, list []view.UpstreamTools) *node {
	if len(list) == 0 {
		return nil
	}
	n := &node{kind: kindMapping}
	for _, of := range list {
		tools := overrides.show(s, of.Tools)
		if tools == nil {
			tools = &node{kind: kindMapping}
		}
		n.pairs = append(n.pairs, pair{textNode(of.Name), tools})
	}
	return n
}

// knowsServer reports whether a server has that name, enabled or not. Where none
// could be read, any has: one error is enough.
func (d *decoder) knowsServer(name string) bool {
	return len(d.known) == 0 && len(d.errors) > 0 || slices.Contains(d.known, name)
}

func (d *decoder) serverHint(name string) string {
	if len(d.known) == 0 {
		return emptyHint
	}
	const most = 10 // names in a hint
	if len(d.known) > most {
		return nearHint(name, d.known)
	}
	return didYouMean(name, d.known)
}

// splitTool takes server.tool apart: the server is the longest one whose name it
// begins with, as names may have dots.
func (d *decoder) splitTool(id string) (server, tool string, ok bool) {
	for _, name := range d.known {
		rest, found := strings.CutPrefix(id, name+".")
		if found && rest != "" && len(name) >= len(server) {
			server, tool, ok = name, rest, true
		}
	}
	return server, tool, ok
}

// pattern is a glob over server.tool.
type pattern struct{}

func (pattern) read(d *decoder, n *node, label string, to *view.Pattern) bool {
	to.At = placeOf(n)
	if !d.text(n, label, &to.Glob) {
		return false
	}
	if _, err := path.Match(to.Glob, ""); err != nil || to.Glob == "" {
		d.mustBe(n, label, "a pattern over server.tool", `like "files.write_*"`)
		return false
	}
	return true
}

func (pattern) show(s *secrets, p view.Pattern) *node { return prose.show(s, p.Glob) }

// hooks are those of a view. Without their own on_error and timeout they have the
// block's.
type hooks struct{}

// hooksBlock is a hooks block while it is read.
type hooksBlock struct {
	view.Hooks
	keep    bool // on_error: continue
	timeout time.Duration
}

var hooksKeys = section[hooksBlock]{keys: []key[hooksBlock]{
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

func (hooks) read(d *decoder, n *node, label string, to *view.Hooks) bool {
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
		if n.find(one.key).given("on_error") == nil {
			one.hook.Continue = h.keep
		}
		if n.find(one.key).given("timeout") == nil {
			one.hook.Timeout = h.timeout
		}
	}
	*to = h.Hooks
	return true
}

func (hooks) show(s *secrets, h view.Hooks) *node {
	n := &node{kind: kindMapping}
	for _, p := range []pair{{textNode("pre_call"), hook{}.show(s, h.PreCall)}, {textNode("post_call"), hook{}.show(s, h.PostCall)}} {
		if p.value != nil {
			n.pairs = append(n.pairs, p)
		}
	}
	if len(n.pairs) == 0 {
		return nil
	}
	return n
}

// hook is file:function, or a mapping.
type hook struct{}

var hookKeys = section[view.Hook]{keys: []key[view.Hook]{
	{
		name:  "starlark",
		doc:   "`file.star:function`",
		value: in(all[view.Hook]).is(function[view.Hook]{func(h *view.Hook) (module, name *string) { return &h.Module, &h.Function }}),
	},
	{
		name:  "command",
		doc:   "a program and its arguments, run in the folder of the configuration file",
		value: in(func(h *view.Hook) *[]string { return &h.Command }).is(list[string]{item: str{word: true, empty: true}, mask: (*secrets).words}),
	},
	{
		name:  "on_error",
		doc:   "a hook that fails fails the call; `continue`: it is logged and the call goes on",
		value: in(func(h *view.Hook) *bool { return &h.Continue }).is(onError{on: "continue"}),
	},
	{
		name:  "timeout",
		doc:   "how long one run may take",
		value: in(func(h *view.Hook) *time.Duration { return &h.Timeout }).is(duration{}, view.DefaultHookTimeout),
	},
}}

func (hook) read(d *decoder, n *node, label string, to **view.Hook) bool {
	h := view.Hook{At: placeOf(n)}
	starlark, command := n.given("starlark"), n.given("command")
	switch {
	case n.kind == kindText:
		if !hookKeys.find("starlark").value.read(d, n, label, &h) {
			return false
		}
	case n.kind != kindMapping:
		d.fail(n, label+" must be text or a mapping, not "+string(n.kind), "file.star:function, or {command: [program, argument]}")
		return false
	case !hookKeys.read(d, n, label, &h):
		return false
	case starlark != nil && command != nil:
		d.fail(command, label+" has both starlark and command", "keep one")
		return false
	case starlark == nil && command == nil:
		d.fail(n, label+" has neither starlark nor command", "")
		return false
	case command != nil && command.kind == kindList && len(command.items) == 0:
		d.fail(command, label+".command is empty", "write the program and its arguments")
		return false
	case command != nil:
		h.Dir = d.dir
		if len(h.Command) == len(command.items) && len(h.Command) > 0 {
			h.Command[0] = d.program(command.items[0], label+".command[0]", h.Command[0])
		}
	}
	*to = &h
	return true
}

func (hook) show(s *secrets, h *view.Hook) *node {
	if h == nil {
		return nil
	}
	return hookKeys.show(s, *h)
}

// program makes the path of a program absolute, and leaves a name to look for in
// PATH as it is.
func (d *decoder) program(n *node, label, name string) string {
	if strings.TrimSpace(name) == "" {
		d.fail(n, label+" is empty", "the program comes first")
		return name
	}
	if !isRelativeCommand(name) && !strings.HasPrefix(name, "~") && !filepath.IsAbs(name) {
		return name
	}
	if d.absolute(n, label, &name) && runtime.GOOS != "windows" && !isFile(name) { // there a program runs without its .exe
		d.fail(n, label+" names a program that is not there: "+n.String(), "a relative path starts at the folder of this file")
	}
	return name
}

// function is file:function of a Starlark module.
type function[T any] struct {
	in func(to *T) (module, name *string)
}

var functionName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (k function[T]) read(d *decoder, n *node, label string, to *T) bool {
	var text string
	if !d.text(n, label, &text) {
		return false
	}
	colon := strings.LastIndexByte(text, ':')
	if colon < 1 || !functionName.MatchString(text[colon+1:]) {
		d.mustBe(n, label, "a file of Starlark and a function in it", "like hooks/example.star:function")
		return false
	}
	file := filepath.FromSlash(text[:colon])
	if !d.absolute(n, label, &file) {
		return false
	}
	if !isFile(file) {
		d.fail(n, label+" names a file that is not there: "+n.String(), "a relative path starts at the folder of this file")
		return false
	}
	module, name := k.in(to)
	*module, *name = file, text[colon+1:]
	return true
}

func (k function[T]) show(s *secrets, from T) *node {
	module, name := k.in(&from)
	if *module == "" {
		return nil
	}
	return textNode(s.known(*module) + ":" + *name)
}

// limitKeys describes the keys of run_script, and of a custom tool beside its own.
var limitKeys = section[view.ScriptLimits]{keys: scriptLimits(all[view.ScriptLimits])}

// scriptLimits describes the limits of a script in a T.
func scriptLimits[T any](of func(*T) *view.ScriptLimits) []key[T] {
	return []key[T]{
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
			doc:   "how long one run may take",
			value: in(func(to *T) *time.Duration { return &of(to).Time }).is(duration{}, view.DefaultScriptTime),
		},
		{
			name:  "max_output",
			doc:   "bytes of the result as JSON",
			value: in(func(to *T) *int { return &of(to).Output }).is(size{}, view.DefaultScriptOutput),
		},
	}
}

// customKeys describes all keys of a custom tool.
var customKeys = section[view.Custom]{keys: append([]key[view.Custom]{
	{
		name:  "module",
		doc:   "`file.star:function`",
		value: in(all[view.Custom]).is(function[view.Custom]{func(c *view.Custom) (module, name *string) { return &c.Module, &c.Function }}),
	},
	{
		name: "name", without: "the function's",
		doc:   "what clients call the tool",
		value: in(func(c *view.Custom) *string { return &c.Name }).is(str{}),
	},
}, scriptLimits(func(c *view.Custom) *view.ScriptLimits { return &c.Limits })...)}

// custom is a tool that is written in Starlark: file:function, or a mapping.
type custom struct{}

func (custom) read(d *decoder, n *node, label string, c *view.Custom) bool {
	*c = customKeys.fresh()
	c.At = placeOf(n)
	module, name := n, n.given("name")
	switch n.kind {
	case kindText:
		if !customKeys.find("module").value.read(d, n, label, c) {
			return false
		}
	case kindMapping:
		customKeys.read(d, n, label, c)
		if module = n.given("module"); module == nil {
			d.fail(n, label+" has no module", "write module: file.star:function")
			return false
		}
	default:
		d.fail(n, label+" must be text or a mapping, not "+string(n.kind), "like hooks/example.star:function")
		return false
	}
	switch {
	case name != nil && name.kind == kindText:
		d.claim(name, label+".name", c.Name)
	case c.Function != "":
		d.claim(module, label+": its function", c.Function)
	}
	return true
}

func (custom) show(s *secrets, c view.Custom) *node { return customKeys.show(s, c) }

// gating is a gating block while it is read.
type gating struct {
	view.Gating
	enabled bool
}

// gatingKeys describes all keys of gating.
var gatingKeys = section[gating]{keys: []key[gating]{
	{
		name:  "enabled",
		doc:   "a mapping is on unless it says otherwise",
		value: in(func(g *gating) *bool { return &g.enabled }).is(boolean{}, true),
	},
	{
		name:  "max_tokens",
		doc:   "of the definitions of what a client has provisioned, up to 10000000; `0` is no bound",
		value: in(func(g *gating) *int { return &g.MaxTokens }).is(number[int]{0, 10_000_000}, view.DefaultMaxTokens),
	},
	{
		name:  "max_tools",
		doc:   "up to 1000000; `0` is no bound",
		value: in(func(g *gating) *int { return &g.MaxTools }).is(number[int]{0, 1_000_000}, view.DefaultMaxTools),
	},
	{
		name: "ttl", without: "for good",
		doc:   "how long a tool stays provisioned, at most, up to 24h",
		value: in(func(g *gating) *time.Duration { return &g.TTL }).is(duration{}),
	},
}}

// gatingKind is true, false or a mapping; nil when tools need not be provisioned.
var gatingKind = gatingOnOff{onOff[gating]{section: gatingKeys, empty: true}}

type gatingOnOff struct{ onOff onOff[gating] }

func (k gatingOnOff) read(d *decoder, n *node, label string, to **view.Gating) bool {
	var g *gating
	ok := k.onOff.read(d, n, label, &g)
	*to = nil
	if ok && g != nil && g.enabled {
		*to = &g.Gating
	}
	return ok
}

func (k gatingOnOff) show(s *secrets, g *view.Gating) *node {
	if g == nil {
		return k.onOff.show(s, nil)
	}
	return k.onOff.show(s, &gating{*g, true})
}

// checkGating refuses a view that is to list everything and only what was
// provisioned. n is what the view says.
func (d *decoder) checkGating(v *view.Settings, n *node, label string) {
	if v.Gating == nil || v.Exposure != view.ExposureDirect {
		return
	}
	at := n.given("gating")
	if at == nil { // it is the top level's
		at = n.given("exposure_mode")
	}
	d.fail(at, label+": exposure_mode direct lists every tool, but gating only those that were provisioned",
		"choose another exposure_mode, or write gating: false in the view")
}

// proxyToolKeys describes all keys of proxy_tool.
var proxyToolKeys = section[string]{keys: []key[string]{{
	name:  "name",
	doc:   "what clients call it",
	value: in(all[string]).is(proxyName{}, view.DefaultProxyTool),
}}}

// proxyTool is true, false, a name or a mapping; "" when there is no proxy tool.
type proxyTool struct{}

func (proxyTool) read(d *decoder, n *node, label string, to *string) bool {
	*to = ""
	word := n.text
	switch n.kind {
	case kindMapping:
		*to = proxyToolKeys.fresh()
		return proxyToolKeys.read(d, n, label, to)
	case kindBool:
	case kindText:
		if !d.text(n, label, &word) {
			return false
		}
		if !isBool(word) || !n.outside() && !isVariable(n.text) {
			return proxyName{}.read(d, n, label, to)
		}
	default:
		d.mustBe(n, label, "true, false, a name or a mapping", "its keys: "+strings.Join(proxyToolKeys.names(), ", "))
		return false
	}
	if word == "true" {
		*to = view.DefaultProxyTool
	}
	return true
}

func (proxyTool) show(s *secrets, name string) *node {
	if name == "" {
		return boolNode(false)
	}
	return str{}.show(s, name)
}

// proxyName is the name of the proxy tool. It cannot be what was meant to switch
// it off, lest it be on under the name of no.
type proxyName struct{}

func (proxyName) read(d *decoder, n *node, label string, to *string) bool {
	*to = ""
	var name string
	if !d.text(n, label, &name) {
		return false
	}
	if slices.Contains(notText, strings.ToLower(name)) {
		d.mustBe(n, label, "the name of a tool", "true and false, without quotes, switch the proxy tool on and off")
		return false
	}
	if !d.checkExposed(n, label, name) {
		return false
	}
	*to = name
	return true
}

func (proxyName) show(s *secrets, name string) *node { return str{}.show(s, name) }

// checkProxyTool refuses a proxy tool with the name of another tool of the view.
// taken are the names that the view gave; those given under servers are in c.
func (d *decoder) checkProxyTool(c *Config, v *view.Settings, taken claims, at *node, label string) {
	if v.ProxyTool == "" {
		return
	}
	const choose = "choose another one: proxy_tool: NAME"
	line := 0
	switch first, given := taken[v.ProxyTool]; {
	case given && first.node == nil:
		d.fail(at, label+": the proxy tool has the name of one of the tools that search the view", choose)
		return
	case given:
		line = first.node.line
	default:
		line = namedUnderServer(c, v, v.ProxyTool)
	}
	if line > 0 {
		d.fail(at, label+": the proxy tool has the name of another tool", fmt.Sprintf("of the one on line %d; %s", line, choose))
	}
}

// namedUnderServer returns the line of the tool that was given the name under its
// server and that the view may have by it; 0 for none.
func namedUnderServer(c *Config, v *view.Settings, name string) int {
	for _, s := range c.Tools {
		for _, o := range s.Tools {
			if o.Name == name && !o.Disabled && mayKeepName(v, s.Name, o.Tool) {
				return o.At.Line
			}
		}
	}
	return 0
}

// mayKeepName reports whether a view may have a tool by the name that it has
// under its server. What patterns leave out is not looked at.
func mayKeepName(v *view.Settings, server, name string) bool {
	left := v.IncludeAll && v.Excludes(tool.ID{Server: server, Name: name})
	i := slices.IndexFunc(v.Tools, func(s view.UpstreamTools) bool { return s.Name == server })
	if i < 0 {
		return v.IncludeAll && !left
	}
	own := v.Tools[i].Tools
	if i = slices.IndexFunc(own, func(o view.Override) bool { return o.Tool == name }); i >= 0 {
		return !own[i].Disabled && own[i].Name == ""
	}
	return !left
}
