// Package nearest owns the search for names similar to a mistyped one. It does not
// decide what to do with them.
package nearest

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
)

// The share of a name that may differ.
const (
	Close = 1.0 / 3 // a typing error
	Loose = 2.0 / 3 // similar names: beyond Close, they must begin alike or share a word
)

// maxLength bounds, in bytes, the compared part of a name: the cost of the distance
// is its square, and names come from clients.
const maxLength = 128

// Names returns up to n names similar to word, the nearest first, with at most share of the letters
// different. Case, spaces and separators do not count; a name that contains the word is near.
func Names(word string, names []string, n int, share float64) []string {
	want := Fold(word)
	if want == "" {
		return nil
	}
	type near struct {
		name     string
		distance int
	}
	var found []near
	for _, name := range names {
		have := Fold(name)
		d := distance(want, have)
		if strings.Contains(have, want) {
			d = min(d, 2)
		}
		allowed := share
		if share > Close && !alike(word, name) {
			allowed = Close
		}
		if longer := max(len(want), len(have)); d <= max(1, int(float64(longer)*allowed)) {
			found = append(found, near{name, d})
		}
	}
	slices.SortStableFunc(found, func(a, b near) int { return cmp.Compare(a.distance, b.distance) })
	var out []string
	for _, f := range found {
		if len(out) < n && !slices.Contains(out, f.name) {
			out = append(out, f.name)
		}
	}
	return out
}

// Fold returns a name without what spellings of it differ in: case, and all but letters and digits. Of a long name it
// folds the beginning.
func Fold(name string) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsLetter(c) && !unicode.IsDigit(c) {
			return -1
		}
		return unicode.ToLower(c)
	}, name[:min(len(name), maxLength)])
}

// alike reports whether two names begin alike or have a word in common.
func alike(a, b string) bool {
	words := func(name string) []string {
		return strings.FieldsFunc(strings.ToLower(name[:min(len(name), maxLength)]), func(c rune) bool { return !unicode.IsLetter(c) && !unicode.IsDigit(c) })
	}
	begin, known := Fold(a), words(b)
	return strings.HasPrefix(Fold(b), begin[:min(len(begin), 2)]) ||
		slices.ContainsFunc(words(a), func(word string) bool { return len(word) > 1 && slices.Contains(known, word) })
}

// distance counts the bytes to insert, delete, replace or swap with their
// neighbour to make a into b.
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	row := make([]int, len(b)+1)
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			change := last[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
