package hf

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"toolfinch/embed/kernel"
)

// encoder is the transformer of BERT (Devlin et al. 2018). Rows are tokens;
// the texts of a unit lie one behind the other, without padding.
type encoder struct {
	hidden, heads, head int // numbers of a token, heads, numbers of a head
	inner               int // intermediate numbers of a token
	width, wide         int // hidden and inner, rounded up to kernel.Align
	limit               int // tokens of a text
	epsilon             float64
	pool                pooling

	weights   *weights
	words     tensor    // read when needed: half of a model, of which a text uses a few rows
	positions []float32 // with the token type added
	first     layerNorm
	layers    []layer
	queries   []layer // the layers as queries pass them: with the adapter, if there is one

	spaces  sync.Pool // *space
	members sync.WaitGroup
}

type layer struct {
	attention, output, up, down linear
	afterAttention, afterDown   layerNorm
}

// linear is x*w + bias; both are zero where columns fill up.
type linear struct {
	w      *kernel.Panels
	bias   []float32
	change *change // nil for none
}

// mapping is one of the six maps of a layer: so many columns of one of its
// products, from column on, times scale.
type mapping struct {
	name    string // in files, within the layer
	of      *linear
	column  int
	in, out int
	scale   float32
}

func (e *encoder) mappings(l *layer) []mapping {
	// The scale of the products of queries and keys is put into the queries.
	scale := float32(1 / math.Sqrt(float64(e.head)))
	return []mapping{
		{"attention.self.query", &l.attention, 0, e.hidden, e.hidden, scale},
		{"attention.self.key", &l.attention, e.width, e.hidden, e.hidden, 1},
		{"attention.self.value", &l.attention, 2 * e.width, e.hidden, e.hidden, 1},
		{"attention.output.dense", &l.output, 0, e.hidden, e.hidden, 1},
		{"intermediate.dense", &l.up, 0, e.hidden, e.inner, 1},
		{"output.dense", &l.down, 0, e.inner, e.hidden, 1},
	}
}

// layerName begins the names of the tensors of a layer.
func layerName(i int) string { return fmt.Sprintf("encoder.layer.%d.", i) }

type layerNorm struct{ weight, bias []float32 }

// newEncoder begins to read the weights, in work; the encoder is complete when
// work is done without error.
func newEncoder(c config, pool pooling, limit int, w *weights, work *errgroup.Group) (*encoder, error) {
	e := &encoder{
		hidden: c.Hidden, heads: c.Heads, head: c.Hidden / c.Heads, inner: c.Intermediate,
		width: kernel.RoundUp(c.Hidden, kernel.Align), wide: kernel.RoundUp(c.Intermediate, kernel.Align),
		limit: limit, epsilon: c.Epsilon, pool: pool, weights: w, layers: make([]layer, c.Layers),
	}
	e.queries = e.layers
	prefix := w.prefix()
	read := func(into *[]float32, name string, shape ...int) {
		work.Go(func() (err error) {
			*into, err = w.read(prefix+name, shape...)
			return err
		})
	}
	normalize := func(n *layerNorm, name string) {
		read(&n.weight, name+".LayerNorm.weight", c.Hidden)
		read(&n.bias, name+".LayerNorm.bias", c.Hidden)
	}
	var err error
	if e.words, err = w.find(prefix+"embeddings.word_embeddings.weight", c.Vocabulary, c.Hidden); err != nil {
		return nil, err
	}
	normalize(&e.first, "embeddings")
	work.Go(func() (err error) {
		e.positions, err = readPositions(w, prefix, c)
		return err
	})
	for i := range e.layers {
		l, at := &e.layers[i], layerName(i)
		l.attention = newLinear(c.Hidden, 3*e.width)
		l.output = newLinear(c.Hidden, c.Hidden)
		l.up = newLinear(c.Hidden, c.Intermediate)
		l.down = newLinear(c.Intermediate, c.Hidden)
		for _, m := range e.mappings(l) {
			work.Go(func() error { return m.load(w, prefix+at+m.name) })
		}
		normalize(&l.afterAttention, at+"attention.output")
		normalize(&l.afterDown, at+"output")
	}
	return e, nil
}

func readPositions(w *weights, prefix string, c config) ([]float32, error) {
	positions, err := w.read(prefix+"embeddings.position_embeddings.weight", c.Positions, c.Hidden)
	if err != nil {
		return nil, err
	}
	name := prefix + "embeddings.token_type_embeddings.weight"
	types, err := w.read(name, w.tensors[name].rows(), c.Hidden)
	if err != nil {
		return nil, err
	}
	if len(types) == 0 {
		return positions, nil
	}
	for i := range positions {
		positions[i] += types[i%c.Hidden] // everything is of the first type
	}
	return positions, nil
}

func (t tensor) rows() int {
	if len(t.Shape) == 0 {
		return 0
	}
	return t.Shape[0]
}

func newLinear(in, out int) linear {
	w := kernel.NewPanels(in, out)
	return linear{w: w, bias: make([]float32, w.Columns())}
}

// load reads the matrix and the bias that begin with name.
func (m mapping) load(w *weights, name string) error {
	matrix, err := w.read(name+".weight", m.out, m.in)
	if err != nil {
		return err
	}
	bias, err := w.read(name+".bias", m.out)
	if err != nil {
		return err
	}
	for i := range m.out {
		row := matrix[i*m.in : (i+1)*m.in]
		scaleBy(row, m.scale)
		m.of.w.Set(m.column+i, row)
		m.of.bias[m.column+i] = bias[i] * m.scale
	}
	return nil
}

func scaleBy(row []float32, scale float32) {
	if scale == 1 {
		return
	}
	for i := range row {
		row[i] *= scale
	}
}

// sequence is a text; index is its place in the answer.
type sequence struct {
	index  int
	tokens []int32
}

// space is the memory of one run.
type space struct {
	x, y  []float32 // rows x width
	heads []float32 // rows x 3*width: queries, keys, values
	up    []float32 // rows x wide
	low   []float32 // rows x the ranks of a change
	own   []scratch // by member of the team
	bytes []byte
}

// scratch is for one head of one text.
type scratch struct{ keys, scores, summed []float32 }

// slack is what kernels may read beyond a matrix.
const slack = kernel.Align

func grow(buffer *[]float32, n int) []float32 {
	if n += slack; cap(*buffer) < n {
		*buffer = make([]float32, n)
	}
	return (*buffer)[:n]
}

// run takes the sequences through the layers, with so many goroutines, and puts
// their vectors into out.
func (e *encoder) run(ctx context.Context, layers []layer, unit []sequence, goroutines int, out [][]float32) error {
	s, _ := e.spaces.Get().(*space)
	if s == nil {
		s = &space{}
	}
	defer e.spaces.Put(s)
	for len(s.own) < goroutines {
		s.own = append(s.own, scratch{})
	}
	rows := 0
	for _, q := range unit {
		rows += len(q.tokens)
	}
	// A block of a text at the end reads rows beyond it.
	all := kernel.RoundUp(rows, kernel.MaxRows) + kernel.MaxRows
	x := grow(&s.x, all*e.width)
	y := grow(&s.y, all*e.width)
	heads := grow(&s.heads, all*3*e.width)
	up := grow(&s.up, all*e.wide)

	if err := e.lookUp(unit, x, s); err != nil {
		return err
	}
	t := newTeam(goroutines, &e.members)
	defer t.end()
	e.normalize(t, e.first, x, rows)
	for i := range layers {
		if err := ctx.Err(); err != nil {
			return err
		}
		runtime.Gosched() // a query must not wait for a catalog
		l := &layers[i]
		l.attention.apply(t, s, heads, x, e.width, nil, rows, nil)
		e.attend(t, unit, heads, y, s)
		l.output.apply(t, s, x, y, e.width, x, rows, nil)
		e.normalize(t, l.afterAttention, x, rows)
		l.up.apply(t, s, up, x, e.width, nil, rows, kernel.GELU)
		l.down.apply(t, s, x, up, e.wide, x, rows, nil)
		e.normalize(t, l.afterDown, x, rows)
	}
	row := 0
	for _, q := range unit {
		out[q.index] = e.pooled(x[row*e.width:], len(q.tokens))
		row += len(q.tokens)
	}
	return nil
}

// lookUp fills x with the vectors of words and positions.
func (e *encoder) lookUp(unit []sequence, x []float32, s *space) error {
	if s.bytes == nil {
		s.bytes = make([]byte, 4*e.hidden)
	}
	row := 0
	for _, q := range unit {
		for position, token := range q.tokens {
			at := x[row*e.width:]
			// Read, not mapped: a file cut short is an error then, not a crash.
			if err := e.weights.at(e.words, int(token)*e.hidden, at[:e.hidden], s.bytes); err != nil {
				return fmt.Errorf("weights: word %d: %w", token, err)
			}
			for i, v := range e.positions[position*e.hidden : (position+1)*e.hidden] {
				at[i] += v
			}
			clear(at[e.hidden:e.width])
			row++
		}
	}
	return nil
}

// partColumns is how many columns of a product are one part of a step.
const partColumns = 3 * kernel.Align

// apply sets y to then(x*w + bias + residual); rows of x have stride numbers.
// residual has y's shape and may be y itself; both it and then may be nil.
func (l *linear) apply(t *team, s *space, y, x []float32, stride int, residual []float32, rows int, then func([]float32)) {
	columns := l.w.Columns()
	low := l.change.lowered(s, x, stride, rows)
	t.each((columns+partColumns-1)/partColumns, func(part, _ int) {
		from := part * partColumns
		to := min(from+partColumns, columns)
		bias := l.bias[from:to]
		for row := range rows {
			at := y[row*columns+from : row*columns+to]
			if residual == nil {
				copy(at, bias)
				continue
			}
			for i, v := range residual[row*columns+from : row*columns+to] {
				at[i] = v + bias[i]
			}
		}
		l.w.MulAdd(y, columns, x, stride, rows, from, to)
		if l.change != nil {
			l.change.up.MulAdd(y, columns, low, l.change.down.Columns(), rows, from, to)
		}
		if then != nil {
			for row := range rows {
				then(y[row*columns+from : row*columns+to])
			}
		}
	})
}

// attend sets y to what each token takes from the others of its text.
func (e *encoder) attend(t *team, unit []sequence, heads, y []float32, s *space) {
	row := 0
	for _, q := range unit {
		n := len(q.tokens)
		t.each(e.heads, func(h, member int) {
			e.attendHead(n, heads[row*3*e.width+h*e.head:], y[row*e.width+h*e.head:], &s.own[member])
		})
		for i := range n {
			clear(y[(row+i)*e.width+e.hidden : (row+i+1)*e.width])
		}
		row += n
	}
}

// attendHead is one head of a text of n tokens; its queries begin heads, and its
// result begins y.
func (e *encoder) attendHead(n int, heads, y []float32, own *scratch) {
	stride := 3 * e.width
	columns := kernel.RoundUp(n, kernel.Align)
	padded := kernel.RoundUp(n, kernel.MaxRows)
	wide := kernel.RoundUp(e.head, kernel.Align)
	keys := grow(&own.keys, e.head*columns)
	scores := grow(&own.scores, padded*columns)
	summed := grow(&own.summed, padded*wide)
	clear(keys)
	for i := range n {
		for j, v := range heads[i*stride+e.width : i*stride+e.width+e.head] {
			keys[j*columns+i] = v
		}
	}
	clear(scores)
	kernel.MulAdd(scores, columns, heads, stride, keys, columns, n, e.head, columns)
	for i := range n {
		kernel.Softmax(scores[i*columns:(i+1)*columns], n)
	}
	clear(summed)
	kernel.MulAdd(summed, wide, scores, columns, heads[2*e.width:], stride, n, n, wide)
	for i := range n {
		copy(y[i*e.width:i*e.width+e.head], summed[i*wide:])
	}
}

// partRows is how many rows are normalized as one part of a step.
const partRows = 8

// normalize gives each row the mean and the variance that n says.
func (e *encoder) normalize(t *team, n layerNorm, x []float32, rows int) {
	t.each((rows+partRows-1)/partRows, func(part, _ int) {
		for row := part * partRows; row < min((part+1)*partRows, rows); row++ {
			n.apply(x[row*e.width:][:e.hidden], e.epsilon)
		}
	})
}

func (n layerNorm) apply(x []float32, epsilon float64) {
	var sum float32
	for _, v := range x {
		sum += v
	}
	mean := sum / float32(len(x))
	var squares float32
	for _, v := range x {
		squares += (v - mean) * (v - mean)
	}
	scale := float32(1 / math.Sqrt(float64(squares)/float64(len(x))+epsilon))
	weight, bias := n.weight[:len(x)], n.bias[:len(x)]
	for i, v := range x {
		x[i] = (v-mean)*scale*weight[i] + bias[i]
	}
}

// pooled is the vector of a text whose n tokens begin x.
func (e *encoder) pooled(x []float32, n int) []float32 {
	if e.pool == poolCLS {
		n = 1
	}
	sums := make([]float64, e.hidden)
	for row := range n {
		for i, v := range x[row*e.width:][:e.hidden] {
			sums[i] += float64(v)
		}
	}
	var squares float64
	for _, v := range sums {
		squares += v * v
	}
	scale := 1 / math.Max(math.Sqrt(squares), 1e-12)
	out := make([]float32, e.hidden)
	for i, v := range sums {
		out[i] = float32(v * scale)
	}
	return out
}

// change is a low-rank change of a product: x*down*up is added to it.
type change struct{ down, up *kernel.Panels }

// lowered returns x*down; it is nil for no change.
func (c *change) lowered(s *space, x []float32, stride, rows int) []float32 {
	if c == nil {
		return nil
	}
	columns := c.down.Columns()
	low := grow(&s.low, (kernel.RoundUp(rows, kernel.MaxRows)+kernel.MaxRows)*columns)
	clear(low[:rows*columns])
	c.down.MulAdd(low, columns, x, stride, rows, 0, columns)
	return low
}
