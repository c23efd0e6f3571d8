package index

import (
	"slices"
	"strings"
)

// explain fills in the explanations of the hits from the notes of the search.
func (r *ranking) explain(hits []Hit, among []candidate) {
	for i := range hits {
		hit := &hits[i]
		doc := among[slices.IndexFunc(among, func(c candidate) bool { return c.Name == hit.Name })].doc
		why := &Explanation{Fields: map[string]float64{}, Terms: map[string]float64{}}
		hit.Why = why
		// Each term's share of the score over the whole query; the score of the clauses is divided in the same
		// proportion.
		r.eachTerm(doc, func(t term, score float64) { why.Terms[t.text] += score })
		why.Words = r.words[doc]
		why.Prior, why.Exact = r.priors[doc], r.lifts[doc]
		whole := why.Words
		if r.similar != nil {
			whole = r.fused(doc)
			slot := r.x.slotOf(doc)
			if why.Estimated = !r.similar.knows(slot); !why.Estimated {
				why.Query, why.Clause = r.similar.parts(slot)
			}
		}
		spread := r.spreads[hit.Name]
		why.Coverage, why.Twins = spread.coverage, -spread.twins
		if whole > 0 && r.isOld(doc) {
			why.Deprecated = -whole * (1 - weightDeprecated)
		}
		if r.isUnwanted(doc) {
			why.Words /= weightUnwanted
			why.Unwanted = -why.Words * (1 - weightUnwanted)
		}
		if r.similar != nil {
			why.Vectors = hit.Score - why.Words - (why.Prior + why.Exact + why.Coverage + why.Twins + why.Deprecated + why.Unwanted)
		}
		why.share(r.x.at(doc).Document)
	}
}

// share divides Words by term and by field, in proportion to their scores.
func (why *Explanation) share(d Document) {
	var sum float64
	for _, score := range why.Terms {
		sum += score
	}
	if sum == 0 {
		return
	}
	parts := map[string]map[string]float64{} // by term and field
	a := newAnalyzer()
	a.eachPart(d, func(part string, id int, amount float64) {
		term := a.terms[id]
		if parts[term] == nil {
			parts[term] = map[string]float64{}
		}
		parts[term][part] += amount
	})
	terms := map[string]float64{}
	for term, score := range why.Terms {
		share := why.Words * score / sum
		var all float64
		for _, amount := range parts[term] {
			all += amount
		}
		for part, amount := range parts[term] {
			why.Fields[part] += share * amount / all
		}
		word := strings.TrimPrefix(term, written)
		if word != term {
			// The written form counts for its stem, which readers recognize.
			word = stem(word)
		}
		terms[word] += share
	}
	why.Terms = terms
}
