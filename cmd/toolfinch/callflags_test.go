package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// everything is a schema with each kind of argument that tools have.
const everything = `{
	"type": "object",
	"properties": {
		"title": {"type": "string", "description": "What it is called"},
		"max_results": {"type": "integer", "default": 10},
		"ratio": {"type": "number"},
		"dry-run": {"type": "boolean"},
		"no-cache": {"type": "boolean"},
		"unit": {"type": "string", "enum": ["metric", "imperial"]},
		"level": {"enum": [1, 2, "auto"]},
		"tags": {"type": "array", "items": {"type": "string"}},
		"sizes": {"type": "array", "items": {"type": "integer"}},
		"modes": {"type": "array", "items": {"$ref": "#/$defs/Mode"}},
		"where": {"type": "object"},
		"any": {},
		"maybe": {"type": ["string", "null"]},
		"limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
		"mode": {"anyOf": [{"$ref": "#/$defs/Mode"}, {"type": "null"}]},
		"id": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
		"one_or_more": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
		"wrapped": {"allOf": [{"$ref": "#/$defs/Mode"}], "description": "as generators write it"},
		"loop": {"$ref": "#/properties/loop"},
		"tree": {"anyOf": [{"$ref": "#/properties/tree"}, {"$ref": "#/properties/tree"}, {"$ref": "#/properties/tree"}]},
		"nested": {"type": "array", "items": {"$ref": "#/properties/nested"}},
		"json": {"type": "boolean"},
		"config": {"type": "string"}
	},
	"$defs": {"Mode": {"type": "string", "enum": ["fast", "slow"]}}
}`

func reserved(name string) bool {
	return slices.Contains([]string{"json", "view", "raw", "config", "help"}, name)
}

func TestFlagsBecomeTypedArguments(t *testing.T) {
	flags := toolFlags(json.RawMessage(everything), reserved)
	for _, test := range []struct {
		words string // separated by |
		base  string
		want  string
		err   string // a part of the error
	}{
		{words: "", want: `{}`},
		{words: "--title|12", want: `{"title":"12"}`},
		{words: "--title=--json", want: `{"title":"--json"}`},
		{words: "--title=a=b", want: `{"title":"a=b"}`},
		{words: "--title|<&> \u2028", want: `{"title":"<&> \u2028"}`},
		{words: "--title=", want: `{"title":""}`},
		{words: "--title|a|--title|b", want: `{"title":"b"}`},
		{words: "--title", err: "--title needs a value"},
		{words: "--title|--ratio|1", err: "--title needs a value; write --title=VALUE"},

		{words: "--max_results|9007199254740993", want: `{"max_results":9007199254740993}`},
		{words: "--max-results|-1", want: `{"max_results":-1}`},
		{words: "--maxResults|1", want: `{"max_results":1}`},
		{words: "--max_results|1.5", err: `--max_results must be an integer, not "1.5"`},
		{words: "--ratio|1.0", want: `{"ratio":1.0}`},
		{words: "--ratio|1e400", want: `{"ratio":1e400}`},
		{words: "--ratio|x", err: `--ratio must be a number, not "x"`},

		{words: "--dry-run", want: `{"dry-run":true}`},
		{words: "--dry-run=false", want: `{"dry-run":false}`},
		{words: "--no-dry-run", want: `{"dry-run":false}`},
		{words: "--no-dry-run=true", err: "takes no value"},
		{words: "--dry-run|false", err: `"false" belongs to no flag`},
		{words: "--dry-run=maybe", err: "must be true or false"},
		{words: "--no-cache", want: `{"no-cache":true}`},
		{words: "--no-no-cache", want: `{"no-cache":false}`},
		{words: "--no-title", err: "unknown flag --no-title"},

		{words: "--unit|metric", want: `{"unit":"metric"}`},
		{words: "--unit|metrics", err: `--unit must be one of metric, imperial, not "metrics"; did you mean metric?`},
		{words: "--level|2", want: `{"level":2}`},
		{words: "--level|auto", want: `{"level":"auto"}`},

		{words: "--tags|a|--tags|b,c", want: `{"tags":["a","b,c"]}`},
		{words: "--tags|a", want: `{"tags":["a"]}`},
		{words: `--tags|["a", "b"]`, want: `{"tags":["a", "b"]}`},
		{words: `--tags|["a"]|--tags|b`, want: `{"tags":["a","b"]}`},
		{words: "--sizes|1|--sizes|2", want: `{"sizes":[1,2]}`},
		{words: "--sizes|x", err: `--sizes must be an integer, not "x"`},
		{words: "--modes|fast|--modes|slow", want: `{"modes":["fast","slow"]}`},
		{words: "--modes|fats", err: "did you mean fast?"},

		{words: `--where|{"b": 1.0, "a": 2}`, want: `{"where":{"b": 1.0, "a": 2}}`},
		{words: "--where|b", err: `--where must be a JSON object, not "b"`},
		{words: "--any|12", want: `{"any":12}`},
		{words: "--any|twelve", want: `{"any":"twelve"}`},
		{words: "--loop|x", want: `{"loop":"x"}`},

		{words: "--tree|x", want: `{"tree":"x"}`},
		{words: "--nested|[[1]]", want: `{"nested":[[1]]}`},

		{words: "--maybe|null", want: `{"maybe":"null"}`},
		{words: "--limit|null", want: `{"limit":null}`},
		{words: "--limit|3", want: `{"limit":3}`},
		{words: "--mode|null", want: `{"mode":null}`},
		{words: "--mode|fast", want: `{"mode":"fast"}`},
		{words: "--mode|quick", err: "--mode must be one of fast, slow, null"},
		{words: "--wrapped|slow", want: `{"wrapped":"slow"}`},
		{words: "--wrapped|x", err: "--wrapped must be one of fast, slow"},
		{words: "--id|12", want: `{"id":12}`},
		{words: "--id|012", want: `{"id":"012"}`},
		{words: "--one_or_more|a", want: `{"one_or_more":"a"}`},
		{words: "--one_or_more|a|--one_or_more|b", want: `{"one_or_more":["a","b"]}`},

		{words: "--arg-json", want: `{"json":true}`},
		{words: "--no-arg-json", want: `{"json":false}`},
		{words: "--arg-config|x", want: `{"config":"x"}`},
		{words: "--arg-title|x", want: `{"title":"x"}`},

		{words: "--titel|x", err: "unknown flag --titel; did you mean --title?"},
		{words: "stray", err: `"stray" belongs to no flag`},
		{words: "--ratio|x|--unit|y", err: "--unit must be"},

		{words: "", base: `{"any": 1.0}`, want: `{"any": 1.0}`},
		{words: "--title|x|--any|2", base: `{"any": 1.0, "id": 9007199254740993}`, want: `{"title":"x","any": 2, "id": 9007199254740993}`},
	} {
		t.Run(test.words, func(t *testing.T) {
			var words []string
			if test.words != "" {
				words = strings.Split(test.words, "|")
			}
			var base json.RawMessage
			if test.base != "" {
				base = json.RawMessage(test.base)
			}
			got, err := arguments(flags, words, base)
			switch {
			case test.err != "":
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want one with %q", err, test.err)
				}
			case err != nil:
				t.Error(err)
			case string(got) != test.want:
				t.Errorf("got  %s\nwant %s", got, test.want)
			case !json.Valid(got):
				t.Errorf("%s is no JSON", got)
			}
		})
	}
}

func TestRequiredArgumentsAreAskedFor(t *testing.T) {
	flags := toolFlags(json.RawMessage(`{
		"properties": {"a": {"type": "string"}, "b": {"default": 1}, "raw": {}},
		"required": ["a", "b", "raw", "unheard_of"]
	}`), reserved)
	for _, test := range []struct {
		words []string
		base  string
		err   string
	}{
		{nil, "", "missing --a, --arg-raw, --unheard_of"},
		{[]string{"--a", "x", "--unheard_of", "1"}, "", "missing --arg-raw"},
		{nil, `{"a": 1, "raw": null}`, "missing --unheard_of"},
		{[]string{"--a", "x"}, `{"raw": 1, "unheard_of": 1}`, ""},
	} {
		_, err := arguments(flags, test.words, json.RawMessage(test.base))
		if test.base == "" {
			_, err = arguments(flags, test.words, nil)
		}
		if test.err == "" && err != nil || test.err != "" && (err == nil || err.Error() != test.err) {
			t.Errorf("%v on %s: error %v, want %q", test.words, test.base, err, test.err)
		}
	}
}

// The command's flags are found wherever they stand, and the tool's are left.
func TestTheCommandLineOfCallIsTakenApart(t *testing.T) {
	takesValue := func(name string) bool { return name != "raw" && name != "help" }
	for _, test := range []struct{ words, ours, tool, rest, err string }{
		{words: "a.b --x 1", tool: "a.b", rest: "--x 1"},
		{words: "--config f a.b --x 1 --raw --y 2", ours: "--config f --raw", tool: "a.b", rest: "--x 1 --y 2"},
		{words: "-c f a.b", ours: "--config f", tool: "a.b"},
		{words: "a.b --x 1 -c=f -h", ours: "--config=f --help", tool: "a.b", rest: "--x 1"},
		{words: "a.b --json - --x=--raw", ours: "--json -", tool: "a.b", rest: "--x=--raw"},
		{words: "a.b --arg-json 1 -5", tool: "a.b", rest: "--arg-json 1 -5"},
		{words: "--x 1 a.b", err: "flags of the tool come after it"},
		{words: "a.b --view", err: "--view needs a value"},
		{words: ""},
	} {
		line, err := splitCall(strings.Fields(test.words), reserved, takesValue)
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: error %v, want one with %q", test.words, err, test.err)
			}
			continue
		}
		got := []string{strings.Join(line.ours, " "), line.tool, strings.Join(line.rest, " ")}
		if want := []string{test.ours, test.tool, test.rest}; err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %q, %v, want %q", test.words, got, err, want)
		}
	}
}
