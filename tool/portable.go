package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"toolfinch/internal/nearest"
	"toolfinch/internal/rawjson"
)

// Portable returns an input schema that Anthropic, OpenAI and Gemini take, and a text for each change; the schema
// itself if they take it. docs/clients.md has their rules. A change keeps what the schema allows, or allows more: the
// server checks. Arguments under renamed keys are passed on under their own (see args.Mend).
func Portable(schema json.RawMessage) (portable json.RawMessage, changes []string) {
	if !rawjson.IsObject(schema) || rawjson.Depth(schema) > maxDefDepth {
		return schema, nil
	}
	p := &porting{root: schema}
	portable = p.schema("", schema, true)
	if len(p.changes) == 0 {
		return schema, nil
	}
	return portable, p.changes
}

// porting makes one schema portable.
type porting struct {
	root    json.RawMessage
	changes []string
}

func (p *porting) changed(at, format string, args ...any) {
	if len(p.changes) < maxMended {
		p.changes = append(p.changes, strings.TrimPrefix(at+": ", ": ")+fmt.Sprintf(format, args...))
	}
}

// portableKey matches the names of arguments that providers take.
var portableKey = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)

var unportable = regexp.MustCompile(`[^a-zA-Z0-9_.-]`)

// typesOfLanguages are types of programming languages that servers write for those of JSON Schema.
var typesOfLanguages = map[string]string{"int": "integer", "float": "number", "double": "number", "bool": "boolean", "str": "string", "text": "string", "dict": "object", "map": "object", "list": "array"}

// rootChoices are the keywords that providers refuse at the root.
var rootChoices = []string{"oneOf", "anyOf", "allOf", "not", "enum"}

func (p *porting) schema(at string, schema json.RawMessage, root bool) json.RawMessage {
	if !rawjson.IsObject(schema) {
		return schema
	}
	if root {
		schema = p.withoutChoices(schema)
	}
	schema = p.properties(at, schema)
	out := rawjson.NewObject(len(schema))
	array, items := false, false
	for keyword, value := range rawjson.Members(schema) {
		below := at + "/" + keyword
		switch keyword {
		case "properties", "$defs", "definitions", "patternProperties", "dependentSchemas":
			value = p.each(below, value)
		case "items":
			items = true
			if value[0] == '[' {
				value = p.tuple(below, value)
			}
			value = p.schema(below, value, false)
		case "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else":
			value = p.schema(below, value, false)
		case "anyOf", "oneOf", "allOf", "prefixItems":
			var all []json.RawMessage
			for one := range rawjson.Elements(value) {
				all = append(all, p.schema(below, one, false))
			}
			value = rawjson.Array(all)
		case "required":
			if value[0] != '[' {
				p.changed(at, "required is %.20s: it is left out", value)
				continue
			}
		case "exclusiveMinimum", "exclusiveMaximum", "minimum", "maximum":
			if value = p.bound(at, schema, keyword, value); value == nil {
				continue
			}
		case "type":
			if text := rawjson.Text(value); text == "any" {
				p.changed(at, "type any is left out")
				continue
			} else if known := typesOfLanguages[text]; known != "" {
				p.changed(at, "type %s is served as %s", text, known)
				value = rawjson.Quote(known)
			}
			array = rawjson.Text(value) == "array" || slices.ContainsFunc(slices.Collect(rawjson.Elements(value)), func(t json.RawMessage) bool { return rawjson.Text(t) == "array" })
		case "$ref":
			if !p.resolves(rawjson.Text(value)) {
				p.changed(at, "the reference %.60s leads nowhere: it is left out", value)
				continue
			}
		}
		out.Add(keyword, value)
	}
	if array && !items {
		p.changed(at, "items is missing: it is served as {}")
		out.Add("items", []byte("{}"))
	}
	if root && rawjson.Member(schema, "properties") == nil {
		p.changed(at, "properties is missing: it is served as {}")
		out.Add("properties", []byte("{}"))
	}
	return out.JSON()
}

// each makes every schema of an object portable.
func (p *porting) each(at string, schemas json.RawMessage) json.RawMessage {
	if !rawjson.IsObject(schemas) {
		return schemas
	}
	out := rawjson.NewObject(len(schemas))
	for name, one := range rawjson.Members(schemas) {
		out.Add(name, p.schema(at+"/"+rawjson.Clip(name, 60), one, false))
	}
	return out.JSON()
}

// properties renames keys that providers refuse, and lists in required the properties that say so themselves, as in
// draft 3.
func (p *porting) properties(at string, schema json.RawMessage) json.RawMessage {
	before := rawjson.Member(schema, "properties")
	if !rawjson.IsObject(before) {
		return schema
	}
	var required []string
	for name := range rawjson.Elements(rawjson.Member(schema, "required")) {
		required = append(required, rawjson.Text(name))
	}
	was := slices.Clone(required)
	out := rawjson.NewObject(len(before))
	for name, one := range rawjson.Members(before) {
		if string(rawjson.Member(one, "required")) == "true" && !slices.Contains(required, name) {
			required = append(required, name)
		}
		if portableKey.MatchString(name) {
			out.Add(name, one)
			continue
		}
		as := p.keyFor(name, before)
		i := slices.Index(required, name)
		switch {
		case as != "":
			p.changed(at, "%.60q is served as %s", name, as)
			out.Add(as, one)
			if i >= 0 {
				required[i] = as
			}
		case i >= 0: // without it no call fits
			out.Add(name, one)
		default:
			p.changed(at, "%.60q is left out", name)
		}
	}
	if bytes.Equal(out.JSON(), before) && slices.Equal(was, required) {
		return schema
	}
	schema, _ = rawjson.Set(schema, "properties", out.JSON())
	if !slices.Equal(was, required) {
		schema, _ = rawjson.Set(schema, "required", rawjson.Of(required))
	}
	return schema
}

// keyFor returns a key that means one property alone, "" if there is none.
func (p *porting) keyFor(name string, properties json.RawMessage) string {
	as := rawjson.Head(unportable.ReplaceAllString(name, "_"), 64)
	alike := 0
	for one := range rawjson.Members(properties) {
		if nearest.Fold(one) == nearest.Fold(as) {
			alike++
		}
	}
	if alike != 1 || nearest.Fold(as) != nearest.Fold(name) {
		return ""
	}
	return as
}

// withoutChoices moves the properties of the root's alternatives into the root. The properties that all of them
// require stay required.
func (p *porting) withoutChoices(schema json.RawMessage) json.RawMessage {
	var names, required []string
	properties := map[string][]json.RawMessage{}
	add := func(of json.RawMessage) {
		for name, one := range rawjson.Members(rawjson.Member(of, "properties")) {
			if properties[name] == nil {
				names = append(names, name)
			}
			if !slices.ContainsFunc(properties[name], func(other json.RawMessage) bool { return bytes.Equal(other, one) }) {
				properties[name] = append(properties[name], one)
			}
		}
	}
	requires := func(of json.RawMessage) (names []string) {
		for name := range rawjson.Elements(rawjson.Member(of, "required")) {
			names = append(names, rawjson.Text(name))
		}
		return names
	}
	add(schema)
	required = requires(schema)
	found := false
	for _, keyword := range rootChoices {
		choices := rawjson.Member(schema, keyword)
		if choices == nil {
			continue
		}
		found = true
		p.changed("", "%s at the root is left out", keyword)
		var common []string
		for i, branch := range slices.Collect(rawjson.Elements(choices)) {
			if ref, inside := strings.CutPrefix(rawjson.Text(rawjson.Member(branch, "$ref")), "#/"); inside {
				branch = p.at(ref)
			}
			if keyword == "not" || keyword == "enum" {
				break
			}
			add(branch)
			if own := requires(branch); i == 0 || keyword == "allOf" {
				common = append(common, own...)
			} else {
				common = slices.DeleteFunc(common, func(name string) bool { return !slices.Contains(own, name) })
			}
		}
		for _, name := range common {
			if !slices.Contains(required, name) {
				required = append(required, name)
			}
		}
	}
	if !found {
		return schema
	}
	var all rawjson.Object
	for _, name := range names {
		if one := properties[name]; len(one) == 1 {
			all.Add(name, one[0])
		} else {
			var either rawjson.Object
			either.Add("anyOf", rawjson.Array(one))
			all.Add(name, either.JSON())
		}
	}
	schema = rawjson.Without(schema, rootChoices...)
	schema, _ = rawjson.Set(schema, "properties", all.JSON())
	if required != nil {
		schema, _ = rawjson.Set(schema, "required", rawjson.Of(required))
	}
	return schema
}

// tuple returns the schema of all elements of a list whose places have schemas.
func (p *porting) tuple(at string, list json.RawMessage) json.RawMessage {
	p.changed(at, "a list of schemas is served as one for all elements")
	all := slices.Collect(rawjson.Elements(list))
	if len(all) == 1 {
		return all[0]
	}
	var out rawjson.Object
	if len(all) > 0 {
		out.Add("anyOf", rawjson.Array(all))
	}
	return out.JSON()
}

// bound returns a bound as later drafts than 4 write it; nil to leave it out.
func (p *porting) bound(at string, schema json.RawMessage, keyword string, value json.RawMessage) json.RawMessage {
	exclusive, is := strings.CutPrefix(keyword, "exclusive")
	if !is {
		if string(rawjson.Member(schema, "exclusive"+strings.ToUpper(keyword[:1])+keyword[1:])) == "true" {
			return nil
		}
		return value
	}
	if value[0] != 't' && value[0] != 'f' {
		return value
	}
	p.changed(at, "%s is %s, as in draft 4: it is served as a number", keyword, value)
	if value[0] == 't' {
		return rawjson.Member(schema, strings.ToLower(exclusive))
	}
	return nil
}

// resolves reports whether a reference leads to a part of the schema.
func (p *porting) resolves(ref string) bool {
	path, inside := strings.CutPrefix(ref, "#")
	return inside && (path == "" || p.at(strings.TrimPrefix(path, "/")) != nil)
}

// at returns the part of the root at a JSON pointer without its first slash; nil for none.
func (p *porting) at(path string) json.RawMessage {
	value := p.root
	for token := range strings.SplitSeq(path, "/") {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		if value[0] == '[' {
			elements := slices.Collect(rawjson.Elements(value))
			n, ok := rawjson.Int([]byte(token))
			if !ok || n < 0 || n >= len(elements) {
				return nil
			}
			value = elements[n]
			continue
		}
		if value = rawjson.Member(value, token); value == nil {
			return nil
		}
	}
	return value
}
