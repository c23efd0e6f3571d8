// Package nearest owns the search for names similar to a mistyped one. It does not
// decide what to do with them.
package nearest

import (
	"cmp"
	"slices"
	"strings"
)

// The share of a name that may differ.
const (
	Close = 1.0 / 3 // a typing error
	Loose = 2.0 / 3 // similar words
)

// maxLength bounds, in bytes, the compared part of a name: the cost of the distance
// is its square, and names come from clients.
const maxLength = 128

// Names returns up to n names similar to word, the nearest first, with at most share of the letters
// different. Case, spaces and the separators - _ and . do not count; a name that contains the word is
// near.
func Names(word string, names []string, n int, share float64) []string {
	want := fold(word)
	if want == "" {
		return nil
	}
	type near struct {
		name     string
		distance int
	}
	var found []near
	for _, name := range names {
		have := fold(name)
		d := distance(want, have)
		if strings.Contains(have, want) {
			d = min(d, 2)
		}
		if longer := max(len(want), len(have)); d <= max(1, int(float64(longer)*share)) {
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

var separators = strings.NewReplacer("_", "", "-", "", ".", "", " ", "")

func fold(name string) string {
	return strings.ToLower(separators.Replace(name[:min(len(name), maxLength)]))
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
