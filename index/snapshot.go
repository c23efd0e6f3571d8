package index

import (
	"context"
	"fmt"
	"runtime"

	api "github.com/blevesearch/bleve_index_api"
)

// Snapshot is one set of documents of an Index. It never changes; only vectors
// come and go, as texts are embedded and as sets after it drop theirs.
type Snapshot struct {
	index  *Index
	reader api.IndexReader // nil when there are no documents
	docs   map[string]entry
}

// snapshot returns the documents of now; the caller holds write.
func (x *Index) snapshot() (*Snapshot, error) {
	s := &Snapshot{index: x, docs: x.now.docs}
	if x.now.library == nil {
		return s, nil
	}
	reader, err := x.now.library.Reader()
	if err != nil {
		return nil, fmt.Errorf("index: %w", err)
	}
	s.reader = reader
	// The segments are in memory: the last search need not release them.
	runtime.AddCleanup(s, func(reader api.IndexReader) { _ = reader.Close() }, reader)
	return s, nil
}

// Len returns the number of documents.
func (s *Snapshot) Len() int { return len(s.docs) }

// Search returns the best hits; equal scores are in the order of names. Finding
// nothing is no error. A tool whose name is the query, in any case and with any
// separators, comes first. Query vectors that do not fit those of the documents are
// an error that wraps ErrVector. Once the Index is closed the error is ErrClosed.
func (s *Snapshot) Search(ctx context.Context, q Query) (Result, error) {
	if s.index.closed.Load() {
		return Result{}, ErrClosed
	}
	if q.Limit < 1 || s.reader == nil {
		return Result{}, nil
	}
	r := &ranking{ctx: ctx, x: s, reader: s.reader, rarities: map[string]float64{}}
	found, err := r.search(q)
	if err != nil {
		return Result{}, fmt.Errorf("index: search: %w", err)
	}
	return found, nil
}
