package tool

import (
	"errors"
	"testing"

	"toolfinch/internal/must"
)

func TestParseDefTakesWhatItUnderstands(t *testing.T) {
	raw := ` {"name":"a","title":null,"description":"d\u00e9","inputSchema":{"x":1.0},"outputSchema":null,
		"annotations":{"title":"T","readOnlyHint":true,"destructiveHint":"no","idempotentHint":null,"openWorldHint":false},"name":"b","Name":"c"} `
	def := must.Get(ParseDef("s", []byte(raw)))(t)
	if def.ID.String() != "s.b" || def.Title != "T" || def.Description != "dé" || string(def.InputSchema) != `{"x":1.0}` || def.OutputSchema != nil {
		t.Errorf("def = %+v", def)
	}
	if want := (Annotations{ReadOnly: true, Destructive: true}); def.Annotations != want {
		t.Errorf("annotations = %+v, want %+v", def.Annotations, want)
	}
	if string(def.Raw) != raw || len(def.Hash) != 64 {
		t.Errorf("raw = %s, hash %s", def.Raw, def.Hash)
	}
}

func TestParseDefRefusesWhatHasNoName(t *testing.T) {
	for _, raw := range []string{``, `null`, `7`, `[]`, `{}`, `{"name":""}`, `{"name":7}`, `{"name":"a"`, `{"name":"a"}}`} {
		if _, err := ParseDef("s", []byte(raw)); !errors.Is(err, ErrBadDef) {
			t.Errorf("ParseDef(%s): error %v", raw, err)
		}
	}
	odd := `{"name":"a","description":{},"inputSchema":"text","annotations":[],"title":1}`
	if def, err := ParseDef("s", []byte(odd)); err != nil || def.Annotations != (Annotations{Destructive: true, OpenWorld: true}) {
		t.Errorf("odd but named: %+v, %v", def, err)
	}
}
func TestParseDefTakesWhatIsSaidOfApps(t *testing.T) {
	for meta, want := range map[string]App{
		`{}`:                                    {},
		`{"ui":{"resourceUri":"ui://a"}}`:       {Shown: true},
		`{"ui/resourceUri":"ui://a"}`:           {Shown: true},
		`{"ui":{"visibility":["app"]}}`:         {NotModel: true},
		`{"ui":{"visibility":["model"]}}`:       {NotApp: true},
		`{"ui":{"visibility":["app","model"]}}`: {},
		`{"ui":{"visibility":"app"}}`:           {},
		`{"ui":7}`:                              {},
		`[]`:                                    {},
	} {
		def, err := ParseDef("s", []byte(`{"name":"a","_meta":`+meta+`}`))
		if err != nil || def.App != want {
			t.Errorf("%s: %+v, %v; want %+v", meta, def.App, err, want)
		}
	}
}
