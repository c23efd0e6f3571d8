package script

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"toolfinch/internal/limit"
	"toolfinch/internal/rawjson"
)

// maxProcesses bounds the concurrent scripts of models. One caller has at most half of them. More wait.
const maxProcesses = 16

// grace is the time past its limit in which a script's process must report that the time is over. After
// it, the process is stuck in one operation.
const grace = 500 * time.Millisecond

// Sandbox runs models' scripts, each in a process of its own that runs nothing else. It is safe for
// concurrent use.
type Sandbox struct {
	log   *slog.Logger
	turns *limit.Turns // of callers' scripts

	mu     sync.Mutex // guards the rest; never held while a process starts or is waited for
	ready  bool       // a spare process is kept
	closed bool
	spare  *process
	all    map[*process]bool // processes that have not ended

	ended sync.WaitGroup // processes, and starts of spares
}

// NewSandbox returns a Sandbox without a process. Its owner closes it.
func NewSandbox(log *slog.Logger) *Sandbox {
	return &Sandbox{log: log, turns: limit.NewTurns(maxProcesses), all: map[*process]bool{}}
}

// Ready says whether a spare process is kept, so that the next script starts at once.
func (s *Sandbox) Ready(ready bool) {
	s.mu.Lock()
	s.ready = ready
	spare := s.spare
	if !ready {
		s.spare = nil
	}
	s.mu.Unlock()
	switch {
	case !ready && spare != nil:
		spare.discard()
	case ready && spare == nil:
		s.refill()
	}
}

// Close ends all processes, and returns when they have ended. Running scripts fail.
func (s *Sandbox) Close() {
	s.mu.Lock()
	s.closed = true
	if s.spare != nil {
		s.spare.discard()
		s.spare = nil
	}
	for p := range s.all {
		p.kill()
	}
	s.mu.Unlock()
	s.ended.Wait()
}

var errClosed = errors.New("scripts are not run any more: the program is ending")

// start starts a process.
func (s *Sandbox) start() (*process, error) {
	p, started := newProcess(), make(chan error, 1)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, errClosed
	}
	s.ended.Go(func() {
		p.live(started)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, p)
	})
	s.mu.Unlock()
	if err := <-started; err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		p.discard()
		return nil, errClosed
	case !p.gone():
		s.all[p] = true
	}
	return p, nil
}

// refill starts a spare process if one is wanted and missing.
func (s *Sandbox) refill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready || s.closed || s.spare != nil {
		return
	}
	s.ended.Go(func() {
		p, err := s.start()
		if err != nil {
			if !errors.Is(err, errClosed) {
				s.log.Warn("the spare process for scripts could not be started", "error", err)
			}
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.ready || s.closed || s.spare != nil {
			p.discard()
			return
		}
		s.spare = p
	})
}

// take returns an unused process: the spare, or a new one.
func (s *Sandbox) take() (*process, error) {
	s.mu.Lock()
	p := s.spare
	s.spare = nil
	s.mu.Unlock()
	defer s.refill()
	if p == nil {
		return s.start()
	}
	if p.gone() {
		p.discard()
		return s.start()
	}
	return p, nil
}

// Run runs a model's script. The result is the value of main() or main(ctx) if it defines main, else
// its global named result; nil without one or for None. The functions of ctx are globals as well. The
// error is an *AbortError or an *Error, whose File is "script". info, host and log may be nil. All
// calls of host have ended when it returns.
func (s *Sandbox) Run(ctx context.Context, source string, info *Info, host Host, limits Limits, log func(string)) (json.RawMessage, error) {
	if len(source) > maxScript {
		return fail(limitError("%d bytes of source", maxScript))
	}
	x := &exchange{limits: limits.orDefaults(), lines: lines{to: log}}
	if host != nil {
		x.door = newHostDoor(host, x.limits)
		x.door.script = true
	}
	if info == nil {
		info = &Info{}
	}
	waiting, done := context.WithTimeout(ctx, x.limits.Time)
	defer done()
	end, err := s.turns.Take(waiting, cmp.Or(info.Principal, info.Session))
	switch {
	case ctx.Err() != nil:
		return fail(ctx.Err())
	case err != nil:
		return fail(limitError("%d scripts at a time, %d of one caller: try again later", maxProcesses, maxProcesses/2))
	}
	defer end()
	return s.run(ctx, x, order{Source: source, Info: *info, Limits: x.limits, Tools: host != nil})
}

// Query evaluates a model's jq expression over JSON. The result is the JSON array of all values. The
// limits Steps and Calls do not apply, and the caller bounds how many run at a time. The error is an *Error.
func (s *Sandbox) Query(ctx context.Context, expression string, data []byte, limits Limits) (json.RawMessage, error) {
	limits = limits.orDefaults()
	return s.run(ctx, &exchange{limits: limits}, order{Query: expression, Data: data, Limits: limits})
}

func fail(err error) (json.RawMessage, error) {
	return nil, &Error{File: scriptName, Message: err.Error(), Err: err}
}

// run sends a process its order.
func (s *Sandbox) run(ctx context.Context, x *exchange, o order) (json.RawMessage, error) {
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	limits := x.limits
	p, err := s.take()
	if err != nil {
		s.log.Error("a script's process cannot be started", "error", err)
		return nil, &Error{File: scriptName, Message: "its process cannot be started", Err: err}
	}
	defer p.end()
	x.process = p
	timed, cancel := context.WithTimeoutCause(ctx, limits.Time, errTime)
	defer cancel()
	defer context.AfterFunc(ctx, p.kill)()
	defer context.AfterFunc(p.life, cancel)() // calls without a process have no use
	defer time.AfterFunc(limits.Time+grace, p.kill).Stop()
	result, err := x.run(timed, o)
	if err == nil || errors.As(err, new(*Error)) || errors.As(err, new(*AbortError)) {
		return result, err
	}
	// The process has ended, or is ended because it broke the protocol.
	over := context.Cause(timed)
	state := p.end()
	switch {
	case ctx.Err() != nil:
		return fail(ctx.Err())
	case s.isClosed():
		return fail(errClosed)
	case p.limitReached(limits) != nil:
		return fail(p.limitReached(limits))
	case errors.Is(over, errTime):
		return fail(timeOver(limits))
	}
	s.log.Warn("a script's process ended", "state", state, "error", err, "stderr", string(p.stderr.Bytes()))
	return nil, &Error{File: scriptName, Message: "its process ended (" + state + ")", Err: err}
}

func timeOver(limits Limits) error { return limitError("%s of time: do less", limits.Time) }

func (s *Sandbox) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// exchange is one script in its parent. It trusts no message of the script's process.
type exchange struct {
	*process
	limits Limits
	lines  lines
	door   *hostDoor // nil without a Host
}

// errProtocol ends a process after a forbidden message.
var errProtocol = errors.New("the other process broke the protocol between the two")

// overhead bounds a message beside its result or arguments.
const overhead = 4 << 20

// run sends the process its order and makes its requests until it ends. The error is the *AbortError or
// *Error that the process reported, else an error of the connection.
func (x *exchange) run(ctx context.Context, o order) (json.RawMessage, error) {
	if err := x.messages.Send(o); err != nil {
		return nil, err
	}
	for {
		var got saying
		if err := x.messages.Receive(&got, max(maxArguments, x.limits.Output)+overhead); err != nil {
			return nil, err
		}
		switch {
		case got.Log != nil:
			x.lines.say(*got.Log)
		case got.Ask != nil && x.door != nil:
			if err := x.pass(ctx, got.Ask); err != nil {
				return nil, err
			}
		case got.Error != nil:
			return nil, x.reported(got.Error)
		case got.Ask == nil && len(got.Result) <= x.limits.Output:
			return got.Result, nil
		default:
			return nil, errProtocol
		}
	}
}

// pass answers requests.
func (x *exchange) pass(ctx context.Context, requests []*request) error {
	for _, one := range requests {
		if one == nil || !one.Search && !rawjson.IsObject(one.Arguments) {
			return errProtocol
		}
	}
	var a answer
	err := x.door.pass(ctx, requests)
	if errors.Is(context.Cause(ctx), errTime) {
		err = timeOver(x.limits)
	}
	if err != nil {
		return x.messages.Send(answer{Limit: err.Error()})
	}
	for _, one := range requests {
		came := outcome{Value: one.result}
		if one.err == nil && one.result != nil {
			one.err = valid(one.result)
		}
		if one.err != nil {
			text := one.err.Error()
			came = outcome{Error: &text}
		}
		a.Came = append(a.Came, came)
	}
	return x.messages.Send(a)
}

// reported returns the error that the process reported.
func (x *exchange) reported(r *report) error {
	if r.Abort {
		return &AbortError{Reason: shorten(r.Message)}
	}
	failed := &Error{File: scriptName, Line: r.Line, Message: rawjson.Clip(r.Message, 2*maxMessage)}
	switch {
	case r.Limit:
		failed.Err = ErrLimit
	case r.Host && x.door != nil:
		failed.Err = x.door.failed
	}
	return failed
}
