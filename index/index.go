// Package index owns the search over one set of definitions of tools, prompts and
// resources, in memory. It never dials, never writes to disk and does not know which
// client may see a definition.
package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"toolfinch/tool"
)

// ErrClosed is returned by Replace and Search of a closed Index.
var ErrClosed = errors.New("index is closed")

// Document is a tool, prompt, resource or resource template as it is to be
// found. Neither it nor its Def is changed after it was given to an Index.
type Document struct {
	Name              string // Key of its kind and exposed name, unique
	Def               *tool.Def
	ServerDescription string // what the tool's server is for; may be empty
}

// Key is the Name of the Document of a kind and exposed name: the name of a
// tool as it is, before others their kind and a colon, which no name of a tool
// has.
func Key(kind tool.Kind, exposed string) string {
	if kind == tool.KindTool {
		return exposed
	}
	return string(kind) + ":" + exposed
}

// exposed is the name, URI or URI template that clients see.
func (d Document) exposed() string {
	if d.Def.ID.Kind == tool.KindTool {
		return d.Name
	}
	return strings.TrimPrefix(d.Name, string(d.Def.ID.Kind)+":")
}

// Index keeps the data that searches over changing sets of definitions share. Each
// set is a Snapshot; only documents that differ from the set before are indexed
// again. Its methods are safe for concurrent use. Answers depend on the documents
// alone, not on the steps in which they came.
type Index struct {
	making sync.Mutex // held while the documents are changed, which may take long
	stored *Stored    // what is taken over; nil once all of it was. Guarded by making, as the next two
	partly bool       // more documents are to come
	round  int        // of Replace

	write  sync.Mutex        // guards docs and pieces, which are changed under making, too; searches never take it
	docs   map[string]*entry // by Name
	pieces []*piece          // replaced, never edited
	closed atomic.Bool

	slots   slots
	vectors vectors // by slot
}

// entry is a document of an Index. Snapshots read the first two of its members, which
// never change.
type entry struct {
	Document
	slot int // its number for as long as it is in the index

	in     *segment // where its words are, and
	number int      // its number there
	round  int      // the last Replace that had it
}

// slots gives out small numbers, and gives out returned numbers again.
type slots struct {
	mu   sync.Mutex // guards what follows
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

// Recall has the next Replace or Update take over what is stored of its documents. Partly
// says that many more follow, with another Recall.
func (x *Index) Recall(stored *Stored, partly bool) {
	x.making.Lock()
	defer x.making.Unlock()
	x.stored, x.partly = stored, partly
}

// Replace makes docs the documents of the index and returns them as a Snapshot. Of
// two documents with the same name the later counts. Searches of the Snapshots
// before go on. An error leaves the index as it was.
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

// Update puts documents into the index, in place of those that have their names, and
// takes out the other documents that are named; else it is Replace.
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

// difference returns the documents that are new or changed, and how many of the index
// are among docs.
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

// same reports whether both are found by the same queries.
func (d Document) same(other Document) bool {
	return d.Def.ID == other.Def.ID && d.Def.Hash == other.Def.Hash && d.ServerDescription == other.ServerDescription
}

const (
	// rebuildFrom is how many times more documents than there are make a new index faster
	// than a change of the old one: it is built on all processors.
	rebuildFrom = 4
	// manyAdded is the number of documents from which on they are prepared on all
	// processors beside pieces that stay. Fewer are soon prepared, and become one piece.
	manyAdded = 4000
)

// change puts documents in, in place of those that have their names, and takes documents
// out. The lock making is held. An error leaves the index as it was.
func (x *Index) change(ctx context.Context, changed, gone []*entry) error {
	if len(changed)+len(gone) == 0 {
		x.forgetStored()
		return nil
	}
	pieces, out := x.pieces, gone // out: what pieces have no more
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
		merged = true // into one: several would be too many again
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

// forgetStored lets go of what is stored once nothing more is to be taken of it.
func (x *Index) forgetStored() {
	if !x.partly {
		x.stored = nil
	}
}

// give puts changed documents in the place of those before, and gives them slots. Vectors
// of texts that are gone are forgotten.
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

// Missing returns the documents that have no vector, tools first, sorted by
// name: those whose Text is to be embedded.
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

// PutVectors gives documents the vectors of their Text. A document that is not
// in the index any more, or is another one now, is left out. One that does not
// fit is an error that wraps ErrVector; those before it are in the index then.
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

// DropVectors forgets all vectors, so that those of another dimension can come.
func (x *Index) DropVectors() { x.vectors.clear() }

// Vectors returns how many documents have a vector.
func (x *Index) Vectors() int { return x.vectors.len() }

// Len returns the number of documents in the index, 0 once it is closed.
func (x *Index) Len() int {
	x.write.Lock()
	defer x.write.Unlock()
	return len(x.docs)
}

// Close frees the index; searches that run go on. Closing twice is fine.
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
