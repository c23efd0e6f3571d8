package retrieve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"toolfinch/embed"
	"toolfinch/index"
)

// embedChunk is how many tools get their vectors in one step.
const embedChunk = 256

// Embed gives every tool, prompt and resource that has none its vector, those
// that were stored first seen. Searches go on meanwhile, with the vectors that are there.
// progress, if not nil, hears how many of the tools have one. Tools that
// change meanwhile are left for the call that follows each With.
func (k *kept) Embed(ctx context.Context, cache *embed.Cache, progress func(done, total int)) error {
	missing := k.index.Missing()
	total := k.index.Len()
	done := total - len(missing)
	var mu sync.Mutex // guards done; held while progress is told, so that it never falls
	tell := func(more int) {
		if progress == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		done += more
		progress(done, total)
	}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(2) // one chunk is read or embedded while another is put in
	for docs := range slices.Chunk(missing, embedChunk) {
		work.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			texts := make([]string, len(docs))
			for i, d := range docs {
				texts[i] = index.Text(d)
			}
			told := 0 // of this chunk; equal texts count once until it is done
			vectors, err := cache.Embed(ctx, texts, func(n, _ int) { tell(n - told); told = n })
			if err != nil {
				return err
			}
			if err := k.index.PutVectors(docs, vectors); err != nil {
				return err
			}
			tell(len(docs) - told)
			return nil
		})
	}
	err := work.Wait()
	if err == nil || errors.Is(err, index.ErrClosed) { // closed: all of it changed meanwhile
		return nil
	}
	return fmt.Errorf("catalog: embed: %w", err)
}

// DropVectors forgets all vectors; Embed brings them anew.
func (k *kept) DropVectors() { k.index.DropVectors() }

// Embedded is how many tools, prompts and resources have a vector.
func (k *kept) Embedded() int {
	embedded, _ := k.embedded()
	return embedded
}

// embedded is how many tools, prompts and resources have a vector, and how many
// there are.
func (k *kept) embedded() (n, of int) { return k.index.Vectors(), k.index.Len() }

// Queries embeds the texts of a query; embed.Recent is one.
type Queries interface {
	Embed(ctx context.Context, texts []string) ([][]float32, error)
}

// DefaultQueryTimeout is how long a search waits for the vectors of its query.
const DefaultQueryTimeout = 800 * time.Millisecond

const (
	// failuresInARow is after how many failed queries the embedder is left alone,
	// so that not every search waits for one that does not answer.
	failuresInARow = 2
	restAfter      = 30 * time.Second
)

// QueryVectors gives queries their vectors, as long as that works: for all
// retrievers of one embedder. The zero value gives none.
type QueryVectors struct {
	mu       sync.Mutex // guards all below; not held while embedding
	queries  Queries
	reason   string // why there are none
	failures int
	rest     time.Time // no attempt before
}

// UseVectors is Use of the retriever's QueryVectors.
func (s *searcher) UseVectors(queries Queries, reason string) {
	s.vectors.Use(queries, reason)
}

// Use makes searches use vectors of queries from now on; nil ends that, and
// reason, which may be empty, is told in answers.
func (v *QueryVectors) Use(queries Queries, reason string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.queries, v.reason, v.failures, v.rest = queries, reason, 0, time.Time{}
}

// of returns the vectors of a query or, with nil, why words decide alone: they do
// while there is nothing to compare with.
func (v *QueryVectors) of(ctx context.Context, text string, timeout time.Duration, comparable bool) ([][]float32, string) {
	v.mu.Lock()
	queries, reason, rest := v.queries, v.reason, v.rest
	v.mu.Unlock()
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
	vectors, err := queries.Embed(timed, index.QueryTexts(text))
	if ctx.Err() != nil {
		return nil, "" // nobody waits for the answer
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err == nil {
		v.failures = 0
		return vectors, ""
	}
	if v.failures++; v.failures >= failuresInARow {
		v.rest = time.Now().Add(restAfter)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, reasonLate
	}
	return nil, reasonFailed
}

// Reasons why words decide alone, as clients are told. What exactly failed is
// for the log of whoever owns the embedder.
const (
	reasonLate    = "the embedder did not answer in time"
	reasonFailed  = "the embedder fails"
	reasonNone    = "the embedder has embedded no tool yet"
	reasonMisfits = "the embedder's vectors have another dimension than those of the tools, which are being embedded again"
)
