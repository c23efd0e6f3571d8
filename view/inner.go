package view

import (
	"context"
	"encoding/json"
	"errors"

	"toolfinch/tool"
)

// callInner makes a call inside another call and returns the value of its result. A tool error is returned as an error
// with the same text.
func callInner(ctx context.Context, call *tool.Call, handler tool.Handler, name string, arguments json.RawMessage, part *tool.Part) (json.RawMessage, error) {
	inner, err := call.Inner(name, arguments)
	if err != nil {
		return nil, err
	}
	inner.Notify = part.Notify(call.Notify)
	result, err := tool.Safely(ctx, handler, inner)
	switch {
	case err != nil && ctx.Err() != nil:
		err = context.Cause(ctx)
	case err != nil:
	case !result.Complete():
		err = errors.New("it answered with a question or a task, which a call inside another tool cannot take")
	case result.Failed():
		err = errors.New(textOf(result.Value()))
	}
	part.Finish(err)
	if err != nil {
		return nil, err
	}
	return result.Value(), nil
}
