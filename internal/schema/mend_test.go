package schema_test

import (
	"encoding/json"
	"strings"
	"testing"

	"toolfinch/internal/schema"
)

func TestMendGivesValuesTheTypesOfTheSchema(t *testing.T) {
	const types = `{"type":"object","properties":{
		"q":{"type":"string"},"n":{"type":"integer"},"x":{"type":"number"},"on":{"type":"boolean"},
		"list":{"type":"array","items":{"type":"string"}},"ids":{"type":"array","items":{"type":"integer"}},
		"o":{"type":"object","properties":{"a":{"type":"integer"}}},"state":{"type":"string","enum":["open","closed"]},"level":{"enum":[1,2]},
		"maybe":{"type":["integer","null"]},"either":{"anyOf":[{"type":"integer"},{"type":"null"}]},"ref":{"$ref":"#/$defs/r"},
		"any":{},"least":{"type":"string","minLength":1},"both":{"type":["string","integer"]},
		"page":{"anyOf":[{"type":"object","properties":{"size":{"type":"integer"}}},{"type":"null"}]}},
		"$defs":{"r":{"type":"object","properties":{"b":{"type":"boolean"}}}}}`
	const strict = `{"type":"object","properties":{"issue_number":{"type":"integer"},"note":{"type":"string"}},"required":["issue_number"],"additionalProperties":false}`
	for _, test := range []struct{ schema, value, want string }{ // "" for want: refused; else what fits
		{types, `{"q":"5","n":5,"list":["a"]}`, `{"q":"5","n":5,"list":["a"]}`},
		{types, `{"n":"5"}`, `{"n":5}`},
		{types, `{"n":" 5 "}`, `{"n":5}`},
		{types, `{"n":"five"}`, ``},
		{types, `{"n":"1.5"}`, ``},
		{types, `{"n":"12345678901234567890"}`, `{"n":12345678901234567890}`},
		{types, `{"x":"1.50"}`, `{"x":1.50}`},
		{types, `{"on":"True"}`, `{"on":true}`},
		{types, `{"on":"yes"}`, ``},
		{types, `{"on":1}`, ``},
		{types, `{"q":5}`, `{"q":"5"}`},
		{types, `{"q":12345678901234567890}`, `{"q":"12345678901234567890"}`},
		{types, `{"q":true}`, `{"q":"true"}`},
		{types, `{"q":{"a":1}}`, ``},
		{types, `{"q":["a"]}`, ``},
		{types, `{"list":"[\"a\",\"b\"]"}`, `{"list":["a","b"]}`},
		{types, `{"list":"a"}`, ``}, // one, or a text of several
		{types, `{"list":"a, b"}`, ``},
		{types, `{"list":[1,2]}`, `{"list":["1","2"]}`},
		{types, `{"list":""}`, `{}`},
		{types, `{"ids":"[\"7\",8]"}`, `{"ids":[7,8]}`},
		{types, `{"o":"{\"a\":\"1\"}"}`, `{"o":{"a":1}}`},
		{types, "{\"o\":\"```json\\n{\\\"a\\\":1}\\n```\"}", `{"o":{"a":1}}`},
		{types, `{"o":"a=1"}`, ``},
		{types, `{"state":"OPEN"}`, `{"state":"open"}`},
		{types, `{"state":""}`, `{}`},
		{types, `{"state":"opened"}`, ``},
		{types, `{"level":"2"}`, `{"level":2}`},
		{types, `{"q":null,"n":null}`, `{}`},
		{types, `{"q":""}`, `{"q":""}`},
		{types, `{"n":""}`, `{}`},
		{types, `{"n":"null"}`, `{}`},
		{types, `{"n":"None"}`, `{}`},
		{types, `{"maybe":null}`, `{"maybe":null}`},
		{types, `{"maybe":"null"}`, `{"maybe":null}`},
		{types, `{"either":"3"}`, `{"either":3}`},
		{types, `{"ref":{"b":"false"}}`, `{"ref":{"b":false}}`},
		{types, `{"page":{"size":"2"}}`, `{"page":{"size":2}}`},
		{types, `{"any":"5"}`, `{"any":"5"}`},
		{types, `{"both":"5"}`, `{"both":"5"}`},
		{types, `{"least":""}`, `{}`},
		{types, `{"n":"5","on":"yes"}`, ``}, // all or nothing
		{strict, `{"issueNumber":"5"}`, `{"issue_number":5}`},
		{strict, `{"issue-number":5,"Note":"a"}`, `{"issue_number":5,"note":"a"}`},
		{strict, `{"issue_number":null}`, ``},
		{strict, `{"issue_number":5,"issueNumber":6}`, ``},
		{strict, `{"issue_number":5,"other":6}`, ``},
		{types, `not JSON`, ``},
	} {
		mended, violations, err := schema.NewCache().Mend(t.Context(), "k", json.RawMessage(test.schema), json.RawMessage(test.value))
		if test.want == "" {
			if string(mended) != test.value || violations == nil || err != nil {
				t.Errorf("%s becomes %s, %q, %v", test.value, mended, violations, err)
			}
			continue
		}
		if string(mended) != test.want || violations != nil || err != nil {
			t.Errorf("%s becomes %s, want %s: %q, %v", test.value, mended, test.want, violations, err)
		}
	}
}

// A server's schema bounds neither the depth nor the number of its branches.
func TestMendingIsBounded(t *testing.T) {
	const loop = `{"type":"object","properties":{"a":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":"object","properties":{"a":{"anyOf":[` +
		`{"$ref":"#/$defs/n"},{"$ref":"#/$defs/n"},{"$ref":"#/$defs/n"},{"$ref":"#/$defs/n"}]}}}}}`
	value := strings.Repeat(`{"a":`, 30) + `5` + strings.Repeat(`}`, 30)
	if mended, _, _ := schema.NewCache().Mend(t.Context(), "k", json.RawMessage(loop), json.RawMessage(value)); string(mended) != value {
		t.Errorf("%s", mended)
	}
}
