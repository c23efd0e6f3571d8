package retrieve

import (
	"slices"
	"strings"
	"testing"
)

// A result of a script or a composed call is a list of blocks only if each is one by the protocol.
func TestWhatIsABlock(t *testing.T) {
	for block, want := range map[string]bool{
		`{"type":"text","text":"a"}`: true, `{"type":"text"}`: false, `{"type":"text","text":1}`: false,
		`{"type":"image","data":"","mimeType":"a/b"}`: true, `{"type":"image","data":""}`: false, `{"type":"audio","mimeType":"a/b"}`: false, `{"type":"audio","data":"","mimeType":"a/b"}`: true,
		`{"type":"resource_link","name":"a","uri":"a:b"}`: true, `{"type":"resource_link","name":"a"}`: false, `{"type":"resource_link","uri":"a:b"}`: false,
		`{"type":"resource","resource":{"uri":"a:b","text":""}}`: true, `{"type":"resource","resource":{"uri":"a:b","blob":""}}`: true, `{"type":"resource","resource":{"uri":"a:b"}}`: false,
		`{"type":"resource","resource":{"text":""}}`: false, `{"type":"resource","uri":"a:b","text":""}`: false, `{"type":"video","data":""}`: false, `7`: false,
	} {
		if got := isBlock([]byte(block)); got != want {
			t.Errorf("%s: %v", block, got)
		}
	}
	for value, want := range map[string]string{`{ "a" : [1, 2] }`: `{"a":[1,2]}`, `{"a"`: ``, ``: ``} {
		if got := compact([]byte(value)); string(got) != want || (got == nil) != (want == "") {
			t.Errorf("compact(%s) = %q", value, got)
		}
	}
}

// A malformed result that passes through call_tool gets the protocol's shape, and nothing of it is lost.
func TestResultsGetTheProtocolsShape(t *testing.T) {
	for result, want := range map[string]string{
		`{"content":[{"type":"text","text":"a"}],"x":1}`:                 ``,
		`{"content":[{"type":"hologram","x":1}],"structuredContent":{}}`: ``,
		`{"content":[],"isError":false,"_meta":{}}`:                      ``,
		`{"structuredContent":{"a":1}}`:                                  ``,
		`{"resultType":"input_required","inputRequests":{}}`:             ``,
		`{"total":36}`:                           `{"content":[{"type":"text","text":"{\"total\":36}"}]}`,
		`{"content":{"total":36}}`:               `{"content":[{"type":"text","text":"{\"total\":36}"}]}`,
		`{"content":"text"}`:                     `{"content":[{"type":"text","text":"text"}]}`,
		`{"content":{"type":"text","text":"a"}}`: `{"content":[{"type":"text","text":"a"}]}`,
		`{"content":null}`:                       `{"content":[]}`,
		`{}`:                                     `{"content":[]}`,
		`"text"`:                                 `{"content":[{"type":"text","text":"text"}]}`,
		`[1,2]`:                                  `{"content":[{"type":"text","text":"[1,2]"}]}`,
		`{"content":["a",7,{"text":"b"}],"isError":"true"}`:                  `{"content":[{"type":"text","text":"\"a\""},{"type":"text","text":"7"},{"type":"text","text":"{\"text\":\"b\"}"}],"isError":true}`,
		`{"content":[{"type":"text","text":7}]}`:                             `{"content":[{"type":"text","text":"{\"type\":\"text\",\"text\":7}"}]}`,
		`{"content":[],"structuredContent":[1,2]}`:                           `{"content":[{"type":"text","text":"[1,2]"}]}`,
		`{"content":[{"type":"text","text":"a"}],"structuredContent":null}`:  `{"content":[{"type":"text","text":"a"}]}`,
		`{"content":[{"type":"text","text":"a"}],"_meta":[],"isError":null}`: `{"content":[{"type":"text","text":"a"}]}`,
	} {
		if want == "" {
			want = result
		}
		if got := string(mended([]byte(result), false)); got != want {
			t.Errorf("%s becomes %s, want %s", result, got, want)
		}
	}
	const list = `{"content":[],"structuredContent":[1,2]}`
	if got := string(mended([]byte(list), true)); got != list {
		t.Errorf("a 2026-07-28 client gets %s", got)
	}
}

func TestTextsAreCutBetweenWords(t *testing.T) {
	for text, want := range map[string]string{
		"one two": "one two", "one two three": "one two...", "one  two three": "one...", "abcdefghij": "abcdefghij", "abcdefghijk": "abcdefg...", "abcdefg hijk": "abcdefg...", "éééééé": "ééé...", " abcdefghijk": " abcdef...",
	} {
		if got := clipWords(text, 10); got != want || len(got) > 10 {
			t.Errorf("clipWords(%q) = %q, want %q", text, got, want)
		}
	}
	servers := slices.Repeat([]Server{{Name: strings.Repeat("n", maxNames/2)}}, 4)
	if got := serverNames(servers); !strings.HasSuffix(got, "n and 2 more") && !strings.HasSuffix(got, "n and 3 more") || strings.HasPrefix(got, ",") {
		t.Errorf("%q", got)
	}
}
