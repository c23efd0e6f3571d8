package args

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"toolfinch/internal/nearest"
	"toolfinch/internal/rawjson"
)

// Wrappers are the members, folded, under which models write the arguments of a call, the usual ones first.
var Wrappers = []string{"arguments", "args", "params", "parameters", "input", "inputs", "toolinput", "toolargs", "toolarguments", "toolparameters", "functionarguments", "actioninput", "argument", "kwargs"}

// ObjectIn returns the object that a value is, or is the JSON text or a list of; nil for another value.
func ObjectIn(value json.RawMessage) json.RawMessage {
	for range 3 {
		value = bytes.TrimSpace(value)
		switch {
		case rawjson.IsObject(value):
			return value
		case len(value) > 0 && value[0] == '"':
			value = Plain(value)
		default:
			elements := slices.Collect(rawjson.Elements(value))
			if len(elements) != 1 {
				return nil
			}
			value = elements[0]
		}
	}
	return nil
}

// Shape returns the arguments of a meta-tool under the names of its schema. Models write them in JSON text, under a
// wrapper like "arguments", or under other names: other has these for each name of the schema, folded, between spaces.
// A lone text or list is the first argument that may be one. What is not certain stays unchanged.
func Shape(schema, arguments json.RawMessage, other map[string]string) json.RawMessage {
	if !json.Valid(arguments) || string(bytes.TrimSpace(arguments)) == "null" {
		return arguments
	}
	properties := rawjson.Member(schema, "properties")
	object := ObjectIn(arguments)
	if object == nil {
		return lone(properties, bytes.TrimSpace(arguments))
	}
	for range 3 {
		inner := inWrapper(properties, object)
		if inner == nil {
			break
		}
		object = inner
	}
	out := rawjson.NewObject(len(object))
	changed := false
	for name, value := range rawjson.Members(object) {
		as := name
		if rawjson.Member(properties, name) == nil {
			if meant := meant(name, properties, other); meant != "" && rawjson.Member(object, meant) == nil {
				as, changed = meant, true
			}
		}
		out.Add(as, value)
	}
	if changed {
		return out.JSON()
	}
	return object
}

// meant returns the one property that a name means; "" for none.
func meant(name string, properties json.RawMessage, other map[string]string) (property string) {
	if property = spelled(name, properties); property != "" {
		return property
	}
	for one := range rawjson.Members(properties) {
		if slices.Contains(strings.Fields(other[one]), nearest.Fold(name)) {
			if property != "" {
				return ""
			}
			property = one
		}
	}
	return property
}

// lone returns an object with the value as the first argument of its type.
func lone(properties, value json.RawMessage) json.RawMessage {
	for name, schema := range rawjson.Members(properties) {
		of := rawjson.Text(rawjson.Member(rawjson.Member(schema, "items"), "type"))
		fits := !slices.ContainsFunc(slices.Collect(rawjson.Elements(value)), func(one json.RawMessage) bool { return typeOf(one) != of })
		if rawjson.Text(rawjson.Member(schema, "type")) == typeOf(value) && len(value) > 2 && fits {
			var out rawjson.Object
			out.Add(name, value)
			return out.JSON()
		}
	}
	return value
}

// inWrapper returns the object in the wrapper of arguments, beside which only a name may stand; nil for none.
func inWrapper(properties, object json.RawMessage) (inner json.RawMessage) {
	for name, value := range rawjson.Members(object) {
		folded := nearest.Fold(name)
		switch in := ObjectIn(value); {
		case rawjson.Member(properties, name) != nil:
			return nil
		case slices.Contains(Wrappers, folded) && in != nil && inner == nil:
			inner = in
		case slices.Contains([]string{"name", "tool", "toolname"}, folded) && value[0] == '"':
		default:
			return nil
		}
	}
	return inner
}
