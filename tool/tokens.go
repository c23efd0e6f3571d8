package tool

import (
	"sync"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer/codec"
)

// The splitting expression and the merging of byte pairs take more than linear
// time on long input, so text goes to them in pieces: cut before white space,
// or where there is none for maxRun bytes, anywhere between two characters.
const (
	maxPiece = 100000000
	maxRun   = 100000000
)

var vocabulary = sync.OnceValue(codec.NewO200kBase)

// CountTokens returns how many tokens a model reads for text. It counts with
// the o200k_base vocabulary (GPT-4o and later of that family); other models
// count differently, mostly within a fifth. Text without white space is counted
// in pieces, which may add one token to each. The vocabulary is loaded by the
// first call and stays in memory. It is safe for concurrent use.
func CountTokens(text []byte) int {
	count := 0
	for len(text) > 0 {
		n := piece(text)
		c, err := vocabulary().Count(string(text[:n]))
		if err != nil { // the expression gave up: four bytes a token
			c = (n + 3) / 4
		}
		count += c
		text = text[n:]
	}
	return count
}

// piece returns the length of the first piece of text, at least 1.
func piece(text []byte) int {
	space := 0 // where the current run of text without white space began
	for i, b := range text {
		switch {
		case b == ' ' || b == '\n' || b == '\t' || b == '\r':
			if i >= maxPiece {
				return i
			}
			space = i
		case i-space >= maxRun && utf8.RuneStart(b):
			return i
		}
	}
	return len(text)
}
