package configs

import "toolfinch/view"

// gating is a gating block while it is read.
type gating struct {
	view.Gating
	enabled bool
}

// gatingSettings are all keys of gating.
var gatingSettings = []field[gating]{
	{key: "enabled", set: func(d *decoder, g *gating, n *node, label string) {
		d.boolean(n, label, &g.enabled)
	}},
	{key: "max_tokens", set: func(d *decoder, g *gating, n *node, label string) {
		d.number(n, label, 0, 10_000_000, &g.MaxTokens)
	}},
	{key: "max_tools", set: func(d *decoder, g *gating, n *node, label string) {
		d.number(n, label, 0, 1_000_000, &g.MaxTools)
	}},
	{key: "ttl", set: func(d *decoder, g *gating, n *node, label string) {
		d.duration(n, label, &g.TTL)
	}},
}

// gating reads true, false or a mapping; nil when tools need not be provisioned.
func (d *decoder) gating(n *node, label string) *view.Gating {
	g := gating{
		Gating:  view.Gating{MaxTokens: view.DefaultMaxTokens, MaxTools: view.DefaultMaxTools},
		enabled: true,
	}
	if on, _ := onOff(d, n, label, gatingSettings, &g); !on || !g.enabled {
		return nil
	}
	return &g.Gating
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
