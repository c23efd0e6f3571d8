package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/internal/schema"
)

// PortableSchema is an input schema that Anthropic, OpenAI and Gemini take; docs/clients.md has their rules. Each change
// keeps what the schema allows, or allows more: the server checks.
type PortableSchema struct {
	Schema  json.RawMessage
	Changes []string
	Keys    map[string]string // served name -> own name of arguments with another name
}

// Portable returns the portable form of an input schema; nil for one that is portable.
func Portable(input json.RawMessage) *PortableSchema {
	p := &PortableSchema{}
	decoder := json.NewDecoder(bytes.NewReader(input))
	decoder.UseNumber()
	var root any
	if !rawjson.IsObject(input) || rawjson.Depth(input) > maxDefDepth || decoder.Decode(&root) != nil {
		return nil
	}
	p.Schema = p.part("", p.withoutChoices(input, root), root)
	if p.Changes == nil {
		return nil
	}
	return p
}

func (p *PortableSchema) changed(at, format string, args ...any) {
	if len(p.Changes) < maxMended {
		p.Changes = append(p.Changes, strings.TrimPrefix(at+": ", ": ")+fmt.Sprintf(format, args...))
	}
}

// notInKey matches what names of arguments must not have; they are 1 to maxKey long.
var notInKey = regexp.MustCompile(`[^a-zA-Z0-9_.-]`)

const maxKey = 64

// typesOfLanguages are types of programming languages that servers write for those of JSON Schema.
var typesOfLanguages = map[string]string{"int": "integer", "float": "number", "double": "number", "bool": "boolean", "str": "string", "text": "string", "dict": "object", "map": "object", "list": "array"}

// keywordValues has what the values of keywords begin with in draft 2020-12.
var keywordValues = map[string]string{}

func init() {
	for begins, keywords := range map[string]string{
		"[":           "required enum anyOf oneOf allOf prefixItems",
		"{":           "properties $defs definitions patternProperties dependentSchemas",
		"-0123456789": "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength minItems maxItems minProperties maxProperties",
		`"`:           "pattern format title description $ref",
		"tf":          "uniqueItems deprecated readOnly writeOnly",
		`"[`:          "type",
	} {
		for keyword := range strings.FieldsSeq(keywords) {
			keywordValues[keyword] = begins
		}
	}
}

// rootChoices are the keywords that providers refuse at the root.
var rootChoices = []string{"oneOf", "anyOf", "allOf", "not", "enum"}

// part returns a part of the schema, which stands at a place. The root stands at "".
func (p *PortableSchema) part(at string, part json.RawMessage, root any) json.RawMessage {
	if !rawjson.IsObject(part) {
		return part
	}
	part = p.properties(at, part)
	out := rawjson.NewObject(len(part))
	array := false
	for keyword, value := range rawjson.Members(part) {
		below := at + "/" + keyword
		switch keyword {
		case "properties", "$defs", "definitions", "patternProperties", "dependentSchemas":
			if !rawjson.IsObject(value) {
				break
			}
			all := rawjson.NewObject(len(value))
			for name, one := range rawjson.Members(value) {
				all.Add(name, p.part(below+"/"+rawjson.Clip(name, 60), one, root))
			}
			value = all.JSON()
		case "items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else":
			if value[0] == '[' {
				p.changed(below, "a list of schemas is served as one for all elements")
				value = choiceOf(slices.Collect(rawjson.Elements(value)))
			}
			value = p.part(below, value, root)
		case "anyOf", "oneOf", "allOf", "prefixItems":
			var all []json.RawMessage
			for one := range rawjson.Elements(value) {
				all = append(all, p.part(below, one, root))
			}
			value = rawjson.Array(all)
		case "exclusiveMinimum", "exclusiveMaximum": // of draft 4: true beside the bound
			if value[0] == 't' || value[0] == 'f' {
				p.changed(at, "%s is %s, as in draft 4: it is served as a number", keyword, value)
				bound := rawjson.Member(part, strings.ToLower(keyword[len("exclusive"):]))
				if value[0] == 'f' || bound == nil {
					continue
				}
				value = bound
			}
		case "minimum", "maximum":
			if string(rawjson.Member(part, "exclusive"+strings.ToUpper(keyword[:1])+keyword[1:])) == "true" {
				continue // it has become the exclusive one
			}
		case "type":
			name := rawjson.Text(value)
			if name == "any" {
				p.changed(at, "type any is left out")
				continue
			}
			if known := typesOfLanguages[name]; known != "" {
				p.changed(at, "type %s is served as %s", name, known)
				value = rawjson.Quote(known)
			}
			array = bytes.Contains(value, []byte(`"array"`))
		case "$ref":
			ref := rawjson.Text(value)
			if _, ok := schema.At(root, strings.TrimPrefix(ref, "#")); !ok || !strings.HasPrefix(ref, "#") {
				p.changed(at, "the reference %.60s leads nowhere: it is left out", value)
				continue
			}
		}
		if begins := keywordValues[keyword]; begins != "" && !strings.ContainsRune(begins, rune(value[0])) {
			p.changed(at, "%s is %.20s: it is left out", keyword, value)
			continue
		}
		out.Add(keyword, value)
	}
	missing := func(keyword string, is bool) {
		if is && rawjson.Member(part, keyword) == nil {
			p.changed(at, "%s is missing: it is served as {}", keyword)
			out.Add(keyword, []byte("{}"))
		}
	}
	missing("items", array)
	missing("properties", at == "")
	return out.JSON()
}

// choiceOf returns a schema that allows what one of several allows.
func choiceOf(all []json.RawMessage) json.RawMessage {
	if len(all) == 1 {
		return all[0]
	}
	var out rawjson.Object
	if len(all) > 0 {
		out.Add("anyOf", rawjson.Array(all))
	}
	return out.JSON()
}

func textsOf(list json.RawMessage) (texts []string) {
	for one := range rawjson.Elements(list) {
		texts = append(texts, rawjson.Text(one))
	}
	return texts
}

// properties lists in required the properties that say so themselves, as in draft 3, and renames those of the root
// whose names providers refuse.
func (p *PortableSchema) properties(at string, part json.RawMessage) json.RawMessage {
	before := rawjson.Member(part, "properties")
	required := textsOf(rawjson.Member(part, "required"))
	was := slices.Clone(required)
	out := rawjson.NewObject(len(before))
	for name, one := range rawjson.Members(before) {
		as := rawjson.Head(notInKey.ReplaceAllString(name, "_"), maxKey)
		if string(rawjson.Member(one, "required")) == "true" && !slices.Contains(required, name) {
			required = append(required, name)
		}
		i := slices.Index(required, name)
		switch {
		case at != "", as == name && name != "":
		case as != "" && rawjson.Member(before, as) == nil && p.Keys[as] == "":
			p.changed(at, "%.60q is served as %s", name, as)
			if p.Keys == nil {
				p.Keys = map[string]string{}
			}
			p.Keys[as] = name
			if name = as; i >= 0 {
				required[i] = as
			}
		case i < 0:
			p.changed(at, "%.60q is left out", name)
			continue
		}
		out.Add(name, one)
	}
	if before != nil && !bytes.Equal(out.JSON(), before) {
		part, _ = rawjson.Set(part, "properties", out.JSON())
	}
	if !slices.Equal(was, required) {
		part, _ = rawjson.Set(part, "required", rawjson.Of(required))
	}
	return part
}

// withoutChoices moves the properties of the root's alternatives into the root. Those that all alternatives require
// stay required.
func (p *PortableSchema) withoutChoices(input json.RawMessage, root any) json.RawMessage {
	var names []string
	properties := map[string][]json.RawMessage{}
	add := func(of json.RawMessage) []string {
		for name, one := range rawjson.Members(rawjson.Member(of, "properties")) {
			if properties[name] == nil {
				names = append(names, name)
			}
			if !slices.ContainsFunc(properties[name], func(other json.RawMessage) bool { return bytes.Equal(other, one) }) {
				properties[name] = append(properties[name], one)
			}
		}
		return textsOf(rawjson.Member(of, "required"))
	}
	required := add(input)
	found := false
	for _, keyword := range rootChoices {
		choices := rawjson.Member(input, keyword)
		if choices == nil {
			continue
		}
		found = true
		p.changed("", "%s at the root is left out", keyword)
		if keyword == "not" || keyword == "enum" {
			continue
		}
		var common []string
		for i, branch := range slices.Collect(rawjson.Elements(choices)) {
			if target, ok := schema.At(root, strings.TrimPrefix(rawjson.Text(rawjson.Member(branch, "$ref")), "#")); ok && rawjson.Member(branch, "$ref") != nil {
				branch = rawjson.Of(target)
			}
			own := add(branch)
			if i > 0 && keyword != "allOf" {
				common = slices.DeleteFunc(common, func(name string) bool { return !slices.Contains(own, name) })
				continue
			}
			common = append(common, own...)
		}
		for _, name := range common {
			if !slices.Contains(required, name) {
				required = append(required, name)
			}
		}
	}
	if !found {
		return input
	}
	var all rawjson.Object
	for _, name := range names {
		all.Add(name, choiceOf(properties[name]))
	}
	input, _ = rawjson.Set(rawjson.Without(input, rootChoices...), "properties", all.JSON())
	if required != nil {
		input, _ = rawjson.Set(input, "required", rawjson.Of(required))
	}
	return input
}
