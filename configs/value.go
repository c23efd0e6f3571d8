package configs

import (
	"bytes"
	"encoding/json"
	"fmt"

	"toolfinch/internal/rawjson"
	"toolfinch/view"
)

func placeOf(n *node) view.Place { return view.Place{Line: n.line, Column: n.column} }

// maxValue bounds a value as JSON, in bytes: aliases within aliases grow without
// end.
const maxValue = 1 << 20

// value returns a value as JSON: numbers as they are written, keys in their
// order, variables in texts replaced. A variable is always text.
func (s *scalars) value(n *node, label string) (json.RawMessage, bool) {
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

func (s *scalars) appendValue(b *bytes.Buffer, n *node, label string, depth int) bool {
	if depth > maxDepth {
		s.fail(n, fmt.Sprintf("a value nested deeper than %d levels", maxDepth), "")
		return false
	}
	if b.Len() > maxValue {
		return true // reported by value
	}
	ok := true
	switch n.kind {
	case kindBroken:
		return false
	case kindNull:
		b.WriteString("null")
	case kindBool:
		b.WriteString(n.text)
	case kindNumber:
		number, legal := jsonNumber(n.text)
		if !legal {
			s.mustBe(n, label, "a number that JSON has", "put it in quotes for text")
			return false
		}
		b.WriteString(number)
	case kindText:
		var text string
		if !s.expand(n, label, &text) {
			return false
		}
		b.Write(rawjson.Quote(text))
	case kindList:
		b.WriteByte('[')
		for i, item := range n.items {
			if i > 0 {
				b.WriteByte(',')
			}
			ok = s.appendValue(b, item, fmt.Sprintf("%s[%d]", label, i), depth+1) && ok
		}
		b.WriteByte(']')
	case kindMapping:
		b.WriteByte('{')
		for i, p := range s.unique(n, "key") {
			if i > 0 {
				b.WriteByte(',')
			}
			b.Write(rawjson.Quote(p.key.text))
			b.WriteByte(':')
			ok = s.appendValue(b, p.value, label+"."+shorten(p.key.text), depth+1) && ok
		}
		b.WriteByte('}')
	}
	return ok
}
