package retrieve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"toolfinch/retrieve/gate"
	"toolfinch/tool"
	"toolfinch/tool/args"
	"toolfinch/trust/policy"
	"toolfinch/trust/rate"
	"toolfinch/upstream"
)

// Failure says why a tool could not be executed.
type Failure string

// The failures. The caller can correct a bad request: an unknown tool, an unprovisioned tool, arguments that do not
// fit.
const (
	FailureBadRequest Failure = "bad_request"
	FailureConnection Failure = "connection" // the server could not be reached, or the connection was lost
	FailureTimeout    Failure = "timeout"
	FailureDenied     Failure = "denied"    // by a policy
	FailureLimited    Failure = "limited"   // too many calls, in a time or at once
	FailureExecution  Failure = "execution" // any other failure
)

// ExecuteError is the error of a call without a result.
type ExecuteError struct {
	Failure Failure
	ID      string // as requested
	Server  string // the server that failed; "" for a bad request
	Err     error
}

// Error is for the client. It begins with "Invalid tool ID format: X", "Unknown tool: X", "Tool X not
// provisioned.", "Server S not connected: " or "Tool execution failed: ", or says which arguments do not fit.
func (e *ExecuteError) Error() string {
	var of *upstream.Error
	errors.As(e.Err, &of)
	switch e.Failure {
	case FailureBadRequest, FailureDenied, FailureLimited:
		return e.Err.Error()
	case FailureConnection:
		reason := e.Err
		if of != nil {
			reason = of.Err
		}
		return fmt.Sprintf("Server %s not connected: %s", e.Server, strings.TrimPrefix(reason.Error(), "connect: "))
	}
	text := e.Err.Error()
	if of == nil {
		text = fmt.Sprintf("server %s: %s", e.Server, text)
	}
	if e.Failure == FailureTimeout && !strings.Contains(text, upstream.ErrTimeout.Error()) {
		text += " (" + upstream.ErrTimeout.Error() + ")"
	}
	return "Tool execution failed: " + text
}

func (e *ExecuteError) Unwrap() error { return e.Err }

// Execute calls the tool that Catalog.Find finds for id, on behalf of the maker of the call: with its _meta, its
// progress, and its answers to the tool's questions. arguments are an object, the JSON text of an object, or
// absent. A result with isError is a result. The error is an *ExecuteError.
func (c *caller) Execute(ctx context.Context, call *tool.Call, id string, arguments json.RawMessage) (tool.Result, error) {
	t, ok := c.catalog.find(id)
	if !ok {
		c.refuse(ctx, call, id, nil, tool.ErrNotFound)
		for _, a := range c.absent() {
			if a.mayHave(id) && !a.Listed {
				return nil, &ExecuteError{Failure: FailureConnection, ID: id, Server: a.Server, Err: errors.New(a.why())}
			}
		}
		return nil, &ExecuteError{Failure: FailureBadRequest, ID: id, Err: &args.Error{Problem: unknownID(c.catalog, id, nil) + c.Because(id)}}
	}
	object := json.RawMessage(`{}`)
	if err := args.Object("arguments", &object).Read(arguments); err != nil {
		c.refuse(ctx, call, id, t, err)
		return nil, &ExecuteError{Failure: FailureBadRequest, ID: id, Err: err}
	}
	result, err := c.checked(t)(ctx, CallOf(call, t, id, object))
	if err != nil {
		return nil, failureOf(t, err)
	}
	return result, nil
}

// Misfits returns the violations for which Execute would refuse the arguments, one line each ("/path: what"). The
// error is ctx's.
func (c *caller) Misfits(ctx context.Context, t *tool.Tool, arguments json.RawMessage) ([]string, error) {
	if c.validate != nil && !c.validate(t.Def.ID.Server) {
		return nil, nil
	}
	err := c.checkArguments(ctx, t, arguments)
	if misfit, ok := errors.AsType[*argumentsError](err); ok {
		return misfit.violations, nil
	}
	return nil, err
}

// failureOf returns the *ExecuteError for the error of a call.
func failureOf(t *tool.Tool, err error) *ExecuteError {
	e := &ExecuteError{Failure: FailureExecution, ID: t.Name, Server: t.Def.ID.Server, Err: err}
	var of *upstream.Error
	if errors.As(err, &of) { // in a composite tool, the server of the step
		e.Server = of.Server
	}
	switch {
	case errors.As(err, new(*argumentsError)), errors.Is(err, gate.ErrNotProvisioned):
		e.Failure, e.Server = FailureBadRequest, ""
	case errors.As(err, new(*policy.DeniedError)):
		e.Failure, e.Server = FailureDenied, ""
	case errors.As(err, new(*rate.Error)):
		e.Failure, e.Server = FailureLimited, ""
	case errors.Is(err, upstream.ErrNotConnected), errors.Is(err, upstream.ErrClosed):
		e.Failure = FailureConnection
	case errors.Is(err, upstream.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		e.Failure = FailureTimeout
	}
	return e
}

// execute is the handler of execute_tool. Like call_tool it passes an upstream's own error on unchanged.
func (c *caller) execute(ctx context.Context, call *tool.Call) (tool.Result, error) {
	id, arguments, err := parseCall("tool_id", call.Arguments)
	mended := err != nil
	if mended {
		var other error
		if id, arguments, other = parseCall("tool_id", shaped(call.Arguments, "tool_id", "arguments")); other != nil {
			return tool.ErrorResult(err.Error()), nil
		}
	}
	if t, ok := c.catalog.find(id); ok {
		fitting, err := c.fit(ctx, t, arguments)
		if err == nil && !bytes.Equal(fitting, arguments) {
			arguments, mended = fitting, true
		}
	}
	result, err := c.Execute(ctx, call, id, arguments)
	if mended && err == nil {
		result = c.hinted(call, result, strings.Replace(formOf(id, arguments), "name", "tool_id", 1))
	}
	var rpc *tool.RPCError
	switch {
	case errors.As(err, &rpc):
		return nil, rpc
	case err != nil:
		return tool.ErrorResult(err.Error()), nil
	}
	return result, nil
}
