package index

import (
	"cmp"
	"maps"
	"slices"
)

// Over returns the parts of the score that are larger than in other, the largest first. Words of the query count each
// for itself, as "word create"; a concept is "word ~delete".
func (e *Explanation) Over(other *Explanation, hybrid bool) (more []Part) {
	lead := map[string]float64{}
	count := func(of *Explanation, sign float64) {
		for _, part := range of.Parts(hybrid) {
			if part.Name != "" && part.Name != partWords {
				lead[part.Name] += sign * part.Value
			}
		}
		for term, score := range of.Terms {
			lead["word "+term] += sign * score
		}
	}
	count(e, 1)
	count(other, -1)
	for _, name := range slices.Sorted(maps.Keys(lead)) {
		if lead[name] >= leastLead {
			more = append(more, Part{Name: name, Value: lead[name]})
		}
	}
	slices.SortStableFunc(more, func(a, b Part) int { return cmp.Compare(b.Value, a.Value) })
	return more
}

// leastLead is the smallest lead that is told: it is shown with two digits.
const leastLead = .005
