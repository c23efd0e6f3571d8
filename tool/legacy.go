package tool

import (
	"bytes"
	"encoding/json"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/internal/schema"
)

// legacyOutput reports whether clients of revisions up to 2025-11-25 accept an output schema. These revisions
// require an object. The TypeScript SDK v1 compiles all output schemas of a list by draft 7, and refuses the list
// if one fails. A doubtful schema is reported as failing: output schemas are optional, and a client without one
// accepts any result.
func legacyOutput(output json.RawMessage) bool {
	if rawjson.Text(rawjson.Member(output, "type")) != "object" {
		return false
	}
	for _, property := range rawjson.Members(rawjson.Member(output, "properties")) {
		if property[0] != '{' {
			return false
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(output))
	decoder.UseNumber()
	var root any
	return decoder.Decode(&root) == nil && !identifies(root) && compilation{root}.schema(root)
}

// identifies reports whether a part of a schema has an identity, also where no keyword stands: the compiler looks
// everywhere, and schemas of one list share their identities.
func identifies(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		for name, part := range value {
			if name == "$id" || name == "$anchor" || name == "$dynamicAnchor" || identifies(part) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(value, identifies)
	}
	return false
}

// compilation checks the keywords that a compiler of draft 7 knows.
type compilation struct{ root any }

func (c compilation) schema(value any) bool {
	object, ok := value.(map[string]any)
	if !ok {
		_, ok = value.(bool)
		return ok
	}
	for keyword, value := range object {
		if check := keywords[keyword]; check != nil && !check(c, value) {
			return false
		}
	}
	_, nullable := object["nullable"]
	types, typed := object["type"]
	list, _ := types.([]any)
	return !nullable || typed && types != "null" && !slices.Contains(list, any("null"))
}

var keywords = map[string]func(c compilation, value any) bool{}

func init() { // not in the declaration, because the checks refer to each other
	for _, keyword := range []struct {
		names string
		check func(c compilation, value any) bool
	}{
		{"maximum minimum exclusiveMaximum exclusiveMinimum multipleOf maxLength minLength maxItems minItems maxProperties minProperties", is[json.Number]},
		{"format $comment", is[string]},
		{"uniqueItems nullable", is[bool]},
		{"additionalItems additionalProperties contains propertyNames not if then else", compilation.schema},
		{"items", func(c compilation, value any) bool { return c.schema(value) || c.schemas(value) }},
		{"anyOf allOf oneOf", compilation.schemas},
		{"properties definitions $defs", compilation.schemasByName},
		{"patternProperties", func(c compilation, value any) bool {
			named, _ := value.(map[string]any)
			for name := range named {
				if !plainPattern(name) {
					return false
				}
			}
			return c.schemasByName(value)
		}},
		{"pattern", func(_ compilation, value any) bool { s, ok := value.(string); return ok && plainPattern(s) }},
		{"required", func(_ compilation, value any) bool { return all(value, is[string]) }},
		{"enum", func(_ compilation, value any) bool { list, ok := value.([]any); return ok && len(list) > 0 }},
		{"type", func(_ compilation, value any) bool { return isType(compilation{}, value) || all(value, isType) }},
		{"$ref", compilation.resolves},
		{"id $dynamicRef $recursiveRef dependencies $async formatMinimum formatMaximum formatExclusiveMinimum formatExclusiveMaximum", func(compilation, any) bool { return false }},
	} {
		for name := range strings.FieldsSeq(keyword.names) {
			keywords[name] = keyword.check
		}
	}
}

func is[T any](_ compilation, value any) bool {
	_, ok := value.(T)
	return ok
}

func isType(_ compilation, value any) bool {
	s, _ := value.(string)
	return slices.Contains([]string{"string", "number", "integer", "boolean", "null", "object", "array"}, s)
}

func all(value any, check func(compilation, any) bool) bool {
	list, ok := value.([]any)
	return ok && !slices.ContainsFunc(list, func(one any) bool { return !check(compilation{}, one) })
}

func (c compilation) schemas(value any) bool {
	list, ok := value.([]any)
	return ok && len(list) > 0 && !slices.ContainsFunc(list, func(one any) bool { return !c.schema(one) })
}

func (c compilation) schemasByName(value any) bool {
	named, ok := value.(map[string]any)
	for _, one := range named {
		ok = ok && c.schema(one)
	}
	return ok
}

// resolves reports whether a reference leads to a schema within the root, over other references or at once.
func (c compilation) resolves(value any) bool {
	for range 100 {
		ref, _ := value.(string)
		path, ok := strings.CutPrefix(ref, "#")
		if !ok || strings.Contains(path, "%") {
			return false
		}
		target, _ := schema.At(c.root, path)
		object, ok := target.(map[string]any)
		if !ok {
			return false
		}
		if value, ok = object["$ref"]; !ok {
			return true
		}
	}
	return false // a loop
}

// plainPattern reports whether a regular expression surely is one in JavaScript with the flag u, too: it uses only
// the syntax of both languages.
func plainPattern(pattern string) bool {
	if _, err := syntax.Parse(pattern, syntax.Perl); err != nil {
		return false
	}
	return plainRegexp.MatchString(pattern)
}

// plainRegexp matches a sequence of characters, escapes, groups, classes and quantifiers, without a quantifier
// after an assertion.
var plainRegexp = func() *regexp.Regexp {
	const (
		quantifier = `(?:[*+?]|\{\d+(?:,\d*)?\})\??`
		escape     = `\\[dDwWsSnrtfv^$\\.*+?()\[\]{}|/]`
		inClass    = `(?:[^\\\[\]-]|\\[nrtfv^$\\.*+?()\[\]{}|/-])(?:-[^\\\[\]-])?`
		class      = `\[\^?(?:` + inClass + `|\\[dDwWsS])+-?\]`
		atom       = `(?:[^\\^$.*+?()\[\]{}|]|\.|` + escape + `|` + class + `|\))(?:` + quantifier + `)?`
		other      = `\((?:\?:)?|\||\^|\$|\\b`
	)
	return regexp.MustCompile(`^(?:` + atom + `|` + other + `)*$`)
}()
