package index

import (
	"context"
	"math"
	"slices"
	"sync"

	"toolfinch/tool"
)

// ranking is one search. Documents are numbered as in the snapshot.
type ranking struct {
	ctx      context.Context
	x        *Snapshot
	groups   []string // of the searched documents
	allowed  *Subset  // the documents that may be found; nil: all
	total    int      // number of documents in groups
	terms    []term
	wishes   bool               // every clause begins with a verb
	most     []float64          // by clause, if there are several: the best score of a document by its words
	concepts int                // in terms
	rarities map[string]float64 // of the query's terms that documents have

	scores    []float64    // by document; with vectors, inexact by slack
	slack     float64      // 0 without vectors
	exactDocs map[int]bool // documents with an exact score
	old       matches      // deprecated documents
	// Documents that destroy, or change something, unless the query wants it.
	destroying, changing matches
	levels               map[int]int   // of exact matches, by document
	similar              *similarities // nil without vectors
	words                []float64     // scores by words alone; nil if not needed
	similarityPerPoint   float64       // estimated similarity of documents without a vector, for each

	// Scores that were added, for explanations.
	priors, lifts map[int]float64 // by document
	spreads       map[string]added
}

// added is the score that a hit gained or lost by its rank.
type added struct{ coverage, twins float64 }

// among restricts the search to the groups of these kinds.
func (r *ranking) among(kinds []tool.Kind) error {
	if kinds == nil {
		r.groups = []string{groupTools}
	}
	for _, kind := range kinds {
		if group := groupOf(kind); !slices.Contains(r.groups, group) {
			r.groups = append(r.groups, group)
		}
	}
	slices.Sort(r.groups)
	found, err := r.x.find(r.grouped(fieldGroup), groupTerm)
	r.total = found.count
	return err
}

// grouped returns the fields of this name in the searched groups.
func (r *ranking) grouped(field string) []string {
	fields := make([]string, len(r.groups))
	for i, group := range r.groups {
		fields[i] = field + group
	}
	return fields
}

// has reports whether one of the documents has a term.
func (r *ranking) has(docs []int, term string) (bool, error) {
	f, err := r.x.find(r.grouped(fieldTerms), term)
	return slices.ContainsFunc(docs, func(doc int) bool { return r.x.freq(f, doc) > 0 }), err
}

// rarity returns the rarity of a term.
func (r *ranking) rarity(term string) (float64, error) {
	f, err := r.x.find(r.grouped(fieldTerms), term)
	return rarity(r.total, f.count), err
}

// scratch pools slices as long as the index has documents; a search needs several.
var scratch sync.Pool

// room returns an empty slice with room for n numbers.
func room(n int) []float64 {
	if b, ok := scratch.Get().(*[]float64); ok && cap(*b) >= n {
		return (*b)[:0]
	}
	return make([]float64, 0, n)
}

// borrow returns n zeros with room for more.
func borrow(more, n int) []float64 {
	zeros := room(more)[:n]
	clear(zeros)
	return zeros
}

func giveBack(all ...[]float64) {
	for _, b := range all {
		if cap(b) > 0 {
			scratch.Put(&b)
		}
	}
}

// term is a term of a query.
type term struct {
	matches
	text    string
	clauses []int   // clauses with the term
	weight  float64 // weight in a document that repeats it endlessly
	// The score of a concept's words is subtracted from the concept's: only the excess counts. Both are -1 for
	// none.
	addsTo, exceeds int // number of a concept in the query
}

// rarity returns the weight of a word that found of n documents have.
func rarity(n, found int) float64 {
	return math.Log(1 + (float64(n)-float64(found)+0.5)/(float64(found)+0.5))
}

// rarest returns the weight of a word that one of n tools has.
func rarest(n int) float64 { return rarity(n, 1) }

func (r *ranking) isOld(doc int) bool { return r.x.freq(r.old, doc) > 0 }

// isUnwanted reports whether a document does what the query does not ask for.
func (r *ranking) isUnwanted(doc int) bool {
	return r.x.freq(r.destroying, doc) > 0 || r.x.freq(r.changing, doc) > 0
}
