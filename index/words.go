package index

import (
	"maps"
	"math"
	"slices"
	"strings"
)

// saturated returns the worth of each frequency, as a share of a term's weight.
var saturated = func() (all [1 << freqBits]float64) {
	for freq := range all {
		times := float64(freq) / scale
		all[freq] = times / (times + saturation)
	}
	return all
}()

// lookUp looks up the terms of a query.
func (r *ranking) lookUp(q request) error {
	concepts := map[string]int{}
	number := func(concept string) int {
		if concept == "" {
			return -1
		}
		n, known := concepts[concept]
		if !known {
			n = len(concepts)
			concepts[concept] = n
		}
		return n
	}
	// Sums in the same order are equal, and concepts come after stems.
	for _, text := range slices.Sorted(maps.Keys(q.terms)) {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		t := term{text: text, clauses: q.terms[text], weight: 1, addsTo: number(q.concepts[text]), exceeds: -1}
		switch {
		case strings.HasPrefix(text, written):
			t.weight = weightWritten
		case isConcept(text):
			t.weight, t.exceeds = weightConcept, number(text)
		}
		var err error
		if t.matches, err = r.x.find(r.grouped(fieldTerms), text); err != nil {
			return err
		}
		if t.count > 0 {
			r.rarities[text] = rarity(r.total, t.count)
			t.weight *= r.rarities[text]
			r.terms = append(r.terms, t)
		}
	}
	r.concepts = len(concepts)
	return nil
}

// lexical adds up BM25 over the terms; the counts include the lengths of documents. It uses the library's postings
// with our own arithmetic: the library's scorer takes the root of frequencies, its average length is the number of
// different terms, and its disjunction multiplies by the share of found terms. Together these cost 0.03 nDCG@10 and
// make scores depend on deletions.
//
// Every document with a term is scored. Bounds could skip some, but hybrid search, priors and confidence read all,
// and a posting takes two nanoseconds.
func (r *ranking) lexical(q request) error {
	if err := r.lookUp(q); err != nil {
		return err
	}
	clauses := q.clauses
	r.most, r.wishes = make([]float64, clauses), q.wishes == clauses
	if clauses == 1 { // the only clause is the whole query
		clauses = 0
	}
	for i, p := range r.x.pieces {
		r.lexicalIn(i, r.scores[r.x.from[i]:][:len(p.docs)], clauses)
	}
	return nil
}

// lexicalIn adds up the scores of one piece. Its output stays in the second-level cache meanwhile.
func (r *ranking) lexicalIn(number int, scores []float64, clauses int) {
	sums := make([][]float64, clauses) // by clause and document
	for c := range sums {
		sums[c] = borrow(r.x.end, len(scores))
	}
	words := make([][]float64, r.concepts) // by concept and document: the score of its words
	defer func() {
		giveBack(sums...)
		giveBack(words...)
	}()
	for _, t := range r.terms {
		for _, l := range t.lists {
			if l.piece != number {
				continue
			}
			var adds, exceeds []float64
			if t.addsTo >= 0 {
				if words[t.addsTo] == nil {
					words[t.addsTo] = borrow(r.x.end, len(scores))
				}
				adds = words[t.addsTo]
			}
			if t.exceeds >= 0 {
				exceeds = words[t.exceeds]
			}
			addUp(l.postings, t.weight, scores, adds, exceeds)
			if clauses == 0 {
				continue
			}
			for _, c := range t.clauses {
				addUp(l.postings, t.weight, sums[c], nil, exceeds)
			}
		}
	}
	if clauses == 0 {
		for doc := range scores {
			scores[doc] *= 1 + weightClauses
		}
	} else {
		for doc := range scores {
			var squares float64
			for c, sum := range sums {
				if squares += sum[doc] * sum[doc]; sum[doc] > r.most[c] && r.mayFind(number, doc) {
					r.most[c] = sum[doc]
				}
			}
			scores[doc] += weightClauses * math.Sqrt(squares)
		}
	}
	if p := r.x.pieces[number]; p.gone != nil {
		for gone := p.gone.Iterator(); gone.HasNext(); {
			scores[gone.Next()] = 0
		}
	}
}

// addUp adds the score of a term in each document. exceeds, if not nil, is the score that a document already has;
// more, if not nil, also gets the whole score.
func addUp(postings []posting, weight float64, scores, more, exceeds []float64) {
	switch {
	case exceeds != nil:
		for _, at := range postings {
			doc := at.doc()
			if score := weight*saturated[at.freq()] - exceeds[doc]; score > 0 {
				scores[doc] += score
			}
		}
	case more != nil:
		for _, at := range postings {
			score := weight * saturated[at.freq()]
			scores[at.doc()] += score
			more[at.doc()] += score
		}
	default:
		for _, at := range postings {
			scores[at.doc()] += weight * saturated[at.freq()]
		}
	}
}

// eachTerm calls do with the score of each term of the query in a document that has it.
func (r *ranking) eachTerm(doc int, do func(t term, score float64)) {
	words := make([]float64, r.concepts) // as in lexicalIn
	for _, t := range r.terms {
		score := t.weight * saturated[r.x.freq(t.matches, doc)]
		if t.addsTo >= 0 {
			words[t.addsTo] += score
		}
		if t.exceeds >= 0 {
			score -= words[t.exceeds]
		}
		if score > 0 {
			do(t, score)
		}
	}
}

// mayFind reports whether a document of a piece is in the index and may be found.
func (r *ranking) mayFind(piece, number int) bool {
	return r.x.pieces[piece].docs[number] != nil && r.allowed.allows(r.x.from[piece]+number)
}
