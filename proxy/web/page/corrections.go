package page

import (
	"slices"
	"sync"

	"toolfinch/internal/telemetry"
	"toolfinch/tool"
)

// Bounds of corrections.
const (
	maxCorrections = 50
	maxMoved       = 10 // other queries that one shows
	seenPlaces     = 10 // places of hits that clients may see
)

// correction is what came of the owner's saying that a search meant a tool.
type correction struct {
	N             int64 // number of the search's operation
	I             int   // index of the search in it
	Of            tool.ID
	Name          string
	Words         []string
	Before, After int // place for the query; 0 for none
	Others        int // number of other kept queries
	Moved         []moved
	Unsaid        bool // more queries moved than Moved has
	Partial       bool // vectors of the new description were not there yet
	Undone        bool
}

// moved is another kept query for which the tool has another place now, at least one of both among the first seenPlaces.
type moved struct {
	Query         string
	Before, After int
	Above         string // the tool that was first, if the meant one is first now; "" else
}

// place is where a search finds a tool.
type place struct {
	At    int // 0 for nowhere among the first maxHits
	First string
}

// corrections are kept in memory, the latest last.
type corrections struct {
	mu  sync.Mutex // guards all and their Undone; held for look-ups only
	all []*correction
}

func (c *corrections) add(one *correction) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(slices.Delete(c.all, 0, max(0, len(c.all)-maxCorrections+1)), one)
}

// of returns copies of the corrections of an operation, the latest first.
func (c *corrections) of(n int64) (all []correction) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range slices.Backward(c.all) {
		if one.N == n {
			all = append(all, *one)
		}
	}
	return all
}

// undone marks the corrections that added a word which is removed now.
func (c *corrections) undone(id tool.ID, words []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.all {
		if one.Of == id && slices.ContainsFunc(one.Words, func(word string) bool { return slices.Contains(words, word) }) {
			one.Undone = true
		}
	}
}

// measured compares the places before and after; the first one is that of the search itself.
func (c *correction) measured(all []telemetry.Search, before, after []place) {
	n := min(len(before), len(after))
	for i := range n {
		b, a := before[i], after[i]
		if i == 0 {
			c.Before, c.After = b.At, a.At
			continue
		}
		c.Others++
		if b.At == a.At || !seenAt(b.At) && !seenAt(a.At) {
			continue
		}
		if len(c.Moved) == maxMoved {
			c.Unsaid = true
			continue
		}
		one := moved{Query: all[i].Query, Before: b.At, After: a.At}
		if a.At == 1 {
			one.Above = b.First
		}
		c.Moved = append(c.Moved, one)
	}
}

// seenAt reports whether clients see a hit at a place.
func seenAt(place int) bool { return place > 0 && place <= seenPlaces }
