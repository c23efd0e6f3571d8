package served

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
	"toolfinch/retrieve"
	"toolfinch/tool"
	"toolfinch/trust/leaks"
	"toolfinch/trust/pins"
	"toolfinch/upstream"
)

// The order of the layers is that of package tool. View.Compile adds those that a view's settings ask for.

// UpstreamTools returns the tools of an upstream's definitions with the layers below all views. call makes their
// handlers, audit the layer that notes what is about to happen; held are the definitions that await approval.
func UpstreamTools(defs []*tool.Def, call func(*tool.Def) tool.Handler, audit func(*tool.Def) tool.Middleware, held map[tool.ID]pins.Held) []*tool.Tool {
	tools := tool.Of(defs, call)
	for i, t := range tools {
		t = t.With(tool.LayerAudit, audit(t.Def))
		if h, is := held[t.Def.ID]; is {
			t = t.With(tool.LayerHeld, refuseHeld(h))
		}
		tools[i] = t
	}
	return tools
}

// errHeld is the error for a call of a held definition.
var errHeld = errors.New("is held until the user approves it (toolfinch pins)")

// refuseHeld answers calls of a held definition with errHeld.
func refuseHeld(h pins.Held) tool.Middleware {
	return func(tool.Handler) tool.Handler {
		return func(context.Context, *tool.Call) (tool.Result, error) {
			return nil, fmt.Errorf("%s %w: it %s", rawjson.Clip(printable.Line(h.ID.String()), maxHeldName), errHeld, h.Why())
		}
	}
}

const maxHeldName = 200 // bytes

// UnlistedResource returns the handler of resources that no server lists. It outlives configurations, so that
// it looks up the view with each read. below makes the tool of a definition as UpstreamTools does.
func UnlistedResource(run Runtime, log *slog.Logger, view string, below func(*tool.Def) *tool.Tool) func(*tool.Def) tool.Handler {
	return func(def *tool.Def) tool.Handler {
		t := below(def)
		now := func(layer func(*Served, *View) tool.Middleware) tool.Middleware {
			return func(next tool.Handler) tool.Handler {
				return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
					all := run.Now()
					v := all.ByName[view]
					if v == nil {
						return nil, errNotServed
					}
					if around := layer(all, v); around != nil {
						return around(next)(ctx, call)
					}
					return next(ctx, call)
				}
			}
		}
		t = t.With(tool.LayerPolicies, now(func(_ *Served, v *View) tool.Middleware { return v.judge(t) }))
		t = t.With(tool.LayerSecrets, now(func(all *Served, v *View) tool.Middleware {
			return guard(log, all.secretsOf(v, def.ID.Server), view, def.ID.Server)
		}))
		t = t.With(tool.LayerLimits, now(func(_ *Served, v *View) tool.Middleware { return v.limit(t) }))
		return t.With(tool.LayerObserved, run.Observed(view, t)).With(tool.LayerFailures, onlyKinds).Handler
	}
}

// secretsOf returns what becomes of secrets in a resource that its server does not list. Where views are
// combined, the strictest mode of the views with the server holds.
func (s *Served) secretsOf(v *View, server string) (mode leaks.Mode) {
	for i, name := range v.viewsWith(server) {
		if m := s.Config.SecretsIn(name, server); i == 0 || slices.Index(leaks.Modes, m) > slices.Index(leaks.Modes, mode) {
			mode = m
		}
	}
	return mode
}

// addLayers puts the layers that decide about calls of clients around every tool of the view.
func (b *builder) addLayers(n plan) {
	scopes := b.Scopes
	if n.live == nil { // the owner's command
		scopes = nil
	}
	gated := n.live != nil && n.Settings.Gating != nil
	if n.combines { // the tools have the layers of their views
		return
	}
	around := func(t *tool.Tool) *tool.Tool {
		t = t.With(tool.LayerPolicies, n.judge(t))
		if t.Def.ID.Kind == tool.KindTool {
			if gated {
				t = t.With(tool.LayerGate, n.live.Gate().Layer(t.Def.ID))
			}
			t = t.With(tool.LayerScopes, scopes.Guard(t))
		}
		t = t.With(tool.LayerLimits, n.limit(t))
		t = t.With(tool.LayerObserved, b.Observed(n.Name, t)).With(tool.LayerFailures, onlyKinds)
		t.View = n.Name // of the copy that With made
		return t
	}
	for i, s := range n.Contents.Servers {
		if len(s.Tools) > 0 && s.Tools[0].View != "" {
			continue // the tools are of the view before, with their layers
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
			of.View = n.Name
			held[j] = retrieve.Held{Tool: &of, Why: h.Why, Quiet: h.Quiet}
		}
		n.Contents.Servers[i].Tools, n.Contents.Servers[i].Held = tools, held
	}
}

// onlyKinds tells clients the kind of a failure. The owner finds the words of a failing server or its process in the
// log, on the page and in the answers of commands.
func onlyKinds(next tool.Handler) tool.Handler {
	return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		result, err := next(ctx, call)
		if err == nil || call.Local {
			return result, err
		}
		return result, upstream.Brief(err)
	}
}
