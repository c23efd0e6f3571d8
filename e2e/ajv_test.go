package e2e_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"toolfinch/tool"
)

// The TypeScript SDK compiles every output schema of a list with AJV, and refuses the list if one fails: AJV compiles
// each output schema that legacy clients are listed. TOOLFINCH_CORPUS may name a folder of recorded tools/list answers.
func TestLegacyClientsAreListedSchemasThatAJVCompiles(t *testing.T) {
	t.Parallel()
	schemas := []json.RawMessage{
		[]byte(`{"type":"object","$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`),
		[]byte(`{"type":"object","properties":{"a":{"$ref":"#/properties/a"}}}`),
		[]byte(`{"type":"object","properties":{"a":{"$ref":"#"}}}`),
		[]byte(`{"type":"object","properties":{"a":{"type":"null","nullable":true}}}`),
		[]byte(`{"type":"object","properties":{"a":{"type":["string","null"],"nullable":true}}}`),
		[]byte(`{"type":"object","$defs":{"a":{"type":"object","properties":{"next":{"anyOf":[{"$ref":"#/$defs/a"},{"type":"null"}]}}}},"properties":{"a":{"$ref":"#/$defs/a"}}}`),
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 6000 {
		schema := map[string]any{"type": "object"}
		oddSchema(random, schema, 3)
		if random.IntN(10) > 0 {
			schema["type"] = "object"
		}
		raw, err := json.Marshal(schema)
		if err != nil {
			t.Fatal(err)
		}
		schemas = append(schemas, raw)
	}
	generated := len(schemas)
	files, _ := filepath.Glob(filepath.Join(os.Getenv("TOOLFINCH_CORPUS"), "*.json"))
	for _, file := range files {
		var recorded struct {
			Tools []struct{ InputSchema, OutputSchema json.RawMessage }
		}
		if text, err := os.ReadFile(file); err != nil || json.Unmarshal(text, &recorded) != nil {
			t.Fatalf("%s is no recorded list: %v", file, err)
		}
		for _, one := range recorded.Tools {
			for _, schema := range []json.RawMessage{one.InputSchema, one.OutputSchema} {
				if schema != nil {
					schemas = append(schemas, schema)
				}
			}
		}
	}
	reasons := compiledByAJV(t, schemas)
	listed, out, over := 0, 0, 0
	for i, schema := range schemas {
		def, err := tool.ParseDef("s", fmt.Appendf(nil, `{"name":"x","outputSchema":%s}`, schema))
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case def.Legacy != nil:
			out++
			if reasons[i] == nil && i >= generated {
				over++
			}
		case reasons[i] != nil:
			t.Errorf("AJV does not compile %.400s: %.200s", schema, *reasons[i])
		default:
			listed++
		}
	}
	t.Logf("%d schemas are listed, %d taken out; of %d recorded ones %d without need", listed, out, len(schemas)-generated, over)
	if listed < generated/20 {
		t.Errorf("only %d schemas are listed: this tests nothing", listed)
	}
}

// compiledByAJV returns why AJV cannot compile each schema, nil if it can.
func compiledByAJV(t *testing.T, schemas []json.RawMessage) (reasons []*string) {
	t.Helper()
	script, err := filepath.Abs("../testdata/node/ajv.mjs")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "schemas.json")
	text, err := json.Marshal(schemas)
	if err == nil {
		err = os.WriteFile(file, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), node(t), script, file).Output()
	if err == nil {
		err = json.Unmarshal(out, &reasons)
	}
	if err != nil || len(reasons) != len(schemas) {
		t.Fatalf("%d answers for %d schemas: %v", len(reasons), len(schemas), err)
	}
	return reasons
}

// oddSchema adds some keywords to a schema, mostly valid ones.
func oddSchema(random *rand.Rand, schema map[string]any, depth int) {
	pick := func(values ...any) any { return values[random.IntN(len(values))] }
	sub := func() any {
		one := map[string]any{}
		if depth > 0 {
			oddSchema(random, one, depth-1)
		}
		return pick(one, one, one, true, map[string]any{"type": "string"})
	}
	subs := func() any { return []any{sub(), sub()} }
	named := func() any { return map[string]any{"a": sub(), "b": sub()} }
	keywords := []struct {
		name  string
		value func() any
	}{
		{"type", func() any {
			return pick("string", "object", "array", "integer", []any{"string", "null"}, []any{"null"}, "null")
		}},
		{"nullable", func() any { return pick(true, true, false, "yes") }},
		{"enum", func() any { return pick([]any{"a", nil}, []any{"a", "a"}, []any{1}, []any{}) }},
		{"const", func() any { return pick(1, nil, "a") }},
		{"$ref", func() any {
			return pick("#", "#", "#/properties/a", "#/$defs/a", "#/$defs/b", "#/definitions/a", "#/properties/a/properties/b", "#/nowhere", "http://x/y", "#a")
		}},
		{"properties", named}, {"$defs", named}, {"definitions", named}, {"patternProperties", func() any { return map[string]any{"^a": sub()} }},
		{"items", func() any { return pick(sub(), subs()) }}, {"prefixItems", subs}, {"additionalItems", sub}, {"contains", sub}, {"unevaluatedItems", sub},
		{"additionalProperties", sub}, {"propertyNames", sub}, {"unevaluatedProperties", sub}, {"dependentSchemas", named},
		{"dependentRequired", func() any { return pick(map[string]any{"a": []any{"b"}}, map[string]any{"a": 1}) }},
		{"anyOf", subs}, {"allOf", subs}, {"oneOf", subs}, {"not", sub}, {"if", sub}, {"then", sub}, {"else", sub},
		{"required", func() any { return pick([]any{"a"}, []any{"a", "a"}, []any{}, true) }},
		{"minimum", func() any { return pick(1, -1.5, "1") }}, {"exclusiveMinimum", func() any { return pick(1, true) }},
		{"multipleOf", func() any { return pick(1, 0, -1, 0.1) }},
		{"minLength", func() any { return pick(1, -1, 1.5) }}, {"maxItems", func() any { return pick(1, -1) }},
		{"uniqueItems", func() any { return pick(true, false) }}, {"pattern", func() any { return pick("^a+$", "\\d", "(?<a>b)", "[") }},
		{"format", func() any { return pick("date-time", "uri", "int64", "x", "email") }},
		{"formatMinimum", func() any { return pick("2020-01-01", 1) }}, {"formatExclusiveMaximum", func() any { return "2020-01-01" }},
		{"discriminator", func() any { return pick(map[string]any{"propertyName": "a"}, map[string]any{"x": 1}, "a") }},
		{"minContains", func() any { return pick(1, 0) }}, {"maxContains", func() any { return pick(1, 0) }},
		{"$comment", func() any { return pick("a", 1) }}, {"title", func() any { return pick("a", 1) }}, {"description", func() any { return pick("a", nil) }},
		{"default", func() any { return pick(1, nil, "a") }}, {"examples", func() any { return pick([]any{1}, 1) }}, {"example", func() any { return 1 }},
		{"readOnly", func() any { return pick(true, "a") }}, {"deprecated", func() any { return true }}, {"x-unknown", func() any { return map[string]any{"type": 7} }},
		{"contentEncoding", func() any { return pick("base64", 1) }}, {"contentMediaType", func() any { return "text/plain" }}, {"$vocabulary", func() any { return map[string]any{"a": true} }},
		{"$schema", func() any {
			return pick("http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-04/schema#", 1)
		}},
		{"id", func() any { return pick("a", 1) }}, {"$anchor", func() any { return "a" }}, {"dependencies", func() any { return map[string]any{"a": []any{"b"}} }},
		{"range", func() any { return []any{1, 2} }}, {"instanceof", func() any { return "Date" }}, {"$merge", func() any { return 1 }}, {"xml", func() any { return map[string]any{} }},
		{"elements", func() any { return sub() }}, {"values", func() any { return sub() }}, {"optionalProperties", named}, {"ref", func() any { return "a" }}, {"int32", func() any { return true }},
	}
	for range 1 + random.IntN(3) {
		one := keywords[random.IntN(len(keywords))]
		schema[one.name] = one.value()
	}
}
