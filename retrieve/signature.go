package retrieve

import (
	"encoding/json"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
)

// Bounds of a signature. A brief one is a line among many; its reader asks for more.
const (
	maxParameter  = 120 // bytes of a parameter's description
	maxOptional   = 80  // of one that may be left out
	maxDefault    = 60  // bytes of a default
	maxDeep       = 8   // objects and references within each other
	maxBrief      = 6   // values or alternatives of a type in a brief signature
	maxBriefDepth = 3
)

// Signature returns the parameters of an input schema in one line, with a question
// mark for those that may be left out: "(title: string, labels?: string[])". It is "()"
// for a schema that is not an object.
func Signature(schema json.RawMessage) string {
	w := newSignature(schema)
	w.brief = true
	return "(" + strings.Join(w.properties(schema, 0), ", ") + ")"
}

// parameters returns the parameters of an input schema, one a line, each with its type
// and its description. ok is false where that would not be shorter than the schema, or
// not enough to build a valid call.
//
//	path: string # where to write
//	mode?: "append"|"replace" = "replace"
//	lines?: {from: integer(1..), to?: integer}[](1..100)
func parameters(schema json.RawMessage) (lines []string, ok bool) {
	w := newSignature(schema)
	for name := range rawjson.Members(schema) {
		// Which parameters belong together, or where they are, cannot be written.
		w.lossy = w.lossy || name == "$ref" || slices.Contains(alternatives, name) || slices.Contains(beyond, name)
	}
	lines = w.properties(schema, 0)
	return lines, !w.lossy && w.room >= 0
}

// signature writes types. It follows references within the schema.
type signature struct {
	root  json.RawMessage
	brief bool
	room  int  // bytes that may be written yet; below 0: too many
	work  int  // bytes that may be read yet: references can fan out without end
	lossy bool // something that a call must heed cannot be written
}

func newSignature(schema json.RawMessage) *signature {
	const each = 64 // times: real schemas are read up to 20 times
	return &signature{root: schema, room: min(len(schema), maxHit), work: each*len(schema) + 1<<16}
}

var (
	plainName    = regexp.MustCompile(`^[A-Za-z_$@][\w$@.-]*$`)
	alternatives = []string{"anyOf", "oneOf", "allOf"}
	// beyond are the keywords that a signature cannot express.
	beyond = []string{"not", "if", "patternProperties", "prefixItems", "contains", "dependentRequired", "dependentSchemas",
		"dependencies", "minProperties", "maxProperties", "multipleOf", "additionalItems", "$dynamicRef", "$recursiveRef"}
	// numeric are formats that a type says already.
	numeric = []string{"int32", "int64", "uint32", "uint64", "float", "double", "integer", "number", "string"}
)

// properties returns the properties of an object, each as "name: type = default".
func (w *signature) properties(schema json.RawMessage, depth int) []string {
	required := map[string]bool{}
	for _, name := range texts(rawjson.Member(schema, "required")) {
		required[name] = true
	}
	var out []string
	for name, property := range rawjson.Members(rawjson.Member(schema, "properties")) {
		needed := required[name]
		if !plainName.MatchString(name) {
			name = string(printable.JSON(rawjson.Quote(name)))
		}
		if w.room -= len(name + ": string, "); w.room < 0 || w.work < 0 {
			return out
		}
		if !needed {
			name += "?"
		}
		out = append(out, name+": "+w.property(property, needed, depth))
	}
	return out
}

func (w *signature) property(schema json.RawMessage, needed bool, depth int) string {
	text := w.typeOf(schema, depth)
	if !needed { // what may be null may be left out
		text = strings.TrimSuffix(strings.TrimPrefix(text, "null|"), "|null")
	}
	if w.brief {
		return text
	}
	if value := rawjson.Member(schema, "default"); value != nil && len(value) <= maxDefault && string(value) != "null" {
		text += w.took(" = " + literal(value))
	}
	if about := printable.Line(rawjson.Text(rawjson.Member(schema, "description"))); about != "" {
		most := maxOptional
		if needed {
			most = maxParameter
		}
		text += w.took(" # " + clipWords(about, most))
	}
	return text
}

// typeOf is a schema as a type: string, "a"|"b", number[], {path: string}.
func (w *signature) typeOf(schema json.RawMessage, depth int) string {
	w.work -= len(schema)
	if w.room < 0 || w.work < 0 || depth > maxDeep || w.brief && depth > maxBriefDepth {
		w.lossy = true
		return "any"
	}
	members := map[string]json.RawMessage{}
	for name, value := range rawjson.Members(schema) {
		members[name] = value
		w.lossy = w.lossy || slices.Contains(beyond, name)
	}
	if at, is := members["$ref"]; is {
		return w.typeOf(w.referred(rawjson.Text(at)), depth+1)
	}
	if value, is := members["const"]; is {
		return w.took(literal(value))
	}
	if values, is := members["enum"]; is {
		return either(w, rawjson.Elements(values), func(v json.RawMessage) string { return w.took(literal(v)) })
	}
	for _, key := range alternatives {
		if of, is := members[key]; is {
			all := slices.Collect(rawjson.Elements(of))
			w.lossy = w.lossy || members["properties"] != nil || members["items"] != nil || key == "allOf" && len(all) > 1
			return either(w, slices.Values(all), func(s json.RawMessage) string { return w.typeOf(s, depth+1) })
		}
	}
	names := texts(members["type"])
	switch {
	case len(names) > 0:
	case members["properties"] != nil:
		names = []string{"object"}
	default:
		names = []string{"any"}
	}
	return either(w, slices.Values(names), func(name string) string { return w.named(name, members, schema, depth) })
}

// either joins alternatives, each once.
func either[T any](w *signature, of iter.Seq[T], text func(T) string) string {
	var all []string
	seen := map[string]bool{}
	for one := range of {
		if w.brief && len(all) == maxBrief {
			all = append(all, "...")
			break
		}
		if w.room < 0 {
			break
		}
		if t := text(one); !seen[t] {
			seen[t] = true
			all = append(all, t)
		}
	}
	return strings.Join(all, "|")
}

// named is a type by its name, with what else the schema says of it.
func (w *signature) named(name string, members map[string]json.RawMessage, schema json.RawMessage, depth int) string {
	switch name {
	case "array":
		items := "any"
		if of := members["items"]; of != nil {
			items = w.typeOf(of, depth+1)
		}
		if strings.Contains(items, "|") {
			items = "(" + items + ")"
		}
		return items + "[]" + w.bounds(between(members["minItems"], members["maxItems"]))
	case "object":
		return w.object(members, schema, depth)
	case "string":
		least := members["minLength"]
		if string(least) == "1" { // nobody sends less
			least = nil
		}
		format, pattern := rawjson.Text(members["format"]), rawjson.Text(members["pattern"])
		if slices.Contains(numeric, format) {
			format = ""
		}
		if pattern != "" {
			pattern = "/" + pattern + "/"
		}
		// A pattern with a character left out would be another one.
		w.lossy = w.lossy || printable.Line(format) != format || printable.Line(pattern) != pattern
		return name + w.bounds(format, pattern, between(least, members["maxLength"]))
	case "number", "integer":
		return name + w.bounds(between(members["minimum"], members["maximum"]),
			beside(">", members["exclusiveMinimum"]), beside("<", members["exclusiveMaximum"]))
	}
	return w.took(printable.Line(name))
}

func (w *signature) object(members map[string]json.RawMessage, schema json.RawMessage, depth int) string {
	if w.brief {
		return "object"
	}
	all := w.properties(schema, depth+1)
	if keys := members["propertyNames"]; keys != nil {
		w.lossy = w.lossy || rawjson.Member(keys, "enum") != nil || rawjson.Member(keys, "pattern") != nil
	}
	if rest := members["additionalProperties"]; rawjson.IsObject(rest) && !rawjson.IsEmpty(rest) {
		all = append(all, "[key]: "+w.property(rest, true, depth+1))
	}
	if len(all) == 0 {
		return "object"
	}
	if text := strings.Join(all, ", "); !strings.Contains(text, " # ") {
		return "{" + text + "}"
	}
	indent := "\n" + strings.Repeat(" ", depth+1)
	return "{" + indent + " " + strings.Join(all, indent+" ") + indent + "}"
}

// bounds writes what limits a type, and only for a reader who calls with it.
func (w *signature) bounds(all ...string) string {
	all = slices.DeleteFunc(all, func(one string) bool { return one == "" })
	if w.brief || len(all) == 0 {
		return ""
	}
	return w.took("(" + strings.Join(all, ", ") + ")")
}

// between is a range, "" without bounds that anybody would reach.
func between(least, most json.RawMessage) string {
	const beyondReach = 1 << 31
	for _, bound := range []*json.RawMessage{&least, &most} {
		if n, err := strconv.ParseFloat(string(*bound), 64); err != nil || n >= beyondReach || n <= -beyondReach {
			*bound = nil
		}
	}
	if least == nil && most == nil {
		return ""
	}
	return string(least) + ".." + string(most)
}

func beside(sign string, bound json.RawMessage) string {
	if _, err := strconv.ParseFloat(string(bound), 64); err != nil {
		return ""
	}
	return sign + string(bound)
}

// referred returns what a reference within the schema names.
func (w *signature) referred(at string) json.RawMessage {
	w.work -= len(w.root)
	path, local := strings.CutPrefix(at, "#/")
	schema := w.root
	for local && path != "" {
		var step string
		step, path, _ = strings.Cut(path, "/")
		schema = rawjson.Member(schema, strings.NewReplacer("~1", "/", "~0", "~", "%24", "$").Replace(step))
	}
	if !local || schema == nil {
		w.lossy = true
		return nil
	}
	return schema
}

// took counts text, and returns it.
func (w *signature) took(text string) string {
	w.room -= len(text)
	return text
}

// texts is a text, or an array of texts.
func texts(raw json.RawMessage) []string {
	if one := rawjson.Text(raw); one != "" {
		return []string{one}
	}
	var all []string
	for element := range rawjson.Elements(raw) {
		all = append(all, rawjson.Text(element))
	}
	return all
}
