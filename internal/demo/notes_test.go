package demo

import (
	"fmt"
	"strings"
	"testing"
)

func TestNotes(t *testing.T) {
	run(t, connect(t, "notes", t.TempDir()), []call{
		{tool: "list", arguments: `{}`, want: `{"notes":[],"total":0}`},
		{tool: "add", arguments: `{"title":"Spare key","text":"The spare key is with Ada.","tags":["#Home","keys","home"]}`,
			has: []string{`{"id":1,"title":"Spare key","text":"The spare key is with Ada.","tags":["home","keys"],"added":"2`}},
		{tool: "add", arguments: `{"title":"Café","text":"Meeting Zoë about the houses. Bring the key."}`, has: []string{`"id":2`, `"tags":[]`}},
		{tool: "get", arguments: `{"id":2}`, has: []string{`"title":"Café"`}},
		{tool: "get", arguments: `{"id":9}`, fails: "there is no note 9"},
		{tool: "list", arguments: `{}`, has: []string{`[{"id":2`, `{"id":1`, `"total":2`}},
		{tool: "list", arguments: `{"limit":1}`, has: []string{`[{"id":2`, `"total":2`}},
		{tool: "list", arguments: `{"tag":"Keys"}`, has: []string{`[{"id":1`, `"total":1`}},
		{tool: "list", arguments: `{"limit":1000}`, fails: "from 1 to 200"},
		{tool: "search", arguments: `{"query":"key"}`, has: []string{`[{"id":1`, `{"id":2`, `"total":2`}}, // in the title first
		{tool: "search", arguments: `{"query":"cafe zoe house"}`, has: []string{`[{"id":2`, `"total":1`}},
		{tool: "search", arguments: `{"query":"key","tag":"home"}`, has: []string{`[{"id":1`, `"total":1`}},
		{tool: "search", arguments: `{"query":"\"key\" OR NOT ( title: *"}`, want: `{"notes":[],"total":0}`},
		{tool: "search", arguments: `{"query":" ?! "}`, fails: "no word"},
		{tool: "list_tags", arguments: `{}`, want: `{"tags":{"home":1,"keys":1}}`},
		{tool: "delete", arguments: `{"id":1}`, want: `{"id":1}`},
		{tool: "delete", arguments: `{"id":1}`, fails: "there is no note 1"},
		{tool: "search", arguments: `{"query":"Ada"}`, has: []string{`"total":0`}},
		{tool: "list_tags", arguments: `{}`, want: `{"tags":{}}`},
		{tool: "delete", arguments: `{"id":2}`, want: `{"id":2}`},
		{tool: "add", arguments: `{"title":"next","text":""}`, has: []string{`"id":3`}}, // numbers are not used again
		{tool: "add", arguments: `{"title":" ","text":""}`, fails: "title is empty"},
		{tool: "add", arguments: `{"title":"x","text":"","tags":["two words"]}`, fails: "one word"},
	})
}

func TestNotesAreBounded(t *testing.T) {
	var tags []string
	for i := range maxTags + 1 {
		tags = append(tags, fmt.Sprintf(`"t%d"`, i))
	}
	run(t, connect(t, "notes", t.TempDir()), []call{
		{tool: "add", arguments: fmt.Sprintf(`{"title":%q,"text":""}`, strings.Repeat("x", maxTitle+1)), fails: "title"},
		{tool: "add", arguments: fmt.Sprintf(`{"title":"x","text":%q}`, strings.Repeat("x", maxNote+1)), fails: "text"},
		{tool: "add", arguments: fmt.Sprintf(`{"title":"x","text":"","tags":[%s]}`, strings.Join(tags, ",")), fails: "at most 20 tags"},
		{tool: "list", arguments: `{}`, has: []string{`"total":0`}}, // a note that was refused left nothing
	})
}

func TestNotesStayWhenTheServerEnds(t *testing.T) {
	dir := t.TempDir()
	t.Run("before", func(t *testing.T) {
		run(t, connect(t, "notes", dir), []call{{tool: "add", arguments: `{"title":"kept","text":"x"}`, has: []string{`"id":1`}}})
	})
	t.Run("after", func(t *testing.T) {
		run(t, connect(t, "notes", dir), []call{{tool: "search", arguments: `{"query":"kept"}`, has: []string{`"id":1`}}})
	})
}
