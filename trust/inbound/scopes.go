package inbound

import (
	"context"

	"toolfinch/internal/identity"
	"toolfinch/tool"
)

// Guard returns a middleware that refuses calls of principals without a scope for the tool's level; it is nil without
// scopes. It wraps the tools that clients call, but not the steps of a composite, which act for the owner.
func (s Scopes) Guard(t *tool.Tool) tool.Middleware {
	if len(s) == 0 {
		return nil
	}
	level := LevelOf(t.Def)
	return func(next tool.Handler) tool.Handler {
		return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			if err := s.Check(identity.PrincipalOf(ctx), level, "calling "+call.Name); err != nil {
				identity.Decide(ctx, identity.Decision{Policy: "auth.scopes"})
				return nil, err
			}
			return next(ctx, call)
		}
	}
}
