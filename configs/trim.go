package configs

import (
	"toolfinch/configs/document"
	"toolfinch/view"
)

// trimming is how much of a description is listed: view.TrimOff is written 0.
type trimming struct{ number[int] }

var trim = trimming{number[int]{0, 100_000}}

const trimDoc = "longest tool description in lists, in bytes; see [views.md](views.md#long-descriptions)"

func (k trimming) read(d *decoder, n *document.Node, label string, to *int) bool {
	ok := k.number.read(d, n, label, to)
	if ok && *to == 0 {
		*to = view.TrimOff
	}
	return ok
}

func (k trimming) show(s *secrets, i int) *document.Node {
	switch i {
	case 0:
		return nil
	case view.TrimOff:
		i = 0
	}
	return k.number.show(s, i)
}
