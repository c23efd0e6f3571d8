// Package kernel owns products of matrices of 32-bit floats, the two other slow functions of a transformer, and
// inner products of bytes. It starts no goroutines and knows nothing of models.
//
// The kernels are assembly for amd64 (AVX2 with FMA) and arm64 (NEON), and Go elsewhere. Other libraries have only
// inner products of two vectors, at half the speed: they load two numbers per multiplication, a block one per six.
package kernel

import (
	"fmt"
	"math"
)

// MaxRows is the largest number of rows that any kernel computes at once. Left matrices and results have room for a
// multiple of it; rows beyond the last are overwritten.
const MaxRows = 12

// Align divides every row length and column count.
const Align = 32

// set is one implementation. cols is the width of its blocks and of a panel.
type set struct {
	name string
	cols int
	block
	gelu func(x []float32)
	exp  func(x []float32, shift float32)
	dots func(sums *int32, rows int, codes *int8, query *int16, k int) // rows and k are not 0
}

// block multiplies rows: c (rows x cols) += a (rows x k) * b (k x cols), with distances between rows in floats.
type block struct {
	rows   int
	mulAdd func(k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int)
}

var portable = set{name: "go", cols: 4, block: block{2, mulAddGo}, gelu: geluGo, exp: expGo, dots: dotsGo}

// best is the fastest set of this processor; sets are all its sets, the portable one first.
var best, sets = func() (set, []set) {
	all := append([]set{portable}, native()...)
	return all[len(all)-1], all
}()

// RoundUp returns the smallest multiple of unit that is not below n.
func RoundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

// Panels is the right matrix of a product. Its columns lie in panels, as the kernel reads them. Set must not run
// beside other methods.
type Panels struct {
	k       int
	columns int
	data    []float32
	set     *set
}

// NewPanels returns a matrix of zeros with k rows.
func NewPanels(k, columns int) *Panels { return newPanels(&best, k, columns) }

func newPanels(s *set, k, columns int) *Panels {
	p := &Panels{k: k, set: s}
	p.Grow(columns)
	return p
}

// Columns returns the number of columns, rounded up to Align.
func (p *Panels) Columns() int { return p.columns }

// Grow makes room for columns; new ones are zero.
func (p *Panels) Grow(columns int) {
	columns = RoundUp(columns, Align)
	if columns <= p.columns {
		return
	}
	if need := columns * p.k; need > cap(p.data) {
		data := make([]float32, need)
		copy(data, p.data)
		p.data = data
	} else {
		p.data = p.data[:need]
	}
	p.columns = columns
}

// Set writes a column. More values than rows panic; missing values are zero.
func (p *Panels) Set(column int, values []float32) {
	if len(values) > p.k {
		panic(fmt.Sprintf("kernel: a column of %d values in a matrix of %d rows", len(values), p.k))
	}
	cols := p.set.cols
	at := column/cols*cols*p.k + column%cols
	for i := range p.k {
		var v float32
		if i < len(values) {
			v = values[i]
		}
		p.data[at+i*cols] = v
	}
}

// depth is how many rows of a panel are multiplied before the next panel: they stay in the first-level cache
// meanwhile.
const depth = 384

// MulAdd adds a*p to c, for the columns from (inclusive) to to (exclusive),
// both multiples of Align. a has rows rows of lda floats, c of ldc.
func (p *Panels) MulAdd(c []float32, ldc int, a []float32, lda int, rows, from, to int) {
	s := p.set
	for k0 := 0; k0 < p.k; k0 += depth {
		k := min(depth, p.k-k0)
		for column := from; column < to; column += s.cols {
			panel := p.data[column*p.k+k0*s.cols:]
			for row := 0; row < rows; row += s.rows {
				s.mulAdd(k, a[row*lda+k0:], lda, panel, s.cols, c[row*ldc+column:], ldc)
			}
		}
	}
}

// MulAdd adds a*b to c. a is rows x k, b is k x columns, a multiple of Align;
// lda, ldb and ldc are the distances between their rows.
func MulAdd(c []float32, ldc int, a []float32, lda int, b []float32, ldb int, rows, k, columns int) {
	best.multiply(c, ldc, a, lda, b, ldb, rows, k, columns)
}

func (s *set) multiply(c []float32, ldc int, a []float32, lda int, b []float32, ldb int, rows, k, columns int) {
	for column := 0; column < columns; column += s.cols {
		for row := 0; row < rows; row += s.rows {
			s.mulAdd(k, a[row*lda:], lda, b[column:], ldb, c[row*ldc+column:], ldc)
		}
	}
}

// GELU replaces every x by x/2 * (1 + erf(x/sqrt 2)); len(x) is a multiple of 8.
func GELU(x []float32) { best.gelu(x) }

// Softmax replaces x by exp(x) over the sum of them; len(x) is a multiple of 8
// and the values beyond n are set to zero.
func Softmax(x []float32, n int) {
	top := x[0]
	for _, v := range x[1:n] {
		top = max(top, v)
	}
	best.exp(x, top)
	var sum float32
	for _, v := range x[:n] {
		sum += v
	}
	scale := 1 / sum
	for i := range x[:n] {
		x[i] *= scale
	}
	clear(x[n:])
}

// mulAddGo computes 2 x 4 sums at once, which fit the registers of every processor.
func mulAddGo(k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int) {
	a0, a1 := a[:k], a[lda:lda+k]
	c0, c1 := c[:4:4], c[ldc:ldc+4:ldc+4]
	s00, s01, s02, s03 := c0[0], c0[1], c0[2], c0[3]
	s10, s11, s12, s13 := c1[0], c1[1], c1[2], c1[3]
	for i, x := range a0 {
		y := a1[i]
		row := b[i*ldb : i*ldb+4 : i*ldb+4]
		s00 += x * row[0]
		s01 += x * row[1]
		s02 += x * row[2]
		s03 += x * row[3]
		s10 += y * row[0]
		s11 += y * row[1]
		s12 += y * row[2]
		s13 += y * row[3]
	}
	c0[0], c0[1], c0[2], c0[3] = s00, s01, s02, s03
	c1[0], c1[1], c1[2], c1[3] = s10, s11, s12, s13
}

// erf is x*P(x*x)/Q(x*x) on [-4, 4], the rational approximation that Eigen and
// XLA use; the error is below 2e-7.
const (
	erfP0 = -1.60960333262415e-02
	erfP1 = -2.95459980854025e-03
	erfP2 = -7.34990630326855e-04
	erfP3 = -5.69250639462346e-05
	erfP4 = -2.10102402082508e-06
	erfP5 = 2.77068142495902e-08
	erfP6 = -2.72614225801306e-10
	erfQ0 = -1.42647390514189e-02
	erfQ1 = -7.37332916720468e-03
	erfQ2 = -1.68282697438203e-03
	erfQ3 = -2.13374055278905e-04
	erfQ4 = -1.45660718464996e-05
)

func geluGo(x []float32) {
	for i, v := range x {
		t := min(max(v*(1/math.Sqrt2), -4), 4)
		s := t * t
		p := (((((erfP6*s+erfP5)*s+erfP4)*s+erfP3)*s+erfP2)*s+erfP1)*s + erfP0
		q := (((erfQ4*s+erfQ3)*s+erfQ2)*s+erfQ1)*s + erfQ0
		x[i] = 0.5*v + 0.5*v*(t*p/q)
	}
}

// exp is 2^n * e^r with |r| <= ln(2)/2 and a polynomial for e^r (Cephes expf).
const (
	log2E = 1.44269504088896341
	ln2Hi = 0.693359375
	ln2Lo = -2.12194440e-4
	expP0 = 1.9875691500e-4
	expP1 = 1.3981999507e-3
	expP2 = 8.3334519073e-3
	expP3 = 4.1665795894e-2
	expP4 = 1.6666665459e-1
	expP5 = 5.0000001201e-1

	expMin = -87 // below it the result is as good as zero
)

func expGo(x []float32, shift float32) {
	for i, v := range x {
		v = min(max(v-shift, expMin), -expMin)
		n := float32(math.Floor(float64(v*log2E + 0.5)))
		r := v - n*ln2Hi - n*ln2Lo
		p := ((((expP0*r+expP1)*r+expP2)*r+expP3)*r+expP4)*r + expP5
		p = p*r*r + r + 1
		x[i] = p * math.Float32frombits(uint32(int32(n)+127)<<23)
	}
}
