// Package telemetry owns what can be watched of the proxy: operations and their stages,
// the feed of them, metrics, and the spans of requests. It never delays what it watches, and knows neither tools
// nor servers.
package telemetry

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"toolfinch/internal/rawjson"
)

// Operation is one call of a tool, read of a resource, get of a prompt, or retrieval. A
// finished one never changes. Strings of strangers are bounded, and not yet printable.
type Operation struct {
	N    int64     // counts operations since the start, from 1, in the order in which they began
	Time time.Time // when it began
	Kind string    // identity.EventCall, EventRead, EventPrompt or EventRetrieve
	View string
	// Server and Tool (its ID: server.name, of a URI without user and query) are what was called; both are "" for a name
	// that nothing has, and for a meta-tool.
	Server, Tool string
	Name         string // what the client called it: an exposed name, or a URI
	Meta         bool   // it is a meta-tool
	Client       string // "name version", as it says; "" for none
	Principal    string // ID; "" for nobody
	Session      string // a digest (identity.Digest); "" for none
	Request      string // the JSON-RPC ID as it was sent; "" for none
	Transport    string // one of trust's transports, or "command"
	Era          string // "legacy", "2026-07-28", or "" where there is no client
	Depth        int    // of a call within calls; 0 is a client's own
	Trace        string // ID of the trace that it is in; "" where that is not kept

	// What follows is known when the operation has finished.

	Outcome string // one of trust's outcomes; "" while it runs
	Reason  string // of an outcome that is not identity.Success
	// Said is the message of a JSON-RPC error, in the words of whoever answered with it. It may
	// repeat arguments: it is for who made the call and for the owner, and in no log.
	Said     string
	Duration time.Duration
	// Own is our share of Duration: without the time in which it was in StageUpstream or
	// StageHold, which is spent by others.
	Own               time.Duration
	BytesIn, BytesOut int // of the arguments, and of the result
	// Stages are in the order in which they began; those of operations within are among
	// them. Left counts those that were left out.
	Stages    []Stage
	Left      int
	Retrieval *Retrieval // of a retrieval that searched; nil of everything else
}

// Stage is one part of an operation. Stages may overlap and lie within others.
type Stage struct {
	Name, Target string        // one of the stages below, and what it is about, "" for nothing
	Start        time.Duration // since the operation began
	Duration     time.Duration // Unfinished while it runs
	Failed       bool
}

// Unfinished is the duration of a stage that has not ended.
const Unfinished time.Duration = -1

// Stages of operations.
const (
	StageEmbed    = "embed"    // the vectors of a query
	StageSearch   = "search"   // the index; the target is the view or server, StageFuse is within
	StageFuse     = "fuse"     // words and vectors
	StagePolicy   = "policy"   // policies and rate limits
	StageGate     = "gate"     // provisioning
	StageHook     = "hook"     // the target is the hook
	StageUpstream = "upstream" // the target is "server.name"
	StageHold     = "hold"     // a client is waited for to list its tools again
)

// Retrieval counts what the searches of a retrieval found.
type Retrieval struct {
	Searches, Hits int
	Confident      int // searches whose answer is likely to have the right tool
	Hybrid         int // searches in which vectors had a part
}

// Bounds of what is kept of one operation.
const (
	maxStages = 32
	maxText   = 256 // bytes of a string
	maxReason = 500
)

// Running is an operation that has begun.
type Running struct {
	feed   *Feed
	parent *Running // the operation that it is within

	mu sync.Mutex // guards what follows; never held over I/O
	Operation
	ended bool
	waits int           // stages of others that run
	since time.Duration // when waits became more than 0
	away  time.Duration // spent in them, while waits was more than 0
	few   [4]Stage      // room for the stages of most operations
	span  trace.Span    // nil without traces
}

type runningKey struct{}

// runningOf returns the operation of a context, nil for none.
func runningOf(ctx context.Context) *Running {
	r, _ := ctx.Value(runningKey{}).(*Running)
	return r
}

// Start begins a stage of the operation of ctx, and of those that it is within. end, which
// is called once, ends it; its error is nil for success. Without an operation nothing is
// noted. The context is that of the stage.
func Start(ctx context.Context, stage, target string) (_ context.Context, end func(error)) {
	ctx, span := startStage(ctx, stage, target)
	r := runningOf(ctx)
	switch {
	case r == nil && span == nil:
		return ctx, func(error) {}
	case r == nil:
		return ctx, func(err error) { endStage(span, err) }
	}
	var at [4]int // in each operation, from the innermost
	for i, o := 0, r; o != nil; i, o = i+1, o.parent {
		if n := o.start(stage, target); i < len(at) {
			at[i] = n
		}
	}
	return ctx, func(err error) {
		for i, o := 0, r; o != nil; i, o = i+1, o.parent {
			n := -1
			if i < len(at) {
				n = at[i]
			}
			o.end(stage, n, err != nil)
		}
		endStage(span, err)
	}
}

// ofOthers reports whether others spend the time of a stage.
func ofOthers(stage string) bool { return stage == StageUpstream || stage == StageHold }

// start notes that a stage has begun, and returns where; -1 where it is left out.
func (r *Running) start(stage, target string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return -1
	}
	now := time.Since(r.Time)
	if ofOthers(stage) {
		if r.waits == 0 {
			r.since = now
		}
		r.waits++
	}
	if len(r.Stages) >= maxStages {
		r.Left++
		return -1
	}
	if r.Stages == nil {
		r.Stages = r.few[:0]
	}
	r.Stages = append(r.Stages, Stage{Name: stage, Target: rawjson.Clip(target, maxText), Start: now, Duration: Unfinished})
	return len(r.Stages) - 1
}

// end notes that the stage at n has ended. What ends after the operation is not noted.
func (r *Running) end(stage string, n int, failed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	now := time.Since(r.Time)
	if ofOthers(stage) {
		if r.waits--; r.waits == 0 {
			r.away += now - r.since
		}
	}
	if n >= 0 {
		r.Stages[n].Duration, r.Stages[n].Failed = now-r.Stages[n].Start, failed
	}
}

// Searched notes what a search of the operation of ctx found.
func Searched(ctx context.Context, hits int, confident, hybrid bool) {
	r := runningOf(ctx)
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	if r.Retrieval == nil {
		r.Retrieval = &Retrieval{}
	}
	r.Retrieval.Searches++
	r.Retrieval.Hits += hits
	if confident {
		r.Retrieval.Confident++
	}
	if hybrid {
		r.Retrieval.Hybrid++
	}
}

// Say notes the message of the JSON-RPC error that is the answer.
func (r *Running) Say(message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Said = rawjson.Clip(message, maxReason)
}

// End finishes the operation, once, and returns what the feed has from now on.
func (r *Running) End(outcome, reason string, bytesOut int) *Operation {
	r.mu.Lock()
	r.ended = true
	r.Duration = time.Since(r.Time)
	if r.waits > 0 { // a stage was left by a panic
		r.away += r.Duration - r.since
	}
	r.Own = max(r.Duration-r.away, 0)
	r.Outcome, r.Reason, r.BytesOut = outcome, rawjson.Clip(reason, maxReason), bytesOut
	span := r.span
	r.span = nil // a finished operation keeps no other thing
	r.mu.Unlock()
	r.endSpan(span)
	r.feed.finished(r)
	return &r.Operation
}

// snapshot is the operation as far as it is.
func (r *Running) snapshot() Operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.Operation
	o.Stages = slices.Clone(r.Stages)
	if r.Retrieval != nil {
		found := *r.Retrieval
		o.Retrieval = &found
	}
	return o
}

// bound cuts what others can make long.
func (o *Operation) bound() {
	for _, text := range []*string{&o.View, &o.Server, &o.Tool, &o.Name, &o.Client, &o.Principal, &o.Request} {
		*text = rawjson.Clip(*text, maxText)
	}
}
