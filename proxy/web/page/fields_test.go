package page

import (
	"encoding/json"
	"strings"
	"testing"
)

// JSON is anybody's: however it is nested, it does not grow into more than memory has.
func TestJSONIsIndentedWithinBounds(t *testing.T) {
	nested := func(depth int, within string) string {
		return strings.Repeat("[", depth) + within + strings.Repeat("]", depth)
	}
	for _, test := range []struct {
		name, value string
		want        string // "" for the value as it is
	}{
		{name: "an object", value: `{"a":[1,"],{\"["]}`, want: "{\n  \"a\": [\n    1,\n    \"],{\\\"[\"\n  ]\n}"},
		{name: "as deep as may be", value: nested(maxNesting, "1"), want: indentation(maxNesting)},
		{name: "deeper", value: nested(maxNesting+1, "1")},
		{name: "as deep as JSON may be", value: nested(10_000, "1")},
		{name: "wide and deep", value: nested(maxNesting, "1"+strings.Repeat(",1", 1<<20))},
		{name: "no JSON", value: `{"a":`},
		{name: "brackets that nothing opens", value: `]]]]`},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := test.want
			if want == "" {
				want = test.value
			}
			if got := indented(json.RawMessage(test.value)); got != want {
				t.Errorf("%d bytes became %d", len(test.value), len(got))
			}
		})
	}
}

// indentation is the number 1 in so many arrays, indented.
func indentation(depth int) string {
	var b strings.Builder
	for i := range depth {
		b.WriteString(strings.Repeat("  ", i) + "[\n")
	}
	b.WriteString(strings.Repeat("  ", depth) + "1\n")
	for i := depth - 1; i >= 0; i-- {
		b.WriteString(strings.Repeat("  ", i) + "]\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}
