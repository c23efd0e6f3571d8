package proxy

import (
	"context"
	"slices"

	"toolfinch/internal/identity"
	"toolfinch/internal/telemetry"
)

// Sees returns the parts of an operation that the user may see, as in the status over REST; false for none. The owner
// sees everything. The bearer of a key sees its own operations, and hidden tools look as if they did not exist.
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
	case !offered && o.Depth > 0: // a step of a call may use a hidden tool
		return seen, false
	case !offered:
		seen.Server, seen.Tool, seen.Said = "", "", ""
	}
	seen.Stages = slices.Clone(o.Stages)
	for i, stage := range seen.Stages { // a stage may name a hidden tool
		if _, err := v.Catalog.Find(stage.Target); err != nil && stage.Target != seen.Tool {
			seen.Stages[i].Target = ""
		}
	}
	return seen, true
}

// usable returns the user's part of a view; nil for none.
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

// offers reports whether a view contains the tool, prompt or resource of an operation.
func offers(v *View, o *telemetry.Operation) (known bool) {
	switch {
	case o.Server == "":
		return false // an unknown name, or a search
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
