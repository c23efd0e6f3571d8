package tool

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

func TestCountTokens(t *testing.T) {
	for _, test := range []struct {
		text string
		want int
	}{
		{"", 0},
		{"hello world", 2},
		{"Hello, world!", 4},
		{"create_issue", 2},
		{`{"type":"object"}`, 5},
		{"tiktoken is great!", 6},
	} {
		if got := CountTokens([]byte(test.text)); got != test.want {
			t.Errorf("CountTokens(%q) = %d, want %d", test.text, got, test.want)
		}
	}
}

// Counting in pieces must not change the number by more than a token a piece.
func TestCountTokensOfLongText(t *testing.T) {
	sentence := "Creates an issue in a repository; 12 labels at most. "
	one, n := CountTokens([]byte(sentence)), 5000
	text := []byte(strings.Repeat(sentence, n))
	pieces := len(text)/maxPiece + 1
	got, want := CountTokens(text), one*n
	if got < want-n || got > want+pieces { // a sentence's last space joins the next word
		t.Errorf("%d tokens for %d sentences of %d", got, n, one)
	}
}

func TestPieceCutsBetweenCharacters(t *testing.T) {
	for name, text := range map[string]string{
		"spaces":      strings.Repeat(" ", 3*maxPiece),
		"words":       strings.Repeat("word ", maxPiece),
		"one word":    strings.Repeat("x", 3*maxPiece+1),
		"two bytes":   "x" + strings.Repeat("é", 2*maxPiece),
		"three bytes": strings.Repeat("漢", maxPiece),
		"emoji":       "ab" + strings.Repeat("🦜", maxPiece),
		"no UTF-8":    strings.Repeat("\x80", 2*maxPiece),
	} {
		t.Run(name, func(t *testing.T) {
			var pieces []string
			for rest := []byte(text); len(rest) > 0; {
				n := piece(rest)
				if n < 1 || n > maxPiece {
					t.Fatalf("piece of %d bytes", n)
				}
				pieces, rest = append(pieces, string(rest[:n])), rest[n:]
			}
			for i, p := range pieces {
				if name != "no UTF-8" && strings.ToValidUTF8(p, "") != p {
					t.Errorf("piece %d of %d cuts a character", i, len(pieces))
				}
			}
		})
	}
}

func TestCountTokensConcurrently(t *testing.T) {
	text := []byte(strings.Repeat("search the code of a repository ", 50))
	want := CountTokens(text)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if got := CountTokens(text); got != want {
				t.Errorf("%d tokens, want %d", got, want)
			}
		})
	}
	all.Wait()
}

func BenchmarkCountTokens(b *testing.B) {
	for _, text := range []struct{ name, text string }{
		{"tool", strings.Repeat(`{"name":"create_issue","description":"Create an issue in a repository"} `, 16)},
		{"blob", strings.Repeat("aB3x9Qz", 150_000)},
		{"letter", strings.Repeat("a", 1<<20)},
		{"spaces", strings.Repeat(" ", 1<<20)},
		{"han", strings.Repeat("漢", 350_000)},
		{"marks", strings.Repeat("!", 1<<20)},
	} {
		b.Run(fmt.Sprintf("%s/%dKiB", text.name, len(text.text)>>10), func(b *testing.B) {
			b.SetBytes(int64(len(text.text)))
			for b.Loop() {
				CountTokens([]byte(text.text))
			}
		})
	}
}
