package leaks

import (
	"bytes"
	"regexp"
	"slices"
)

// needle is a literal in every secret of a pattern, with a quick test of the bytes after it.
type needle struct {
	text   string
	of     *pattern
	core   int                     // offset of its three rarest bytes
	within bool                    // may be inside a word
	likely func(after []byte) bool // tests the bytes after it
}

// finder finds needles in one pass that skips most bytes of text without a needle (Wu and Manber, "A fast algorithm
// for multi-pattern searching", 1994, with blocks of two bytes). First it looks for three bytes of each needle, the
// core.
type finder struct {
	// next says how many bytes to skip after a pair of bytes. A value from core on is core plus an index in ends: the
	// needles whose cores end with the pair.
	next [1 << 16]uint8
	ends [][]needle
}

const core = 3 // bytes; no needle is shorter

func newFinder(all []needle) *finder {
	f := &finder{}
	for i := range f.next {
		f.next[i] = core - 1
	}
	for i := range all {
		n := &all[i]
		n.core = rarest(n.text)
		first := pairOf(n.text[n.core], n.text[n.core+1])
		f.next[first] = min(f.next[first], 1)
	}
	for _, n := range all {
		last := pairOf(n.text[n.core+1], n.text[n.core+2])
		if f.next[last] < core {
			f.next[last] = uint8(core + len(f.ends))
			f.ends = append(f.ends, nil)
		}
		end := &f.ends[f.next[last]-core]
		*end = append(*end, n)
	}
	return f
}

// rarest returns the offset of the three bytes of a needle that are rarest in prose.
func rarest(text string) (at int) {
	least := core + 1
	for i := range len(text) - core + 1 {
		prose := 0
		for _, c := range text[i : i+core] {
			if c >= 'a' && c <= 'z' || c == ' ' {
				prose++
			}
		}
		if prose <= least {
			at, least = i, prose
		}
	}
	return at
}

func pairOf(a, b byte) uint16 { return uint16(a)<<8 | uint16(b) }

type hit struct {
	at int
	of *pattern
}

// find returns the possible secrets, sorted by place.
func (f *finder) find(b []byte) (hits []hit) {
	for i := core - 1; i < len(b); {
		next := int(f.next[pairOf(b[i-1], b[i])])
		if next < core {
			i += next
			continue
		}
		for n := range f.ends[next-core] {
			n := &f.ends[next-core][n]
			if from := i - core + 1 - n.core; from >= 0 && n.is(b, from) {
				hits = append(hits, hit{from, n.of})
			}
		}
		i++
	}
	slices.SortFunc(hits, func(a, b hit) int { return a.at - b.at })
	return hits
}

func (n *needle) is(b []byte, from int) bool {
	return b[from] == n.text[0] && len(b)-from >= len(n.text) && string(b[from:from+len(n.text)]) == n.text &&
		(n.within || !wordBefore(b, from)) && n.likely(b[from+len(n.text):])
}

// follows tests whether at least n bytes of a token follow.
func follows(n int) func([]byte) bool {
	return func(after []byte) bool {
		if len(after) < n {
			return false
		}
		for _, c := range after[:n] {
			if !isWord(c) && c != '-' && c != '.' && c != '+' && c != '/' && c != '=' && c != '%' && c != '\\' { // \ escapes a / in JSON
				return false
			}
		}
		return true
	}
}

// soon tests whether text is within the next n bytes.
func soon(text string, n int) func([]byte) bool {
	return func(after []byte) bool { return bytes.Contains(after[:min(n, len(after))], []byte(text)) }
}

// userinfo reports whether user:password@ may follow.
func userinfo(after []byte) bool {
	colon := false
	for _, c := range after[:min(512, len(after))] {
		switch c {
		case ':':
			colon = true
		case '@':
			return colon
		case '/', '?', '#', '"', ' ', '\t', '\n', '<', '>':
			return false
		}
	}
	return false
}

// moreThan tests whether more than n bytes follow.
func moreThan(n int) func([]byte) bool { return func(after []byte) bool { return len(after) > n } }

// pattern is a form of secrets. The secret is the match of its last group, else the whole match.
type pattern struct {
	kind        string
	needles     []string
	form        *regexp.Regexp
	within      bool // may be inside a word
	likely      func([]byte) bool
	placeholder func(secret string) bool // matches examples in documentation; may be nil
}

var (
	patterns []pattern
	needles  *finder
)

func init() {
	patterns = forms()
	var all []needle
	for i := range patterns {
		for _, text := range patterns[i].needles {
			all = append(all, needle{text: text, of: &patterns[i], within: patterns[i].within, likely: patterns[i].likely})
		}
	}
	needles = newFinder(all)
}
