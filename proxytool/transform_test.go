package proxytool_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
	"toolfinch/proxytool"
)

func TestRoundTrips(t *testing.T) {
	source := &shelf{answers: map[string]string{
		"p":   `{"description":"d","messages":[{"role":"user","content":{"type":"text","text":"x"}}],"n":12345678901234567890}`,
		"r:/": `{"contents":[{"uri":"r:/","mimeType":"text/x-json","text":"{\"z\":9007199254740993,\"a\":1.0}"},{"uri":"r:/2","blob":"AA=="},{"uri":"r:/3","mimeType":"text/plain","text":"hi"}],"ttlMs":7,"_meta":{"k":1.0}}`,
	}}
	prompt := must.Get(proxytool.ToolResultAsPrompt(use(t, source, `{"action":"call","type":"prompt","path":"p"}`)))(t)
	equal(t, "prompt", string(prompt), source.answers["p"])

	resource := must.Get(proxytool.ToolResultAsResource(use(t, source, `{"action":"call","type":"resource","path":"r:/"}`)))(t)
	equal(t, "resource", string(resource), source.answers["r:/"])
}

// What the proxy tool does to the content of tools and resources can be undone,
// whatever was there, and behind several of them.
func TestNothingIsLostOnTheWay(t *testing.T) {
	for _, item := range []string{
		`{"type":"text","text":"x"}`,
		`{"type":"text","annotations":{"audience":["user"]},"text":"x","_meta":{"k":9007199254740993}}`,
		`{"annotations":{"a":1,"proxyPath":"mine","many":true,"count":1.0},"_meta":{"proxied":{"annotations":{}},"nextCursor":"c"}}`,
		`{"annotations":{"proxyPath":"mine"},"_meta":[1]}`,
		`{"annotations":7,"_meta":{"proxyType":"prompt"}}`,
		`{"resource":{"text":"[]"},"annotations":{"proxyAction":"list","proxyType":"tool","many":true},"_meta":{"proxyAction":"list"}}`,
		`"text"`,
	} {
		answer := `{"content":[` + item + `],"structuredContent":{"n":1.0}}`
		source := &shelf{answers: map[string]string{}}
		for range 3 { // each over what the one before answers
			source.answers["x"] = answer
			answer = string(use(t, source, `{"action":"call","type":"tool","path":"x"}`))
		}
		for range 3 {
			answer = string(proxytool.ToolResultUnlabelled(json.RawMessage(answer)))
		}
		same(t, "content", answer, `{"content":[`+item+`],"structuredContent":{"n":1.0}}`)
	}
	for _, content := range []string{
		`{"uri":"r:/","mimeType":"text/plain","text":"[1.0]"}`, `{"uri":"r:/","text":"[1.0]"}`, `{"uri":"r:/","mimeType":null,"text":"[]"}`,
		`{"uri":"r:/","mimeType":"application/json","text":"{}"}`, `{"uri":"r:/","mimeType":"application/json","contentType":"mine","text":"{ }"}`,
		`{"uri":"r:/","mimeType":"application/json","contentType":"mine","blob":"AA=="}`, `{"uri":"r:/","mimeType":"text/plain","text":"[ \"\ud800\" ]"}`, `{"uri":"r:/"}`,
	} {
		answer := use(t, &shelf{answers: map[string]string{"r:/": `{"contents":[` + content + `]}`}}, `{"action":"call","type":"resource","path":"r:/"}`)
		got, err := proxytool.ToolResultAsResource(answer)
		if err != nil {
			t.Errorf("%s: %v", content, err)
		}
		equal(t, "contents", string(got), `{"contents":[`+content+`]}`)
	}
}

// A server that moves nothing may leave keys of the tool's own beside the label.
func TestOnlyTheLabelOfACallIsTakenOff(t *testing.T) {
	const label = `"proxyAction":"call","proxyType":"tool","proxyPath":"x"`
	for labelled, want := range map[string]string{
		`{"annotations":{` + label + `,"count":2}}`:                  `{"annotations":{"count":2}}`,
		`{"annotations":{"count":2},"_meta":{"many":1}}`:             `{"annotations":{"count":2},"_meta":{"many":1}}`,
		`{"type":"text","annotations":{` + label + `},"_meta":null}`: `{"type":"text","_meta":null}`,
	} {
		equal(t, labelled, string(proxytool.ToolResultUnlabelled(json.RawMessage(`{"content":[`+labelled+`]}`))), `{"content":[`+want+`]}`)
	}
	equal(t, "no content", string(proxytool.ToolResultUnlabelled(json.RawMessage(`{"content":7}`))), `{"content":7}`)
}

// same is equal for JSON whose members may stand in any order.
func same(t *testing.T, what, got, want string) {
	t.Helper()
	sorted := func(raw string) string {
		var value any
		decoder := json.NewDecoder(strings.NewReader(raw))
		decoder.UseNumber()
		if err := decoder.Decode(&value); err != nil {
			t.Fatalf("%s: %v: %s", what, err, raw)
		}
		out, _ := json.Marshal(value)
		return string(out)
	}
	equal(t, what, sorted(got), sorted(want))
}

func TestToolResultAsResourceDropsWhatOnlyToolsHave(t *testing.T) {
	item := string(proxytool.ResourceAsToolContent(json.RawMessage(`{"uri":"r:/","text":"x"}`), proxytool.Label{Action: proxytool.ActionCall, Type: proxytool.TypeResource, Path: "r:/"}))
	got := must.Get(proxytool.ToolResultAsResource(json.RawMessage(`{"isError":false,"content":[` + item + `],"structuredContent":{},"_meta":{}}`)))(t)
	equal(t, "result", string(got), `{"contents":[{"uri":"r:/","text":"x"}],"_meta":{}}`)
}

func TestLabelOfReadsWhatAnnotateWrote(t *testing.T) {
	many := true
	want := proxytool.Label{Action: proxytool.ActionList, Type: proxytool.TypeTool, Path: `a"b`, Data: proxytool.DataTool, Many: &many,
		Page: &proxytool.Page{Total: 9, Offset: 2, Count: 3, Next: "c"}}
	item := proxytool.Annotate(json.RawMessage(`{"type":"text"}`), want)
	for name, item := range map[string]json.RawMessage{
		"both":             item,
		"annotations only": json.RawMessage(`{"annotations":` + member(item, "annotations") + `}`),
		"_meta only":       json.RawMessage(`{"_meta":` + member(item, "_meta") + `,"annotations":{"priority":1}}`),
	} {
		got, ok := proxytool.LabelOf(item)
		if !ok || !strings.Contains(fmt.Sprintf("%+v", *got.Page), "Total:9 Offset:2 Count:3 Next:c") || !*got.Many {
			t.Fatalf("%s: LabelOf() = %+v, %v", name, got, ok)
		}
		got.Page, got.Many = want.Page, want.Many
		if got != want {
			t.Errorf("%s: LabelOf() = %+v, want %+v", name, got, want)
		}
	}
	if _, ok := proxytool.LabelOf(json.RawMessage(`{"annotations":{"priority":1}}`)); ok {
		t.Error("a label where there is none")
	}
}

// answer is the answer of some proxy tool, annotated as it likes.
func answer(annotations, text string) json.RawMessage {
	quoted, _ := json.Marshal(text)
	return json.RawMessage(`{"content":[{"type":"resource","resource":{"uri":"proxy:x","mimeType":"application/json","text":` +
		string(quoted) + `},` + annotations + `}]}`)
}

func TestDecodeByAnnotation(t *testing.T) {
	const tools, resources = `[{"name":"a","inputSchema":{"type":"object","n":12345678901234567890}},{"name":"b","inputSchema":{}}]`,
		`[{"uriTemplate":"r://{x}","name":"t"},{"uri":"r://1","name":"one"}]`
	for _, test := range []struct{ name, annotations, text, data string }{
		{"pythonType", `"annotations":{"proxyAction":"list","proxyType":"tool","pythonType":"Tool","many":true}`, tools, proxytool.DataTool},
		{"dataType", `"annotations":{"proxyAction":"list","proxyType":"tool","dataType":"Tool","many":true}`, tools, proxytool.DataTool},
		{"_meta alone", `"_meta":{"proxyAction":"list","proxyType":"tool","dataType":"Tool","many":true}`, tools, proxytool.DataTool},
		{"no type but proxyType", `"annotations":{"proxyAction":"list","proxyType":"tool","many":true}`, tools, proxytool.DataTool},
		{"a qualified name", `"annotations":{"proxyAction":"list","proxyType":"tool","pythonType":"mcp.types.Tool","many":true}`, tools, proxytool.DataTool},
		{"a union with spaces", `"annotations":{"proxyAction":"list","proxyType":"resource","pythonType":"Resource | ResourceTemplate","many":true}`, resources, proxytool.DataResource},
		{"a union without spaces", `"annotations":{"proxyAction":"list","proxyType":"resource","pythonType":"Resource|ResourceTemplate","many":true}`, resources, proxytool.DataResource},
		{"a qualified union", `"annotations":{"proxyAction":"list","proxyType":"resource","pythonType":"mcp.types.Resource | mcp.types.ResourceTemplate","many":true}`, resources, proxytool.DataResource},
		{"one of a union", `"annotations":{"proxyAction":"info","proxyType":"resource","pythonType":"ResourceTemplate"}`, `{"uriTemplate":"r://{x}","name":"t"}`, proxytool.DataResource},
		{"a prompt", `"annotations":{"proxyAction":"info","proxyType":"prompt","pythonType":"Prompt","many":false}`, `{"name":"p"}`, proxytool.DataPrompt},
		{"a prompt result", `"annotations":{"proxyAction":"call","proxyType":"prompt","pythonType":"GetPromptResult"}`, `{"messages":[]}`, proxytool.DataPromptResult},
		{"a batch", `"annotations":{"proxyAction":"batch","dataType":"CallToolResult","many":true}`, `[{"content":[]}]`, proxytool.DataToolResult},
		{"an empty list", `"annotations":{"proxyAction":"list","proxyType":"prompt","dataType":"Prompt","many":true}`, ` [ ] `, proxytool.DataPrompt},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := must.Get(proxytool.Decode(answer(test.annotations, test.text)))(t)
			equal(t, "data", d.Label.Data, test.data)
			want := []string{test.text}
			if d.Label.Many != nil && *d.Label.Many {
				want = nil
				for element := range rawjson.Elements([]byte(test.text)) {
					want = append(want, string(element))
				}
			}
			if fmt.Sprintf("%s", d.Items) != fmt.Sprint(want) {
				t.Errorf("items %s, want %s", d.Items, want)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	const list = `"annotations":{"proxyAction":"list","proxyType":"tool","many":true`
	for name, result := range map[string]json.RawMessage{
		"no object":               json.RawMessage(`[]`),
		"an error":                json.RawMessage(`{"content":[],"isError":true}`),
		"one that asks for input": json.RawMessage(`{"resultType":"input_required"}`),
		"no content":              json.RawMessage(`{"content":[]}`),
		"two items":               json.RawMessage(`{"content":[{},{}]}`),
		"no annotations":          answer(`"annotations":{}`, `[]`),
		"another type":            answer(list+`,"dataType":"Prompt"}`, `[]`),
		"an unknown type":         answer(list+`,"pythonType":"Frob"}`, `[]`),
		"half a union":            answer(list+`,"pythonType":"Tool | Frob"}`, `[]`),
		"an unknown proxyType":    answer(`"annotations":{"proxyAction":"list","proxyType":"frob"}`, `[]`),
		"the call of a tool":      answer(`"annotations":{"proxyAction":"call","proxyType":"tool"}`, `{}`),
		"many that are one":       answer(list+`}`, `{}`),
		"items that are none":     answer(list+`}`, `[7]`),
		"text that is no JSON":    answer(list+`}`, `[`),
		"another mimeType":        json.RawMessage(strings.Replace(string(answer(list+`}`, `[]`)), "application/json", "text/plain", 1)),
	} {
		if d, err := proxytool.Decode(result); !errors.Is(err, proxytool.ErrNoAnswer) {
			t.Errorf("%s: Decode() = %+v, %v; want ErrNoAnswer", name, d, err)
		}
	}
	for name, result := range map[string]json.RawMessage{
		"a list":        answer(list+`}`, `[]`),
		"plain content": json.RawMessage(`{"content":[{"type":"text","text":"x"}]}`),
	} {
		if _, err := proxytool.ToolResultAsPrompt(result); !errors.Is(err, proxytool.ErrNoAnswer) {
			t.Errorf("%s as a prompt: %v, want ErrNoAnswer", name, err)
		}
		if _, err := proxytool.ToolResultAsResource(result); !errors.Is(err, proxytool.ErrNoAnswer) {
			t.Errorf("%s as a resource: %v, want ErrNoAnswer", name, err)
		}
	}
}

func TestPromptAsToolContent(t *testing.T) {
	item := proxytool.PromptAsToolContent(json.RawMessage(`{"messages":[]}`),
		proxytool.Label{Action: proxytool.ActionCall, Type: proxytool.TypePrompt, Path: "p", Data: proxytool.DataPromptResult})
	got, err := proxytool.ToolResultAsPrompt(json.RawMessage(`{"content":[` + string(item) + `]}`))
	if err != nil || string(got) != `{"messages":[]}` {
		t.Errorf("%s, %v", got, err)
	}
}
