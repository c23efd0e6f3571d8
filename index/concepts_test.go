package index

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// A stem in two lines would be of the later one only, and a word that is never asked for, or that
// becomes several terms, of none.
func TestTheConceptTableIsSound(t *testing.T) {
	first := map[string]string{}
	var headings []string
	for line := range strings.Lines(conceptFile) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
			continue
		case strings.HasSuffix(words[0], ":"):
			headings = append(headings, words...)
			continue
		case len(headings) == 3:
			checkPhrase(t, line)
			continue
		case len(words) == 1 && len(headings) > 1:
			t.Errorf("%q says nothing", line)
		}
		for _, word := range words {
			if other, twice := first[stem(word)]; twice && other != words[0] {
				t.Errorf("%s is in the lines of %s and %s", word, other, words[0])
			}
			first[stem(word)] = words[0]
			terms := english.Analyze([]byte(word))
			if len(terms) == 0 || string(terms[0].Term) != word || requestWords[word] {
				t.Errorf("%s is never asked for", word)
			}
		}
	}
	if want := []string{"verbs:", "things:", "phrases:"}; !slices.Equal(headings, want) {
		t.Errorf("headings %q, want %q", headings, want)
	}
}

// A phrase has words or addresses on its left, and words that are searched for on its right.
func checkPhrase(t *testing.T, line string) {
	left, right, found := strings.Cut(line, "=")
	right = strings.TrimPrefix(right, ">")
	if !found || len(strings.Fields(left)) == 0 || len(strings.Fields(right)) == 0 {
		t.Errorf("%q is no phrase", line)
	}
	for _, word := range strings.Fields(left) {
		known := slices.Contains(slices.Collect(maps.Values(concepts())), word)
		address := slices.Contains([]string{addressURL, addressEmail, addressIP, addressFile, addressFolder, addressDocument}, word)
		if isConcept(word) != known || !known && !address && word != strings.ToLower(word) {
			t.Errorf("%q: %s is no word, concept or kind of address", line, word)
		}
	}
	for _, word := range strings.Fields(right) {
		if terms := english.Analyze([]byte(word)); len(terms) != 1 || string(terms[0].Term) != word {
			t.Errorf("%q: %s is never found", line, word)
		}
	}
}

// People ask with other verbs and nouns than tools have.
func TestOtherWordsForTheSameAreFound(t *testing.T) {
	x := build(t, append(office(t),
		doc(t, "tracker", "list_issues", "List the issues of a project."),
		doc(t, "tracker", "delete_draft", "Delete a draft."),
		doc(t, "tracker", "list_drafts", "List all drafts."),
		doc(t, "notes", "add_note", "Add a note."))...)
	for query, want := range map[string]string{
		"raise an issue about the crash": "github_create_issue",
		"file an issue, open a new one":  "github_create_issue",
		"throw away the draft":           "tracker_delete_draft",
		"get rid of a draft":             "tracker_delete_draft",
		"jot down what the milk costs":   "notes_add_note",
		"will it be rainy in Oslo":       "weather_get_forecast",
		"dispatch an email":              "mail_send_message",
	} {
		hits := search(t, x, Query{Text: query, Limit: 3})
		if len(hits) == 0 || hits[0].Name != want {
			t.Errorf("%q finds %v, want %s first", query, names(hits), want)
		}
	}
}

// The word itself is worth more than another one of its concept, however rare the word.
func TestAnExactWordRanksAboveItsRelatives(t *testing.T) {
	x := build(t, doc(t, "a", "erase_row", ""), doc(t, "b", "delete_row", ""), doc(t, "c", "remove_row", ""), doc(t, "d", "wipe_row", ""))
	for _, verb := range []string{"erase", "delete", "remove", "wipe"} {
		hits := search(t, x, Query{Text: verb + " this row", Limit: 4})
		if len(hits) != 4 || !strings.Contains(hits[0].Name, verb) {
			t.Errorf("%s: %v", verb, names(hits))
		}
	}
}
