package configs

import (
	"bytes"
	"encoding/json"
	"fmt"

	"toolfinch/configs/document"
	"toolfinch/internal/rawjson"
	"toolfinch/view"
)

func placeOf(n *document.Node) view.Place { return view.Place{Line: n.Line, Column: n.Column} }

// maxValue bounds a value as JSON, in bytes: aliases within aliases grow without
// end.
const maxValue = 1 << 20

// value returns a value as JSON: numbers as they are written, keys in their
// order, variables in texts replaced. A variable is always text.
func (s *scalars) value(n *document.Node, label string) (json.RawMessage, bool) {
	var b bytes.Buffer
	if !s.appendValue(&b, n, label, 0) {
		return nil, false
	}
	if b.Len() > maxValue {
		s.fail(n, fmt.Sprintf("%s is larger than %d MiB", label, maxValue>>20), "")
		return nil, false
	}
	return b.Bytes(), true
}

func (s *scalars) appendValue(b *bytes.Buffer, n *document.Node, label string, depth int) bool {
	if depth > document.MaxDepth {
		s.fail(n, fmt.Sprintf("a value nested deeper than %d levels", document.MaxDepth), "")
		return false
	}
	if b.Len() > maxValue {
		return true // reported by value
	}
	ok := true
	switch n.Kind {
	case document.Broken:
		return false
	case document.Null:
		b.WriteString("null")
	case document.Bool:
		b.WriteString(n.Text)
	case document.Number:
		number, legal := document.JSONNumber(n.Text)
		if !legal {
			s.mustBe(n, label, "a number that JSON has", "put it in quotes for text")
			return false
		}
		b.WriteString(number)
	case document.Text:
		var text string
		if !s.expand(n, label, &text) {
			return false
		}
		b.Write(rawjson.Quote(text))
	case document.List:
		b.WriteByte('[')
		for i, item := range n.Items {
			if i > 0 {
				b.WriteByte(',')
			}
			ok = s.appendValue(b, item, fmt.Sprintf("%s[%d]", label, i), depth+1) && ok
		}
		b.WriteByte(']')
	case document.Mapping:
		b.WriteByte('{')
		for i, p := range s.unique(n, "key") {
			if i > 0 {
				b.WriteByte(',')
			}
			b.Write(rawjson.Quote(p.Key.Text))
			b.WriteByte(':')
			ok = s.appendValue(b, p.Value, label+"."+shorten(p.Key.Text), depth+1) && ok
		}
		b.WriteByte('}')
	}
	return ok
}
