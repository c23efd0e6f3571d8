package proxy

import (
	"context"
	"slices"

	"toolfinch/embed"
	"toolfinch/internal/telemetry"
	"toolfinch/proxy/web/page"
)

// Catalogues are the views that who asks may use.
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

// Operation is the call that was made with an ID of a request.
func (h paged) Operation(request string) *telemetry.Operation {
	found := h.Feed().Recent(1, func(o *telemetry.Operation) bool { return o.Request == request && o.Depth == 0 })
	if len(found) == 0 {
		return nil
	}
	return found[0]
}
