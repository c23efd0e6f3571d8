package proxy

import (
	"context"
	"slices"

	"toolfinch/embed"
	"toolfinch/internal/telemetry"
	"toolfinch/proxy/web/page"
	"toolfinch/retrieve"
)

// Catalogues returns the catalogs of the views that the user may use, with the root's catalog first.
func (h paged) Catalogues(ctx context.Context) (all []page.Catalogue) {
	now := h.now.Load()
	root, err := h.view(ctx, "")
	for _, v := range h.viewsOf(ctx) {
		one := page.Catalogue{View: v.Name, Root: err == nil && v.Name == root.Name, Catalog: v.Catalog, Retriever: v.Retriever, Embeds: now.Config.Embed.Kind != embed.KindBM25}
		if one.Root {
			all = slices.Insert(all, 0, one)
		} else {
			all = append(all, one)
		}
	}
	return all
}

// WhyNot explains the rank of a tool in the user's part of a view for a query.
func (h paged) WhyNot(ctx context.Context, view, name string, q retrieve.Query) (retrieve.Why, error) {
	v, err := h.view(ctx, view)
	if err != nil {
		return retrieve.Why{}, err
	}
	return h.Proxy.WhyNot(ctx, v, name, q)
}

// Operation returns the last call with the given ID of a request; nil for none.
func (h paged) Operation(request string) *telemetry.Operation {
	found := h.Feed().Recent(1, func(o *telemetry.Operation) bool { return o.Request == request && o.Depth == 0 })
	if len(found) == 0 {
		return nil
	}
	return found[0]
}
