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
	// compare puts the cosine of queries[i] and each vector at rows[i][slot]. With a
	// comparison these are as wrong as that says at most.
	compare(ctx context.Context, queries [][]float32, rows [][]float32) (*comparison, error)
}

// codedFrom is the number of vectors from which on they are coded: a scan by
// chromem-go takes longer than all the rest of a search then.
const codedFrom = 256

// vectors are the vectors of an Index by the slot of their document. The zero
// value is empty.
type vectors struct {
	mu    sync.RWMutex // guards all below; read-held while comparing, never over other I/O
	dim   int
	has   []bool // by slot
	count int
	held  holder
}

// putAll stores the vectors of slots, in place of what was there, with one wait for the
// comparisons that run. Of what does not fit the first is an error; done is how many
// are stored, those before it.
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

// putUnit stores the vector of a slot, of length 1. The lock is held.
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

// code moves the vectors into the form for many.
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

	all  *vectors
	held *coded      // what the rows are of, nil where these are exact
	ask  *comparison // nil where rows are exact
}

// buffers are the memory of similarities, which has several megabytes where
// there are very many tools.
var buffers = sync.Pool{New: func() any { return new([]float32) }}

func (s *similarities) release() { buffers.Put(s.buffer) }

// margin is by how much a cosine may be wrong that was not sharpened.
func (s *similarities) margin() float64 {
	if s.ask == nil {
		return 0
	}
	return s.ask.margin
}

// sharpen makes the cosines of a slot, which has some, exact.
func (s *similarities) sharpen(slot int) {
	s.all.mu.RLock()
	defer s.all.mu.RUnlock()
	if s.ask == nil || s.all.held != s.held || !s.all.has[slot] { // they are gone: what is known remains
		return
	}
	for i, row := range s.rows {
		row[slot] = float32(s.held.cosine(s.ask, i, slot))
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
