// Package telemetry owns the observation of the proxy: operations and their stages, the feed of them,
// metrics, and spans of requests. It never delays them, and knows neither tools nor servers.
package telemetry

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"toolfinch/internal/rawjson"
)

// Operation is one call of a tool, read of a resource, get of a prompt, or retrieval. A finished one
// never changes. Foreign texts are bounded, and may be unprintable. It has more than 25 fields: metrics,
// the feed, logs and spans read one value.
type Operation struct {
	N    int64     // number of the operation since the start, from 1
	Time time.Time // of its begin
	Kind string    // identity.EventCall, EventRead, EventPrompt or EventRetrieve
	View string
	// Server and Tool identify what was called: Tool is server.name, for a URI without user and query.
	// Both are "" for unknown names and meta-tools.
	Server, Tool string
	Name         string // the client's name of it: an exposed name, or a URI
	Meta         bool   // a meta-tool was called
	Client       string // "name version", as the client says; "" for none
	Principal    string // ID; "" for nobody
	Session      string // a digest (identity.Digest); "" for none
	Request      string // the JSON-RPC ID as sent; "" for none
	Transport    string // a transport of package identity, or "command"
	Era          string // "legacy", "2026-07-28", or "" without a client
	Depth        int    // of a call inside another call; 0 for a client's own
	Trace        string // ID of its trace; "" if the trace is not kept

	// The fields below are set when the operation has finished.

	Outcome string // of package identity; "" while it runs
	Reason  string // of a failure
	// Said is the message of a JSON-RPC error, in the words of its author. It may repeat arguments: it
	// is for the caller and the owner, and in no log.
	Said     string
	Duration time.Duration
	// Own is our share of Duration: without StageUpstream and StageHold, which are other parties' time.
	Own               time.Duration
	BytesIn, BytesOut int // of the arguments, and of the result
	// Stages are in the order of their begin, including those of nested operations. Left counts omitted
	// ones.
	Stages    []Stage
	Left      int
	Retrieval *Retrieval // of a retrieval that searched, else nil
}

// Stage is one part of an operation. Stages may overlap and be nested.
type Stage struct {
	Name, Target string        // a stage below, and its target, "" for none
	Start        time.Duration // after the begin of the operation
	Duration     time.Duration // Unfinished while it runs
	Failed       bool
}

// Unfinished is the duration of a running stage.
const Unfinished time.Duration = -1

// Stages of operations.
const (
	StageEmbed    = "embed"    // the vectors of a query
	StageSearch   = "search"   // the index; the target is the view or server, StageFuse is nested
	StageFuse     = "fuse"     // words and vectors
	StagePolicy   = "policy"   // policies and rate limits
	StageGate     = "gate"     // provisioning
	StageHook     = "hook"     // the target is the hook
	StageUpstream = "upstream" // the target is "server.name"
	StageHold     = "hold"     // the wait for a client to list its tools again
)

// Retrieval counts the results of a retrieval's searches.
type Retrieval struct {
	Searches, Hits int
	Confident      int // searches that probably found the right tool
	Hybrid         int // searches that used vectors
}

// Bounds of a kept operation.
const (
	maxStages = 32
	maxText   = 256 // bytes of a string
	maxReason = 500
)

// Running is a running operation.
type Running struct {
	feed   *Feed
	parent *Running // the enclosing operation

	mu sync.Mutex // guards the fields below; never held over I/O
	Operation
	ended bool
	waits int           // running stages of other parties' time
	since time.Duration // when waits rose above 0
	away  time.Duration // time with waits above 0, so far
	few   [4]Stage      // room for most operations' stages
	asked []Search
	span  trace.Span // nil without traces
}

type runningKey struct{}

// runningOf returns the operation of a context, nil for none.
func runningOf(ctx context.Context) *Running {
	r, _ := ctx.Value(runningKey{}).(*Running)
	return r
}

// Start begins a stage of the operation of ctx, and of its enclosing ones. end must be called once; its
// error is nil for success. Without an operation Start does nothing. The returned context is for the
// stage.
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

// ofOthers reports whether a stage is other parties' time.
func ofOthers(stage string) bool { return stage == StageUpstream || stage == StageHold }

// start notes the begin of a stage, and returns its index; -1 if it is omitted.
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

// end notes the end of stage n. A stage that ends after its operation is ignored.
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

// Searched notes the result of a search in the operation of ctx.
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

// Asked notes a search in the operation of ctx. It calls search only if the feed keeps searches.
func Asked(ctx context.Context, search func() Search) {
	r := runningOf(ctx)
	if r == nil || !r.feed.keeps() {
		return
	}
	s := search()
	s.Query, s.Server = rawjson.Clip(s.Query, maxQuery), rawjson.Clip(s.Server, maxText)
	s.Found, s.Hits = len(s.Hits), slices.Clone(s.Hits[:min(len(s.Hits), maxHits)]) // the others' array is not kept
	for i := range s.Hits {
		s.Hits[i].ID, s.Hits[i].Name = rawjson.Clip(s.Hits[i].ID, maxText), rawjson.Clip(s.Hits[i].Name, maxText)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended && len(r.asked) < maxSearches {
		r.asked = append(r.asked, s)
	}
}

// Say notes the message of the JSON-RPC error in the answer.
func (r *Running) Say(message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Said = rawjson.Clip(message, maxReason)
}

// End finishes the operation, once, and returns it for the feed.
func (r *Running) End(outcome, reason string, bytesOut int) *Operation {
	r.mu.Lock()
	r.ended = true
	r.Duration = time.Since(r.Time)
	if r.waits > 0 { // a panic left a stage open
		r.away += r.Duration - r.since
	}
	r.Own = max(r.Duration-r.away, 0)
	r.Outcome, r.Reason, r.BytesOut = outcome, rawjson.Clip(reason, maxReason), bytesOut
	span := r.span
	r.span = nil // a finished operation keeps no span
	r.mu.Unlock()
	r.endSpan(span)
	r.feed.finished(r)
	return &r.Operation
}

// snapshot is the operation so far.
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

// bound cuts foreign texts.
func (o *Operation) bound() {
	for _, text := range []*string{&o.View, &o.Server, &o.Tool, &o.Name, &o.Client, &o.Principal, &o.Request} {
		*text = rawjson.Clip(*text, maxText)
	}
}
