package index

import (
	"encoding/json"
	"net/url"
	"regexp"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// Bounds of the walk through a schema. Real tools stay below; parameters beyond are not found.
const (
	maxDepth   = 8
	maxMembers = 500
)

// documented returns the names and descriptions of a definition's inputs: the parameters of a tool, the arguments
// of a prompt, the variables of a resource template.
func documented(def *tool.Def) (names, explanations []string) {
	switch def.ID.Kind {
	case tool.KindTool:
		return parameters(def.InputSchema)
	case tool.KindPrompt:
		for argument := range rawjson.Elements(rawjson.Member(def.Raw, "arguments")) {
			if len(names) == maxMembers {
				break
			}
			if name := rawjson.Text(rawjson.Member(argument, "name")); name != "" {
				names = append(names, name)
			}
			explanations = append(explanations, rawjson.Text(rawjson.Member(argument, "description")))
		}
	case tool.KindSkill:
		skill := tool.SkillOf(def)
		for _, file := range skill.Files[:min(maxMembers, len(skill.Files))] {
			if file.URI != skill.URI {
				names = append(names, tool.UnescapeURI(strings.TrimPrefix(file.URI, skill.Root())))
			}
		}
		explanations = def.Headings
	case tool.KindTemplate:
		names = expression.FindAllString(rawjson.Head(def.ID.Name, maxText), maxMembers)
	}
	return names, explanations
}

// expression matches the variables in a URI template. Operators and modifiers in it are not words.
var expression = regexp.MustCompile(`\{[^{}]*\}`)

// uriWords returns the words of a resource's URI, without scheme and variables; "" for other kinds.
func uriWords(def *tool.Def) string {
	if def.ID.Kind != tool.KindResource && def.ID.Kind != tool.KindTemplate && def.ID.Kind != tool.KindSkill {
		return ""
	}
	uri := expression.ReplaceAllString(strings.TrimSuffix(rawjson.Head(def.ID.Name, maxText), tool.SkillFile), " ")
	scheme, rest, found := strings.Cut(uri, ":")
	if !found || strings.Trim(rest, "/ ") == "" {
		rest = scheme
	}
	if plain, err := url.PathUnescape(rest); err == nil {
		rest = plain
	}
	return rest
}

// ownName returns the server's own name of a definition: the name of a tool, prompt or resource; of a nameless
// resource the URI.
func ownName(def *tool.Def) string {
	if def.ID.Kind == tool.KindSkill {
		return def.Title
	}
	if def.ID.Kind == tool.KindResource || def.ID.Kind == tool.KindTemplate {
		if name := rawjson.Text(rawjson.Member(def.Raw, "name")); name != "" {
			return name
		}
	}
	return def.ID.Name
}

// parameters returns the names and descriptions of a schema's properties, nested ones included. A malformed schema
// has none.
func parameters(raw json.RawMessage) (names, explanations []string) {
	var w walk
	w.schema(raw, 0)
	return w.names, w.explanations
}

// walk visits a schema in its written order, so that a truncated walk always ends at the same place.
type walk struct {
	names, explanations []string
	seen                int // visited schemas
}

func (w *walk) schema(raw json.RawMessage, depth int) {
	if depth > maxDepth || w.seen >= maxMembers {
		return
	}
	w.seen++
	for key, value := range rawjson.Members(raw) {
		switch key {
		case "description":
			// The root's description repeats the tool's.
			if text := rawjson.Text(value); text != "" && depth > 0 {
				w.explanations = append(w.explanations, text)
			}
		case "properties":
			for name, property := range rawjson.Members(value) {
				if w.seen >= maxMembers || len(w.names) >= maxMembers {
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

// maxText bounds how many bytes of a single text are read.
const maxText = 16 << 10
