package retrieve

import (
	"context"

	"toolfinch/tool"
)

// LearnTokens adds counts that CountTokens returned earlier.
func (k *shared) LearnTokens(counts map[string]int) {
	k.costs.reserve(len(counts))
	k.costs.mu.Lock()
	defer k.costs.mu.Unlock()
	for hash, n := range counts {
		k.costs.put(hash, n)
	}
}

// CountTokens counts every definition that has no count yet, and returns the new counts by tool.Def.Hash. It counts
// the upstreams' definitions, whatever name clients see. Counting takes about 0.1 s per megabyte.
func (c *Catalog) CountTokens(ctx context.Context) map[string]int {
	fresh := map[string]int{}
	tools, total := c.listing.plus, 0
	if before := c.listing.before; before == nil {
		tools = c.Tools()
	} else {
		total = *before
		for _, t := range c.listing.minus {
			total -= c.Tokens(t)
		}
	}
	for _, t := range tools {
		if ctx.Err() != nil {
			return fresh
		}
		_, known := c.costs.get(t.Def.Hash)
		n := c.rawTokens(t.Def)
		if !known {
			fresh[t.Def.Hash] = n
		}
		total += c.Tokens(t)
	}
	c.listing.total.Store(&total)
	return fresh
}

// Tokens returns how many tokens a tool's definition takes in a model's context, as clients are listed it. It may
// be off by one if clients see another name than the upstream's: the definition and the names are counted
// separately.
func (k *shared) Tokens(t *tool.Tool) int {
	n := k.rawTokens(t.Def)
	if t.Name != t.Def.ID.Name {
		n += k.costs.ofName(t.Name) - k.costs.ofName(t.Def.ID.Name)
	}
	return n
}

func (k *shared) rawTokens(def *tool.Def) int {
	return k.costs.cost(def.Hash, func() []byte { return def.Raw })
}

// ListingTokens returns how many tokens listing every tool would take; complete is false while not all are counted.
func (c *Catalog) ListingTokens() (tokens int, complete bool) {
	if total := c.listing.total.Load(); total != nil {
		return *total, true
	}
	return -1, false
}

// ListingCost is ListingTokens with estimates for definitions without a count.
func (c *Catalog) ListingCost() (tokens int) {
	if tokens, complete := c.ListingTokens(); complete {
		return tokens
	}
	if before := c.listing.before; before != nil {
		return *before + c.estimate(c.listing.plus) - c.estimate(c.listing.minus)
	}
	return c.estimate(c.Tools())
}

// SameListingCost is ListingCost with the same result in every process, whatever each has counted: if the size of
// the definitions does not decide whether the cost is below the given bound, it counts.
func (c *Catalog) SameListingCost(below int) (tokens int) {
	const sure = bytesOfToken // a byte is at most one token, and few texts have four times as many bytes per token as others
	tools, size := c.Tools(), 0
	for _, t := range tools {
		size += len(t.Def.Raw)
	}
	if rough := size / bytesOfToken; rough > sure*below || rough < below/sure {
		return rough
	}
	for _, t := range tools {
		tokens += c.Tokens(t)
	}
	return tokens
}

func (k *shared) estimate(tools []*tool.Tool) (tokens int) {
	for _, t := range tools {
		n, counted := k.costs.get(t.Def.Hash)
		if !counted {
			n = len(t.Def.Raw) / bytesOfToken
		}
		tokens += n
	}
	return tokens
}
