package args_test

import (
	"encoding/json"
	"testing"

	"toolfinch/tool/args"
)

func TestMendGivesValuesTheTypesOfTheSchema(t *testing.T) {
	const schema = `{"type":"object","properties":{
		"q":{"type":"string"},"n":{"type":"integer"},"x":{"type":"number"},"on":{"type":"boolean"},
		"list":{"type":"array","items":{"type":"string"}},"ids":{"type":"array","items":{"type":"integer"}},
		"o":{"type":"object","properties":{"a":{"type":"integer"}}},"state":{"type":"string","enum":["open","closed"]},
		"maybe":{"type":["integer","null"]},"either":{"anyOf":[{"type":"integer"},{"type":"null"}]},"ref":{"$ref":"#/$defs/r"},
		"any":{},"$.xgafv":{},"url":{"type":"string","format":"uri"},"both":{"type":["string","integer"]},"need":{"type":"integer"},"issue_number":{"type":"integer"},
		"page":{"anyOf":[{"type":"object","properties":{"size":{"type":"integer"}}},{"type":"null"}]},
		"loop":{"$ref":"#/properties/loop"}},
		"required":["need","issue_number"],"$defs":{"r":{"type":"object","properties":{"b":{"type":"boolean"}}}}}`
	for arguments, want := range map[string]string{
		`{"q":"5","n":5,"list":["a"]}`: ``, // fits: not a byte changes
		`{"n":"5"}`:                    `{"n":5}`,
		`{"n":" 5 "}`:                  `{"n":5}`,
		`{"n":"five"}`:                 ``,
		`{"n":"12345678901234567890"}`: `{"n":12345678901234567890}`,
		`{"x":"1.50"}`:                 `{"x":1.50}`,
		`{"on":"True"}`:                `{"on":true}`,
		`{"on":"yes"}`:                 ``,
		`{"on":1}`:                     ``,
		`{"q":5}`:                      `{"q":"5"}`,
		`{"q":12345678901234567890}`:   `{"q":"12345678901234567890"}`,
		`{"q":true}`:                   `{"q":"true"}`,
		`{"q":{"a":1}}`:                ``,
		`{"q":["a"]}`:                  `{"q":"a"}`,
		`{"q":["a","b"]}`:              ``,
		`{"list":"[\"a\",\"b\"]"}`:     `{"list":["a","b"]}`,
		`{"list":"a"}`:                 `{"list":["a"]}`,
		`{"list":"a, b"}`:              ``, // one or two
		`{"list":[1,2]}`:               `{"list":["1","2"]}`,
		`{"list":""}`:                  `{}`,
		`{"ids":7}`:                    `{"ids":[7]}`,
		`{"ids":["7","8"]}`:            `{"ids":[7,8]}`,
		`{"o":"{\"a\":\"1\"}"}`:        `{"o":{"a":1}}`,
		"{\"o\":\"```json\\n{\\\"a\\\":1}\\n```\"}": `{"o":{"a":1}}`,
		`{"o":"a=1"}`:               ``,
		`{"o":[{"a":1}]}`:           `{"o":{"a":1}}`,
		`{"state":"OPEN"}`:          `{"state":"open"}`,
		`{"state":""}`:              `{}`,
		`{"state":"opened"}`:        ``,
		`{"q":null,"n":null}`:       `{}`,
		`{"q":""}`:                  ``,
		`{"n":""}`:                  `{}`,
		`{"n":"null"}`:              `{}`,
		`{"need":null}`:             ``,
		`{"maybe":null}`:            ``,
		`{"maybe":"null"}`:          `{"maybe":null}`,
		`{"either":"3"}`:            `{"either":3}`,
		`{"ref":{"b":"false"}}`:     `{"ref":{"b":false}}`,
		`{"page":{"size":"2"}}`:     `{"page":{"size":2}}`,
		`{"any":"5"}`:               ``,
		`{"url":""}`:                `{}`,
		`{"both":"5"}`:              ``,
		`{"issueNumber":"5"}`:       `{"issue_number":5}`,
		`{"Q":"a"}`:                 ``,                // optional, and other names are allowed
		`{"_.xgafv":"1"}`:           `{"$.xgafv":"1"}`, // as a portable schema names it
		`{"loop":"5","other":null}`: ``,
		`not JSON`:                  ``,
	} {
		if want == "" {
			want = arguments
		}
		if got := string(args.Mend(json.RawMessage(schema), json.RawMessage(arguments))); got != want {
			t.Errorf("%s becomes %s, want %s", arguments, got, want)
		}
	}
}

// A server's schema bounds neither the depth nor the number of its branches.
func TestMendReadsNoSchemaForEver(t *testing.T) {
	const schema = `{"type":"object","properties":{"a":{"$ref":"#/$defs/n"}},"$defs":{"n":{"anyOf":[` +
		`{"$ref":"#/$defs/n"},{"$ref":"#/$defs/n"},{"$ref":"#/$defs/n"},{"$ref":"#/$defs/n"},{"$ref":"#/$defs/n"},{"$ref":"#/$defs/n"}]}}}`
	const arguments = `{"a":{"a":"5"}}`
	if got := string(args.Mend(json.RawMessage(schema), json.RawMessage(arguments))); got != arguments {
		t.Errorf("%s", got)
	}
}
