package retrieve

import (
	"context"
	"sync"

	"toolfinch/tool"
)

// costs is what definitions cost a model's context, in tokens, by content.
// Nothing is counted twice; what is not known yet is counted when needed.
type costs struct {
	mu    sync.Mutex // guards known; not held while counting
	known map[string]int
}

// cost returns the tokens of text, remembered under key.
func (c *costs) cost(key string, text func() []byte) int {
	c.mu.Lock()
	n, ok := c.known[key]
	c.mu.Unlock()
	if ok {
		return n
	}
	n = tool.CountTokens(text())
	c.mu.Lock()
	if c.known == nil {
		c.known = map[string]int{}
	}
	c.known[key] = n
	c.mu.Unlock()
	return n
}

// ofName is cost of a name alone.
func (c *costs) ofName(name string) int {
	return c.cost("name "+name, func() []byte { return []byte(name) })
}

// LearnTokens takes counts that were made before, as CountTokens returned them.
func (c *Catalog) LearnTokens(counts map[string]int) {
	c.costs.mu.Lock()
	defer c.costs.mu.Unlock()
	if c.costs.known == nil {
		c.costs.known = map[string]int{}
	}
	for hash, n := range counts {
		c.costs.known[hash] = n
	}
}

// CountTokens counts every definition that was not counted yet and returns the
// new counts by tool.Def.Hash: of definitions as the upstreams have them, under
// whatever name clients see them. It takes about 0.1 s a megabyte.
func (c *Catalog) CountTokens(ctx context.Context) map[string]int {
	fresh := map[string]int{}
	total := 0
	version := c.version.Load()
	for _, t := range c.Tools() {
		if ctx.Err() != nil {
			return fresh
		}
		c.costs.mu.Lock()
		_, known := c.costs.known[t.Def.Hash]
		c.costs.mu.Unlock()
		n := c.raw(t.Def)
		if !known {
			fresh[t.Def.Hash] = n
		}
		total += c.Tokens(t)
	}
	if version == c.version.Load() {
		c.listing.Store(int64(total))
	}
	return fresh
}

// Tokens is what the definition of a tool costs a model's context, as clients are
// listed it, give or take a token where they see another name than the upstream's.
// The definition is counted once, whatever it is called, and so is each name.
func (c *Catalog) Tokens(t *tool.Tool) int {
	n := c.raw(t.Def)
	if t.Name != t.Def.ID.Name {
		n += c.costs.ofName(t.Name) - c.costs.ofName(t.Def.ID.Name)
	}
	return n
}

func (c *Catalog) raw(def *tool.Def) int {
	return c.costs.cost(def.Hash, func() []byte { return def.Raw })
}

// ListingTokens is what listing every tool would cost a model's context, and
// whether all of them have been counted since the catalog changed.
func (c *Catalog) ListingTokens() (tokens int, complete bool) {
	total := c.listing.Load()
	return int(total), total >= 0
}

// ListingCost is ListingTokens, or while that is not known an estimate of it.
func (c *Catalog) ListingCost() int {
	if tokens, complete := c.ListingTokens(); complete {
		return tokens
	}
	const bytesOfToken = 4 // of JSON Schema and English, roughly
	bytes := 0
	for _, t := range c.Tools() {
		bytes += len(t.Def.Raw)
	}
	return bytes / bytesOfToken
}
