package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"toolfinch/gate"
	"toolfinch/rawjson"
	"toolfinch/rawjson/args"
	"toolfinch/retrieve"
	"toolfinch/upstream"
)

// problem is an answer that is an error, for the client to read.
type problem struct {
	status int
	detail string
	over   *gate.BudgetError // its numbers are told, nil for none
}

func (p *problem) Error() string { return p.detail }

// textInternal is what clients are told of what is nobody's affair but the log's.
const textInternal = "internal error; the log of the server says more"

func badRequest(format string, args ...any) error {
	return &problem{status: http.StatusBadRequest, detail: fmt.Sprintf(format, args...)}
}

func notFound(format string, args ...any) error {
	return &problem{status: http.StatusNotFound, detail: fmt.Sprintf(format, args...)}
}

func (p *problem) body() []byte {
	out := struct {
		Detail string       `json:"detail"`
		Needed *gate.Usage  `json:"needed,omitempty"`
		Used   *gate.Usage  `json:"used,omitempty"`
		Budget *gate.Budget `json:"budget,omitempty"`
	}{Detail: p.detail}
	if p.over != nil {
		out.Needed = &p.over.Asked
		out.Used = &p.over.Used
		out.Budget = &p.over.Budget
	}
	body := rawjson.Of(out)
	return body
}

// failures are the statuses of calls that came to no result.
var failures = map[retrieve.Failure]int{
	retrieve.FailureBadRequest: http.StatusBadRequest,
	retrieve.FailureConnection: http.StatusBadGateway,
	retrieve.FailureTimeout:    http.StatusGatewayTimeout,
	retrieve.FailureExecution:  http.StatusInternalServerError,
}

// problem makes an answer of an error. What is no client's affair is logged.
func (s *server) problem(op operation, err error) *problem {
	var known *problem
	var failed *retrieve.ExecuteError
	var over *gate.BudgetError
	var dead *upstream.Error
	var refused *args.Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &failed) && failures[failed.Failure] != 0:
		return &problem{status: failures[failed.Failure], detail: failed.Error()}
	case errors.As(err, &refused):
		return &problem{status: http.StatusBadRequest, detail: refused.Error()}
	case errors.As(err, &over):
		return &problem{status: http.StatusConflict, detail: over.Error(), over: over}
	case errors.Is(err, retrieve.ErrNotGated):
		return &problem{status: http.StatusConflict, detail: err.Error()}
	case errors.Is(err, gate.ErrSessionEnded): // after the request was let in
		return &problem{status: http.StatusBadRequest, detail: err.Error()}
	case errors.Is(err, ErrNoView), errors.Is(err, ErrNoServer):
		return &problem{status: http.StatusNotFound, detail: err.Error()}
	case errors.As(err, &dead) && errors.Is(err, upstream.ErrUnknownServer):
		return &problem{status: http.StatusNotFound, detail: dead.Error()}
	case errors.As(err, &dead) && (errors.Is(err, upstream.ErrTimeout) || errors.Is(err, context.DeadlineExceeded)):
		return &problem{status: http.StatusGatewayTimeout, detail: dead.Error()}
	case errors.As(err, &dead):
		return &problem{status: http.StatusBadGateway, detail: dead.Error()}
	}
	s.log.Error("a request failed", "operation", op.name, "error", err)
	return &problem{status: http.StatusInternalServerError, detail: textInternal}
}

// errNoResult says that a tool answered with what is no result.
var errNoResult = errors.New("the tool answered nothing that is a result")
