package proxytool_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"toolfinch/proxytool"
	"toolfinch/tool"
	"toolfinch/tool/args"
)

func at(n int) *int { return &n }

func TestParseReadsOperations(t *testing.T) {
	for _, test := range []struct {
		name, arguments string
		want            proxytool.Operation
	}{
		{"list", `{"action":"list","type":"tool"}`, proxytool.Operation{Action: proxytool.ActionList, Type: proxytool.TypeTool}},
		{"info", `{"action":"info","type":"resource","path":"a://b"}`,
			proxytool.Operation{Action: proxytool.ActionInfo, Type: proxytool.TypeResource, Path: "a://b"}},
		{"call keeps the digits of args", `{"action":"call","type":"tool","path":"x","args":{"n":12345678901234567890,"f":1.0}}`,
			proxytool.Operation{Action: proxytool.ActionCall, Type: proxytool.TypeTool, Path: "x", Args: json.RawMessage(`{"n":12345678901234567890,"f":1.0}`)}},
		{"other names", `{"action":"call","type":"tool","tool_name":"x","Arguments":{"name":1}}`,
			proxytool.Operation{Action: proxytool.ActionCall, Type: proxytool.TypeTool, Path: "x", Args: json.RawMessage(`{"name":1}`)}},
		{"args as a JSON string", `{"action":"call","type":"prompt","path":"x","args":" {\"n\":9007199254740993} "}`,
			proxytool.Operation{Action: proxytool.ActionCall, Type: proxytool.TypePrompt, Path: "x", Args: json.RawMessage(`{"n":9007199254740993}`)}},
		{"null counts as absent", `{"action":"list","type":"prompt","path":null,"args":null,"filter":null,"limit":null,"offset":null,"cursor":null,"operations":null}`,
			proxytool.Operation{Action: proxytool.ActionList, Type: proxytool.TypePrompt}},
		{"an empty path counts as absent", `{"action":"list","type":"tool","path":""}`,
			proxytool.Operation{Action: proxytool.ActionList, Type: proxytool.TypeTool}},
		{"a resource with empty args", `{"action":"call","type":"resource","path":"a://b","args":{}}`,
			proxytool.Operation{Action: proxytool.ActionCall, Type: proxytool.TypeResource, Path: "a://b", Args: json.RawMessage(`{}`)}},
		{"a page", `{"action":"list","type":"tool","limit":1000,"offset":0}`,
			proxytool.Operation{Action: proxytool.ActionList, Type: proxytool.TypeTool, Limit: at(1000), Offset: at(0)}},
		{"a filter", `{"action":"list","type":"tool","limit":1,"cursor":"abc","filter":{"prefix":"a_","server":"s","tags":["x","y"],"query":"q"}}`,
			proxytool.Operation{Action: proxytool.ActionList, Type: proxytool.TypeTool, Limit: at(1), Cursor: "abc",
				Filter: &proxytool.Filter{Prefix: "a_", Server: "s", Tags: []string{"x", "y"}, Query: "q"}}},
		{"one tag, nulls", `{"action":"list","type":"tool","filter":{"tags":"x","query":null}}`,
			proxytool.Operation{Action: proxytool.ActionList, Type: proxytool.TypeTool, Filter: &proxytool.Filter{Tags: []string{"x"}}}},
		{"a page in other digits", `{"action":"list","type":"tool","limit":1e1,"offset":3.0}`,
			proxytool.Operation{Action: proxytool.ActionList, Type: proxytool.TypeTool, Limit: at(10), Offset: at(3)}},
		{"space around query and tags", `{"action":"list","type":"tool","filter":{"query":" a b\n","tags":[""," x ","  "]}}`,
			proxytool.Operation{Action: proxytool.ActionList, Type: proxytool.TypeTool, Filter: &proxytool.Filter{Tags: []string{"x"}, Query: "a b"}}},
		{"empty query and tags count as absent", `{"action":"list","type":"tool","filter":{"query":"  ","tags":" "}}`,
			proxytool.Operation{Action: proxytool.ActionList, Type: proxytool.TypeTool, Filter: &proxytool.Filter{}}},
		{"a batch", `{"action":"batch","operations":[{"action":"list","type":"tool"},{"action":"call","type":"tool","path":"x"}]}`,
			proxytool.Operation{Action: proxytool.ActionBatch, Operations: []proxytool.Operation{
				{Action: proxytool.ActionList, Type: proxytool.TypeTool}, {Action: proxytool.ActionCall, Type: proxytool.TypeTool, Path: "x"}}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := proxytool.Parse(json.RawMessage(test.arguments))
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Fatalf("Parse() = %+v, %v; want %+v", got, err, test.want)
			}
			if err := test.want.Check(); err != nil {
				t.Errorf("Check() = %v", err)
			}
			again, err := proxytool.Parse(test.want.Arguments())
			if err != nil || !reflect.DeepEqual(again, test.want) {
				t.Errorf("Parse(%s) = %+v, %v; want what the arguments were made of", test.want.Arguments(), again, err)
			}
		})
	}
}

// refusals are arguments that are refused, with what the error must say.
var refusals = []struct{ name, arguments, says string }{
	{"nothing", ``, "action is required: list, info, call or batch"},
	{"no object", `["list"]`, "must be a JSON object"},
	{"bad JSON", `{"action":`, "must be a JSON object"},
	{"no action", `{"type":"tool"}`, "action is required"},
	{"empty action", `{"action":"","type":"tool"}`, "action is required"},
	{"unknown action", `{"action":"lists","type":"tool"}`, `unknown action "lists"; did you mean "list"?`},
	{"action of another JSON type", `{"action":1,"type":"tool"}`, "action must be text"},
	{"no type", `{"action":"list"}`, "type is required: tool, resource or prompt"},
	{"unknown type", `{"action":"list","type":"tools"}`, `unknown type "tools"; did you mean "tool"?`},
	{"a wholly unknown type", `{"action":"list","type":"zzzzzzzz"}`, `unknown type "zzzzzzzz"; there are tool, resource and prompt`},
	{"type of another JSON type", `{"action":"list","type":["tool"]}`, "type must be text"},
	{"unknown parameter", `{"action":"list","type":"tool","pth":"x"}`, `unknown argument "pth"; did you mean "path"?`},
	{"unknown parameter that is null", `{"action":"list","type":"tool","pth":null}`, "unknown argument"},
	{"info without path", `{"action":"info","type":"tool"}`, "path is required for action info"},
	{"call without path", `{"action":"call","type":"tool"}`, "path is required for action call"},
	{"info with null path", `{"action":"info","type":"tool","path":null}`, "path is required"},
	{"call with empty path", `{"action":"call","type":"tool","path":""}`, "path is required"},
	{"path of another JSON type", `{"action":"info","type":"tool","path":7}`, "path must be text"},
	{"list with path", `{"action":"list","type":"tool","path":"x"}`, "path is not allowed for action list"},
	{"list with args", `{"action":"list","type":"tool","args":{"a":1}}`, "args is only for action call"},
	{"list with empty args", `{"action":"list","type":"tool","args":{}}`, "args is only for action call"},
	{"info with empty args", `{"action":"info","type":"tool","path":"x","args":{}}`, "args is only for action call"},
	{"args that are an array", `{"action":"call","type":"tool","path":"x","args":[1]}`, "args must be an object"},
	{"args that are a string of something else", `{"action":"call","type":"tool","path":"x","args":"[1]"}`, "args must be an object"},
	{"args that are an empty string", `{"action":"call","type":"tool","path":"x","args":""}`, "args must be an object"},
	{"a resource with args", `{"action":"call","type":"resource","path":"a://b","args":{"x":1}}`, "a resource takes no args"},
	{"info with filter", `{"action":"info","type":"tool","path":"x","filter":{}}`, "filter is only for action list"},
	{"call with limit", `{"action":"call","type":"tool","path":"x","limit":1}`, "limit is only for action list"},
	{"call with offset", `{"action":"call","type":"tool","path":"x","offset":1}`, "offset is only for action list"},
	{"call with cursor", `{"action":"call","type":"tool","path":"x","cursor":"c"}`, "cursor is only for action list"},
	{"limit too small", `{"action":"list","type":"tool","limit":0}`, "limit must be a whole number from 1 to 1000"},
	{"limit too large", `{"action":"list","type":"tool","limit":1001}`, "limit must be a whole number from 1 to 1000"},
	{"limit that is not whole", `{"action":"list","type":"tool","limit":1.5}`, "limit must be a whole number"},
	{"offset beyond all lists", `{"action":"list","type":"tool","offset":1e300}`, "offset must be a whole number"},
	{"negative offset", `{"action":"list","type":"tool","offset":-1}`, "offset must be a whole number from 0"},
	{"offset that is text", `{"action":"list","type":"tool","offset":"x"}`, "offset must be a whole number"},
	{"offset and cursor", `{"action":"list","type":"tool","offset":1,"cursor":"c"}`, "exclude each other"},
	{"cursor of another JSON type", `{"action":"list","type":"tool","cursor":1}`, "cursor must be text"},
	{"filter that is no object", `{"action":"list","type":"tool","filter":"x"}`, "filter must be an object"},
	{"filter with an unknown member", `{"action":"list","type":"tool","filter":{"prefx":"a"}}`, `unknown argument of filter "prefx"; did you mean "prefix"?`},
	{"filter.prefix of another JSON type", `{"action":"list","type":"tool","filter":{"prefix":1}}`, "must be text"},
	{"filter.tags of another JSON type", `{"action":"list","type":"tool","filter":{"tags":[1]}}`, "filter.tags must be an array of texts"},
	{"filter.tags with null", `{"action":"list","type":"tool","filter":{"tags":["a",null]}}`, "filter.tags must be an array of texts"},
	{"list with operations", `{"action":"list","type":"tool","operations":[]}`, "operations are only for action batch"},
	{"batch without operations", `{"action":"batch"}`, "an array of 1 to 50 operations"},
	{"batch of nothing", `{"action":"batch","operations":[]}`, "an array of 1 to 50 operations"},
	{"batch of too many", `{"action":"batch","operations":[` + strings.Repeat(`{},`, 50) + `{}]}`, "operations has more than 50"},
	{"operations that are no array", `{"action":"batch","operations":{}}`, "operations must be an array"},
	{"batch with type", `{"action":"batch","type":"tool","operations":[{}]}`, "type is not allowed beside action batch"},
	{"batch with path", `{"action":"batch","path":"x","operations":[{}]}`, "path is not allowed beside action batch"},
	{"batch with args", `{"action":"batch","args":{},"operations":[{}]}`, "args is not allowed beside action batch"},
	{"batch with limit", `{"action":"batch","limit":1,"operations":[{}]}`, "limit is not allowed beside action batch"},
}

func TestParseRefuses(t *testing.T) {
	for _, test := range refusals {
		t.Run(test.name, func(t *testing.T) {
			op, err := proxytool.Parse(json.RawMessage(test.arguments))
			var wrong *args.Error
			if !errors.As(err, &wrong) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("Parse() = %+v, %v; want an *args.Error with %q", op, err, test.says)
			}
		})
	}
}

func TestParseNamesAllArgumentsForAnUnknownOne(t *testing.T) {
	_, err := proxytool.Parse(json.RawMessage(`{"action":"list","type":"tool","zzzzzzzzzz":1}`))
	const want = `unknown argument "zzzzzzzzzz"; this tool takes action, type, path, args, filter, limit, offset, cursor and operations`
	if err == nil || err.Error() != want {
		t.Errorf("Parse() = %v, want %s", err, want)
	}
}

func TestCheckRefusesWhatParseDoes(t *testing.T) {
	list := func(change func(*proxytool.Operation)) proxytool.Operation {
		op := proxytool.Operation{Action: proxytool.ActionList, Type: proxytool.TypeTool}
		change(&op)
		return op
	}
	for _, op := range []proxytool.Operation{
		{},
		{Action: "lst", Type: proxytool.TypeTool},
		{Action: proxytool.ActionList},
		{Action: proxytool.ActionCall, Type: proxytool.TypeTool},
		{Action: proxytool.ActionCall, Type: proxytool.TypeTool, Path: "x", Args: json.RawMessage(`[]`)},
		{Action: proxytool.ActionCall, Type: proxytool.TypeTool, Path: "x", Args: json.RawMessage(`{"a"`)},
		list(func(op *proxytool.Operation) { op.Path = "x" }),
		list(func(op *proxytool.Operation) { op.Args = json.RawMessage(`{}`) }),
		list(func(op *proxytool.Operation) { op.Limit = at(0) }),
		list(func(op *proxytool.Operation) { op.Offset, op.Cursor = at(1), "c" }),
		{Action: proxytool.ActionBatch},
	} {
		var wrong *args.Error
		if err := op.Check(); !errors.As(err, &wrong) {
			t.Errorf("Check(%+v) = %v, want an *args.Error", op, err)
		}
	}
	if err := list(func(op *proxytool.Operation) { op.Args = json.RawMessage(` null `) }).Check(); err != nil {
		t.Errorf("null args: Check() = %v, want none", err)
	}
}

// A client learns of a wrong operation before it sends the batch; a server runs
// the others.
func TestCheckLooksIntoABatch(t *testing.T) {
	good := proxytool.Operation{Action: proxytool.ActionList, Type: proxytool.TypeTool}
	for _, bad := range []proxytool.Operation{
		{Action: proxytool.ActionInfo, Type: proxytool.TypeTool},
		{Action: proxytool.ActionBatch, Operations: []proxytool.Operation{good}},
	} {
		op := proxytool.Operation{Action: proxytool.ActionBatch, Operations: []proxytool.Operation{good, bad}}
		if err := op.Check(); err == nil || !strings.Contains(err.Error(), "operations[1]: ") {
			t.Errorf("Check() = %v, want operations[1] to be named", err)
		}
		if _, err := proxytool.Parse(op.Arguments()); err != nil {
			t.Errorf("Parse(%s) = %v, want none", op.Arguments(), err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, test := range refusals {
		f.Add([]byte(test.arguments))
	}
	f.Add([]byte(`{"action":"batch","operations":[{"action":"call","type":"tool","path":"x","args":"{\"a\":1}"}]}`))
	f.Add([]byte(`{"action":"list","type":"resource","filter":{"tags":["a"]},"limit":3,"cursor":"x"}`))
	f.Fuzz(func(t *testing.T, arguments []byte) {
		op, err := proxytool.Parse(arguments)
		if err != nil {
			return
		}
		again, err := proxytool.Parse(op.Arguments())
		if err != nil {
			t.Fatalf("Parse(%s) = %v", op.Arguments(), err)
		}
		if op.Check() == nil && fmt.Sprintf("%+v", again.Arguments()) != fmt.Sprintf("%+v", op.Arguments()) {
			t.Fatalf("%s became %s", op.Arguments(), again.Arguments())
		}
	})
}

// Whatever a client sends and a source answers, the answer is a result, and what
// decodes it reads objects.
func FuzzAnswer(f *testing.F) {
	const result = `{"content":[{"type":"text","text":"{}","annotations":{"proxyType":"x"},"_meta":[]}],"_meta":{"many":1}}`
	for _, test := range refusals {
		f.Add([]byte(test.arguments), []byte(`{}`))
	}
	for _, arguments := range []string{
		`{"action":"call","type":"tool","path":"x","args":"{}"}`, `{"action":"call","type":"prompt","path":"x","args":{"a":5}}`, `{"action":"call","type":"resource","path":"x"}`,
		`{"action":"batch","operations":[{"action":"call","type":"tool","path":"x"},7,{"action":"info","type":"tool","path":"t00"}]}`, `{"action":"list","type":"tool","limit":"1"}`,
	} {
		f.Add([]byte(arguments), []byte(result))
		f.Add([]byte(arguments), []byte(`{"contents":[{"uri":"x","text":"[1]","mimeType":null}],"messages":[{"role":"user","content":{"type":"text","text":"x"}}]}`))
		f.Add([]byte(arguments), []byte(`{"content":[]}`))
	}
	f.Fuzz(func(t *testing.T, arguments, answer []byte) {
		if !json.Valid(arguments) || !json.Valid(answer) {
			return // neither gets this far
		}
		source := &shelf{items: map[proxytool.Type][]proxytool.Item{proxytool.TypeTool: tools(3)}, answers: map[string]string{"x": string(answer)}}
		got, err := proxytool.New("proxy", source, nil).Handler(t.Context(), &tool.Call{Arguments: arguments})
		if err != nil {
			return
		}
		if !json.Valid(got) || !strings.HasPrefix(strings.TrimSpace(string(got)), "{") {
			t.Fatalf("%s is answered with %s", arguments, got)
		}
		decoded, err := proxytool.Decode(json.RawMessage(got))
		if err != nil {
			if !errors.Is(err, proxytool.ErrNoAnswer) {
				t.Fatal(err)
			}
			return
		}
		for _, item := range decoded.Items {
			if !json.Valid(item) {
				t.Fatalf("an item is %s", item)
			}
		}
	})
}
