package retrieve

import (
	"context"
	"errors"
	"sync"
	"time"

	"toolfinch/index"
	"toolfinch/internal/telemetry"
)

// Queries embeds the texts of a query; embed.Recent is one.
type Queries interface {
	Embed(ctx context.Context, texts []string) ([][]float32, error)
}

// DefaultQueryTimeout is how long a search waits for the vectors of its query.
const DefaultQueryTimeout = 800 * time.Millisecond

const (
	// After failuresInARow failed queries the embedder is not asked for restAfter, so
	// that not every search waits for one that does not answer.
	failuresInARow = 2
	restAfter      = 30 * time.Second
	// A long query, and one beside others, may be late although the embedder is well: it takes
	// lateInARow of these. plainQuery is in bytes.
	lateInARow = 20
	plainQuery = 1000
)

// QueryVectors embeds queries, for all retrievers of one embedder, as long as that
// works. The zero value embeds none.
type QueryVectors struct {
	mu       sync.Mutex // guards all below; not held while embedding
	queries  Queries
	reason   string    // why there are none
	running  int       // queries that are being embedded
	failures int       // in a row
	late     int       // in a row, of those that say little
	rest     time.Time // no attempt before
	failed   int64     // queries since the start
}

// Use makes searches embed their queries with queries from now on. With nil they use
// words alone; answers then state the reason, which may be empty.
func (v *QueryVectors) Use(queries Queries, reason string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.queries, v.reason, v.failures, v.late, v.rest = queries, reason, 0, 0, time.Time{}
}

// Why returns why words decide alone, "" where they do not or it is meant.
func (v *QueryVectors) Why() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.queries != nil && time.Now().Before(v.rest) {
		return reasonFailed
	}
	return v.reason
}

// Failed returns how many queries the embedder has failed to embed, or to embed in time.
func (v *QueryVectors) Failed() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.failed
}

// of returns the vectors of a query, or nil and the reason why words decide alone. They
// do while the catalog has no vectors (comparable is false).
func (v *QueryVectors) of(ctx context.Context, text string, timeout time.Duration, comparable bool) ([][]float32, string) {
	v.mu.Lock()
	queries, reason, rest := v.queries, v.reason, v.rest
	v.running++
	plain := v.running == 1 && len(text) <= plainQuery
	v.mu.Unlock()
	defer func() {
		v.mu.Lock()
		v.running--
		v.mu.Unlock()
	}()
	switch {
	case queries == nil:
		return nil, reason
	case !comparable:
		return nil, reasonNone
	case time.Now().Before(rest):
		return nil, reasonFailed
	}
	timed, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	staged, embedded := telemetry.Start(timed, telemetry.StageEmbed, "")
	vectors, err := queries.Embed(staged, index.QueryTexts(text))
	embedded(err)
	if ctx.Err() != nil {
		return nil, "" // the caller is gone
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err == nil {
		v.failures, v.late = 0, 0
		return vectors, ""
	}
	v.failed++
	if errors.Is(err, context.DeadlineExceeded) && !plain { // one client's long queries say little about the embedder
		v.late++
	} else {
		v.failures++
	}
	if v.failures >= failuresInARow || v.late >= lateInARow {
		v.rest = time.Now().Add(restAfter)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, reasonLate
	}
	return nil, reasonFailed
}

// Reasons why words decide alone, for clients. The owner of the embedder logs details.
const (
	reasonLate    = "the embedder did not answer in time"
	reasonFailed  = "the embedder fails"
	reasonNone    = "the embedder has embedded no tool yet"
	reasonMisfits = "the embedder's vectors have another dimension than those of the tools, which are being embedded again"
)
