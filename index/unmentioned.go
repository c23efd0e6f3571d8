package index

import (
	"slices"
	"strings"
	"unicode"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// Things returns the things that a query names, each once, and the number of its telling words. A thing is a word of
// letters alone, in no quotes. Where a clause begins a verb stands, after some prepositions a place or a topic, and after "remember that" what is
// to be kept: these are none.
func Things(text string) (things []string, telling int) {
	begins, value, quoted, content, thingBefore := true, false, false, false, false
	for piece := range strings.FieldsSeq(rawjson.Head(text, maxText)) {
		end := piece[len(piece)-1:]
		quoted = quoted || strings.ContainsAny(piece[:1], "\"`")
		thing := strings.Trim(piece, ".,;:!?()\"`")
		if i := strings.IndexAny(thing, "'’"); i > 0 {
			thing = thing[:i]
		}
		lower := strings.ToLower(thing)
		asks := requestWords[lower]
		switch {
		case asks:
		case thing == "" || stopWords[lower]:
			value = value && articles[lower] || beforeValues[lower]
			content = content || lower == "that" && !thingBefore
			thingBefore = false
		default:
			telling++
			thingBefore = !begins
			if !begins && !value && !content && !quoted && len(thing) > 2 && len(thing) <= maxWord && !strings.ContainsFunc(thing, notLetter) && len(split([]byte(thing))) == 1 && !slices.Contains(things, thing) {
				things = append(things, thing)
			}
		}
		quoted = quoted && !strings.ContainsAny(end, "\"`")
		content = content && !strings.ContainsAny(end, ".;:!?")
		begins = begins && asks || strings.ContainsAny(end, ".,;:!?") || lower == "and" || lower == "then"
	}
	return things, telling
}

// beforeValues are the prepositions that stand before places and topics.
var (
	beforeValues = map[string]bool{"from": true, "to": true, "between": true, "for": true, "about": true}
	articles     = map[string]bool{"a": true, "an": true, "the": true, "my": true}
)

func notLetter(r rune) bool { return !unicode.IsLetter(r) || kindOf(r) == ideograph }

// Mentions reports whether a tool, or a document of these kinds, has a thing: its stem, its concept, or a word that it
// misspells. Documents outside of among do not count. Verbs fit any document.
func (s *Snapshot) Mentions(thing string, kinds []tool.Kind, among *Subset) (bool, error) {
	if s.index.closed.Load() {
		return false, ErrClosed
	}
	r := &ranking{x: s, allowed: among, groups: []string{groupTools}}
	if slices.ContainsFunc(kinds, func(kind tool.Kind) bool { return kind != tool.KindTool }) {
		r.groups = append(r.groups, groupOthers)
	}
	word := strings.ToLower(string(fold([]byte(thing))))
	stem := stem(word)
	if verbs()[stem] {
		return true, nil
	}
	known, err := r.known(stem)
	if concept, is := concepts()[stem]; is && !known && err == nil {
		known, err = r.known(concept)
	}
	if known || err != nil {
		return known, err
	}
	meant, err := r.meantBy(word)
	return meant != "", err
}
