package view

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"toolfinch/internal/rawjson"
)

// token matches the special parts of a template's texts: escaped braces, placeholders for an input or a step's result,
// and unpaired braces.
var token = regexp.MustCompile(`\{\{|\}\}|\{(?:inputs|steps)\.[^{}]*\}|[{}]`)

// fillIn replaces the placeholders {inputs.name} and {steps.key} in the strings of a template by the values of input. A
// member or element that is only a placeholder is left out if its value is nil. A whole template like this gives nil.
func fillIn(template json.RawMessage, input func(place string) (json.RawMessage, error)) (json.RawMessage, error) {
	switch template[0] {
	case '"':
		return fillText(template, input)
	case '[':
		var items []json.RawMessage
		for element := range rawjson.Elements(template) {
			item, err := fillIn(element, input)
			if err != nil {
				return nil, err
			}
			if item != nil {
				items = append(items, item)
			}
		}
		return rawjson.Array(items), nil
	case '{':
		out := rawjson.NewObject(len(template))
		for name, member := range rawjson.Members(template) {
			value, err := fillIn(member, input)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if value != nil {
				out.Add(name, value)
			}
		}
		return out.JSON(), nil
	}
	return template, nil
}

func fillText(template json.RawMessage, input func(place string) (json.RawMessage, error)) (json.RawMessage, error) {
	text := rawjson.Text(template)
	tokens := token.FindAllStringIndex(text, -1)
	if len(tokens) == 0 {
		return template, nil
	}
	var out strings.Builder
	last := 0
	for _, at := range tokens {
		out.WriteString(text[last:at[0]])
		last = at[1]
		switch found := text[at[0]:at[1]]; found {
		case "{{", "}}":
			out.WriteString(found[:1])
		case "}":
			return nil, fmt.Errorf("a } closes nothing in %q: write }} for a brace", text)
		case "{":
			end := strings.IndexByte(text[at[0]:], '}')
			if end < 0 {
				return nil, fmt.Errorf("a { is not closed in %q: write {{ for a brace", text)
			}
			return nil, fmt.Errorf("%s is no input: write {inputs.name} for an input, {steps.key} for the result of a step, {{ and }} for braces", text[at[0]:at[0]+end+1])
		default:
			value, err := input(found[1 : len(found)-1])
			if err != nil || found == text {
				return value, err
			}
			out.WriteString(textOf(value))
		}
	}
	return rawjson.Quote(out.String() + text[last:]), nil
}
