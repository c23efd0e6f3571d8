package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"

	"toolfinch/internal/rawjson"
)

// A definition that is taken in is one that is taken in again as it is.
func FuzzTakeIn(f *testing.F) {
	for i, seed := range []string{
		`{"name":"a","inputSchema":{"type":["object"],"properties":{"x":true},"required":null},"annotations":{"title":null,"readOnlyHint":true},"_meta":[],"icons":[{"src":"x","sizes":null}]}`,
		`{"name":"a","outputSchema":{"type":"object","properties":{"a":{"$ref":"#/$defs/x","pattern":"^[a-z-]+$"}},"$defs":{"x":{"items":[{}]}}},"execution":{"taskSupport":"optional"}}`,
		`{"name":"p","arguments":[{"name":"x","required":null}],"title":5,"title":"\ud800"}`,
		`{"uri":"x:1","size":1.0,"annotations":{"audience":["user"],"priority":1e-400,"lastModified":"2025-01-12T15:00:58.5+01:00"}}`,
		`{"uriTemplate":"x:{a}","name":null,"mimeType":"text/plain"}`,
		`{"uri":"skill://a/b/SKILL.md","frontmatter":{"name":"b","description":"d"},"resources":"dynamic"}`,
	} {
		f.Add(i, []byte(seed))
	}
	f.Fuzz(func(t *testing.T, kind int, raw []byte) {
		of := Kinds[max(kind%len(Kinds), 0)]
		def, mended, err := TakeIn(of, "s", raw)
		if err != nil {
			if !errors.Is(err, ErrBadDef) || err.Error() == "" {
				t.Fatalf("error %v", err)
			}
			return
		}
		if def.ID.Name == "" || def.ID.Kind != of || !json.Valid(def.Raw) || !utf8.Valid(def.Raw) {
			t.Fatalf("%+v", def)
		}
		if len(mended) == 0 && !bytes.Equal(def.Raw, raw) {
			t.Fatalf("%s became %s, and nothing says so", raw, def.Raw)
		}
		again, mended, err := TakeIn(of, "s", def.Raw)
		if err != nil || len(mended) > 0 || !bytes.Equal(again.Raw, def.Raw) || again.Hash != def.Hash {
			t.Fatalf("%s becomes %s: %q, %v", def.Raw, again.Raw, mended, err)
		}
		if def.Legacy != nil && (!json.Valid(def.Legacy) || rawjson.Member(def.Legacy, "outputSchema") != nil) {
			t.Fatalf("legacy clients are listed %s", def.Legacy)
		}
	})
}

// A result may be anything that a server sends: who reads it reads JSON.
func FuzzResult(f *testing.F) {
	for _, seed := range []string{
		`{"content":[{"type":"text","text":"a"},{"type":"text","text":"\ud800"}],"isError":true}`, `{"structuredContent":[1e400],"content":null}`,
		`{"resultType":"task","content":[ ]}`, `{"content":[7,{"type":5}]}`, `{"content":"x"}`, `[]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) {
			return
		}
		r := Result(bytes.TrimSpace(raw))
		if value := r.Value(); value != nil && !json.Valid(value) {
			t.Fatalf("the value of %s is %s", raw, value)
		}
		if r.Failed() && rawjson.Member(json.RawMessage(r), "isError") == nil {
			t.Fatalf("%s failed, and does not say so", raw)
		}
	})
}
