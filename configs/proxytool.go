package configs

import (
	"fmt"
	"slices"
	"strings"

	"toolfinch/tool"
	"toolfinch/view"
)

// proxyToolSettings are all keys of proxy_tool.
var proxyToolSettings = []field[string]{
	{key: "name", set: func(d *decoder, name *string, n *node, label string) {
		*name = ""
		var text string
		if d.text(n, label, &text) {
			*name = d.proxyName(n, label, text)
		}
	}},
}

// proxyTool reads true, false, a name or a mapping, and returns the name of the
// proxy tool: "" for none.
func (d *decoder) proxyTool(n *node, label string) string {
	text := n.text
	switch n.kind {
	case kindMapping:
		name := view.DefaultProxyTool
		fields(d, n, label, label+".", proxyToolSettings, &name)
		return name
	case kindBool:
	case kindText:
		if !d.text(n, label, &text) {
			return ""
		}
		if !isBool(text) || !n.outside() && !isVariable(n.text) {
			return d.proxyName(n, label, text)
		}
	default:
		d.mustBe(n, label, "true, false, a name or a mapping", "its keys: "+strings.Join(keysOf(proxyToolSettings), ", "))
		return ""
	}
	if text == "true" {
		return view.DefaultProxyTool
	}
	return ""
}

// proxyName returns the name of the proxy tool, "" for one that it cannot have:
// also what was meant to switch it off, lest it be on under the name of no.
func (d *decoder) proxyName(n *node, label, name string) string {
	if slices.Contains(yamlWords, strings.ToLower(name)) {
		d.mustBe(n, label, "the name of a tool", "true and false, without quotes, switch the proxy tool on and off")
		return ""
	}
	if !d.checkExposed(n, label, name) {
		return ""
	}
	return name
}

// checkProxyTool refuses a proxy tool with the name of another tool of the view.
// taken are the names that the view gave; those given under servers are in c.
func (d *decoder) checkProxyTool(c *Config, v *view.Settings, taken claims, at *node, label string) {
	if v.ProxyTool == "" {
		return
	}
	const choose = "choose another one: proxy_tool: NAME"
	line := 0
	switch first := taken[v.ProxyTool]; {
	case first == ownTool:
		d.fail(at, label+": the proxy tool has the name of one of the tools that search the view", choose)
		return
	case first != nil:
		line = first.line
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
