package index

import (
	"encoding/json"
	"maps"
	"slices"
)

// Bounds of the walk through a schema. Real tools stay below; what goes beyond
// is not found by its parameters.
const (
	maxDepth   = 8
	maxMembers = 500
)

// schema is what a search wants of a JSON schema. A member of another type
// than here is left out, and the others are decoded all the same.
type schema struct {
	Description string             `json:"description"`
	Properties  map[string]*schema `json:"properties"`
	Items       *schema            `json:"items"`
	Additional  *schema            `json:"additionalProperties"`
	AnyOf       []*schema          `json:"anyOf"`
	OneOf       []*schema          `json:"oneOf"`
	AllOf       []*schema          `json:"allOf"`
	Defs        map[string]*schema `json:"$defs"`
	Definitions map[string]*schema `json:"definitions"`
}

// parameters returns the names and the descriptions of a schema's properties,
// nested ones included. What is no schema has none.
func parameters(raw json.RawMessage) (names, explanations []string) {
	if len(raw) == 0 {
		return nil, nil
	}
	var root schema
	_ = json.Unmarshal(raw, &root) // see schema: what could be decoded is there
	root.Description = ""          // says what the arguments are: nothing new
	var w walk
	w.schema(&root, 0)
	return w.names, w.explanations
}

type walk struct {
	names, explanations []string
	seen                int // schemas looked at
}

func (w *walk) schema(s *schema, depth int) {
	if s == nil || depth > maxDepth || w.seen >= maxMembers {
		return
	}
	w.seen++
	if s.Description != "" {
		w.explanations = append(w.explanations, s.Description)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) { // a walk cut short is always cut at the same place
		if w.seen >= maxMembers {
			return
		}
		w.names = append(w.names, name)
		w.schema(s.Properties[name], depth+1)
	}
	w.schema(s.Items, depth+1)
	w.schema(s.Additional, depth+1)
	for _, list := range [][]*schema{s.AnyOf, s.OneOf, s.AllOf} {
		for _, member := range list {
			w.schema(member, depth+1)
		}
	}
	for _, defs := range []map[string]*schema{s.Defs, s.Definitions} {
		for _, name := range slices.Sorted(maps.Keys(defs)) {
			w.schema(defs[name], depth+1)
		}
	}
}
