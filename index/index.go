// Package index owns the search over one set of definitions of tools, prompts and resources, in memory. It never
// dials, never writes to disk, and does not know which client may see a definition.
package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// ErrClosed is returned by Replace and Search of a closed Index.
var ErrClosed = errors.New("index is closed")

// Index keeps the data that searches over changing sets of definitions share. Each set is a Snapshot; only new and
// changed documents are indexed again. Its methods are safe for concurrent use. Answers depend on the documents
// alone, not on the steps of their arrival.
type Index struct {
	making sync.Mutex // held while documents change, which may take long
	stored *Stored    // stored segments to reuse; nil once all are used. Guarded by making, like the next two
	partly bool       // more documents will come
	round  int        // of Replace

	write  sync.Mutex        // guards docs and pieces, which change under making, too; searches never take it
	docs   map[string]*entry // by Name
	pieces []*piece          // replaced, never edited
	closed atomic.Bool

	slots   slots
	vectors vectors // by slot
}

// slots allocates small numbers, and reuses returned ones.
type slots struct {
	mu   sync.Mutex // guards the fields below
	free []int
	next int
}

func (s *slots) take() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		slot := s.free[n-1]
		s.free = s.free[:n-1]
		return slot
	}
	s.next++
	return s.next - 1
}

func (s *slots) giveBack(gone []*entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range gone {
		s.free = append(s.free, e.slot)
	}
}

// New returns an Index without documents. The caller closes it.
func New() *Index { return &Index{docs: map[string]*entry{}} }

// Recall gives the next Replace or Update stored segments to reuse. If partly, many more documents follow, with
// another Recall.
func (x *Index) Recall(stored *Stored, partly bool) {
	x.making.Lock()
	defer x.making.Unlock()
	x.stored, x.partly = stored, partly
}

// Replace makes docs the documents of the index and returns them as a Snapshot. Of two documents with the same name
// the later counts. Searches of earlier Snapshots continue. An error leaves the index unchanged.
func (x *Index) Replace(ctx context.Context, docs []Document) (*Snapshot, error) {
	x.making.Lock()
	defer x.making.Unlock()
	if x.closed.Load() {
		return nil, ErrClosed
	}
	changed, here := x.difference(docs)
	var gone []*entry
	if here < len(x.docs) {
		for _, e := range x.docs {
			if e.round != x.round {
				gone = append(gone, e)
			}
		}
	}
	return x.changeTo(ctx, changed, gone)
}

// Update adds or replaces documents by name, and removes the documents named in out; else it is like Replace.
func (x *Index) Update(ctx context.Context, docs []Document, out []string) (*Snapshot, error) {
	x.making.Lock()
	defer x.making.Unlock()
	if x.closed.Load() {
		return nil, ErrClosed
	}
	changed, _ := x.difference(docs)
	var gone []*entry
	for _, name := range out {
		if e := x.docs[name]; e != nil && e.round != x.round {
			gone = append(gone, e)
		}
	}
	return x.changeTo(ctx, changed, gone)
}

func (x *Index) changeTo(ctx context.Context, changed, gone []*entry) (*Snapshot, error) {
	if err := x.change(ctx, changed, gone); err != nil {
		return nil, fmt.Errorf("index: %w", err)
	}
	return x.snapshot(), nil
}

// difference returns the new and changed documents, and how many indexed documents are among docs.
func (x *Index) difference(docs []Document) (changed []*entry, here int) {
	x.round++
	place := map[string]int{} // in changed
	for _, d := range docs {
		if at, twice := place[d.Name]; twice {
			changed[at].Document = d
			continue
		}
		old := x.docs[d.Name]
		if old != nil {
			if old.round != x.round {
				old.round = x.round
				here++
			}
			if old.same(d) {
				continue
			}
		}
		place[d.Name] = len(changed)
		changed = append(changed, &entry{Document: d, round: x.round})
	}
	return changed, here
}

// same reports whether the same queries find both documents.
func (d Document) same(other Document) bool {
	return d.Def.ID == other.Def.ID && d.Def.Hash == other.Def.Hash && d.ServerDescription == other.ServerDescription
}

const (
	// rebuildFrom: if so many times more documents come than there are, a new index is faster than a change,
	// because all processors build it.
	rebuildFrom = 4
	// manyAdded is the number of documents from which all processors prepare them beside the pieces that stay.
	// Fewer documents become one piece.
	manyAdded = 4000
)

// change adds or replaces documents by name, and removes documents. The caller holds making. An error leaves the
// index unchanged.
func (x *Index) change(ctx context.Context, changed, gone []*entry) error {
	if len(changed)+len(gone) == 0 {
		x.forgetStored()
		return nil
	}
	pieces, out := x.pieces, gone // out: removed from pieces
	for _, e := range changed {
		if old := x.docs[e.Name]; old != nil {
			out = append(out, old)
		}
	}
	add := changed
	pieces = without(pieces, out)
	var adopted []*piece
	merged := false
	switch {
	case x.stored != nil:
		if pieces, add = x.stored.release(pieces, add); len(pieces) < maxPieces {
			adopted, add = x.stored.take(add, maxPieces-len(pieces), x.partly)
		}
	case len(changed) > rebuildFrom*len(x.docs):
		for _, p := range pieces {
			add = p.appendTo(add)
		}
		pieces = nil
	case len(pieces) >= maxPieces:
		pieces, add = merge(pieces, add)
		merged = true // into one piece: several would be too many again
	}
	built, err := prepare(ctx, add, !merged && len(add) >= manyAdded || len(pieces)+len(adopted) == 0)
	if err != nil {
		return err
	}
	x.forgetStored()
	x.write.Lock()
	defer x.write.Unlock()
	x.give(changed)
	for _, p := range append(adopted, built...) {
		p.settle()
		pieces = append(pieces, p)
	}
	x.pieces = slices.Clip(pieces)
	for _, e := range gone {
		delete(x.docs, e.Name)
		x.vectors.remove(e.slot)
	}
	x.slots.giveBack(gone)
	return nil
}

// forgetStored drops the stored segments once nothing more is needed of them.
func (x *Index) forgetStored() {
	if !x.partly {
		x.stored = nil
	}
}

// give replaces changed documents, and allocates slots. Vectors of removed texts are dropped.
func (x *Index) give(changed []*entry) {
	for _, e := range changed {
		old := x.docs[e.Name]
		if old == nil {
			e.slot = x.slots.take()
		} else if e.slot = old.slot; x.vectors.known(e.slot) && Text(old.Document) != Text(e.Document) {
			x.vectors.remove(e.slot)
		}
		x.docs[e.Name] = e
	}
}

// Missing returns the documents without a vector, tools first, sorted by name: their Text is to be embedded.
func (x *Index) Missing() (out []Document) {
	x.write.Lock()
	for _, e := range x.docs {
		if !x.vectors.known(e.slot) {
			out = append(out, e.Document)
		}
	}
	x.write.Unlock()
	slices.SortFunc(out, func(a, b Document) int {
		return cmp.Or(cmp.Compare(a.Def.ID.Kind, b.Def.ID.Kind), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// PutVectors gives documents the vectors of their Text. Documents that were removed or replaced are skipped. A
// vector that does not fit is an error that wraps ErrVector; the vectors before it are stored.
func (x *Index) PutVectors(docs []Document, values [][]float32) error {
	x.write.Lock()
	defer x.write.Unlock()
	if x.closed.Load() {
		return ErrClosed
	}
	var slots []int
	var here []int // of docs and values
	var vectors [][]float32
	for i, d := range docs {
		e := x.docs[d.Name]
		if e == nil || values[i] == nil || e.Def != d.Def && Text(e.Document) != Text(d) {
			continue
		}
		slots, here, vectors = append(slots, e.slot), append(here, i), append(vectors, values[i])
	}
	if done, err := x.vectors.putAll(slots, vectors); err != nil {
		return fmt.Errorf("%s: %w", docs[here[done]].Name, err)
	}
	return nil
}

// DropVectors removes all vectors, so that vectors of another dimension can come.
func (x *Index) DropVectors() { x.vectors.clear() }

// Vectors returns the number of documents with a vector.
func (x *Index) Vectors() int { return x.vectors.len() }

// Len returns the number of documents in the index; 0 once it is closed.
func (x *Index) Len() int {
	x.write.Lock()
	defer x.write.Unlock()
	return len(x.docs)
}

// Close frees the index; running searches continue. It may be called twice.
func (x *Index) Close() error {
	x.making.Lock()
	defer x.making.Unlock()
	x.write.Lock()
	defer x.write.Unlock()
	x.closed.Store(true)
	x.docs, x.pieces, x.stored = nil, nil, nil
	x.vectors.clear()
	return nil
}

// Segments returns the segments of the index.
func (x *Index) Segments() []Segment {
	x.write.Lock()
	pieces := x.pieces
	x.write.Unlock()
	all := make([]Segment, len(pieces))
	for i, p := range pieces {
		all[i] = Segment{p.key(), len(p.docs), p.segment}
	}
	return all
}
