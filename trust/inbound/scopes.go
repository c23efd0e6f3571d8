package inbound

import (
	"context"

	"toolfinch/internal/identity"
	"toolfinch/tool"
)

// Guard refuses calls of a tool whose principal has no scope that allows the tool's level. It is
// nil without scopes. It stands around the tools that clients name, not around the steps of a
// composite: these act for the owner.
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
