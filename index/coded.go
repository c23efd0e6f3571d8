package index

import (
	"context"
	"math"
	"runtime"
	"sync"

	"toolfinch/embed/kernel"
)

// coded stores each number of a vector in 16 bits, as two halves. A scan reads only the upper halves, a quarter of
// the floats' size, and bounds its error; an exact cosine (see docs/research/retrieval.md) adds the lower halves.
// At 100,000 tools a scan reads 38 MB.
type coded struct {
	dim    int
	width  int     // dim, rounded up for the kernel
	slots  []int32 // slot of each vector; the vectors have no gaps
	places []int32 // index of the vector, by slot; undefined for slots without a vector
	blocks []*block
	lost   float64 // largest distance between a vector and its upper halves
}

// blockSize is the number of vectors of a block. A block stays in the second-level cache while all vectors of a
// query are compared with it.
const blockSize = 1024

// block has the codes of blockSize vectors. A number of a vector is
//
// scale * (upper + lower/lowerSteps)
//
//	scale * (upper + lower/lowerSteps)
type block struct {
	upper, lower []int8
	scale        [blockSize]float32
}

const (
	codeMost   = 127
	lowerSteps = 2 * codeMost
)

func newCoded(dim int) *coded { return &coded{dim: dim, width: kernel.RoundUp(dim, kernel.Codes)} }

// has reports whether a slot has a vector.
func (c *coded) has(slot int) bool {
	return slot < len(c.places) && int(c.places[slot]) < len(c.slots) && int(c.slots[c.places[slot]]) == slot
}

// at returns the codes of a vector: its index in a block, and its scale.
func (c *coded) at(place int) (upper, lower []int8, scale *float32) {
	b, i := c.blocks[place/blockSize], place%blockSize
	from, to := i*c.width, (i+1)*c.width
	return b.upper[from:to], b.lower[from:to], &b.scale[i]
}

func (c *coded) put(slot int, vector []float32) error {
	if !c.has(slot) {
		for len(c.places) <= slot {
			c.places = append(c.places, 0)
		}
		c.places[slot] = int32(len(c.slots))
		c.slots = append(c.slots, int32(slot))
	}
	place := int(c.places[slot])
	if place/blockSize == len(c.blocks) {
		size := blockSize * c.width
		c.blocks = append(c.blocks, &block{upper: make([]int8, size), lower: make([]int8, size)})
	}
	upper, lower, to := c.at(place)
	scale := largest(vector) / codeMost
	*to = float32(scale)
	var lost float64
	for j, x := range vector {
		steps := float64(x) / scale
		whole := math.Round(steps)
		upper[j], lower[j] = int8(whole), int8(math.Round((steps-whole)*lowerSteps))
		lost += (steps - whole) * (steps - whole)
	}
	c.lost = max(c.lost, scale*math.Sqrt(lost))
	return nil
}

// largest returns the largest absolute value.
func largest(vector []float32) float64 {
	var most float64
	for _, x := range vector {
		most = max(most, math.Abs(float64(x)))
	}
	return most
}

// remove moves the last vector into the place of the slot's vector.
func (c *coded) remove(slot int) error {
	last := len(c.slots) - 1
	toUpper, toLower, toScale := c.at(int(c.places[slot]))
	upper, lower, scale := c.at(last)
	copy(toUpper, upper)
	copy(toLower, lower)
	*toScale = *scale
	c.slots[c.places[slot]], c.places[c.slots[last]] = c.slots[last], c.places[slot]
	c.slots = c.slots[:last]
	if needed := (last + blockSize - 1) / blockSize; needed < len(c.blocks) {
		clear(c.blocks[needed:])
		c.blocks = c.blocks[:needed]
	}
	return nil
}

func (c *coded) vector(slot int) ([]float32, error) {
	upper, lower, scale := c.at(int(c.places[slot]))
	vector := make([]float32, c.dim)
	for j := range vector {
		vector[j] = *scale * (float32(upper[j]) + float32(lower[j])/lowerSteps)
	}
	return vector, nil
}

// sharedFrom is the number of blocks from which several processors share a scan.
const sharedFrom = 16

func (c *coded) compare(ctx context.Context, queries [][]float32, rows [][]float32) (*comparison, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	asked := &comparison{queries: make([]codedQuery, len(queries))}
	for i, q := range queries {
		asked.queries[i] = c.query(q)
		off := asked.queries[i].scale / 2 * math.Sqrt(float64(c.dim)) // error of the coded query
		asked.margin = max(asked.margin, c.lost+off*(1+c.lost)+1e-6)  // upper halves may be longer than 1
	}
	blocks, workers := len(c.blocks), 1
	if blocks >= sharedFrom {
		workers = runtime.GOMAXPROCS(0)
	}
	each := (blocks + workers - 1) / workers
	var wait sync.WaitGroup
	for from := each; from < blocks; from += each {
		wait.Go(func() { c.scan(asked, rows, from, min(from+each, blocks)) })
	}
	c.scan(asked, rows, 0, min(each, blocks))
	wait.Wait()
	return asked, nil
}

// comparison is a coded query.
type comparison struct {
	queries []codedQuery
	margin  float64 // largest error of a scan's cosine
}

type codedQuery struct {
	codes []int16
	scale float64 // value of the code 1
}

// query codes the vector of a query, as finely as the sums of products allow.
func (c *coded) query(vector []float32) codedQuery {
	most := min(math.MaxInt16, math.MaxInt32/(codeMost*c.width))
	q := codedQuery{make([]int16, c.width), largest(vector) / float64(most)}
	for i, x := range vector {
		q.codes[i] = int16(math.Round(float64(x) / q.scale))
	}
	return q
}

// scan compares a query with the vectors of some blocks.
func (c *coded) scan(asked *comparison, rows [][]float32, from, to int) {
	var sums [blockSize]int32
	for n := from; n < to; n++ {
		b, slots := c.blocks[n], c.slots[n*blockSize:min((n+1)*blockSize, len(c.slots))]
		for i, q := range asked.queries {
			kernel.Dots(sums[:len(slots)], b.upper, q.codes)
			scale, row := float32(q.scale), rows[i]
			for j, slot := range slots {
				row[slot] = float32(sums[j]) * b.scale[j] * scale
			}
		}
	}
}

// cosine returns the exact cosine of one vector of a query and a slot.
func (c *coded) cosine(asked *comparison, query, slot int) float64 {
	upper, lower, scale := c.at(int(c.places[slot]))
	q := asked.queries[query]
	var sums [2]int32
	kernel.Dots(sums[:1], upper, q.codes)
	kernel.Dots(sums[1:], lower, q.codes)
	return (float64(sums[0]) + float64(sums[1])/lowerSteps) * float64(*scale) * q.scale
}
