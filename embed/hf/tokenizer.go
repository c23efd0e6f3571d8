package hf

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
	"golang.org/x/text/unicode/rangetable"
)

// tokenizer is BERT's: basic tokens, then WordPiece (Devlin et al. 2018), with the results of the reference
// implementation, Hugging Face's tokenizers. Special tokens in a text are plain text: a tool's description must not
// end the sequence.
type tokenizer struct {
	vocabulary   map[string]int32
	continuation string // prefix of a piece within a word
	unknown      int32
	first, last  int32 // [CLS] and [SEP]
	maxWord      int   // characters; a longer word is unknown

	lower, strip, split, clean bool // case, accents, Chinese characters, control characters
}

// openTokenizer reads tokenizer.json of a model's folder or, if it is missing, vocab.txt.
func openTokenizer(name string) (*tokenizer, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return openVocabulary(filepath.Join(filepath.Dir(name), "vocab.txt"))
	}
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	t, err := parseTokenizer(text)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return t, nil
}

func parseTokenizer(text []byte) (*tokenizer, error) {
	var file struct {
		Normalizer struct {
			Type    string
			Clean   *bool `json:"clean_text"`
			Chinese *bool `json:"handle_chinese_chars"`
			Strip   *bool `json:"strip_accents"`
			Lower   *bool `json:"lowercase"`
		}
		PreTokenizer struct{ Type string } `json:"pre_tokenizer"`
		Model        struct {
			Type    string
			Unknown string           `json:"unk_token"`
			Prefix  *string          `json:"continuing_subword_prefix"`
			MaxWord int              `json:"max_input_chars_per_word"`
			Words   map[string]int32 `json:"vocab"`
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	for _, part := range []struct{ what, is, want string }{
		{"model", file.Model.Type, "WordPiece"},
		{"normalizer", file.Normalizer.Type, "BertNormalizer"},
		{"pre_tokenizer", file.PreTokenizer.Type, "BertPreTokenizer"},
	} {
		// Older files have no type for the model.
		if part.is != part.want && (part.what != "model" || part.is != "") {
			return nil, fmt.Errorf("%s is %q; only %s is supported", part.what, part.is, part.want)
		}
	}
	or := func(b *bool, otherwise bool) bool {
		if b == nil {
			return otherwise
		}
		return *b
	}
	t := &tokenizer{vocabulary: file.Model.Words, continuation: "##", maxWord: file.Model.MaxWord}
	if file.Model.Prefix != nil {
		t.continuation = *file.Model.Prefix
	}
	t.lower = or(file.Normalizer.Lower, true)
	t.strip = or(file.Normalizer.Strip, t.lower)
	t.split = or(file.Normalizer.Chinese, true)
	t.clean = or(file.Normalizer.Clean, true)
	return t.finish(file.Model.Unknown)
}

// openVocabulary reads a vocabulary with one piece per line, and its case from tokenizer_config.json beside it.
func openVocabulary(name string) (*tokenizer, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	t := &tokenizer{vocabulary: make(map[string]int32), continuation: "##", lower: true, split: true, clean: true}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		t.vocabulary[lines.Text()] = int32(len(t.vocabulary))
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("tokenizer: vocab.txt: %w", err)
	}
	config := struct {
		Lower   *bool `json:"do_lower_case"`
		Chinese *bool `json:"tokenize_chinese_chars"`
		Strip   *bool `json:"strip_accents"`
	}{}
	if err := readJSON(filepath.Join(filepath.Dir(name), "tokenizer_config.json"), &config); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	if config.Lower != nil {
		t.lower = *config.Lower
	}
	if config.Chinese != nil {
		t.split = *config.Chinese
	}
	t.strip = t.lower
	if config.Strip != nil {
		t.strip = *config.Strip
	}
	return t.finish("")
}

// finish finds the special tokens.
func (t *tokenizer) finish(unknown string) (*tokenizer, error) {
	unknown = cmp.Or(unknown, "[UNK]")
	t.maxWord = cmp.Or(t.maxWord, 100)
	for _, special := range []struct {
		text string
		id   *int32
	}{{unknown, &t.unknown}, {"[CLS]", &t.first}, {"[SEP]", &t.last}} {
		id, ok := t.vocabulary[special.text]
		if !ok {
			return nil, fmt.Errorf("tokenizer: the vocabulary has no %s", special.text)
		}
		*special.id = id
	}
	return t, nil
}

// encode returns the numbers of the tokens, [CLS] first and [SEP] last, at
// most limit of them. Invalid UTF-8 reads as U+FFFD, which is dropped.
func (t *tokenizer) encode(text string, limit int) []int32 {
	ids := append(make([]int32, 0, min(limit, len(text)/3+4)), t.first)
	t.eachWord(text, func(word string) bool {
		ids = t.pieces(ids, word)
		return len(ids) < limit-1
	})
	return append(ids[:min(len(ids), limit-1)], t.last)
}

// eachWord calls do with the basic tokens of text until it returns false.
func (t *tokenizer) eachWord(text string, do func(string) bool) {
	for field := range strings.FieldsFuncSeq(t.normalize(text), unicode.IsSpace) {
		for field != "" {
			end := strings.IndexFunc(field, isPunctuation)
			if end == 0 {
				_, end = utf8.DecodeRuneInString(field)
			} else if end < 0 {
				end = len(field)
			}
			if !do(field[:end]) {
				return
			}
			field = field[end:]
		}
	}
}

// normalize does the steps of the reference's BertNormalizer, in its order.
func (t *tokenizer) normalize(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	for _, r := range text {
		switch {
		case t.clean && (r == 0 || r == utf8.RuneError || isControl(r)):
		case t.clean && unicode.IsSpace(r):
			b.WriteByte(' ')
		case t.split && isChinese(r):
			b.WriteByte(' ')
			b.WriteRune(r)
			b.WriteByte(' ')
		default:
			b.WriteRune(r)
		}
	}
	text = b.String()
	if t.strip {
		text = strings.Map(func(r rune) rune {
			if isMark(r) {
				return -1
			}
			return r
		}, norm.NFD.String(text))
	}
	if t.lower {
		// Per letter: a final sigma is like any other.
		text = strings.Map(unicode.ToLower, strings.ReplaceAll(text, "\u0130", "i\u0307"))
	}
	return text
}

// isControl reports classes Cc, Cf, Co and Cs, except white space.
func isControl(r rune) bool {
	if r == '\t' || r == '\n' || r == '\r' {
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs) && unicode.Is(classified, r)
}

// isPunctuation reports ASCII symbols and punctuation, and other punctuation.
func isPunctuation(r rune) bool {
	if r < utf8.RuneSelf {
		return '!' <= r && r <= '/' || ':' <= r && r <= '@' || '[' <= r && r <= '`' || '{' <= r && r <= '~'
	}
	return (unicode.IsPunct(r) || r == 0x166D || r == 0x111C9) && unicode.Is(classified, r)
}

// isChinese reports whether r is a CJK ideograph; each ideograph is a word. The gap from 2B820 to 2B91F is the
// reference's.
func isChinese(r rune) bool {
	switch {
	case r < 0x3400:
		return false
	case r <= 0x4DBF, 0x4E00 <= r && r <= 0x9FFF, 0xF900 <= r && r <= 0xFAFF,
		0x20000 <= r && r <= 0x2A6DF, 0x2A700 <= r && r <= 0x2B73F, 0x2B740 <= r && r <= 0x2B81F,
		0x2B920 <= r && r <= 0x2CEAF, 0x2F800 <= r && r <= 0x2FA1F:
		return true
	}
	return false
}

// pieces appends the pieces of a word, the longest first; a word that cannot be split into pieces is unknown as a
// whole.
func (t *tokenizer) pieces(ids []int32, word string) []int32 {
	if len(word) > t.maxWord && utf8.RuneCountInString(word) > t.maxWord {
		return append(ids, t.unknown)
	}
	before := len(ids)
	var piece []byte
	for start := 0; start < len(word); {
		piece = piece[:0]
		if start > 0 {
			piece = append(piece, t.continuation...)
		}
		prefix := len(piece)
		piece = append(piece, word[start:]...)
		id, found := t.longest(&piece, prefix)
		if !found {
			return append(ids[:before], t.unknown)
		}
		ids = append(ids, id)
		start += len(piece) - prefix
	}
	return ids
}

// longest shortens piece to the longest known piece that is more than its prefix.
func (t *tokenizer) longest(piece *[]byte, prefix int) (int32, bool) {
	for p := *piece; len(p) > prefix; {
		if id, ok := t.vocabulary[string(p)]; ok {
			*piece = p
			return id, true
		}
		_, size := utf8.DecodeLastRune(p)
		p = p[:len(p)-size]
	}
	return 0, false
}

// classified are the code points that the reference classifies, by Unicode 8. Later code points are neither mark,
// control nor punctuation.
var classified = rangetable.Assigned("8.0.0")

// isMark is true of the class Mn, as it was in Unicode 8.
func isMark(r rune) bool {
	switch r {
	case 0x1734: // Mc since
		return true
	case 0x1885, 0x1886, 0xA9BD, 0x111C9: // Mn since
		return false
	}
	return unicode.Is(unicode.Mn, r) && unicode.Is(classified, r)
}
