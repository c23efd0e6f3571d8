package index

import (
	_ "embed"
	"slices"
	"strings"
	"sync"

	"github.com/blevesearch/snowballstem"
	stemmer "github.com/blevesearch/snowballstem/english"
)

// conceptMark begins the terms of concepts. They sort after the stems.
const conceptMark = "~"

func isConcept(term string) bool { return strings.HasPrefix(term, conceptMark) }

//go:embed concepts.txt
var conceptFile string

// phrase is a row of the phrases in concepts.txt.
type phrase struct {
	said  []string // stems, "~" and a concept, or kinds of address; in this order, with other words between
	means []string // words that tools use
	stead bool     // they stand in place of what is said
}

// readPhrase reads "open URL = navigate".
func readPhrase(words []string) phrase {
	at := slices.IndexFunc(words, func(word string) bool { return strings.HasPrefix(word, "=") })
	p := phrase{means: words[at+1:], stead: words[at] == "=>"}
	for _, word := range words[:at] {
		if !isConcept(word) && word != strings.ToUpper(word) {
			word = stem(word)
		}
		p.said = append(p.said, word)
	}
	return p
}

// conceptTable is concepts.txt.
type conceptTable struct {
	concepts map[string]string   // by stem
	verbs    map[string]bool     // stems that fit any object
	phrases  map[string][]phrase // by what they begin with
}

var readConcepts = sync.OnceValue(func() conceptTable {
	t := conceptTable{map[string]string{}, map[string]bool{}, map[string][]phrase{}}
	section := ""
	for line := range strings.Lines(conceptFile) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
		case strings.HasSuffix(words[0], ":"):
			section = words[0]
		case section == "phrases:":
			p := readPhrase(words)
			t.phrases[p.said[0]] = append(t.phrases[p.said[0]], p)
		default:
			for _, word := range words {
				if len(words) > 1 {
					t.concepts[stem(word)] = conceptMark + words[0]
				}
				if section == "verbs:" {
					t.verbs[stem(word)] = true
				}
			}
		}
	}
	return t
})

func concepts() map[string]string  { return readConcepts().concepts }
func verbs() map[string]bool       { return readConcepts().verbs }
func phrases() map[string][]phrase { return readConcepts().phrases }

func stem(word string) string {
	env := snowballstem.NewEnv(word)
	stemmer.Stem(env)
	return env.Current()
}
