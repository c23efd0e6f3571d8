package page

import (
	"strings"
	"testing"

	"toolfinch/tool"
)

// pixel is the smallest GIF.
const pixel = "R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="

func TestBlocksOfResults(t *testing.T) {
	for _, test := range []struct {
		name, result string
		kind         tool.Kind
		holds        func(b block) bool
	}{
		{name: "text", result: `{"content":[{"type":"text","text":"<b>"}]}`, holds: func(b block) bool { return b.Text == "<b>" }},
		{name: "text that is JSON", result: `{"content":[{"type":"text","text":"{\"a\":1}"}]}`, holds: func(b block) bool { return strings.Contains(b.Text, "\n") }},
		{name: "text that is the structured content", result: `{"content":[{"type":"text","text":"{\"b\":2,\"a\":1}"}],"structuredContent":{"a":1,"b":2}}`, holds: func(b block) bool { return b.Kind == "text" }},
		{name: "text that is all that the structured content has", result: `{"content":[{"type":"text","text":"[1]"}],"structuredContent":{"result":[1]}}`, holds: func(b block) bool { return b.Kind == "text" }},
		{name: "structured content alone", result: `{"content":[],"structuredContent":{"a":1}}`, holds: func(b block) bool { return b.Text == "{\n  \"a\": 1\n}" }},
		{name: "an image", result: `{"content":[{"type":"image","mimeType":"image/gif","data":"` + pixel + `"}]}`, holds: func(b block) bool {
			return strings.HasPrefix(string(b.Image), "data:image/gif;base64,") && b.Size == 37
		}},
		{name: "an image is what it is, not what its server says", result: `{"content":[{"type":"image","mimeType":"image/png","data":"` + pixel + `"}]}`, holds: func(b block) bool { return strings.HasPrefix(string(b.Image), "data:image/gif;base64,") }},
		{name: "SVG", result: `{"content":[{"type":"image","mimeType":"image/svg+xml","data":"PHN2Zy8+"}]}`, holds: func(b block) bool { return b.Image == "" && b.Why != "" && b.Size == 6 }},
		{name: "no base64", result: `{"content":[{"type":"image","mimeType":"image/png","data":"?"}]}`, holds: func(b block) bool { return b.Image == "" && b.Why == "it is no base64" }},
		{name: "sound", result: `{"content":[{"type":"audio","mimeType":"audio/wav","data":"AAAA"}]}`, holds: func(b block) bool { return b.Size == 3 && b.Image == "" }},
		{name: "a link", result: `{"content":[{"type":"resource_link","uri":"https://example.org/a","name":"a"}]}`, holds: func(b block) bool { return b.Link == b.URI && b.Name == "a" }},
		{name: "no link", result: `{"content":[{"type":"resource_link","uri":"javascript:alert(1)"}]}`, holds: func(b block) bool { return b.Link == "" && b.URI != "" }},
		{name: "unknown", result: `{"content":[{"type":"smell","of":"roses"}]}`, holds: func(b block) bool { return strings.Contains(b.Text, "roses") }},
		{name: "no object", result: `{"content":[5]}`, holds: func(b block) bool { return b.Text == "5" }},
		{name: "a message", kind: tool.KindPrompt, result: `{"messages":[{"role":"user","content":{"type":"text","text":"hi"}}]}`, holds: func(b block) bool { return b.Role == "user" && b.Text == "hi" }},
		{name: "a resource", kind: tool.KindResource, result: `{"contents":[{"uri":"a:b","mimeType":"image/gif","blob":"` + pixel + `"}]}`, holds: func(b block) bool { return b.Image != "" && b.URI == "a:b" }},
	} {
		t.Run(test.name, func(t *testing.T) {
			all, more := blocksOf(test.kind, tool.Result(test.result))
			if len(all) != 1 || more != 0 || !test.holds(all[0]) {
				t.Errorf("%+v, and %d more", all, more)
			}
		})
	}
}
