package index

import (
	"maps"
	"math"
	"slices"
	"strings"
)

// logistic turns what is seen of an answer into the probability that it holds
// what was asked for. The weights are fitted, with equal weight for each
// annotated set, to queries as they are and to the same queries with their
// relevant tools taken out of the catalogue; so the probability is that of a
// user who asks for missing tools as often as for present ones.
type logistic struct {
	words   float64 // of the best score by words, over the number of stems asked for
	meaning float64 // of the best cosine
	margin  float64 // of how far the first hit's score stands out from the next ones'
	bias    float64
}

var (
	confidenceHybrid = logistic{words: .164, meaning: .655, margin: .125, bias: -2.489}
	confidenceWords  = logistic{words: .275, margin: .142, bias: -1.905}
)

// rivals is how many hits the first one is compared with.
const rivals = 20

// confidence is the probability that one of the candidates is what was asked
// for. It is 1 where the query is a tool's name.
func (r *ranking) confidence(best []candidate, q request, others int) float64 {
	if len(best) == 0 {
		return 0
	}
	if best[0].exact > 0 {
		return 1
	}
	stems := 0
	for term := range q.terms {
		if !strings.HasPrefix(term, written) && !isConcept(term) {
			stems++
		}
	}
	var words, meaning, next float64
	for i, c := range best[:min(1+rivals, len(best))] {
		if i > 0 {
			next += c.Score
		}
		words = max(words, at(r.words, c.doc))
		if r.similar != nil && r.similar.knows(r.slots[c.doc]) {
			meaning = max(meaning, r.similar.cosine(r.slots[c.doc]))
		}
	}
	next /= float64(max(1, min(rivals, others)))
	// Words are rarer in a large catalogue, so scores are higher; those of a
	// small one are brought to what the weights have seen.
	small := max(1, rarest(leastSeen)/rarest(others+1))
	words *= small
	weights, margin := confidenceWords, small*(best[0].Score-next)
	if r.similar != nil {
		weights, margin = confidenceHybrid, best[0].Score-next
	}
	z := weights.bias + weights.words*words/float64(max(1, stems)) +
		weights.meaning*meaning + weights.margin*margin
	sure := 1 / (1 + math.Exp(-z))
	if meaning < similarFrom && r.unknown(q) >= unknownFrom {
		sure = min(sure, surenessOfUnknown)
	}
	return sure
}

// An answer to a query of whose things no tool speaks is not what was asked for, unless it
// means something similar. In a small catalogue verbs alone ("open an issue" to files.open_file) look like much.
const (
	unknownFrom       = 0.9
	similarFrom       = 0.4 // cosine
	surenessOfUnknown = 0.1
)

// unknown is the share, by rarity, of the things a query asks for that no document speaks
// of. Verbs are no things.
func (r *ranking) unknown(q request) float64 {
	var all, missing float64
	for _, term := range slices.Sorted(maps.Keys(q.terms)) { // sums in the same order are the same
		if strings.HasPrefix(term, written) || isConcept(term) || verbs()[term] {
			continue
		}
		rarity, found := r.rarities[term]
		if !found {
			rarity, found = r.rarities[q.concepts[term]]
		}
		if !found {
			rarity = rarest(r.total)
			missing += rarity
		}
		all += rarity
	}
	if all == 0 {
		return 0
	}
	return missing / all
}

// leastSeen is the number of tools of the smallest set the weights were fitted to.
const leastSeen = 199

// rarest is the weight of a word that one of n tools has.
func rarest(n int) float64 { return rarity(n, 1) }

// rarity is the weight of a word that found of n documents have.
func rarity(n, found int) float64 {
	return math.Log(1 + (float64(n)-float64(found)+0.5)/(float64(found)+0.5))
}
