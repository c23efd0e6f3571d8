package rawjson

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Encode returns value as JSON. Unlike json.Marshal it does not escape <, > and &, so that foreign text
// keeps its bytes.
func Encode(value any) (json.RawMessage, error) {
	var out bytes.Buffer
	if err := Write(&out, value, ""); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// Of returns value as JSON, like Encode. It panics if value cannot be encoded: use it for texts,
// numbers, and structures of them.
func Of(value any) json.RawMessage {
	out, err := Encode(value)
	if err != nil {
		panic("rawjson: " + err.Error())
	}
	return out
}

// Quote returns text as JSON. Invalid UTF-8 becomes U+FFFD.
func Quote(text string) json.RawMessage { return appendText(make([]byte, 0, len(text)+2), text) }

// appendText appends text as JSON.
func appendText(to []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return append(to, Of(text)...)
		}
	}
	return append(append(append(to, '"'), text...), '"')
}

// Write writes value as JSON and a line break, encoded like Encode. indent is one level's indentation,
// "" for a single line.
func Write(w io.Writer, value any, indent string) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	return encoder.Encode(value)
}

// Object builds a JSON object. The zero value has no members.
type Object struct{ members []byte }

// NewObject returns an Object without members that grows to size bytes before it
// allocates again.
func NewObject(size int) *Object { return &Object{make([]byte, 0, size+2)} }

// Add appends a member. value must be valid JSON; names are not compared.
func (o *Object) Add(name string, value []byte) {
	o.name(name)
	o.members = append(o.members, value...)
}

// begin appends the bytes before a member.
func (o *Object) begin() {
	open := byte(',')
	if len(o.members) == 0 {
		open = '{'
	}
	o.members = append(o.members, open)
}

func (o *Object) name(name string) {
	o.begin()
	o.members = append(appendText(o.members, name), ':')
}

// AddText appends a member that is text.
func (o *Object) AddText(name, value string) {
	o.name(name)
	o.members = appendText(o.members, value)
}

// AddInt appends a member that is a whole number.
func (o *Object) AddInt(name string, value int) {
	o.Add(name, strconv.AppendInt(nil, int64(value), 10))
}

// AddAll appends the members of another object, except some names.
func (o *Object) AddAll(object []byte, but ...string) {
	for m := range members(object) {
		if !slices.ContainsFunc(but, func(name string) bool { return m.is(object, name) }) {
			o.begin()
			o.members = append(append(append(o.members, object[m.key:m.keyEnd]...), ':'), object[m.value:m.end]...)
		}
	}
}

// Empty reports whether the object has no members.
func (o *Object) Empty() bool { return len(o.members) == 0 }

// JSON returns the object. Nothing may be added after it.
func (o *Object) JSON() json.RawMessage {
	if o.Empty() {
		return json.RawMessage("{}")
	}
	return append(o.members, '}')
}

// Without returns the object without the members of these names.
func Without(object []byte, names ...string) json.RawMessage {
	out := NewObject(len(object))
	out.AddAll(object, names...)
	return out.JSON()
}

// Array returns the JSON array of elements, each of which must be valid JSON.
func Array[T ~[]byte](elements []T) json.RawMessage {
	size := 2 + len(elements)
	for _, element := range elements {
		size += len(element)
	}
	out := append(make(json.RawMessage, 0, size), '[')
	for i, element := range elements {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, element...)
	}
	return append(out, ']')
}

// IsObject reports whether valid JSON is an object.
func IsObject(value []byte) bool {
	i := skipSpace(value, 0)
	return i < len(value) && value[i] == '{'
}

// IsEmpty reports whether a JSON object has no members.
func IsEmpty(object []byte) bool {
	for range members(object) {
		return false
	}
	return true
}

// Clip returns foreign text for a message: at most n bytes of it, and "..." if it is longer.
func Clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return Head(text, n) + "..."
}

// Head returns at most n bytes of text, cut between two characters; a cut text loses invalid UTF-8.
func Head(text string, n int) string {
	if len(text) <= n {
		return text
	}
	n = max(n, 0)
	for back := 0; n > 0 && !utf8.RuneStart(text[n]) && back < utf8.UTFMax; back++ {
		n--
	}
	return strings.ToValidUTF8(text[:n], "")
}
