package index

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/blevesearch/vellum"
	"github.com/blevesearch/vellum/levenshtein"
)

// Bounds of misspelt words.
const (
	minMisspelt  = 5  // letters; of four letters two may have changed places
	maxMisspelt  = 24 // bytes
	mostMisspelt = 4  // words of a query
	leastUsed    = 2  // documents with the word that is meant
)

// nearby builds automata for words that are one letter, or two that changed places, away.
var nearby = sync.OnceValues(func() (*levenshtein.LevenshteinAutomatonBuilder, error) {
	return levenshtein.NewLevenshteinAutomatonBuilder(1, true)
})

// correct adds to a query the words that misspelt ones mean: a word that no document has means the one most used
// of those that begin alike.
func (r *ranking) correct(q *request, a *analyzer) error {
	builder, err := nearby()
	if err != nil {
		return err
	}
	left := mostMisspelt
	for _, term := range slices.Sorted(maps.Keys(q.terms)) {
		word, is := strings.CutPrefix(term, written)
		if !is || left == 0 || len(word) < minMisspelt-1 || len(word) > maxMisspelt || strings.ContainsAny(word, "0123456789") {
			continue
		}
		misspelt := stem(word)
		if q.instead[misspelt] != nil || q.concepts[misspelt] != "" {
			continue
		}
		known, err := r.known(misspelt, term)
		if err != nil {
			return err
		}
		if known {
			continue
		}
		left--
		automaton, err := builder.BuildDfa(term, 1)
		if err != nil {
			return err
		}
		meant, err := r.nearest(word, automaton)
		if err != nil {
			return err
		}
		if meant != "" {
			clauses := q.terms[term]
			delete(q.terms, term)
			delete(q.terms, misspelt)
			for _, w := range a.words(meant) {
				for _, clause := range clauses {
					q.addWord(a, w, clause)
				}
			}
		}
	}
	return nil
}

// known reports whether a searched document has one of the terms.
func (r *ranking) known(terms ...string) (bool, error) {
	for _, term := range terms {
		if f, err := r.x.find(r.grouped(fieldTerms), term); err != nil || f.count > 0 {
			return true, err
		}
	}
	return false, nil
}

// nearest returns the word most used among those that the automaton accepts and that begin like word; "" for none.
func (r *ranking) nearest(word string, accepts vellum.Automaton) (string, error) {
	begin := written + word[:1]
	best, used := "", leastUsed-1
	for _, field := range r.grouped(fieldTerms) {
		for _, p := range r.x.pieces {
			dictionary, err := p.Dictionary(field)
			if err != nil {
				return "", err
			}
			for at := dictionary.AutomatonIterator(accepts, []byte(begin), []byte(begin+"\xff")); ; {
				entry, err := at.Next()
				if err != nil {
					return "", err
				}
				if entry == nil {
					break
				}
				near := strings.TrimPrefix(entry.Term, written)
				if len(word) < minMisspelt && !anagrams(word, near) {
					continue
				}
				f, err := r.x.find(r.grouped(fieldTerms), entry.Term)
				if err != nil {
					return "", err
				}
				if f.count > used || f.count == used && near < best {
					best, used = strings.Clone(near), f.count
				}
			}
		}
	}
	return best, nil
}

func anagrams(a, b string) bool {
	x, y := []byte(a), []byte(b)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}
