package tool

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// Clients would refuse the whole list for each of these.
func TestTakeInMendsOrRefuses(t *testing.T) {
	const schema = `"inputSchema":{"type":"object"}`
	for _, test := range []struct {
		kind     Kind
		raw      string
		want     string // "" for an error
		problems []string
	}{
		{KindTool, `{"name":"a"}`, `{"name":"a",` + schema + `}`, []string{`inputSchema is missing: it is served as {"type":"object"}`}},
		{KindTool, `{"name":"a","inputSchema":null}`, `{"name":"a",` + schema + `}`, []string{`inputSchema is null: it is served as {"type":"object"}`}},
		{KindTool, `{"name":"a","inputSchema":true}`, `{"name":"a",` + schema + `}`, []string{`inputSchema is true: it is served as {"type":"object"}`}},
		{KindTool, `{"inputSchema":{"properties":{"x":{}}},"name":"a"}`, `{"inputSchema":{"properties":{"x":{}},"type":"object"},"name":"a"}`,
			[]string{`inputSchema.type is missing: it is served as "object"`}},
		{KindTool, `{"name":"a","inputSchema":{"type":["null","object"]}}`, `{"name":"a",` + schema + `}`,
			[]string{`inputSchema.type is a list of types: it is served as "object"`}},
		{KindTool, `{"name":"a","inputSchema":{"type":"object","properties":{"x":true,"y":false}}}`, `{"name":"a","inputSchema":{"type":"object","properties":{"x":{},"y":{"not":{}}}}}`,
			[]string{`inputSchema.properties.x is true: it is served as {}`, `inputSchema.properties.y is false: it is served as {"not":{}}`}},
		{KindTool, `{"name":"a","inputSchema":{"type":"object","properties":[],"required":null}}`, `{"name":"a","inputSchema":{"type":"object","properties":{}}}`,
			[]string{"inputSchema.properties is an empty list: it is served as {}", "inputSchema.required is null: it is left out"}},
		{KindTool, `{"name":"a",` + schema + `,"description":null,"outputSchema":null,"annotations":{"title":null},"x":null}`, `{"name":"a",` + schema + `,"annotations":{},"x":null}`,
			[]string{"description is null: it is left out", "outputSchema is null: it is left out", "annotations.title is null: it is left out"}},
		{KindTool, `{"name":"a",` + schema + `,"_meta":[]}`, `{"name":"a",` + schema + `,"_meta":{}}`, []string{"_meta is an empty list: it is served as {}"}},
		{KindTool, `{"name":"x","title":5,"name":"a",` + schema + `,"title":"T"}`, `{"name":"a","title":"T",` + schema + `}`,
			[]string{"name is there twice: the last one counts", "title is there twice: the last one counts"}},
		{KindTool, `{"name":"a\ud83d",` + schema + `,"description":"\ud83e\udd9c \\ud83e \udd9c` + "\xff" + `"}`, `{"name":"a\ufffd",` + schema + `,"description":"\ud83e\udd9c \\ud83e \ufffd` + "\uFFFD" + `"}`,
			[]string{"what is not Unicode is replaced by U+FFFD"}},
		{KindPrompt, `{"name":"a","arguments":[{"name":"x","description":null,"required":null}]}`, `{"name":"a","arguments":[{"name":"x"}]}`,
			[]string{"arguments[0].description is null: it is left out", "arguments[0].required is null: it is left out"}},
		{KindResource, `{"name":"a","uri":"x:1","size":12.0}`, `{"name":"a","uri":"x:1","size":12}`, []string{"size is 12.0: it is served as 12"}},

		{KindResource, `{"uri":"x:1"}`, `{"name":"x:1","uri":"x:1"}`, []string{"name is missing: it is served as the uri"}},
		{KindTemplate, `{"uriTemplate":"x:{a}","name":null}`, `{"name":"x:{a}","uriTemplate":"x:{a}"}`, []string{"name is null: it is left out", "name is missing: it is served as the uriTemplate"}},
		{KindTool, `{"name":"a",` + schema + `,"icons":[{"src":"x","theme":"dark"}],"execution":{"taskSupport":"optional"}}`, `{"name":"a",` + schema + `,"icons":[{"src":"x","theme":"dark"}],"execution":{"taskSupport":"optional"}}`, []string{}},
		{KindTool, `{"name":"a","inputSchema":{"type":"object","default":0.0001e310}}`, `{"name":"a","inputSchema":{"type":"object","default":0.0001e310}}`, []string{}},

		{KindTool, `{"name":"a","inputSchema":"{}"}`, "", []string{"inputSchema is text, not an object"}},
		{KindTool, `{"name":"a","inputSchema":{"type":"array"}}`, "", []string{`inputSchema.type is "array", not "object"`}},
		{KindTool, `{"name":"a","inputSchema":{"required":"x"}}`, "", []string{"inputSchema.required is text, not a list"}},
		{KindTool, `{"name":"a","inputSchema":{"required":[1]}}`, "", []string{"inputSchema.required[0] is a number, not text"}},
		{KindTool, `{"name":"a","inputSchema":{"properties":{"x":"string"}}}`, "", []string{"inputSchema.properties.x is text, not a schema"}},
		{KindTool, `{"name":"a","inputSchema":{"default":1e400}}`, "", []string{"inputSchema has the number 1e400, which is out of range"}},
		{KindTool, `{"name":"a","inputSchema":{"x":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}}`, "", []string{"it nests deeper than 200"}},
		{KindTool, `{"name":"a","title":5}`, "", []string{"title is a number, not text"}},
		{KindTool, `{"name":"a","annotations":"x"}`, "", []string{"annotations is text, not an object"}},
		{KindTool, `{"name":"a","annotations":{"readOnlyHint":"yes"}}`, "", []string{"annotations.readOnlyHint is text, not true or false"}},
		{KindTool, `{"name":"a","outputSchema":[]}`, `{"name":"a","outputSchema":{},` + schema + `}`, nil},
		{KindTool, `{"name":"a","outputSchema":"x"}`, "", []string{"outputSchema is text, not an object"}},
		{KindTool, `{"name":"a","_meta":[1]}`, "", []string{"_meta is a list, not an object"}},
		{KindTool, `{"name":"a","icons":"x"}`, "", []string{"icons is text, not a list"}},
		{KindTool, `{"name":"a","icons":[{"src":"x","theme":"blue"}]}`, "", []string{`icons[0].theme is "blue", not one of light, dark`}},
		{KindTool, `{"name":"a","icons":[{}]}`, "", []string{"icons[0].src is missing"}},
		{KindTool, `{"name":"a","execution":{"taskSupport":"maybe"}}`, "", []string{`execution.taskSupport is "maybe", not one of required, optional, forbidden`}},
		{KindPrompt, `{"name":"a","arguments":{"x":{}}}`, "", []string{"arguments is an object, not a list"}},
		{KindPrompt, `{"name":"a","arguments":[{"name":"x","title":5}]}`, "", []string{"arguments[0].title is a number, not text"}},
		{KindPrompt, `{"name":"a","arguments":[{"name":"x","required":"yes"}]}`, "", []string{"arguments[0].required is text, not true or false"}},
		{KindResource, `{"name":"a"}`, "", []string{"uri is missing"}},
		{KindResource, `{"name":"a","uri":"x:1","size":1.5}`, "", []string{"size is 1.5, not an integer"}},
		{KindResource, `{"name":"a","uri":"x:1","annotations":{"audience":["model"]}}`, "", []string{`annotations.audience[0] is "model", not one of user, assistant`}},
		{KindResource, `{"name":"a","uri":"x:1","annotations":{"priority":2}}`, "", []string{"annotations.priority is 2, not a number from 0 to 1"}},
		{KindResource, `{"name":"a","uri":"x:1","annotations":{"lastModified":"2025-02-30T00:00:00Z"}}`, "",
			[]string{`annotations.lastModified is "2025-02-30T00:00:00Z", not a time like 2006-01-02T15:04:05Z`}},
		{KindResource, `{"name":"a","uri":"x:` + strings.Repeat("a", 2000) + `"}`, "", []string{"uri has 2002 bytes, more than 2000"}},
		{KindTemplate, `{"uriTemplate":"x:{a}","name":7}`, "", []string{"name is a number, not text"}},
	} {
		raw := []byte(test.raw)
		def, mended, err := TakeIn(test.kind, "s", raw)
		switch {
		case string(raw) != test.raw:
			t.Errorf("%s was written to: %s", test.raw, raw)
		case test.want == "":
			if !errors.Is(err, ErrBadDef) || !strings.Contains(err.Error(), test.problems[0]) {
				t.Errorf("%s: %v, want %s", test.raw, err, test.problems)
			}
		case err != nil:
			t.Errorf("%s: %v", test.raw, err)
		case string(def.Raw) != test.want || test.problems != nil && !slices.Equal(mended, test.problems):
			t.Errorf("%s:\n got %s, %q\nwant %s, %q", test.raw, def.Raw, mended, test.want, test.problems)
		}
	}
}

// Revisions up to 2025-11-25 know output schemas of objects alone.
func TestLegacyClientsGetOutputSchemasThatTheyTake(t *testing.T) {
	for schema, want := range map[string]bool{
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"type":["string","null"],"pattern":"^[a-z_.-]+\\d{2,}(?:a|b)*$"}}}`: true,
		`{"type":"object","properties":{"a":{"type":"array","items":{"$ref":"#/properties/b/anyOf/0"}},"b":{"anyOf":[{"type":"string"}]}}}`:         true,
		`{"type":"object","additionalProperties":false,"required":["a"],"properties":{"a":{"enum":[1],"format":"strange","const":null}}}`:           true,
		`{"type":"array"}`: false,
		`{}`:               false,
		`{"type":"object","properties":{"a":true}}`:                                                                                       false,
		`{"type":"object","properties":{"a":{"type":"text"}}}`:                                                                            false,
		`{"type":"object","properties":{"a":{"pattern":"(?i)x"}}}`:                                                                        false,
		`{"type":"object","properties":{"a":{"pattern":"a{"}}}`:                                                                           false,
		`{"type":"object","properties":{"a":{"pattern":"[\\w-.]"}}}`:                                                                      false,
		`{"type":"object","properties":{"a":{"$ref":"#/definitions/a"}}}`:                                                                 false,
		`{"type":"object","properties":{"a":{"$ref":"https://example.com/a"}}}`:                                                           false,
		`{"type":"object","properties":{"a":{"exclusiveMinimum":true}}}`:                                                                  false,
		`{"type":"object","items":{"allOf":[{"enum":[]}]}}`:                                                                               false,
		`{"type":"object","$id":"x"}`:                                                                                                     false,
		`{"type":"object","patternProperties":{"[]a]":{"type":"string"}}}`:                                                                false,
		`{"type":"object","properties":{"a":{"nullable":true}}}`:                                                                          false,
		`{"type":"object","properties":{"a":{"type":"string","nullable":true}}}`:                                                          true,
		`{"type":"object","properties":{"a":{"type":["string","null"],"nullable":false}}}`:                                                false,
		`{"type":"object","properties":{"a":{"type":"string","formatMinimum":"2020-01-01"}}}`:                                             false,
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`:           false,
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"items":{"$ref":"#/$defs/a"}}}}`: true,
		`{"type":"object","properties":{"a":{"x-more":{"$anchor":"a"}}}}`:                                                                 false,
	} {
		raw := `{"name":"a","inputSchema":{"type":"object"},"outputSchema":` + schema + `}`
		def, mended, err := TakeIn(KindTool, "s", []byte(raw))
		if err != nil {
			t.Fatalf("%s: %v", schema, err)
		}
		if got := def.Legacy == nil; got != want || string(def.Raw) != raw || mended != nil {
			t.Errorf("%s: legacy clients are listed %s", schema, def.Legacy)
		}
	}
}
