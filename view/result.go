package view

import (
	"encoding/json"
	"fmt"

	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// resultMembers are the members of a result and their types. An answer with only other members is a plain value by
// mistake.
var resultMembers = map[string]string{
	"content": "a list of blocks", "structuredContent": "", "isError": "true or false", "_meta": "an object", "resultType": "text",
}

// asResult makes a tool's result from a post hook's answer. If clients would refuse the result, the error is an
// *answerError.
func asResult(got json.RawMessage) (json.RawMessage, error) {
	wrong := func(what string) (json.RawMessage, error) {
		return nil, &answerError{text: fmt.Sprintf("the result it returned %s: %s", what, excerpt(got))}
	}
	if !isObject(got) {
		return wrong("is not an object")
	}
	known, others := false, false
	for name, value := range rawjson.Members(got) {
		wanted, ok := resultMembers[name]
		known, others = known || ok, others || !ok
		if ok && !is(wanted, value) {
			return wrong(fmt.Sprintf("has a member %q that is not %s", name, wanted))
		}
	}
	if others && !known {
		return wrong(`is not {"content": [...]}`)
	}
	n := 0
	for block := range rawjson.Elements(rawjson.Member(got, "content")) {
		if !isBlock(block) {
			return wrong(fmt.Sprintf(`has a block in "content" that is none, number %d`, n+1))
		}
		n++
	}
	if rawjson.Member(got, "content") != nil {
		return got, nil
	}
	with, err := rawjson.Set(got, "content", []byte(`[]`))
	if err != nil {
		return wrong("is not an object")
	}
	return with, nil
}

// is reports whether a value has the type that resultMembers names.
func is(wanted string, value json.RawMessage) bool {
	switch wanted {
	case "a list of blocks":
		return value[0] == '['
	case "true or false":
		return value[0] == 't' || value[0] == 'f'
	case "an object":
		return value[0] == '{'
	case "text":
		return value[0] == '"'
	}
	return true
}

// isBlock reports whether a value is a content block, possibly of an unknown type. Only text blocks are checked further,
// because other incomplete blocks may come from the server.
func isBlock(value json.RawMessage) bool {
	kind := rawjson.Text(rawjson.Member(value, "type"))
	return kind != "" && (kind != "text" || is("text", orNull(rawjson.Member(value, "text"))))
}

// excerpt returns the beginning of a value, for an error message.
func excerpt(value json.RawMessage) string {
	const most = 200
	if len(value) > most {
		return fmt.Sprintf("%q...", value[:most])
	}
	return printable.Line(string(value))
}

// textOf returns a value as text: the content of a string, else the JSON of the value.
func textOf(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}

// valueResult returns a result with a value, both as structured content and as text.
func valueResult(value json.RawMessage, failed bool) (tool.Result, error) {
	type block struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	result, err := rawjson.Encode(struct {
		Content    []block         `json:"content"`
		Structured json.RawMessage `json:"structuredContent"`
		IsError    bool            `json:"isError,omitempty"`
	}{[]block{{"text", textOf(value)}}, structuredOf(value), failed})
	return tool.Result(result), err
}

// structuredOf returns a value as structured content: an object, or an object with the value.
func structuredOf(value json.RawMessage) json.RawMessage {
	if isObject(value) {
		return value
	}
	return append(append(json.RawMessage(`{"result":`), value...), '}')
}
