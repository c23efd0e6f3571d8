package configs

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// didYouMean is the hint for a word that is none of the valid ones: the nearest
// of them, or all when none is near.
func didYouMean(word string, valid []string) string {
	return cmp.Or(nearHint(word, valid), "known: "+strings.Join(valid, ", "))
}

// nearHint is the hint for a word near a valid one, else "".
func nearHint(word string, valid []string) string {
	near, ok := nearest(word, valid)
	if !ok {
		return ""
	}
	return "did you mean " + strconv.Quote(near) + "?"
}

// nearest returns the valid word with the smallest edit distance, when that is
// at most a third of the word. Case and the separators - and _ do not count, so
// that callTimeout is call_timeout.
func nearest(word string, valid []string) (string, bool) {
	const longest = 64 // what is longer is no misspelt key, and the distance costs its square
	plain := fold(word)
	if len(plain) > longest {
		return "", false
	}
	best, at := 1+max(1, len(plain)/3), -1
	for i, v := range valid {
		if d := distance(plain, fold(v)); d < best {
			best, at = d, i
		}
	}
	if at < 0 {
		return "", false
	}
	return valid[at], true
}

func fold(s string) []rune {
	return []rune(strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(s)))
}

// distance counts the characters to insert, delete, replace or swap with their
// neighbour to make a into b.
func distance(a, b []rune) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range a {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range b {
			change := 1
			if a[i] == b[j] {
				change = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+change)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

// oneOf lists words for a sentence: "a, b or c".
func oneOf(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// matchFold finds word among valid, whatever its case.
func matchFold(word string, valid []string) (string, bool) {
	i := slices.IndexFunc(valid, func(v string) bool { return strings.EqualFold(v, word) })
	if i < 0 {
		return "", false
	}
	return valid[i], true
}
