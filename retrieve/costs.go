package retrieve

import (
	"slices"
	"sync"
	"sync/atomic"

	"toolfinch/tool"
)

// minCosts is the least that bounds each of the two maps of counts. Of many tools there are
// more, of which none is forgotten while it is in use.
const minCosts = 100_000

// costs remembers how many tokens definitions take in a model's context, by content.
// It counts on demand, and counts nothing twice that is in use.
type costs struct {
	mu     sync.Mutex // guards what follows; not held while counting
	known  map[string]int
	before map[string]int // the previous known, when that was full
	most   int            // bounds each of them, if it is more than minCosts
}

// hold makes room for so many counts that are in use.
func (c *costs) hold(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.most = n
}

// get returns the count of key, if it is known.
func (c *costs) get(key string) (n int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n, ok = c.known[key]; ok {
		return n, true
	}
	if n, ok = c.before[key]; ok {
		c.put(key, n)
	}
	return n, ok
}

// put keeps a count. Lock held.
func (c *costs) put(key string, n int) {
	if c.known == nil || len(c.known) >= max(c.most, minCosts) {
		c.before, c.known = c.known, map[string]int{}
	}
	c.known[key] = n
}

// cost returns the tokens of text, remembered under key.
func (c *costs) cost(key string, text func() []byte) int {
	if n, ok := c.get(key); ok {
		return n
	}
	n := tool.CountTokens(text())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(key, n)
	return n
}

// ofName is cost of a name alone.
func (c *costs) ofName(name string) int {
	return c.cost("name "+name, func() []byte { return []byte(name) })
}

// costOfAll is how many tokens listing every tool of a catalog takes.
type costOfAll struct {
	total atomic.Pointer[int] // nil while not counted

	// Of a catalog before, and what this one has beside it and lacks of it; nil: unknown.
	before      *int
	plus, minus []*tool.Tool
}

// follow makes l the cost of the catalog after before.
func (l *costOfAll) follow(before *costOfAll, plus, minus []*tool.Tool) {
	if l.before = before.total.Load(); l.before == nil {
		l.before = before.before
		plus, minus = slices.Concat(before.plus, plus), slices.Concat(before.minus, minus)
	}
	if l.before != nil {
		l.plus, l.minus = plus, minus
	}
}

const bytesOfToken = 4 // of JSON Schema and English, roughly
