package demo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/server"
	"github.com/rogpeppe/go-internal/diff"
	"github.com/tailscale/hujson"
)

const (
	maxText  = 1 << 20 // bytes of one argument
	maxDepth = 100     // levels of a JSON document; indents multiply the size of deeper documents
)

type textArgs struct {
	Text string `json:"text" jsonschema:"The text, up to 1 MiB"`
}

type counts struct {
	Words      int `json:"words" jsonschema:"Words parted by white space"`
	Lines      int `json:"lines" jsonschema:"Lines"`
	Characters int `json:"characters" jsonschema:"Unicode code points, white space included"`
	Bytes      int `json:"bytes" jsonschema:"Bytes in UTF-8"`
}

type diffArgs struct {
	A string `json:"a" jsonschema:"Old text"`
	B string `json:"b" jsonschema:"New text"`
}

type pointerArgs struct {
	textArgs
	Pointer string `json:"pointer" jsonschema:"JSON Pointer (RFC 6901) such as /items/0/name; the empty string is the whole document"`
}

func newText(string) (*server.MCPServer, func() error, error) {
	s := newServer("text", "Works on the text given in the call and keeps nothing.")
	add(s, "count", "Count words", "Counts words, lines, characters and bytes of a text.", reads, count)
	add(s, "diff", "Compare texts", "Compares two texts line by line and shows what was added and removed.", reads, compare)
	add(s, "query_json", "Read from JSON", "Returns the part of a JSON document that a JSON Pointer names.", reads, queryJSON)
	for _, t := range []struct {
		name, title, description string
		run                      func(text string) (string, error)
	}{
		{"upper_case", "To capital letters", "Changes all small letters of a text to capital ones.", always(strings.ToUpper)},
		{"lower_case", "To small letters", "Changes all capital letters of a text to small ones.", always(strings.ToLower)},
		{"base64_encode", "Encode as base64", "Encodes a text as base64.", always(encodeBase64)},
		{"base64_decode", "Decode base64", "Decodes base64 that stands for a text.", decodeBase64},
		{"url_encode", "Encode for a URL", "Escapes a text so that it can be a part of a URL.", always(url.PathEscape)},
		{"url_decode", "Decode a URL", "Resolves the percent escapes in a part of a URL.", url.PathUnescape},
		{"hash", "Hash text", "Computes the SHA-256 checksum of a text as hexadecimal digits.", always(hash)},
		{"format_json", "Format JSON", "Checks a JSON document and pretty-prints it. Keys keep their order.", formatJSON},
	} {
		add(s, t.name, t.title, t.description, reads, func(_ context.Context, in textArgs) (string, error) {
			if err := atMost(maxText, "the text", in.Text); err != nil {
				return "", err
			}
			return t.run(in.Text)
		})
	}
	return s, nothingToClose, nil
}

// always adapts a function that cannot fail.
func always(run func(string) string) func(string) (string, error) {
	return func(text string) (string, error) { return run(text), nil }
}

func count(_ context.Context, in textArgs) (counts, error) {
	lines := strings.Count(in.Text, "\n")
	if in.Text != "" && !strings.HasSuffix(in.Text, "\n") {
		lines++
	}
	return counts{len(strings.Fields(in.Text)), lines, utf8.RuneCountInString(in.Text), len(in.Text)}, atMost(maxText, "the text", in.Text)
}

func compare(_ context.Context, in diffArgs) (string, error) {
	if err := errors.Join(atMost(maxText, "a", in.A), atMost(maxText, "b", in.B)); err != nil {
		return "", err
	}
	if in.A == in.B {
		return "The texts are equal.", nil
	}
	return string(diff.Diff("a", []byte(in.A), "b", []byte(in.B))), nil
}

func encodeBase64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func decodeBase64(text string) (string, error) {
	text = strings.Join(strings.Fields(text), "") // base64 text may have line breaks
	out, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	if err == nil && !utf8.Valid(out) {
		err = fmt.Errorf("it decodes to %d bytes that are not text", len(out))
	}
	return string(out), err
}

func hash(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

func queryJSON(_ context.Context, in pointerArgs) (string, error) {
	doc, err := parseJSON(in.Text)
	if err != nil {
		return "", err
	}
	found := doc.Find(in.Pointer)
	if found == nil {
		return "", fmt.Errorf("there is nothing at %q", in.Pointer)
	}
	return indented(*found)
}

func formatJSON(text string) (string, error) {
	doc, err := parseJSON(text)
	if err != nil {
		return "", err
	}
	return indented(doc)
}

func indented(doc hujson.Value) (string, error) {
	var out bytes.Buffer
	err := json.Indent(&out, bytes.TrimSpace(doc.Pack()), "", "  ")
	return out.String(), err
}

// parseJSON parses one JSON value. Syntax errors name line and column.
func parseJSON(text string) (hujson.Value, error) {
	if err := atMost(maxText, "the document", text); err != nil {
		return hujson.Value{}, err
	}
	if d := depth(text); d > maxDepth {
		return hujson.Value{}, fmt.Errorf("the document is nested %d levels deep; the limit is %d", d, maxDepth)
	}
	doc, err := hujson.Parse([]byte(text))
	if err == nil && !doc.IsStandard() {
		err = errors.New("JSON has no comments, and no comma after a last element")
	}
	return doc, err
}

func depth(text string) (deepest int) {
	now, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			now++
			deepest = max(deepest, now)
		case c == '}' || c == ']':
			now--
		}
	}
	return deepest
}
