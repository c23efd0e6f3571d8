package rawjson

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestUniqueKeepsTheLastOfEachName(t *testing.T) {
	for value, want := range map[string]string{
		`{"a":1,"b":2}`: `{"a":1,"b":2}`,
		`{"a":1,"a":2}`: `{"a":2}`,
		`{ "a" : 1 , "b":{"a":1} , "\u0061" :2 } `:  `{ "b":{"a":1} , "\u0061" :2 } `,
		`{"a":{"b":1,"b":2},"a":{"b":3,"b":4}}`:     `{"a":{"b":4}}`,
		`[{"a":[{"x":1,"x":[",\"x\":"],"y":"x"}]}]`: `[{"a":[{"x":[",\"x\":"],"y":"x"}]}]`,
		`{"a":1,"a":2,"a":3,"b":"a","A":4}`:         `{"a":3,"b":"a","A":4}`,
		`"a"`:                                       `"a"`, `[]`: `[]`, `7`: `7`, `{}`: `{}`,
	} {
		if got := string(Unique([]byte(value))); got != want {
			t.Errorf("Unique(%s) = %s, want %s", value, got, want)
		}
	}
}

func TestUniqueOfDeepAndOfManyMembers(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 9_000) + `"` + strings.Repeat("x", 8<<20) + `"` + strings.Repeat("}", 9_000)
	many := `{` + strings.Repeat(`"a":1,`, 500_000) + `"a":2}`
	if got := Unique([]byte(deep)); len(got) != len(deep) {
		t.Errorf("%d bytes, want %d", len(got), len(deep))
	}
	if got := string(Unique([]byte(many))); got != `{"a":2}` {
		t.Errorf("%.100s", got)
	}
}

func FuzzUniqueAgreesWithEncodingJSON(f *testing.F) {
	for _, seed := range []string{`{"a":1,"a":{"b":[{"c":1,"c":null}]}}`, ` [ {"\u0061":"\\","a":"\""} ] `, `{"a":{"a":1,"a":2},"a":3,"":4,"":5}`, `{"\ud800":1,"\ufffd":2}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		got := Unique(value) // must not panic on anything
		var before, after any
		if json.Unmarshal(value, &before) != nil {
			return
		}
		if err := json.Unmarshal(got, &after); err != nil || !reflect.DeepEqual(before, after) {
			t.Fatalf("Unique(%s) = %s: %v", value, got, err)
		}
		if names := countNames(before); names != strings.Count(string(tokens(t, got)), "k") {
			t.Fatalf("Unique(%s) = %s: it does not have %d names", value, got, names)
		}
		if again := Unique(got); !bytes.Equal(again, got) {
			t.Fatalf("Unique(%s) = %s", got, again)
		}
	})
}

// countNames is how many members the objects of a value have.
func countNames(value any) (n int) {
	switch value := value.(type) {
	case map[string]any:
		n = len(value)
		for _, member := range value {
			n += countNames(member)
		}
	case []any:
		for _, element := range value {
			n += countNames(element)
		}
	}
	return n
}

// tokens has a "k" for each name in valid JSON.
func tokens(t *testing.T, value []byte) (out []byte) {
	t.Helper()
	var all func(value json.RawMessage)
	all = func(value json.RawMessage) {
		for _, member := range Members(value) {
			out = append(out, 'k')
			all(member)
		}
		for element := range Elements(value) {
			all(element)
		}
	}
	all(bytes.TrimSpace(value))
	return out
}

func FuzzMembersAndElementsAgreeWithEncodingJSON(f *testing.F) {
	for _, seed := range []string{`{"a":1,"b":[true,"x\"]",{}]}`, ` [ 1 , "a,]" ,{"b":[2]}, [ ] ]`, `{"a" : -1.5e3 , "\u00e9":null}`, `"text"`, `[1`, `{"a":`, `{"a"}`, "\xff", `{"a":1}x`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		members := map[string]json.RawMessage{}
		for name, member := range Members(value) {
			members[name] = member
		}
		var elements []json.RawMessage
		for element := range Elements(value) {
			elements = append(elements, element)
		}
		text, line := Text(value), OneLine(value)
		if !json.Valid(value) {
			return
		}
		if bytes.ContainsAny(line, "\r\n") || !json.Valid(line) {
			t.Fatalf("OneLine(%s) = %s", value, line)
		}
		var object map[string]json.RawMessage
		var array []json.RawMessage
		var str string
		_, _, _ = json.Unmarshal(value, &object), json.Unmarshal(value, &array), json.Unmarshal(value, &str)
		if text != str || len(members) != len(object) || len(elements) != len(array) {
			t.Fatalf("%s: text %q, members %s, elements %s", value, text, members, elements)
		}
		for name, member := range object {
			if !bytes.Equal(members[name], member) || !bytes.Equal(Member(value, name), member) {
				t.Fatalf("%s: member %q is %s", value, name, members[name])
			}
		}
		for i, element := range array {
			if !bytes.Equal(elements[i], element) {
				t.Fatalf("%s: element %d is %s", value, i, elements[i])
			}
		}
	})
}
