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

// observer is around every call, read, get and retrieval, whatever surface it comes by. It
// makes one telemetry.Operation of each, for the feed, the log and metrics, and one line of
// the audit log where there is one.
type observer struct {
	audit   auditor
	feed    *telemetry.Feed
	metrics *telemetry.Metrics
	log     *slog.Logger

	strangers *strangers
}

func newObserver(a auditor, log *slog.Logger) *observer {
	return &observer{audit: a, feed: telemetry.NewFeed(), metrics: telemetry.NewMetrics(), log: log, strangers: newStrangers()}
}

// around has the calls of a tool of a view observed.
func (o *observer) around(view string, t *tool.Tool) tool.Middleware {
	about := subjectOf(view, t)
	return func(next tool.Handler) tool.Handler {
		return o.observed(next, func(*tool.Call) subject { return about })
	}
}

// observed has each call of a handler observed. Before it is made there must be room for
// its line in the audit log.
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

// note takes down a call that was not made.
func (o *observer) note(ctx context.Context, s subject, call *tool.Call, name, reason string) {
	began := s.operation(ctx, call)
	began.Name = printable.URI(name)
	_, running := o.feed.Begin(ctx, began)
	o.finished(ctx, running.End(identity.Denied, reason, 0))
	o.audit.note(ctx, s, call, func(line *audit.Line) { line.Name, line.Outcome, line.Reason = name, identity.Denied, reason })
}

// finished tells those of a finished operation who are not told by the feed.
func (o *observer) finished(ctx context.Context, done *telemetry.Operation) {
	o.metrics.Operation(done)
	logged(ctx, o.log, done)
}

// record takes down an event that is no operation.
func (o *observer) record(ctx context.Context, e identity.Event) {
	o.metrics.Event(e)
	if !o.strangers.admits(&e) {
		return
	}
	logEvent(ctx, o.log, e)
	o.audit.log.Record(ctx, e)
}

// spawned takes down the process of a server.
func (o *observer) spawned(server string, s *upstream.Settings, pid int) {
	o.metrics.Started(server)
	o.audit.spawned(server, s, pid)
}

// outcomeOf says what came of a call, and why where it did not succeed. The texts of
// servers are no part of that (see say): they may repeat arguments.
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

// say notes what the JSON-RPC error that ends a call says.
func say(running *telemetry.Running, err error) {
	if err == nil {
		return
	}
	if rpc, ok := errors.AsType[*tool.RPCError](err); ok {
		running.Say(rpc.Message)
	}
}

// lines counts what was taken down within a call of a meta-tool.
type lines struct{ n atomic.Int32 }

type linesKey struct{}

func noteLine(ctx context.Context) {
	if l, ok := ctx.Value(linesKey{}).(*lines); ok {
		l.n.Add(1)
	}
}

// aroundMeta has the calls of a meta-tool of a view observed. One that only calls another
// tool is no operation of its own where that is one.
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
			if inside.n.Load() == 0 { // it did not get so far
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

// passesOn reports whether a call of a meta-tool is that of another tool.
func passesOn(v *served.View, call *tool.Call) bool {
	if call.Name == v.Settings.ProxyTool {
		return kindOf(v, call) == savings.Use
	}
	return retrieve.Calls(call.Name)
}

// refused takes down a call that was not made: of name, which the caller has not in the
// view (t is nil), or of t.
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

// revealed makes the tool that a policy hides from the caller the subject, for those who
// watch; a view without policies hides none.
func revealed(ctx context.Context, v *served.View, call *tool.Call, name string, s *subject) {
	if hidden, decided := v.Hidden(ctx, call, name); hidden != nil {
		s.tool, s.decision = hidden, &audit.Decision{Policy: decided.Policy()}
	}
}

// refusalOf is the first line of a reason: others repeat arguments and schemas.
func refusalOf(reason error) string {
	first, _, _ := strings.Cut(reason.Error(), "\n")
	return first
}

// denials counts what policies denied, by the policies that did.
type denials struct {
	mu sync.Mutex // guards by; held for look-ups only
	by map[string]int64
}

// maxDenials bounds the policies that are told apart: reloads may bring others.
const maxDenials = 1000

func (d *denials) count(decided policy.Decision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.by == nil || len(d.by) >= maxDenials {
		d.by = map[string]int64{}
	}
	d.by[decided.Policy()]++
}

// each calls f with every policy that denied something, and how often.
func (d *denials) each(f func(policy string, n int64)) {
	d.mu.Lock()
	by := maps.Clone(d.by)
	d.mu.Unlock()
	for id, n := range by {
		f(id, n)
	}
}
