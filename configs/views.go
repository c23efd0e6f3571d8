package configs

import (
	"cmp"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"toolfinch/view"
)

// viewName fits into a URL, and before the names of a view's own tools.
var viewName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,32}$`)

// viewSettings are all keys of a view, in the order of the example file. Those
// with more to know than their value are read by (*decoder).view.
var viewSettings = []field[view.Settings]{
	{key: "description", set: func(d *decoder, v *view.Settings, n *node, label string) {
		d.text(n, label, &v.Description)
	}},
	{key: "exposure_mode", set: func(d *decoder, v *view.Settings, n *node, label string) {
		choose(d, n, label, view.Exposures, &v.Exposure)
	}},
	{key: "direct_below", set: func(d *decoder, v *view.Settings, n *node, label string) {
		d.number(n, label, 1, 10_000_000, &v.DirectBelow)
	}},
	{key: "tools", set: func(*decoder, *view.Settings, *node, string) {}},
	{key: "include_all", set: func(d *decoder, v *view.Settings, n *node, label string) {
		d.boolean(n, label, &v.IncludeAll)
	}},
	{key: "exclude", set: func(d *decoder, v *view.Settings, n *node, label string) {
		v.Exclude = d.patterns(n, label)
	}},
	{key: "hooks", set: func(d *decoder, v *view.Settings, n *node, label string) {
		d.hooks(n, label, &v.Hooks)
	}},
	{key: "composite_tools", set: func(*decoder, *view.Settings, *node, string) {}},
	{key: "custom_tools", set: func(*decoder, *view.Settings, *node, string) {}},
	{key: "run_script", set: func(d *decoder, v *view.Settings, n *node, label string) {
		v.RunScript = d.runScript(n, label)
	}},
	{key: "gating", set: func(d *decoder, v *view.Settings, n *node, label string) {
		v.Gating = d.gating(n, label)
	}},
	{key: "proxy_tool", set: func(d *decoder, v *view.Settings, n *node, label string) {
		v.ProxyTool = d.proxyTool(n, label)
	}},
}

// viewOrigin is where a view came from and which names it gives.
type viewOrigin struct {
	key, value *node
	label      string
	taken      claims
}

// toolViews reads the views, once all servers are known.
func (d *decoder) toolViews(c *Config, n *node, label string) {
	if n.kind != kindMapping {
		d.fail(n, label+" must be a mapping of names to views, not "+string(n.kind), "")
		return
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
		from := viewOrigin{p.key, p.value, fmt.Sprintf("view %q", shorten(name)), make(claims)}
		if v := d.view(from); v != nil {
			c.Views = append(c.Views, *v)
			d.views = append(d.views, from)
		}
	}
}

// settleViews gives the views what they leave to the top level, once environment
// and flags are known too, and looks at what can be wrong with it.
func (d *decoder) settleViews(c *Config) {
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
		all := view.Settings{Name: view.Default, IncludeAll: true, ProxyTool: c.ProxyTool}
		d.checkProxyTool(c, &all, nil, d.proxy.node, d.proxy.label)
	}
}

// view reads one view; nil when it is none at all.
func (d *decoder) view(from viewOrigin) *view.Settings {
	key, n, label, taken := from.key, from.value, from.label, from.taken
	v := &view.Settings{Name: key.text, At: placeOf(key), Exposure: view.ExposureAuto, DirectBelow: view.DefaultDirectBelow}
	if !fields(d, n, label, label+": ", viewSettings, v) {
		return nil
	}
	for _, name := range d.searchTools(v, n.given("tools")) {
		taken[name] = ownTool
	}
	if tools := n.given("tools"); tools != nil {
		v.Tools = d.viewTools(tools, label+": tools", v.IncludeAll, taken)
	}
	if composites := n.given("composite_tools"); composites != nil {
		v.Composites = d.composites(composites, label+": composite_tools", taken)
	}
	if customs := n.given("custom_tools"); customs != nil {
		v.Customs = d.customs(customs, label+": custom_tools", taken)
	}
	selects, globs := false, false
	for _, s := range v.Tools {
		for _, o := range s.Tools {
			selects = selects || !o.Disabled
			globs = globs || isGlob(o.Tool)
		}
	}
	if !selects && !v.IncludeAll && len(v.Composites)+len(v.Customs) == 0 {
		d.warn(key, label+" has nothing in it", "name tools under tools, or write include_all: true")
	}
	if exclude := n.given("exclude"); exclude != nil && !v.IncludeAll && !globs {
		d.warn(exclude, label+": exclude is not used without include_all or a pattern of tools", "")
	}
	return v
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

// viewTools reads what a view has of each server.
func (d *decoder) viewTools(n *node, label string, all bool, taken claims) []view.UpstreamTools {
	if n.kind != kindMapping {
		d.fail(n, label+" must be a mapping of servers to their tools, not "+string(n.kind), "")
		return nil
	}
	var servers []view.UpstreamTools
	for _, p := range d.unique(n, "server") {
		name, item := p.key.text, label+"."+shorten(p.key.text)
		names := taken
		switch {
		case !d.knowsServer(name):
			d.fail(p.key, fmt.Sprintf("%s: there is no server %q", label, shorten(name)), d.serverHint(name))
		case d.off[name]:
			d.warn(p.key, fmt.Sprintf("%s: server %q is disabled: its tools are left out", label, name), "")
			names = make(claims) // looked at, and taken by nobody
		}
		s := view.UpstreamTools{Name: name, At: placeOf(p.key)}
		if p.value.kind != kindNull {
			s.Tools = d.toolsBlock(p.value, item, names)
		}
		if len(s.Tools) == 0 && (p.value.kind == kindNull || p.value.kind == kindMapping) {
			hint := `write "*": {} for all of them`
			if all {
				hint = "include_all has brought them already"
			}
			d.warn(p.key, item+" names no tools", hint)
		}
		if !d.off[name] {
			servers = append(servers, s)
		}
	}
	return servers
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

// patterns reads globs over server.tool.
func (d *decoder) patterns(n *node, label string) []view.Pattern {
	var list []view.Pattern
	d.list(n, label, func(n *node, label string) {
		p := view.Pattern{At: placeOf(n)}
		if !d.text(n, label, &p.Glob) {
			return
		}
		if _, err := path.Match(p.Glob, ""); err != nil || p.Glob == "" {
			d.mustBe(n, label, "a pattern over server.tool", `like "files.write_*"`)
			return
		}
		list = append(list, p)
	})
	return list
}

// onErrors are the words of on_error.
var onErrors = []string{"fail", "continue"}

// hook is a hook while it is read.
type hook struct {
	view.Hook
	onError string
}

// hooks is a hooks block while it is read: on_error and timeout are those of the
// hooks that have none of their own.
type hooks struct {
	pre, post *hook
	onError   string
	timeout   time.Duration
}

var hooksSettings = []field[hooks]{
	{key: "pre_call", set: func(d *decoder, h *hooks, n *node, label string) {
		h.pre = d.hook(n, label)
	}},
	{key: "post_call", set: func(d *decoder, h *hooks, n *node, label string) {
		h.post = d.hook(n, label)
	}},
	{key: "on_error", set: func(d *decoder, h *hooks, n *node, label string) {
		choose(d, n, label, onErrors, &h.onError)
	}},
	{key: "timeout", set: func(d *decoder, h *hooks, n *node, label string) {
		d.duration(n, label, &h.timeout)
	}},
}

func (d *decoder) hooks(n *node, label string, to *view.Hooks) {
	h := hooks{onError: onErrors[0], timeout: view.DefaultHookTimeout}
	fields(d, n, label, label+".", hooksSettings, &h)
	for _, hook := range []*hook{h.pre, h.post} {
		if hook != nil {
			hook.Timeout = cmp.Or(hook.Timeout, h.timeout)
			hook.Continue = cmp.Or(hook.onError, h.onError) == "continue"
		}
	}
	if h.pre != nil {
		to.PreCall = &h.pre.Hook
	}
	if h.post != nil {
		to.PostCall = &h.post.Hook
	}
}

var hookSettings = []field[hook]{
	{key: "starlark", set: func(d *decoder, h *hook, n *node, label string) {
		d.function(n, label, &h.Module, &h.Function)
	}},
	{key: "command", set: func(d *decoder, h *hook, n *node, label string) {
		d.hookCommand(n, label, h)
	}},
	{key: "on_error", set: func(d *decoder, h *hook, n *node, label string) {
		choose(d, n, label, onErrors, &h.onError)
	}},
	{key: "timeout", set: func(d *decoder, h *hook, n *node, label string) {
		d.duration(n, label, &h.Timeout)
	}},
}

// hook reads file:function, or a mapping; nil when it is neither.
func (d *decoder) hook(n *node, label string) *hook {
	h := &hook{Hook: view.Hook{At: placeOf(n)}}
	if n.kind == kindText {
		if !d.function(n, label, &h.Module, &h.Function) {
			return nil
		}
		return h
	}
	if n.kind != kindMapping {
		d.fail(n, label+" must be text or a mapping, not "+string(n.kind), "file.star:function, or {command: [program, argument]}")
		return nil
	}
	fields(d, n, label, label+".", hookSettings, h)
	starlark, command := n.given("starlark"), n.given("command")
	switch {
	case starlark != nil && command != nil:
		d.fail(command, label+" has both starlark and command", "keep one")
		return nil
	case starlark == nil && command == nil:
		d.fail(n, label+" has neither starlark nor command", "")
		return nil
	}
	return h
}

var functionName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// function reads file:function of a Starlark module.
func (d *decoder) function(n *node, label string, module, function *string) bool {
	var text string
	if !d.text(n, label, &text) {
		return false
	}
	colon := strings.LastIndexByte(text, ':')
	if colon < 1 || !functionName.MatchString(text[colon+1:]) {
		d.mustBe(n, label, "a file of Starlark and a function in it", "like hooks/example.star:function")
		return false
	}
	file, ok := d.filePath(n, label, text[:colon])
	if ok {
		*module, *function = file, text[colon+1:]
	}
	return ok
}

// hookCommand reads a program and its arguments. It runs in the folder of the
// configuration file.
func (d *decoder) hookCommand(n *node, label string, h *hook) {
	h.Dir = d.dir
	d.list(n, label, func(n *node, label string) {
		var word string
		if !d.word(n, label, &word) {
			return
		}
		if len(h.Command) == 0 {
			word = d.program(n, label, word)
		}
		h.Command = append(h.Command, word)
	})
	if n.kind == kindList && len(n.items) == 0 {
		d.fail(n, label+" is empty", "write the program and its arguments")
	}
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
	full, err := tilde(name, d.home)
	if err != nil {
		d.fail(n, label+": "+err.Error(), "write the path in full")
		return name
	}
	full = within(d.dir, full)
	if runtime.GOOS != "windows" && !isFile(full) { // there a program runs without its .exe
		d.fail(n, label+" names a program that is not there: "+n.String(), "a relative path starts at the folder of this file")
	}
	return full
}

// limitSettings are the keys of run_script, and of a custom tool beside its own.
var limitSettings = []field[view.ScriptLimits]{
	{key: "max_calls", set: func(d *decoder, l *view.ScriptLimits, n *node, label string) {
		d.number(n, label, 1, 100_000, &l.Calls)
	}},
	{key: "max_steps", set: func(d *decoder, l *view.ScriptLimits, n *node, label string) {
		var steps int
		d.number(n, label, 1, 2_000_000_000, &steps)
		l.Steps = uint64(steps)
	}},
	{key: "timeout", set: func(d *decoder, l *view.ScriptLimits, n *node, label string) {
		d.duration(n, label, &l.Time)
	}},
	{key: "max_output", set: func(d *decoder, l *view.ScriptLimits, n *node, label string) {
		d.size(n, label, &l.Output)
	}},
}

// runScript reads true, false or limits; nil when scripts are not offered.
func (d *decoder) runScript(n *node, label string) *view.ScriptLimits {
	var limits view.ScriptLimits
	if on, _ := onOff(d, n, label, limitSettings, &limits); !on {
		return nil
	}
	limits = limits.OrDefaults()
	return &limits
}

// customSettings are all keys of a custom tool.
var customSettings = append([]field[view.Custom]{
	{key: "module", set: func(d *decoder, c *view.Custom, n *node, label string) {
		d.function(n, label, &c.Module, &c.Function)
	}},
	{key: "name", set: func(d *decoder, c *view.Custom, n *node, label string) {
		d.text(n, label, &c.Name)
	}},
}, customLimits()...)

func customLimits() []field[view.Custom] {
	var list []field[view.Custom]
	for _, limit := range limitSettings {
		list = append(list, field[view.Custom]{key: limit.key, set: func(d *decoder, c *view.Custom, n *node, label string) {
			limit.set(d, &c.Limits, n, label)
		}})
	}
	return list
}

// customs reads the tools that are written in Starlark.
func (d *decoder) customs(n *node, label string, taken claims) []view.Custom {
	var list []view.Custom
	d.list(n, label, func(n *node, label string) {
		c := view.Custom{At: placeOf(n)}
		named := n
		switch n.kind {
		case kindText:
			if !d.function(n, label, &c.Module, &c.Function) {
				return
			}
		case kindMapping:
			fields(d, n, label, label+".", customSettings, &c)
			if named = n.given("module"); named == nil {
				d.fail(n, label+" has no module", "write module: file.star:function")
				return
			}
			if name := n.given("name"); name != nil && name.kind == kindText {
				d.claim(taken, name, label+".name", c.Name)
				named = nil
			}
		default:
			d.fail(n, label+" must be text or a mapping, not "+string(n.kind), "like hooks/example.star:function")
			return
		}
		if named != nil && c.Function != "" {
			d.claim(taken, named, label+": its function", c.Function)
		}
		c.Limits = c.Limits.OrDefaults()
		list = append(list, c)
	})
	return list
}

// headerNames reads names of headers, which come in lower case.
func (d *decoder) headerNames(n *node, label string) []string {
	var names []string
	d.list(n, label, func(n *node, label string) {
		if name := d.headerName(n, label); name != "" {
			names = append(names, name)
		}
	})
	return names
}

func (d *decoder) headerName(n *node, label string) string {
	var name string
	if !d.text(n, label, &name) {
		return ""
	}
	if checkHeaderName(name) != "" {
		d.mustBe(n, label, "the name of an HTTP header", "like X-User")
		return ""
	}
	return strings.ToLower(name)
}
