package pins

import (
	"encoding/json"
	"strings"
	"unicode"

	"toolfinch/rawjson"
	"toolfinch/tool"
)

// Bounds of the search for renamed definitions.
const (
	alike       = 0.9 // least similarity of the bodies
	leastWords  = 6   // of a body that can be told from others
	maxCompared = 200 // new ones, and gone ones
)

// Renames finds, for definitions that are new, one that is gone and has nearly the same
// body: all but the name. The result is by the new ID. gone has its definition in
// Approved.
func Renames(held, gone []Held) map[tool.ID]tool.ID {
	type body struct {
		id    tool.ID
		words map[string]int
		n     int
	}
	bodies := func(all []Held, of func(Held) json.RawMessage) (out []body) {
		for _, h := range all {
			if words, n := bodyOf(h.ID.Kind, of(h)); n >= leastWords && len(out) < maxCompared {
				out = append(out, body{h.ID, words, n})
			}
		}
		return out
	}
	var fresh []Held
	for _, h := range held {
		if h.New() && h.ID.Kind != tool.KindInstructions {
			fresh = append(fresh, h)
		}
	}
	if len(fresh) == 0 || len(gone) == 0 {
		return nil
	}
	renames := map[tool.ID]tool.ID{}
	before := bodies(gone, func(h Held) json.RawMessage { return h.Approved })
	for _, now := range bodies(fresh, func(h Held) json.RawMessage { return h.Raw }) {
		best := alike
		for _, was := range before {
			if was.id.Kind != now.id.Kind || was.id.Server != now.id.Server {
				continue
			}
			if like := similarity(was.words, was.n, now.words, now.n); like >= best {
				renames[now.id], best = was.id, like
			}
		}
	}
	return renames
}

// bodyOf counts the words of a definition without its name and title.
func bodyOf(kind tool.Kind, raw json.RawMessage) (words map[string]int, n int) {
	words = map[string]int{}
	text := string(Canonical(kind, rawjson.Without(raw, kind.Key(), "name", "title")))
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		words[word]++
		n++
	}
	return words, n
}

// similarity is the share of words that two bodies have in common, from 0 to 1.
func similarity(a map[string]int, inA int, b map[string]int, inB int) float64 {
	common := 0
	for word, n := range a {
		common += min(n, b[word])
	}
	return 2 * float64(common) / float64(inA+inB)
}
