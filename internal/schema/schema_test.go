package schema_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"toolfinch/internal/schema"
)

func compile(t testing.TB, raw string) *schema.Schema {
	t.Helper()
	compiled, err := schema.Compile(json.RawMessage(raw))
	if err != nil {
		t.Fatalf("%.200s: %v", raw, err)
	}
	return compiled
}

func TestCheck(t *testing.T) {
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
		{`{"$ref":"#/$defs/t","$defs":{"t":{"properties":{"next":{"$ref":"#/$defs/t"},"v":{"type":"integer"}}}}}`, `{"next":{"next":{"v":1.5}}}`,
			[]string{"/next/next/v: got number, want integer"}},
		{`{"patternProperties":{"^x-":{"pattern":"^a+$"}},"uniqueItems":true}`, `{"x-a":"b"}`, []string{"/x-a: 'b' does not match pattern '^a+$'"}},
		{`{"$dynamicAnchor":"a","type":"object","additionalProperties":{"$dynamicRef":"#a"}}`, `{"x":{"y":7}}`, []string{"/x/y: got number, want object"}},
		{`{"unevaluatedProperties":false,"allOf":[{"properties":{"a":true}}]}`, `{"a":1,"b":1}`, []string{"/b: false schema"}},
	} {
		got, err := compile(t, test.schema).Check(t.Context(), json.RawMessage(test.value))
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s against %s: %q, %v, want %q", test.value, test.schema, got, err, test.want)
		}
	}
	many := compile(t, `{"items":{"type":"string"}}`)
	if got, err := many.Check(t.Context(), json.RawMessage("["+strings.Repeat("1,", 99)+"1]")); len(got) != 10 || err != nil {
		t.Errorf("%d violations are named, want 10 (%v)", len(got), err)
	}
	if got, err := many.Check(t.Context(), json.RawMessage("[")); len(got) != 1 || err != nil {
		t.Errorf("of what is no JSON it says %q, %v", got, err)
	}
	long := compile(t, `{"const":1}`)
	if got, err := long.Check(t.Context(), json.RawMessage(`"`+strings.Repeat("é", 10_000)+`"`)); err != nil || len(got) != 1 || len(got[0]) > 600 {
		t.Errorf("of a long text it says %q, %v", got, err)
	}
}

func TestWhatIsNoSchema(t *testing.T) {
	for _, bad := range []string{``, `[`, `"text"`, `{"type":"strin"}`, `{"$ref":"file:///etc/passwd"}`, `{"$ref":"http://127.0.0.1/x"}`, `{"$schema":"http://127.0.0.1/x"}`} {
		if compiled, err := schema.Compile(json.RawMessage(bad)); !errors.Is(err, schema.ErrSchema) {
			t.Errorf("%s is taken for a schema: %v, %v", bad, compiled, err)
		}
	}
}

// doubling is a schema that is applied 2^n times to a value.
func doubling(n int) string {
	var b strings.Builder
	b.WriteString(`{"$ref":"#/$defs/d0","$defs":{`)
	for i := range n {
		fmt.Fprintf(&b, `"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	fmt.Fprintf(&b, `"d%d":{"type":"string"}}}`, n)
	return b.String()
}

func nest(open, middle, end string, n int) string {
	return strings.Repeat(open, n) + middle + strings.Repeat(end, n)
}

func numbered(n int, format string) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(format, i))
	}
	return strings.Join(all, ",")
}

// Schemas that take the library seconds, gigabytes or its stack are not compiled, or
// not applied to the value. None of this takes long.
func TestHostileSchemas(t *testing.T) {
	for name, test := range map[string]struct{ schema, value string }{
		"references that fan out":       {doubling(30), `{}`},
		"properties that fan out":       {`{"$defs":{"t":{"allOf":[{"properties":{"a":{"$ref":"#/$defs/t"}}},{"properties":{"a":{"$ref":"#/$defs/t"}}}]}},"$ref":"#/$defs/t"}`, nest(`{"a":`, "1", "}", 40)},
		"a reference to itself":         {`{"$ref":"#"}`, `{}`},
		"a ring of references":          {`{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`, `{}`},
		"deep":                          {nest(`{"allOf":[`, "{}", "]}", 4_900), `{}`},
		"too deep to decode":            {nest(`{"allOf":[`, "{}", "]}", 20_000), `{}`},
		"long":                          {`{"description":"` + strings.Repeat("x", 1<<20) + `"}`, `{}`},
		"many values":                   {`{"properties":{` + numbered(20_000, `"p%d":{}`) + `}}`, `{}`},
		"a large regular expression":    {`{"pattern":"((x{100}){10}){10}"}`, `""`},
		"many regular expressions":      {`{"properties":{` + numbered(100, `"p%d":{"pattern":"x{900}"}`) + `}}`, `{}`},
		"a slow regular expression":     {`{"pattern":"(x?x?x?x?x?){100}y"}`, `"` + strings.Repeat("x", 1<<20) + `"`},
		"a number with an exponent":     {`{"minimum":1e1000000000}`, `1`},
		"a number with many digits":     {`{"multipleOf":` + strings.Repeat("7", 100_000) + `}`, `1`},
		"references to what is large":   {`{"x":` + nest(`{"allOf":[{"description":"",`+`"x":1},`, "{}", "]}", 40) + `,"anyOf":[` + numbered(2_000, `{"$ref":"#/x?%d"}`) + `]}`, `1`},
		"names missing again and again": {`{"allOf":[` + numbered(400, `{"$ref":"#/$defs/r","title":"%d"}`) + `],"$defs":{"r":{"required":[` + numbered(5_000, `"name%d"`) + `]}}}`, `{}`},
		"a dynamic reference":           {`{"$dynamicAnchor":"a","properties":{"x":{"$dynamicRef":"#a"},"y":{"$id":"y","$dynamicAnchor":"a"}}}`, `{}`},
		"a metaschema":                  {`{"properties":{"x":{"$ref":"https://json-schema.org/draft/2020-12/schema"}}}`, `{}`},
		"alternatives of unique lists":  {`{"anyOf":[` + numbered(3_000, `{"uniqueItems":true,"title":"%d"}`) + `]}`, `[` + numbered(20, `[%d,`+numbered(200, "%d")+`]`) + `]`},
	} {
		t.Run(name, func(t *testing.T) {
			compiled, err := schema.Compile(json.RawMessage(test.schema))
			if err == nil {
				_, err = compiled.Check(t.Context(), json.RawMessage(test.value))
			}
			if !errors.Is(err, schema.ErrSchema) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// A value beyond the bounds is refused, whatever the schema: it is another's.
func TestHostileValues(t *testing.T) {
	number := compile(t, `{"type":"integer","minimum":0,"multipleOf":3,"enum":[1,2]}`)
	for name, value := range map[string]string{
		"an exponent":                       `1e1000000000`,
		"a negative exponent":               `1e-1000000000`,
		"an exponent that no integer holds": `1e` + strings.Repeat("9", 50),
		"many digits":                       strings.Repeat("7", 4_000_000),
		"many digits behind the point":      `0.` + strings.Repeat("7", 4_000_000),
		"a long member":                     `{"a":[-` + strings.Repeat("7", 2_000) + `]}`,
		"deep":                              nest("[", "", "]", 5_000),
		"many values":                       "[" + strings.Repeat("1,", 200_000) + "1]",
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := number.Check(t.Context(), json.RawMessage(value)); !errors.Is(err, schema.ErrValue) || len(err.Error()) > 300 {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	for _, good := range []string{`1e1000`, `1E-1000`, strings.Repeat("7", 1_000), `"1e1000000000"`, `"\"9e99999"`} {
		if got, err := number.Check(t.Context(), json.RawMessage(good)); err != nil || len(got) == 0 {
			t.Errorf("%.20s: %q, %v", good, got, err)
		}
	}
}

// Honest schemas are checked, whatever their size.
func TestLargeHonestSchemasAreChecked(t *testing.T) {
	block := `{"type":"object","required":["type"],"properties":{"type":{"enum":["a","b"]},"text":{"type":"string"},"children":{"type":"array","items":{"$ref":"#/$defs/block"}}}}`
	for name, test := range map[string]struct{ schema, value string }{
		"many rows":       {`{"properties":{"rows":{"items":{"type":"object","required":["id"],"properties":{"id":{"type":"integer","minimum":0},"name":{"type":"string","maxLength":100},"tags":{"items":{"enum":["a","b","c"]}}},"additionalProperties":false}}}}`, `{"rows":[` + numbered(8_000, `{"id":%d,"name":"x","tags":["a","b"]}`) + `,7]}`},
		"a long text":     {`{"properties":{"text":{"pattern":"^[a-z ]*$","minLength":1},"x":{"type":"string"}}}`, `{"text":"` + strings.Repeat("a text ", 500_000) + `","x":7}`},
		"many properties": {`{"properties":{` + numbered(1_500, `"p%d":{"type":"string","description":"One of many."}`) + `},"required":["q"]}`, `{"p1":"x"}`},
		"a tree":          {`{"$defs":{"block":` + block + `},"$ref":"#/$defs/block"}`, nest(`{"type":"a","children":[{"type":"b"},`, `{"type":"c"}`, "]}", 60)},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := compile(t, test.schema).Check(t.Context(), json.RawMessage(test.value)); err != nil || len(got) != 1 {
				t.Errorf("%q, %v, want one violation", got, err)
			}
		})
	}
}

func TestACallerWhoGoesIsNotCheckedFor(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	large := compile(t, `{"items":{"type":"integer"}}`)
	if got, err := large.Check(ctx, json.RawMessage("["+strings.Repeat("1,", 50_000)+"1]")); !errors.Is(err, gone) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestASchemaIsCompiledOnce(t *testing.T) {
	cache := schema.NewCache()
	large := json.RawMessage(`{"properties":{` + numbered(1_000, `"p%d":{}`) + `}}`)
	compile := func(key string, raw json.RawMessage) *schema.Schema {
		compiled, err := cache.Compile(t.Context(), key, raw)
		if err != nil {
			t.Error(err)
		}
		return compiled
	}
	var all sync.WaitGroup
	compiled := make([]*schema.Schema, 16)
	for i := range compiled {
		all.Go(func() { compiled[i] = compile("a", large) })
	}
	all.Wait()
	if compiled = slices.Compact(compiled); len(compiled) != 1 {
		t.Errorf("%d schemas are compiled", len(compiled))
	}
	if _, err := cache.Compile(t.Context(), "bad", json.RawMessage(`7`)); !errors.Is(err, schema.ErrSchema) {
		t.Errorf("a bad one: %v", err)
	}
	if cache.Forget(2); compile("a", large) != compiled[0] {
		t.Error("it forgot schemas within the bound")
	}
	if cache.Forget(1); compile("a", large) == compiled[0] {
		t.Error("it forgot none beyond the bound")
	}
}

// Whatever is compiled and checked, the answer comes, and within the bounds.
func FuzzCheck(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"pattern":"^a{2,}$","enum":["aa"]}}}`), []byte(`{"a":"aa","b":[1e10,null]}`))
	f.Add([]byte(doubling(8)), []byte(`"x"`))
	f.Add([]byte(`{"$schema":"http://json-schema.org/draft-07/schema#","format":"regex","dependencies":{"a":["b"]},"items":[{"$id":"x"},{"$ref":"x"}],"additionalItems":false}`), []byte(`["(a","b"]`))
	f.Add([]byte(`{"unevaluatedProperties":{"uniqueItems":true},"if":{"not":{}},"contains":{"multipleOf":0.1}}`), []byte(`{"a":[1,1.0]}`))
	f.Fuzz(func(t *testing.T, raw, value []byte) {
		compiled, err := schema.Compile(raw)
		if err != nil {
			if !errors.Is(err, schema.ErrSchema) {
				t.Fatalf("error %v", err)
			}
			return
		}
		got, err := compiled.Check(t.Context(), value)
		if err != nil && !errors.Is(err, schema.ErrSchema) && !errors.Is(err, schema.ErrValue) || len(got) > 10 {
			t.Fatalf("%q, %v", got, err)
		}
	})
}
