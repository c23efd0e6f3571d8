package proxy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"toolfinch/configs"
	"toolfinch/gate"
	"toolfinch/rawjson"
	"toolfinch/retrieve"
	"toolfinch/savings"
	"toolfinch/tool"
	"toolfinch/trust"
	"toolfinch/trust/audit"
	"toolfinch/upstream"
)

// auditor puts what the proxy does into the audit log. Without a log it does nothing.
type auditor struct {
	log       *audit.Log
	settings  audit.Settings
	strangers *strangers
}

// strangers bounds the lines about requests of nobody in particular: they would fill the
// disk, or have rotation remove what others did. Those that are left out are counted in the
// next one's line.
type strangers struct {
	limit *rate.Limiter
	more  atomic.Int64
}

// Bounds of these lines.
const (
	strangersEvery  = 100 * time.Millisecond
	strangersAtOnce = 200
)

// admits reports whether an event has a line; e is given the count of those that had none.
func (s *strangers) admits(e *trust.Event) bool {
	if e.Kind != trust.EventRefused || e.Principal != "" {
		return true
	}
	if !s.limit.Allow() {
		s.more.Add(1)
		return false
	}
	if n := s.more.Swap(0); n > 0 {
		e.Details = map[string]string{"more": strconv.FormatInt(n, 10)}
	}
	return true
}

// WithAudit has what is done written to a log, of the settings that it was opened with.
// Run writes it, and Close closes it.
func WithAudit(log *audit.Log, settings audit.Settings) Option {
	return func(o *options) {
		o.audit = auditor{log, settings, &strangers{limit: rate.NewLimiter(rate.Every(strangersEvery), strangersAtOnce)}}
	}
}

// record takes an event down.
func (a auditor) record(ctx context.Context, e trust.Event) {
	if a.log != nil && a.strangers.admits(&e) {
		a.log.Record(ctx, e)
	}
}

// around has every call of a tool of a view written down: before it is made there must
// be room for its line.
func (a auditor) around(view string, t *tool.Tool, next tool.Handler) tool.Handler {
	if a.log == nil {
		return next
	}
	kind := trust.EventCall
	switch t.Def.ID.Kind {
	case tool.KindPrompt:
		kind = trust.EventPrompt
	case tool.KindResource, tool.KindTemplate:
		kind = trust.EventRead
	}
	return a.audited(next, func(*tool.Call) audit.Line { return lineOf(kind, view, t) })
}

func lineOf(kind, view string, t *tool.Tool) audit.Line {
	return audit.Line{
		Event: kind, View: view, Server: t.Def.ID.Server, Tool: t.Def.ID.String(), DefHash: t.Def.Hash,
		Annotations: &audit.Annotations{
			ReadOnly: t.Def.Annotations.ReadOnly, Destructive: t.Def.Annotations.Destructive,
			Idempotent: t.Def.Annotations.Idempotent, OpenWorld: t.Def.Annotations.OpenWorld,
		},
	}
}

// audited writes down the line of each call of a handler, with what came of it.
func (a auditor) audited(next tool.Handler, begin func(*tool.Call) audit.Line) tool.Handler {
	return func(ctx context.Context, call *tool.Call) (result tool.Result, err error) {
		if err := a.log.Admit(ctx); err != nil {
			return nil, err
		}
		noteLine(ctx)
		inner, decided := trust.WithDecision(ctx)
		start, ended := time.Now(), false
		defer func() {
			line := begin(call)
			line.Time, line.DurationMS = start, float64(time.Since(start).Microseconds())/1000
			a.describe(ctx, &line, call)
			if decided.Made {
				line.Decision = &audit.Decision{Allow: decided.Allow, Policy: decided.Policy}
			}
			line.Outcome, line.Reason = outcomeOf(ctx, result, err)
			switch {
			case !ended:
				line.Outcome, line.Reason = trust.Failed, "panic"
			case decided.Made && !decided.Allow && line.Outcome != trust.Success:
				line.Outcome = trust.Denied
			}
			line.BytesOut = len(result)
			if a.settings.Results {
				line.Result = a.log.Content(result)
			}
			a.log.Add(line)
		}()
		result, err = next(inner, call)
		ended = true
		return result, err
	}
}

// describe adds who made a call, and with which arguments.
func (a auditor) describe(ctx context.Context, line *audit.Line, call *tool.Call) {
	if call.Principal != "" {
		line.Principal = &audit.Principal{ID: call.Principal}
	}
	if c := call.Client; c != nil {
		line.Client, line.Era = audit.ClientOf(c.Name), "legacy"
		if c.Modern {
			line.Era = "2026-07-28"
		}
	}
	line.Name, line.Depth, line.Session, line.Request = call.Name, call.Depth, audit.Digest(call.Session), string(call.Request)
	if call.Local {
		line.Transport = "command"
	}
	if arguments := call.Arguments; arguments != nil {
		line.BytesIn = len(arguments)
		sum := sha256.Sum256(arguments)
		line.ArgsSHA256 = hex.EncodeToString(sum[:])
		if a.settings.Arguments == audit.ArgumentsFull {
			line.Args = a.log.Content(arguments)
		}
	}
	a.log.About(ctx, line)
}

// outcomeOf says what came of a call, and why where it did not succeed. The texts of
// servers are no part of that: they may repeat arguments.
func outcomeOf(ctx context.Context, result tool.Result, err error) (outcome, reason string) {
	var rpc *tool.RPCError
	var lacks *trust.ScopeError
	switch {
	case errors.As(err, &lacks):
		return trust.Denied, err.Error()
	case err == nil && result.Failed():
		return trust.ToolError, ""
	case err == nil && !result.Complete():
		return trust.Success, "not complete: the client is asked, or told of a task"
	case err == nil:
		return trust.Success, ""
	case errors.Is(err, tool.ErrNotFound), errors.Is(err, gate.ErrNotProvisioned):
		return trust.Denied, err.Error()
	case errors.Is(err, upstream.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		return trust.Timeout, err.Error()
	case ctx.Err() != nil:
		return trust.Cancelled, err.Error()
	case errors.As(err, &rpc):
		return trust.Failed, "error " + strconv.Itoa(rpc.Code)
	}
	return trust.Failed, err.Error()
}

// lines counts what was written down within a call of a meta-tool.
type lines struct{ n atomic.Int32 }

type linesKey struct{}

func noteLine(ctx context.Context) {
	if l, ok := ctx.Value(linesKey{}).(*lines); ok {
		l.n.Add(1)
	}
}

func (a auditor) aroundAll(v *View, tools []*tool.Tool) []*tool.Tool {
	out := make([]*tool.Tool, len(tools))
	for i, t := range tools {
		out[i] = a.aroundMeta(v, t)
	}
	return out
}

// aroundMeta has calls of a meta-tool of a view written down. One that only calls another
// has no line of its own where the other has one.
func (a auditor) aroundMeta(v *View, t *tool.Tool) *tool.Tool {
	if a.log == nil {
		return t
	}
	of := func(call *tool.Call) audit.Line {
		line := audit.Line{Event: trust.EventCall, View: v.name}
		if v.kindOf(call) == savings.Search {
			line.Event = trust.EventRetrieve
		}
		return line
	}
	whole := a.audited(t.Handler, of)
	return &tool.Tool{Name: t.Name, Def: t.Def, Handler: func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		if !v.passesOn(call) {
			return whole(ctx, call)
		}
		inside := &lines{}
		start := time.Now()
		result, err := t.Handler(context.WithValue(ctx, linesKey{}, inside), call)
		if inside.n.Load() == 0 { // it did not get so far
			line := of(call)
			a.describe(ctx, &line, call)
			line.Time, line.BytesOut = start, len(result)
			line.Outcome, line.Reason = outcomeOf(ctx, result, err)
			a.log.Add(line)
		}
		return result, err
	}}
}

// passesOn reports whether a call of a meta-tool is that of another tool.
func (v *View) passesOn(call *tool.Call) bool {
	if call.Name == v.settings.ProxyTool {
		return v.kindOf(call) == savings.Use
	}
	return retrieve.Calls(call.Name)
}

// refused writes down a call that was not made: of name, which the caller has not in the
// view (t is nil), or of t.
func (v *View) refused(a auditor) func(ctx context.Context, call *tool.Call, name string, t *tool.Tool, reason error) {
	if a.log == nil && v.whole == nil {
		return nil
	}
	return func(ctx context.Context, call *tool.Call, name string, t *tool.Tool, reason error) {
		noteLine(ctx)
		line := audit.Line{Event: trust.EventCall, View: v.name}
		if t != nil {
			line = lineOf(trust.EventCall, v.name, t)
		} else if hidden, decided := v.hidden(ctx, call, name); hidden != nil {
			line = lineOf(trust.EventCall, v.name, hidden)
			line.Decision = &audit.Decision{Policy: decided.Policy()}
		}
		if a.log == nil {
			return
		}
		a.describe(ctx, &line, call)
		line.Name, line.Outcome, line.Reason = name, trust.Denied, refusalOf(reason)
		a.log.Add(line)
	}
}

// refusalOf is the first line of a reason: others repeat arguments and schemas.
func refusalOf(reason error) string {
	first, _, _ := strings.Cut(reason.Error(), "\n")
	return first
}

// Unknown writes down a call of a name that nothing in the view has.
func (b behind) Unknown(ctx context.Context, call *tool.Call) {
	a := b.of.desk.views.audit
	line := audit.Line{Event: trust.EventCall, View: b.of.view}
	switch call.Kind {
	case tool.KindPrompt:
		line.Event = trust.EventPrompt
	case tool.KindResource:
		line.Event = trust.EventRead
	}
	if hidden, decided := b.of.now().of(ctx).hidden(ctx, call, call.Name); hidden != nil {
		line = lineOf(line.Event, b.of.view, hidden)
		line.Decision = &audit.Decision{Policy: decided.Policy()}
	}
	if a.log == nil {
		return
	}
	line.Outcome, line.Reason = trust.Denied, tool.ErrNotFound.Error()
	a.describe(ctx, &line, call)
	a.log.Add(line)
}

// Began writes down a session.
func (b behind) Began(ctx context.Context, session, client string) {
	b.of.desk.views.audit.record(ctx, trust.Event{Kind: trust.EventSessionOn, View: b.of.view, Session: session, Client: client})
}

// spawned writes down the process of a server: its program, and not its arguments or
// environment, which may have secrets in them.
func (a auditor) spawned(server string, s *upstream.Settings, pid int) {
	if a.log == nil {
		return
	}
	a.record(context.Background(), trust.Event{Kind: trust.EventSpawn, Server: server, Details: map[string]string{
		"command": filepath.Base(s.Command), "arguments": strconv.Itoa(len(s.Args)), "pid": strconv.Itoa(pid), "sandbox": s.Sandbox.String(),
	}})
}

// loaded writes down the configuration that is served from now on, or why it is not.
func (a auditor) loaded(ctx context.Context, before, config *configs.Config, refusal error) {
	if a.log == nil {
		return
	}
	e := trust.Event{Kind: trust.EventConfig, Details: map[string]string{"file": filepath.Base(config.Path)}}
	if text, err := os.ReadFile(config.Path); err == nil {
		sum := sha256.Sum256(text)
		e.Details["sha256"] = hex.EncodeToString(sum[:])
	}
	if refusal != nil {
		e.Outcome, e.Reason = trust.Failed, refusal.Error()
	}
	if before != nil {
		for name, changes := range changesOf(before, config) {
			e.Details[name] = changes
		}
	}
	a.record(ctx, e)
}

// changesOf says which servers and views another configuration adds (+), changes (~) and
// removes (-).
func changesOf(before, after *configs.Config) map[string]string {
	changes := map[string]string{}
	for what, named := range map[string]func(*configs.Config) map[string]any{
		"servers": func(c *configs.Config) map[string]any {
			named := map[string]any{}
			for _, s := range c.Servers {
				named[s.Name] = s
			}
			return named
		},
		"views": func(c *configs.Config) map[string]any {
			named := map[string]any{}
			for _, v := range c.Views {
				named[v.Name] = v
			}
			return named
		},
	} {
		old, now := named(before), named(after)
		var list []string
		for name, settings := range now {
			if was, known := old[name]; !known {
				list = append(list, "+"+name)
			} else if !reflect.DeepEqual(was, settings) {
				list = append(list, "~"+name)
			}
		}
		for name := range old {
			if _, stays := now[name]; !stays {
				list = append(list, "-"+name)
			}
		}
		slices.Sort(list)
		if len(list) > 0 {
			changes[what] = rawjson.Head(strings.Join(list, " "), 400)
		}
	}
	return changes
}
