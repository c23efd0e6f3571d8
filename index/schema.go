package index

import (
	"encoding/json"

	"toolfinch/rawjson"
)

// Bounds of the walk through a schema. Real tools stay below; what goes beyond
// is not found by its parameters.
const (
	maxDepth   = 8
	maxMembers = 500
)

// parameters returns the names and the descriptions of a schema's properties,
// nested ones included. What is no schema has none.
func parameters(raw json.RawMessage) (names, explanations []string) {
	var w walk
	w.schema(raw, 0)
	return w.names, w.explanations
}

// walk goes through a schema in the order in which it is written, so that one
// that is cut short is always cut at the same place.
type walk struct {
	names, explanations []string
	seen                int // schemas looked at
}

func (w *walk) schema(raw json.RawMessage, depth int) {
	if depth > maxDepth || w.seen >= maxMembers {
		return
	}
	w.seen++
	for key, value := range rawjson.Members(raw) {
		switch key {
		case "description":
			// The root's says what the arguments are: nothing new.
			if text := rawjson.Text(value); text != "" && depth > 0 {
				w.explanations = append(w.explanations, text)
			}
		case "properties":
			for name, property := range rawjson.Members(value) {
				if w.seen >= maxMembers {
					return
				}
				w.names = append(w.names, name)
				w.schema(property, depth+1)
			}
		case "items", "additionalProperties":
			w.schema(value, depth+1)
		case "anyOf", "oneOf", "allOf":
			for member := range rawjson.Elements(value) {
				w.schema(member, depth+1)
			}
		case "$defs", "definitions":
			for _, def := range rawjson.Members(value) {
				w.schema(def, depth+1)
			}
		}
	}
}
