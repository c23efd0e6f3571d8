package index

import (
	"slices"
	"strings"
)

// heard is a word of a query, also a stop word, or an address.
type heard struct{ word, stem, concept, address string }

func (h heard) is(said string) bool { return said == h.stem || said == h.concept || said == h.address }

// reads reports whether the word asks to show or find something.
func (h heard) reads() bool { return reading(h.word) || h.concept == conceptMark+"read" }

func reading(word string) bool {
	switch word {
	case "list", "search", "show", "get", "find", "look", "see", "what", "which", "who", "when", "where", "how":
		return true
	}
	return false
}

// maxHeard bounds the words and addresses of a clause that may be phrases.
const maxHeard = 64

// hear returns the words of a clause, and the clause with words for its addresses.
func (a *analyzer) hear(clause string) (all []heard, plain string) {
	var b strings.Builder
	for field := range strings.FieldsSeq(clause) {
		kind, instead := address(field)
		if kind != "" {
			field = instead
			if len(all) < maxHeard {
				all = append(all, heard{address: kind})
			}
		}
		b.WriteString(field + " ")
		for word := range strings.FieldsFuncSeq(field, func(r rune) bool { return !isWordRune(r) }) {
			if len(all) < maxHeard && len(word) <= maxWord {
				h := heard{word: strings.ToLower(word)}
				w := a.word(h.word)
				if h.stem = a.terms[w.stem]; w.concept >= 0 {
					h.concept = a.terms[w.concept]
				}
				all = append(all, h)
			}
		}
	}
	return all, b.String()
}

// eachPhrase calls do with each phrase that a clause says, and the words that say it. A word of a longer phrase says
// no phrase alone.
func eachPhrase(clause []heard, do func(p phrase, by []heard)) {
	used := make([]bool, len(clause))
	for i, h := range clause {
		for _, key := range []string{h.stem, h.concept, h.address} {
			for _, p := range phrases()[key] {
				at := p.in(clause[i:])
				if at == nil || len(at) == 1 && used[i] {
					continue
				}
				by := make([]heard, len(at))
				for n, k := range at {
					by[n] = clause[i+k]
					used[i+k] = used[i+k] || len(at) > 1 && h.address == ""
				}
				do(p, by)
			}
		}
	}
}

// in returns which words of a clause say the phrase, from the first on; nil if it is not said.
func (p phrase) in(clause []heard) (at []int) {
	for i, h := range clause {
		if h.is(p.said[len(at)]) {
			if at = append(at, i); len(at) == len(p.said) {
				return at
			}
		} else if i == 0 {
			return nil
		}
	}
	return nil
}

// interpreted returns a text for embedding: addresses, which mean nothing to a model, become the words for them.
func interpreted(text string) string {
	clause, plain := newAnalyzer().hear(text)
	if !slices.ContainsFunc(clause, func(h heard) bool { return h.address != "" }) {
		return text
	}
	eachPhrase(clause, func(p phrase, by []heard) {
		plain += strings.Join(p.means, " ") + " "
	})
	return strings.TrimSpace(plain)
}
