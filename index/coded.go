package index

import (
	"context"
	"math"
	"runtime"
	"sync"

	"toolfinch/embed/kernel"
)

// coded keeps vectors in 16 bits a number, in two halves. A scan reads the upper ones only,
// a quarter of what floats are, and knows by how much it may be wrong; whoever needs a
// cosine exactly, to 1e-5, adds the lower ones. At 100,000 tools the scan reads 38 MB.
type coded struct {
	dim    int
	width  int // dim, rounded up to what the kernel reads
	blocks []*block
	lost   float64 // the longest difference between a vector and its upper halves
}

// blockSlots is the number of slots of a block, which lies in the second-level cache while
// all vectors of a query are compared with it.
const blockSlots = 1024

// block has the codes of so many slots. A number of a vector is
//
//	scale * (upper + lower/lowerSteps)
type block struct {
	upper, lower []int8
	scale        [blockSlots]float32
}

const (
	codeMost   = 127
	lowerSteps = 2 * codeMost
)

func newCoded(dim int) *coded { return &coded{dim: dim, width: kernel.RoundUp(dim, kernel.Codes)} }

// at returns where the codes of a slot are.
func (c *coded) at(slot int) (*block, int) { return c.blocks[slot/blockSlots], slot % blockSlots }

func (c *coded) put(slot int, vector []float32) error {
	for len(c.blocks) <= slot/blockSlots {
		size := blockSlots * c.width
		c.blocks = append(c.blocks, &block{upper: make([]int8, size), lower: make([]int8, size)})
	}
	b, i := c.at(slot)
	upper, lower := b.upper[i*c.width:], b.lower[i*c.width:]
	scale := largest(vector) / codeMost
	b.scale[i] = float32(scale)
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

// largest is the largest of the numbers without their signs.
func largest(vector []float32) float64 {
	var most float64
	for _, x := range vector {
		most = max(most, math.Abs(float64(x)))
	}
	return most
}

// remove leaves the codes, which the next vector of the slot overwrites.
func (c *coded) remove(int) error { return nil }

func (c *coded) vector(slot int) ([]float32, error) {
	b, i := c.at(slot)
	upper, lower := b.upper[i*c.width:], b.lower[i*c.width:]
	vector, scale := make([]float32, c.dim), b.scale[i]
	for j := range vector {
		vector[j] = scale * (float32(upper[j]) + float32(lower[j])/lowerSteps)
	}
	return vector, nil
}

// sharedFrom is the number of blocks from which on processors share a scan.
const sharedFrom = 16

func (c *coded) compare(ctx context.Context, queries [][]float32, rows [][]float32) (*comparison, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	asked := &comparison{queries: make([]codedQuery, len(queries))}
	for i, q := range queries {
		asked.queries[i] = c.query(q)
		asked.margin = max(asked.margin, c.lost+asked.queries[i].scale/2*math.Sqrt(float64(c.dim))+1e-6)
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

// comparison is a query, coded.
type comparison struct {
	queries []codedQuery
	margin  float64 // by how much a cosine of a scan may be wrong
}

type codedQuery struct {
	codes []int16
	scale float64 // what the code 1 stands for
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
	var sums [blockSlots]int32
	for n := from; n < to; n++ {
		b := c.blocks[n]
		for i, q := range asked.queries {
			row := rows[i][n*blockSlots:]
			row = row[:min(len(row), blockSlots)]
			kernel.Dots(sums[:len(row)], b.upper, q.codes)
			scale := float32(q.scale)
			for j := range row {
				row[j] = float32(sums[j]) * b.scale[j] * scale
			}
		}
	}
}

// cosine is that of one vector of a query and of a slot.
func (c *coded) cosine(asked *comparison, query, slot int) float64 {
	b, i := c.at(slot)
	q := asked.queries[query]
	var upper, lower [1]int32
	kernel.Dots(upper[:], b.upper[i*c.width:], q.codes)
	kernel.Dots(lower[:], b.lower[i*c.width:], q.codes)
	return (float64(upper[0]) + float64(lower[0])/lowerSteps) * float64(b.scale[i]) * q.scale
}
