package demo

import (
	"fmt"
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	run(t, connect(t, "text", t.TempDir()), []call{
		{tool: "count", arguments: `{"text":"Zoë came. She saw!\nAnd left"}`, want: `{"words":6,"lines":2,"characters":27,"bytes":28,"sentences":2}`},
		{tool: "count", arguments: `{"text":""}`, want: `{"words":0,"lines":0,"characters":0,"bytes":0,"sentences":0}`},

		{tool: "change_case", arguments: `{"text":"Zoë 1","to":"upper"}`, want: "ZOË 1"},
		{tool: "change_case", arguments: `{"text":"the QUICK fox's den","to":"title"}`, want: "The Quick Fox's Den"},
		{tool: "change_case", arguments: `{"text":"HELLO THERE. HOW ARE YOU? 3 DAYS","to":"sentence"}`, want: "Hello there. How are you? 3 days"},
		{tool: "change_case", arguments: `{"text":"parse HTTPRequest-body_2","to":"camel"}`, want: "parseHttpRequestBody2"},
		{tool: "change_case", arguments: `{"text":"parseHTTPRequest","to":"snake"}`, want: "parse_http_request"},
		{tool: "change_case", arguments: `{"text":"some words","to":"pascal"}`, want: "SomeWords"},
		{tool: "change_case", arguments: `{"text":"Some Words","to":"kebab"}`, want: "some-words"},
		{tool: "change_case", arguments: `{"text":"someWords","to":"constant"}`, want: "SOME_WORDS"},
		{tool: "change_case", arguments: `{"text":"","to":"camel"}`, want: ""},

		{tool: "replace", arguments: `{"text":"2026-03-02","pattern":"(\\d+)-(\\d+)-(?P<day>\\d+)","replacement":"${day}.$2.$1 $$"}`, want: "02.03.2026 $"},
		{tool: "replace", arguments: `{"text":"aAb","pattern":"a","replacement":"x","ignore_case":true}`, want: "xxb"},
		{tool: "replace", arguments: `{"text":"ab","pattern":"","replacement":"-"}`, want: "-a-b-"},
		{tool: "replace", arguments: `{"text":"a","pattern":"(?=a)","replacement":""}`, fails: "pattern"},
		{tool: "find_matches", arguments: `{"text":"k1=v1\nk2=\nk3=v3","pattern":"(\\w+)=(\\w+)?"}`,
			want: `{"matches":[{"text":"k1=v1","groups":["k1","v1"],"line":1},{"text":"k2=","groups":["k2",""],"line":2},` +
				`{"text":"k3=v3","groups":["k3","v3"],"line":3}],"total":3}`},
		{tool: "find_matches", arguments: `{"text":"a","pattern":"b"}`, want: `{"matches":[],"total":0}`},

		{tool: "encode", arguments: `{"text":"a+b/ü?","format":"base64"}`, want: "YStiL8O8Pw=="},
		{tool: "encode", arguments: `{"text":"ü?>","format":"base64url"}`, want: "w7w_Pg"},
		{tool: "encode", arguments: `{"text":"ü","format":"hex"}`, want: "c3bc"},
		{tool: "encode", arguments: `{"text":"a b&c","format":"url"}`, want: "a%20b%26c"},
		{tool: "decode", arguments: `{"text":"YStiL8O8\nPw==","format":"base64"}`, want: "a+b/ü?"},
		{tool: "decode", arguments: `{"text":"w7w_Pg","format":"base64url"}`, want: "ü?>"},
		{tool: "decode", arguments: `{"text":"C3 BC","format":"hex"}`, want: "ü"},
		{tool: "decode", arguments: `{"text":"a+b%26c","format":"url"}`, want: "a b&c"},
		{tool: "decode", arguments: `{"text":"xyz","format":"hex"}`, fails: "this is not hex"},
		{tool: "decode", arguments: `{"text":"%zz","format":"url"}`, fails: "this is not url"},
		{tool: "decode", arguments: `{"text":"ff","format":"hex"}`, fails: "1 bytes that are not text"},

		{tool: "hash", arguments: `{"text":"abc","algorithm":"sha256"}`, want: `{"hex":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}`},
		{tool: "hash", arguments: `{"text":"abc","algorithm":"sha512"}`, has: []string{`"ddaf35a193617abacc417349ae204131`}},
		{tool: "hash", arguments: `{"text":"abc","algorithm":"sha1"}`, want: `{"hex":"a9993e364706816aba3e25717850c26c9cd0d89d"}`},
		{tool: "hash", arguments: `{"text":"abc","algorithm":"md5"}`, want: `{"hex":"900150983cd24fb0d6963f7d28e17f72"}`},
		{tool: "hash", arguments: `{"text":"123456789","algorithm":"crc32"}`, want: `{"hex":"cbf43926"}`},

		{tool: "slugify", arguments: `{"text":"  Zoë’s Straße № 5: Łódź & co.! "}`, want: "zoes-strasse-no-5-lodz-co"},
		{tool: "slugify", arguments: `{"text":"!?"}`, fails: "no letter or digit"},

		{tool: "format_json", arguments: `{"json":"{\"b\":[1,2.50],\"a\":12345678901234567890}"}`, want: "{\n  \"b\": [\n    1,\n    2.50\n  ],\n  \"a\": 12345678901234567890\n}"},
		{tool: "format_json", arguments: `{"json":" { \"b\" : 1 } ","style":"compact"}`, want: `{"b":1}`},
		{tool: "format_json", arguments: `{"json":"{\n  \"a\": }"}`, fails: "line 2, byte 8"},
		{tool: "format_json", arguments: `{"json":""}`, fails: "line 1"},

		{tool: "query_json", arguments: `{"json":"{\"a/b\":[{\"~\":7}]}","pointer":"/a~1b/0/~0"}`, want: "7"},
		{tool: "query_json", arguments: `{"json":"[1]","pointer":""}`, want: "[\n  1\n]"},
		{tool: "query_json", arguments: `{"json":"{\"\":1}","pointer":"/"}`, want: "1"},
		{tool: "query_json", arguments: `{"json":"{\"a\":[1]}","pointer":"/a/1"}`, fails: `at "/a": there is no element "1" in an array of 1`},
		{tool: "query_json", arguments: `{"json":"[1]","pointer":"/00"}`, fails: "no element"},
		{tool: "query_json", arguments: `{"json":"{\"a\":1}","pointer":"/b"}`, fails: `there is no key "b"`},
		{tool: "query_json", arguments: `{"json":"{\"a\":1}","pointer":"/a/b"}`, fails: "nothing below"},
		{tool: "query_json", arguments: `{"json":"1","pointer":"a"}`, fails: "begin with a slash"},
	})
}

func TestTextIsBounded(t *testing.T) {
	long := strings.Repeat("x", maxText)
	run(t, connect(t, "text", t.TempDir()), []call{
		{tool: "count", arguments: fmt.Sprintf(`{"text":"%sx"}`, long), fails: "limit"},
		{tool: "replace", arguments: fmt.Sprintf(`{"text":%q,"pattern":"x","replacement":%q}`, long[:5000], long[:9999]), fails: "larger than"},
		{tool: "find_matches", arguments: fmt.Sprintf(`{"text":%q,"pattern":"x"}`, long[:5000]), has: []string{`"total":5000`}},
		{tool: "format_json", arguments: fmt.Sprintf(`{"json":"%s%s"}`, strings.Repeat("[", 5000), strings.Repeat("]", 5000)), fails: "nested 5000 levels"},
		{tool: "diff", arguments: fmt.Sprintf(`{"a":%q,"b":%q}`, strings.Repeat("a\n", 3000), strings.Repeat("b\n", 3000)), fails: "3000 and 3000 lines"},
		{tool: "diff", arguments: fmt.Sprintf(`{"a":%q,"b":%q}`, strings.Repeat("a\n", 9000)+"c\n", strings.Repeat("a\n", 9001)+"c\n"), has: []string{`"added":1`}},
	})
}

func TestDiff(t *testing.T) {
	for _, test := range []struct{ a, b, want string }{
		{"", "", ""},
		{"a\nb\n", "a\nb\n", ""},
		{"", "a\n", "@@ -0,0 +1 @@\n+a\n"},
		{"a\n", "", "@@ -1 +0,0 @@\n-a\n"},
		{"a\nb\nc\n", "a\nx\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n"},
		{"a\n", "a", "@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of text\n"},
		{"1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\n5\n6\n7\n8\nx\n", "@@ -6,4 +6,4 @@\n 6\n 7\n 8\n-9\n+x\n"},
		{"x\n2\n3\n4\n5\n6\n7\n8\nx\n", "1\n2\n3\n4\n5\n6\n7\n8\n9\n", // seven alike: two hunks
			"@@ -1,4 +1,4 @@\n-x\n+1\n 2\n 3\n 4\n@@ -6,4 +6,4 @@\n 6\n 7\n 8\n-x\n+9\n"},
		{"x\n2\n3\n4\n5\n6\n7\nx\n", "1\n2\n3\n4\n5\n6\n7\n9\n", // six: one
			"@@ -1,8 +1,8 @@\n-x\n+1\n 2\n 3\n 4\n 5\n 6\n 7\n-x\n+9\n"},
	} {
		got, err := diff(t.Context(), diffArgs{test.a, test.b})
		if err != nil || got.Diff != test.want || got.Equal != (test.want == "") {
			t.Errorf("%q, %q:\ngot  %q, %v\nwant %q", test.a, test.b, got.Diff, err, test.want)
		}
	}
}
