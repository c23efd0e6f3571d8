package savings

import (
	"math"

	"toolfinch/store"
)

// Costs of a token, relative to one that is read without a cache.
const (
	Written = 1.25 // read for the first time
	Cached  = 0.1  // read again
)

// Weighed is the cost of tokens that are read for the first time, and again.
func Weighed(first, again int64) int64 {
	return int64(math.Round(Written*float64(first) + Cached*float64(again)))
}

// Cost is the cost of the tokens read, and all their cost if every tool were listed.
func Cost(s store.Savings) (cost, all int64) {
	return Weighed(s.Listed+s.Relisted+s.Answers+s.Results+s.Reread, s.Cached), Weighed(s.AllListed+s.Results, s.AllCached)
}
