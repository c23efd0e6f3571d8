package view

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"toolfinch/tool"
)

// callInner makes a call inside another and returns the value of its result. If the
// tool fails, its text is the error's text.
func callInner(ctx context.Context, call *tool.Call, handler tool.Handler, name string, arguments json.RawMessage, part *part) (json.RawMessage, error) {
	inner, err := call.Inner(name, arguments)
	if err != nil {
		return nil, err
	}
	inner.Notify = part.notify(call.Notify)
	result, err := safely(ctx, handler, inner)
	switch {
	case err != nil && ctx.Err() != nil:
		err = context.Cause(ctx)
	case err != nil:
	case !result.Complete():
		err = errors.New("it answered with a question or a task, which a call inside another tool cannot take")
	case result.Failed():
		err = errors.New(textOf(result.Value()))
	}
	part.finish(err)
	if err != nil {
		return nil, err
	}
	return result.Value(), nil
}

// safely runs handler and returns a panic as an error: on this goroutine a panic in
// a Go hook would end the process.
func safely(ctx context.Context, handler tool.Handler, call *tool.Call) (result tool.Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			slog.ErrorContext(ctx, "panic in a call of a tool", "tool", call.Name, "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("%s: internal error", call.Name)
		}
	}()
	return handler(ctx, call)
}
