package index

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"toolfinch/internal/rawjson"
)

// signs are measures of an answer: how far its first hit stands out, and how far answer and query share words.
// Shares are weighted by rarity, from 0 to 1.
type signs struct {
	margin  float64 // logarithm of 1 plus the lead of the first hit over the next ones
	spoken  float64 // share of the requested things that one of the first hits mentions
	unknown float64 // share of the requested things that no document mentions
	named   float64 // share of the first hit's name that the query contains
	meaning float64 // best cosine
}

// logistic turns signs into the probability that an answer has the right tool. The weights are fitted, with equal
// weight for each annotated set, to queries as they are and to the same queries without their relevant tools in the
// catalogue: a user asks for missing tools as often as for present ones.
type logistic struct {
	signs // the weight of each sign
	bias  float64
}

func (l logistic) of(s signs) float64 {
	z := l.bias + l.margin*s.margin + l.spoken*s.spoken + l.unknown*s.unknown + l.named*s.named + l.meaning*s.meaning
	return 1 / (1 + math.Exp(-z))
}

var (
	confidenceHybrid = logistic{signs{margin: 1.652, spoken: 2.476, unknown: 3.292, named: 1.013, meaning: 1.668}, -7.595}
	confidenceWords  = logistic{signs{margin: 1.376, spoken: 2.727, unknown: 2.817, named: 1.123}, -5.599}
)

const (
	rivals   = 20 // number of hits that the first hit is compared with
	speakers = 5  // number of first hits that are searched for the requested things
)

// confidence returns the probability that one of the candidates is right. It is 1 if the query is a tool's name.
func (r *ranking) confidence(best []candidate, q request) (float64, error) {
	if len(best) == 0 {
		return 0, nil
	}
	if best[0].exact > 0 {
		return 1, nil
	}
	s := signs{}
	var next float64
	for i, c := range best[:min(1+rivals, len(best))] {
		if i > 0 {
			next += c.Score
		}
		if r.similar != nil && r.similar.knows(r.x.slotOf(c.doc)) {
			s.meaning = max(s.meaning, r.similar.cosine(r.x.slotOf(c.doc)))
		}
	}
	next /= float64(max(1, min(rivals, r.total-1)))
	// Words are rarer in a large catalogue, so scores are higher. Scores of a small catalogue are adapted to the
	// catalogues that the weights were fitted to.
	small := math.Pow(max(1, rarest(leastSeen)/rarest(r.total)), 0.25)
	s.margin = math.Log1p(small * max(0, best[0].Score-next))
	var docs []int
	for _, c := range best[:min(speakers, len(best))] {
		docs = append(docs, c.doc)
	}
	if err := r.things(q, docs, &s); err != nil {
		return 0, err
	}
	if err := r.named(q, best[0].doc, &s); err != nil {
		return 0, err
	}
	weights := confidenceWords
	if r.similar != nil {
		weights = confidenceHybrid
	}
	sure := weights.of(s)
	if s.meaning < similarFrom && s.unknown >= unknownFrom {
		sure = min(sure, surenessOfUnknown)
	}
	return sure, nil
}

// An answer to a query is wrong if no tool mentions the requested things, unless its meaning is similar. In a small
// catalogue verbs alone ("open an issue" to files.open_file) score high.
const (
	unknownFrom       = 0.9
	similarFrom       = 0.4 // cosine
	surenessOfUnknown = 0.1
)

// things measures the nouns of a query: the share that one of these documents mentions, and the share that none
// does. Verbs that fit any object do not count.
func (r *ranking) things(q request, docs []int, s *signs) error {
	var all, spoken, unknown float64
	for _, term := range slices.Sorted(maps.Keys(q.terms)) { // sums in the same order are equal
		if strings.HasPrefix(term, written) || isConcept(term) || verbs()[term] || q.meant[term] {
			continue
		}
		rarity, here := 0.0, false
		for _, term := range append([]string{term, q.concepts[term]}, q.instead[term]...) {
			known, found := r.rarities[term]
			if !found || here {
				continue
			}
			rarity = cmp.Or(rarity, known)
			has, err := r.has(docs, term)
			if err != nil {
				return err
			}
			here = has
		}
		switch {
		case rarity == 0:
			rarity = rarest(r.total)
			unknown += rarity
		case here:
			spoken += rarity
		}
		all += rarity
	}
	if all > 0 {
		s.spoken, s.unknown = spoken/all, unknown/all
	}
	return nil
}

// named returns the share of the words of a document's name that the query contains. Servers choose names, so it
// has bounds.
func (r *ranking) named(q request, doc int, s *signs) (err error) {
	asked := map[string]bool{}
	for _, concept := range q.concepts {
		asked[concept] = true
	}
	var all, named float64
	a := newAnalyzer()
	a.each(rawjson.Head(r.x.at(doc).Def.ID.Name, 4*maxWord), func(w word) {
		stem := a.terms[w.stem]
		rarity, known := r.rarities[stem]
		if !known && err == nil {
			rarity, err = r.rarity(stem)
		}
		all += rarity
		if _, is := q.terms[stem]; is || w.concept >= 0 && asked[a.terms[w.concept]] {
			named += rarity
		}
	})
	if all > 0 {
		s.named = named / all
	}
	return err
}

// leastSeen is the number of tools of the smallest annotated set.
const leastSeen = 199
