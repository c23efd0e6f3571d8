package index

import (
	"fmt"
	"strings"
	"testing"
)

func TestOverNamesEachLead(t *testing.T) {
	a := &Explanation{Words: 5, Terms: map[string]float64{"file": 4, "~delete": 1}, Vectors: 10, Exact: 2, Coverage: 1, Deprecated: -3}
	b := &Explanation{Words: 3, Terms: map[string]float64{"file": 1, "name": 2}, Vectors: 12, Coverage: .999, Twins: -1, Deprecated: -5}
	for _, test := range []struct {
		over   []Part
		hybrid bool
		want   string
	}{
		{a.Over(b, false), false, "word file 3.00, name 2.00, old 2.00, twins 1.00, word ~delete 1.00"},
		{b.Over(a, true), true, "vectors 2.00, word name 2.00"},
		{a.Over(a, true), true, ""},
	} {
		var got []string
		for _, part := range test.over {
			got = append(got, fmt.Sprintf("%s %.2f", part.Name, part.Value))
		}
		if strings.Join(got, ", ") != test.want {
			t.Errorf("%v, want %s", got, test.want)
		}
	}
}
