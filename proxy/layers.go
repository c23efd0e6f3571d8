package proxy

import (
	"context"
	"encoding/json"
	"slices"

	"toolfinch/internal/rawjson"
	"toolfinch/retrieve"
	"toolfinch/tool"
	"toolfinch/trust/inbound"
	"toolfinch/trust/pins"
)

// The order of the layers is that of package tool. View.Compile adds those that a view's settings ask for.

// upstreamTools are the tools of an upstream's definitions, below all views. held says what awaits approval.
func (s *views) upstreamTools(defs []*tool.Def, held map[tool.ID]pins.Held) []*tool.Tool {
	tools := tool.Of(defs, s.call)
	for i, t := range tools {
		t = t.With(tool.LayerAudit, s.audit.begins(t.Def))
		if h, is := held[t.Def.ID]; is {
			t = t.With(tool.LayerHeld, refuseHeld(h))
		}
		tools[i] = t
	}
	return tools
}

// call is the handler of an upstream's definition.
func (s *views) call(def *tool.Def) tool.Handler {
	return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		result, err := s.pool.Call(ctx, def, call)
		if s.memory != nil && def.ID.Kind == tool.KindTool && err == nil && string(rawjson.Member(json.RawMessage(result), "isError")) != "true" {
			s.memory.Called(call.Session, def.ID)
		}
		return result, err
	}
}

// unlistedResource is the handler of a resource that no server lists. It outlives configurations, so that
// it looks up the view with each read.
func (s *views) unlistedResource(view string) func(*tool.Def) tool.Handler {
	return func(def *tool.Def) tool.Handler {
		t := s.upstreamTools([]*tool.Def{def}, nil)[0]
		now := func(layer func(*police) tool.Middleware) tool.Middleware {
			return func(next tool.Handler) tool.Handler {
				return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
					if v := s.now.Load().byName[view]; v != nil && v.police != nil {
						if around := layer(v.police); around != nil {
							return around(next)(ctx, call)
						}
					}
					return next(ctx, call)
				}
			}
		}
		t = t.With(tool.LayerPolicies, now(func(p *police) tool.Middleware { return p.judge(t) }))
		t = t.With(tool.LayerSecrets, s.guardUnlisted(view, def))
		t = t.With(tool.LayerLimits, now(func(p *police) tool.Middleware { return p.limit(t) }))
		return t.With(tool.LayerObserved, s.observer.around(view, t)).With(tool.LayerFailures, onlyKinds).Handler
	}
}

// addLayers puts around every tool of the view what decides about calls of clients.
func (n *plan) addLayers(o *observer, scopes inbound.Scopes) {
	if n.endpoint == nil { // the owner's command
		scopes = nil
	}
	gated := n.endpoint != nil && n.settings.Gating != nil
	if n.together { // tools of other views have their layers
		return
	}
	around := func(t *tool.Tool) *tool.Tool {
		t = t.With(tool.LayerPolicies, n.police.judge(t))
		if t.Def.ID.Kind == tool.KindTool {
			if gated {
				t = t.With(tool.LayerGate, n.gate.Layer(t.Def.ID))
			}
			t = t.With(tool.LayerScopes, scopes.Guard(t))
		}
		t = t.With(tool.LayerLimits, n.police.limit(t))
		t = t.With(tool.LayerObserved, o.around(n.name, t)).With(tool.LayerFailures, onlyKinds)
		t.View = n.name // of the copy that With made
		return t
	}
	for i, s := range n.contents.Servers {
		if len(s.Tools) > 0 && s.Tools[0].View != "" {
			continue // they are as they were
		}
		tools, held := make([]*tool.Tool, len(s.Tools)), slices.Clone(s.Held)
		for j, t := range s.Tools {
			tools[j] = around(t)
		}
		if s.Tools == nil {
			tools = nil // the server was never listed
		}
		for j, h := range held {
			of := *h.Tool
			of.View = n.name
			held[j] = retrieve.Held{Tool: &of, Why: h.Why, Quiet: h.Quiet}
		}
		n.contents.Servers[i].Tools, n.contents.Servers[i].Held = tools, held
	}
}
