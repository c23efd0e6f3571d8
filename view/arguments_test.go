package view

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
	"toolfinch/internal/schema"
	"toolfinch/tool"
)

// withSchema is a tool that takes what schema says.
func withSchema(t testing.TB, schema string) *tool.Tool {
	return defined(t, tool.KindTool, "s", `{"name":"a","inputSchema":`+schema+`}`)
}

// refused stands for arguments with one that clients do not see.
const refused = "refused"

// reached is what arguments become below t.
func reached(t testing.TB, of *tool.Tool, sent string) string {
	t.Helper()
	call := &tool.Call{Name: "a"}
	if sent != "" {
		call.Arguments = json.RawMessage(sent)
	}
	result, err := of.Handler(context.Background(), call)
	if err != nil {
		t.Fatalf("call with %s: %v", sent, err)
	}
	if result.Failed() && strings.Contains(said(result), "the tool takes no argument") {
		return refused
	}
	if string(call.Arguments) != sent {
		t.Errorf("the call's own arguments %s became %s", sent, call.Arguments)
	}
	return string(rawjson.Member(result, "structuredContent"))
}

func TestSchemaAndArgumentsFollowParameters(t *testing.T) {
	const files = `{"type":"object","properties":{"path":{"type":"string","description":"Where"},"depth":{"type":"integer"},"all":true},"required":["path","depth"],"additionalProperties":false}`
	type sent map[string]string
	for _, test := range []struct {
		name       string
		schema     string
		parameters []Parameter
		want       string
		sent       sent
	}{
		{
			"renamed, at its place", files,
			[]Parameter{{Name: "path", Rename: "skill_name", Description: text("The skill. {original}: ")}},
			`{"type":"object","properties":{"skill_name":{"type":"string","description":"The skill. Where: "},"depth":{"type":"integer"},"all":true},"required":["skill_name","depth"],"additionalProperties":false}`,
			sent{
				`{"skill_name":"x","depth":12345678901234567890}`: `{"path":"x","depth":12345678901234567890}`,
				`{"depth":1.0,"skill_name":null}`:                 `{"depth":1.0,"path":null}`,
				`{"path":"/etc","depth":1}`:                       refused,
				`{"PATH":"/etc","skill_name":"x"}`:                refused,
				`{"other":"\u00e9 </script>","skill_name":"x"}`:   `{"other":"\u00e9 </script>","path":"x"}`,
				`{ "skill_name" : { "b" : [1, 2.50] } }`:          `{"path":{ "b" : [1, 2.50] }}`,
				`{}`:                                              `{}`,
				``:                                                `{}`,
				`null`:                                            `{}`,
			},
		},
		{
			"default: told, optional, sent when nothing is", files,
			[]Parameter{{Name: "depth", Default: []byte(`2.0`)}, {Name: "all", Default: []byte(`{"deep":[1,{"x":9007199254740993}]}`)}},
			`{"type":"object","properties":{"path":{"type":"string","description":"Where"},"depth":{"default":2.0,"type":"integer"},"all":{"default":{"deep":[1,{"x":9007199254740993}]}}},"required":["path"],"additionalProperties":false}`,
			sent{
				`{"path":"x"}`:                     `{"path":"x","depth":2.0,"all":{"deep":[1,{"x":9007199254740993}]}}`,
				`{"depth":null,"path":"x"}`:        `{"depth":null,"path":"x","all":{"deep":[1,{"x":9007199254740993}]}}`,
				`{"all":0,"path":"x","depth":-0}`:  `{"all":0,"path":"x","depth":-0}`,
				`{"d\u0065pth":3,"path":"\u0078"}`: `{"depth":3,"path":"\u0078","all":{"deep":[1,{"x":9007199254740993}]}}`,
				``:                                 `{"depth":2.0,"all":{"deep":[1,{"x":9007199254740993}]}}`,
			},
		},
		{
			"hidden with a default, renamed with a default", files,
			[]Parameter{{Name: "path", Hidden: true, Default: []byte(`"."`)}, {Name: "depth", Rename: "levels", Default: []byte(`1`)}},
			`{"type":"object","properties":{"levels":{"default":1,"type":"integer"},"all":true},"additionalProperties":false}`,
			sent{
				`{}`:                         `{"depth":1,"path":"."}`,
				`{"levels":5}`:               `{"depth":5,"path":"."}`,
				`{"path":"/etc","levels":9}`: refused,
			},
		},
		{
			"hidden and optional is never sent", files,
			[]Parameter{{Name: "all", Hidden: true}},
			`{"type":"object","properties":{"path":{"type":"string","description":"Where"},"depth":{"type":"integer"}},"required":["path","depth"],"additionalProperties":false}`,
			sent{`{"path":"x"}`: `{"path":"x"}`, `{"path":"x","All":1}`: refused},
		},
		{
			"a value wins over all that is sent", files,
			[]Parameter{{Name: "path", Value: []byte(`{"a":1.0}`), Default: []byte(`1`), Rename: "p"}, {Name: "depth", Value: []byte(`null`)}},
			`{"type":"object","properties":{"all":true},"additionalProperties":false}`,
			sent{
				`{"path":"/etc"}`:       refused,
				`{"Path":"/etc","p":1}`: refused,
				`{"p":1}`:               `{"p":1,"path":{"a":1.0},"depth":null}`,
			},
		},
		{
			"swapped", files,
			[]Parameter{{Name: "path", Rename: "depth"}, {Name: "depth", Rename: "path"}},
			`{"type":"object","properties":{"depth":{"type":"string","description":"Where"},"path":{"type":"integer"},"all":true},"required":["depth","path"],"additionalProperties":false}`,
			sent{`{"path":1,"depth":"x"}`: `{"depth":1,"path":"x"}`},
		},
		{
			"the name of one that is hidden", files,
			[]Parameter{{Name: "path", Value: []byte(`"."`)}, {Name: "depth", Rename: "path"}},
			`{"type":"object","properties":{"path":{"type":"integer"},"all":true},"required":["path"],"additionalProperties":false}`,
			sent{`{"path":3}`: `{"depth":3,"path":"."}`, `{"path":3,"depth":4}`: refused},
		},
		{
			"x-mcp-header stays with its property", `{"properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`,
			[]Parameter{{Name: "region", Rename: "where"}},
			`{"properties":{"where":{"type":"string","x-mcp-header":"Region"}}}`,
			sent{`{"where":"eu"}`: `{"region":"eu"}`},
		},
		{
			"keywords beside properties",
			`{"properties":{"a":{},"b":{},"c":{}},"dependentRequired":{"a":["b","c"],"c":["a"]},"dependentSchemas":{"a":{"required":["c"]}},` +
				`"dependencies":{"b":["a"],"a":{"required":["b"]}},"anyOf":[{"required":["a"]},{"required":["c"],"properties":{"a":{"const":1},"c":false}}],` +
				`"allOf":[{"oneOf":[{"required":["a","b"]}]}],"if":{"properties":{"a":{"const":"x"}}},"then":{"required":["b"]},"else":true,"not":{"required":["a"]}}`,
			[]Parameter{{Name: "a", Rename: "x"}, {Name: "b", Default: []byte(`1`), Hidden: true}},
			`{"properties":{"x":{},"c":{}},"dependentRequired":{"x":["c"],"c":["x"]},"dependentSchemas":{"x":{"required":["c"]}},` +
				`"dependencies":{"x":{}},"anyOf":[{"required":["x"]},{"required":["c"],"properties":{"x":{"const":1},"c":false}}],` +
				`"allOf":[{"oneOf":[{"required":["x"]}]}],"if":{"properties":{"x":{"const":"x"}}},"then":{},"else":true,"not":{"required":["a"]}}`,
			nil,
		},
		{
			"references follow",
			`{"properties":{"deep":{"type":"null"},"a/b":{"type":"object"},"b":{"items":{"$ref":"#/properties/gone/items"}},"gone":{"items":{"$ref":"#/properties/a~1b"},"not":{"$ref":"#/properties/deep"}},"lost":{"$ref":"#/properties/lost"},"bb":{"$ref":"#\/properties\/b"},"if":{"$ref":"b"}},"$defs":{"gone":{"$ref":"#/properties/bb"}}}`,
			[]Parameter{{Name: "a/b", Rename: "x~y"}, {Name: "gone", Value: []byte(`[]`)}, {Name: "lost", Hidden: true}, {Name: "deep", Hidden: true}, {Name: "b", Rename: "c"}},
			`{"properties":{"x~y":{"type":"object"},"c":{"items":{"$ref":"#/$defs/gone_/items"}},"bb":{"$ref":"#/properties/c"},"if":{"$ref":"b"}},"$defs":{"deep":{"type":"null"},"gone_":{"items":{"$ref":"#/properties/x~0y"},"not":{"$ref":"#/$defs/deep"}},"gone":{"$ref":"#/properties/bb"}}}`,
			nil,
		},
		{
			"a secret default is not told", `{"properties":{"key":{"type":"string"},"k2":{"$ref":"#/properties/key"}}}`,
			[]Parameter{{Name: "key", Hidden: true, Default: []byte(`"secret"`)}},
			`{"$defs":{"key":{"type":"string"}},"properties":{"k2":{"$ref":"#/$defs/key"}}}`,
			sent{`{}`: `{"key":"secret"}`},
		},
		{
			"what is not spoken of keeps its bytes, white space between members apart",
			`{ "type" : "object", "required" : [], "properties" : {"a":{ "x" : 1.0 },"b":{ }}, "anyOf" : [ { } ], "examples":[{"b" : 12345678901234567890}] }`,
			[]Parameter{{Name: "b", Rename: "c"}},
			`{"type":"object","required":[],"properties":{"a":{ "x" : 1.0 },"c":{ }},"anyOf":[ { } ],"examples":[{"b" : 12345678901234567890}]}`,
			nil,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := withSchema(t, test.schema)
			after, problems := (&Override{Tool: "a", Parameters: test.parameters}).apply(before, tool.LayerViewArguments)
			wantProblems(t, problems)
			if got := string(after.Def.InputSchema); got != test.want || !json.Valid(after.Def.Raw) {
				t.Errorf("schema\ngot  %s\nwant %s", got, test.want)
			}
			for sent, want := range test.sent {
				if got := reached(t, after, sent); got != want {
					t.Errorf("sent %s\ngot  %s\nwant %s", sent, got, want)
				}
			}
		})
	}
}

func TestParameterProblems(t *testing.T) {
	const schema = `{"properties":{"path":{},"depth":{},"all":{}},"required":["path"]}`
	at := Place{3, 7}
	for _, test := range []struct {
		name, schema string
		parameters   []Parameter
		want         string
	}{
		{"unknown", schema, []Parameter{{Name: "pth", At: at, Hidden: true}},
			`tool s.a: parameter "pth": the tool has no such parameter (did you mean "path"?)`},
		{"unlike any", schema, []Parameter{{Name: "colour", At: at}},
			`tool s.a: parameter "colour": the tool has no such parameter (known: path, depth, all)`},
		{"no properties", `{"type":"object"}`, []Parameter{{Name: "path", At: at}},
			`tool s.a: parameter "path": the tool has no such parameter (there is none)`},
		{"no object", `true`, []Parameter{{Name: "path", At: at}},
			`tool s.a: parameter "path": the tool has no such parameter (there is none)`},
		{"required but never sent", schema, []Parameter{{Name: "path", At: at, Hidden: true}},
			`tool s.a: parameter "path": it is hidden, but the tool requires it (give it a default or a value)`},
		{"the name of another", schema, []Parameter{{Name: "all", At: at, Rename: "depth"}},
			`tool s.a: parameter "all": clients would know it and "depth" by one name, "depth" (choose another name)`},
		{"the name of a later one", schema, []Parameter{{Name: "path", At: at, Rename: "depth"}},
			`tool s.a: parameter "path": clients would know it and "depth" by one name, "depth" (choose another name)`},
		{"two of one new name", schema, []Parameter{{Name: "path", Rename: "x"}, {Name: "depth", At: at, Rename: "x"}},
			`tool s.a: parameter "depth": clients would know it and "path" by one name, "x" (choose another name)`},
		{"no JSON", schema, []Parameter{{Name: "path", At: at, Value: []byte(`{`)}},
			`tool s.a: parameter "path": its value is not JSON`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, problems := (&Override{Tool: "a", Parameters: test.parameters}).apply(withSchema(t, test.schema), tool.LayerViewArguments)
			if got != nil || len(problems) != 1 {
				t.Fatalf("%+v, problems %v", got, problems)
			}
			if problems[0].Error() != test.want || problems[0].At != at || problems[0].Warning {
				t.Errorf("at %v: %v\nwant %s", problems[0].At, problems[0], test.want)
			}
		})
	}
}

func TestArgumentsThatAreNoObjectAreRefused(t *testing.T) {
	below := 0
	a := withSchema(t, `{"properties":{"path":{}}}`)
	a.Handler = func(context.Context, *tool.Call) (tool.Result, error) { below++; return tool.TextResult(""), nil }
	bound, _ := (&Override{Tool: "a", Parameters: []Parameter{{Name: "path", Value: []byte(`"."`)}}}).apply(a, tool.LayerViewArguments)
	for _, sent := range []string{`[]`, `"{}"`, `7`, `{"path":1`, `{} {}`} {
		_, err := bound.Handler(context.Background(), &tool.Call{Arguments: json.RawMessage(sent)})
		var rpc *tool.RPCError
		if !errors.As(err, &rpc) || rpc.Code != tool.CodeInvalidParams {
			t.Errorf("%s: error %v", sent, err)
		}
	}
	if below > 0 {
		t.Errorf("the tool was called %d times", below)
	}
}

func TestBoundCallsKeepAllButTheirArguments(t *testing.T) {
	var got *tool.Call
	a := withSchema(t, `{"properties":{"path":{}}}`)
	a.Handler = func(_ context.Context, call *tool.Call) (tool.Result, error) {
		got = call
		return tool.TextResult("done"), nil
	}
	bound, _ := (&Override{Tool: "a", Parameters: []Parameter{{Name: "path", Value: []byte(`"."`)}}}).apply(a, tool.LayerViewArguments)
	sent := tool.Call{Name: "x", Session: "s1", Principal: "p", Depth: 2, Params: json.RawMessage(`{"name":"x","_meta":{"k":1}}`)}
	must.Get(bound.Handler(context.Background(), &sent))(t)
	want := sent
	want.Arguments = json.RawMessage(`{"path":"."}`)
	if fmt.Sprintf("%+v", *got) != fmt.Sprintf("%+v", want) || sent.Arguments != nil {
		t.Errorf("got %+v\nwant %+v", *got, want)
	}
}

// A server that takes the first of two members must not get what was not bound.
func TestBoundArgumentsAreThereOnce(t *testing.T) {
	var got string
	a := withSchema(t, `{"properties":{"path":{},"depth":{}}}`)
	a.Handler = func(_ context.Context, call *tool.Call) (tool.Result, error) {
		got = string(call.Arguments)
		return tool.TextResult("done"), nil
	}
	bound, _ := (&Override{Tool: "a", Parameters: []Parameter{{Name: "path", Rename: "file"}, {Name: "depth", Default: []byte(`1`)}}}).apply(a, tool.LayerViewArguments)
	sent := &tool.Call{Arguments: json.RawMessage(`{"file":"a","\u0066ile":"b","depth":7,"depth":2,"x":{"y":1,"y":2}}`)}
	must.Get(bound.Handler(context.Background(), sent))(t)
	if want := `{"path":"b","depth":2,"x":{"y":2}}`; got != want {
		t.Errorf("the server gets %s, want %s", got, want)
	}
}

// Whatever else is in a definition or in arguments comes out byte for byte.
func TestRandomObjectsKeepTheirOtherBytes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	override := &Override{Tool: "a", Description: text("{original}!"), Parameters: []Parameter{
		{Name: "r", Rename: "renamed"}, {Name: "v", Value: []byte(`1.50`)}, {Name: "d", Default: []byte(`{"b":1,"a":2}`)},
	}}
	for i := range 1000 {
		before, after := properties(random, []string{"r", "v", "d"}, []string{`"renamed"`, ``, `"d"`}, `"default":{"b":1,"a":2}`)
		other := value(random, 3)
		raw := `{ "x":` + other + `,` + "\n" + `"name":"a","description":"D` + "\",\t" + `"inputSchema" : {"z":` + other + `,"properties":` + before + `} }`
		want := strings.Replace(strings.Replace(raw, `"D"`, `"D!"`, 1), `"properties":`+before, `"properties":`+after, 1)
		changed, problems := override.apply(defined(t, tool.KindTool, "s", raw), tool.LayerViewArguments)
		if len(problems) > 0 {
			t.Fatalf("%d: %s: %v", i, raw, problems)
		}
		if got := string(changed.Def.Raw); got != want {
			t.Fatalf("%d: definition\nfrom %s\ngot  %s\nwant %s", i, raw, got, want)
		}
		sent, below := properties(random, []string{"renamed", "d"}, []string{`"r"`, `"d"`}, "")
		below = strings.TrimSuffix(strings.TrimSuffix(below, "}"), ",")
		if got, want := reached(t, changed, sent), below+`,"v":1.50}`; got != want {
			t.Fatalf("%d: arguments\nsent %s\ngot  %s\nwant %s", i, sent, got, want)
		}
	}
}

// properties is an object with random members among the named ones, and the same
// with these under their new keys, "" for none; more is the first member of the
// last one's value.
func properties(random *rand.Rand, names, keys []string, more string) (before, after string) {
	var from, to []string
	for i, name := range names {
		for j := range random.IntN(3) {
			member := fmt.Sprintf(`"other%d%d <é>":%s`, i, j, value(random, 2))
			from, to = append(from, member), append(to, member)
		}
		inside := value(random, 2)
		from = append(from, fmt.Sprintf(`"%s":{"in":%s}`, name, inside))
		switch {
		case keys[i] == "":
		case i == len(names)-1 && more != "":
			to = append(to, fmt.Sprintf(`%s:{%s,"in":%s}`, keys[i], more, inside))
		default:
			to = append(to, fmt.Sprintf(`%s:{"in":%s}`, keys[i], inside))
		}
	}
	return "{" + strings.Join(from, ",") + "}", "{" + strings.Join(to, ",") + "}"
}

// value is any JSON value, as odd as JSON allows.
func value(random *rand.Rand, depth int) string {
	atoms := []string{`1.0`, `-0`, `12345678901234567890`, `1E+2`, `true`, `null`, `""`, `"\u00e9\/<&>"`, `"}],{\"["`, `"\\"`, `[ ]`, `{ }`, "\"\u2028\"", `"#/properties/r"`}
	n := random.IntN(len(atoms) + 4)
	if n < len(atoms) || depth == 0 {
		return atoms[n%len(atoms)]
	}
	var parts []string
	for i := range random.IntN(4) {
		part := value(random, depth-1)
		if n%2 == 0 {
			part = fmt.Sprintf(`"k%d\u0041" : %s`, i, part)
		}
		parts = append(parts, part)
	}
	inside := strings.Join(parts, " ,\t")
	if n%2 == 0 {
		return "{ " + inside + "}"
	}
	return "[" + inside + " ]"
}

// Real schemas stay schemas, and a change that is undone leaves no trace.
func TestParametersOfRealTools(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "shared", "realtools", "*.json"))
	if err != nil || len(files) == 0 {
		t.Skip("the recorded tools of real servers are not beside the repository (shared/realtools)")
	}
	seen := 0
	for _, file := range files {
		recorded := must.Get(os.ReadFile(file))(t)
		for raw := range rawjson.Elements(rawjson.Member(recorded, "tools")) {
			var compact bytes.Buffer
			must.Do(t, json.Compact(&compact, raw))
			before := defined(t, tool.KindTool, "s", compact.String())
			var there, back, values []Parameter
			for name := range rawjson.Members(rawjson.Member(before.Def.InputSchema, "properties")) {
				there = append(there, Parameter{Name: name, Rename: "new " + name})
				back = append(back, Parameter{Name: "new " + name, Rename: name})
				values = append(values, Parameter{Name: name, Value: []byte(`1`)})
			}
			if len(values) == 0 {
				continue
			}
			seen++
			renamed, problems := (&Override{Parameters: there}).apply(before, tool.LayerViewArguments)
			again, more := (&Override{Parameters: back}).apply(renamed, tool.LayerViewArguments)
			if len(problems)+len(more) > 0 || string(again.Def.Raw) != string(before.Def.Raw) {
				t.Errorf("%s: renamed and back: %v %v\nfrom %s\ngot  %s", before.Def.ID, problems, more, before.Def.Raw, again.Def.Raw)
			}
			half, problems := (&Override{Parameters: values[:(len(values)+1)/2]}).apply(before, tool.LayerViewArguments)
			wantProblems(t, problems)
			if _, err := schema.Compile(before.Def.InputSchema); err != nil {
				continue
			}
			for _, changed := range []*tool.Tool{renamed, half} {
				if _, err := schema.Compile(changed.Def.InputSchema); err != nil {
					t.Errorf("%s: %v: %s", before.Def.ID, err, changed.Def.InputSchema)
				}
			}
		}
	}
	if seen < 500 {
		t.Errorf("%d tools with parameters", seen)
	}
}

func TestBoundHandlersServeCallsAtOnce(t *testing.T) {
	bound, _ := (&Override{Tool: "a", Parameters: []Parameter{
		{Name: "p", Rename: "q"}, {Name: "d", Default: []byte(`0`)}, {Name: "v", Value: []byte(`"v"`)},
	}}).apply(withSchema(t, `{"properties":{"p":{},"d":{},"v":{}}}`), tool.LayerViewArguments)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 200 {
				want := fmt.Sprintf(`{"p":%d,"d":0,"v":"v"}`, 1000*i+j)
				if got := reached(t, bound, fmt.Sprintf(`{"q":%d}`, 1000*i+j)); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			}
		})
	}
	all.Wait()
}

func BenchmarkBoundHandler(b *testing.B) {
	a := withSchema(b, `{"properties":{"path":{},"depth":{},"key":{},"text":{}}}`)
	a.Handler = func(context.Context, *tool.Call) (tool.Result, error) { return nil, nil }
	bound, _ := (&Override{Tool: "a", Parameters: []Parameter{
		{Name: "path", Rename: "where"}, {Name: "depth", Default: []byte(`3`)}, {Name: "key", Value: []byte(`"k"`)},
	}}).apply(a, tool.LayerViewArguments)
	arguments := json.RawMessage(`{"where":"/home","text":"` + strings.Repeat("word ", 190) + `","tags":["a","b",{"c":1}]}`)
	for _, test := range []struct {
		name   string
		params json.RawMessage
	}{{"wire", json.RawMessage(`{}`)}, {"inside", nil}} {
		b.Run(fmt.Sprintf("%s/%dB", test.name, len(arguments)), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				must.Get(bound.Handler(context.Background(), &tool.Call{Arguments: arguments, Params: test.params}))(b)
			}
		})
	}
}
