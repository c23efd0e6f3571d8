package index

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"sync"

	"github.com/philippgille/chromem-go"

	"toolfinch/embed/kernel"
)

// ErrVector is returned for a vector that cannot be compared with the others:
// of another dimension, zero or not finite.
var ErrVector = errors.New("index: vector does not fit")

// ErrDimension is the ErrVector of a vector of another dimension.
var ErrDimension = fmt.Errorf("%w: it has another dimension", ErrVector)

// holder keeps unit vectors by slot and compares them all with a query. Its
// callers give it only what fits, one put or remove at a time.
type holder interface {
	put(slot int, vector []float32) error
	remove(slot int) error
	vector(slot int) ([]float32, error)
	// cosines puts the cosine of queries[i] and each vector at
	// all[i*stride+slot]. all is zero, and has kernel.MaxRows rows or a multiple.
	cosines(ctx context.Context, queries [][]float32, all []float32, stride int) error
}

// packedFrom is the number of vectors from which on they are packed: a scan by
// chromem-go takes longer than all the rest of a search then.
const packedFrom = 256

// vectors are the vectors of an Index by the slot of their document. The zero
// value is empty.
type vectors struct {
	mu    sync.RWMutex // guards all below; read-held while comparing, never over other I/O
	dim   int
	has   []bool // by slot
	count int
	slots int // how many are expected
	held  holder
}

// reserve says how many slots there are, so that room for all is made at once.
func (v *vectors) reserve(slots int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.slots = slots
}

// put stores the vector of a slot, in place of what was there.
func (v *vectors) put(slot int, vector []float32) error {
	vector, err := unit(vector)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.dim == 0 {
		v.dim = len(vector)
	}
	if len(vector) != v.dim {
		return fmt.Errorf("%w: %d numbers among vectors of %d", ErrDimension, len(vector), v.dim)
	}
	if v.held == nil {
		if v.held, err = newChromem(); err != nil {
			return err
		}
	}
	if v.count >= packedFrom {
		if err := v.pack(); err != nil {
			return err
		}
	}
	if err := v.held.put(slot, vector); err != nil {
		return err
	}
	for len(v.has) <= slot {
		v.has = append(v.has, false)
	}
	if !v.has[slot] {
		v.has[slot] = true
		v.count++
	}
	return nil
}

// pack moves the vectors into the layout for many.
func (v *vectors) pack() error {
	if p, done := v.held.(*packed); done {
		p.panel.Grow(v.slots)
		return nil
	}
	next := &packed{v.dim, kernel.NewPanels(v.dim, v.slots)}
	for slot, has := range v.has {
		if !has {
			continue
		}
		vector, err := v.held.vector(slot)
		if err == nil {
			err = next.put(slot, vector)
		}
		if err != nil {
			return err
		}
	}
	v.held = next
	return nil
}

// remove forgets the vector of a slot. What the holder cannot remove is not asked
// for again, and overwritten by the next vector of the slot.
func (v *vectors) remove(slot int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if slot >= len(v.has) || !v.has[slot] {
		return
	}
	_ = v.held.remove(slot)
	v.has[slot] = false
	v.count--
}

func (v *vectors) clear() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.dim, v.has, v.count, v.held = 0, nil, 0, nil
}

func (v *vectors) known(slot int) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return slot < len(v.has) && v.has[slot]
}

func (v *vectors) len() int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.count
}

// similarities are the cosines of one query's vectors with the documents.
type similarities struct {
	rows   [][]float32 // by vector of the query and slot
	has    []bool      // by slot
	buffer *[]float32
}

// buffers are the memory of similarities, which has several megabytes where
// there are very many tools.
var buffers = sync.Pool{New: func() any { return new([]float32) }}

func (s *similarities) release() {
	if s.buffer != nil {
		buffers.Put(s.buffer)
	}
}

// cosines compares the vectors of a query with all documents. The caller
// releases the result.
func (v *vectors) cosines(ctx context.Context, queries [][]float32) (*similarities, error) {
	queries = append([][]float32(nil), queries...) // the caller's stay as they are
	for i, q := range queries {
		q, err := unit(q)
		if err != nil {
			return nil, err
		}
		queries[i] = q
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	for _, q := range queries {
		if v.count > 0 && len(q) != v.dim {
			return nil, fmt.Errorf("%w: a query of %d numbers, and documents of %d", ErrDimension, len(q), v.dim)
		}
	}
	s := &similarities{has: append([]bool(nil), v.has...), buffer: buffers.Get().(*[]float32)}
	columns := kernel.RoundUp(max(1, len(v.has)), kernel.Align)
	size := kernel.RoundUp(len(queries), kernel.MaxRows) * columns
	if cap(*s.buffer) < size {
		*s.buffer = make([]float32, size)
	}
	all := (*s.buffer)[:size]
	clear(all)
	for i := range queries {
		s.rows = append(s.rows, all[i*columns:(i+1)*columns:(i+1)*columns])
	}
	if v.count == 0 {
		return s, nil
	}
	return s, v.held.cosines(ctx, queries, all, columns)
}

// of returns copies of the vectors of slots, nil for those that have none.
func (v *vectors) of(slots []int) [][]float32 {
	v.mu.RLock()
	defer v.mu.RUnlock()
	out := make([][]float32, len(slots))
	for i, slot := range slots {
		if slot < 0 || slot >= len(v.has) || !v.has[slot] {
			continue
		}
		if vector, err := v.held.vector(slot); err == nil {
			out[i] = vector
		}
	}
	return out
}

// dot is the inner product, 0 where one of the vectors is missing.
func dot(a, b []float32) float64 {
	var sum float32
	for i := range min(len(a), len(b)) {
		sum += a[i] * b[i]
	}
	return float64(sum)
}

// unit returns vector with length 1.
func unit(vector []float32) ([]float32, error) {
	var squares float64
	for _, x := range vector {
		squares += float64(x) * float64(x)
	}
	length := math.Sqrt(squares)
	if !(length > 1e-12) || math.IsInf(length, 0) {
		return nil, fmt.Errorf("%w: its length is %v", ErrVector, length)
	}
	if math.Abs(length-1) < 1e-6 {
		return vector, nil
	}
	out := make([]float32, len(vector))
	for i, x := range vector {
		out[i] = float32(float64(x) / length)
	}
	return out, nil
}

// inChromem keeps vectors in a chromem-go collection, in memory. What that
// library does badly is not asked of it: more results than there are documents
// is an error there, and so is any result of an empty collection; deleting by
// id with an empty filter that is not nil deletes everything; metadata is
// shared with the caller; a zero vector or one of another dimension spoils
// every query; files are not written atomically.
type inChromem struct{ documents *chromem.Collection }

func newChromem() (*inChromem, error) {
	never := func(context.Context, string) ([]float32, error) {
		return nil, errors.New("index: texts are embedded elsewhere")
	}
	documents, err := chromem.NewDB().CreateCollection("tools", nil, never)
	if err != nil {
		return nil, fmt.Errorf("index: vectors: %w", err)
	}
	return &inChromem{documents}, nil
}

func (c *inChromem) put(slot int, vector []float32) error {
	vector = append([]float32(nil), vector...) // it is kept as it is given
	return c.documents.AddDocument(context.Background(), chromem.Document{ID: strconv.Itoa(slot), Embedding: vector})
}

func (c *inChromem) remove(slot int) error {
	return c.documents.Delete(context.Background(), nil, nil, strconv.Itoa(slot))
}

func (c *inChromem) vector(slot int) ([]float32, error) {
	d, err := c.documents.GetByID(context.Background(), strconv.Itoa(slot))
	return d.Embedding, err
}

func (c *inChromem) cosines(ctx context.Context, queries [][]float32, all []float32, stride int) error {
	n := c.documents.Count()
	if n == 0 {
		return nil
	}
	for i, q := range queries {
		found, err := c.documents.QueryEmbedding(ctx, q, n, nil, nil)
		if err != nil {
			return fmt.Errorf("index: vectors: %w", err)
		}
		for _, f := range found {
			slot, err := strconv.Atoi(f.ID)
			if err != nil {
				return fmt.Errorf("index: vectors: %w", err)
			}
			all[i*stride+slot] = f.Similarity
		}
	}
	return nil
}

// packed keeps vectors as the columns of one matrix, so that a search is one
// product. At 5,000 tools it is twenty times as fast as a scan by chromem-go.
type packed struct {
	dim   int
	panel *kernel.Panels // a column for each slot
}

func (p *packed) put(slot int, vector []float32) error {
	p.panel.Grow(slot + 1)
	p.panel.Set(slot, vector)
	return nil
}

func (p *packed) remove(slot int) error {
	p.panel.Set(slot, nil)
	return nil
}

func (p *packed) vector(slot int) ([]float32, error) { return p.panel.Column(slot), nil }

// sharedFrom is the number of columns from which on processors share a scan.
const sharedFrom = 16384

func (p *packed) cosines(ctx context.Context, queries [][]float32, all []float32, stride int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	left := make([]float32, kernel.RoundUp(len(queries), kernel.MaxRows)*p.dim)
	for i, q := range queries {
		copy(left[i*p.dim:], q)
	}
	columns, workers := min(stride, p.panel.Columns()), 1
	if columns >= sharedFrom {
		workers = runtime.GOMAXPROCS(0)
	}
	each := kernel.RoundUp((columns+workers-1)/workers, kernel.Align)
	var wait sync.WaitGroup
	for from := 0; from < columns; from += each {
		wait.Go(func() {
			p.panel.MulAdd(all, stride, left, p.dim, len(queries), from, min(from+each, columns))
		})
	}
	wait.Wait()
	return nil
}
