package view

import (
	"strings"
	"testing"

	"toolfinch/tool"
)

func text(s string) *string { return &s }

func TestOverridesChangeWhatTheySayAndNoOtherByte(t *testing.T) {
	const raw = `{ "name":"a" , "description":"Says <b>.", "x":12345678901234567890, "annotations":{"title":"Old","readOnlyHint":true},"y":1.0 }`
	for _, test := range []struct {
		name      string
		raw       string
		by        Override
		want      string
		wantTitle string
	}{
		{"description", raw, Override{Description: text("New & better")},
			strings.Replace(raw, "Says <b>.", "New & better", 1), "Old"},
		{"description around the original", raw, Override{Description: text("Mind: {original} ({original})")},
			strings.Replace(raw, "Says <b>.", "Mind: Says <b>. (Says <b>.)", 1), "Old"},
		{"empty description", raw, Override{Description: text("")},
			strings.Replace(raw, "Says <b>.", "", 1), "Old"},
		{"title", raw, Override{Title: text("{original} one")},
			strings.Replace(raw, "{ ", `{"title":"Old one", `, 1), "Old one"},
		{"the original of one that says nothing", `{"name":"a"}`, Override{Description: text("Here: {original}"), Title: text("{original}T")},
			`{"description":"Here: ","title":"T","name":"a"}`, "T"},
		{"several lines", `{"name":"a"}`, Override{Description: text("One.\n\"Two\"\t{original}")},
			`{"description":"One.\n\"Two\"\t","name":"a"}`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := defined(t, tool.KindTool, "s", test.raw)
			after, problems := test.by.apply(before, tool.LayerViewArguments)
			wantProblems(t, problems)
			def := after.Def
			if string(def.Raw) != test.want {
				t.Errorf("got  %s\nwant %s", def.Raw, test.want)
			}
			if def.ID != before.Def.ID || def.Title != test.wantTitle || def.Hash == before.Def.Hash {
				t.Errorf("def = %+v", def)
			}
			if string(before.Def.Raw) != test.raw {
				t.Error("the upstream's own definition was edited")
			}
		})
	}
}

func TestAnOverrideThatChangesNothingLeavesTheToolItself(t *testing.T) {
	a := defined(t, tool.KindTool, "s", `{"name":"a","title":"\u0054","description":"D","inputSchema":{"properties":{"p":{"description":"P"}}}}`)
	for name, by := range map[string]*Override{
		"none":      nil,
		"empty":     {Tool: "a"},
		"originals": {Tool: "a", Title: text("{original}"), Description: text("{original}")},
		"the same":  {Tool: "a", Description: text("D"), Parameters: []Parameter{{Name: "p", Rename: "p", Description: text("P")}}},
		"a glob's":  {Tool: "*", Name: "not_for_globs"},
	} {
		got, problems := by.apply(a, tool.LayerViewArguments)
		if got != a || len(problems) > 0 {
			t.Errorf("%s: %+v, %v", name, got, problems)
		}
	}
	renamed, _ := (&Override{Tool: "a", Name: "b"}).apply(a, tool.LayerViewArguments)
	if renamed.Name != "b" || renamed.Def != a.Def {
		t.Errorf("renamed: %+v", renamed)
	}
}

func TestNamesThatNoToolMayHave(t *testing.T) {
	for name, usable := range map[string]bool{
		"search_knowledge":       true,
		"Find-2":                 true,
		strings.Repeat("x", 64):  true,
		strings.Repeat("x", 65):  false,
		"a.b":                    false,
		"ä":                      false,
		"run_script":             false,
		"read_output":            false,
		"retrieve_tools":         false,
		"call_tool_read":         false,
		"v_search_tools":         false,
		"v_github_describe_tool": false,
		"v_call_tool":            false,
		"w_call_tool":            true,
		"v_search":               true,
	} {
		if got := unusable(name, "v"); (got == "") != usable {
			t.Errorf("unusable(%q) = %q", name, got)
		}
	}
}
