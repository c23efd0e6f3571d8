package main

import (
	"bytes"
	"testing"

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
