package o200k

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
	"github.com/tiktoken-go/tokenizer/codec"

	"toolfinch/internal/must"
)

var update = flag.Bool("update", false, "write the vocabulary anew")

// TestVocabulary: the embedded vocabulary is that of the library.
func TestVocabulary(t *testing.T) {
	library := codec.NewO200kBase()
	var tokens []string
	ranks := map[string]uint32{}
	for {
		token, err := library.Decode([]uint{uint(len(tokens))})
		if err != nil {
			break
		}
		ranks[token] = uint32(len(tokens))
		tokens = append(tokens, token)
	}
	if *update {
		must.Do(t, os.WriteFile("vocabulary.deflate", encoded(t, slices.Sorted(maps.Keys(ranks)), ranks), 0o644))
		return
	}
	v := loaded()
	if len(v.ends) != len(tokens) || len(tokens) < 190_000 {
		t.Fatalf("%d tokens, the library has %d", len(v.ends), len(tokens))
	}
	for rank, token := range tokens {
		if got := v.rank([]byte(token)); got != uint32(rank) {
			t.Fatalf("rank of %q: %d, want %d", token, got, rank)
		}
	}
}

// encoded is the vocabulary as load reads it.
func encoded(t *testing.T, sorted []string, ranks map[string]uint32) []byte {
	var shared, others, high, low, text []byte
	last := ""
	for _, token := range sorted {
		n := 0
		for n < min(len(last), len(token)) && last[n] == token[n] {
			n++
		}
		shared, others = append(shared, byte(n)), append(others, byte(len(token)-n))
		high, low = append(high, byte(ranks[token]>>16)), binary.BigEndian.AppendUint16(low, uint16(ranks[token]))
		text = append(text, token[n:]...)
		last = token
	}
	var out bytes.Buffer
	to := must.Get(flate.NewWriter(&out, flate.BestCompression))(t)
	all := slices.Concat(binary.BigEndian.AppendUint32(nil, uint32(len(sorted))), shared, others, high, low, text)
	must.Get(to.Write(all))(t)
	must.Do(t, to.Close())
	return out.Bytes()
}

// texts are about what the rules tell apart.
var texts = []string{
	"", " ", "  ", "\n", " \n ", "a\r\n\r\n  b", "hello world", "tiktoken is great!", "ABCdefGHI", "HTTPServer's", "WE'LL they'Re I'd 'tis x'ſ", "x'",
	"12345678 3.14", "a  b", "a \t b ", "//path/to/x\n\n/", " //", "!?\n\n", "  ...", "über ÜBER Über", "日本語のテキスト", "e\u0301\u0301A", "\u0301A", "\u0301", "ʰX", "XʰY'S",
	"ǅabc ǅ", "\u00a0\u2003x", "١٢٣٤ Ⅻ", "🙂🙂👩‍👩‍👧", "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"}}}",
	"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "qzxjqzxjvkwq", "\x00\x01\x7f", "K\u212a's",
	"ภาษาไทย ไม่มีช่องว่าง", "العربية تُكتب", "हिन्दी में", "한국어 텍스트", "snake_case_and-kebab", "    indent\n\tTab\n",
	"\v\f\u0085x", " '", "don’t", "I'LLx", "a'Ve", "\u180ex", "\u200bx\u2028y",
}

// rules are those of o200k_base. The group keeps the engine that the library generated of
// them away, which makes nothing of U+007F and two words of "\n \n".
var rules = regexp2.MustCompile(`(?:[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|`+
	`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|`+
	`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)`, regexp2.None)

// FuzzCount compares words with those of the rules, and the tokens of each with the
// library's.
func FuzzCount(f *testing.F) {
	for _, text := range texts {
		f.Add(text)
	}
	library := codec.NewO200kBase()
	f.Fuzz(func(t *testing.T, text string) {
		whole := Count([]byte(text))
		if !utf8.ValidString(text) {
			return // how the library takes that is its own affair
		}
		sum := 0
		for rest := text; rest != ""; {
			word := rest[:split([]byte(rest))]
			match := must.Get(rules.FindStringMatch(rest))(t)
			// The rule for white space looks at what follows, and no rule at what is before.
			if match.String() != word {
				t.Fatalf("%q begins with the word %q, by the rules %q", rest, word, match.String())
			}
			rest = rest[len(word):]
			n := Count([]byte(word))
			sum += n
			if strings.ContainsAny(word, "\x7f") || strings.TrimSpace(word) == "" {
				continue
			}
			if want, err := library.Count(word); err == nil && n != want {
				t.Fatalf("Count(%q) = %d, the library counts %d", word, n, want)
			}
		}
		if whole != sum {
			t.Errorf("Count(%q) = %d, of its words %d", text, whole, sum)
		}
	})
}

// BenchmarkLoad is what the first count costs.
func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		load()
	}
}
