package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"toolfinch/rawjson"
)

// template is a JSON value with places for inputs, parsed once. Exactly one of
// its fields is set.
type template struct {
	literal json.RawMessage // without places in it
	whole   string          // the name of an input whose value it is
	text    []piece         // a string
	members []member        // an object
	items   []template      // an array
}

type piece struct {
	text  string
	input string // "" for text
}

type member struct {
	name  []byte // quoted
	value template
}

// parseTemplate parses JSON whose strings may have places for the inputs.
func parseTemplate(raw json.RawMessage, inputs []string) (template, error) {
	switch {
	case len(raw) == 0:
		return template{literal: raw}, nil
	case raw[0] == '"':
		return parseText(raw, inputs)
	case raw[0] == '[':
		t, constant := template{items: []template{}}, true
		for element := range rawjson.Elements(raw) {
			item, err := parseTemplate(element, inputs)
			if err != nil {
				return template{}, err
			}
			t.items = append(t.items, item)
			constant = constant && item.isLiterally(element)
		}
		if !constant {
			return t, nil
		}
	case raw[0] == '{':
		t, constant := template{members: []member{}}, true
		for name, value := range rawjson.Members(raw) {
			parsed, err := parseTemplate(value, inputs)
			if err != nil {
				return template{}, fmt.Errorf("%s: %w", name, err)
			}
			t.members = append(t.members, member{rawjson.Quote(name), parsed})
			constant = constant && parsed.isLiterally(value)
		}
		if !constant {
			return t, nil
		}
	}
	return literally(raw), nil
}

func literally(raw json.RawMessage) template { return template{literal: raw} }

// isLiterally reports whether the template is raw as it stands, without places
// and escaped braces.
func (t template) isLiterally(raw json.RawMessage) bool {
	return t.literal != nil && bytes.Equal(t.literal, raw)
}

func parseText(raw json.RawMessage, inputs []string) (template, error) {
	text := rawjson.Text(raw)
	if !strings.ContainsAny(text, "{}") {
		return literally(raw), nil
	}
	var pieces []piece
	var plain strings.Builder
	for text != "" {
		switch {
		case strings.HasPrefix(text, "{{"), strings.HasPrefix(text, "}}"):
			plain.WriteByte(text[0])
			text = text[2:]
		case text[0] == '}':
			return template{}, fmt.Errorf("a } closes nothing in %q: write }} for a brace", rawjson.Text(raw))
		case text[0] == '{':
			end := strings.IndexByte(text, '}')
			if end < 0 {
				return template{}, fmt.Errorf("a { is not closed in %q: write {{ for a brace", rawjson.Text(raw))
			}
			name, found := strings.CutPrefix(text[1:end], "inputs.")
			if !found {
				return template{}, fmt.Errorf("%s is no input: write {inputs.name} for an input, {{ and }} for braces", text[:end+1])
			}
			if !slices.Contains(inputs, name) {
				return template{}, fmt.Errorf("unknown input %q (%s)", name, didYouMean(name, inputs))
			}
			if plain.Len() > 0 {
				pieces = append(pieces, piece{text: plain.String()})
				plain.Reset()
			}
			pieces = append(pieces, piece{input: name})
			text = text[end+1:]
		default:
			next := strings.IndexAny(text, "{}")
			if next < 0 {
				next = len(text)
			}
			plain.WriteString(text[:next])
			text = text[next:]
		}
	}
	switch {
	case len(pieces) == 0: // nothing but escaped braces
		return literally(rawjson.Quote(plain.String())), nil
	case len(pieces) == 1 && plain.Len() == 0 && pieces[0].input != "":
		return template{whole: pieces[0].input}, nil
	case plain.Len() > 0:
		pieces = append(pieces, piece{text: plain.String()})
	}
	return template{text: pieces}, nil
}

// fill returns the value with the inputs, an object, in their places; false
// when it is an input that is missing.
func (t template) fill(inputs json.RawMessage) (json.RawMessage, bool) {
	switch {
	case t.literal != nil:
		return t.literal, true
	case t.whole != "":
		value := rawjson.Member(inputs, t.whole)
		return value, value != nil
	case t.text != nil:
		var out strings.Builder
		for _, p := range t.text {
			out.WriteString(p.text)
			if p.input != "" {
				out.WriteString(textOf(rawjson.Member(inputs, p.input)))
			}
		}
		return rawjson.Quote(out.String()), true
	case t.items != nil:
		out := json.RawMessage(`[`)
		for _, item := range t.items {
			if value, there := item.fill(inputs); there {
				if len(out) > 1 {
					out = append(out, ',')
				}
				out = append(out, value...)
			}
		}
		return append(out, ']'), true
	}
	out := []byte(`{`)
	for _, m := range t.members {
		if value, there := m.value.fill(inputs); there {
			out = appendMember(out, m.name, value)
		}
	}
	return append(out, '}'), true
}
