package configs

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"toolfinch/internal/nearest"
)

// didYouMean hints at the valid word nearest to word, or at all valid words.
func didYouMean(word string, valid []string) string {
	return cmp.Or(nearHint(word, valid), "known: "+strings.Join(valid, ", "))
}

// nearHint hints at the valid word nearest to word, if one is close.
func nearHint(word string, valid []string) string {
	near, ok := closest(word, valid)
	if !ok {
		return ""
	}
	return "did you mean " + strconv.Quote(near) + "?"
}

// closest returns the valid word nearest to word, if one is close.
func closest(word string, valid []string) (string, bool) {
	const longest = 64 // a longer word is no misspelt key
	if len(word) > longest {
		return "", false
	}
	near := nearest.Names(word, valid, 1, nearest.Close)
	if len(near) == 0 {
		return "", false
	}
	return near[0], true
}

// oneOf lists words for a sentence: "a, b or c".
func oneOf(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// matchFold finds word among valid, without regard to case.
func matchFold(word string, valid []string) (string, bool) {
	i := slices.IndexFunc(valid, func(v string) bool { return strings.EqualFold(v, word) })
	if i < 0 {
		return "", false
	}
	return valid[i], true
}
