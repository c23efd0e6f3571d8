package tool

import (
	"bytes"
	"unicode/utf8"

	"toolfinch/tool/o200k"
)

// maxPiece bounds, in bytes, what is tokenized at once, and so the longest word: beside its
// input the tokenizer holds 24 bytes for each of the word's.
const maxPiece = 32 << 10

// CountTokens returns how many tokens a model reads for text. It counts with
// the o200k_base vocabulary of GPT-4o and its successors; for other models the
// number is an estimate. Text above 32 KiB is counted in pieces, which may add a
// token for each. The first call loads the vocabulary, which stays in memory;
// every call takes about 10 µs per KiB, so numbers are worth keeping. It is safe
// for concurrent use.
func CountTokens(text []byte) int {
	count := 0
	for len(text) > 0 {
		n := piece(text)
		count += o200k.Count(text[:n])
		text = text[n:]
	}
	return count
}

// piece returns the length of the first piece of text: up to the last white
// space within the bound, because no token spans what is before it, else up to
// the last character.
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
	return maxPiece // no UTF-8: any place will do
}
