package tool

import (
	"bytes"
	"unicode/utf8"

	"toolfinch/tool/o200k"
)

// maxPiece bounds the bytes tokenized at once, and so the longest word: the tokenizer holds 24 bytes for each byte
// of a word.
const maxPiece = 32 << 10

// CountTokens returns how many tokens a model reads for text. It uses the o200k_base vocabulary of GPT-4o and its
// successors; for other models the number is an estimate. Text above 32 KiB is counted in pieces, each of which may
// add a token. The first call loads the vocabulary, which stays in memory; every call takes about 10 µs per KiB, so
// callers cache counts. It is safe for concurrent use.
func CountTokens(text []byte) int {
	count := 0
	for len(text) > 0 {
		n := piece(text)
		count += o200k.Count(text[:n])
		text = text[n:]
	}
	return count
}

// piece returns the length of the first piece of text: up to the last white space within the bound, which no token
// crosses, else up to the last character.
func piece(text []byte) int {
	if len(text) <= maxPiece {
		return len(text)
	}
	if space := bytes.LastIndexAny(text[:maxPiece], " \t\r\n"); space > 0 {
		return space
	}
	for n := maxPiece; n > maxPiece-utf8.UTFMax; n-- {
		if utf8.RuneStart(text[n]) {
			return n
		}
	}
	return maxPiece // not UTF-8: cut anywhere
}
