package proxytool

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"

	"toolfinch/rawjson"
)

// Label is what the annotations of a content item say of where it comes from.
type Label struct {
	Action Action
	Type   Type
	Path   string // "" of a list or batch
	// Data is the type of what the text of the item is the JSON of (DataTool, ...),
	// "" when it is not said.
	Data string
	Many *bool // whether it is an array of them; nil when it is not said
	Page *Page // of a list and a batch
}

// Page is which part of a list was sent.
type Page struct {
	Total  int    // how many there are, those that a filter leaves out not counted
	Offset int    // how many are before the first one sent
	Count  int    // how many were sent
	Next   string // cursor of the rest, "" when there is none
}

// Identifiers of data types, as they are sent.
const (
	DataTool         = "Tool"
	DataResource     = "Resource | ResourceTemplate"
	DataPrompt       = "Prompt"
	DataPromptResult = "GetPromptResult"
	DataToolResult   = "CallToolResult"
)

// The keys of annotations and _meta.
const (
	keyAction = "proxyAction"
	keyType   = "proxyType"
	keyPath   = "proxyPath"
	keyPython = "pythonType" // what clients of the draft look for
	keyData   = "dataType"
	keyMany   = "many" // what clients of the draft look for
	keyArray  = "isArray"
	keyTotal  = "totalCount"
	keyOffset = "offset"
	keyCount  = "count"
	keyNext   = "nextCursor"
	// keyProxied is a member of _meta: what stood where the proxy tool wrote.
	keyProxied = "proxied"
	// keyError is a member of the _meta of a result of a batch: the JSON-RPC error
	// that stood in its place.
	keyError = "error"
)

var labelKeys = []string{keyAction, keyType, keyPath, keyPython, keyData, keyMany, keyArray, keyTotal, keyOffset, keyCount, keyNext}

// dataOf is what a list of the type has.
func dataOf(t Type) string {
	switch t {
	case TypeResource:
		return DataResource
	case TypePrompt:
		return DataPrompt
	}
	return DataTool
}

// LabelOf reads the label of a content item, from its annotations and, what is
// not there, from _meta. It reports whether there is one.
func LabelOf(item json.RawMessage) (Label, bool) {
	var l Label
	for _, from := range []string{"_meta", "annotations"} {
		l.read(rawjson.Member(item, from))
	}
	return l, l.Action != "" || l.Type != ""
}

func (l *Label) read(object json.RawMessage) {
	var python string
	var page Page
	for key, value := range rawjson.Members(object) {
		switch key {
		case keyAction:
			l.Action = Action(rawjson.Text(value))
		case keyType:
			l.Type = Type(rawjson.Text(value))
		case keyPath:
			l.Path = rawjson.Text(value)
		case keyPython:
			python = rawjson.Text(value)
		case keyData:
			l.Data = rawjson.Text(value)
		case keyMany, keyArray:
			many := string(value) == "true"
			l.Many = &many
		case keyTotal:
			page.Total, _ = strconv.Atoi(string(value))
			l.Page = &page
		case keyOffset:
			page.Offset, _ = strconv.Atoi(string(value))
		case keyCount:
			page.Count, _ = strconv.Atoi(string(value))
		case keyNext:
			page.Next = rawjson.Text(value)
		}
	}
	if l.Data == "" {
		l.Data = python
	}
}

// object is what stands in annotations and in _meta.
func (l Label) object() json.RawMessage {
	var out fields
	out.text(keyAction, string(l.Action))
	if l.Type != "" {
		out.text(keyType, string(l.Type))
	}
	if l.Path != "" {
		out.text(keyPath, l.Path)
	}
	if l.Data != "" {
		out.text(keyPython, l.Data)
		out.text(keyData, l.Data)
	}
	if l.Many != nil {
		out.raw(keyMany, strconv.AppendBool(nil, *l.Many))
		out.raw(keyArray, strconv.AppendBool(nil, *l.Many))
	}
	if l.Page != nil {
		out.number(keyTotal, l.Page.Total)
		out.number(keyOffset, l.Page.Offset)
		out.number(keyCount, l.Page.Count)
		if l.Page.Next != "" {
			out.text(keyNext, l.Page.Next)
		}
	}
	return out.object()
}

// Annotate returns a content item with the label in its annotations and _meta.
// Whatever else stands there stays, but what has the key of a label, the tool's
// own or that of another proxy tool behind it, moves into the member "proxied" of
// _meta: {"annotations": {...}, "_meta": {...}}. An annotations or _meta that is
// no object moves there whole; an item that is none is left alone.
func Annotate(item json.RawMessage, l Label) json.RawMessage {
	return annotate(item, l.object())
}

func annotate(item, label json.RawMessage) json.RawMessage {
	if !opens(item) {
		return item
	}
	var moved fields
	annotations := labelled(item, "annotations", label, &moved)
	meta := labelled(item, "_meta", label, &moved)
	if moved.Len() > 0 {
		meta.raw(keyProxied, moved.object())
	}
	return set(set(item, "_meta", meta.object()), "annotations", annotations.object()) // a new one comes first
}

// labelled is a member of an item with the label in it. What was in its place
// goes to moved.
func labelled(item json.RawMessage, name string, label json.RawMessage, moved *fields) *fields {
	var out, own fields
	out.all(label)
	old := rawjson.Member(item, name)
	if old != nil && !opens(old) && string(old) != "null" {
		moved.raw(name, old)
	}
	for key, value := range rawjson.Members(old) {
		if slices.Contains(labelKeys, key) || key == keyProxied {
			own.raw(key, value)
		} else {
			out.raw(key, value)
		}
	}
	if own.Len() > 0 {
		moved.raw(name, own.object())
	}
	return &out
}

// labelEmpty returns the result of a tool with the label in its own _meta if it has
// no content that could carry one.
func labelEmpty(result json.RawMessage, l Label) json.RawMessage {
	if hasContent(result) {
		return result
	}
	var moved fields
	meta := labelled(result, "_meta", l.object(), &moved)
	if moved.Len() > 0 {
		meta.raw(keyProxied, moved.object())
	}
	return set(result, "_meta", meta.object())
}

func hasContent(result json.RawMessage) bool {
	for range rawjson.Elements(rawjson.Member(result, "content")) {
		return true
	}
	return false
}

// unannotate is the inverse of annotate and labelEmpty with the label of a call. Of a proxy tool
// that moves nothing it takes the keys off that such a label has.
func unannotate(item json.RawMessage) json.RawMessage {
	if _, ok := LabelOf(item); !ok {
		return item
	}
	moved := rawjson.Member(rawjson.Member(item, "_meta"), keyProxied)
	var out fields
	for name, value := range rawjson.Members(item) {
		if name == "annotations" || name == "_meta" {
			if value = unlabelled(value, rawjson.Member(moved, name)); value == nil {
				continue
			}
		}
		out.raw(name, value)
	}
	return out.object()
}

// unlabelled is annotations or _meta without a label and with what was moved; nil
// when nothing is left.
func unlabelled(object, moved json.RawMessage) json.RawMessage {
	if moved != nil && !opens(moved) || !opens(object) {
		if moved != nil {
			return moved
		}
		return object
	}
	var out fields
	for key, value := range rawjson.Members(object) {
		if key != keyAction && key != keyType && key != keyPath && key != keyProxied {
			out.raw(key, value)
		}
	}
	out.all(moved)
	if out.Len() == 0 {
		return nil
	}
	return out.object()
}

// opens reports whether valid JSON is an object.
func opens(raw json.RawMessage) bool {
	return bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{"))
}

// fields writes the members of a JSON object.
type fields struct{ bytes.Buffer }

func (f *fields) raw(name string, value []byte) {
	if f.Len() > 0 {
		f.WriteByte(',')
	}
	f.Write(quote(name))
	f.WriteByte(':')
	f.Write(value)
}

// all writes the members of another object.
func (f *fields) all(object json.RawMessage) {
	for name, value := range rawjson.Members(object) {
		f.raw(name, value)
	}
}

func (f *fields) text(name, value string) { f.raw(name, quote(value)) }

func (f *fields) number(name string, n int) { f.raw(name, strconv.AppendInt(nil, int64(n), 10)) }

func (f *fields) object() json.RawMessage {
	out := make([]byte, 0, f.Len()+2)
	return append(append(append(out, '{'), f.Bytes()...), '}')
}

// array is a JSON array of what is given.
func array(elements []json.RawMessage) json.RawMessage {
	size := 2 + len(elements)
	for _, element := range elements {
		size += len(element)
	}
	out := append(make([]byte, 0, size), '[')
	for i, element := range elements {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, element...)
	}
	return append(out, ']')
}

func quote(s string) []byte { return encode(s) }

// encode is json.Marshal without the escapes for HTML. What it gets can be encoded.
func encode(value any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value)
	return bytes.TrimRight(out.Bytes(), "\n")
}
