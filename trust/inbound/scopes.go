package inbound

import (
	"context"

	"toolfinch/internal/identity"
	"toolfinch/tool"
)

// Guard asks of whoever calls a tool for a scope that allows it, whatever surface the call
// came by. What an owner's composition calls is the owner's: it is around those tools that
// clients name.
func (s Scopes) Guard(t *tool.Tool) tool.Middleware {
	level := LevelOf(t.Def)
	return func(next tool.Handler) tool.Handler {
		if len(s) == 0 {
			return next
		}
		return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			if err := s.Check(identity.PrincipalOf(ctx), level, "calling "+call.Name); err != nil {
				identity.Decide(ctx, identity.Decision{Policy: "auth.scopes"})
				return nil, err
			}
			return next(ctx, call)
		}
	}
}
