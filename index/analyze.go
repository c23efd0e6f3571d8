package index

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/blevesearch/snowballstem"
	"github.com/blevesearch/snowballstem/english"
	"golang.org/x/text/unicode/norm"
)

// maxWord bounds a word in bytes: what is longer is data, not language.
const maxWord = 64

// Every word is indexed by its stem and, under this mark, as it was written:
// the stem finds "issues" for "issue", the written form ranks an exact word
// above its relatives.
const written = "="

// stopWords say nothing about a tool; they are neither indexed nor asked for.
var stopWords = set(`a about above after again against all am an and any are as at be because been before
	being below between both but by cannot could did didn do does doesn doing don down during each few for
	from further had has have having he her here hers herself him himself his how i if in into is isn it its
	itself just ll me more most my myself no nor not now of off on once only or other ought our ours ourselves
	out over own same she should shouldn so some such than that the their theirs them themselves then there
	these they this those through to too under until up very was wasn we were what when where which while
	who whom why will with won would wouldn you your yours yourself yourselves`)

// requestWords are how people ask, not what for. A query drops them unless it
// has no other word; documents keep them.
var requestWords = set(`able also can find get give hello help hi interested know let like looking make may
	might need please provide shall show tell thank thanks us use using want`)

func set(words string) map[string]bool {
	m := make(map[string]bool)
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}

// analyzer turns text into terms, in documents and queries alike. It remembers
// what a word became, so it is for one goroutine and one batch of work. Terms
// are numbered, because counting in slices is several times faster than in maps.
type analyzer struct {
	known map[string][]termPair // by the word as it stands in the text
	ids   map[string]int        // numbers of terms
	terms []string              // terms by number

	times, total []float64 // scratch of counts, by number; zero between uses
}

// termPair is a word as numbers of terms: its stem, as written, and its concept,
// -1 for none.
type termPair struct{ stem, written, concept int }

func newAnalyzer() *analyzer {
	return &analyzer{known: make(map[string][]termPair), ids: make(map[string]int)}
}

// each calls emit with the terms of every word of text that is no stop word.
func (a *analyzer) each(text string, emit func(termPair)) {
	eachWhole(fold(text), func(word string) {
		pairs, ok := a.known[word]
		if !ok {
			word = strings.Clone(word) // else the map would keep the whole text alive
			pairs = a.analyze(word)
			a.known[word] = pairs
		}
		for _, pair := range pairs {
			emit(pair)
		}
	})
}

// analyze returns the terms of one word and of its parts.
func (a *analyzer) analyze(word string) []termPair {
	var pairs []termPair
	eachPart(word, func(part string) {
		if len(part) > maxWord || stopWords[part] {
			return
		}
		env := snowballstem.NewEnv(part)
		english.Stem(env)
		pair := termPair{a.number(env.Current()), a.number(written + part), -1}
		if concept, ok := concepts()[env.Current()]; ok {
			pair.concept = a.number(concept)
		}
		pairs = append(pairs, pair)
	})
	return pairs
}

func (a *analyzer) number(term string) int {
	id, ok := a.ids[term]
	if !ok {
		id, term = len(a.terms), strings.Clone(term)
		a.ids[term] = id
		a.terms = append(a.terms, term)
		a.times = append(a.times, 0)
		a.total = append(a.total, 0)
	}
	return id
}

// fold removes accents and the other marks that combine with a letter.
func fold(text string) string {
	if isASCII(text) {
		return text
	}
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, norm.NFKD.String(text))
}

func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// eachWhole calls emit with the words as they stand there.
func eachWhole(text string, emit func(string)) {
	for len(text) > 0 {
		start := strings.IndexFunc(text, isWordRune)
		if start < 0 {
			return
		}
		apostrophe := strings.HasSuffix(text[:start], "'") || strings.HasSuffix(text[:start], "’")
		text = text[start:]
		end := strings.IndexFunc(text, func(r rune) bool { return !isWordRune(r) })
		if end < 0 {
			end = len(text)
		}
		if word := text[:end]; !apostrophe || !contraction(word) {
			emit(word)
		}
		text = text[end:]
	}
}

func isWordRune(r rune) bool {
	if r < utf8.RuneSelf {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	}
	return unicode.IsLetter(r) || unicode.IsDigit(r)
}

// contraction reports whether word is what follows the apostrophe in "user's",
// "don't", "I'm", "I'd", "we'll", "we're", "I've".
func contraction(word string) bool {
	switch word {
	case "s", "t", "m", "d", "ll", "re", "ve":
		return true
	}
	return false
}

// eachPart calls emit with what a word is found by, in lower case. An identifier
// gives its parts, and itself in one piece: getURLs is geturls, get and urls; base64
// is base64, base and 64.
func eachPart(word string, emit func(string)) {
	parts := split(word)
	if len(parts) > 1 {
		emit(strings.ToLower(word))
	}
	for _, part := range parts {
		if ideographic(part) {
			eachBigram(part, emit)
		} else {
			emit(strings.ToLower(part))
		}
	}
}

// eachBigram emits each two neighbouring characters: where words are written
// without spaces, pairs are found without a dictionary.
func eachBigram(run string, emit func(string)) {
	_, first := utf8.DecodeRuneInString(run)
	if first == len(run) {
		emit(run)
	}
	for first < len(run) {
		_, second := utf8.DecodeRuneInString(run[first:])
		emit(run[:first+second])
		run, first = run[first:], second
	}
}

// kind is what decides where a word falls into parts.
type kind int

const (
	lower kind = iota
	upper
	digit
	ideograph
)

func kindOf(r rune) kind {
	switch {
	case unicode.IsDigit(r):
		return digit
	case unicode.IsUpper(r):
		return upper
	case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana):
		return ideograph
	default:
		return lower
	}
}

func ideographic(part string) bool {
	r, _ := utf8.DecodeRuneInString(part)
	return kindOf(r) == ideograph
}

// split cuts a word where its case or kind changes: getURLs is get and URLs,
// HTTPServer is HTTP and Server, base64 is base and 64.
func split(word string) []string {
	var parts []string
	start, previous := 0, 0 // of the part and of the character before
	before := kind(-1)
	for i, r := range word {
		here := kindOf(r)
		switch {
		case i == 0 || here == before || before == upper && here == lower && previous == start:
			// goes on; Server's capital belongs to it
		case before == upper && here == lower:
			if plural(word[i:]) { // the s of URLs is no word
				here = upper
				break
			}
			parts = append(parts, word[start:previous])
			start = previous
		default:
			parts = append(parts, word[start:i])
			start = i
		}
		before, previous = here, i
	}
	return append(parts, word[start:])
}

// plural reports whether rest, which follows a capital, is an s that ends the
// part.
func plural(rest string) bool {
	if rest[0] != 's' {
		return false
	}
	r, size := utf8.DecodeRuneInString(rest[1:])
	return size == 0 || kindOf(r) != lower
}
