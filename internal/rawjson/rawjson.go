// Package rawjson owns JSON as bytes: it reads, edits, builds and encodes it, and keeps unknown
// members. It does not know their meaning.
package rawjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"math"
	"unicode/utf8"
)

// errNotObject is the error for bytes other than a JSON object.
var errNotObject = errors.New("not a JSON object")

// Members yields the members of a JSON object in their order, with the bytes of their values. It trusts
// the syntax inside values: check foreign bytes with json.Valid first. Other values yield nothing.
func Members(object []byte) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		for m := range members(object) {
			if !yield(m.name(object), object[m.value:m.end]) {
				return
			}
		}
	}
}

// Member returns the bytes of the named member, nil for none. The last of duplicate names counts, as in
// encoding/json.
func Member(object []byte, name string) json.RawMessage {
	var found json.RawMessage
	for m := range members(object) {
		if m.is(object, name) {
			found = object[m.value:m.end]
		}
	}
	return found
}

// Elements yields the elements of a JSON array, with the same trust as Members.
func Elements(array []byte) iter.Seq[json.RawMessage] {
	return func(yield func(json.RawMessage) bool) {
		i := skipSpace(array, 0)
		if i >= len(array) || array[i] != '[' {
			return
		}
		for {
			i = skipSpace(array, i+1) // after the bracket or a comma
			end := skipValue(array, i)
			if end <= i || !yield(array[i:end]) {
				return
			}
			if i = skipSpace(array, end); i >= len(array) || array[i] != ',' {
				return
			}
		}
	}
}

// Text returns the string in raw, "" for another value.
func Text(raw []byte) string {
	if len(raw) == 0 {
		return ""
	}
	if plain, ok := plain(raw); ok {
		return string(plain)
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// plain is the inside of a string without escapes.
func plain(raw []byte) (text []byte, ok bool) {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return nil, false
	}
	text = raw[1 : len(raw)-1]
	for _, b := range text {
		if b < ' ' || b == '"' || b == '\\' {
			return nil, false
		}
	}
	return text, utf8.Valid(text)
}

// Int returns the whole number in raw, in any spelling: 10, 10.0, 1e1, and "10", as some models write
// it. ok is false for other values, and beyond 32 bits.
func Int(raw []byte) (n int, ok bool) {
	var number float64
	if len(raw) > 0 && raw[0] == '"' {
		raw = []byte(Text(raw))
	}
	if json.Unmarshal(raw, &number) != nil || number != math.Trunc(number) || math.Abs(number) > math.MaxInt32 {
		return 0, false
	}
	return int(number), string(raw) != "null"
}

// Set returns the object with the named member set to value, in its old place, else as the first one.
// All other bytes stay.
func Set(object []byte, name string, value []byte) ([]byte, error) {
	return Update(object, name, func(json.RawMessage) []byte { return value })
}

// Update is Set to value's result for the old value, nil for none. If value returns nil, the object
// stays unchanged.
func Update(object []byte, name string, value func(was json.RawMessage) []byte) ([]byte, error) {
	var at member
	empty := true
	for m := range members(object) {
		empty = false
		if m.is(object, name) {
			at = m
		}
	}
	if at.end > 0 {
		if is := value(object[at.value:at.end]); is != nil {
			return splice(object, at.value, at.end, is), nil
		}
		return object, nil
	}
	open := bytes.IndexByte(object, '{')
	if open < 0 || len(bytes.TrimSpace(object[:open])) > 0 {
		return nil, errNotObject
	}
	is := value(nil)
	if is == nil {
		return object, nil
	}
	insert := appendText(make([]byte, 0, len(name)+len(is)+4), name)
	insert = append(append(insert, ':'), is...)
	if !empty {
		insert = append(insert, ',')
	}
	return splice(object, open+1, open+1, insert), nil
}

func splice(b []byte, from, to int, with []byte) []byte {
	out := make([]byte, 0, len(b)-(to-from)+len(with))
	out = append(out, b[:from]...)
	out = append(out, with...)
	return append(out, b[to:]...)
}

// MaxDepth bounds the nesting of messages: many servers and clients read no deeper ones, and end over them (Python at
// about 1,000).
const MaxDepth = 512

// TooDeep reports whether JSON nests deeper than MaxDepth.
func TooDeep(value []byte) bool {
	return bytes.Count(value, []byte("["))+bytes.Count(value, []byte("{")) > MaxDepth && Depth(value) > MaxDepth
}

// Depth is the depth of JSON: 0 for a number, 1 for a list of numbers.
func Depth(value []byte) (most int) {
	depth := 0
	for i := 0; i < len(value); i++ {
		switch value[i] {
		case '"':
			i = SkipString(value, i) - 1
		case '{', '[':
			depth++
			most = max(most, depth)
		case '}', ']':
			depth--
		}
	}
	return most
}

// OneLine returns message without line breaks, which end a message on stdio
// and a line of an event in SSE. JSON allows them only between tokens.
func OneLine(message []byte) []byte {
	if bytes.IndexByte(message, '\n') < 0 && bytes.IndexByte(message, '\r') < 0 {
		return message
	}
	var out bytes.Buffer
	if json.Compact(&out, message) != nil {
		return bytes.ReplaceAll(bytes.ReplaceAll(message, []byte("\n"), nil), []byte("\r"), nil)
	}
	return out.Bytes()
}

// member is one member of an object as offsets: key is its opening quote,
// keyEnd follows the closing one, value and end enclose the value.
type member struct{ key, keyEnd, value, end int }

func (m member) name(object []byte) string {
	raw := object[m.key:m.keyEnd]
	if bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw) {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	_ = json.Unmarshal(raw, &s)
	return s
}

// is reports whether the member has the name; it allocates only for escapes.
func (m member) is(object []byte, name string) bool {
	raw := object[m.key:m.keyEnd]
	if bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw) {
		return string(raw[1:len(raw)-1]) == name
	}
	return m.name(object) == name
}

func members(b []byte) iter.Seq[member] {
	return func(yield func(member) bool) {
		i := skipSpace(b, 0)
		if i >= len(b) || b[i] != '{' {
			return
		}
		i = skipSpace(b, i+1)
		for i < len(b) && b[i] == '"' {
			m := member{key: i}
			m.keyEnd = SkipString(b, i)
			i = skipSpace(b, m.keyEnd)
			if i >= len(b) || b[i] != ':' {
				return
			}
			m.value = skipSpace(b, i+1)
			m.end = skipValue(b, m.value)
			if m.end <= m.value || !yield(m) {
				return
			}
			i = skipSpace(b, m.end)
			if i >= len(b) || b[i] != ',' {
				return
			}
			i = skipSpace(b, i+1)
		}
	}
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// SkipString returns the offset after the string that begins at b[i].
func SkipString(b []byte, i int) int {
	for i++; i < len(b); {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return len(b)
		}
		i += n
		escapes := 0
		for b[i-1-escapes] == '\\' {
			escapes++
		}
		i++
		if escapes%2 == 0 {
			return i
		}
	}
	return len(b)
}

// skipValue returns the offset after the value that begins at b[i].
func skipValue(b []byte, i int) int {
	if i >= len(b) {
		return i
	}
	switch b[i] {
	case '"':
		return SkipString(b, i)
	case '{', '[':
		depth := 0
		for i < len(b) {
			switch b[i] {
			case '"':
				i = SkipString(b, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
		return i
	default:
		for i < len(b) && b[i] != ',' && b[i] != '}' && b[i] != ']' && b[i] > ' ' {
			i++
		}
		return i
	}
}
