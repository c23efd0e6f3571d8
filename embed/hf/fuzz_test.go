package hf

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"toolfinch/internal/must"
)

// What holds for every text, valid UTF-8 or not.
func FuzzTokenizer(f *testing.F) {
	var golden []tokenized
	readTestdata(f, "tokens.json", &golden)
	for i, g := range golden {
		f.Add(g.text(), golden[(i+1)%len(golden)].text(), uint16(i))
	}
	for line := range lines(f, "random.jsonl") {
		var g []string
		must.Do(f, json.Unmarshal([]byte(line), &g))
		f.Add(g[0], g[1], uint16(len(g[0])))
	}
	clear := openClear(f)
	small := openTokens(f, "testdata/tiny-f32/tokenizer.json")
	f.Fuzz(func(t *testing.T, a, b string, limit uint16) {
		for name, tokens := range map[string]*tokenizer{"clear": clear, "small": small} {
			idsA := checkIDs(t, name, tokens, a)
			idsB := checkIDs(t, name, tokens, b)
			joined := slices.Concat(idsA[:len(idsA)-1], idsB[1:])
			if got := tokens.encode(a+" "+b, everything); !slices.Equal(got, joined) {
				t.Errorf("%s: %+q and %+q, joined by a space: got %v, want %v", name, a, b, got, joined)
			}
			most := 2 + int(limit)
			want := idsA
			if most < len(idsA) {
				want = append(slices.Clone(idsA[:most-1]), idsA[len(idsA)-1])
			}
			if got := tokens.encode(a, most); !slices.Equal(got, want) {
				t.Errorf("%s: %+q, at most %d tokens: got %v, want %v", name, a, most, got, want)
			}
		}
	})
}

// checkIDs returns the tokens of a text that nothing cuts.
func checkIDs(t *testing.T, name string, tokens *tokenizer, text string) []int32 {
	t.Helper()
	const pad, cls, sep, mask = 0, 2, 3, 4
	ids := tokens.encode(text, everything)
	if len(ids) < 2 || ids[0] != cls || ids[len(ids)-1] != sep {
		t.Fatalf("%s: %+q: %v does not begin with %d and end with %d", name, text, ids, cls, sep)
	}
	for _, id := range ids[1 : len(ids)-1] {
		switch {
		case id < 0 || int(id) > 2*0x33480+clearIDs:
			t.Errorf("%s: %+q: %d is no token", name, text, id)
		case id == pad || id == cls || id == sep || id == mask:
			t.Errorf("%s: %+q: the special token %d came out of a text", name, text, id)
		}
	}
	// A canonical decomposition has four code points at most.
	if most := 2 + 4*utf8.RuneCountInString(text); len(ids) > most {
		t.Errorf("%s: %+q: %d tokens, want at most %d", name, text, len(ids), most)
	}
	if again := tokens.encode(text, everything); !slices.Equal(again, ids) {
		t.Errorf("%s: %+q: %v, then %v", name, text, ids, again)
	}
	if valid := strings.ToValidUTF8(text, "\ufffd"); !slices.Equal(tokens.encode(valid, everything), ids) {
		t.Errorf("%s: %+q: an invalid byte is not read as U+FFFD", name, text)
	}
	return ids
}

// Whatever stands in a header, the tensors it gives lie within the file.
func FuzzWeightsHeader(f *testing.F) {
	f.Add([]byte(`{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}`), int64(24))
	f.Add([]byte(`{"__metadata__":{"format":"pt"},"a":{"dtype":"F16","shape":[],"data_offsets":[0,2]},"b":{"dtype":"BF16","shape":[0],"data_offsets":[2,2]}}`), int64(2))
	f.Add([]byte(`{"a":{"dtype":"I64","shape":[9223372036854775807,2],"data_offsets":[0,8]}}`), int64(8))
	f.Add([]byte(`{"a":{"data_offsets":[-9223372036854775808,9223372036854775807]}}`), int64(8))
	f.Add([]byte(`{"a":null}`), int64(0))
	f.Add([]byte(`{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,25]}}`), int64(48))
	f.Fuzz(func(t *testing.T, header []byte, size int64) {
		tensors, _, err := parseHeader(header, max(size, 0))
		if err != nil {
			return
		}
		for name, info := range tensors {
			from, to := info.Offsets[0], info.Offsets[1]
			if from < 0 || to < from || to > max(size, 0) {
				t.Errorf("%q lies at %d to %d of %d bytes", name, from, to, size)
			}
			if width := widths[info.Type]; width > 0 && info.length() >= 0 && info.length()*width != to-from {
				t.Errorf("%q: shape %v of %s in %d bytes", name, info.Shape, info.Type, to-from)
			}
		}
	})
}
