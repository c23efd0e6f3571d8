package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"toolfinch/internal/identity"
	"toolfinch/internal/rawjson"
	"toolfinch/retrieve"
	"toolfinch/retrieve/gate"
	"toolfinch/tool/args"
	"toolfinch/trust/rate"
	"toolfinch/upstream"
)

// problem is an error that the client is answered.
type problem struct {
	status int
	detail string
	over   *gate.BudgetError    // adds its numbers to the answer; may be nil
	wait   int                  // seconds for Retry-After; 0 for none
	lacks  *identity.ScopeError // the missing scope, or nil
}

// challenge returns the answer's header WWW-Authenticate, "" for none.
func (p *problem) challenge(r *http.Request) string {
	if p.lacks == nil {
		return ""
	}
	return identity.Challenge(r.Context(), p.lacks)
}

func (p *problem) Error() string { return p.detail }

// textInternal is answered for errors that only the log describes.
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
		out.Needed, out.Used, out.Budget = &p.over.Asked, &p.over.Used, &p.over.Budget
	}
	return rawjson.Of(out)
}

var failures = map[retrieve.Failure]int{
	retrieve.FailureBadRequest: http.StatusBadRequest,
	retrieve.FailureDenied:     http.StatusForbidden,
	retrieve.FailureLimited:    http.StatusTooManyRequests,
	retrieve.FailureConnection: http.StatusBadGateway,
	retrieve.FailureTimeout:    http.StatusGatewayTimeout,
	retrieve.FailureExecution:  http.StatusInternalServerError,
}

// problem turns an error into an answer. Errors that are not for clients are logged.
func (s *server) problem(op operation, err error) *problem {
	var known *problem
	var failed *retrieve.ExecuteError
	var over *gate.BudgetError
	var dead *upstream.Error
	var refused *args.Error
	var lacks *identity.ScopeError
	var away interface { // store's error; Brief does not name the database
		error
		Brief() string
	}
	answer := func(status int, told error) *problem {
		p := &problem{status: status, detail: told.Error(), over: over}
		if limited := new(rate.Error); errors.As(err, &limited) {
			p.wait = limited.Seconds()
		}
		return p
	}
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &lacks):
		return &problem{status: http.StatusForbidden, detail: lacks.Error(), lacks: lacks}
	case errors.As(err, &away):
		return &problem{status: http.StatusServiceUnavailable, detail: away.Brief()}
	case errors.As(err, new(*Unavailable)), errors.Is(err, gate.ErrNotStored):
		return answer(http.StatusServiceUnavailable, err)
	case errors.As(err, &failed) && failures[failed.Failure] != 0:
		return answer(failures[failed.Failure], failed)
	case errors.As(err, &refused):
		return answer(http.StatusBadRequest, refused)
	case errors.Is(err, gate.ErrSessionEnded): // the session ended after the request was let in
		return answer(http.StatusBadRequest, err)
	case errors.As(err, &over):
		return answer(http.StatusConflict, over)
	case errors.Is(err, retrieve.ErrNotGated), errors.Is(err, ErrStale):
		return answer(http.StatusConflict, err)
	case errors.Is(err, ErrOwner):
		return answer(http.StatusForbidden, err)
	case errors.Is(err, ErrNoView), errors.Is(err, ErrNoServer):
		return answer(http.StatusNotFound, err)
	case !errors.As(err, &dead):
		s.log.Error("a request failed", "operation", op.name, "error", err)
		return &problem{status: http.StatusInternalServerError, detail: textInternal}
	case errors.Is(err, upstream.ErrUnknownServer):
		return answer(http.StatusNotFound, dead)
	case errors.Is(err, upstream.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		return answer(http.StatusGatewayTimeout, upstream.Brief(dead))
	}
	return answer(http.StatusBadGateway, upstream.Brief(dead))
}

// Unavailable marks a temporary error: the client may try again.
type Unavailable struct{ Err error }

func (u *Unavailable) Error() string { return u.Err.Error() }
func (u *Unavailable) Unwrap() error { return u.Err }

var errNoResult = errors.New("the tool answered nothing that is a result")
