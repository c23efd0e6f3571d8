// Package index answers searches over one set of definitions of tools, prompts
// and resources, in memory.
// It never dials, never writes to disk and does not know who may see what.
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

// ErrClosed is returned by Apply and Search of a closed Index.
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

// Index finds tools by words, and by meaning where it has vectors. Its methods are safe for concurrent use; the
// answers depend on the documents alone, not on the order or the steps in
// which they came.
type Index struct {
	words api.Index

	// write lets one Apply or Close at a time do its work; searches never take
	// it.
	write   sync.Mutex
	docs    map[string]entry // by Name; see reading
	batches map[int]int      // live documents by batch; empty ones are left out
	next    int              // number of the next batch
	slots   slots
	size    atomic.Int64 // len(docs), for those who do not wait for write

	vectors vectors // by slot; has a lock of its own

	// reading is held by who changes docs, beside write, and by who reads it
	// without write; for moments only.
	reading sync.RWMutex

	// mu guards closed. A search holds it shared from beginning to end, so that
	// Close waits for it; it is held whole only by Close, never over a wait.
	mu     sync.RWMutex
	closed bool
}

type entry struct {
	Document
	slot  int // its number for as long as it is in the index
	batch int
}

// slots gives out small numbers; what was given back is given out again.
type slots struct {
	free []int
	next int
}

func (s *slots) take() int {
	if n := len(s.free); n > 0 {
		slot := s.free[n-1]
		s.free = s.free[:n-1]
		return slot
	}
	s.next++
	return s.next - 1
}

func (s *slots) giveBack(slot int) { s.free = append(s.free, slot) }

// Build returns an index of docs; of two with the same name the later counts.
// The caller closes the index.
func Build(ctx context.Context, docs []Document) (*Index, error) {
	// The library's top package would do the same and add nine megabytes to the
	// program: analyzers, formats and stores that are of no use here.
	words, err := scorch.NewScorch(scorch.Name, map[string]any{"path": ""}, analysis())
	if err == nil {
		err = words.Open()
	}
	if err != nil {
		return nil, fmt.Errorf("index: open: %w", err)
	}
	x := &Index{words: words, docs: make(map[string]entry), batches: make(map[int]int)}
	if err := x.fill(ctx, docs); err != nil {
		return nil, errors.Join(fmt.Errorf("index: build: %w", err), x.Close())
	}
	return x, nil
}

// fill puts docs into the empty index, in as many batches as are prepared at
// once: nobody sees them before all are there.
func (x *Index) fill(ctx context.Context, docs []Document) error {
	latest := make(map[string]Document, len(docs))
	for _, d := range docs {
		latest[d.Name] = d
	}
	entries := make([]entry, 0, len(latest))
	for _, d := range latest {
		entries = append(entries, entry{Document: d, slot: x.slots.take()})
	}
	workers := min(runtime.GOMAXPROCS(0), maxBatches/2)
	parts := workers
	if len(entries) > manyDocs { // what is in preparation takes several times its size
		parts = maxBatches / 2
	}
	var all errgroup.Group
	all.SetLimit(workers)
	for part := range slices.Chunk(entries, max(minPart, (len(entries)+parts-1)/parts)) {
		x.record(part)
		all.Go(func() error { return x.put(ctx, part, nil) })
	}
	if err := all.Wait(); err != nil {
		return err
	}
	x.size.Store(int64(len(x.docs)))
	return nil
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

// Apply adds or replaces the documents in changed and takes out the names in
// removed; a name in both is replaced. Searches go on meanwhile and see all of
// the change or nothing. An error leaves the index as it was.
func (x *Index) Apply(ctx context.Context, changed []Document, removed []string) error {
	x.write.Lock()
	defer x.write.Unlock()
	if x.closed { // set under write, too
		return ErrClosed
	}
	next := make(map[string]entry, len(changed))
	for _, d := range changed {
		next[d.Name] = entry{Document: d}
	}
	var fresh []int // slots of documents that are new
	for name, e := range next {
		if old, known := x.docs[name]; known {
			e.slot = old.slot
		} else {
			e.slot = x.slots.take()
			fresh = append(fresh, e.slot)
		}
		next[name] = e
	}
	gone := make(map[string]bool)
	for _, name := range removed {
		if _, replaced := next[name]; !replaced && x.docs[name].Def != nil {
			gone[name] = true
		}
	}
	outdated := x.outdated(next, gone)
	x.fold(next, gone)

	entries := slices.Collect(maps.Values(next))
	if err := x.put(ctx, entries, gone); err != nil {
		for _, slot := range fresh {
			x.slots.giveBack(slot)
		}
		return fmt.Errorf("index: apply: %w", err)
	}
	for name := range gone {
		x.slots.giveBack(x.docs[name].slot)
		x.forget(name)
	}
	x.record(entries)
	x.size.Store(int64(len(x.docs)))
	for _, slot := range outdated {
		if err := x.vectors.remove(slot); err != nil {
			return fmt.Errorf("index: apply: %w", err)
		}
	}
	return nil
}

// outdated returns the slots whose vectors are of another text, or of none.
func (x *Index) outdated(next map[string]entry, gone map[string]bool) []int {
	var out []int
	for name, e := range next {
		if old, known := x.docs[name]; known && x.vectors.known(e.slot) && Text(old.Document) != Text(e.Document) {
			out = append(out, e.slot)
		}
	}
	for name := range gone {
		out = append(out, x.docs[name].slot)
	}
	return out
}

// Missing returns the documents that have no vector, tools first, sorted by
// name: those whose Text is to be embedded.
func (x *Index) Missing() []Document {
	x.write.Lock()
	defer x.write.Unlock()
	var out []Document
	for _, e := range x.docs {
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
	if x.closed {
		return ErrClosed
	}
	x.vectors.reserve(x.slots.next)
	for i, d := range docs {
		e, known := x.docs[d.Name]
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

// put changes the library's index, in one step for those who search it.
func (x *Index) put(ctx context.Context, entries []entry, gone map[string]bool) error {
	if len(entries)+len(gone) == 0 {
		return nil
	}
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
	return x.words.Batch(b)
}

// record notes that entries are a new batch.
func (x *Index) record(entries []entry) {
	if len(entries) == 0 {
		return
	}
	for _, e := range entries {
		x.forget(e.Name)
		e.batch = x.next
		x.reading.Lock()
		x.docs[e.Name] = e
		x.reading.Unlock()
	}
	x.batches[x.next] = len(entries)
	x.next++
}

// fold adds the documents of the smallest batches to next when there are too
// many batches. Those of about the same size go together, as in a
// log-structured store, so that a document moves a few times in its life.
func (x *Index) fold(next map[string]entry, gone map[string]bool) {
	if len(x.batches) < maxBatches {
		return
	}
	numbers := make([]int, 0, len(x.batches))
	for n := range x.batches {
		numbers = append(numbers, n)
	}
	slices.SortFunc(numbers, func(a, b int) int {
		return cmp.Or(cmp.Compare(x.batches[a], x.batches[b]), cmp.Compare(a, b))
	})
	size, folded := len(next), make(map[int]bool)
	for i, n := range numbers {
		if i >= maxBatches/2 && x.batches[n] > size {
			break
		}
		folded[n] = true
		size += x.batches[n]
	}
	for name, e := range x.docs {
		if _, changed := next[name]; folded[e.batch] && !changed && !gone[name] {
			next[name] = e
		}
	}
}

func (x *Index) forget(name string) {
	e, ok := x.docs[name]
	if !ok {
		return
	}
	x.reading.Lock()
	delete(x.docs, name)
	x.reading.Unlock()
	if x.batches[e.batch]--; x.batches[e.batch] == 0 {
		delete(x.batches, e.batch)
	}
}

// Len returns the number of documents in the index, 0 once it is closed.
func (x *Index) Len() int { return int(x.size.Load()) }

// Close waits for running searches and a running Apply, and frees the index.
// Closing twice is fine.
func (x *Index) Close() error {
	x.write.Lock()
	defer x.write.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil
	}
	x.reading.Lock()
	x.closed, x.docs, x.batches = true, nil, nil
	x.reading.Unlock()
	x.vectors.clear()
	x.size.Store(0)
	if err := x.words.Close(); err != nil {
		return fmt.Errorf("index: close: %w", err)
	}
	return nil
}
