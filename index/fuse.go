package index

import (
	"cmp"
	"math"
	"slices"
)

// How words and vectors are put together. Scores of words are in units of
// inverse document frequency, cosines are not normalised either: a query whose
// words are rare and found scores high by words and so is decided by them; one
// whose words say little is decided by the vectors. docs/research/retrieval.md has what
// else was tried.
const (
	weightVectors  = 33  // of the similarity, against the score of words
	weightClause   = 0.5 // of the most similar clause, against the whole query
	weightCoverage = 9   // of each clause that a tool serves better than those above it
	coveredFrom    = 0.3 // the cosine below which a tool does not serve a clause
	twinFrom       = .95 // the cosine from which on two tools are twins
	weightTwin     = 4   // taken from a tool for each twin above it, at most
	mostTwins      = 0.5 // of its score, that twins take together
	weightPrior    = .15 // of a prior of 1, against the best score
)

// fuse adds to the scores how similar the documents are to the query. A
// document whose vector is not there yet counts as similar as its words let
// expect.
func (r *ranking) fuse(vectors [][]float32) error {
	similar, err := r.x.index.vectors.cosines(r.ctx, vectors)
	if err != nil {
		return err
	}
	r.similar, r.slack, r.sharp = similar, weightVectors*similar.margin(), map[int]bool{}
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

// estimate adds to the scores of documents without a vector.
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
	r.guess = weightVectors * topCosine / topWords
	r.eachSlot(func(doc, slot int) {
		if !r.similar.knows(slot) {
			r.scores[doc] += r.guess * r.words[doc]
		}
	})
}

// eachSlot calls do with the documents that are looked for and may be found.
func (r *ranking) eachSlot(do func(doc, slot int)) {
	tools, others, allowed := slices.Contains(r.groups, groupTools), slices.Contains(r.groups, groupOthers), r.allowed
	for i, p := range r.x.pieces {
		from := r.x.from[i]
		for number, at := range p.places() {
			if at.there && (at.other && others || !at.other && tools) && (p.gone == nil || p.docs[number] != nil) && (allowed == nil || allowed.has[from+number]) {
				do(from+number, int(at.slot))
			}
		}
	}
}

// slot is that of a document.
func (r *ranking) slot(doc int) int { return r.x.at(doc).slot }

// fused is the exact score of a document by words and vectors, that of a deprecated one not yet halved.
func (r *ranking) fused(doc int) float64 {
	if slot := r.slot(doc); r.similar.knows(slot) {
		r.similar.sharpen(slot)
		return r.words[doc] + weightVectors*r.similar.cosine(slot)
	}
	return r.words[doc] + r.guess*r.words[doc]
}

// sharpen makes the score of a document exact, before anything is added to it.
func (r *ranking) sharpen(doc int) {
	if r.slack == 0 || r.sharp[doc] || !r.may(doc) {
		return
	}
	r.sharp[doc] = true
	score := r.fused(doc)
	if score > 0 && r.isOld(doc) {
		score *= weightDeprecated
	}
	r.scores[doc] = score
}

func (s *similarities) knows(slot int) bool {
	return slot >= 0 && slot < len(s.has) && s.has[slot]
}

// cosine is the similarity to the whole query and to its most similar clause.
func (s *similarities) cosine(slot int) float64 {
	query, clause := s.parts(slot)
	return (1-weightClause)*query + weightClause*clause
}

// candidate is a document that may become a hit.
type candidate struct {
	Hit
	doc   int
	exact int // level of an exact match, 0 for none
}

// spread orders candidates, best first, so that the answer to a query of
// several steps has tools for each, and so that twins do not crowd out the
// rest: one is taken after the other, by its score, what it adds for the
// clauses, and less for twins above it. Exact matches stay where they are.
func (r *ranking) spread(all []candidate, limit int) []Hit {
	var hits []Hit
	r.spreads = make(map[string]added, limit)
	covered := make([]float64, max(0, len(r.similar.rows)-1))
	for i := range covered {
		covered[i] = coveredFrom
	}
	twins := make([]float64, len(all)) // what is taken off, by candidate
	taken := make([]bool, len(all))
	slots := make([]int, len(all))
	for i, c := range all {
		if slots[i] = r.slot(c.doc); !r.similar.knows(slots[i]) { // its vector came after this search began
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

// coverage is what a candidate adds for the clauses.
func (r *ranking) coverage(c candidate, covered []float64) float64 {
	var sum float64
	if slot := r.slot(c.doc); r.similar.knows(slot) {
		for i, row := range r.similar.rows[1:] {
			sum += max(0, float64(row[slot])-covered[i])
		}
	}
	return weightCoverage * sum
}

// prefer adds what was learned from use.
func (r *ranking) prefer(prior map[string]float64) error {
	if len(prior) == 0 {
		return nil
	}
	top := r.top()
	r.priors = make(map[int]float64, len(prior))
	for name, p := range prior {
		err := r.postings([]string{fieldNames}, squeeze(name), func(doc, _ int) {
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

// round makes equal what differs by rounding only, so that names decide.
func round(score float64) float64 { return math.Round(score/rounding) / (1 / rounding) }

const rounding = 1e-6

func byScore(a, b candidate) int {
	return cmp.Or(cmp.Compare(b.exact, a.exact), cmp.Compare(b.Score, a.Score), cmp.Compare(a.Name, b.Name))
}
