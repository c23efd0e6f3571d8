package retrieve

import (
	"slices"
	"strings"
	"unicode"

	"toolfinch/index"
	"toolfinch/tool"
)

// Bounds of MissingWords.
const (
	maxMissing     = 12
	maxMissingWord = 40 // bytes
)

// MissingWords returns the telling words of a query whose stems name, title and description of a tool lack, in lower
// case and in order. They are letters and digits only, at most 12.
func MissingWords(query string, t *tool.Tool) (words []string) {
	return tellingWords(query, index.Terms(apart(t.Def.ID.Name)+" "+t.Def.Title+" "+t.Def.Full().Description))
}

// tellingWords returns the telling words of a query, like MissingWords, without those whose stems are said.
func tellingWords(query string, said []string) (words []string) {
	telling := index.Terms(query)
	for word := range strings.FieldsFuncSeq(query, betweenWords) {
		word = strings.ToLower(word)
		stems := index.Terms(word)
		if len(stems) == 0 || len(word) < 2 || len(word) > maxMissingWord || !subset(stems, telling) || subset(stems, said) || slices.Contains(words, word) {
			continue
		}
		if words = append(words, word); len(words) == maxMissing {
			break
		}
		said = append(said, stems...)
	}
	return words
}

// betweenWords is notInWord, but keeps marks, as configs.AddWords does.
func betweenWords(r rune) bool { return notInWord(r) && !unicode.IsMark(r) }
