package configs

import (
	"bytes"
	"encoding/json"
	"errors"
)

// parseJSON reads JSON as editors write it, with comments and trailing commas.
// The standard library reads it, not the YAML parser: YAML forbids tabs as
// indentation and has other rules for escapes.
func parseJSON(data []byte) (*node, *problem) {
	plain := blankComments(data)
	if len(bytes.TrimSpace(plain)) == 0 {
		return nil, &problem{1, 1, "the file is empty", emptyHint}
	}
	var whole json.RawMessage
	if err := json.Unmarshal(plain, &whole); err != nil {
		offset := 0
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			offset = int(syntax.Offset) - 1
		}
		line, column := newPlace(data).of(offset)
		return nil, &problem{line, column, "not valid JSON: " + err.Error(), ""}
	}
	r := &jsonReader{dec: json.NewDecoder(bytes.NewReader(plain)), data: plain, at: newPlace(data)}
	r.dec.UseNumber()
	root, err := r.value()
	if err != nil {
		return nil, &problem{1, 1, "not valid JSON: " + err.Error(), ""}
	}
	return root, nil
}

type jsonReader struct {
	dec  *json.Decoder
	data []byte // what dec reads
	at   *place // in the original
}

// value reads one value. Depth is bounded: Unmarshal has refused what is deeper
// than ten thousand.
func (r *jsonReader) value() (*node, error) {
	n := new(node)
	n.line, n.column = r.next()
	token, err := r.dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		if t == '{' {
			n.kind = kindMapping
			return n, r.pairs(n)
		}
		n.kind = kindList
		return n, r.items(n)
	case string:
		n.kind, n.text = kindText, t
	case json.Number:
		n.kind, n.text = kindNumber, t.String()
	case bool:
		n.kind, n.text = kindBool, "false"
		if t {
			n.text = "true"
		}
	default:
		n.kind = kindNull
	}
	return n, nil
}

func (r *jsonReader) pairs(n *node) error {
	for r.dec.More() {
		key, err := r.value()
		if err != nil {
			return err
		}
		value, err := r.value()
		if err != nil {
			return err
		}
		n.pairs = append(n.pairs, pair{key, value})
	}
	_, err := r.dec.Token()
	return err
}

func (r *jsonReader) items(n *node) error {
	for r.dec.More() {
		item, err := r.value()
		if err != nil {
			return err
		}
		n.items = append(n.items, item)
	}
	_, err := r.dec.Token()
	return err
}

// next is the place of the token that follows: the decoder tells where the last
// one ended.
func (r *jsonReader) next() (line, column int) {
	offset := int(r.dec.InputOffset())
	for offset < len(r.data) && bytes.IndexByte([]byte(" \t\n,:"), r.data[offset]) >= 0 {
		offset++
	}
	return r.at.of(offset)
}

// blankComments replaces comments and trailing commas by spaces, byte for byte:
// every offset stays what it was in the original.
func blankComments(data []byte) []byte {
	out := bytes.Clone(data)
	comma, before, last := -1, byte(0), byte(0) // offset of a comma just seen, what stood before it, what was seen last
	for i := 0; i < len(out); {
		switch c := out[i]; {
		case c == '"':
			i = stringEnd(out, i)
			comma, last = -1, c
		case bytes.HasPrefix(out[i:], []byte("//")):
			end := bytes.IndexByte(out[i:], '\n')
			if end < 0 {
				end = len(out) - i
			}
			i = blank(out, i, i+end)
		case bytes.HasPrefix(out[i:], []byte("/*")):
			end := bytes.Index(out[i+2:], []byte("*/"))
			if end < 0 { // unclosed: no JSON, and the parser will say so here
				return out
			}
			i = blank(out, i, i+2+end+2)
		case c == ',':
			comma, before, last = i, last, c
			i++
		case c == '}' || c == ']':
			if comma >= 0 && bytes.IndexByte([]byte("[{,:\x00"), before) < 0 {
				out[comma] = ' '
			}
			comma, last = -1, c
			i++
		case c == ' ' || c == '\t' || c == '\n':
			i++
		default:
			comma, last = -1, c
			i++
		}
	}
	return out
}

func blank(data []byte, from, to int) (next int) {
	for i := from; i < to; i++ {
		if data[i] != '\n' {
			data[i] = ' '
		}
	}
	return to
}

// stringEnd returns the offset behind the string that begins at start.
func stringEnd(data []byte, start int) int {
	for i := start + 1; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		case '\n': // no string of JSON spans lines
			return i
		}
	}
	return len(data)
}
