package index

import (
	"slices"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// Query asks for tools, prompts or resources. Text is natural language or a name, never a syntax.
type Query struct {
	Text   string // the first 16 KiB are read
	Server string // only this upstream's tools; "" for all
	Limit  int    // bound on the hits; below 1: none
	// Kinds are the kinds to search; nil for tools. Words are as rare as they are among tools if tools are
	// searched, and among prompts and resources if these are.
	Kinds []tool.Kind
	// Among, if set, restricts the hits to a part of the snapshot. The rest is removed before ranking, but words
	// count as rare as they are in the whole snapshot.
	Among *Subset

	// Vectors are the vectors of QueryTexts(Text), in order. Without them words decide alone.
	Vectors [][]float32
	// Prior says how much earlier use raises each tool, by exposed name, from 0 to 1. It raises found tools by at
	// most 15 % of the best score.
	Prior map[string]float64

	Explain bool // explain each hit's score
	// Place, if set, is the name of a document to rank and explain, however low it ranks.
	Place string
}

// Result is the answer to a Query.
type Result struct {
	Hits []Hit // best first
	// Vectors reports whether vectors took part in the ranking.
	Vectors bool
	// Confidence is the probability, from 0 to 1, that a hit is the right tool and not just the nearest.
	Confidence float64
	Place      Place // of Query.Place
}

// Hit is a found document.
type Hit struct {
	Name  string  // of the document; a tool's is its exposed name
	Score float64 // above 0; comparable within one answer only
	Why   *Explanation
}

// Place is where a search ranks one document.
type Place struct {
	Hit
	Rank int // 1 for the first hit; 0: not found
}

// QueryTexts returns the texts of a query that are embedded: the whole and, if there are several, its clauses.
func QueryTexts(text string) []string {
	text = rawjson.Head(text, maxText)
	texts := []string{interpreted(text)}
	if parts := clauses(text); len(parts) > 1 {
		for _, part := range parts {
			texts = append(texts, interpreted(part))
		}
	}
	return texts
}

// Terms returns the stems of the telling words of a query, each once, in order.
func Terms(text string) []string {
	var out, others []string // others: stems of request words
	a := newAnalyzer()
	a.each(rawjson.Head(text, maxText), func(w word) {
		to := &out
		if w.request {
			to = &others
		}
		if stem := a.terms[w.stem]; !slices.Contains(*to, stem) {
			*to = append(*to, stem)
		}
	})
	if len(out) == 0 {
		return others
	}
	return out
}

// request has the terms of a query.
type request struct {
	clauses  int
	reads    bool                // it asks to show or find something
	wishes   int                 // clauses that begin with a verb
	terms    map[string][]int    // the clauses each term occurs in
	concepts map[string]string   // by stem
	meant    map[string]bool     // terms that only phrases add
	instead  map[string][]string // by stem: terms that a phrase says instead
}

// parse analyses a query. Request words count only if there are no other words.
func parse(a *analyzer, text string) request {
	out := request{terms: map[string][]int{}, concepts: map[string]string{}, meant: map[string]bool{}, instead: map[string][]string{}}
	var plain []string // the clauses, with words for addresses
	for _, clause := range clauses(text) {
		n := out.clauses
		said, instead := a.hear(clause)
		out.reads = out.reads || slices.ContainsFunc(said, heard.reads)
		if len(said) > 0 && (verbs()[said[0].stem] || requestWords[said[0].word]) {
			out.wishes++
		}
		plain = append(plain, instead)
		a.each(instead, func(w word) {
			if w.request {
				return
			}
			out.addWord(a, w, n)
		})
		out.interpret(a, said, n)
		out.clauses++
	}
	if len(out.terms) == 0 {
		out.clauses = 1
		a.each(strings.Join(plain, " "), func(w word) {
			out.addWord(a, w, 0)
		})
	}
	return out
}

// interpret adds to a query what a clause means.
func (r *request) interpret(a *analyzer, clause []heard, n int) {
	eachPhrase(clause, func(p phrase, by []heard) {
		r.mean(a, p, n)
		r.reads = r.reads || slices.ContainsFunc(p.means, reading)
		for _, h := range by {
			switch {
			case p.stead:
				for _, w := range a.words(h.word) {
					delete(r.terms, a.terms[w.stem])
					delete(r.terms, a.terms[w.written])
				}
			case len(by) == 1 && h.stem != "":
				for _, word := range p.means {
					r.instead[h.stem] = append(r.instead[h.stem], stem(word))
				}
			}
		}
	})
}

// mean adds the words that a phrase means. What the query says itself, or what stands in its place, counts as said.
func (r *request) mean(a *analyzer, p phrase, clause int) {
	for _, w := range a.words(strings.Join(p.means, " ")) {
		for _, id := range []int{w.stem, w.written, w.concept} {
			if id < 0 {
				continue
			}
			if term := a.terms[id]; r.terms[term] == nil && !p.stead {
				r.meant[term] = true
			}
		}
		r.addTerms(a, w, clause)
	}
}

// addWord adds a word that the query says.
func (r request) addWord(a *analyzer, w word, clause int) {
	delete(r.meant, a.terms[w.stem])
	delete(r.meant, a.terms[w.written])
	r.addTerms(a, w, clause)
}

func (r request) addTerms(a *analyzer, w word, clause int) {
	r.add(a.terms[w.stem], clause)
	r.add(a.terms[w.written], clause)
	if w.concept >= 0 {
		r.concepts[a.terms[w.stem]] = a.terms[w.concept]
		r.add(a.terms[w.concept], clause)
	}
}

func (r request) add(term string, clause int) {
	in, ok := r.terms[term]
	if !ok && len(r.terms) >= maxTerms || slices.Contains(in, clause) {
		return
	}
	r.terms[term] = append(in, clause)
}

// clauses cuts a query into its clauses: people ask for several things at once, and want a tool for each.
func clauses(text string) []string {
	var out []string
	var clause []string
	end := func() {
		if len(clause) > 1 && len(out) < maxClauses-1 {
			out = append(out, strings.Join(clause, " "))
			clause = nil
		}
	}
	for _, word := range strings.Fields(text) {
		switch strings.ToLower(word) {
		case "and", "then", "also":
			end()
			continue
		}
		clause = append(clause, word)
		if strings.ContainsRune(".,;:!?", rune(word[len(word)-1])) {
			end()
		}
	}
	if len(clause) > 0 {
		out = append(out, strings.Join(clause, " "))
	}
	return out
}

// Subset is an immutable set of documents of one Snapshot.
type Subset struct{ has []bool } // by number

// allows reports whether a document may be found.
func (s *Subset) allows(doc int) bool { return s == nil || s.has[doc] }
