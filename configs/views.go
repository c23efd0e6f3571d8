package configs

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"toolfinch/internal/document"
	"toolfinch/trust/leaks"
	"toolfinch/view"
)

// viewName matches names for URLs and for prefixes of tools.
var viewName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,32}$`)

var searchStyle = choice[view.SearchStyle]{words: []view.SearchStyle{view.SearchSummary, view.SearchPlain}}

var schemas = choice[view.Schemas]{words: []view.Schemas{view.SchemasByClient, view.SchemasAsIs, view.SchemasPortable}}

// directBelow is a number of tokens.
var directBelow = number[int]{0, 10_000_000}

// viewKeys are the keys of a view.
var viewKeys = section[view.Settings]{sep: ": ", check: checkView, keys: keys{
	{
		name:  "description",
		doc:   "told to clients",
		value: in(func(v *view.Settings) *string { return &v.Description }).is(prose),
	},
	{
		name: "exposure_mode", without: "the top level's `default_exposure`",
		doc:   "`direct`, `retrieve`, `search`, `search_per_server` or `auto`; see [views.md](views.md#how-a-views-tools-reach-the-client)",
		value: in(func(v *view.Settings) *view.Exposure { return &v.Exposure }).is(choice[view.Exposure]{words: view.Exposures}, view.ExposureAuto),
	},
	{
		name: "search_style", without: "the top level's",
		doc:   "`summary` or `plain`",
		value: in(func(v *view.Settings) *view.SearchStyle { return &v.SearchStyle }).is(searchStyle),
	},
	{
		name: "schemas", without: "the top level's",
		doc:   "`by_client`, `as_is` or `portable`",
		value: in(func(v *view.Settings) *view.Schemas { return &v.Schemas }).is(schemas),
	},
	{
		name: "direct_below", without: "the top level's",
		doc:   "see the top level",
		value: in(func(v *view.Settings) *int { return &v.DirectBelow }).is(directBelow),
	},
	{
		name: "trim_descriptions", without: "the servers'",
		doc:   trimDoc + ". `0`: unlimited",
		value: in(func(v *view.Settings) *int { return &v.Trim }).is(trim),
	},
	{
		name: "secrets", without: "the server's, else the top level's",
		doc:   "see the top level",
		value: in(func(v *view.Settings) *leaks.Mode { return &v.Secrets }).is(leaksWords),
	},
	{
		name:  "tools",
		doc:   "by server, then by tool; see [below](#tools-of-a-view)",
		value: in(func(v *view.Settings) *[]view.UpstreamTools { return &v.Tools }).is(viewTools{}),
	},
	{
		name: "include_all", without: "`false`",
		doc:   "takes every tool of every server; `tools` then only changes tools",
		value: in(func(v *view.Settings) *bool { return &v.IncludeAll }).is(boolean{only: true}),
	},
	{
		name:  "exclude",
		doc:   "patterns over `server.tool` that remove what `include_all` and patterns select",
		value: in(func(v *view.Settings) *[]view.Pattern { return &v.Exclude }).is(list[view.Pattern]{item: pattern{}}),
	},
	{
		name: "skills", without: "none, or all with `include_all`",
		doc:   "patterns over `server.uri`, or `{skill: PATTERN, under: PATH}`; see [skills.md](skills.md#skills-of-a-view)",
		value: in(func(v *view.Settings) *[]view.SkillPattern { return &v.Skills }).is(list[view.SkillPattern]{item: skillPattern{}}),
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
		doc:   "a list; see [Custom tools](#custom-tools)",
		value: in(func(v *view.Settings) *[]view.Custom { return &v.Customs }).is(list[view.Custom]{item: custom{}}),
	},
	{
		name: "run_script", without: "`false`",
		doc:   "lets a model send scripts: `true`, or the limits of [custom tools](#custom-tools)",
		value: in(func(v *view.Settings) **view.ScriptLimits { return &v.RunScript }).is(onOff[view.ScriptLimits]{section: limitKeys}),
	},
	{
		name: "allow", without: "`all`",
		doc:   "`read_only`: only read-only tools may be called; see [security.md](security.md#what-they-may-do)",
		value: in(func(v *view.Settings) *view.Allow { return &v.Allow }).is(choice[view.Allow]{words: []view.Allow{view.AllowAll, view.AllowReadOnly}}),
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

// views are the views by name, read after all servers.
type views struct{}

func (views) read(d *decoder, n *document.Node, label string, to *[]view.Settings) bool {
	if n.Outside() {
		d.fail(n, label+" can only be set in the file", "")
		return false
	}
	if !d.isMapping(n, label, "names to views", "") {
		return false
	}
	names := []string{view.Default}
	for _, p := range d.unique(n, "view") {
		name := p.Key.Text
		if i := slices.IndexFunc(names, func(other string) bool { return other != name && strings.EqualFold(other, name) }); i >= 0 {
			d.fail(p.Key, fmt.Sprintf("views %q and %q differ in case only", names[i], shorten(name)), "")
		}
		names = append(names, name)
		if !viewName.MatchString(name) {
			d.fail(p.Key, fmt.Sprintf("illegal view name %q: 1 to 32 letters, digits, _ and -", shorten(name)), "it becomes part of a URL and of names of tools")
		}
		d.taken = make(claims)
		from := viewOrigin{key: p.Key, value: p.Value, label: fmt.Sprintf("view %q", shorten(name)), taken: d.taken}
		v := viewKeys.fresh()
		v.Name, v.At, v.Exposure = name, placeOf(p.Key), cmp.Or(d.expose, v.Exposure)
		d.absent = nil
		ok := viewKeys.read(d, p.Value, from.label, &v)
		if name == view.Default { // without the default view clients see every tool
			d.errors = append(d.errors, d.absent...)
		} else {
			from.absent = d.absent
		}
		if ok {
			*to = append(*to, v)
			d.views = append(d.views, from)
		}
	}
	return true
}

// leaveOut removes views with unknown servers from c: a view is served whole or not at all.
func (d *decoder) leaveOut(c *Config) {
	var whole []view.Settings
	for i, from := range d.views {
		v := c.Views[i]
		if len(from.absent) == 0 {
			whole = append(whole, v)
			continue
		}
		if c.Broken = append(c.Broken, from.absent...); v.Name == c.DefaultView {
			d.errors = append(d.errors, from.absent...)
		}
		if c.BrokenViews == nil {
			c.BrokenViews = map[string]string{}
		}
		c.BrokenViews[v.Name] = reasonOf(from.label, from.absent)
	}
	c.Views = whole
}

func (views) show(s *secrets, list []view.Settings) *document.Node {
	return named[view.Settings]{item: viewKeys, name: func(v *view.Settings) string { return v.Name }}.show(s, list)
}

func (views) schema() schema {
	return schema{"type": "object", "propertyNames": schema{"pattern": viewName.String()}, "additionalProperties": viewKeys.schema()}
}

// completeViews gives views the top level's defaults, after environment and flags, and
// checks the result.
func (d *decoder) completeViews(c *Config) {
	d.checkRoot(c)
	hasDefault := false
	for i, from := range d.views {
		v, at := &c.Views[i], from.key
		hasDefault = hasDefault || v.Name == view.Default
		v.SearchStyle = cmp.Or(v.SearchStyle, c.SearchStyle)
		v.Schemas = cmp.Or(v.Schemas, c.Schemas)
		if from.value.Given("direct_below") == nil {
			v.DirectBelow = c.DirectBelow
		}
		if from.value.Given("gating") == nil {
			v.Gating = c.Gating
		}
		if own := from.value.Given("proxy_tool"); own != nil {
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

// checkRoot checks default_view.
func (d *decoder) checkRoot(c *Config) {
	from := d.origins["default_view"]
	var names []string
	for _, v := range c.Views {
		names = append(names, v.Name)
	}
	switch made := c.DefaultView == RootAll || c.DefaultView == RootViews; {
	case !from.ok, c.DefaultView == RootNone:
	case made && slices.Contains(names, view.Default):
		d.fail(from.node, fmt.Sprintf("%s: %s needs the name of the view %q", from.label, c.DefaultView, view.Default), "give that view another name, or leave out default_view")
	case !made && !slices.Contains(names, c.DefaultView):
		d.fail(from.node, fmt.Sprintf("%s: there is no view %q", from.label, shorten(c.DefaultView)),
			didYouMean(c.DefaultView, append([]string{RootAll, RootViews, RootNone}, names...)))
	}
}

// checkView looks for contradictions between the keys of a view.
func checkView(d *decoder, n *document.Node, label string, v *view.Settings) {
	tools := n.Given("tools")
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
		for _, p := range tools.Pairs {
			if p.Value.Kind == document.Null || p.Value.Kind == document.Mapping && len(p.Value.Pairs) == 0 {
				d.warn(p.Key, label+": tools."+shorten(p.Key.Text)+" names no tools", hint)
			}
		}
	}
	selects, globs := false, false
	for _, s := range v.Tools {
		for _, o := range s.Tools {
			selects = selects || !o.Disabled
			globs = globs || view.IsGlob(o.Tool)
		}
	}
	if !selects && !v.IncludeAll && len(v.Composites)+len(v.Customs)+len(v.Skills) == 0 {
		d.warn(&document.Node{Line: v.At.Line, Column: v.At.Column}, label+" has nothing in it", "name tools under tools, or write include_all: true")
	}
	if exclude := n.Given("exclude"); exclude != nil && !v.IncludeAll && !globs && len(v.Skills) == 0 {
		d.warn(exclude, label+": exclude is not used without include_all or a pattern of tools", "")
	}
}

// searchTools returns the names of the view's search tools.
func (s *serverNames) searchTools(v *view.Settings, tools *document.Node) []string {
	switch v.Exposure {
	case view.ExposureSearch:
		return searchNames(v.Name)
	case view.ExposureSearchPerServer:
	default:
		return nil
	}
	var names []string
	seen := map[string]int{}
	for _, server := range s.known {
		if s.off[server] || !v.IncludeAll && (tools == nil || tools.Find(server) == nil) {
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

// searchNames returns the names of the search tools with a prefix. Package retrieve makes
// the same names, but is not below this package.
func searchNames(prefix string) []string {
	prefix = notInToolName.ReplaceAllString(prefix, "_")
	prefix = prefix[:min(len(prefix), 64-len("_describe_tool"))]
	return []string{prefix + "_search_tools", prefix + "_describe_tool", prefix + "_call_tool"}
}

// viewTools are the tools of a view, by server.
type viewTools struct{}

func (viewTools) read(d *decoder, n *document.Node, label string, to *[]view.UpstreamTools) bool {
	if !d.isMapping(n, label, "servers to their tools", "") {
		return false
	}
	taken := d.taken
	for _, p := range d.unique(n, "server") {
		name := p.Key.Text
		d.taken = taken
		switch {
		case !d.knowsServer(name):
			d.noServer(p.Key, fmt.Sprintf("%s: there is no server %q", label, shorten(name)), d.serverHint(name))
		case d.off[name]:
			d.warn(p.Key, fmt.Sprintf("%s: server %q is disabled: its tools are left out", label, name), "")
			d.taken = make(claims) // checked, but the names stay free
		}
		s := view.UpstreamTools{Name: name, At: placeOf(p.Key)}
		if p.Value.Kind != document.Null {
			overrides.read(d, p.Value, label+"."+shorten(name), &s.Tools)
		}
		if !d.off[name] {
			*to = append(*to, s)
		}
	}
	d.taken = taken
	return true
}

func (viewTools) show(s *secrets, list []view.UpstreamTools) *document.Node {
	if len(list) == 0 {
		return nil
	}
	n := &document.Node{Kind: document.Mapping}
	for _, of := range list {
		tools := overrides.show(s, of.Tools)
		if tools == nil {
			tools = &document.Node{Kind: document.Mapping}
		}
		n.Pairs = append(n.Pairs, document.Pair{Key: document.NewText(of.Name), Value: tools})
	}
	return n
}

func (viewTools) schema() schema {
	return schema{"type": "object", "additionalProperties": anyOf(ref("tools"), null)}
}

// pattern is a glob over server.tool.
type pattern struct{}

func (pattern) read(d *decoder, n *document.Node, label string, to *view.Pattern) bool {
	to.At = placeOf(n)
	if !d.text(n, label, &to.Glob) {
		return false
	}
	_, err := path.Match(to.Glob, "")
	return d.require(err == nil && to.Glob != "", n, label, "a pattern over server.tool", `like "files.write_*"`)
}

func (pattern) show(s *secrets, p view.Pattern) *document.Node { return prose.show(s, p.Glob) }
func (pattern) schema() schema                                 { return anyText }

// skillPattern is a glob over server.uri, or a mapping that also says where the view has the skills.
type skillPattern struct{}

var skillKeys = section[view.SkillPattern]{keys: keys{
	{
		name:  "skill",
		doc:   "a pattern over `server.uri`, such as `skills.skill://git-*/SKILL.md`",
		value: in(func(p *view.SkillPattern) *view.Pattern { return &p.Pattern }).is(pattern{}),
	},
	{
		name: "under", without: "the server's name and its path",
		doc:   "the path below which clients see the skill",
		value: in(func(p *view.SkillPattern) *string { return &p.Under }).is(str{check: skillPath}),
	},
}}

var isSkillPath = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*(/[a-z0-9][a-z0-9_-]*)*$`)

func skillPath(d *decoder, n *document.Node, label string, text *string) bool {
	return d.require(len(*text) <= 200 && isSkillPath.MatchString(*text), n, label, "a path of lower-case letters, digits, _ and -", "like billing/europe")
}

func (skillPattern) read(d *decoder, n *document.Node, label string, to *view.SkillPattern) bool {
	if n.Kind == document.Mapping && n.Given("skill") == nil {
		d.fail(n, label+" has no skill", "write skill: a pattern over server.uri")
		return false
	}
	if n.Kind == document.Mapping {
		return skillKeys.read(d, n, label, to)
	}
	return pattern{}.read(d, n, label, &to.Pattern)
}

func (skillPattern) show(s *secrets, p view.SkillPattern) *document.Node { return skillKeys.show(s, p) }
func (skillPattern) schema() schema                                      { return anyOf(anyText, skillKeys.schema()) }
