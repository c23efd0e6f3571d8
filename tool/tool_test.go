package tool

import (
	"testing"
)

func TestCompleteIsWhatAnswersTheCall(t *testing.T) {
	for _, test := range []struct {
		result string
		want   bool
	}{
		{`{"content":[]}`, true},
		{`{"resultType":"complete","content":[]}`, true},
		{`{"resultType":"input_required"}`, false},
		{`{"resultType":"input_required","content":[]}`, false}, // as mcp-go sends it
		{`{"resultType":"input_required","content":null}`, false},
		{`{"resultType":"task","content":[]}`, false},
		{`{"resultType":"input_required","content":[{"type":"text","text":"so far"}]}`, true},
		{`{"resultType":"task","structuredContent":{}}`, true},
	} {
		if got := Result(test.result).Complete(); got != test.want {
			t.Errorf("Complete(%s) = %t", test.result, got)
		}
	}
}
