package retrieve

import (
	"slices"
	"sync"
	"sync/atomic"

	"toolfinch/tool"
)

// minCosts is the smallest bound of each of the two maps of counts. With many tools the bound is higher, so that no
// count in use is forgotten.
const minCosts = 100_000

// costs caches how many tokens definitions take in a model's context, by content. It counts on demand, and no
// content in use twice.
type costs struct {
	mu       sync.Mutex // guards the fields below; not held while counting
	current  map[string]int
	previous map[string]int // the last full current
	most     int            // bounds each map, if above minCosts
}

// reserve makes room for n counts in use.
func (c *costs) reserve(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.most = n
}

// get returns the count of key, if it is cached.
func (c *costs) get(key string) (n int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n, ok = c.current[key]; ok {
		return n, true
	}
	if n, ok = c.previous[key]; ok {
		c.put(key, n)
	}
	return n, ok
}

// put stores a count. The caller holds the lock.
func (c *costs) put(key string, n int) {
	if c.current == nil || len(c.current) >= max(c.most, minCosts) {
		c.previous, c.current = c.current, map[string]int{}
	}
	c.current[key] = n
}

// cost returns the tokens of text, cached under key.
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

// ofName returns the cost of a name alone.
func (c *costs) ofName(name string) int {
	return c.cost("name "+name, func() []byte { return []byte(name) })
}

// costOfAll is the number of tokens that listing every tool of a catalog takes.
type costOfAll struct {
	total atomic.Pointer[int] // nil while not counted

	// The total of an earlier catalog, and the tools that this catalog adds and lacks; nil: unknown.
	before      *int
	plus, minus []*tool.Tool
}

// follow derives l from the total of the predecessor.
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
