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
