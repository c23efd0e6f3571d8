package index

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/tool"
)

// exhaustive finds by words and by vectors: by the formulas over all documents, with nothing
// that makes them fast. It knows no names, deprecation and twins.
type exhaustive struct {
	docs    map[string]Document
	counts  map[string]map[string]int // by document and term
	having  map[string]int            // documents, by term
	vectors map[string][]float32      // by document
}

func newExhaustive(docs map[string]Document) *exhaustive {
	e := &exhaustive{docs: docs, counts: map[string]map[string]int{}, having: map[string]int{}}
	for name, d := range docs {
		e.counts[name] = map[string]int{}
		for _, c := range newAnalyzer().counts(d) {
			e.counts[name][c.term] = c.times
			e.having[c.term]++
		}
	}
	return e
}

func (e *exhaustive) search(q Query, among map[string]bool) []candidate {
	asked := parse(newAnalyzer(), q.Text)
	var all []candidate
	serves, weight := map[string][]float64{}, 0.0
	most := make([]float64, asked.clauses)
	for name, counts := range e.counts {
		if among != nil && !among[name] { // measured against nothing that may be found
			continue
		}
		var sum float64
		clauses := make([]float64, asked.clauses)
		words := map[string]float64{} // by concept
		for _, term := range slices.Sorted(maps.Keys(asked.terms)) {
			weight := 1.0
			if strings.HasPrefix(term, written) {
				weight = weightWritten
			} else if isConcept(term) {
				weight = weightConcept
			}
			times := float64(counts[term]) / scale
			score := weight * rarity(len(e.counts), e.having[term]) * times / (times + saturation)
			words[asked.concepts[term]] += score
			if score -= words[term]; score <= 0 {
				continue
			}
			sum += score
			for _, c := range asked.terms[term] {
				clauses[c] += score
			}
		}
		var squares float64
		for n, c := range clauses {
			squares += c * c
			most[n] = max(most[n], c)
		}
		serves[name] = clauses
		score := sum + weightClauses*math.Sqrt(squares)
		if q.Vectors != nil {
			whole, best := cosine64(q.Vectors[0], e.vectors[name]), math.Inf(-1)
			for _, v := range q.Vectors[1:] {
				best = max(best, cosine64(v, e.vectors[name]))
			}
			if len(q.Vectors) == 1 {
				best = whole
			}
			score += weightVectors * ((1-weightClause)*whole + weightClause*best)
		}
		all = append(all, candidate{Hit: Hit{Name: name, Score: score}})
	}
	var top float64
	for _, c := range all {
		top = max(top, c.Score)
	}
	found := all[:0]
	for _, c := range all {
		if c.Score > 0 {
			c.Score += weightPrior * q.Prior[c.Name] * top
		}
		c.Score = round(c.Score)
		if c.Score > 0 && (q.Server == "" || e.docs[c.Name].Def.ID.Server == q.Server) {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, byScore)
	from := saidFrom
	switch {
	case len(q.Vectors) > 1:
		from, weight = coveredFrom, weightCoverage
		for name := range serves {
			serves[name] = nil
			for _, clause := range q.Vectors[1:] {
				serves[name] = append(serves[name], cosine64(clause, e.vectors[name]))
			}
		}
	case q.Vectors == nil && asked.clauses > 1 && len(found) > 0:
		weight = weightSaid
		if asked.wishes == asked.clauses {
			weight = weightWished
		}
		weight *= found[0].Score / float64(asked.clauses)
		for _, said := range serves {
			for n := range said {
				said[n] /= most[n]
			}
		}
	default:
		return found
	}
	return spread(found[:min(len(found), max(2*q.Limit+10, 1+rivals))], serves, slices.Repeat([]float64{from}, asked.clauses), weight)
}

// spread is the order of candidates for a query of several clauses. It ends where the next one
// is hardly better than another, and whatever is less exact may take that.
func spread(all []candidate, serves map[string][]float64, covered []float64, weight float64) (hits []candidate) {
	bonus := func(c candidate) (sum float64) {
		for n, much := range serves[c.Name] {
			sum += weight * max(0, much-covered[n])
		}
		return sum
	}
	for len(all) > 0 {
		next := slices.Clone(all)
		for i, c := range all {
			next[i].Score = round(c.Score + bonus(c))
		}
		slices.SortFunc(next, byScore)
		if len(next) > 1 && next[0].Score-next[1].Score < 4*weightVectors*exactly {
			break
		}
		hits = append(hits, next[0])
		for n, much := range serves[next[0].Name] {
			covered[n] = max(covered[n], much)
		}
		all = slices.DeleteFunc(all, func(c candidate) bool { return c.Name == next[0].Name })
	}
	return hits
}

// vocabulary is what random documents and queries are made of: words with concepts, words of one
// stem, identifiers, and others.
var vocabulary = append(strings.Fields(`delete remove create creating file files issue issues ticket currency dollar euro convert
	getURLs base64 read reading 天気予報 tool server send message mail email`), fewWords("word", 60)...)

func fewWords(stem string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint(stem, i)
	}
	return all
}

// kinds of random documents: most are tools.
var kinds = []tool.Kind{tool.KindTool, tool.KindPrompt}

// Whatever the documents are and however they came, a search finds what the formulas over all of them
// say, with their scores.
func TestASearchPassesOverNothing(t *testing.T) {
	for seed := range uint64(4) {
		random := rand.New(rand.NewPCG(seed, 1))
		text := func(words int) string {
			var b strings.Builder
			for range words {
				word := vocabulary[int(float64(len(vocabulary))*math.Pow(random.Float64(), 2))] // some are common
				b.WriteString(word + []string{" ", " ", " ", ", ", " and "}[random.IntN(5)])
			}
			return b.String()
		}
		x := build(t)
		docs := map[string]Document{}
		for batch := range 12 {
			var changed []Document
			var gone []string
			for n := range 1 + random.IntN(80) {
				// Names that no query has, so that none is an exact match.
				kind := kinds[random.IntN(8)*random.IntN(2)/4]
				def, err := tool.ParseKind(kind, fmt.Sprint("srv", random.IntN(4)), fmt.Appendf(nil, `{"name":"x%dq%dz","description":%q}`, batch*random.IntN(2), n, text(1+random.IntN(30))))
				if err != nil {
					t.Fatal(err)
				}
				changed = append(changed, Document{Name: Key(kind, def.ID.Server+"_"+def.ID.Name), Def: def})
			}
			for _, name := range slices.Sorted(maps.Keys(docs)) { // in one order, so that a seed stands for one case
				if random.IntN(12) == 0 {
					gone = append(gone, name)
				}
			}
			must.Do(t, x.Apply(t.Context(), changed, gone))
			for _, name := range gone {
				delete(docs, name)
			}
			for _, d := range changed {
				docs[d.Name] = d
			}
		}
		vectors := map[string][]float32{}
		for _, name := range slices.Sorted(maps.Keys(docs)) {
			vectors[name] = randomUnit(random, 64)
		}
		// Words are as rare as they are among the documents of the kinds that are looked for.
		tools := maps.Clone(docs)
		maps.DeleteFunc(tools, func(_ string, d Document) bool { return d.Def.ID.Kind != tool.KindTool })
		prompts := maps.Clone(docs)
		maps.DeleteFunc(prompts, func(_ string, d Document) bool { return d.Def.ID.Kind == tool.KindTool })
		looked := []struct {
			kinds     []tool.Kind
			reference *exhaustive
		}{{nil, newExhaustive(tools)}, {kinds[1:], newExhaustive(prompts)}, {kinds, newExhaustive(docs)}}
		checkFound := func(q Query, slip float64) {
			t.Helper()
			in := looked[max(0, random.IntN(5)-2)]
			q.Limit, q.Kinds, in.reference.vectors = 12, in.kinds, vectors
			var among map[string]bool
			switch random.IntN(5) {
			case 0:
				q.Server = fmt.Sprint("srv", random.IntN(4))
			case 1:
				among = map[string]bool{}
				for _, name := range slices.Sorted(maps.Keys(docs)) {
					if random.IntN(3) == 0 {
						among[name] = true
					}
				}
				q.Among = x.snapshot().Subset(slices.Collect(maps.Keys(among)))
				fallthrough
			case 2:
				q.Prior = map[string]float64{}
				for _, name := range slices.Sorted(maps.Keys(tools)) {
					if random.IntN(9) == 0 {
						q.Prior[name] = random.Float64()
					}
				}
			}
			got, want := search(t, x, q), in.reference.search(q, among)
			scores := map[string]float64{}
			for _, c := range want {
				scores[c.Name] = c.Score
			}
			want = want[:min(q.Limit, len(want))]
			if len(clauses(q.Text)) > 1 {
				got = got[:min(len(got), len(want))]
			}
			// Meanings are compared at 16 bits: a score that is nearly 0 may be 0.
			for len(got) > len(want) && got[len(got)-1].Score <= slip {
				got = got[:len(got)-1]
			}
			for len(want) > len(got) && want[len(want)-1].Score <= slip {
				want = want[:len(want)-1]
			}
			if len(got) != len(want) {
				t.Fatalf("seed %d: %q finds %v, want %v", seed, q.Text, got, want)
			}
			for i, hit := range got {
				if math.Abs(hit.Score-want[i].Score) > slip || math.Abs(hit.Score-scores[hit.Name]) > slip || slip == 0 && hit.Name != want[i].Name {
					t.Fatalf("seed %d: %q finds %v in place %d, want %v", seed, q.Text, hit, i, want[i])
				}
			}
		}
		for range 60 {
			checkFound(Query{Text: text(1 + random.IntN(10))}, 0)
		}
		x.vectors.dim, x.vectors.held = 64, newCoded(64)
		putVectors(t, x, vectors)
		for n := range 120 {
			q := Query{Text: vocabulary[random.IntN(len(vocabulary))]}
			if n%2 == 0 {
				q.Text = text(1 + random.IntN(10))
			}
			for range QueryTexts(q.Text) {
				q.Vectors = append(q.Vectors, randomUnit(random, 64))
			}
			checkFound(q, 2*weightVectors*exactly)
		}
		if _, is := x.vectors.held.(*coded); !is {
			t.Errorf("vectors are held by %T", x.vectors.held)
		}
	}
}

// What is decoded stays within its bound, and is the same when it is decoded again.
func TestDecodedPostingsAreBounded(t *testing.T) {
	var docs []Document
	for i := range 40 {
		docs = append(docs, doc(t, "s", fmt.Sprint("tool", i), fmt.Sprint("Says something about thing", i)))
	}
	x := build(t, docs...)
	s := x.pieces[0].segment
	bound := decodedPerDoc*len(docs) + decodedMore
	for n := range 3 * bound / listOverhead {
		list, err := s.list(fieldTerms, fmt.Sprint("unknown", n))
		if err != nil || len(list) != 0 {
			t.Fatalf("list %v, error %v", list, err)
		}
		if s.decoded.size > bound || listOverhead*len(s.decoded.lists) > s.decoded.size {
			t.Fatalf("%d lists, which count as %d; the bound is %d", len(s.decoded.lists), s.decoded.size, bound)
		}
		if n%1000 > 0 {
			continue
		}
		if list, err := s.list(fieldTerms, "thing"); err != nil || len(list) != len(docs) {
			t.Fatalf("the word of all documents is in %d, error %v", len(list), err)
		}
	}
}

// A posting has room for the most that a definition can say a word.
func TestAPostingHasRoom(t *testing.T) {
	var most float64
	for _, p := range []textKind{partName, partTitle, partServer, partDescription, partAbout, partParameter, partExplanation, partURI} {
		// A word of n words in a part is counted n times, and twice in the length of the part.
		most += p.weight * p.length / (2 * p.slope)
	}
	if most*scale >= 1<<freqBits {
		t.Errorf("a word counts up to %v sixteenths, and a posting has room for %d", most*scale, 1<<freqBits)
	}
}
