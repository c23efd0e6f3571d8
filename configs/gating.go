package configs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"toolfinch/internal/document"
	"toolfinch/tool"
	"toolfinch/view"
)

// gating is a gating block while it is read.
type gating struct {
	view.Gating
	enabled bool
}

// gatingKeys are the keys of gating.
var gatingKeys = section[gating]{keys: keys{
	{
		name:  "enabled",
		doc:   "`false` switches a mapping off",
		value: in(func(g *gating) *bool { return &g.enabled }).is(boolean{}, true),
	},
	{
		name:  "max_tokens",
		doc:   "of a client's provisioned definitions, up to 10000000; `0` is no bound",
		value: in(func(g *gating) *int { return &g.MaxTokens }).is(number[int]{0, 10_000_000}, view.DefaultMaxTokens),
	},
	{
		name:  "max_tools",
		doc:   "up to 1000000; `0` is no bound",
		value: in(func(g *gating) *int { return &g.MaxTools }).is(number[int]{0, 1_000_000}, view.DefaultMaxTools),
	},
	{
		name: "ttl", without: "for good",
		doc:   "longest time that a tool stays provisioned, up to 24h",
		value: in(func(g *gating) *time.Duration { return &g.TTL }).is(duration{}),
	},
}}

// gatingKind is true, false (nil) or a mapping.
var gatingKind = gatingOnOff{onOff[gating]{section: gatingKeys, empty: true}}

type gatingOnOff struct{ onOff onOff[gating] }

func (k gatingOnOff) read(d *decoder, n *document.Node, label string, to **view.Gating) bool {
	var g *gating
	ok := k.onOff.read(d, n, label, &g)
	*to = nil
	if ok && g != nil && g.enabled {
		*to = &g.Gating
	}
	return ok
}

func (k gatingOnOff) show(s *secrets, g *view.Gating) *document.Node {
	if g == nil {
		return k.onOff.show(s, nil)
	}
	return k.onOff.show(s, &gating{*g, true})
}

func (gatingOnOff) schema() schema { return ref("gating") }

// checkGating refuses a view that lists all tools and only provisioned tools. n is the
// view's mapping.
func (d *decoder) checkGating(v *view.Settings, n *document.Node, label string) {
	if v.Gating == nil || v.Exposure != view.ExposureDirect {
		return
	}
	at := cmp.Or(n.Given("gating"), n.Given("exposure_mode"), n) // either key may be at the top level
	d.fail(at, label+": exposure_mode direct lists every tool, but gating only those that were provisioned",
		"choose another exposure_mode, or write gating: false in the view")
}

// proxyToolKeys are the keys of proxy_tool.
var proxyToolKeys = section[string]{keys: keys{{
	name:  "name",
	doc:   "what clients call it",
	value: in(all[string]).is(proxyName{}, view.DefaultProxyTool),
}}}

// proxyTool is true, false (""), a name or a mapping.
type proxyTool struct{}

func (proxyTool) read(d *decoder, n *document.Node, label string, to *string) bool {
	*to = ""
	word := n.Text
	switch n.Kind {
	case document.Mapping:
		*to = proxyToolKeys.fresh()
		return proxyToolKeys.read(d, n, label, to)
	case document.Bool:
	case document.Text:
		if !d.text(n, label, &word) {
			return false
		}
		if !isBool(word) || !n.Outside() && !isVariable(n.Text) {
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

func (proxyTool) show(s *secrets, name string) *document.Node {
	if name == "" {
		return document.NewBool(false)
	}
	return str{}.show(s, name)
}

func (proxyTool) schema() schema {
	return anyOf(schema{"type": "boolean"}, anyText, proxyToolKeys.schema())
}

// colonProxy is the proxy tool's name in the MCP Proxy Extension, whose clients may expect
// it. Other names of tools have no colon.
const colonProxy = "mcp:proxy"

// proxyName is the name of the proxy tool. Words such as no are refused, because their
// author meant false.
type proxyName struct{}

func (proxyName) read(d *decoder, n *document.Node, label string, to *string) bool {
	*to = ""
	var name string
	if !d.text(n, label, &name) {
		return false
	}
	if document.IsAmbiguous(name) {
		d.mustBe(n, label, "the name of a tool", "true and false, without quotes, switch the proxy tool on and off")
		return false
	}
	if name == colonProxy {
		d.warn(n, label+": some models take no tool whose name has a colon", "proxy_tool: true calls it "+view.DefaultProxyTool)
	} else if !d.checkExposed(n, label, name) {
		return false
	}
	*to = name
	return true
}

func (proxyName) show(s *secrets, name string) *document.Node { return str{}.show(s, name) }
func (proxyName) schema() schema                              { return anyText }

// checkProxyTool refuses a proxy tool with the name of another tool of the view. taken are
// names given in the view; c has names given under servers.
func (d *decoder) checkProxyTool(c *Config, v *view.Settings, taken claims, at *document.Node, label string) {
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
		line = first.node.Line
	default:
		line = namedUnderServer(c, v, v.ProxyTool)
	}
	if line > 0 {
		d.fail(at, label+": the proxy tool has the name of another tool", fmt.Sprintf("of the one on line %d; %s", line, choose))
	}
}

// namedUnderServer returns the line of a tool that has the name under its server and may
// keep it in the view, or 0.
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

// mayKeepName reports whether a view may have a tool under the server's name for it. It
// ignores patterns that leave tools out.
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
