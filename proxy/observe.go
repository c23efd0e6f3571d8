package proxy

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/printable"
	"toolfinch/internal/telemetry"
	"toolfinch/proxy/savings"
	"toolfinch/proxy/served"
	"toolfinch/retrieve"
	"toolfinch/retrieve/gate"
	"toolfinch/tool"
	"toolfinch/trust/audit"
	"toolfinch/trust/policy"
	"toolfinch/upstream"
)

// observer wraps every call, read, prompt and retrieval of every way in. It makes each into one telemetry.Operation
// for the feed, the log and the metrics, and into one line of the audit log, if any.
type observer struct {
	audit   auditor
	feed    *telemetry.Feed
	metrics *telemetry.Metrics
	log     *slog.Logger

	strangers *strangers
	left      leavers
}

func newObserver(a auditor, log *slog.Logger) *observer {
	return &observer{audit: a, feed: telemetry.NewFeed(), metrics: telemetry.NewMetrics(), log: log, strangers: newStrangers()}
}

// around returns the layer that observes calls of a tool of a view.
func (o *observer) around(view string, t *tool.Tool) tool.Middleware {
	about := subjectOf(view, t)
	return func(next tool.Handler) tool.Handler {
		return o.observed(next, func(*tool.Call) subject { return about })
	}
}

// observed returns a handler that observes each call of next. If the audit log has no room for its line, the call is
// not made.
func (o *observer) observed(next tool.Handler, about func(*tool.Call) subject) tool.Handler {
	return func(ctx context.Context, call *tool.Call) (result tool.Result, err error) {
		s := about(call)
		outer := ctx
		ctx, running := o.feed.Begin(ctx, s.operation(ctx, call))
		noteLine(ctx)
		if err := o.audit.log.Admit(); err != nil {
			o.finished(ctx, running.End(identity.Failed, err.Error(), 0))
			return nil, err
		}
		inner, decided := identity.WithDecision(ctx)
		var begun *beginning
		if o.audit.log != nil {
			begun = &beginning{about: s, call: call}
			inner = context.WithValue(inner, beginningKey{}, begun)
		}
		ended := false
		defer func() {
			outcome, reason := outcomeOf(outer, result, err)
			switch {
			case !ended:
				outcome, reason = identity.Failed, "panic"
			case decided.Made && !decided.Allow && outcome != identity.Success:
				outcome = identity.Denied
			}
			if decided.Made {
				s.decision = &audit.Decision{Allow: decided.Allow, Policy: decided.Policy}
			}
			say(running, err)
			done := running.End(outcome, reason, len(result))
			o.finished(outer, done)
			logContent(outer, o.log, done, call, result)
			o.audit.add(outer, s, call, func(line *audit.Line) {
				line.Time, line.DurationMS, line.BytesOut = done.Time, float64(done.Duration.Microseconds())/1000, done.BytesOut
				line.Call, line.Outcome, line.Reason = begun.id, outcome, reason
				if o.audit.settings.Results {
					line.Result = o.audit.log.Content(result)
				}
			})
		}()
		result, err = next(inner, call)
		ended = true
		return result, err
	}
}

// note records a call that was not made.
func (o *observer) note(ctx context.Context, s subject, call *tool.Call, name, reason string) {
	began := s.operation(ctx, call)
	began.Name = printable.URI(name)
	_, running := o.feed.Begin(ctx, began)
	o.finished(ctx, running.End(identity.Denied, reason, 0))
	o.audit.note(ctx, s, call, func(line *audit.Line) { line.Name, line.Outcome, line.Reason = name, identity.Denied, reason })
}

// finished counts and logs a finished operation. The feed already has it.
func (o *observer) finished(ctx context.Context, done *telemetry.Operation) {
	o.metrics.Operation(done)
	logged(ctx, o.log, done)
}

// record counts, logs and audits an event that is no operation.
func (o *observer) record(ctx context.Context, e identity.Event) {
	o.metrics.Event(e)
	if !o.strangers.admits(&e) {
		return
	}
	logEvent(ctx, o.log, e)
	o.audit.log.Record(ctx, e)
}

// spawned counts and audits the process of a server.
func (o *observer) spawned(server string, s *upstream.Settings, pid int) {
	o.metrics.Started(server)
	o.audit.spawned(server, s, pid)
}

// outcomeOf returns the outcome of a call, and the reason for a failure. The reason contains no text of a server,
// because that may repeat arguments (see say).
func outcomeOf(ctx context.Context, result tool.Result, err error) (outcome, reason string) {
	if err != nil {
		return outcomeOfError(ctx, err)
	}
	switch {
	case result.Failed():
		return identity.ToolError, ""
	case !result.Complete():
		return identity.Success, "not complete: the client is asked, or told of a task"
	}
	return identity.Success, ""
}

func outcomeOfError(ctx context.Context, err error) (outcome, reason string) {
	var rpc *tool.RPCError
	var lacks *identity.ScopeError
	switch {
	case errors.As(err, &lacks):
		return identity.Denied, err.Error()
	case errors.Is(err, tool.ErrNotFound), errors.Is(err, gate.ErrNotProvisioned):
		return identity.Denied, err.Error()
	case errors.Is(err, upstream.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		return identity.Timeout, upstream.Reason(err)
	case ctx.Err() != nil:
		return identity.Cancelled, upstream.Reason(err)
	case errors.As(err, &rpc):
		return identity.Failed, "error " + strconv.Itoa(rpc.Code)
	}
	return identity.Failed, upstream.Reason(err)
}

// say adds the message of a JSON-RPC error to the operation.
func say(running *telemetry.Running, err error) {
	if err == nil {
		return
	}
	if rpc, ok := errors.AsType[*tool.RPCError](err); ok {
		running.Say(rpc.Message)
	}
}

// lines counts the operations recorded within a call of a meta-tool.
type lines struct{ n atomic.Int32 }

type linesKey struct{}

func noteLine(ctx context.Context) {
	if l, ok := ctx.Value(linesKey{}).(*lines); ok {
		l.n.Add(1)
	}
}

// aroundMeta returns a meta-tool of a view with its calls observed. If the meta-tool calls another tool, only the call
// of that tool is recorded.
func (o *observer) aroundMeta(v *served.View, t *tool.Tool) *tool.Tool {
	of := func(call *tool.Call) subject {
		s := subject{kind: identity.EventCall, view: v.Name, meta: true}
		if kindOf(v, call) == savings.Search {
			s.kind = identity.EventRetrieve
		}
		return s
	}
	return t.With(tool.LayerObserved, func(next tool.Handler) tool.Handler {
		whole := o.observed(next, of)
		return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			if !passesOn(v, call) {
				return whole(ctx, call)
			}
			inside := &lines{}
			about := of(call)
			began := about.operation(ctx, call)
			began.Time = time.Now()
			result, err := next(context.WithValue(ctx, linesKey{}, inside), call)
			if inside.n.Load() == 0 { // the call of the other tool was not reached
				outcome, reason := outcomeOf(ctx, result, err)
				_, running := o.feed.Begin(ctx, began)
				say(running, err)
				o.finished(ctx, running.End(outcome, reason, len(result)))
				o.audit.note(ctx, about, call, func(line *audit.Line) {
					line.Time, line.Outcome, line.Reason, line.BytesOut = began.Time, outcome, reason, len(result)
				})
			}
			return result, err
		}
	})
}

// passesOn reports whether a call of a meta-tool calls another tool.
func passesOn(v *served.View, call *tool.Call) bool {
	if call.Name == v.Settings.ProxyTool {
		return kindOf(v, call) == savings.Use
	}
	return retrieve.Calls(call.Name)
}

// refused returns the function that records a refused call of t. If t is nil, the view has no tool called name for the
// caller.
func (o *observer) refused(v *served.View) func(ctx context.Context, call *tool.Call, name string, t *tool.Tool, reason error) {
	return func(ctx context.Context, call *tool.Call, name string, t *tool.Tool, reason error) {
		noteLine(ctx)
		s := subject{kind: identity.EventCall, view: v.Name}
		if t != nil {
			s = subject{kind: identity.EventCall, view: v.Name, tool: t}
		} else {
			revealed(ctx, v, call, name, &s)
		}
		o.note(ctx, s, call, name, refusalOf(reason))
	}
}

// revealed sets the tool and the decision of s if a policy hides the tool called name from the caller: logs name the
// hidden tool.
func revealed(ctx context.Context, v *served.View, call *tool.Call, name string, s *subject) {
	if hidden, decided := v.Hidden(ctx, call, name); hidden != nil {
		s.tool, s.decision = hidden, &audit.Decision{Policy: decided.Policy()}
	}
}

// refusalOf returns the first line of a reason, because further lines repeat arguments and schemas.
func refusalOf(reason error) string {
	first, _, _ := strings.Cut(reason.Error(), "\n")
	return first
}

// denials counts denials by policy.
type denials struct {
	mu sync.Mutex // guards by; held for look-ups only
	by map[string]int64
}

// maxDenials bounds the number of policies with a count, because each reload may bring new policies.
const maxDenials = 1000

func (d *denials) count(decided policy.Decision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.by == nil || len(d.by) >= maxDenials {
		d.by = map[string]int64{}
	}
	d.by[decided.Policy()]++
}

// each calls f for every policy with its number of denials.
func (d *denials) each(f func(policy string, n int64)) {
	d.mu.Lock()
	by := maps.Clone(d.by)
	d.mu.Unlock()
	for id, n := range by {
		f(id, n)
	}
}
