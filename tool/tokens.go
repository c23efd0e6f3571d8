package tool

import (
	"bytes"
	"sync"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer/codec"
)

// maxPiece bounds, in bytes, what is tokenized at once: beside its input the
// tokenizer holds every character as four bytes and every merge as twelve.
const maxPiece = 32 << 10

// The vocabulary takes 7 MB of memory once it is loaded.
var vocabulary = sync.OnceValue(codec.NewO200kBase)

// CountTokens returns how many tokens a model reads for text. It counts with
// the o200k_base vocabulary of GPT-4o and its successors; for other models the
// number is an estimate. Text above 32 KiB is counted in pieces, which may add a
// token for each. The first call loads the vocabulary, which stays in memory;
// every call takes about 0.1 ms per KiB, so numbers are worth keeping. It is safe
// for concurrent use.
func CountTokens(text []byte) int {
	count := 0
	for len(text) > 0 {
		n := piece(text)
		tokens, err := vocabulary().Count(string(text[:n]))
		if err != nil { // the tokenizer gave up: four bytes a token are usual
			tokens = (n + 3) / 4
		}
		count += tokens
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
