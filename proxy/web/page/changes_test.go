package page

import (
	"fmt"
	"testing"

	"toolfinch/tool"
	"toolfinch/trust/pins"
)

// What waits comes first, whatever was rejected before: nobody looks for it behind that.
func TestWhatWaitsComesFirst(t *testing.T) {
	of := func(server string, waiting, rejected int) HeldServer {
		all := HeldServer{Name: server}
		for i := range waiting + rejected {
			r := pins.Report{Held: pins.Held{ID: tool.ID{Server: server, Name: fmt.Sprint(i)}, Raw: []byte("{}")}}
			if i >= waiting {
				r.Rejected = r.Mark()
			}
			all.Reports = append(all.Reports, r)
		}
		return all
	}
	all := []HeldServer{of("a", 1, 2*perPage), of("b", perPage, 0)}
	var got []string
	for offset := 0; offset < 3*perPage+1; offset += perPage {
		c := partOf(all, offset)
		line := fmt.Sprintf("%d wait:", c.N)
		for _, one := range c.Servers {
			line += fmt.Sprintf(" %s %d %d %t", one.Name, len(one.Waiting), len(one.Rejected), one.More)
		}
		got = append(got, line)
	}
	want := []string{"51 wait: a 1 0 false b 49 0 true", "51 wait: a 0 49 true b 1 0 true", "51 wait: a 0 50 true", "51 wait: a 0 1 true"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
}
