package proxy

import (
	"context"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/proxy/savings"
	"toolfinch/proxy/served"
	"toolfinch/proxytool"
	"toolfinch/retrieve"
	"toolfinch/tool"
)

// metered adapts a view to the meter of savings.
type metered struct {
	*served.View
	counter *counter
}

func (m metered) Name() string { return m.View.Name }

func (m metered) Tokens(t *tool.Tool) int { return m.Catalog.Tokens(t) }

func (m metered) ListingCost(ctx context.Context) int {
	if _, complete := m.Catalog.ListingTokens(); !complete {
		m.counter.put(ctx, m.Catalog.CountTokens(ctx))
	}
	return m.Catalog.ListingCost()
}

// kindOf returns the kind of a call for the meter of savings.
func kindOf(v *served.View, call *tool.Call) savings.Kind {
	name := call.Name
	if v.Shown.MetaTool(name) == nil {
		return savings.Use
	}
	proxies := name == v.Settings.ProxyTool
	switch {
	case proxies && rawjson.Text(rawjson.Member(call.Arguments, "action")) == string(proxytool.ActionCall):
		return savings.Use
	case !proxies && (name == retrieve.RetrieveTools || name == retrieve.DiscoverTools || strings.HasSuffix(name, "_search_tools")):
		return savings.Search
	case proxies, name == retrieve.ProvisionTools, name == retrieve.UnprovisionTools, name == retrieve.ListProvisioned,
		strings.HasSuffix(name, "_describe_tool"):
		return savings.Describe
	}
	return savings.Use
}
