package demo

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/server"
	"golang.org/x/text/unicode/norm"
)

const (
	maxText    = 1 << 20   // bytes of one argument
	maxResult  = 4 << 20   // bytes of one answer
	maxMatches = 1000      // matches in one answer
	maxCells   = 4_000_000 // lines times lines that diff compares
)

type textArgs struct {
	Text string `json:"text" jsonschema:"The text, up to 1 MiB"`
}

type counts struct {
	Words      int `json:"words" jsonschema:"Words parted by white space"`
	Lines      int `json:"lines" jsonschema:"Lines"`
	Characters int `json:"characters" jsonschema:"Unicode code points, white space included"`
	Bytes      int `json:"bytes" jsonschema:"Bytes in UTF-8"`
	Sentences  int `json:"sentences" jsonschema:"Sentences, roughly: words that end with . ! or ?"`
}

type caseArgs struct {
	textArgs
	To string `json:"to" jsonschema:"Form to bring it in; camel to constant join the words,enum=upper,enum=lower,enum=title,enum=sentence,enum=camel,enum=pascal,enum=snake,enum=kebab,enum=constant"`
}

type patternArgs struct {
	textArgs
	Pattern    string `json:"pattern" jsonschema:"Regular expression (RE2 syntax); (?m) makes ^ and $ match at lines"`
	IgnoreCase bool   `json:"ignore_case,omitempty" jsonschema:"Treat capital and small letters alike"`
}

type replaceArgs struct {
	patternArgs
	Replacement string `json:"replacement" jsonschema:"Text in place of each match; $1 or ${name} stand for groups and $$ for a dollar sign"`
}

type match struct {
	Text   string   `json:"text" jsonschema:"What matched"`
	Groups []string `json:"groups" jsonschema:"What the groups of the pattern matched"`
	Line   int      `json:"line" jsonschema:"Line it begins in, counting from 1"`
}

type matches struct {
	Matches []match `json:"matches" jsonschema:"The first 1000 matches"`
	Total   int     `json:"total" jsonschema:"How many there are"`
}

type diffArgs struct {
	A string `json:"a" jsonschema:"Old text"`
	B string `json:"b" jsonschema:"New text"`
}

type textDiff struct {
	Equal   bool   `json:"equal" jsonschema:"Whether the texts are the same"`
	Added   int    `json:"added" jsonschema:"Lines that only the new text has"`
	Removed int    `json:"removed" jsonschema:"Lines that only the old text has"`
	Diff    string `json:"diff" jsonschema:"The changes with three lines around each, in unified format; empty if equal"`
}

type codecArgs struct {
	textArgs
	Format string `json:"format" jsonschema:"Encoding to use,enum=base64,enum=base64url,enum=hex,enum=url"`
}

type hashArgs struct {
	textArgs
	Algorithm string `json:"algorithm" jsonschema:"Hash function; md5 and sha1 and crc32 are for checksums and not for security,enum=sha256,enum=sha512,enum=sha1,enum=md5,enum=crc32"`
}

type hashed struct {
	Hex string `json:"hex" jsonschema:"The hash of the text in UTF-8 as hexadecimal digits"`
}

type jsonArgs struct {
	JSON string `json:"json" jsonschema:"A JSON document, up to 1 MiB"`
}

type formatJSONArgs struct {
	jsonArgs
	Style string `json:"style,omitempty" jsonschema:"How to write it (default indented),enum=indented,enum=compact"`
}

type pointerArgs struct {
	jsonArgs
	Pointer string `json:"pointer" jsonschema:"JSON Pointer (RFC 6901) such as /items/0/name; the empty string is the whole document"`
}

func newText(string) (*server.MCPServer, func() error, error) {
	s := newServer("text", "Works on the text given in the call and keeps nothing.")
	add(s, "count", "Count words", "Counts words, lines, characters, bytes and sentences of a text.", reads, count)
	add(s, "change_case", "Change case", "Changes capital and small letters of a text: upper, lower, title, camelCase, snake_case and others.", reads, changeCase)
	add(s, "replace", "Replace in text", "Replaces every match of a regular expression in a text.", reads, replace)
	add(s, "find_matches", "Find in text", "Finds every match of a regular expression in a text, with its groups and line number.", reads, findMatches)
	add(s, "diff", "Compare texts", "Compares two texts line by line and shows what was added and removed.", reads, diff)
	add(s, "encode", "Encode text", "Encodes a text as base64, hexadecimal or for a URL.", reads, encode)
	add(s, "decode", "Decode text", "Decodes base64, hexadecimal or a URL-encoded text.", reads, decode)
	add(s, "hash", "Hash text", "Computes the SHA-256, SHA-512, SHA-1, MD5 or CRC-32 checksum of a text.", reads, hashText)
	add(s, "slugify", "Make a slug", "Turns a title into a slug for addresses and file names: small letters, digits and hyphens, without accents.", reads, slugify)
	add(s, "format_json", "Format JSON", "Checks a JSON document and pretty-prints it or removes its white space. Keys keep their order.", reads, formatJSON)
	add(s, "query_json", "Read from JSON", "Returns the part of a JSON document that a JSON Pointer names.", reads, queryJSON)
	return s, nothingToClose, nil
}

func count(_ context.Context, in textArgs) (counts, error) {
	if err := atMost(maxText, "the text", in.Text); err != nil {
		return counts{}, err
	}
	out := counts{Characters: utf8.RuneCountInString(in.Text), Bytes: len(in.Text)}
	for word := range strings.FieldsSeq(in.Text) {
		out.Words++
		if strings.ContainsAny(word[len(word)-1:], ".!?") {
			out.Sentences++
		}
	}
	for range strings.Lines(in.Text) {
		out.Lines++
	}
	return out, nil
}

func changeCase(_ context.Context, in caseArgs) (string, error) {
	if err := atMost(maxText, "the text", in.Text); err != nil {
		return "", err
	}
	switch in.To {
	case "upper":
		return strings.ToUpper(in.Text), nil
	case "lower":
		return strings.ToLower(in.Text), nil
	case "title":
		return capitalize(in.Text, func(before rune) bool { return before == 0 || unicode.IsSpace(before) }), nil
	case "sentence":
		ended := true // a sentence has, and the next has not begun
		return strings.Map(func(r rune) rune {
			switch {
			case strings.ContainsRune(".!?", r):
				ended = true
			case unicode.IsLetter(r) && ended:
				ended = false
				return unicode.ToUpper(r)
			case unicode.IsDigit(r):
				ended = false
			}
			return unicode.ToLower(r)
		}, in.Text), nil
	}
	parts := identifierWords(in.Text)
	for i, part := range parts {
		if in.To == "pascal" || in.To == "camel" && i > 0 {
			parts[i] = capitalize(part, func(before rune) bool { return before == 0 })
		}
	}
	switch in.To {
	case "camel", "pascal":
		return strings.Join(parts, ""), nil
	case "snake":
		return strings.Join(parts, "_"), nil
	case "kebab":
		return strings.Join(parts, "-"), nil
	case "constant":
		return strings.ToUpper(strings.Join(parts, "_")), nil
	}
	return "", fmt.Errorf("unknown case %q", in.To)
}

// capitalize makes the letters large that begin something, and all others small.
func capitalize(text string, begins func(before rune) bool) string {
	var before rune
	return strings.Map(func(r rune) rune {
		first := begins(before)
		before = r
		if first {
			return unicode.ToTitle(r)
		}
		return unicode.ToLower(r)
	}, text)
}

// identifierWords splits at everything that is no letter or digit, and where a
// capital letter begins a word: "parseHTTPRequest" has three.
func identifierWords(text string) (out []string) {
	runes := []rune(text)
	start := -1
	end := func(i int) {
		if start >= 0 {
			out = append(out, strings.ToLower(string(runes[start:i])))
		}
		start = -1
	}
	for i, r := range runes {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) {
			end(i)
			continue
		}
		if start >= 0 && unicode.IsUpper(r) &&
			(!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			end(i)
		}
		if start < 0 {
			start = i
		}
	}
	end(len(runes))
	return out
}

func replace(_ context.Context, in replaceArgs) (string, error) {
	if err := errors.Join(atMost(maxText, "the text", in.Text), atMost(10_000, "the replacement", in.Replacement)); err != nil {
		return "", err
	}
	re, err := expression(in.Pattern, in.IgnoreCase)
	if err != nil {
		return "", err
	}
	// Not ReplaceAll: its result may be a hundred thousand times as long.
	var out []byte
	last := 0
	for _, at := range re.FindAllStringSubmatchIndex(in.Text, -1) {
		out = append(out, in.Text[last:at[0]]...)
		out = re.ExpandString(out, in.Replacement, in.Text, at)
		last = at[1]
		if len(out) > maxResult {
			return "", fmt.Errorf("the result is larger than %d bytes", maxResult)
		}
	}
	return string(append(out, in.Text[last:]...)), nil
}

func findMatches(_ context.Context, in patternArgs) (matches, error) {
	out := matches{Matches: []match{}}
	if err := atMost(maxText, "the text", in.Text); err != nil {
		return out, err
	}
	re, err := expression(in.Pattern, in.IgnoreCase)
	if err != nil {
		return out, err
	}
	line, last, size := 1, 0, 0
	for _, at := range re.FindAllStringSubmatchIndex(in.Text, -1) {
		if out.Total++; len(out.Matches) == maxMatches || size > maxResult {
			continue
		}
		line += strings.Count(in.Text[last:at[0]], "\n")
		last = at[0]
		m := match{Text: in.Text[at[0]:at[1]], Groups: []string{}, Line: line}
		for i := 2; i < len(at); i += 2 {
			group := ""
			if at[i] >= 0 { // -1 where a group took no part
				group = in.Text[at[i]:at[i+1]]
			}
			m.Groups = append(m.Groups, group)
			size += len(group)
		}
		size += len(m.Text)
		out.Matches = append(out.Matches, m)
	}
	return out, nil
}

func encode(_ context.Context, in codecArgs) (string, error) {
	if err := atMost(maxText, "the text", in.Text); err != nil {
		return "", err
	}
	switch in.Format {
	case "base64":
		return base64.StdEncoding.EncodeToString([]byte(in.Text)), nil
	case "base64url":
		return base64.RawURLEncoding.EncodeToString([]byte(in.Text)), nil
	case "hex":
		return hex.EncodeToString([]byte(in.Text)), nil
	case "url":
		return strings.ReplaceAll(url.QueryEscape(in.Text), "+", "%20"), nil
	}
	return "", fmt.Errorf("unknown format %q", in.Format)
}

func decode(_ context.Context, in codecArgs) (string, error) {
	if err := atMost(maxText, "the text", in.Text); err != nil {
		return "", err
	}
	var out []byte
	var err error
	text := strings.Join(strings.Fields(in.Text), "") // encoders break lines
	switch in.Format {
	case "base64":
		out, err = base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	case "base64url":
		out, err = base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
	case "hex":
		out, err = hex.DecodeString(text)
	case "url":
		var s string
		s, err = url.QueryUnescape(in.Text)
		out = []byte(s)
	default:
		err = fmt.Errorf("unknown format %q", in.Format)
	}
	if err != nil {
		return "", fmt.Errorf("this is not %s: %w", in.Format, err)
	}
	if !utf8.Valid(out) {
		return "", fmt.Errorf("it decodes to %d bytes that are not text", len(out))
	}
	return string(out), nil
}

func hashText(_ context.Context, in hashArgs) (hashed, error) {
	if err := atMost(maxText, "the text", in.Text); err != nil {
		return hashed{}, err
	}
	text := []byte(in.Text)
	switch in.Algorithm {
	case "sha256":
		return hashed{fmt.Sprintf("%x", sha256.Sum256(text))}, nil
	case "sha512":
		return hashed{fmt.Sprintf("%x", sha512.Sum512(text))}, nil
	case "sha1":
		return hashed{fmt.Sprintf("%x", sha1.Sum(text))}, nil
	case "md5":
		return hashed{fmt.Sprintf("%x", md5.Sum(text))}, nil
	case "crc32":
		return hashed{fmt.Sprintf("%08x", crc32.ChecksumIEEE(text))}, nil
	}
	return hashed{}, fmt.Errorf("unknown algorithm %q", in.Algorithm)
}

func slugify(_ context.Context, in textArgs) (string, error) {
	if err := atMost(maxText, "the text", in.Text); err != nil {
		return "", err
	}
	// Letters that have no decomposition into a plain letter and an accent.
	plain := strings.NewReplacer("ß", "ss", "æ", "ae", "œ", "oe", "ø", "o", "đ", "d", "ł", "l", "þ", "th", "ð", "d", "ı", "i").
		Replace(strings.ToLower(in.Text))
	var out strings.Builder
	gap := false
	for _, r := range norm.NFKD.String(plain) {
		switch {
		case unicode.IsLetter(r) || unicode.IsDigit(r):
			if gap && out.Len() > 0 {
				out.WriteByte('-')
			}
			gap = false
			out.WriteRune(unicode.ToLower(r)) // NFKD makes No of №
		case !unicode.IsMark(r) && r != '\'' && r != '’':
			gap = true
		}
	}
	if out.Len() == 0 {
		return "", errors.New("the text has no letter or digit to make a slug of")
	}
	return out.String(), nil
}

// document checks that text is one JSON value, and says where it is not.
func document(text string) (json.RawMessage, error) {
	if err := atMost(maxText, "the document", text); err != nil {
		return nil, err
	}
	var raw json.RawMessage
	err := json.Unmarshal([]byte(text), &raw)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		before := text[:min(int(syntax.Offset), len(text))]
		return nil, fmt.Errorf("no valid JSON at line %d, byte %d of it: %w",
			1+strings.Count(before, "\n"), len(before)-(strings.LastIndexByte(before, '\n')+1), err)
	}
	return raw, err
}

func formatJSON(_ context.Context, in formatJSONArgs) (string, error) {
	raw, err := document(in.JSON)
	if err != nil {
		return "", err
	}
	if in.Style == "compact" {
		var out bytes.Buffer
		err = json.Compact(&out, raw)
		return out.String(), err
	}
	return indented(raw)
}

func indented(raw json.RawMessage) (string, error) {
	// A document of nothing but brackets would become a thousand times as long.
	if d := depth(raw); d > 100 {
		return "", fmt.Errorf("the document is nested %d levels deep; the limit for indenting is 100", d)
	}
	var out bytes.Buffer
	err := json.Indent(&out, raw, "", "  ")
	return out.String(), err
}

func depth(raw []byte) (deepest int) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	for now := 0; ; {
		token, err := decoder.Token()
		if err != nil { // io.EOF: it was checked before
			return deepest
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			now++
			deepest = max(deepest, now)
		case json.Delim('}'), json.Delim(']'):
			now--
		}
	}
}

func queryJSON(_ context.Context, in pointerArgs) (string, error) {
	raw, err := document(in.JSON)
	if err != nil {
		return "", err
	}
	if in.Pointer != "" && in.Pointer[0] != '/' {
		return "", fmt.Errorf("pointer %q must begin with a slash, or be empty for the whole document", in.Pointer)
	}
	if strings.Count(in.Pointer, "/") > 100 {
		return "", errors.New("the pointer has more than 100 steps")
	}
	walked := ""
	for _, step := range strings.Split(in.Pointer, "/")[1:] {
		raw, err = child(raw, strings.NewReplacer("~1", "/", "~0", "~").Replace(step))
		if err != nil {
			return "", fmt.Errorf("at %q: %w", walked, err)
		}
		walked += "/" + step
	}
	return indented(raw)
}

func child(raw json.RawMessage, step string) (json.RawMessage, error) {
	switch raw = bytes.TrimSpace(raw); raw[0] {
	case '{':
		var object map[string]json.RawMessage
		if err := json.Unmarshal(raw, &object); err != nil {
			return nil, err
		}
		if found, ok := object[step]; ok {
			return found, nil
		}
		return nil, fmt.Errorf("there is no key %q", step)
	case '[':
		var array []json.RawMessage
		if err := json.Unmarshal(raw, &array); err != nil {
			return nil, err
		}
		i, err := strconv.Atoi(step)
		if err != nil || strconv.Itoa(i) != step || i < 0 || i >= len(array) {
			return nil, fmt.Errorf("there is no element %q in an array of %d", step, len(array))
		}
		return array[i], nil
	}
	return nil, fmt.Errorf("there is nothing below a value that is no object and no array; looked for %q", step)
}

func diff(_ context.Context, in diffArgs) (textDiff, error) {
	if err := errors.Join(atMost(maxText, "a", in.A), atMost(maxText, "b", in.B)); err != nil {
		return textDiff{}, err
	}
	changes, err := compare(lines(in.A), lines(in.B))
	if err != nil {
		return textDiff{}, err
	}
	out := textDiff{Equal: in.A == in.B, Diff: unified(changes)}
	for _, c := range changes {
		switch c.sign {
		case '+':
			out.Added++
		case '-':
			out.Removed++
		}
	}
	return out, nil
}

// lines splits a text; a last line without its end is told from one with it.
func lines(text string) (out []string) {
	for line := range strings.Lines(text) {
		if cut, ok := strings.CutSuffix(line, "\n"); ok {
			out = append(out, cut)
		} else {
			out = append(out, line+"\n\\ No newline at end of text")
		}
	}
	return out
}

// change is one line: in both texts (' '), only in the new (+) or the old (-) one.
type change struct {
	sign byte
	line string
}

// compare finds the longest common subsequence of lines.
func compare(a, b []string) (out []change, err error) {
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		out = append(out, change{' ', a[head]})
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	same := a[len(a)-tail:]
	a, b = a[head:len(a)-tail], b[head:len(b)-tail]
	if (len(a)+1)*(len(b)+1) > maxCells {
		return nil, fmt.Errorf("the texts differ in too much to compare: %d and %d lines", len(a), len(b))
	}
	// common[i*width+j] is how many lines a[i:] and b[j:] have in common.
	width := len(b) + 1
	common := make([]int32, (len(a)+1)*width)
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i*width+j] = common[(i+1)*width+j+1] + 1
			} else {
				common[i*width+j] = max(common[(i+1)*width+j], common[i*width+j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			out = append(out, change{' ', a[i]})
			i++
			j++
		case j == len(b) || i < len(a) && common[(i+1)*width+j] >= common[i*width+j+1]:
			out = append(out, change{'-', a[i]})
			i++
		default:
			out = append(out, change{'+', b[j]})
			j++
		}
	}
	for _, line := range same {
		out = append(out, change{' ', line})
	}
	return out, nil
}

// unified writes changes with three lines of context, as diff -u does.
func unified(changes []change) string {
	const context = 3
	var out strings.Builder
	oldLine, newLine := 1, 1
	for i := 0; i < len(changes); {
		// The hunk is [from, to): up to where more than twice the context is the same.
		from := i
		for from < len(changes) && changes[from].sign == ' ' {
			from++
		}
		if from == len(changes) {
			break
		}
		to, same := from, 0
		for to < len(changes) && same <= 2*context {
			if changes[to].sign == ' ' {
				same++
			} else {
				same = 0
			}
			to++
		}
		to -= max(0, same-context)
		from = max(i, from-context)
		oldLine += from - i
		newLine += from - i
		writeHunk(&out, changes[from:to], &oldLine, &newLine)
		i = to
	}
	return out.String()
}

func writeHunk(out io.Writer, hunk []change, oldLine, newLine *int) {
	olds, news := 0, 0
	for _, c := range hunk {
		if c.sign != '+' {
			olds++
		}
		if c.sign != '-' {
			news++
		}
	}
	fmt.Fprintf(out, "@@ -%s +%s @@\n", span(*oldLine, olds), span(*newLine, news))
	for _, c := range hunk {
		fmt.Fprintf(out, "%c%s\n", c.sign, c.line)
	}
	*oldLine += olds
	*newLine += news
}

// span writes where lines stand; one of none stands after the line before.
func span(first, n int) string {
	switch n {
	case 0:
		return fmt.Sprintf("%d,0", first-1)
	case 1:
		return strconv.Itoa(first)
	}
	return fmt.Sprintf("%d,%d", first, n)
}
