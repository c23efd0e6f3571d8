package proxy

import (
	"context"
	"slices"
	"strings"

	"toolfinch/proxytool"
	"toolfinch/rawjson"
	"toolfinch/retrieve"
	"toolfinch/store"
	"toolfinch/tool"
)

// metered is a view as the meter of savings knows it.
type metered struct{ *View }

func (m metered) Name() string { return m.name }

func (m metered) Tokens(t *tool.Tool) int { return m.catalog.Tokens(t) }

func (m metered) ListingCost(ctx context.Context) int {
	if _, complete := m.catalog.ListingTokens(); !complete {
		m.desk.counter.put(ctx, m.catalog.CountTokens(ctx))
	}
	return m.catalog.ListingCost()
}

// metered returns meta-tools of the view, with a meter around those whose answers
// carry definitions.
func (v *View) metered(tools []*tool.Tool) []*tool.Tool {
	out := slices.Clone(tools)
	for i, t := range out {
		proxies := v.settings.ProxyTool != "" && t.Name == v.settings.ProxyTool
		searches := !proxies && (t.Name == retrieve.RetrieveTools || t.Name == retrieve.DiscoverTools || strings.HasSuffix(t.Name, "_search_tools"))
		describes := t.Name == retrieve.ProvisionTools || t.Name == retrieve.ListProvisioned || strings.HasSuffix(t.Name, "_describe_tool")
		if proxies || searches || describes {
			out[i] = v.desk.meter.Around(metered{v}, t, searches, func(call *tool.Call) bool {
				return proxies && rawjson.Text(rawjson.Member(call.Arguments, "action")) == string(proxytool.ActionCall)
			})
		}
	}
	return out
}

// Savings is what listing every tool would have cost the models of the clients
// since Open, and what they were sent instead, in tokens, by view. Day is empty.
// What came since it was counted last is counted first, which under load takes up
// to 0.4 s.
func (p *Proxy) Savings(ctx context.Context) []store.Savings { return p.desk.meter.Totals(ctx) }
