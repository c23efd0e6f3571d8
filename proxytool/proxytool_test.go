package proxytool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
	"toolfinch/proxytool"
	"toolfinch/tool"
	"toolfinch/tool/args"
)

func TestDefinition(t *testing.T) {
	def := proxytool.New("gateway", &shelf{}, nil).Def
	equal(t, "name", def.ID.Name, "gateway")
	if len(def.Raw) >= 1600 {
		t.Errorf("the definition has %d bytes, want less than 1600", len(def.Raw))
	}
	for _, word := range []string{"roxy", "list", "info", "call", "tools, resources and prompts"} {
		if !strings.Contains(def.Description, word) {
			t.Errorf("the description lacks %q", word)
		}
	}
	equal(t, "actions", member(def.InputSchema, "properties", "action", "enum"), `["list","info","call","batch"]`)
	equal(t, "types", member(def.InputSchema, "properties", "type", "enum"), `["tool","resource","prompt"]`)
	equal(t, "required", member(def.InputSchema, "required"), `["action"]`)
	equal(t, "limit", member(def.InputSchema, "properties", "limit", "maximum"), fmt.Sprint(proxytool.MaxLimit))
	equal(t, "operations", member(def.InputSchema, "properties", "operations", "maxItems"), fmt.Sprint(proxytool.MaxOperations))
	if def.Annotations.ReadOnly || !def.Annotations.Destructive {
		t.Error("the tool says that it is harmless, but what it calls may not be")
	}
}

func TestListAnswersOneEmbeddedResource(t *testing.T) {
	source := &shelf{items: map[proxytool.Type][]proxytool.Item{
		proxytool.TypeTool:     items(`{"name":"a", "inputSchema":{"maximum":12345678901234567890,"multipleOf":1.0},"<x>":"é"}`, `{"name":"b"}`),
		proxytool.TypeResource: items(`{"uri":"r://1","name":"one"}`, `{"uriTemplate":"r://{n}","name":"any"}`),
	}}
	for _, test := range []struct{ typ, data, text, total string }{
		{"tool", "Tool", `[{"name":"a", "inputSchema":{"maximum":12345678901234567890,"multipleOf":1.0},"<x>":"é"},{"name":"b"}]`, "2"},
		{"resource", "Resource | ResourceTemplate", `[{"uri":"r://1","name":"one"},{"uriTemplate":"r://{n}","name":"any"}]`, "2"},
		{"prompt", "Prompt", `[]`, "0"},
	} {
		t.Run(test.typ, func(t *testing.T) {
			item := only(t, use(t, source, `{"action":"list","type":"`+test.typ+`"}`))
			equal(t, "type", textOf(item, "type"), "resource")
			equal(t, "uri", textOf(item, "resource", "uri"), "proxy:list/"+test.typ)
			equal(t, "mimeType", textOf(item, "resource", "mimeType"), "application/json")
			equal(t, "text", textOf(item, "resource", "text"), test.text)
			want := fmt.Sprintf(`{"proxyAction":"list","proxyType":"%s","pythonType":"%s","dataType":"%[2]s","many":true,"isArray":true,"totalCount":%s,"offset":0,"count":%[3]s}`,
				test.typ, test.data, test.total)
			equal(t, "annotations", member(item, "annotations"), want)
			equal(t, "_meta", member(item, "_meta"), want)
		})
	}
}

func TestInfoAnswersOneEmbeddedResource(t *testing.T) {
	source := &shelf{items: map[proxytool.Type][]proxytool.Item{
		proxytool.TypeTool:     items(`{"name":"größe 100%", "inputSchema":{ }}`),
		proxytool.TypeResource: items(`{"uri":"file:///a%20b?x=1&y=[2]#z"}`, `{"uriTemplate":"r://{n}"}`),
		proxytool.TypePrompt:   items(`{"name":"p"}`),
	}}
	for _, test := range []struct{ typ, path, uri, data, text string }{
		{"tool", "größe 100%", "proxy:info/tool/gr%C3%B6%C3%9Fe%20100%25", "Tool", `{"name":"größe 100%", "inputSchema":{ }}`},
		{"resource", "file:///a%20b?x=1&y=[2]#z", "proxy:info/resource/file:///a%20b?x=1&y=%5B2%5D#z", "Resource | ResourceTemplate", `{"uri":"file:///a%20b?x=1&y=[2]#z"}`},
		{"resource", "r://{n}", "proxy:info/resource/r://%7Bn%7D", "Resource | ResourceTemplate", `{"uriTemplate":"r://{n}"}`},
		{"prompt", "p", "proxy:info/prompt/p", "Prompt", `{"name":"p"}`},
	} {
		t.Run(test.path, func(t *testing.T) {
			item := only(t, use(t, source, `{"action":"info","type":"`+test.typ+`","path":"`+test.path+`"}`))
			equal(t, "uri", textOf(item, "resource", "uri"), test.uri)
			equal(t, "mimeType", textOf(item, "resource", "mimeType"), "application/json")
			equal(t, "text", textOf(item, "resource", "text"), test.text)
			want := fmt.Sprintf(`{"proxyAction":"info","proxyType":"%s","proxyPath":"%s","pythonType":"%s","dataType":"%[3]s","many":false,"isArray":false}`, test.typ, test.path, test.data)
			equal(t, "annotations", member(item, "annotations"), want)
			equal(t, "_meta", member(item, "_meta"), want)
		})
	}
}

func TestCallOfAToolAnnotatesItsContent(t *testing.T) {
	const label = `"proxyAction":"call","proxyType":"tool","proxyPath":"x"`
	for _, test := range []struct{ name, result, want string }{
		{"text", `{"content":[{"type":"text","text":"8"}]}`,
			`{"content":[{"annotations":{` + label + `},"_meta":{` + label + `},"type":"text","text":"8"}]}`},
		{"every item", `{"content":[{"type":"image","data":"AA==","mimeType":"image/png"},{"type":"odd","n":12345678901234567890}]}`,
			`{"content":[{"annotations":{` + label + `},"_meta":{` + label + `},"type":"image","data":"AA==","mimeType":"image/png"},` +
				`{"annotations":{` + label + `},"_meta":{` + label + `},"type":"odd","n":12345678901234567890}]}`},
		{"what is there stays", `{"content":[{"type":"text","text":"a","annotations":{"audience":["user"],"priority":1.0},"_meta":{"k":9007199254740993}}]}`,
			`{"content":[{"type":"text","text":"a","annotations":{` + label + `,"audience":["user"],"priority":1.0},"_meta":{` + label + `,"k":9007199254740993}}]}`},
		{"keys of the tool's own move", `{"content":[{"type":"text","annotations":{"count":1.0,"proxyType":"prompt","a":1},"_meta":{"many":false,"proxied":{"n":9007199254740993},"b":2}}]}`,
			`{"content":[{"type":"text","annotations":{` + label + `,"a":1},"_meta":{` + label + `,"b":2,` +
				`"proxied":{"annotations":{"count":1.0,"proxyType":"prompt"},"_meta":{"many":false,"proxied":{"n":9007199254740993}}}}}]}`},
		{"what is no object moves", `{"content":[{"type":"text","annotations":"keep","_meta":null}]}`,
			`{"content":[{"type":"text","annotations":{` + label + `},"_meta":{` + label + `,"proxied":{"annotations":"keep"}}}]}`},
		{"an item that is no object", `{"content":["a"]}`, `{"content":["a"]}`},
		{"the rest of the result", `{ "isError": true, "structuredContent": {"f":1.0}, "content":["a"], "_meta":{"a":1}, "odd":[1] }`,
			`{ "isError": true, "structuredContent": {"f":1.0}, "content":["a"], "_meta":{"a":1}, "odd":[1] }`},
		{"empty content: the result is labelled", `{"content":[],"_meta":{"a":1,"count":2}}`, `{"content":[],"_meta":{` + label + `,"a":1,"proxied":{"_meta":{"count":2}}}}`},
		{"no content", `{"structuredContent":{"a":1}}`, `{"_meta":{` + label + `},"structuredContent":{"a":1}}`},
		{"one that asks for input, with empty content", `{"resultType":"input_required","inputRequests":{"a":{}}, "content":[]}`,
			`{"resultType":"input_required","inputRequests":{"a":{}}, "content":[]}`},
		{"one that asks for input", `{"resultType":"input_required","inputRequests":{"a":{}},"requestState":"s"}`,
			`{"resultType":"input_required","inputRequests":{"a":{}},"requestState":"s"}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := use(t, &shelf{answers: map[string]string{"x": test.result}}, `{"action":"call","type":"tool","path":"x"}`)
			equal(t, "result", string(got), test.want)
		})
	}
}

func TestCallOfAResourceAnswersEmbeddedResources(t *testing.T) {
	const label = `"proxyAction":"call","proxyType":"resource","proxyPath":"r://x"`
	for _, test := range []struct{ name, content, want, proxied string }{
		{"JSON text", `{"uri":"r://x","mimeType":"text/plain","text":"{\n \"z\": 12345678901234567890, \"a\": 1.0, \"<\": \"é\" }\n"}`,
			`{"contentType":"text/plain","uri":"r://x","mimeType":"application/json","text":"{\"z\":12345678901234567890,\"a\":1.0,\"<\":\"é\"}"}`, `{"mimeType":"text/plain"}`},
		{"JSON that says so", `{"uri":"r://x","mimeType":"application/json","text":"[ 1 ]"}`,
			`{"contentType":"application/json","uri":"r://x","mimeType":"application/json","text":"[1]"}`, `{"mimeType":"application/json"}`},
		{"JSON without a type", `{"uri":"r://x","text":"7"}`, `{"mimeType":"application/json","uri":"r://x","text":"7"}`, `{}`},
		{"JSON whose type is null", `{"uri":"r://x","mimeType":null,"text":"7"}`, `{"uri":"r://x","mimeType":"application/json","text":"7"}`, `{"mimeType":null}`},
		{"half a surrogate that is escaped in the JSON", `{"uri":"r://x","text":"[ \"\\ud800\" ]"}`, `{"mimeType":"application/json","uri":"r://x","text":"[\"\\ud800\"]"}`, `{}`},
		{"other text", `{"uri":"r://x","mimeType":"text/markdown","text":"# {x}"}`, ``, ``},
		{"no text at all", `{"uri":"r://x","mimeType":"text/plain","text":""}`, ``, ``},
		{"a blob", `{"uri":"r://x","mimeType":"application/json","blob":"e30="}`, ``, ``},
		{"members beside", `{"uri":"r://x","text":"{}","_meta":{"n":9007199254740993},"odd":1.0}`,
			`{"mimeType":"application/json","uri":"r://x","text":"{}","_meta":{"n":9007199254740993},"odd":1.0}`, `{}`},
		{"a contentType of its own", `{"uri":"r://x","text":"{ }","contentType":"mine"}`, ``, ``},
		{"a contentType of its own beside the type of JSON", `{"uri":"r://x","mimeType":"application/json","contentType":"mine","text":"{ }"}`, ``, ``},
		{"half a surrogate", `{"uri":"r://x","mimeType":"text/plain","text":"[ \"\ud800\" ]"}`, ``, ``},
		{"an odd byte", "{\"uri\":\"r://x\",\"text\":\"[ \\\"\xff\\\" ]\"}", ``, ``},
	} {
		t.Run(test.name, func(t *testing.T) {
			meta := label
			if test.want == "" { // as it is
				test.want = test.content
			} else {
				meta += `,"proxied":` + test.proxied
			}
			source := &shelf{answers: map[string]string{"r://x": `{"_meta":{"k":1},"contents":[` + test.content + `],"ttlMs":5}`}}
			got := use(t, source, `{"action":"call","type":"resource","path":"r://x","args":{}}`)
			equal(t, "result", string(got), `{"_meta":{"k":1},"content":[{"type":"resource","resource":`+test.want+
				`,"annotations":{`+label+`},"_meta":{`+meta+`}}],"ttlMs":5}`)
			equal(t, "args", source.calls[0].args, "")
		})
	}
	for _, none := range []string{`{"contents":[]}`, `{}`} {
		got := use(t, &shelf{answers: map[string]string{"r://x": none}}, `{"action":"call","type":"resource","path":"r://x"}`)
		equal(t, none, string(got), `{"_meta":{`+label+`},"content":[]}`)
	}
}

func TestCallOfAPromptAnswersOneEmbeddedResource(t *testing.T) {
	const result = `{"description":"d","messages":[{"role":"user","content":{"type":"text","text":"<é>"}}],"n":12345678901234567890}`
	source := &shelf{answers: map[string]string{"p q": result}}
	item := only(t, use(t, source, `{"action":"call","type":"prompt","path":"p q","args":{"a":"x","n":5,"none":null,"o":{"b":1.0}}}`))
	equal(t, "uri", textOf(item, "resource", "uri"), "proxy:call/prompt/p%20q")
	equal(t, "mimeType", textOf(item, "resource", "mimeType"), "application/json")
	equal(t, "text", textOf(item, "resource", "text"), result)
	const label = `{"proxyAction":"call","proxyType":"prompt","proxyPath":"p q","pythonType":"GetPromptResult","dataType":"GetPromptResult"}`
	equal(t, "annotations", member(item, "annotations"), label)
	equal(t, "_meta", member(item, "_meta"), label)
	equal(t, "args are text", source.calls[0].args, `{"a":"x","n":"5","o":"{\"b\":1.0}"}`)
}

func TestInvalidArgumentsAreAnErrorResult(t *testing.T) {
	for _, test := range refusals {
		source := &shelf{}
		if text := errorText(t, use(t, source, test.arguments)); !strings.Contains(text, test.says) {
			t.Errorf("%s: %q, want %q", test.name, text, test.says)
		}
		if len(source.calls) > 0 {
			t.Errorf("%s: the source was called", test.name)
		}
	}
}

func TestErrorsOfTheSource(t *testing.T) {
	rpc := &tool.RPCError{Code: tool.CodeInvalidParams, Message: "no"}
	plain := errors.New("upstream s: call: closed")
	source := &shelf{errs: map[string]error{"rpc": rpc, "plain": plain, "list": plain, "wrong": args.Refuse("not that")}}
	handler := proxytool.New("proxy", source, nil).Handler
	for arguments, want := range map[string]error{
		`{"action":"call","type":"tool","path":"rpc"}`:   rpc,
		`{"action":"call","type":"tool","path":"plain"}`: plain,
		`{"action":"list","type":"tool"}`:                plain,
		`{"action":"info","type":"tool","path":"gone"}`:  tool.ErrNotFound,
	} {
		result, err := handler(t.Context(), &tool.Call{Arguments: json.RawMessage(arguments)})
		if !errors.Is(err, want) || len(result) > 0 {
			t.Errorf("%s: %s, %v; want %v", arguments, result, err, want)
		}
	}
	equal(t, "an argument error", errorText(t, use(t, source, `{"action":"call","type":"tool","path":"wrong"}`)), "not that")
	if _, err := handler(t.Context(), &tool.Call{Arguments: json.RawMessage(`{"action":"call","type":"tool","path":"nothing"}`)}); err == nil {
		t.Error("an answer that is no object passes")
	}
}

func TestPages(t *testing.T) {
	source := &shelf{items: map[proxytool.Type][]proxytool.Item{proxytool.TypeTool: append(tools(7), items(`{"name":"other"}`)...)}}
	for _, test := range []struct {
		name, arguments     string
		names               string
		total, offset, next string
	}{
		{"all", ``, "t00 t01 t02 t03 t04 t05 t06 other", "8", "0", ""},
		{"limit", `,"limit":2`, "t00 t01", "8", "0", "more"},
		{"limit and offset", `,"limit":2,"offset":3`, "t03 t04", "8", "3", "more"},
		{"offset alone", `,"offset":6`, "t06 other", "8", "6", ""},
		{"the last page is full", `,"limit":2,"offset":6`, "t06 other", "8", "6", ""},
		{"behind the end", `,"limit":2,"offset":99`, "", "8", "99", ""},
		{"total after the filter", `,"limit":2,"offset":6,"filter":{"prefix":"t"}`, "t06", "7", "6", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			item := only(t, use(t, source, `{"action":"list","type":"tool"`+test.arguments+`}`))
			names := namesIn(item)
			equal(t, "names", strings.Join(names, " "), test.names)
			equal(t, "totalCount", member(item, "annotations", "totalCount"), test.total)
			equal(t, "offset", member(item, "annotations", "offset"), test.offset)
			equal(t, "count", member(item, "annotations", "count"), fmt.Sprint(len(names)))
			if more := member(item, "annotations", "nextCursor") != ""; more != (test.next != "") {
				t.Errorf("nextCursor = %q", member(item, "annotations", "nextCursor"))
			}
		})
	}
}

// A list without a limit is no answer that fills a model's context.
func TestAPageWithoutALimitIsBounded(t *testing.T) {
	var large []proxytool.Item
	for i := range 64 {
		large = append(large, items(fmt.Sprintf(`{"name":"t%02d","description":"%02000d"}`, i, i))...)
	}
	large = append(large, items(fmt.Sprintf(`{"name":"huge","description":"%0*d"}`, 2*proxytool.PageBytes, 0), `{"name":"last"}`)...)
	source := &shelf{items: map[proxytool.Type][]proxytool.Item{proxytool.TypeTool: large}}
	var got []string
	for cursor := ""; ; {
		item := only(t, use(t, source, `{"action":"list","type":"tool","cursor":"`+cursor+`"}`))
		names := namesIn(item)
		if text := textOf(item, "resource", "text"); len(text) > proxytool.PageBytes+1000 && len(names) > 1 || len(names) == 0 {
			t.Errorf("a page of %d items has %d bytes", len(names), len(text))
		}
		got = append(got, names...)
		if cursor = textOf(item, "_meta", "nextCursor"); cursor == "" {
			break
		}
	}
	if len(got) != len(large) || got[63] != "t63" || got[65] != "last" {
		t.Errorf("the pages together have %v", got)
	}
	if all := namesIn(only(t, use(t, source, `{"action":"list","type":"tool","limit":1000}`))); len(all) != len(large) {
		t.Errorf("with a limit %d are listed", len(all))
	}
}

func namesIn(item json.RawMessage) []string {
	var names []string
	for raw := range rawjson.Elements([]byte(textOf(item, "resource", "text"))) {
		for _, key := range []string{"uri", "uriTemplate", "name"} {
			if name := textOf(raw, key); name != "" {
				names = append(names, name)
				break
			}
		}
	}
	return names
}

func TestCursorsLeadThroughAList(t *testing.T) {
	source := &shelf{items: map[proxytool.Type][]proxytool.Item{
		proxytool.TypeTool: tools(7),
		// A resource and a template of one path.
		proxytool.TypeResource: items(`{"uri":"r://a"}`, `{"uri":"r://b"}`, `{"uriTemplate":"r://a"}`),
	}}
	for typ, want := range map[string]string{"tool": "t00 t01 t02 t03 t04 t05 t06", "resource": "r://a r://b r://a"} {
		var got []string
		cursor := ""
		for range 10 {
			item := only(t, use(t, source, fmt.Sprintf(`{"action":"list","type":"%s","limit":1,"cursor":"%s"}`, typ, cursor)))
			equal(t, "offset", member(item, "_meta", "offset"), fmt.Sprint(len(got)))
			got = append(got, namesIn(item)...)
			if cursor = textOf(item, "_meta", "nextCursor"); cursor == "" {
				break
			}
		}
		equal(t, typ, strings.Join(got, " "), want)
	}
}

func TestCursorsThatDoNotFit(t *testing.T) {
	source := &shelf{items: map[proxytool.Type][]proxytool.Item{proxytool.TypeTool: tools(4), proxytool.TypePrompt: tools(4)}}
	cursor := textOf(only(t, use(t, source, `{"action":"list","type":"tool","limit":2}`)), "annotations", "nextCursor")

	// It goes on behind the named item, wherever that is now.
	source.items[proxytool.TypeTool] = append(items(`{"name":"new"}`), tools(4)...)
	item := only(t, use(t, source, `{"action":"list","type":"tool","cursor":"`+cursor+`"}`))
	equal(t, "names", strings.Join(namesIn(item), " "), "t02 t03")
	equal(t, "offset", member(item, "annotations", "offset"), "3")

	source.items[proxytool.TypeTool] = tools(1)
	for name, arguments := range map[string]string{
		"the item is gone":  `{"action":"list","type":"tool","cursor":"` + cursor + `"}`,
		"of another type":   `{"action":"list","type":"prompt","cursor":"` + cursor + `"}`,
		"of another filter": `{"action":"list","type":"prompt","filter":{"prefix":"t"},"cursor":"` + cursor + `"}`,
		"forged":            `{"action":"list","type":"tool","cursor":"dDAx"}`,
		"not base64":        `{"action":"list","type":"tool","cursor":"%%"}`,
	} {
		if text := errorText(t, use(t, source, arguments)); !strings.Contains(text, "list from the start") {
			t.Errorf("%s: %q", name, text)
		}
	}
}

func TestBatchAnswersInOrder(t *testing.T) {
	source := &shelf{
		items:   map[proxytool.Type][]proxytool.Item{proxytool.TypeTool: tools(1)},
		answers: map[string]string{"x": `{"content":[{"type":"text","text":"8"}],"structuredContent":{"n":12345678901234567890}}`, "asks": `{"resultType":"input_required"}`},
		errs:    map[string]error{"rpc": &tool.RPCError{Code: tool.CodeInvalidParams, Message: "no such thing", Data: json.RawMessage(`{"near":[1.0]}`)}, "plain": errors.New("closed")},
		before: func(_ context.Context, path string) {
			if path == "panics" {
				panic("oh")
			}
		},
	}
	ops := []string{
		`{"action":"call","type":"tool","path":"x"}`,
		`{"action":"call","type":"tool","path":"rpc"}`,
		`{"action":"list","type":"tool"}`,
		`{"action":"call","type":"tool","path":"plain"}`,
		`{"action":"call","type":"tool"}`,
		`{"action":"call","type":"tool","pth":"x"}`,
		`7`,
		`{"action":"batch","operations":[{"action":"list","type":"tool"}]}`,
		`{"action":"call","type":"tool","path":"asks"}`,
		`{"action":"call","type":"tool","path":"panics"}`,
		`{"action":"info","type":"tool","path":"t00"}`,
	}
	item := only(t, use(t, source, `{"action":"batch","operations":[`+strings.Join(ops, ",")+`]}`))
	equal(t, "uri", textOf(item, "resource", "uri"), "proxy:batch")
	equal(t, "mimeType", textOf(item, "resource", "mimeType"), "application/json")
	const label = `{"proxyAction":"batch","pythonType":"CallToolResult","dataType":"CallToolResult","many":true,"isArray":true,"totalCount":11,"offset":0,"count":11}`
	equal(t, "annotations", member(item, "annotations"), label)
	equal(t, "_meta", member(item, "_meta"), label)

	var results []json.RawMessage
	for result := range rawjson.Elements([]byte(textOf(item, "resource", "text"))) {
		results = append(results, result)
	}
	if len(results) != len(ops) {
		t.Fatalf("%d results, want %d: %s", len(results), len(ops), item)
	}
	for _, alone := range []int{0, 2, 4, 5, 10} {
		equal(t, ops[alone], string(results[alone]), string(use(t, source, ops[alone])))
	}
	for i, says := range map[int]string{
		1: "no such thing", 3: "closed", 4: "path is required", 5: `unknown argument "pth"`, 6: "operations[6] must be a JSON object",
		7: "a batch cannot be an operation of a batch", 8: "asks asks for input; call it alone", 9: "panics: internal error",
	} {
		if text := errorText(t, results[i]); !strings.Contains(text, says) {
			t.Errorf("%s: %q, want %q", ops[i], text, says)
		}
	}
}

// An error of JSON-RPC has more than a text: it is in the result that takes its place.
func TestBatchKeepsErrorsOfJSONRPC(t *testing.T) {
	failed := &tool.RPCError{Code: -31999, Message: "no", Raw: json.RawMessage(`{"code":-31999,"message":"no","data":{"big":12345678901234567890},"more":1}`)}
	source := &shelf{errs: map[string]error{"x": failed}}
	item := only(t, use(t, source, `{"action":"batch","operations":[{"action":"call","type":"tool","path":"x"}]}`))
	equal(t, "text", textOf(item, "resource", "text"), `[{"_meta":{"error":`+string(failed.Raw)+`},"content":[{"type":"text","text":"no"}],"isError":true}]`)
}

var fiftyCalls = `{"action":"batch","operations":[` + strings.Repeat(`{"action":"call","type":"tool","path":"x"},`, 49) + `{"action":"call","type":"tool","path":"x"}]}`

func TestABatchRunsEightCallsAtATime(t *testing.T) {
	var running, most atomic.Int32
	var closed atomic.Bool
	all := make(chan struct{})
	source := &shelf{answers: map[string]string{"x": `{}`}, before: func(context.Context, string) {
		n := running.Add(1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		if n == 8 && !closed.Swap(true) {
			close(all)
		}
		<-all // the first eight are there together
		running.Add(-1)
	}}
	use(t, source, fiftyCalls)
	if most.Load() != 8 || len(source.calls) != 50 {
		t.Errorf("%d of 50 ran, %d at a time, want 8", len(source.calls), most.Load())
	}
}

func TestCallsOfABatch(t *testing.T) {
	source := &shelf{answers: map[string]string{"x": `{}`}}
	call := &tool.Call{
		Name: "proxy", Depth: 3, Principal: "ann", Session: "s",
		Arguments: json.RawMessage(`{"action":"batch","operations":[{"action":"call","type":"tool","path":"x","args":{"a":1.0}}]}`),
		Params:    json.RawMessage(`{"name":"proxy","_meta":{"progressToken":1,"k":9007199254740993},"requestState":"s"}`),
		Client:    &tool.Client{Modern: true, Name: "c"},
	}
	must.Get(proxytool.New("proxy", source, nil).Handler(t.Context(), call))(t)
	inner := source.calls[0].call
	if inner.Depth != 3 {
		t.Errorf("depth %d, want the batch's own", inner.Depth)
	}
	if inner.Client.Modern {
		t.Error("the client cannot answer a part of a batch by calling again, but is told to")
	}
	if inner.Principal != "ann" || inner.Session != "s" {
		t.Error("who asks is lost")
	}
	equal(t, "params", string(inner.Params), `{"_meta":{"k":9007199254740993}}`)
	equal(t, "args", source.calls[0].args, `{"a":1.0}`)
	equal(t, "the batch's own params", string(call.Params), `{"name":"proxy","_meta":{"progressToken":1,"k":9007199254740993},"requestState":"s"}`)

	call.Depth = tool.MaxDepth + 1
	if _, err := proxytool.New("proxy", source, nil).Handler(t.Context(), call); !errors.Is(err, tool.ErrTooDeep) {
		t.Errorf("err = %v, want ErrTooDeep", err)
	}
}

func TestBatchReportsProgress(t *testing.T) {
	var mu sync.Mutex
	var told []string
	call := &tool.Call{
		Arguments: json.RawMessage(`{"action":"batch","operations":[{"action":"list","type":"tool"},{},{"action":"list","type":"prompt"}]}`),
		Params:    json.RawMessage(`{"_meta":{"progressToken":"p"}}`),
		Notify: func(method string, params json.RawMessage) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, method+" "+string(params))
		},
	}
	must.Get(proxytool.New("proxy", &shelf{}, nil).Handler(t.Context(), call))(t)
	equal(t, "progress", strings.Join(told, "\n"), `notifications/progress {"progressToken":"p","progress":1,"total":3}
notifications/progress {"progressToken":"p","progress":2,"total":3}
notifications/progress {"progressToken":"p","progress":3,"total":3}`)
}

func TestBatchEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	source := &shelf{answers: map[string]string{"x": `{}`}, before: func(ctx context.Context, _ string) {
		cancel()
		<-ctx.Done()
	}}
	_, err := proxytool.New("proxy", source, nil).Handler(ctx, &tool.Call{Arguments: json.RawMessage(fiftyCalls)})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want context.Canceled", err)
	}
	if len(source.calls) > 8 {
		t.Errorf("%d operations ran, want no more than were running", len(source.calls))
	}
}

func TestUsesAreLogged(t *testing.T) {
	for _, test := range []struct{ name, arguments, want string }{
		{"call", `{"action":"call","type":"tool","path":"x","args":{"k":"SECRET"}}`, "INFO proxy call tool x ann s cli ok"},
		{"call that fails", `{"action":"call","type":"tool","path":"failed"}`, "INFO proxy call tool failed ann s cli failed"},
		{"call with an error", `{"action":"call","type":"tool","path":"err"}`, "INFO proxy call tool err ann s cli error"},
		{"call that asks", `{"action":"call","type":"tool","path":"asks"}`, "INFO proxy call tool asks ann s cli incomplete"},
		{"list", `{"action":"list","type":"tool"}`, "DEBUG proxy list tool  ann s cli ok"},
		{"info", `{"action":"info","type":"prompt","path":"none"}`, "DEBUG proxy info prompt none ann s cli error"},
		{"refused", `{"action":"list","type":"tool","path":"x","args":{"k":"SECRET"}}`, "INFO proxy list tool x ann s cli refused"},
		{"secrets of a URI", `{"action":"call","type":"resource","path":"db://u:SECRET@h/t?token=SECRET"}`, "INFO proxy call resource db://h/t ann s cli ok"},
		{"batch", `{"action":"batch","operations":[{"action":"call","type":"tool","path":"x"}]}`,
			"INFO proxy call tool x ann s cli ok\nINFO proxy batch   ann s cli ok"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			log := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
			source := &shelf{
				answers: map[string]string{"x": `{"content":[{"type":"text","text":"SECRET"}]}`, "failed": `{"isError":true}`,
					"asks": `{"resultType":"input_required"}`, "db://u:SECRET@h/t?token=SECRET": `{"contents":[]}`},
				errs: map[string]error{"err": errors.New("SECRET")},
			}
			_, _ = proxytool.New("proxy", source, log).Handler(t.Context(), &tool.Call{Arguments: json.RawMessage(test.arguments),
				Principal: "ann", Session: "s", Client: &tool.Client{Name: "cli"}})
			var lines []string
			for line := range strings.Lines(out.String()) {
				var words []string
				for _, key := range []string{"level", "msg", "action", "type", "path", "principal", "session", "client", "outcome"} {
					words = append(words, textOf([]byte(line), key))
				}
				if member([]byte(line), "duration") == "" {
					t.Errorf("no duration: %s", line)
				}
				lines = append(lines, strings.Join(words, " "))
			}
			equal(t, "log", strings.Join(lines, "\n"), test.want)
			if strings.Contains(out.String(), "SECRET") {
				t.Errorf("arguments or results are logged: %s", out.String())
			}
		})
	}
}

func TestLongPathsAreClippedInTheLog(t *testing.T) {
	var out bytes.Buffer
	_, _ = proxytool.New("proxy", &shelf{}, slog.New(slog.NewJSONHandler(&out, nil))).Handler(t.Context(),
		&tool.Call{Arguments: json.RawMessage(`{"action":"call","type":"tool","path":"` + strings.Repeat("é", 5000) + `"}`)})
	if path := textOf(out.Bytes(), "path"); len(path) > 140 || !strings.HasSuffix(path, "é...") {
		t.Errorf("path = %q", path)
	}
}
