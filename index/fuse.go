package index

import (
	"cmp"
	"math"
	"slices"
)

// fuse adds to the scores the similarity of the documents to the query. The similarity of a document without a
// vector is estimated from its words.
func (r *ranking) fuse(vectors [][]float32) error {
	similar, err := r.x.index.vectors.cosines(r.ctx, vectors)
	if err != nil {
		return err
	}
	r.similar, r.slack, r.exactDocs = similar, weightVectors*similar.margin(), map[int]bool{}
	missing := 0
	r.eachSlot(func(doc, slot int) {
		if similar.knows(slot) {
			r.scores[doc] += weightVectors * similar.cosine(slot)
		} else {
			missing++
		}
	})
	if missing > 0 {
		r.estimate()
	}
	return nil
}

// estimate adds the estimated similarity of documents without a vector.
func (r *ranking) estimate() {
	var topWords, about, topCosine float64
	for _, s := range r.words {
		topWords = max(topWords, s)
	}
	if topWords == 0 {
		return
	}
	r.eachSlot(func(_, slot int) {
		if r.similar.knows(slot) {
			about = max(about, r.similar.cosine(slot))
		}
	})
	r.eachSlot(func(_, slot int) {
		if r.similar.knows(slot) && r.similar.cosine(slot) >= about-2*r.similar.margin() {
			r.similar.sharpen(slot)
			topCosine = max(topCosine, r.similar.cosine(slot))
		}
	})
	r.similarityPerPoint = weightVectors * topCosine / topWords
	r.eachSlot(func(doc, slot int) {
		if !r.similar.knows(slot) {
			r.scores[doc] += r.similarityPerPoint * r.words[doc]
		}
	})
}

// eachSlot calls do with the searched documents that may be found.
func (r *ranking) eachSlot(do func(doc, slot int)) {
	tools, others, allowed := slices.Contains(r.groups, groupTools), slices.Contains(r.groups, groupOthers), r.allowed
	for i, p := range r.x.pieces {
		from := r.x.from[i]
		for number, at := range p.allFacts() {
			if at.there && (at.nonTool && others || !at.nonTool && tools) && (p.gone == nil || p.docs[number] != nil) && (allowed == nil || allowed.has[from+number]) {
				do(from+number, int(at.slot))
			}
		}
	}
}

// slot returns the slot of a document.
func (x *Snapshot) slotOf(doc int) int { return x.at(doc).slot }

// fused returns the exact score of a document by words and vectors, before deprecated ones are halved.
func (r *ranking) fused(doc int) float64 {
	if slot := r.x.slotOf(doc); r.similar.knows(slot) {
		r.similar.sharpen(slot)
		return r.words[doc] + weightVectors*r.similar.cosine(slot)
	}
	return r.words[doc] + r.similarityPerPoint*r.words[doc]
}

// sharpen makes the score of a document exact, before other scores are added.
func (r *ranking) sharpen(doc int) {
	if r.slack == 0 || r.exactDocs[doc] || !r.allowed.allows(doc) {
		return
	}
	r.exactDocs[doc] = true
	score := r.fused(doc)
	if score > 0 && r.isOld(doc) {
		score *= weightDeprecated
	}
	r.scores[doc] = score
}

func (s *similarities) knows(slot int) bool {
	return slot >= 0 && slot < len(s.has) && s.has[slot]
}

// cosine combines the similarity to the whole query and to its most similar clause.
func (s *similarities) cosine(slot int) float64 {
	query, clause := s.parts(slot)
	return (1-weightClause)*query + weightClause*clause
}

// candidate is a document that may become a hit.
type candidate struct {
	Hit
	doc   int
	exact int // level of an exact match; 0: none
}

// spread orders candidates, best first, so that a query of several steps gets tools for each step, and twins do not
// displace the rest. It takes one after the other, by score, plus coverage of clauses, minus twins already taken.
// Exact matches keep their rank.
func (r *ranking) spread(all []candidate, limit int) []Hit {
	var hits []Hit
	r.spreads = make(map[string]added, limit)
	covered := make([]float64, max(0, len(r.similar.rows)-1))
	for i := range covered {
		covered[i] = coveredFrom
	}
	twins := make([]float64, len(all)) // penalty by candidate
	taken := make([]bool, len(all))
	slots := make([]int, len(all))
	for i, c := range all {
		if slots[i] = r.x.slotOf(c.doc); !r.similar.knows(slots[i]) { // its vector came during this search
			slots[i] = -1
		}
	}
	vectors := r.x.index.vectors.of(slots)
	for len(hits) < min(limit, len(all)) {
		best, bestScore := -1, 0.0
		var bestAdded added
		for i, c := range all {
			if taken[i] {
				continue
			}
			here := added{r.coverage(c, covered), min(twins[i], mostTwins*c.Score)}
			score := round(c.Score + here.coverage - here.twins)
			if best < 0 || cmp.Or(cmp.Compare(c.exact, all[best].exact), cmp.Compare(score, bestScore)) > 0 {
				best, bestScore, bestAdded = i, score, here
			}
		}
		taken[best] = true
		hits = append(hits, Hit{Name: all[best].Name, Score: bestScore})
		r.spreads[all[best].Name] = bestAdded
		if vectors[best] == nil {
			continue
		}
		for i, row := range r.similar.rows[1:] {
			covered[i] = max(covered[i], float64(row[slots[best]]))
		}
		for i := range all {
			if cosine := dot(vectors[best], vectors[i]); cosine > twinFrom {
				twins[i] += weightTwin * (cosine - twinFrom) / (1 - twinFrom)
			}
		}
	}
	return hits
}

// coverage returns the bonus of a candidate for the clauses.
func (r *ranking) coverage(c candidate, covered []float64) float64 {
	var sum float64
	if slot := r.x.slotOf(c.doc); r.similar.knows(slot) {
		for i, row := range r.similar.rows[1:] {
			sum += max(0, float64(row[slot])-covered[i])
		}
	}
	return weightCoverage * sum
}

// prefer adds the priors.
func (r *ranking) prefer(prior map[string]float64) error {
	if len(prior) == 0 {
		return nil
	}
	top := r.top()
	r.priors = make(map[int]float64, len(prior))
	for name, p := range prior {
		err := r.x.postings([]string{fieldNames}, squeeze(name), func(doc, _ int) {
			if r.x.at(doc).Name != name {
				return
			}
			if r.sharpen(doc); r.scores[doc] > 0 {
				r.priors[doc] = weightPrior * min(max(p, 0), 1) * top
				r.scores[doc] += r.priors[doc]
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// round makes scores equal that differ by rounding only, so that names decide.
func round(score float64) float64 { return math.Round(score/rounding) / (1 / rounding) }

const rounding = 1e-6

func byScore(a, b candidate) int {
	return cmp.Or(cmp.Compare(b.exact, a.exact), cmp.Compare(b.Score, a.Score), cmp.Compare(a.Name, b.Name))
}

// top returns the best score.
func (r *ranking) top() float64 {
	var about, top float64
	for _, s := range r.scores {
		about = max(about, s)
	}
	if r.slack == 0 {
		return about
	}
	for doc, s := range r.scores {
		if s >= about-2*r.slack {
			r.sharpen(doc)
			top = max(top, r.scores[doc])
		}
	}
	return top
}

// parts returns the cosines with the query and with its most similar clause.
func (s *similarities) parts(slot int) (query, clause float64) {
	query = float64(s.rows[0][slot])
	clause = query
	if len(s.rows) > 1 {
		clause = math.Inf(-1)
		for _, row := range s.rows[1:] {
			clause = max(clause, float64(row[slot]))
		}
	}
	return query, clause
}
