package script

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.starlark.net/starlark"

	"toolfinch/internal/rawjson"
)

// Bounds of a run's messages.
const (
	maxMessage = 2000 // bytes of an error
	maxLine    = 2 << 10
	maxLines   = 1000
	maxLogged  = 256 << 10
)

// errTime is the cause of a context past the time limit.
var errTime = errors.New("time is over")

// run is one run of the interpreter. Only the goroutine that runs it touches it.
type run struct {
	ctx    context.Context
	thread *starlark.Thread
	limits Limits
	log    *lines
	limit  error // the limit that stopped the interpreter, or nil
	script bool  // a model's script, which cannot raise its limits

	info  *Info
	door  door // nil for hooks
	now   func() time.Time
	count *counter // nil without a program

	end func() // called at the end of the run
}

const runKey = "run"

func runOf(thread *starlark.Thread) *run { return thread.Local(runKey).(*run) }

// builtin makes a function for scripts.
func builtin(name string, do func(r *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error)) *starlark.Builtin {
	return starlark.NewBuiltin(name, func(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		return do(runOf(thread), args, kwargs)
	})
}

// newRun begins a run. Its owner calls end.
func newRun(ctx context.Context, name string, info *Info, limits Limits, log func(string)) *run {
	limits = limits.orDefaults()
	r := &run{limits: limits, info: cmp.Or(info, &Info{}), log: &lines{to: log}, now: time.Now}
	r.thread = &starlark.Thread{Name: name, Print: func(_ *starlark.Thread, text string) { r.log.say(text) }}
	r.thread.SetLocal(runKey, r)
	r.thread.SetMaxExecutionSteps(limits.Steps)
	r.thread.OnMaxSteps = func(thread *starlark.Thread) {
		r.limit = reached(r.script, "%d steps: loop less", "the limit of steps", limits.Steps)
		thread.Cancel("too many steps")
	}
	timed, cancel := context.WithTimeoutCause(ctx, limits.Time, errTime)
	r.ctx = timed
	told := make(chan struct{})
	stop := context.AfterFunc(timed, func() {
		defer close(told)
		r.thread.Cancel("ended")
	})
	r.end = func() {
		if !stop() {
			<-told
		}
		cancel()
	}
	return r
}

// reached is the error of a limit; raise names the setting, for the owner only.
func reached(script bool, format, raise string, args ...any) error {
	if !script {
		format += ", or raise " + raise
	}
	return limitError(format, args...)
}

// lines is the log of a run: its number and size are bounded.
type lines struct {
	to     func(string) // nil for nobody
	lines  int
	logged int // bytes
}

// say writes a line, up to the bound.
func (l *lines) say(text string) {
	if l.to == nil || l.lines > maxLines || l.logged > maxLogged {
		return
	}
	text = rawjson.Clip(text, maxLine)
	l.lines++
	l.logged += len(text)
	if l.lines > maxLines || l.logged > maxLogged {
		text = "... (and more)"
	}
	l.to(text)
}

// alive fails when the run must end.
func (r *run) alive() error {
	if r.ctx.Err() == nil {
		return nil
	}
	return context.Cause(r.ctx)
}

// protect makes an error of the script from a panic of the interpreter.
func (r *run) protect(do func() error) (err error) {
	defer func() {
		if caught := recover(); caught != nil {
			err = fmt.Errorf("internal error of the interpreter: %v", caught)
		}
	}()
	if err := r.alive(); err != nil {
		return err
	}
	return do()
}

// output is a result as JSON, nil for None.
func (r *run) output(v starlark.Value) (json.RawMessage, error) {
	if v == starlark.None {
		return nil, nil
	}
	out, err := encode(v, r.limits.Output)
	if errors.Is(err, errOutput) {
		return nil, reached(r.script, "%d bytes of output: return less", "the limit of output", r.limits.Output)
	}
	return out, err
}

// failure turns the error of a run into an *AbortError or an *Error.
func (r *run) failure(name string, err error) error {
	fromHost := (*hostError)(nil)
	own := !errors.As(err, &fromHost)
	if abort := (*AbortError)(nil); own && errors.As(err, &abort) {
		return abort
	}
	failed := &Error{File: name, Message: err.Error(), Err: err}
	if inner := (*Error)(nil); own && errors.As(err, &inner) {
		*failed = *inner // in a loaded module
	} else if at := (*starlark.EvalError)(nil); errors.As(err, &at) {
		for deeper := at; errors.As(errors.Unwrap(at), &deeper); {
			at = deeper // the stack of the loaded module
		}
		failed.Message, failed.Err = at.Msg, errors.Unwrap(at)
		for i := range at.CallStack {
			if pos := at.CallStack.At(i).Pos; pos.Line > 0 {
				failed.File, failed.Line = pos.Filename(), int(pos.Line)
				break
			}
		}
	}
	switch {
	case r.limit != nil:
		failed.Err = r.limit
	case own && errors.Is(err, ErrLimit), r.ctx.Err() == nil:
		failed.Message = shorten(failed.Message)
		if strings.Contains(failed.Message, " frozen ") {
			failed.Message += " (what a module defines cannot change after it was loaded; counter(key, window_seconds) counts)"
		}
		return failed
	case errors.Is(context.Cause(r.ctx), errTime):
		failed.Err = reached(r.script, "%s of time: do less", "the timeout", r.limits.Time)
	default:
		failed.Err = r.ctx.Err()
	}
	failed.Message = failed.Err.Error()
	return failed
}

func shorten(message string) string { return rawjson.Clip(message, maxMessage) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
