package tool

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestPortableSchemasAreTakenByProviders(t *testing.T) {
	for _, test := range []struct {
		schema, want string
		changes      []string
	}{
		{`{"type":"object","properties":{"a":{"type":"array","items":{"type":"string"}}},"required":["a"],"x":1.0}`, ``, nil},
		{`{"type":"object","properties":{},"additionalProperties":{"anyOf":[{"type":"string"},{"type":"null"}]}}`, ``, nil},
		{`{"type":"object"}`, `{"type":"object","properties":{}}`, []string{"properties is missing: it is served as {}"}},
		{`{"type":"object","properties":{"a":{"type":"array"},"b":{"type":["array","null"]}}}`,
			`{"type":"object","properties":{"a":{"type":"array","items":{}},"b":{"type":["array","null"],"items":{}}}}`, nil},
		{`{"type":"object","oneOf":[{"properties":{"a":{"type":"string"},"c":{}},"required":["a","c"]},{"properties":{"b":{"type":"string"},"c":{"type":"null"}},"required":["b","c"]}]}`,
			`{"required":["c"],"properties":{"a":{"type":"string"},"c":{"anyOf":[{},{"type":"null"}]},"b":{"type":"string"}},"type":"object"}`, []string{"oneOf at the root is left out"}},
		{`{"type":"object","properties":{"x":{}},"allOf":[{"$ref":"#/$defs/a"},{"required":["x"]}],"$defs":{"a":{"properties":{"a":{"type":"string"}},"required":["a"]}}}`,
			`{"required":["a","x"],"type":"object","properties":{"x":{},"a":{"type":"string"}},"$defs":{"a":{"properties":{"a":{"type":"string"}},"required":["a"]}}}`, []string{"allOf at the root is left out"}},
		{`{"type":"object","properties":{"a":{}},"not":{"required":["a"]}}`, `{"type":"object","properties":{"a":{}}}`, nil},
		{`{"type":"object","properties":{"$.xgafv":{"type":"string"},"a b":{},"c":{}},"required":["a b"]}`,
			`{"type":"object","properties":{"_.xgafv":{"type":"string"},"a_b":{},"c":{}},"required":["a_b"]}`, []string{`"$.xgafv" is served as _.xgafv`, `"a b" is served as a_b`}},
		{`{"type":"object","properties":{"a b":{},"a_b":{},"日本":{}}}`, `{"type":"object","properties":{"a_b":{},"__":{}}}`, []string{`"a b" is left out`, `"日本" is served as __`}},
		{`{"type":"object","properties":{"a":{"type":"string","required":true},"b":{"type":"object","properties":{"c":{"required":false}}}}}`,
			`{"required":["a"],"type":"object","properties":{"a":{"type":"string"},"b":{"type":"object","properties":{"c":{}}}}}`, nil},
		{`{"type":"object","properties":{"a":{"minimum":1,"exclusiveMinimum":true,"maximum":2,"exclusiveMaximum":false},"b":{"exclusiveMinimum":1}}}`,
			`{"type":"object","properties":{"a":{"exclusiveMinimum":1,"maximum":2},"b":{"exclusiveMinimum":1}}}`, nil},
		{`{"type":"object","properties":{"a":{"type":"string","minimum":"2024-01-01","minLength":"1","pattern":null,"enum":"x","uniqueItems":1},"o":{"type":"object","properties":{"a b":{}}}}}`,
			`{"type":"object","properties":{"a":{"type":"string"},"o":{"type":"object","properties":{"a b":{}}}}}`, nil},
		{`{"type":"object","properties":{"a":{"type":"array","items":[{"type":"string"},{"type":"int"}]}}}`,
			`{"type":"object","properties":{"a":{"type":"array","items":{"anyOf":[{"type":"string"},{"type":"integer"}]}}}}`, nil},
		{`{"type":"object","properties":{"a":{"type":"any"},"b":{"type":"bool"},"c":{"$ref":"https://x/y"},"d":{"$ref":"#/nowhere"},"e":{"$ref":"#/properties/a"}}}`,
			`{"type":"object","properties":{"a":{},"b":{"type":"boolean"},"c":{},"d":{},"e":{"$ref":"#/properties/a"}}}`, nil},
		{`{"type":"object","properties":{"type":{"type":"array"},"items":{"type":"string"}}}`, `{"type":"object","properties":{"type":{"type":"array","items":{}},"items":{"type":"string"}}}`, nil},
		{`true`, ``, nil},
	} {
		if test.want == "" {
			test.want = test.schema
		}
		p := Portable(json.RawMessage(test.schema))
		if p == nil {
			p = &PortableSchema{Schema: json.RawMessage(test.schema)}
		}
		if string(p.Schema) != test.want || test.changes != nil && !slices.Equal(p.Changes, test.changes) || (p.Changes == nil) != (test.want == test.schema) {
			t.Errorf("%s:\n got %s, %q\nwant %s, %q", test.schema, p.Schema, p.Changes, test.want, test.changes)
		}
		if again := Portable(p.Schema); again != nil {
			t.Errorf("%s: a second time it becomes %s, %q", test.schema, again.Schema, again.Changes)
		}
	}
}
