package index

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/blevesearch/vellum/levenshtein"
)

// Bounds of misspelt words.
const (
	minMisspelt  = 5   // letters; of four, one may be missing or two have changed places
	maxMisspelt  = 24  // bytes
	mostMisspelt = 4   // words of a query
	manyTools    = 100 // tools of a catalogue from which two must have the word that is meant
)

// nearby builds automata for words that are one letter, or two that changed places, away.
var nearby = sync.OnceValues(func() (*levenshtein.LevenshteinAutomatonBuilder, error) {
	return levenshtein.NewLevenshteinAutomatonBuilder(1, true)
})

// correct replaces misspelt words of a query: a word that no document has means the one most used of those that
// begin alike.
func (r *ranking) correct(q *request, a *analyzer) error {
	left := mostMisspelt
	for _, term := range slices.Sorted(maps.Keys(q.terms)) {
		word, is := strings.CutPrefix(term, written)
		misspelt := stem(word)
		if !is || left == 0 || q.instead[misspelt] != nil || q.concepts[misspelt] != "" {
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
		meant, err := r.meantBy(word)
		if err != nil {
			return err
		}
		if meant == "" {
			continue
		}
		clauses := q.terms[term]
		delete(q.terms, term)
		delete(q.terms, misspelt)
		for _, w := range a.words(meant) {
			for _, clause := range clauses {
				q.addWord(a, w, clause)
			}
		}
	}
	return nil
}

// known reports whether a document that may be found has one of the terms.
func (r *ranking) known(terms ...string) (bool, error) {
	for _, term := range terms {
		if n, err := r.having(term); err != nil || n > 0 {
			return true, err
		}
	}
	return false, nil
}

// having returns how many documents that may be found have a term.
func (r *ranking) having(term string) (n int, err error) {
	f, err := r.x.find(r.grouped(fieldTerms), term)
	if r.allowed == nil {
		return f.count, err
	}
	r.x.eachMatch(f, func(doc, _ int) {
		if r.allowed.allows(doc) {
			n++
		}
	})
	return n, err
}

// meantBy returns the word most used among those that a misspelt one may mean; "" for none.
func (r *ranking) meantBy(word string) (string, error) {
	if len(word) < minMisspelt-1 || len(word) > maxMisspelt || strings.ContainsAny(word, "0123456789") {
		return "", nil
	}
	builder, err := nearby()
	if err != nil {
		return "", err
	}
	accepts, err := builder.BuildDfa(written+word, 1)
	if err != nil {
		return "", err
	}
	begin := written + word[:1]
	best, used := "", min(1, r.total/manyTools)
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
				if len(word) < minMisspelt && len(near) <= len(word) && !anagrams(word, near) {
					continue
				}
				n, err := r.having(entry.Term)
				if err != nil {
					return "", err
				}
				if n > used || n == used && near < best {
					best, used = strings.Clone(near), n
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
