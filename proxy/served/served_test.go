package served

import (
	"fmt"
	"slices"
	"testing"

	"toolfinch/configs"
	"toolfinch/tool"
	"toolfinch/upstream"
)

func TestCutTo(t *testing.T) {
	for _, test := range []struct {
		sizes, want []int
		cut         bool
	}{
		{nil, nil, false},
		{[]int{3, 0, 2}, []int{3, 0, 2}, false},
		{[]int{3, 2, 1}, []int{3, 2, 0}, true},
		{[]int{3, 4, 2}, []int{3, 0, 2}, true}, // a server that is left out takes no room
		{[]int{6, 1}, []int{0, 1}, true},
	} {
		config, all := &configs.Config{}, map[string]Listing{}
		for i, n := range test.sizes {
			config.Servers = append(config.Servers, upstream.Settings{Name: fmt.Sprint(i)})
			all[fmt.Sprint(i)] = Listing{Listed: true, Tools: make([]*tool.Tool, n)}
		}
		cut := CutTo(all, config, 5)
		var got []int
		for i, s := range config.Servers {
			n := len(all[s.Name].Tools)
			got = append(got, n)
			if all[s.Name].Listed != (n == test.sizes[i]) {
				t.Errorf("of %v %d is listed: %v", test.sizes, i, all[s.Name].Listed)
			}
		}
		if cut != test.cut || !slices.Equal(got, test.want) {
			t.Errorf("of %v are left %v, cut: %v", test.sizes, got, cut)
		}
	}
}
