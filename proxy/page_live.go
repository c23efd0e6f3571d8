package proxy

import (
	"context"
	"slices"

	"toolfinch/internal/identity"
	"toolfinch/internal/telemetry"
)

// Sees returns what who asks may know of an operation, as the status over REST tells it. The
// owner knows all. The bearer of a key knows its own, and of what policies hide no more than
// of what is not there.
func (h paged) Sees(ctx context.Context, o *telemetry.Operation) (telemetry.Operation, bool) {
	seen := *o
	if h.owner(ctx) {
		return seen, true
	}
	v := h.usable(ctx, o.View)
	if v == nil || o.Principal == "" || o.Principal != identity.NameOf(ctx) {
		return seen, false
	}
	switch offered := offers(v, o); {
	case !offered && o.Depth > 0: // a step of a call may be of what policies hide
		return seen, false
	case !offered:
		seen.Server, seen.Tool, seen.Said = "", "", ""
	}
	seen.Stages = slices.Clone(o.Stages)
	for i, stage := range seen.Stages { // of what is called within it may know less
		if _, err := v.Catalog.Find(stage.Target); err != nil && stage.Target != seen.Tool {
			seen.Stages[i].Target = ""
		}
	}
	return seen, true
}

// usable is what who asks has of a view, nil for nothing.
func (h paged) usable(ctx context.Context, name string) *View {
	if name == "" {
		return nil
	}
	v, err := h.view(ctx, name)
	if err != nil {
		return nil
	}
	return v
}

// offers reports whether a view has what an operation is about.
func offers(v *View, o *telemetry.Operation) (known bool) {
	switch {
	case o.Server == "":
		return false // a name that somebody tried, or a search
	case o.Kind == identity.EventPrompt:
		_, known = v.Catalog.Prompt(o.Name)
	case o.Kind == identity.EventRead:
		_, known = v.Catalog.Resource(o.Name)
	default:
		_, err := v.Catalog.Find(o.Tool)
		known = err == nil
	}
	return known
}
