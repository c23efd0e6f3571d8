package served

import (
	"context"

	"toolfinch/tool"
	"toolfinch/upstream"
)

// onlyKinds tells clients the kind of a failure: what a failing server or its process wrote is for the
// owner, who finds it in the log, on the page and in the answers of commands.
func onlyKinds(next tool.Handler) tool.Handler {
	return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		result, err := next(ctx, call)
		if err == nil || call.Local {
			return result, err
		}
		if kind := upstream.Reason(err); kind != err.Error() {
			err = failure{err, kind}
		}
		return result, err
	}
}

// failure is an error whose text is its kind alone.
type failure struct {
	error
	kind string
}

func (f failure) Error() string { return f.kind }

func (f failure) Unwrap() error { return f.error }
