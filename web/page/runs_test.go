package page

import (
	"testing"

	"toolfinch/tool"
)

// Results that are not kept any more take no memory.
func TestResultsThatAreDroppedAreGone(t *testing.T) {
	r := newRuns()
	defer r.close()
	var all []*run
	for range 3 {
		one := &run{result: tool.Result(make([]byte, maxKept/2))}
		all = append(all, one)
		r.keep(one)
	}
	for i, one := range all {
		if gone := one.answer() == nil; gone != (i == 0) {
			t.Errorf("that result %d is gone is %t", i, gone)
		}
	}
}
