package configs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/view"
)

// given returns the value of a key that is there and not left empty, else nil.
func (n *node) given(key string) *node {
	if v := n.find(key); v != nil && v.kind != kindNull {
		return v
	}
	return nil
}

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

var (
	jsonNumberForm = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)
	yamlInteger    = regexp.MustCompile(`^(0x[0-9a-fA-F]+|0o?[0-7]+|0b[01]+|[1-9][0-9]*)$`)
	yamlFloat      = regexp.MustCompile(`^([0-9]*)(?:\.([0-9]*))?([eE][+-]?[0-9]+)?$`)
)

// jsonNumber writes a number of YAML as JSON has it. What JSON has too stays as
// it is: 1.0 is no 1, and no digit is lost.
func jsonNumber(s string) (string, bool) {
	if jsonNumberForm.MatchString(s) {
		return s, true
	}
	s = strings.ReplaceAll(strings.TrimPrefix(s, "+"), "_", "")
	s, negative := strings.CutPrefix(s, "-")
	sign := ""
	if negative {
		sign = "-"
	}
	if yamlInteger.MatchString(s) {
		i, ok := new(big.Int).SetString(s, 0) // 017 and 0o17 are octal to it as well
		if !ok {
			return "", false
		}
		return sign + i.String(), true
	}
	parts := yamlFloat.FindStringSubmatch(s)
	if parts == nil || parts[1]+parts[2] == "" {
		return "", false
	}
	whole, fraction := strings.TrimLeft(parts[1], "0"), parts[2]
	if whole == "" {
		whole = "0"
	}
	if fraction == "" && strings.Contains(s, ".") {
		fraction = "0"
	}
	if fraction != "" {
		fraction = "." + fraction
	}
	return sign + whole + fraction + parts[3], true
}
