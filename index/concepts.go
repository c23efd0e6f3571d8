package index

import (
	_ "embed"
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

// readConcepts returns, by stem, the terms of concepts and the verbs.
var readConcepts = sync.OnceValues(func() (concepts map[string]string, verbs map[string]bool) {
	concepts, verbs = map[string]string{}, map[string]bool{}
	section := ""
	for line := range strings.Lines(conceptFile) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
		case strings.HasSuffix(words[0], ":"):
			section = words[0]
		default:
			for _, word := range words {
				if len(words) > 1 {
					concepts[stem(word)] = conceptMark + words[0]
				}
				if section == "verbs:" {
					verbs[stem(word)] = true
				}
			}
		}
	}
	return concepts, verbs
})

func concepts() map[string]string {
	concepts, _ := readConcepts()
	return concepts
}

// verbs fit any object.
func verbs() map[string]bool {
	_, verbs := readConcepts()
	return verbs
}

func stem(word string) string {
	env := snowballstem.NewEnv(word)
	stemmer.Stem(env)
	return env.Current()
}
