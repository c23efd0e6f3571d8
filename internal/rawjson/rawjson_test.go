package rawjson

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
)

func TestSetKeepsEveryOtherByte(t *testing.T) {
	for _, test := range []struct{ name, object, key, value, want string }{
		{"in place", `{ "a" : 1 , "name":"x", "b":[1, 2]}`, "name", `"y"`, `{ "a" : 1 , "name":"y", "b":[1, 2]}`},
		{"added first", `{"a":12345678901234567890}`, "name", `"y"`, `{"name":"y","a":12345678901234567890}`},
		{"to an empty object", ` { } `, "name", `1`, ` {"name":1 } `},
		{"nested namesake stays", `{"in":{"name":"deep"},"name":"top"}`, "name", `"new"`, `{"in":{"name":"deep"},"name":"new"}`},
		{"escaped key", `{"n\u0061me":"x"}`, "name", `"y"`, `{"n\u0061me":"y"}`},
		{"braces and quotes in strings", `{"a":"}\"{,\\","name":{"x":"]}"}}`, "name", `0`, `{"a":"}\"{,\\","name":0}`},
		{"the last of duplicates", `{"name":1,"name":2}`, "name", `3`, `{"name":1,"name":3}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Set([]byte(test.object), test.key, []byte(test.value))
			if err != nil || string(got) != test.want {
				t.Errorf("Set() = %s, %v; want %s", got, err, test.want)
			}
		})
	}
	for _, bad := range []string{"", "[]", `"text"`, "7"} {
		if got, err := Set([]byte(bad), "name", []byte("1")); err == nil {
			t.Errorf("Set(%q) = %s, want an error", bad, got)
		}
	}
}

func FuzzSetAgreesWithEncodingJSON(f *testing.F) {
	for _, seed := range []string{`{"a":1}`, `{"name":[{"name":"}"}],"b":"\\\""}`, `{"\u006eame":null , "c":-1e5}`, `{}`, ` {"a":{"b":[[]]}} `} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		var before map[string]json.RawMessage
		if json.Unmarshal(object, &before) != nil || before == nil {
			t.Skip()
		}
		got := must.Get(Set(object, "name", []byte(`"new"`)))(t)
		var after map[string]json.RawMessage
		if err := json.Unmarshal(got, &after); err != nil {
			t.Fatalf("Set(%s) = %s: %v", object, got, err)
		}
		before["name"] = json.RawMessage(`"new"`)
		if len(before) != len(after) {
			t.Fatalf("Set(%s) = %s: members differ", object, got)
		}
		for key, value := range before {
			if string(after[key]) != string(value) {
				t.Fatalf("Set(%s) = %s: member %q differs", object, got, key)
			}
		}
	})
}

func TestInt(t *testing.T) {
	for raw, want := range map[string]int{`10`: 10, `10.0`: 10, `1e1`: 10, `"10"`: 10, `-3`: -3, `0`: 0} {
		if got, ok := Int([]byte(raw)); got != want || !ok {
			t.Errorf("Int(%s) = %d, %t", raw, got, ok)
		}
	}
	for _, raw := range []string{``, `1.5`, `"x"`, `""`, `"null"`, `null`, `true`, `[1]`, `1e100`, `"\"1\""`} {
		if got, ok := Int([]byte(raw)); ok || got != 0 {
			t.Errorf("Int(%s) = %d", raw, got)
		}
	}
}

func nested(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }

func TestDepth(t *testing.T) {
	for value, want := range map[string]int{`7`: 0, `"[{"`: 0, `["[","["]`: 1, `[]`: 1, `{"a":[{"b":"}"}],"c":[[[1]]]}`: 4, ``: 0} {
		if got := Depth([]byte(value)); got != want {
			t.Errorf("Depth(%s) = %d, want %d", value, got, want)
		}
	}
	text := `"` + strings.Repeat("[{", MaxDepth) + `"`
	for value, deep := range map[string]bool{
		nested(MaxDepth): false, nested(MaxDepth + 1): true, text: false, "[" + strings.Repeat("[],", MaxDepth) + "1]": false,
	} {
		if TooDeep([]byte(value)) != deep {
			t.Errorf("%.20s of %d levels: too deep %t", value, Depth([]byte(value)), !deep)
		}
	}
}

func TestMembers(t *testing.T) {
	for object, want := range map[string][]string{
		` { "a" : 1 , "b,}":[2], "a":{} } `: {"a=1", "b,}=[2]", "a={}"},
		`{"\u0061\"":1}`:                    {`a"=1`},
		`{}`:                                nil,
		``:                                  nil,
		`["a":1]`:                           nil,
		`{"a":1;"b":2}`:                     {"a=1;\"b\":2"},
		`{"a" 1}`:                           nil,
		`{"a":`:                             nil,
		`{"a":1,`:                           {"a=1"},
		`{"a":"x`:                           {`a="x`},
	} {
		var got []string
		for name, value := range Members([]byte(object)) {
			got = append(got, name+"="+string(value))
		}
		if !slices.Equal(got, want) {
			t.Errorf("Members(%s) = %q, want %q", object, got, want)
		}
		for range Members([]byte(object)) {
			break
		}
	}
}

func TestText(t *testing.T) {
	for raw, want := range map[string]string{`"a"`: "a", `"a\u0062\""`: `ab"`, `""`: "", `"`: "", ``: "", `"a`: "", `a"`: "", `7`: "", `null`: "", "\"\xff\"": "\uFFFD"} {
		if got := Text([]byte(raw)); got != want {
			t.Errorf("Text(%s) = %q, want %q", raw, got, want)
		}
	}
}

func TestOneLine(t *testing.T) {
	for message, want := range map[string]string{`{ "a" : 1 }`: `{ "a" : 1 }`, "{\n \"a\":\r\n1.0 }": `{"a":1.0}`, "{\"a\":\r\n": `{"a":`, "[1,\r2]": `[1,2]`} {
		if got := string(OneLine([]byte(message))); got != want {
			t.Errorf("OneLine(%q) = %q, want %q", message, got, want)
		}
	}
}

func TestElements(t *testing.T) {
	for array, want := range map[string][]string{
		`[]`:                             nil,
		` [ 1 , "a,]" ,{"b":[2]}, [ ] ]`: {`1`, `"a,]"`, `{"b":[2]}`, `[ ]`},
		`{"a":1}`:                        nil,
		`7`:                              nil,
		`[1`:                             {`1`},
	} {
		var got []string
		for element := range Elements([]byte(array)) {
			got = append(got, string(element))
		}
		if !slices.Equal(got, want) {
			t.Errorf("Elements(%s) = %q, want %q", array, got, want)
		}
	}
}
