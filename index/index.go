// Package index answers searches over one set of tool definitions, in memory.
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
	"sync"
	"sync/atomic"

	"github.com/blevesearch/bleve/v2/index/scorch"
	api "github.com/blevesearch/bleve_index_api"
	"golang.org/x/sync/errgroup"

	"toolfinch/tool"
)

// ErrClosed is returned by Apply and Search of a closed Index.
var ErrClosed = errors.New("index is closed")

// Document is a tool as it is to be found. Neither it nor its Def is changed
// after it was given to an Index.
type Document struct {
	Name              string // exposed name, the unique key
	Def               *tool.Def
	ServerDescription string // what the tool's server is for; may be empty
}

// Index finds tools by words. Its methods are safe for concurrent use; the
// answers depend on the documents alone, not on the order or the steps in
// which they came.
type Index struct {
	words api.Index

	// write lets one Apply or Close at a time do its work; searches never take
	// it.
	write   sync.Mutex
	docs    map[string]entry // by exposed name
	batches map[int]int      // live documents by batch; empty ones are left out
	next    int              // number of the next batch
	size    atomic.Int64     // len(docs), for those who do not wait for write

	// mu guards closed. A search holds it shared from beginning to end, so that
	// Close waits for it; it is held whole only by Close, never over a wait.
	mu     sync.RWMutex
	closed bool
}

type entry struct {
	Document
	batch int
}

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
	docs = slices.Collect(maps.Values(latest))
	workers := min(runtime.GOMAXPROCS(0), maxBatches/2)
	var all errgroup.Group
	for part := range slices.Chunk(docs, max(minPart, (len(docs)+workers-1)/workers)) {
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
	next := make(map[string]Document, len(changed))
	for _, d := range changed {
		next[d.Name] = d
	}
	gone := make(map[string]bool)
	for _, name := range removed {
		if _, replaced := next[name]; !replaced && x.docs[name].Def != nil {
			gone[name] = true
		}
	}
	x.fold(next, gone)

	docs := slices.Collect(maps.Values(next))
	if err := x.put(ctx, docs, gone); err != nil {
		return fmt.Errorf("index: apply: %w", err)
	}
	for name := range gone {
		x.forget(name)
	}
	x.record(docs)
	x.size.Store(int64(len(x.docs)))
	return nil
}

// put changes the library's index, in one step for those who search it.
func (x *Index) put(ctx context.Context, docs []Document, gone map[string]bool) error {
	if len(docs)+len(gone) == 0 {
		return nil
	}
	b := api.NewBatch()
	for name := range gone {
		b.Delete(name)
	}
	a := newAnalyzer()
	for _, d := range docs {
		if err := ctx.Err(); err != nil {
			return err
		}
		b.Update(a.document(d))
	}
	return x.words.Batch(b)
}

// record notes that docs are a new batch.
func (x *Index) record(docs []Document) {
	if len(docs) == 0 {
		return
	}
	for _, d := range docs {
		x.forget(d.Name)
		x.docs[d.Name] = entry{d, x.next}
	}
	x.batches[x.next] = len(docs)
	x.next++
}

// fold adds the documents of the smallest batches to next when there are too
// many batches. Those of about the same size go together, as in a
// log-structured store, so that a document moves a few times in its life.
func (x *Index) fold(next map[string]Document, gone map[string]bool) {
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
			next[name] = e.Document
		}
	}
}

func (x *Index) forget(name string) {
	e, ok := x.docs[name]
	if !ok {
		return
	}
	delete(x.docs, name)
	if x.batches[e.batch]--; x.batches[e.batch] == 0 {
		delete(x.batches, e.batch)
	}
}

// Len returns the number of tools in the index, 0 once it is closed.
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
	x.closed, x.docs, x.batches = true, nil, nil
	x.size.Store(0)
	if err := x.words.Close(); err != nil {
		return fmt.Errorf("index: close: %w", err)
	}
	return nil
}
