package gate

import (
	"context"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/internal/telemetry"
	"toolfinch/tool"
)

// Layer returns the handler of t behind the gate.
func (g *Gate) Layer(id tool.ID) tool.Middleware {
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

// readWithin bounds how long a call that is about to be refused waits for the store.
const readWithin = 300 * time.Millisecond

// Admit returns nil for a call that its owner may make, and for calls of the process's own user; else an error that
// wraps ErrNotProvisioned. It reads the store before it refuses, because the owner may have provisioned the tool
// through another process.
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
	return notProvisionedError{call.Name}
}

// notProvisionedError is the error of a refused call; models read it unchanged.
type notProvisionedError struct{ name string }

func (r notProvisionedError) Error() string {
	return "Tool " + r.name + " not provisioned. Use provision_tools first."
}

func (r notProvisionedError) Unwrap() error { return ErrNotProvisioned }
