package proxytool

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"

	"toolfinch/internal/rawjson"
)

// Label says, in the annotations of a content item, where the item comes from.
type Label struct {
	Action Action
	Type   Type
	Path   string // "" for a list or batch
	// Data is the type of the JSON in the text of the item (DataTool, ...), "" if it is not stated.
	Data string
	Many *bool // whether the JSON is an array of Data; nil if it is not stated
	Page *Page // of a list or batch
}

// Page is a part of a list.
type Page struct {
	Total  int    // number of items that pass the filter
	Offset int    // number of items before the first one
	Count  int    // number of items in the page
	Next   string // cursor of the rest, "" without a rest
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
	keyPython = "pythonType" // the key of clients of the draft
	keyData   = "dataType"
	keyMany   = "many" // the key of clients of the draft
	keyArray  = "isArray"
	keyTotal  = "totalCount"
	keyOffset = "offset"
	keyCount  = "count"
	keyNext   = "nextCursor"
	// keyProxied is a member of _meta: the values that the proxy tool has replaced.
	keyProxied = "proxied"
	// keyError is a member of the _meta of a result in a batch: the JSON-RPC error that became the
	// result.
	keyError = "error"
)

var labelKeys = []string{keyAction, keyType, keyPath, keyPython, keyData, keyMany, keyArray, keyTotal, keyOffset, keyCount, keyNext}

// dataOf returns the data type of the items of a list.
func dataOf(t Type) string {
	switch t {
	case TypeResource:
		return DataResource
	case TypePrompt:
		return DataPrompt
	}
	return DataTool
}

// LabelOf reads the label of a content item from its annotations and, for missing parts, from its
// _meta. It reports whether there is a label.
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
	l.Data = cmp.Or(l.Data, python)
}

// object returns the members of annotations and _meta that state the label.
func (l Label) object() json.RawMessage {
	var out rawjson.Object
	out.AddText(keyAction, string(l.Action))
	if l.Type != "" {
		out.AddText(keyType, string(l.Type))
	}
	if l.Path != "" {
		out.AddText(keyPath, l.Path)
	}
	if l.Data != "" {
		out.AddText(keyPython, l.Data)
		out.AddText(keyData, l.Data)
	}
	if l.Many != nil {
		out.Add(keyMany, strconv.AppendBool(nil, *l.Many))
		out.Add(keyArray, strconv.AppendBool(nil, *l.Many))
	}
	if l.Page != nil {
		out.AddInt(keyTotal, l.Page.Total)
		out.AddInt(keyOffset, l.Page.Offset)
		out.AddInt(keyCount, l.Page.Count)
		if l.Page.Next != "" {
			out.AddText(keyNext, l.Page.Next)
		}
	}
	return out.JSON()
}

// Annotate returns a content item with the label in its annotations and _meta. Other members of them
// stay. Members with a label's keys, of the tool itself or of another proxy tool behind it, move to the
// member "proxied" of _meta: {"annotations": {...}, "_meta": {...}}. Annotations or _meta that are not
// an object move there whole. An item that is not an object stays unchanged.
func Annotate(item json.RawMessage, l Label) json.RawMessage {
	return annotate(item, l.object())
}

func annotate(item, label json.RawMessage) json.RawMessage {
	if !rawjson.IsObject(item) {
		return item
	}
	var moved rawjson.Object
	annotations := labelled(item, "annotations", label, &moved)
	meta := labelled(item, "_meta", label, &moved)
	if !moved.Empty() {
		meta.Add(keyProxied, moved.JSON())
	}
	return set(set(item, "_meta", meta.JSON()), "annotations", annotations.JSON()) // a new _meta comes first
}

// labelled returns a member of an item with the label in it. Replaced values go to moved.
func labelled(item json.RawMessage, name string, label json.RawMessage, moved *rawjson.Object) *rawjson.Object {
	var out, own rawjson.Object
	out.AddAll(label)
	old := rawjson.Member(item, name)
	if old != nil && !rawjson.IsObject(old) && string(old) != "null" {
		moved.Add(name, old)
	}
	for key, value := range rawjson.Members(old) {
		if slices.Contains(labelKeys, key) || key == keyProxied {
			own.Add(key, value)
		} else {
			out.Add(key, value)
		}
	}
	if !own.Empty() {
		moved.Add(name, own.JSON())
	}
	return &out
}

// labelEmpty labels a tool's result without content, in the result's own _meta.
func labelEmpty(result json.RawMessage, l Label) json.RawMessage {
	if hasContent(result) {
		return result
	}
	var moved rawjson.Object
	meta := labelled(result, "_meta", l.object(), &moved)
	if !moved.Empty() {
		meta.Add(keyProxied, moved.JSON())
	}
	return set(result, "_meta", meta.JSON())
}

func hasContent(result json.RawMessage) bool {
	for range rawjson.Elements(rawjson.Member(result, "content")) {
		return true
	}
	return false
}

// unannotate is the inverse of Annotate and labelEmpty for a call. Without moved members it only
// removes the label's keys.
func unannotate(item json.RawMessage) json.RawMessage {
	if _, ok := LabelOf(item); !ok {
		return item
	}
	moved := rawjson.Member(rawjson.Member(item, "_meta"), keyProxied)
	var out rawjson.Object
	for name, value := range rawjson.Members(item) {
		if name == "annotations" || name == "_meta" {
			if value = unlabelled(value, rawjson.Member(moved, name)); value == nil {
				continue
			}
		}
		out.Add(name, value)
	}
	return out.JSON()
}

// unlabelled returns annotations or _meta without a label and with the moved members,
// nil if nothing is left.
func unlabelled(object, moved json.RawMessage) json.RawMessage {
	if moved != nil && !rawjson.IsObject(moved) || !rawjson.IsObject(object) {
		if moved != nil {
			return moved
		}
		return object
	}
	var out rawjson.Object
	out.AddAll(rawjson.Without(object, keyAction, keyType, keyPath, keyProxied))
	out.AddAll(moved)
	if out.Empty() {
		return nil
	}
	return out.JSON()
}
