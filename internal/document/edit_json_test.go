package document

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
)

// A file that was fine is not called broken because this program cannot edit it.
func TestAnEditThatFailsIsNotTheFilesFault(t *testing.T) {
	d := must.Get(newJSONText([]byte(`{"a": 1}`)))(t)
	d.root.AfterExtra = []byte("}")
	if _, err := d.checked([]byte(`{"a": 1}`), []string{"b"}); err == nil || !strings.Contains(err.Error(), "edit it by hand") {
		t.Errorf("error = %v, want %v", err, ErrByHand)
	}
}

// What a member's comments are is seen by where they stand.
func TestRemoveJSONTakesItsCommentsOnly(t *testing.T) {
	tests := []struct{ name, before, want string }{
		{"above and behind", "{\n  // first\n  \"a\": 1, // of a\n  // of b\n  \"b\": 2, // of b too\n  // of c\n  \"c\": 3\n}\n",
			"{\n  // first\n  \"a\": 1, // of a\n  // of c\n  \"c\": 3\n}\n"},
		{"the last", "{\n  \"a\": 1, // of a\n  \"b\": 2 // of b\n}\n", "{\n  \"a\": 1 // of a\n}\n"},
		{"the first", "{\n  // of b\n  \"b\": 2,\n  \"c\": 3\n}\n", "{\n  \"c\": 3\n}\n"},
		{"kept apart", "{\n  // about all\n\n  // of b\n  \"b\": 2,\n  \"c\": 3\n}\n", "{\n  // about all\n\n  \"c\": 3\n}\n"},
		{"the only one", "{\"b\": 2}", "{}"},
		{"on one line", `{"a": 1, "b": 2, "c": 3}`, `{"a": 1, "c": 3}`},
		{"trailing comma", "{\n\t\"a\": 1,\n\t\"b\": 2,\n}\n", "{\n\t\"a\": 1,\n}\n"},
		{"absent", "{\"a\": 1} // x", "{\"a\": 1} // x"},
		{"byte order mark", "\ufeff{\"a\": 1, \"b\": 2}", "\ufeff{\"a\": 1}"},
		{"line ends", "{\r\n  \"a\": 1, // a\r\n  \"b\": 2\r\n}\r\n", "{\r\n  \"a\": 1 // a\r\n}\r\n"},
		{"a brace behind it", "{\n  \"a\": 1, // of a\n  \"b\": 2 }\n", "{\n  \"a\": 1 // of a\n}\n"},
		{"a brace behind it, line ends", "{\r\n  \"a\": 1, // of a\r\n  \"b\": 2 }\r\n", "{\r\n  \"a\": 1 // of a\r\n}\r\n"},
		{"the only one behind a comment", "{ // of all\n  \"b\": 2 }\n", "{ // of all\n}\n"},
		{"the next one on its line", "{ // of all\n  \"b\": 2, \"c\": 3 }\n", "{ // of all\n  \"c\": 3 }\n"},
		{"a block above", "{\n  \"a\": 1, /* of a */\n  /* of b,\n     // and more */\n  \"b\": 2\n}\n", "{\n  \"a\": 1 /* of a */\n}\n"},
		{"a comma on a line of its own", "{\n  \"a\": 1 // of a\n  ,\n  \"b\": 2 // of b\n}\n", "{\n  \"a\": 1 // of a\n}\n"},
		{"comma first", "{\n    \"a\": 1 // of a\n  // of b\n  , \"b\": 2 // of b too\n  // of c\n  , \"c\": 3\n}\n",
			"{\n    \"a\": 1 // of a\n  // of b\n  ,\n  // of c\n    \"c\": 3\n}\n"},
		{"comma first, the first", "{ \"b\": 2 // of b\n  // of c\n  , \"c\": 3 // of c too\n}\n", "{\n  // of c\n  \"c\": 3 // of c too\n}\n"},
		{"comma first, the last", "{ \"a\": 1 // of a\n  , \"b\": 2 // of b\n}\n", "{ \"a\": 1 // of a\n}\n"},
		{"comma first, two on a line", "{ \"a\": 1 // of a\n  , \"b\": 2, \"c\": 3 }\n", "{ \"a\": 1 // of a\n  , \"c\": 3 }\n"},
	}
	for _, test := range tests {
		got, err := RemoveJSON([]byte(test.before), []string{"b"})
		if err != nil || string(got) != test.want {
			t.Errorf("%s: %v\n got %q\nwant %q", test.name, err, got, test.want)
		}
	}
}

// Wherever comments and line breaks stand, an entry that was added can be removed
// again, and what is said of the others is still said.
func TestCommentsOutliveAnEntry(t *testing.T) {
	comment := regexp.MustCompile(`<\d+>`)
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 0))
		comments := 0
		gap := func() string {
			comments++
			return []string{fmt.Sprintf("/* <%d> */", comments), fmt.Sprintf("// <%d>\n", comments), "\n", " ", "", ""}[random.IntN(6)]
		}
		var object func(depth int) string
		object = func(depth int) string {
			text := "{" + gap()
			n := random.IntN(4)
			for i := range n {
				value := "1"
				if depth > 0 {
					value = object(depth - 1)
				}
				text += fmt.Sprintf("%s%q%s:%s%s%s", gap(), string(rune('a'+i)), gap(), gap(), value, gap())
				if i < n-1 || random.IntN(4) == 0 {
					text += "," + gap()
				}
			}
			return text + gap() + "}"
		}
		before := gap() + object(2) + gap()
		with, err := SetJSON([]byte(before), []string{"a", "new"}, []byte(`{"x": 1}`))
		if err != nil {
			t.Errorf("seed %d: set: %v\n%s", seed, err, before)
			continue
		}
		after, err := RemoveJSON(with, []string{"a", "new"})
		if err != nil {
			t.Errorf("seed %d: remove: %v\n%s", seed, err, with)
			continue
		}
		for _, text := range [][]byte{with, after} {
			if want, got := comment.FindAllString(before, -1), comment.FindAllString(string(text), -1); !slices.Equal(got, want) {
				t.Errorf("seed %d: comments %v, want %v\n%s\nbecame\n%s", seed, got, want, before, text)
			}
		}
		for _, name := range []string{"a", "b", "c"} {
			if _, err := RemoveJSON([]byte(before), []string{"a", name}); err != nil {
				t.Errorf("seed %d: remove %s: %v\n%s", seed, name, err, before)
			}
		}
	}
}

func TestSetJSON(t *testing.T) {
	value := `{"k":["v",1]}`
	tests := []struct{ name, before, want string }{
		{"nothing there", "", "{\n  \"m\": {\n    \"b\": {\n      \"k\": [\"v\", 1]\n    }\n  }\n}\n"},
		{"empty block", "{\n\t\"x\": 1,\n\t\"m\": {}\n}\n", "{\n\t\"x\": 1,\n\t\"m\": {\n\t\t\"b\": {\n\t\t\t\"k\": [\"v\", 1]\n\t\t}\n\t}\n}\n"},
		{"null", `{"m": null}`, `{"m": {"b": {"k": ["v", 1]}}}`},
		{"comment behind the last", "{\n  \"m\": {\n    \"a\": 1 // of a\n    // end\n  }\n}\n",
			"{\n  \"m\": {\n    \"a\": 1, // of a\n    // end\n\n    \"b\": {\n      \"k\": [\"v\", 1]\n    }\n  }\n}\n"},
		{"trailing comma", "{\n  \"m\": {\n    \"a\": 1,\n  },\n}\n", "{\n  \"m\": {\n    \"a\": 1,\n    \"b\": {\n      \"k\": [\"v\", 1]\n    },\n  },\n}\n"},
		{"one line", `{"m": {"a": 1}}`, `{"m": {"a": 1, "b": {"k": ["v", 1]}}}`},
		{"replaced", "{\"m\": {\n  \"b\": 5, // why\n  \"c\": 12345678901234567890\n}}", "{\"m\": {\n  \"b\": {\n    \"k\": [\"v\", 1]\n  }, // why\n  \"c\": 12345678901234567890\n}}"},
		{"line ends", "{\r\n  \"m\": {}\r\n}\r\n", "{\r\n  \"m\": {\r\n    \"b\": {\r\n      \"k\": [\"v\", 1]\r\n    }\r\n  }\r\n}\r\n"},
	}
	for _, test := range tests {
		got, err := SetJSON([]byte(test.before), []string{"m", "b"}, []byte(value))
		if err != nil || string(got) != test.want {
			t.Errorf("%s: %v\n got %q\nwant %q", test.name, err, got, test.want)
		}
	}
	if _, err := SetJSON([]byte(`{"m": 5}`), []string{"m", "b"}, []byte("1")); err == nil {
		t.Error("a number became an object")
	}
}
