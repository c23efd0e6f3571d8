package schema

import (
	"encoding/json"
	"testing"

	"toolfinch/internal/must"
)

// The examples of RFC 6901, section 5, and what leads nowhere.
func TestAt(t *testing.T) {
	var root any
	must.Do(t, json.Unmarshal([]byte(`{"foo":["bar","baz"],"":0,"a/b":1,"m~n":8,"~1":9}`), &root))
	for pointer, want := range map[string]string{
		"/foo": `["bar","baz"]`, "/foo/0": `"bar"`, "/": "0", "/a~1b": "1", "/m~0n": "8", "/~01": "9",
		"foo": "", "/foo/2": "", "/foo/-1": "", "/foo/x": "", "/foo/0/x": "", "/none": "",
	} {
		value, ok := At(root, pointer)
		got, _ := json.Marshal(value)
		if ok != (want != "") || ok && string(got) != want {
			t.Errorf("%q leads to %s, %t; want %s", pointer, got, ok, want)
		}
	}
	if value, ok := At(root, ""); !ok || value == nil {
		t.Error("the empty pointer does not lead to the whole")
	}
}
