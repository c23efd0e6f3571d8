package index

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"

	"github.com/philippgille/chromem-go"
)

// ErrVector is returned for a vector that cannot be compared: of another dimension, zero or not finite.
var ErrVector = errors.New("index: vector does not fit")

// ErrDimension is the ErrVector of a vector of another dimension.
var ErrDimension = fmt.Errorf("%w: it has another dimension", ErrVector)

// vectorSet stores unit vectors by slot and compares all with a query. Callers pass fitting vectors only, one put
// or remove at a time.
type vectorSet interface {
	put(slot int, vector []float32) error
	remove(slot int) error
	vector(slot int) ([]float32, error)
	// compare stores the cosine of queries[i] and each vector in rows[i][slot]. A returned comparison bounds the
	// error.
	compare(ctx context.Context, queries [][]float32, rows [][]float32) (*comparison, error)
}

// codedFrom is the number of vectors from which they are coded: beyond it, a scan by chromem-go takes longer than
// the rest of a search.
const codedFrom = 256

// vectors are the vectors of an Index by the slot of their document. The zero value is empty.
type vectors struct {
	mu    sync.RWMutex // guards all below; read-locked while comparing, never over other I/O
	dim   int
	has   []bool // by slot
	count int
	held  vectorSet
}

// putAll stores or replaces the vectors of slots, and waits only once for running comparisons. The first misfit is
// an error; done counts the vectors stored before it.
func (v *vectors) putAll(slots []int, values [][]float32) (done int, err error) {
	units := make([][]float32, 0, len(values))
	var misfit error
	for _, vector := range values {
		if vector, misfit = unit(vector); misfit != nil {
			break
		}
		units = append(units, vector)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, vector := range units {
		if err := v.putUnit(slots[i], vector); err != nil {
			return i, err
		}
	}
	return len(units), misfit
}

// putUnit stores the vector of a slot, of length 1. The caller holds the lock.
func (v *vectors) putUnit(slot int, vector []float32) (err error) {
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
	if v.count >= codedFrom {
		if err := v.code(); err != nil {
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

// code moves the vectors into the coded form.
func (v *vectors) code() error {
	if _, done := v.held.(*coded); done {
		return nil
	}
	next := newCoded(v.dim)
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

// remove removes the vector of a slot. If the set cannot remove it, nobody reads it, and the next vector of the
// slot overwrites it.
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

	all  *vectors
	held *coded      // the set of the rows; nil if these are exact
	ask  *comparison // nil if rows are exact
}

// buffers pool the memory of similarities: several megabytes with very many tools.
var buffers = sync.Pool{New: func() any { return new([]float32) }}

func (s *similarities) release() { buffers.Put(s.buffer) }

// margin returns the largest error of a cosine that is not sharpened.
func (s *similarities) margin() float64 {
	if s.ask == nil {
		return 0
	}
	return s.ask.margin
}

// sharpen makes the cosines of a slot with a vector exact.
func (s *similarities) sharpen(slot int) {
	s.all.mu.RLock()
	defer s.all.mu.RUnlock()
	if s.ask == nil || s.all.held != s.held || !s.all.has[slot] { // the vector is gone: the inexact cosines remain
		return
	}
	for i, row := range s.rows {
		row[slot] = float32(s.held.cosine(s.ask, i, slot))
	}
}

// cosines compares the vectors of a query with all documents. The caller releases the result.
func (v *vectors) cosines(ctx context.Context, queries [][]float32) (*similarities, error) {
	queries = append([][]float32(nil), queries...) // the caller's vectors stay unchanged
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
	s := &similarities{has: append([]bool(nil), v.has...), buffer: buffers.Get().(*[]float32), all: v}
	columns := max(1, len(v.has))
	if size := len(queries) * columns; cap(*s.buffer) < size {
		*s.buffer = make([]float32, size)
	}
	for i := range queries {
		s.rows = append(s.rows, (*s.buffer)[:cap(*s.buffer)][i*columns:(i+1)*columns:(i+1)*columns])
	}
	if v.count == 0 {
		return s, nil
	}
	s.held, _ = v.held.(*coded)
	var err error
	if s.ask, err = v.held.compare(ctx, queries, s.rows); err != nil {
		s.release()
		return nil, err
	}
	return s, nil
}

// of returns copies of the vectors of slots; nil for slots without a vector.
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

// dot returns the inner product; 0 if a vector is missing.
func dot(a, b []float32) float64 {
	var sum float32
	for i := range min(len(a), len(b)) {
		sum += a[i] * b[i]
	}
	return float64(sum)
}

// unit returns vector scaled to length 1.
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

// inChromem keeps vectors in a chromem-go collection, in memory. It avoids what the library does badly: asking for
// more results than there are documents is an error, and so is asking an empty collection; deleting by id with a
// non-nil empty filter deletes everything; metadata is shared with the caller; a zero vector, or one of another
// dimension, spoils every query; files are not written atomically.
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
	vector = append([]float32(nil), vector...) // the library keeps it without a copy
	return c.documents.AddDocument(context.Background(), chromem.Document{ID: strconv.Itoa(slot), Embedding: vector})
}

func (c *inChromem) remove(slot int) error {
	return c.documents.Delete(context.Background(), nil, nil, strconv.Itoa(slot))
}

func (c *inChromem) vector(slot int) ([]float32, error) {
	d, err := c.documents.GetByID(context.Background(), strconv.Itoa(slot))
	return d.Embedding, err
}

func (c *inChromem) compare(ctx context.Context, queries [][]float32, rows [][]float32) (*comparison, error) {
	n := c.documents.Count()
	if n == 0 {
		return nil, nil
	}
	for i, q := range queries {
		found, err := c.documents.QueryEmbedding(ctx, q, n, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("index: vectors: %w", err)
		}
		for _, f := range found {
			slot, err := strconv.Atoi(f.ID)
			if err != nil {
				return nil, fmt.Errorf("index: vectors: %w", err)
			}
			rows[i][slot] = f.Similarity
		}
	}
	return nil, nil
}
