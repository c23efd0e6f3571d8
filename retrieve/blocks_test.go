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
