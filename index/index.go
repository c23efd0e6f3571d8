// Package index owns the search over one set of definitions of tools, prompts and
// resources, in memory. It never dials, never writes to disk and does not know which
// client may see a definition.
package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/blevesearch/bleve/v2/index/scorch"
	api "github.com/blevesearch/bleve_index_api"
	"golang.org/x/sync/errgroup"

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
	write  sync.Mutex // guards now; searches never take it
	now    words
	closed atomic.Bool

	slots   slots
	vectors vectors // by slot
}

// words are the documents of an Index as the library has them.
type words struct {
	library api.Index        // nil before the first document
	docs    map[string]entry // by Name; replaced, never edited
	batches map[int]int      // live documents by batch; empty ones are left out
	next    int              // number of the next batch
}

type entry struct {
	Document
	slot  int // its number for as long as it is in the index
	batch int
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

func (s *slots) giveBack(slots []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, slots...)
}

// count is how many slots there are.
func (s *slots) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next
}

// New returns an Index without documents. The caller closes it.
func New() *Index { return &Index{} }

// Replace makes docs the documents of the index and returns them as a Snapshot. Of
// two documents with the same name the later counts. Searches of the Snapshots
// before go on. An error leaves the index as it was.
func (x *Index) Replace(ctx context.Context, docs []Document) (*Snapshot, error) {
	x.write.Lock()
	defer x.write.Unlock()
	if x.closed.Load() {
		return nil, ErrClosed
	}
	all := make(map[string]Document, len(docs))
	for _, d := range docs {
		all[d.Name] = d
	}
	changed, gone := x.now.difference(all)
	var fresh []int // slots of documents that are new
	for name, e := range changed {
		if old, known := x.now.docs[name]; known {
			e.slot = old.slot
		} else {
			e.slot = x.slots.take()
			fresh = append(fresh, e.slot)
		}
		changed[name] = e
	}
	next, err := x.now.with(ctx, changed, gone)
	if err != nil {
		x.slots.giveBack(fresh)
		return nil, fmt.Errorf("index: %w", err)
	}
	before := x.now
	x.now = next
	x.dropOutdated(before.docs, changed, gone)
	if before.library != nil && before.library != next.library {
		_ = before.library.Close() // in memory: nothing is lost, and Snapshots have what they search
	}
	return x.snapshot()
}

// difference returns the documents of all that are new or changed, and the names of
// indexed documents that are not among all.
func (w words) difference(all map[string]Document) (changed map[string]entry, gone map[string]bool) {
	changed, gone = map[string]entry{}, map[string]bool{}
	for name, d := range all {
		if old, known := w.docs[name]; !known || !old.same(d) {
			changed[name] = entry{Document: d}
		}
	}
	for name := range w.docs {
		if _, stays := all[name]; !stays {
			gone[name] = true
		}
	}
	return changed, gone
}

// same reports whether both are found by the same queries.
func (d Document) same(other Document) bool {
	return d.Def.ID == other.Def.ID && d.Def.Hash == other.Def.Hash && d.ServerDescription == other.ServerDescription
}

// rebuildFrom is how many times more documents than there are make a new library
// index faster than a change of the old one: it is built on all processors.
const rebuildFrom = 4

// with returns the words after a change. They share the library's index with the
// words before, unless it is rebuilt.
func (w words) with(ctx context.Context, changed map[string]entry, gone map[string]bool) (words, error) {
	if len(changed)+len(gone) == 0 {
		return w, nil
	}
	if w.library == nil || len(changed) > rebuildFrom*len(w.docs) {
		for name, e := range w.docs {
			if _, known := changed[name]; !known && !gone[name] {
				changed[name] = e
			}
		}
		return built(ctx, slices.Collect(maps.Values(changed)))
	}
	next := words{library: w.library, docs: maps.Clone(w.docs), batches: maps.Clone(w.batches), next: w.next}
	next.fold(changed, gone)
	entries := slices.Collect(maps.Values(changed))
	if err := put(ctx, w.library, entries, gone); err != nil {
		return w, err
	}
	for name := range gone {
		next.forget(name)
	}
	next.record(entries)
	return next, nil
}

// built returns words in a library index of their own, in as many batches as are
// prepared at once.
func built(ctx context.Context, entries []entry) (words, error) {
	// The library's top package would do the same and add nine megabytes to the
	// program: analyzers, formats and stores that are of no use here.
	library, err := scorch.NewScorch(scorch.Name, map[string]any{"path": ""}, analysis())
	if err == nil {
		err = library.Open()
	}
	if err != nil {
		return words{}, fmt.Errorf("open: %w", err)
	}
	w := words{library: library, docs: make(map[string]entry, len(entries)), batches: map[int]int{}}
	workers := min(runtime.GOMAXPROCS(0), maxBatches/2)
	parts := workers
	if len(entries) > manyDocs { // what is in preparation takes several times its size
		parts = maxBatches / 2
	}
	var all errgroup.Group
	all.SetLimit(workers)
	for part := range slices.Chunk(entries, max(minPart, (len(entries)+parts-1)/parts)) {
		w.record(part)
		all.Go(func() error { return put(ctx, library, part, nil) })
	}
	if err := all.Wait(); err != nil {
		return words{}, errors.Join(err, library.Close())
	}
	return w, nil
}

// analysis is the library's work queue, one for the process. One worker is
// enough: documents come with their terms counted.
var analysis = sync.OnceValue(func() *api.AnalysisQueue { return api.NewAnalysisQueue(1) })

// maxBatches bounds how many batches an index consists of. Each makes a search
// a little slower, and in memory the library merges none of them.
const maxBatches = 8

// manyDocs is the number of documents above which they are prepared in more
// parts than at once.
const manyDocs = 20_000

// minPart is the number of documents below which preparing them at once does
// not pay.
const minPart = 200

// dropOutdated forgets the vectors of texts that are gone, and gives back the slots
// of documents that are.
func (x *Index) dropOutdated(before, changed map[string]entry, gone map[string]bool) {
	var free []int
	for name := range gone {
		x.vectors.remove(before[name].slot)
		free = append(free, before[name].slot)
	}
	x.slots.giveBack(free)
	for name, e := range changed {
		if old, known := before[name]; known && x.vectors.known(e.slot) && Text(old.Document) != Text(e.Document) {
			x.vectors.remove(e.slot)
		}
	}
}

// Missing returns the documents that have no vector, tools first, sorted by
// name: those whose Text is to be embedded.
func (x *Index) Missing() []Document {
	x.write.Lock()
	defer x.write.Unlock()
	var out []Document
	for _, e := range x.now.docs {
		if !x.vectors.known(e.slot) {
			out = append(out, e.Document)
		}
	}
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
	x.vectors.reserve(x.slots.count())
	for i, d := range docs {
		e, known := x.now.docs[d.Name]
		if !known || e.Def != d.Def && Text(e.Document) != Text(d) {
			continue
		}
		if err := x.vectors.put(e.slot, values[i]); err != nil {
			return fmt.Errorf("%s: %w", d.Name, err)
		}
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
	return len(x.now.docs)
}

// put changes the library's index in one step: searches see all of the change or
// none.
func put(ctx context.Context, library api.Index, entries []entry, gone map[string]bool) error {
	b := api.NewBatch()
	for name := range gone {
		b.Delete(name)
	}
	a := newAnalyzer()
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		b.Update(a.document(e))
	}
	return library.Batch(b)
}

// record notes that entries are a new batch.
func (w *words) record(entries []entry) {
	if len(entries) == 0 {
		return
	}
	for _, e := range entries {
		w.forget(e.Name)
		e.batch = w.next
		w.docs[e.Name] = e
	}
	w.batches[w.next] = len(entries)
	w.next++
}

// fold adds the documents of the smallest batches to changed when there are too
// many batches. Those of about the same size go together, as in a
// log-structured store, so that a document moves a few times in its life.
func (w *words) fold(changed map[string]entry, gone map[string]bool) {
	if len(w.batches) < maxBatches {
		return
	}
	numbers := make([]int, 0, len(w.batches))
	for n := range w.batches {
		numbers = append(numbers, n)
	}
	slices.SortFunc(numbers, func(a, b int) int {
		return cmp.Or(cmp.Compare(w.batches[a], w.batches[b]), cmp.Compare(a, b))
	})
	size, folded := len(changed), make(map[int]bool)
	for i, n := range numbers {
		if i >= maxBatches/2 && w.batches[n] > size {
			break
		}
		folded[n] = true
		size += w.batches[n]
	}
	for name, e := range w.docs {
		if _, known := changed[name]; folded[e.batch] && !known && !gone[name] {
			changed[name] = e
		}
	}
}

func (w *words) forget(name string) {
	e, ok := w.docs[name]
	if !ok {
		return
	}
	delete(w.docs, name)
	if w.batches[e.batch]--; w.batches[e.batch] == 0 {
		delete(w.batches, e.batch)
	}
}

// Close frees the index; searches that run go on. Closing twice is fine.
func (x *Index) Close() error {
	x.write.Lock()
	defer x.write.Unlock()
	if x.closed.Swap(true) {
		return nil
	}
	library := x.now.library
	x.now = words{}
	x.vectors.clear()
	if library == nil {
		return nil
	}
	if err := library.Close(); err != nil {
		return fmt.Errorf("index: close: %w", err)
	}
	return nil
}
