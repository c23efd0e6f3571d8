package proxy

import (
	"context"
	"slices"

	"toolfinch/embed"
	"toolfinch/store"
	"toolfinch/telemetry"
	"toolfinch/tool"
	"toolfinch/trust/pins"
	"toolfinch/web/page"
)

// Stocks are the views that who asks may use.
func (h paged) Stocks(ctx context.Context) (all []page.Stock) {
	now := h.now.Load()
	root, err := h.view(ctx, "")
	for _, v := range h.viewsOf(ctx) {
		one := page.Stock{View: v.name, Root: err == nil && v.name == root.name, Catalog: v.catalog, Retriever: v.retriever, Embeds: now.config.Embed.Kind != embed.KindBM25}
		if one.Root {
			all = slices.Insert(all, 0, one)
		} else {
			all = append(all, one)
		}
	}
	return all
}

// Pin says how a definition was approved.
func (h paged) Pin(ctx context.Context, id tool.ID) (pin page.Pin, ok bool) {
	config := h.now.Load().config
	mode, ok := config.Changes[id.Server]
	if !store.Pinned(id.Kind) || !slices.Contains(serversOf(config), id.Server) { // a view's own tools have no server
		return pin, false
	}
	if !ok {
		mode = pins.Review
	}
	pin.Mode = string(mode)
	unpinned, err := h.store.Pins().Unpinned(ctx)
	if err != nil {
		return pin, false
	}
	if pin.Listed, err = h.store.Pins().Listed(ctx, id); err != nil {
		return pin, false
	}
	if pin.Past, err = h.store.Pins().History(ctx, id); err != nil {
		return pin, false
	}
	at := slices.IndexFunc(unpinned, func(u store.Unpinned) bool { return u.ID == id })
	if at >= 0 {
		held := pins.Held(unpinned[at])
		pin.Held = &held
	}
	return pin, true
}

// Operation is the call that was made with an ID of a request.
func (h paged) Operation(request string) *telemetry.Operation {
	found := h.Feed().Recent(1, func(o *telemetry.Operation) bool { return o.Request == request && o.Depth == 0 })
	if len(found) == 0 {
		return nil
	}
	return found[0]
}
