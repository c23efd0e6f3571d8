package index

import (
	"bytes"
	_ "embed"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/blevesearch/bleve/v2/analysis"
	"golang.org/x/text/unicode/norm"
)

// english analyses all text, of documents and queries. It yields words in lower case, also the parts of
// identifiers, without stop words.
//
// The tokenizer and the filters are ours: each of bleve's filters links its registry, 1.6 MB of geometry and JSON;
// its camel case cuts URLs into UR and Ls; its tokenizer reserves 8 kB a text.
var english = analysis.DefaultAnalyzer{
	CharFilters:  []analysis.CharFilter{unaccented{}},
	Tokenizer:    words{},
	TokenFilters: []analysis.TokenFilter{identifiers{}, lowerCase{}, telling{}},
}

// unaccented removes accents and other combining marks from text.
type unaccented struct{}

func (unaccented) Filter(text []byte) []byte { return fold(text) }

func fold(text []byte) []byte {
	if !bytes.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return text
	}
	return bytes.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, norm.NFKD.Bytes(text))
}

// words returns the runs of letters and digits in text, without endings of contractions.
type words struct{}

func (words) Tokenize(text []byte) analysis.TokenStream {
	out := make(analysis.TokenStream, 0, 1+len(text)/6)
	for at := 0; ; {
		start := bytes.IndexFunc(text[at:], isWordRune)
		if start < 0 {
			return out
		}
		start += at
		if length := bytes.IndexFunc(text[start:], func(r rune) bool { return !isWordRune(r) }); length >= 0 {
			at = start + length
		} else {
			at = len(text)
		}
		if word := text[start:at]; !contraction(text[:start], word) {
			out = append(out, &analysis.Token{Term: word, Start: start, End: at, Position: len(out) + 1})
		}
	}
}

func isWordRune(r rune) bool {
	if r < utf8.RuneSelf {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	}
	return unicode.IsLetter(r) || unicode.IsDigit(r)
}

// contraction reports whether word follows the apostrophe of a contraction: "user's", "don't", "I'm", "I'd",
// "we'll", "we're", "I've".
func contraction(before, word []byte) bool {
	switch string(word) {
	case "s", "t", "m", "d", "ll", "re", "ve":
		return bytes.HasSuffix(before, []byte("'")) || bytes.HasSuffix(before, []byte("’"))
	}
	return false
}

// identifiers adds the parts of an identifier: getURLs yields getURLs, get and URLs; base64 yields base64, base and
// 64. A run of ideographs yields each pair of neighbours: languages without spaces are searched without a
// dictionary.
type identifiers struct{}

func (identifiers) Filter(words analysis.TokenStream) analysis.TokenStream {
	out := make(analysis.TokenStream, 0, 2*len(words))
	for _, word := range words {
		parts := split(word.Term)
		add := func(term []byte) {
			out = append(out, &analysis.Token{Term: term, Start: word.Start, End: word.End, Position: word.Position})
		}
		if len(parts) > 1 || !ideographic(word.Term) {
			out = append(out, word)
		}
		for _, part := range parts {
			if ideographic(part) {
				eachBigram(part, add)
			} else if len(parts) > 1 {
				add(part)
			}
		}
	}
	return out
}

func ideographic(part []byte) bool {
	r, _ := utf8.DecodeRune(part)
	return kindOf(r) == ideograph
}

func eachBigram(run []byte, do func([]byte)) {
	_, first := utf8.DecodeRune(run)
	if first == len(run) {
		do(run)
	}
	for first < len(run) {
		_, second := utf8.DecodeRune(run[first:])
		do(run[:first+second])
		run, first = run[first:], second
	}
}

type lowerCase struct{}

func (lowerCase) Filter(words analysis.TokenStream) analysis.TokenStream {
	for _, word := range words {
		if bytes.ContainsFunc(word.Term, unicode.IsUpper) {
			word.Term = bytes.ToLower(word.Term)
		}
	}
	return words
}

// maxWord bounds a word in bytes: a longer text is data, not language.
const maxWord = 64

// telling removes stop words.
type telling struct{}

func (telling) Filter(words analysis.TokenStream) analysis.TokenStream {
	out := words[:0]
	for _, word := range words {
		if len(word.Term) <= maxWord && !stopWords[string(word.Term)] {
			out = append(out, word)
		}
	}
	return out
}

//go:embed stopwords.txt
var stopWordFile string

//go:embed requestwords.txt
var requestWordFile string

var (
	stopWords    = tokenMap(stopWordFile)
	requestWords = tokenMap(requestWordFile)
)

func tokenMap(file string) analysis.TokenMap {
	words := analysis.NewTokenMap()
	for line := range strings.Lines(file) {
		words.LoadLine(line)
	}
	return words
}

// Every word is indexed by its stem and, under this mark, as written: the stem finds "issues" for "issue", and the
// written form ranks an exact word above its relatives.
const written = "="

// maxKnownPieces bounds the pieces of text that an analyzer caches: a server may list ever new ones.
const maxKnownPieces = 100_000

// analyzer turns text into terms. It caches words, so it serves one goroutine and one batch. Terms are numbered,
// because counting in slices is several times faster than in maps.
type analyzer struct {
	pieces map[string][]word // pieces of documents between white space, by text; nil for a query
	known  map[string]word
	ids    map[string]int // numbers of terms
	terms  []string       // terms by number

	times, total []float64 // scratch space of counts, by number; zero between uses
}

// word has the numbers of its terms: the stem, the written form, and the concept; -1 for none.
type word struct {
	stem, written, concept int
	request                bool // one of requestWords
}

func newAnalyzer() *analyzer {
	return &analyzer{known: make(map[string]word), ids: make(map[string]int)}
}

// each calls emit with the words of text. No word contains white space, so a batch of documents analyses each piece
// between white space once.
func (a *analyzer) each(text string, emit func(word)) {
	if a.pieces == nil {
		for _, w := range a.words(text) {
			emit(w)
		}
		return
	}
	for piece := range strings.FieldsSeq(text) {
		words, known := a.pieces[piece]
		if !known {
			words = a.words(piece)
			if len(piece) <= maxWord && len(a.pieces) < maxKnownPieces {
				a.pieces[strings.Clone(piece)] = words
			}
		}
		for _, w := range words {
			emit(w)
		}
	}
}

func (a *analyzer) words(text string) []word {
	tokens := english.Analyze([]byte(text))
	words := make([]word, len(tokens))
	for i, token := range tokens {
		w, known := a.known[string(token.Term)]
		if !known {
			w = a.word(string(token.Term))
		}
		words[i] = w
	}
	return words
}

// word returns a word in lower case.
func (a *analyzer) word(lower string) word {
	w, known := a.known[lower]
	if !known {
		stem := stem(lower)
		w = word{a.number(stem), a.number(written + lower), -1, requestWords[lower]}
		if concept, ok := concepts()[stem]; ok {
			w.concept = a.number(concept)
		}
		a.known[lower] = w
	}
	return w
}

func (a *analyzer) number(term string) int {
	id, ok := a.ids[term]
	if !ok {
		id = len(a.terms)
		a.ids[term] = id
		a.terms = append(a.terms, term)
		a.times = append(a.times, 0)
		a.total = append(a.total, 0)
	}
	return id
}

// kind classifies characters: a word is split where the kind changes.
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
	case r >= utf8.RuneSelf && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana):
		return ideograph
	default:
		return lower
	}
}

// split cuts a word where its case or kind changes: getURLs into get and URLs, HTTPServer into HTTP and Server,
// base64 into base and 64.
func split(word []byte) [][]byte {
	var parts [][]byte
	start, previous := 0, 0 // of the part and of the character before
	before := kind(-1)
	for i, size := 0, 0; i < len(word); i += size {
		var r rune
		r, size = utf8.DecodeRune(word[i:])
		here := kindOf(r)
		switch {
		case i == 0 || here == before || before == upper && here == lower && previous == start:
			// continue; the capital of Server belongs to Server
		case before == upper && here == lower:
			if plural(word[i:]) { // the s of URLs is not a word
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

// plural reports whether rest, after a capital, is an s that ends the part.
func plural(rest []byte) bool {
	if rest[0] != 's' {
		return false
	}
	r, size := utf8.DecodeRune(rest[1:])
	return size == 0 || kindOf(r) != lower
}
