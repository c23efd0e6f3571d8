package main

import (
	"bytes"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/retrieve"
	"toolfinch/tool"
)

// Who asks for tools sees what has always been there; who asks for more sees
// which kind each hit is of.
func TestHitsArePrintedWithTheirKind(t *testing.T) {
	hit := func(kind tool.Kind, name string, score float64) retrieve.Hit {
		return retrieve.Hit{Score: score, Tool: &tool.Tool{Name: name, Def: &tool.Def{
			ID: tool.ID{Server: "s", Name: name, Kind: kind}, Description: "What it is. More.",
		}}}
	}
	for _, test := range []struct {
		kinds []tool.Kind
		hits  []retrieve.Hit
		want  string
	}{
		{nil, []retrieve.Hit{hit(tool.KindTool, "s_run", 2)}, `
SCORE  TOOL   SERVER  DESCRIPTION
2.000  s_run  s       What it is.
`},
		{tool.Kinds, []retrieve.Hit{hit(tool.KindTool, "s_run", 2), hit(tool.KindTemplate, "file:///{path}", 1.5), hit(tool.KindPrompt, "s_ask", 1)}, `
SCORE  KIND      NAME            SERVER  DESCRIPTION
2.000  tool      s_run           s       What it is.
1.500  template  file:///{path}  s       What it is.
1.000  prompt    s_ask           s       What it is.
`},
	} {
		out := bytes.NewBufferString("\n")
		if err := hitTable(retrieve.Query{Kinds: test.kinds}, retrieve.Found{Hits: test.hits}).print(out); err != nil || out.String() != test.want {
			t.Errorf("%v: %s, %v, want %s", test.kinds, out, err, test.want)
		}
	}
}

func TestDeprecated(t *testing.T) {
	for definition, want := range map[string]bool{
		`{"name": "t", "description": "Read a file as text. DEPRECATED: Use read_text_file instead."}`: true,
		`{"name": "t", "description": "[Deprecated] Reads."}`:                                          true,
		`{"name": "t", "description": "Deprecated. Reads."}`:                                           true,
		`{"name": "t", "description": "Reads. This tool is deprecated."}`:                              true,
		`{"name": "t", "title": "Read (deprecated)"}`:                                                  true,
		`{"name": "t", "annotations": {"deprecated": true}}`:                                           true,
		`{"name": "t", "deprecated": true}`:                                                            true,
		`{"name": "t", "_meta": {"deprecated": false}, "description": "Reads."}`:                       false,
		`{"name": "t", "description": "Lists deprecated packages and their successors."}`:              false,
		`{"name": "t", "description": "Marks a version as deprecated."}`:                               false,
	} {
		def := must.Get(tool.ParseDef("s", []byte(definition)))(t)
		if deprecated(def) != want {
			t.Errorf("deprecated is %t of %s", !want, definition)
		}
	}
}
