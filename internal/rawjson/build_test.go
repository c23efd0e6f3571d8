package rawjson_test

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"

	"toolfinch/internal/rawjson"
)

func TestEncodeLeavesTextAsItIs(t *testing.T) {
	for _, text := range []string{"", "plain", "a < b && c > d", "line\nbreak", `\`, `"`, "~", " ", "\x1f", `back\slash "quoted"`, "ünïcode 😀", "\u2028", "tab\t", "\x7f"} {
		encoded, err := rawjson.Encode(text)
		if err != nil || string(encoded) != string(rawjson.Quote(text)) || string(encoded) != string(rawjson.Of(text)) {
			t.Errorf("Encode(%q) = %s, %v; Quote: %s; Of: %s", text, encoded, err, rawjson.Quote(text), rawjson.Of(text))
		}
		var back string
		if json.Unmarshal(encoded, &back) != nil || back != text {
			t.Errorf("%q came back as %q", text, back)
		}
	}
	if got := rawjson.Quote("a<b>&c"); string(got) != `"a<b>&c"` {
		t.Errorf("Quote escapes: %s", got)
	}
	if got := rawjson.Quote("a\xffb"); !json.Valid(got) {
		t.Errorf("Quote of bytes that are not UTF-8 = %s", got)
	}
	if _, err := rawjson.Encode(math.NaN()); err == nil {
		t.Error("Encode takes NaN")
	}
}

func TestWrite(t *testing.T) {
	var out bytes.Buffer
	if err := rawjson.Write(&out, map[string]string{"a": "<"}, "  "); err != nil || out.String() != "{\n  \"a\": \"<\"\n}\n" {
		t.Errorf("Write() = %q, %v", &out, err)
	}
}

func TestObjectAndArray(t *testing.T) {
	var empty rawjson.Object
	if !empty.Empty() || string(empty.JSON()) != "{}" || string(rawjson.NewObject(10).JSON()) != "{}" {
		t.Errorf("an object without members: %s", empty.JSON())
	}
	o := rawjson.NewObject(1)
	o.AddText("text", `<"quoted">`)
	o.AddInt("number", -12)
	o.AddAll([]byte(`{"a":1.0,"ü":[null]}`))
	o.Add("list", rawjson.Array([]json.RawMessage{[]byte("1"), []byte(`"x"`)}))
	o.Add("none", rawjson.Array[json.RawMessage](nil))
	const want = `{"text":"<\"quoted\">","number":-12,"a":1.0,"ü":[null],"list":[1,"x"],"none":[]}`
	if got := o.JSON(); string(got) != want || !json.Valid(got) || o.Empty() {
		t.Errorf("got %s, want %s", got, want)
	}
	for value, is := range map[string]bool{`{}`: true, " \n{\"a\":1}": true, `[]`: false, `"{"`: false, ``: false} {
		if rawjson.IsObject([]byte(value)) != is {
			t.Errorf("IsObject(%q) = %t", value, !is)
		}
	}
	if got := rawjson.Without([]byte(`{"a":1, "b":{"a":2},"a":3}`), "a", "c"); string(got) != `{"b":{"a":2}}` {
		t.Errorf("Without: %s", got)
	}
	if !rawjson.IsEmpty([]byte(` { } `)) || rawjson.IsEmpty([]byte(`{"a":1}`)) {
		t.Error("IsEmpty")
	}
}

func TestClip(t *testing.T) {
	for _, test := range []struct {
		text string
		n    int
		want string
	}{
		{"short", 5, "short"},
		{"longer", 4, "long..."},
		{"aüb", 2, "a..."},
		{"aüb", 3, "aü..."},
		{"\xff\xff\xff\xff", 2, "..."},
		{"ü", 0, "..."},
	} {
		if got := rawjson.Clip(test.text, test.n); got != test.want {
			t.Errorf("Clip(%q, %d) = %q, want %q", test.text, test.n, got, test.want)
		}
	}
}
