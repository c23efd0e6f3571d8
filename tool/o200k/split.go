package o200k

import (
	"unicode"
	"unicode/utf8"
)

// class is what the rules for splitting text know of a character.
type class uint8

const (
	upper class = 1 << iota // upper and title case, and what upper and lower case words share
	lower                   // lower case, and what they share
	number
	space
	newline // \r and \n, which are space, too
	letter  // in any case
)

var ascii = func() (table [utf8.RuneSelf]class) {
	for r := range table {
		table[r] = look(rune(r))
	}
	return table
}()

func classOf(r rune) class {
	if r < utf8.RuneSelf {
		return ascii[r]
	}
	return look(r)
}

func look(r rune) class {
	switch {
	case r == '\r' || r == '\n':
		return space | newline
	case unicode.IsSpace(r):
		return space
	case unicode.Is(unicode.Ll, r):
		return letter | lower
	case unicode.Is(unicode.Lu, r), unicode.Is(unicode.Lt, r):
		return letter | upper
	case unicode.Is(unicode.L, r):
		return letter | upper | lower
	case unicode.Is(unicode.M, r):
		return upper | lower
	case unicode.Is(unicode.N, r):
		return number
	}
	return 0
}

// next is the character at i and its length; 0, 0 at the end.
func next(text []byte, i int) (class, int) {
	if i >= len(text) {
		return 0, 0
	}
	if b := text[i]; b < utf8.RuneSelf {
		return ascii[b], 1
	}
	r, n := utf8.DecodeRune(text[i:])
	return classOf(r), n
}

// split returns the length of the first word of text, which is not empty: no token spans two
// words. These are the rules of o200k_base, as it writes them:
//
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	\p{N}{1,3}
//	 ?[^\s\p{L}\p{N}]+[\r\n/]*
//	\s*[\r\n]+
//	\s+(?!\S)
//	\s+
func split(text []byte) int {
	first, n := next(text, 0)
	before := 0 // the length of the one character that a word may begin with
	if first&(letter|number|newline) == 0 {
		before = n
	}
	for _, word := range []func([]byte, int) int{lowerWord, upperWord} {
		end := word(text, before)
		if end == 0 && before > 0 {
			end = word(text, 0)
		}
		if end > 0 {
			return end + contraction(text[end:])
		}
	}
	switch {
	case first&number != 0:
		return numbers(text)
	case first&space == 0:
		return signs(text, 0)
	case text[0] == ' ':
		if end := signs(text, 1); end > 1 {
			return end
		}
	}
	return spaces(text)
}

// lowerWord returns the end of a word in lower case, with upper case before it, that begins at i; 0 for none.
func lowerWord(text []byte, i int) (end int) {
	for {
		is, n := next(text, i)
		if is&upper == 0 {
			break
		}
		i += n
		if is&lower != 0 {
			end = i
		}
	}
	for {
		is, n := next(text, i)
		if is&lower == 0 {
			return end
		}
		i += n
		end = i
	}
}

// upperWord returns the end of a word in upper case; 0 for none. Where lower case
// follows it is a lowerWord.
func upperWord(text []byte, i int) (end int) {
	for {
		is, n := next(text, i)
		if is&upper == 0 {
			return end
		}
		i += n
		end = i
	}
}

// contraction returns the length of 's and its like at the beginning of text.
func contraction(text []byte) int {
	if len(text) < 2 || text[0] != '\'' {
		return 0
	}
	second := text[1] | 0x20
	switch second {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v', 'l':
		third := byte('e')
		if second == 'l' {
			third = 'l'
		}
		if len(text) > 2 && text[2]|0x20 == third {
			return 3
		}
	}
	if r, n := utf8.DecodeRune(text[1:]); r == 'ſ' { // is an s in lower case
		return 1 + n
	}
	return 0
}

func numbers(text []byte) (end int) {
	for range 3 {
		is, n := next(text, end)
		if is&number == 0 {
			break
		}
		end += n
	}
	return end
}

// signs returns the end of what is no letter, number and space from i on, with the line
// breaks and slashes after it.
func signs(text []byte, i int) (end int) {
	start := i
	for {
		is, n := next(text, i)
		if n == 0 || is&(letter|number|space) != 0 {
			break
		}
		i += n
	}
	for i > start && i < len(text) && (text[i] == '\r' || text[i] == '\n' || text[i] == '/') {
		i++
	}
	return i
}

// spaces returns the end of white space: up to the last line break in it; without one, the
// last space is left to what follows.
func spaces(text []byte) int {
	end, last, broken := 0, 0, 0
	for {
		is, n := next(text, end)
		if is&space == 0 {
			break
		}
		last, end = end, end+n
		if is&newline != 0 {
			broken = end
		}
	}
	switch {
	case broken > 0:
		return broken
	case end == len(text) || last == 0:
		return end
	}
	return last
}
