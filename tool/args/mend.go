package args

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"toolfinch/internal/nearest"
	"toolfinch/internal/rawjson"
)

// maxMendDepth bounds how deep Mend looks into values and follows references; maxMendBytes how much of schemas it
// reads, because they come from servers.
const (
	maxMendDepth = 16
	maxMendBytes = 4 << 20
)

// Mend returns arguments with the types that the schema of an object wants, where another spelling of a value is
// certainly meant: JSON as text, a number as text or text as a number, one value for a list of one, null or an empty
// text for an optional argument, another case of a choice or of a required name. A value whose type the schema
// allows stays unchanged. Whether the result fits the schema is for the caller to check.
func Mend(schema, arguments json.RawMessage) json.RawMessage {
	if !rawjson.IsObject(schema) || !json.Valid(arguments) {
		return arguments
	}
	m := &mender{schema, maxMendBytes}
	return m.value(m.read(schema), arguments, 0)
}

// plainKey matches names of arguments that model providers take. Models know others only in another spelling.
var plainKey = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)

// mender mends values for the schemas inside root.
type mender struct {
	root json.RawMessage
	left int // bytes that may be read
}

// node is what mending needs of a schema.
type node struct {
	types                               []string // that it allows itself; nil: any
	properties, items, enum, additional json.RawMessage
	required, format, least             json.RawMessage
	branches                            []json.RawMessage // anyOf and oneOf
}

// read reads a schema, behind its references; nil if it cannot.
func (m *mender) read(schema json.RawMessage) *node {
	for range maxMendDepth {
		if m.left -= len(schema) + 100; m.left < 0 || !rawjson.IsObject(schema) {
			return nil
		}
		var n node
		ref, nullable := "", false
		for keyword, value := range rawjson.Members(schema) {
			switch keyword {
			case "$ref":
				ref = rawjson.Text(value)
			case "type":
				n.types = texts(value)
				if text := rawjson.Text(value); text != "" {
					n.types = []string{text}
				}
			case "nullable":
				nullable = string(value) == "true"
			case "properties":
				n.properties = value
			case "items":
				n.items = value
			case "enum":
				n.enum = value
			case "const":
				n.enum = rawjson.Array([]json.RawMessage{value})
			case "additionalProperties":
				n.additional = value
			case "required":
				n.required = value
			case "format":
				n.format = value
			case "minLength":
				n.least = value
			case "anyOf", "oneOf":
				n.branches = slices.AppendSeq(n.branches, rawjson.Elements(value))
			}
		}
		if n.types != nil && nullable {
			n.types = append(n.types, "null")
		}
		path, inside := strings.CutPrefix(ref, "#")
		if !inside {
			return &n
		}
		schema = m.root
		for token := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
			if token != "" {
				schema = rawjson.Member(schema, strings.NewReplacer("~1", "/", "~0", "~").Replace(token))
			}
		}
	}
	return nil
}

// allowed returns the JSON types that a schema allows; nil for any.
func (m *mender) allowed(n *node, depth int) (types []string) {
	if n == nil || depth > maxMendDepth {
		return nil
	}
	if n.types != nil {
		return n.types
	}
	for choice := range rawjson.Elements(n.enum) {
		types = append(types, typeOf(choice))
	}
	for _, branch := range n.branches {
		one := m.allowed(m.read(branch), depth+1)
		if one == nil {
			return nil
		}
		types = append(types, one...)
	}
	return types
}

func texts(list json.RawMessage) (texts []string) {
	for one := range rawjson.Elements(list) {
		texts = append(texts, rawjson.Text(one))
	}
	return texts
}

func typeOf(value json.RawMessage) string {
	switch value[0] {
	case '"':
		return "string"
	case '{':
		return "object"
	case '[':
		return "array"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}

// allows reports whether types allow a value; an integer is a number.
func allows(types []string, value json.RawMessage) bool {
	t := typeOf(value)
	return types == nil || slices.Contains(types, t) || t == "number" && slices.Contains(types, "integer")
}

func (m *mender) value(n *node, value json.RawMessage, depth int) json.RawMessage {
	if n == nil || depth > maxMendDepth {
		return value
	}
	if types := m.allowed(n, 0); !allows(types, value) {
		converted := m.convert(n, types, value)
		if converted == nil {
			return value
		}
		value = converted
	}
	if n.properties == nil && n.items == nil {
		var fitting []*node
		for _, branch := range n.branches {
			of := m.read(branch)
			if types := m.allowed(of, 0); types != nil && allows(types, value) {
				fitting = append(fitting, of)
			}
		}
		if len(fitting) == 1 {
			return m.value(fitting[0], value, depth+1)
		}
	}
	switch value[0] {
	case '{':
		return m.object(n, value, depth)
	case '[':
		return m.array(n, value, depth)
	case '"':
		return choice(n.enum, value)
	}
	return value
}

// convert returns the value in one of the types; nil if none certainly is meant.
func (m *mender) convert(n *node, types []string, value json.RawMessage) json.RawMessage {
	if value[0] == '"' {
		if read := Plain(value); read != nil && allows(types, read) {
			return read
		}
	}
	if slices.Contains(types, "string") && (typeOf(value) == "number" || typeOf(value) == "boolean") {
		return rawjson.Quote(string(value))
	}
	if value[0] == '[' {
		if only := slices.Collect(rawjson.Elements(value)); len(only) == 1 && allows(types, only[0]) {
			return only[0]
		}
		return nil
	}
	if slices.Contains(types, "array") && n.items != nil && value[0] != 'n' && string(value) != `""` && !strings.ContainsAny(rawjson.Text(value), ",[{") {
		if of := m.allowed(m.read(n.items), 0); of != nil && allows(of, value) {
			return rawjson.Array([]json.RawMessage{value})
		}
	}
	return nil
}

// Plain returns the JSON that a JSON text contains, also in a code fence or in another case (True); nil if it
// contains none.
func Plain(value json.RawMessage) json.RawMessage {
	text := strings.TrimSpace(rawjson.Text(value))
	if inside, fenced := strings.CutPrefix(text, "```"); fenced {
		text = strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(inside, "json"), "```"))
	}
	if lower := strings.ToLower(text); lower == "true" || lower == "false" || lower == "null" || lower == "none" {
		text = strings.Replace(lower, "none", "null", 1)
	}
	if text == "" || !json.Valid([]byte(text)) {
		return nil
	}
	return json.RawMessage(text)
}

func (m *mender) array(n *node, value json.RawMessage, depth int) json.RawMessage {
	items := m.read(n.items)
	if items == nil {
		return value
	}
	var out []json.RawMessage
	changed := false
	for element := range rawjson.Elements(value) {
		mended := m.value(items, element, depth+1)
		changed = changed || !bytes.Equal(mended, element)
		out = append(out, mended)
	}
	if !changed {
		return value
	}
	return rawjson.Array(out)
}

func (m *mender) object(n *node, value json.RawMessage, depth int) json.RawMessage {
	if !rawjson.IsObject(n.properties) {
		return value
	}
	required := texts(n.required)
	out := rawjson.NewObject(len(value))
	changed := false
	for name, given := range rawjson.Members(value) {
		if m.left -= len(n.properties); m.left < 0 {
			return value
		}
		as, property := name, rawjson.Member(n.properties, name)
		if property == nil {
			meant := spelled(name, n.properties)
			if meant != "" && rawjson.Member(value, meant) == nil && (string(n.additional) == "false" || slices.Contains(required, meant) || !plainKey.MatchString(meant)) {
				as, property, changed = meant, rawjson.Member(n.properties, meant), true
			}
		}
		mended := given
		if property != nil && !asWritten(property, given) {
			of := m.read(property)
			mended = m.value(of, given, depth+1)
			if !slices.Contains(required, as) && m.none(of, mended) {
				changed = true
				continue
			}
		}
		changed = changed || !bytes.Equal(mended, given)
		out.Add(as, mended)
	}
	if !changed {
		return value
	}
	return out.JSON()
}

// asWritten reports, for most values at little cost, that a value needs no mending.
func asWritten(schema, value json.RawMessage) bool {
	if !bytes.HasPrefix(schema, []byte(`{"type":"`)) {
		return false
	}
	wanted, _, _ := bytes.Cut(schema[len(`{"type":"`):], []byte{'"'})
	switch value[0] {
	case '"':
		return string(wanted) == "string" && len(value) > 2 && !bytes.Contains(schema, []byte(`"enum"`))
	case '{', '[', 'n':
		return false
	}
	t := typeOf(value)
	return string(wanted) == t || t == "number" && string(wanted) == "integer"
}

// none reports whether a value stands for an absent argument: null, or an empty text where the schema wants another
// type, a choice, a format or some characters.
func (m *mender) none(n *node, value json.RawMessage) bool {
	if n == nil {
		return false
	}
	fits := allows(m.allowed(n, 0), value)
	switch {
	case value[0] == 'n', value[0] == '"' && string(Plain(value)) == "null":
		return !fits
	case string(value) != `""`:
		return false
	case !fits:
		return true
	case n.enum != nil:
		return !slices.ContainsFunc(slices.Collect(rawjson.Elements(n.enum)), func(c json.RawMessage) bool { return string(c) == `""` })
	}
	least, _ := rawjson.Int(n.least)
	return least > 0 || n.format != nil
}

// choice returns the one choice of an enum that a text spells otherwise.
func choice(enum, value json.RawMessage) json.RawMessage {
	var meant []json.RawMessage
	for one := range rawjson.Elements(enum) {
		switch {
		case rawjson.Text(one) == rawjson.Text(value) && one[0] == '"':
			return value
		case one[0] == '"' && nearest.Fold(rawjson.Text(one)) == nearest.Fold(rawjson.Text(value)) && nearest.Fold(rawjson.Text(one)) != "":
			meant = append(meant, one)
		}
	}
	if len(meant) != 1 {
		return value
	}
	return meant[0]
}

// spelled returns the one property whose name differs from name in case and separators alone; "" for none.
func spelled(name string, properties json.RawMessage) (property string) {
	for one := range rawjson.Members(properties) {
		if nearest.Fold(one) == nearest.Fold(name) {
			if property != "" {
				return ""
			}
			property = one
		}
	}
	return property
}
