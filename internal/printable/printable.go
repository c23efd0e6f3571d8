// Package printable makes foreign text safe within our lines: it can neither begin a line, nor steer a
// terminal, nor carry invisible text.
package printable

import (
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Hidden reports whether a character is invisible, or controls how others are shown.
func Hidden(r rune) bool {
	if ' ' <= r && r < unicode.MaxASCII {
		return false
	}
	if unicode.Is(unicode.Variation_Selector, r) {
		return r < 0xFE00 || r > 0xFE0F // variation selectors choose text or emoji
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point)
}

// Line returns text as one line: white space as single blanks, without hidden characters and invalid
// UTF-8.
func Line(text string) string {
	if plain(text) {
		return text
	}
	if strings.ContainsFunc(text, odd) {
		text = strings.Map(func(r rune) rune {
			switch {
			case unicode.IsSpace(r), unicode.In(r, unicode.Zl, unicode.Zp):
				return ' '
			case Hidden(r), r == utf8.RuneError:
				return -1
			}
			return r
		}, text)
	}
	return strings.Join(strings.Fields(text), " ")
}

// plain reports whether Line would change nothing: printable ASCII with single blanks inside. Almost
// all text is plain.
func plain(text string) bool {
	before := byte(' ')
	for i := range len(text) {
		c := text[i]
		if c < ' ' || c > '~' || c == ' ' && before == ' ' {
			return false
		}
		before = c
	}
	return text == "" || before != ' '
}

// Lines is Line for each line of text, which keeps its indentation.
func Lines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		words := strings.TrimLeft(line, " ")
		lines[i] = strings.TrimRight(line[:len(line)-len(words)]+Line(words), " ")
	}
	return strings.Join(lines, "\n")
}

// JSON returns a value as one line with the same meaning: hidden characters, which JSON has only in
// texts, are escaped.
func JSON(value []byte) []byte {
	if !strings.ContainsFunc(string(value), odd) {
		return value
	}
	out := make([]byte, 0, len(value)+16)
	for len(value) > 0 {
		r, size := utf8.DecodeRune(value)
		switch {
		case r == '\n', r == '\r', r == '\t': // between tokens
			out = append(out, ' ')
		case !Hidden(r):
			out = append(out, value[:size]...)
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			out = escape(escape(out, high), low)
		default:
			out = escape(out, r)
		}
		value = value[size:]
	}
	return out
}

func odd(r rune) bool { return Hidden(r) || r == utf8.RuneError }

func escape(to []byte, r rune) []byte {
	const digits = "0123456789abcdef"
	return append(to, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}
