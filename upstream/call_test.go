package upstream

import (
	"encoding/json"
	"testing"

	"toolfinch/tool"
)

// What a server takes for a key of its own is decided where the case of letters
// counts: before the request is sent.
func TestKeysThatOnlyLookLikeOthersAreNotSent(t *testing.T) {
	p := newPool(t, lines(t, "s", "plain"))
	for name, test := range map[string]struct{ sent, want string }{
		"keys that say what a call is about": {
			`{"Name":"exit","NAME":"exit","URI":"x","Arguments":{"a":2},"argumentſ":{"a":3},"_Meta":{},"Task":{},"TaskId":"1","Ref":{},"Argument":{},"Context":{},"RequestState":"x","InputResponses":{}}`,
			`{"name":"params","arguments":{"a":1}}`,
		},
		"what a client sends beside them": {
			`{"name":"shown","arguments":{},"names":"n","x":1.0,"X":12345678901234567890,"_meta":{"Name":"n"}}`,
			`{"name":"params","arguments":{"a":1},"names":"n","x":1.0,"X":12345678901234567890,"_meta":{"Name":"n"}}`,
		},
	} {
		call := &tool.Call{Arguments: json.RawMessage(`{"a":1}`), Params: json.RawMessage(test.sent)}
		result, err := p.Call(t.Context(), def("s", "params"), call)
		if got := jsonMember(json.RawMessage(result), "params"); err != nil || untold(got) != test.want {
			t.Errorf("%s: the server got %s, %v\nwant %s", name, got, err, test.want)
		}
	}
}
