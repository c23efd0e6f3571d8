package retrieve

import (
	"context"

	"toolfinch/tool"
)

// LearnTokens adds counts that CountTokens returned earlier.
func (k *kept) LearnTokens(counts map[string]int) {
	k.costs.hold(len(counts))
	k.costs.mu.Lock()
	defer k.costs.mu.Unlock()
	for hash, n := range counts {
		k.costs.put(hash, n)
	}
}

// CountTokens counts every definition that was not counted yet, and returns the new
// counts by tool.Def.Hash. They are of the upstreams' definitions, whatever name
// clients see. Counting takes about 0.1 s a megabyte.
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
		n := c.raw(t.Def)
		if !known {
			fresh[t.Def.Hash] = n
		}
		total += c.Tokens(t)
	}
	c.listing.total.Store(&total)
	return fresh
}

// Tokens returns how many tokens a tool's definition takes in a model's context, as it
// is listed to clients. It may be off by one if clients see another name than the
// upstream's: the definition and the names are counted apart.
func (k *kept) Tokens(t *tool.Tool) int {
	n := k.raw(t.Def)
	if t.Name != t.Def.ID.Name {
		n += k.costs.ofName(t.Name) - k.costs.ofName(t.Def.ID.Name)
	}
	return n
}

func (k *kept) raw(def *tool.Def) int {
	return k.costs.cost(def.Hash, func() []byte { return def.Raw })
}

// ListingTokens returns how many tokens listing every tool would take, and whether all
// have been counted.
func (c *Catalog) ListingTokens() (tokens int, complete bool) {
	if total := c.listing.total.Load(); total != nil {
		return *total, true
	}
	return -1, false
}

// ListingCost is ListingTokens with an estimate for definitions that have not been
// counted.
func (c *Catalog) ListingCost() (tokens int) {
	if tokens, complete := c.ListingTokens(); complete {
		return tokens
	}
	if before := c.listing.before; before != nil {
		return *before + c.estimate(c.listing.plus) - c.estimate(c.listing.minus)
	}
	return c.estimate(c.Tools())
}

// SameListingCost is ListingCost as all processes with these tools have it, whatever each has counted so
// far: where the size of the definitions leaves open whether that is below a number of tokens, it counts.
func (c *Catalog) SameListingCost(below int) (tokens int) {
	const sure = bytesOfToken // a byte is at most one token, and few texts have four times as many bytes as others
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

func (k *kept) estimate(tools []*tool.Tool) (tokens int) {
	for _, t := range tools {
		n, counted := k.costs.get(t.Def.Hash)
		if !counted {
			n = len(t.Def.Raw) / bytesOfToken
		}
		tokens += n
	}
	return tokens
}
