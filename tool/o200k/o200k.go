// Package o200k splits text into the tokens of o200k_base, the vocabulary of GPT-4o and its
// successors. It only counts them: nothing here needs their numbers.
//
// It exists because the vocabulary as a Go map, which is what libraries for it have, is 5 MB
// of the binary. Here it is compressed, 0.8 MB, and decoded when the first text is counted.
// Its tests compare it with such a library.
package o200k

import (
	"bytes"
	"compress/flate"
	_ "embed"
	"encoding/binary"
	"hash/maphash"
	"io"
	"math"
	"sync"
)

// compressed has the tokens sorted, as deflate: how many there are (4 bytes), what each shares
// with the one before and how many bytes it has beside that (a byte each), all ranks (their
// upper 8 bits, then their lower 16), and all of these other bytes. Numbers are big endian.
// TestVocabulary writes it.
//
//go:embed vocabulary.deflate
var compressed []byte

// vocabulary finds the rank of a token.
type vocabulary struct {
	text   []byte   // all tokens, sorted
	ends   []uint32 // of each in text
	ranks  []uint32
	seed   maphash.Seed
	places []uint32 // a hash table with open addressing: the index of a token, plus 1
}

// noRank is the rank of what is no token.
const noRank = math.MaxUint32

var loaded = sync.OnceValue(load)

func load() *vocabulary {
	all, err := io.ReadAll(flate.NewReader(bytes.NewReader(compressed)))
	if err != nil {
		panic("o200k: the embedded vocabulary: " + err.Error())
	}
	n := int(binary.BigEndian.Uint32(all))
	all = all[4:]
	take := func(n int) (part []byte) {
		part, all = all[:n], all[n:]
		return part
	}
	shared, others, high, low := take(n), take(n), take(n), take(2*n)
	length := len(all)
	for _, of := range shared {
		length += int(of)
	}
	v := &vocabulary{text: make([]byte, 0, length), ends: make([]uint32, n), ranks: make([]uint32, n), seed: maphash.MakeSeed(), places: make([]uint32, 1<<19)}
	last := 0
	for i := range n {
		start := len(v.text)
		v.text = append(v.text, v.text[last:last+int(shared[i])]...)
		v.text = append(v.text, take(int(others[i]))...)
		v.ends[i] = uint32(len(v.text))
		v.ranks[i] = uint32(high[i])<<16 | uint32(binary.BigEndian.Uint16(low[2*i:]))
		at := v.hash(v.text[start:])
		for v.places[at] != 0 {
			at = (at + 1) % uint32(len(v.places))
		}
		v.places[at] = uint32(i) + 1
		last = start
	}
	return v
}

// hash is where the search for a token begins.
func (v *vocabulary) hash(token []byte) uint32 {
	return uint32(maphash.Bytes(v.seed, token)) % uint32(len(v.places))
}

// rank of a token; noRank for what is none.
func (v *vocabulary) rank(token []byte) uint32 {
	for at := v.hash(token); v.places[at] != 0; at = (at + 1) % uint32(len(v.places)) {
		i, start := v.places[at]-1, uint32(0)
		if i > 0 {
			start = v.ends[i-1]
		}
		if string(v.text[start:v.ends[i]]) == string(token) {
			return v.ranks[i]
		}
	}
	return noRank
}

// Count returns how many tokens text is. Beside the text it holds 24 bytes for each byte of
// its longest word. It is safe for concurrent use; the first call loads the vocabulary.
func Count(text []byte) (n int) {
	v := loaded()
	var m merger
	for len(text) > 0 {
		length := split(text)
		n += m.count(v, text[:length])
		text = text[length:]
	}
	return n
}

// merger has the room for byte pair encoding, from one word to the next.
type merger struct {
	prev, next []int32 // parts of the word that are beside the one that begins at an index
	heap       []uint64
}

// count returns of how many tokens a word consists. Parts that are together a token become
// one, those of the lowest rank first, and of these the leftmost.
func (m *merger) count(v *vocabulary, word []byte) int {
	if len(word) == 1 || v.rank(word) != noRank {
		return 1
	}
	n := int32(len(word))
	m.prev, m.next, m.heap = m.prev[:0], m.next[:0], m.heap[:0]
	for i := range n {
		m.prev, m.next = append(m.prev, i-1), append(m.next, i+1)
	}
	// with is the rank of the part at i with the next one.
	with := func(i int32) uint32 {
		if j := m.next[i]; j < n {
			return v.rank(word[i:m.next[j]])
		}
		return noRank
	}
	offer := func(i int32) {
		if rank := with(i); rank != noRank {
			m.push(uint64(rank)<<32 | uint64(i))
		}
	}
	for i := range n {
		offer(i)
	}
	parts := int(n)
	for len(m.heap) > 0 {
		least := m.pop()
		i := int32(uint32(least))
		// What was offered may have changed since, or be a part of another by now.
		if m.next[i] < 0 || with(i) != uint32(least>>32) {
			continue
		}
		gone := m.next[i]
		after := m.next[gone]
		m.next[i], m.next[gone] = after, -1
		if after < n {
			m.prev[after] = i
		}
		parts--
		offer(i)
		if m.prev[i] >= 0 {
			offer(m.prev[i])
		}
	}
	return parts
}

// push and pop are of a binary heap, the least first.
func (m *merger) push(value uint64) {
	m.heap = append(m.heap, value)
	h := m.heap
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if h[parent] <= h[i] {
			return
		}
		h[parent], h[i] = h[i], h[parent]
		i = parent
	}
}

func (m *merger) pop() uint64 {
	h := m.heap
	least := h[0]
	last := len(h) - 1
	h[0], h = h[last], h[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1] < h[child] {
			child++
		}
		if h[i] <= h[child] {
			break
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
	m.heap = h
	return least
}
