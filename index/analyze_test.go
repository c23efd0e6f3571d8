package index

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestWordsOfText(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"search_code", "search code"},
		{"list-open-issues", "list open issues"},
		{"repos.issues/create", "repos issues create"},
		{"searchCode", "searchcode search code"},
		{"getURLs", "geturls get urls"},
		{"HTTPServer", "httpserver http server"},
		{"parseXMLString", "parsexmlstring parse xml string"},
		{"list IDs", "list ids"},
		{"s3", "s3 s 3"},
		{"base64", "base64 base 64"},
		{"API v2", "api v2 v 2"},
		{"Café RÉSUMÉ", "cafe resume"},
		{"the user's file, don't fetch it", "user file fetch"},
		{"Ann’s", "ann"},
		{"搜索引擎", "搜索 索引 引擎"},
		{"图", "图"},
		{"用Bing搜索", "用bing搜索 用 bing 搜索"},
		{"привет мир", "привет мир"},
		{"🦜 \x00 --- !!", ""},
		{"broken \xff and \ufffd characters", "broken characters"},
		{strings.Repeat("x", maxWord+1), ""},
		{"", ""},
	} {
		var got []string
		for _, word := range english.Analyze([]byte(test.text)) {
			got = append(got, string(word.Term))
		}
		if want := strings.Fields(test.want); !slices.Equal(got, want) {
			t.Errorf("words of %q: %q, want %q", test.text, got, want)
		}
	}
}

// A text is analysed piece by piece, each once: the words are those of the whole text.
func TestPiecesOfATextHaveItsWords(t *testing.T) {
	long := strings.Repeat("x", maxWord)
	a := newAnalyzer()
	a.pieces = map[string][]word{}
	for _, text := range []string{
		"the user's file, don't fetch it; the user' s file, 's", "getURLs\u00a0getURLs\u2003getURLs(getURLs)", "a\u0301 b \u0301c d\u00b4e", long + "1 " + long + " " + long,
		"搜索引擎 搜索 引擎", "tabs\tand\r\nlines\x0b\x0c\u0085\u2028here", "broken \xff\xfe and \ufffd \xe2\x80 here",
	} {
		for range 2 { // what is kept is the same
			var got, want []string
			a.each(text, func(w word) { got = append(got, a.terms[w.written]) })
			for _, token := range english.Analyze([]byte(text)) {
				want = append(want, written+string(token.Term))
			}
			if !slices.Equal(got, want) {
				t.Errorf("words of %q: %q, want %q", text, got, want)
			}
		}
	}
}

func TestClauses(t *testing.T) {
	for _, test := range []struct {
		text string
		want []string
	}{
		{"create an issue", []string{"create an issue"}},
		{"read the file, then send mail", []string{"read the file,", "send mail"}},
		{"Find flights. Book a hotel and rent a car", []string{"Find flights.", "Book a hotel", "rent a car"}},
		{"a, b, c", []string{"a, b,", "c"}}, // one word is no thought
		{strings.Repeat("one two, ", 20), nil},
	} {
		got := clauses(test.text)
		if len(got) > maxClauses {
			t.Errorf("%d clauses", len(got))
		}
		if test.want != nil && !slices.Equal(got, test.want) {
			t.Errorf("clauses of %q: %q, want %q", test.text, got, test.want)
		}
	}
}

func TestParametersOfSchema(t *testing.T) {
	for _, test := range []struct{ name, schema, names, texts string }{
		{"none", ``, "", ""},
		{"no schema", `"string"`, "", ""},
		{"broken", `{"properties":`, "", ""},
		{"plain", `{"description":"ignored","properties":{"title":{"description":"its title"},"body":{}}}`, "title body", "its title"},
		{"nested", `{"properties":{"user":{"type":"object","properties":{"email":{"description":"where to"}}}}}`, "user email", "where to"},
		{"list", `{"properties":{"labels":{"type":"array","items":{"properties":{"color":{}}}}}}`, "labels color", ""},
		{"choice", `{"anyOf":[{"properties":{"a":{}}},{"properties":{"b":{}}}],"oneOf":[{"properties":{"c":{}}}],"allOf":[true,{"properties":{"d":{}}}]}`, "a b c d", ""},
		{"definitions", `{"$defs":{"Point":{"properties":{"x":{}}}},"definitions":{"Line":{"properties":{"y":{}}}}}`, "x y", ""},
		{"a map", `{"additionalProperties":{"properties":{"value":{}}}}`, "value", ""},
		{"odd members", `{"properties":{"a":5,"b":{"description":7},"c":{"description":"found"}},"items":false}`, "a b c", "found"},
	} {
		t.Run(test.name, func(t *testing.T) {
			names, texts := parameters([]byte(test.schema))
			if got := strings.Join(names, " "); got != test.names {
				t.Errorf("names %q, want %q", got, test.names)
			}
			if got := strings.Join(texts, " "); got != test.texts {
				t.Errorf("descriptions %q, want %q", got, test.texts)
			}
		})
	}
}

func TestParametersAreBounded(t *testing.T) {
	deep := strings.Repeat(`{"properties":{"a":`, 5000) + "{}" + strings.Repeat("}}", 5000)
	if names, _ := parameters([]byte(deep)); len(names) > maxDepth+1 {
		t.Errorf("%d names of a deep schema", len(names))
	}
	wide := `{"properties":{"p":{}`
	for i := range 5 * maxMembers {
		wide += fmt.Sprintf(`,"p%d":{}`, i)
	}
	if names, _ := parameters([]byte(strings.Repeat(`{"properties":{"a":`, maxDepth) + wide + "}}" + strings.Repeat("}}", maxDepth))); len(names) > maxMembers {
		t.Errorf("%d names of the deepest schema", len(names))
	}
	if names, _ := parameters([]byte(wide + "}}")); len(names) > maxMembers {
		t.Errorf("%d names of a wide schema", len(names))
	}
}
