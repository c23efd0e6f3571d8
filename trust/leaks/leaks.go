// Package leaks owns the search for secrets in servers' answers: it recognizes secrets by their form, and masks them.
// It works on JSON as bytes, and does not decide what happens to an answer.
package leaks

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"toolfinch/internal/rawjson"
)

// Mode says what happens to an answer with a secret.
type Mode string

// The modes.
const (
	Off    Mode = "off"    // no search
	Mark   Mode = "mark"   // the answer gets a note
	Redact Mode = "redact" // the secret is replaced
	Block  Mode = "block"  // the answer is withheld
)

// Modes are all modes, the default first.
var Modes = []Mode{Off, Mark, Redact, Block}

// Replaces returns the replacement for a secret of a kind.
func Replaces(kind string) string { return "[redacted: " + kind + "]" }

// JSON returns a JSON value in which the secrets in strings are replaced, and the kinds of the secrets, sorted.
// Strings without a secret keep their bytes; a value without a secret is returned as it is. Invalid JSON stays
// invalid.
func JSON(raw []byte) (out []byte, kinds []string) {
	hits := needles.find(raw)
	if len(hits) == 0 {
		return raw, nil
	}
	done := 0 // bytes of raw already in out
	var named *named
	for i := 0; ; {
		begin := bytes.IndexByte(raw[i:], '"')
		if begin < 0 {
			break
		}
		begin += i
		i = rawjson.SkipString(raw, begin)
		for len(hits) > 0 && hits[0].at < begin {
			hits = hits[1:]
		}
		if len(hits) == 0 && named == nil {
			break
		}
		var of []*pattern // with a hit in this string
		for ; len(hits) > 0 && hits[0].at < i; hits = hits[1:] {
			if !slices.Contains(of, hits[0].of) {
				of = append(of, hits[0].of)
			}
		}
		if len(of) == 0 && named == nil {
			continue
		}
		text, ok := unquote(raw[begin:i])
		if !ok {
			named = nil
			continue
		}
		with, found := replace(text, of, named)
		if len(found) > 0 {
			out = append(append(out, raw[done:begin]...), rawjson.Quote(with)...)
			kinds, done = append(kinds, found...), i
		}
		named = nil
		if valueIsText.Match(raw[i:min(len(raw), i+16)]) {
			named = byName[strings.ToLower(text)]
		}
	}
	if len(kinds) == 0 {
		return raw, nil
	}
	slices.Sort(kinds)
	return append(out, raw[done:]...), slices.Compact(kinds)
}

// Text is JSON for plain text.
func Text(text string) (out string, kinds []string) {
	raw, kinds := JSON(rawjson.Quote(text))
	if len(kinds) == 0 {
		return text, nil
	}
	return rawjson.Text(raw), kinds
}

// valueIsText matches the bytes after the name of a member whose value is a string.
var valueIsText = regexp.MustCompile(`^\s*:\s*"`)

func unquote(quoted []byte) (string, bool) {
	if len(quoted) < 2 || quoted[len(quoted)-1] != '"' {
		return "", false
	}
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1]), true
	}
	var text string
	err := json.Unmarshal(quoted, &text)
	return text, err == nil
}

type span struct {
	from, to int
	kind     string
}

// replace replaces the secrets of some patterns in a text. by is not nil if the text is the value of a named secret.
func replace(text string, of []*pattern, by *named) (out string, kinds []string) {
	if by != nil && by.form.MatchString(text) {
		return Replaces(by.kind), []string{by.kind}
	}
	var spans []span
	for _, p := range of {
		spans = append(spans, p.in(text)...)
	}
	if len(spans) == 0 {
		return text, nil
	}
	slices.SortFunc(spans, func(a, b span) int {
		if a.from != b.from {
			return a.from - b.from
		}
		return b.to - a.to
	})
	var b strings.Builder
	done := 0
	for _, s := range spans {
		if s.from < done { // inside the last secret, or overlapping it
			done = max(done, s.to)
			continue
		}
		b.WriteString(text[done:s.from] + Replaces(s.kind))
		kinds, done = append(kinds, s.kind), s.to
	}
	b.WriteString(text[done:])
	return b.String(), kinds
}

func (p *pattern) in(text string) (spans []span) {
	for _, found := range p.form.FindAllStringSubmatchIndex(text, -1) {
		from, to := found[len(found)-2], found[len(found)-1] // of the last group, else of the whole match
		if p.within || !wordBefore(text, found[0]) && !wordAt(text, found[1]) {
			if p.placeholder == nil || !p.placeholder(text[from:to]) {
				spans = append(spans, span{from, to, p.kind})
			}
		}
	}
	return spans
}

func isWord(b byte) bool {
	return b == '_' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
}

// wordBefore reports whether a word goes on at i. A JSON escape before i, such as \n, is no word.
func wordBefore[T ~string | ~[]byte](text T, i int) bool {
	switch {
	case i == 0 || !isWord(text[i-1]):
		return false
	case i >= 2 && text[i-2] == '\\' && strings.IndexByte("nrtbf", text[i-1]) >= 0:
		return false
	case i >= 6 && text[i-6] == '\\' && text[i-5] == 'u':
		return false
	}
	return true
}

func wordAt(text string, i int) bool { return i < len(text) && isWord(text[i]) }
