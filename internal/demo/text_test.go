package demo

import (
	"fmt"
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	run(t, connect(t, "text", t.TempDir()), []call{
		{tool: "count", arguments: `{"text":"Zoë came. She saw!\nAnd left"}`, want: `{"words":6,"lines":2,"characters":27,"bytes":28}`},
		{tool: "count", arguments: `{"text":""}`, want: `{"words":0,"lines":0,"characters":0,"bytes":0}`},

		{tool: "upper_case", arguments: `{"text":"Zoë 1"}`, want: "ZOË 1"},
		{tool: "lower_case", arguments: `{"text":"ZOË 1"}`, want: "zoë 1"},

		{tool: "base64_encode", arguments: `{"text":"a+b/ü?"}`, want: "YStiL8O8Pw=="},
		{tool: "base64_decode", arguments: `{"text":"YStiL8O8\nPw=="}`, want: "a+b/ü?"},
		{tool: "base64_decode", arguments: `{"text":"!"}`, fails: "illegal base64"},
		{tool: "base64_decode", arguments: `{"text":"/w=="}`, fails: "1 bytes that are not text"},
		{tool: "url_encode", arguments: `{"text":"a b&c/d"}`, want: "a%20b&c%2Fd"},
		{tool: "url_decode", arguments: `{"text":"a+b%26c"}`, want: "a+b&c"},
		{tool: "url_decode", arguments: `{"text":"%zz"}`, fails: "invalid URL escape"},
		{tool: "hash", arguments: `{"text":"abc"}`, want: `ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad`},

		{tool: "diff", arguments: `{"a":"a\n","b":"a\n"}`, want: "The texts are equal."},
		{tool: "diff", arguments: `{"a":"a\nb\nc\n","b":"a\nx\nc\n"}`, has: []string{"@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n"}},

		{tool: "format_json", arguments: `{"text":"{\"b\":[1,2.50],\"a\":12345678901234567890}"}`, want: "{\n  \"b\": [\n    1,\n    2.50\n  ],\n  \"a\": 12345678901234567890\n}"},
		{tool: "format_json", arguments: `{"text":"{\n  \"a\": }"}`, fails: "line 2, column 8"},
		{tool: "format_json", arguments: `{"text":"[1,]"}`, fails: "no comments"},
		{tool: "format_json", arguments: `{"text":""}`, fails: "line 1"},
		{tool: "query_json", arguments: `{"text":"{\"a/b\":[{\"~\":7}]}","pointer":"/a~1b/0/~0"}`, want: "7"},
		{tool: "query_json", arguments: `{"text":"[1]","pointer":""}`, want: "[\n  1\n]"},
		{tool: "query_json", arguments: `{"text":"{\"a\":[1]}","pointer":"/a/1"}`, fails: `nothing at "/a/1"`},
		{tool: "query_json", arguments: `{"text":"1","pointer":"a"}`, fails: "nothing"},
	})
}

func TestTextIsBounded(t *testing.T) {
	long := strings.Repeat("x", maxText)
	run(t, connect(t, "text", t.TempDir()), []call{
		{tool: "count", arguments: fmt.Sprintf(`{"text":"%sx"}`, long), fails: "limit"},
		{tool: "hash", arguments: fmt.Sprintf(`{"text":"%sx"}`, long), fails: "limit"},
		{tool: "format_json", arguments: fmt.Sprintf(`{"text":"%s%s"}`, strings.Repeat("[", 5000), strings.Repeat("]", 5000)), fails: "nested 5000 levels"},
		{tool: "format_json", arguments: fmt.Sprintf(`{"text":"[\"%s\\\"\"]"}`, strings.Repeat("[", 5000)), has: []string{"[["}},
	})
}
