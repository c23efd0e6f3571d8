package schema_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"toolfinch/schema"
)

func TestViolations(t *testing.T) {
	for _, test := range []struct {
		schema, value string
		want          []string
	}{
		{`{}`, `{"a":1}`, nil},
		{`true`, `1`, nil},
		{`{"type":"object","required":["a"]}`, `{}`, []string{"/: missing property 'a'"}},
		{`{"properties":{"a":{"properties":{"b":{"type":"integer"}}}}}`, `{"a":{"b":"x"}}`, []string{"/a/b: got string, want integer"}},
		{`{"properties":{"a":{"type":"integer"}}}`, `{"a":12345678901234567890}`, nil},
		{`{"additionalProperties":false}`, `{"x":1}`, []string{"/: additional properties 'x' not allowed"}},
	} {
		compiled, err := schema.Compile(json.RawMessage(test.schema))
		if err != nil {
			t.Fatalf("%s: %v", test.schema, err)
		}
		if got := compiled.Violations(json.RawMessage(test.value)); !slices.Equal(got, test.want) {
			t.Errorf("%s against %s: %q, want %q", test.value, test.schema, got, test.want)
		}
	}
	many, err := schema.Compile(json.RawMessage(`{"items":{"type":"string"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := many.Violations(json.RawMessage("[" + strings.Repeat("1,", 99) + "1]")); len(got) != 10 {
		t.Errorf("%d violations are named, want 10", len(got))
	}
	if got := many.Violations(json.RawMessage("[")); len(got) != 1 {
		t.Errorf("of what is no JSON it says %q", got)
	}
}

func TestWhatIsNoSchema(t *testing.T) {
	for _, bad := range []string{``, `[`, `"text"`, `{"type":"strin"}`, `{"$ref":"file:///etc/passwd"}`, `{"$ref":"http://127.0.0.1/x"}`} {
		if compiled, err := schema.Compile(json.RawMessage(bad)); err == nil {
			t.Errorf("%s is taken for a schema: %v", bad, compiled)
		}
	}
}
