package gate

import (
	"context"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/internal/telemetry"
	"toolfinch/tool"
)

// Guard is the handler of t behind the gate: it answers the calls that Admit lets
// through.
func (g *Gate) Guard(id tool.ID) tool.Middleware {
	return func(next tool.Handler) tool.Handler {
		return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			_, admitted := telemetry.Start(ctx, telemetry.StageGate, "")
			err := g.Admit(ctx, call, id)
			if admitted(err); err != nil {
				return nil, err
			}
			return next(ctx, call)
		}
	}
}

// readWithin bounds how long a call that is about to be refused waits for what the store says.
const readWithin = 300 * time.Millisecond

// Admit returns nil for a call that its owner may make, and for the calls of the
// program's own user; else an error that wraps ErrNotProvisioned. What the owner has
// provisioned over another process counts, though this one may not have heard of it.
func (g *Gate) Admit(ctx context.Context, call *tool.Call, id tool.ID) error {
	owner := call.Owner()
	if call.Local || g.IsProvisioned(owner, id) {
		return nil
	}
	if g.read != nil {
		ctx, cancel := context.WithTimeout(ctx, leeway.Of(readWithin))
		defer cancel()
		if err := g.Recall(ctx, owner, g.read); err == nil && g.IsProvisioned(owner, id) {
			return nil
		}
	}
	return refusal{call.Name}
}

// refusal is the error of a call that the gate refuses; models read it as it is.
type refusal struct{ name string }

func (r refusal) Error() string {
	return "Tool " + r.name + " not provisioned. Use provision_tools first."
}

func (r refusal) Unwrap() error { return ErrNotProvisioned }
