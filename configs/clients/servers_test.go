package clients

import (
	"encoding/json"
	"testing"
)

// What is said of two choices of tools is the same if and only if they choose the same.
func TestChoiceInWords(t *testing.T) {
	for tools, want := range map[string]string{
		``:                                      "all tools",
		`{"a":{},"b":{"description":"B"}}`:      "all tools",
		`{"*":{"enabled":false}}`:               "no tool",
		`{"b":{},"*":{"enabled":false},"a":{}}`: "only a, b",
		`{"*":{"enabled":false},"a":{"description":"A"},"b":{"enabled":true},"c":{"enabled":false}}`: "only a, b",
		`{"b":{"enabled":false},"a":{"enabled":false},"c":{}}`:                                       "all but a, b",
		`{"x*":{"enabled":false},"xa":{},"b":{"enabled":false}}`:                                     "all but b, x* with xa",
		`{"x*":{"enabled":false}}`: "all but x*",
	} {
		if got := ChoiceInWords(json.RawMessage(tools)); got != want {
			t.Errorf("%s: %q, want %q", tools, got, want)
		}
	}
}
