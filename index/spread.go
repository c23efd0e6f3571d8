package index

import (
	"cmp"
	"slices"
)

// spread orders candidates, best first, so that a query of several steps gets tools for each step, and twins do not
// displace the rest. It takes one after the other, by score, plus coverage of clauses, minus twins already taken.
// Exact matches keep their rank.
func (r *ranking) spread(all []candidate, limit int) []Hit {
	var hits []Hit
	r.spreads = make(map[string]added, limit)
	serves, covered, weight := r.serving(all)
	twins := make([]float64, len(all)) // penalty by candidate
	taken := make([]bool, len(all))
	vectors := r.vectorsOf(all)
	for len(hits) < min(limit, len(all)) {
		best, bestScore := -1, 0.0
		var bestAdded added
		for i, c := range all {
			if taken[i] {
				continue
			}
			here := added{twins: min(twins[i], mostTwins*c.Score)}
			for clause, much := range serves[i] {
				here.coverage += weight * max(0, much-covered[clause])
			}
			score := round(c.Score + here.coverage - here.twins)
			if best < 0 || cmp.Or(cmp.Compare(c.exact, all[best].exact), cmp.Compare(score, bestScore)) > 0 {
				best, bestScore, bestAdded = i, score, here
			}
		}
		taken[best] = true
		hits = append(hits, Hit{Name: all[best].Name, Score: bestScore})
		r.spreads[all[best].Name] = bestAdded
		for clause, much := range serves[best] {
			covered[clause] = max(covered[clause], much)
		}
		if vectors[best] == nil {
			continue
		}
		for i := range all {
			if cosine := dot(vectors[best], vectors[i]); cosine > twinFrom {
				twins[i] += weightTwin * (cosine - twinFrom) / (1 - twinFrom)
			}
		}
	}
	return hits
}

// serving returns how well each candidate serves each clause, from where on that counts, and its weight: the cosine
// with vectors, else the share of what the best tool says of the clause.
func (r *ranking) serving(all []candidate) (serves [][]float64, from []float64, weight float64) {
	serves = make([][]float64, len(all))
	if r.similar != nil {
		rows := r.similar.rows[1:]
		for i, c := range all {
			if slot := r.x.slotOf(c.doc); r.similar.knows(slot) {
				for _, row := range rows {
					serves[i] = append(serves[i], float64(row[slot]))
				}
			}
		}
		return serves, slices.Repeat([]float64{coveredFrom}, len(rows)), weightCoverage
	}
	if len(r.most) < 2 || len(all) == 0 {
		return serves, nil, 0
	}
	for i, c := range all {
		serves[i] = make([]float64, len(r.most))
		r.eachTerm(c.doc, func(t term, score float64) {
			for _, clause := range t.clauses {
				serves[i][clause] += score / r.most[clause]
			}
		})
	}
	weight = weightSaid
	if r.wishes {
		weight = weightWished
	}
	return serves, slices.Repeat([]float64{saidFrom}, len(r.most)), weight * all[0].Score / float64(len(r.most))
}

// vectorsOf returns the vectors of candidates; nil for those without.
func (r *ranking) vectorsOf(all []candidate) [][]float32 {
	if r.similar == nil {
		return make([][]float32, len(all))
	}
	slots := make([]int, len(all))
	for i, c := range all {
		if slots[i] = r.x.slotOf(c.doc); !r.similar.knows(slots[i]) { // its vector came during this search
			slots[i] = -1
		}
	}
	return r.x.index.vectors.of(slots)
}
