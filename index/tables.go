package index

import (
	"strings"
	"sync"
)

// tables are what some searches need to know of all documents of a piece, flat. Each is made when
// it is first needed. A piece from which documents were taken has those of the piece before.
type tables struct {
	places func() []place // by number
	names  func() nameLines
}

// place is what a search by vectors needs to know of a document.
type place struct {
	slot         int32
	there, other bool // other: in groupOthers
}

// nameLines are the squeezed names of documents, a line each.
type nameLines struct {
	text  string
	lines []line
}

type line struct {
	end int32 // in the text
	doc int32 // number
}

func newTables(docs []*entry) *tables {
	return &tables{
		sync.OnceValue(func() []place {
			all := make([]place, len(docs))
			for number, e := range docs {
				if e != nil {
					all[number] = place{int32(e.slot), true, groupOf(e.Def.ID.Kind) == groupOthers}
				}
			}
			return all
		}),
		sync.OnceValue(func() nameLines {
			var text strings.Builder
			var lines []line
			for number, e := range docs {
				if e == nil {
					continue
				}
				for _, name := range squeezedNames(e.Document) {
					text.WriteString(name.term + "\n")
					lines = append(lines, line{int32(text.Len()), int32(number)})
				}
			}
			return nameLines{text.String(), lines}
		}),
	}
}

// containing calls do for each name that contains what was squeezed, with its length.
func (n nameLines) containing(squeezed string, do func(doc, length int)) {
	at, start := 0, 0 // of the line
	for i := 0; ; {
		found := strings.Index(n.text[at:], squeezed)
		if found < 0 {
			return
		}
		for at += found; int(n.lines[i].end) <= at; i++ {
			start = int(n.lines[i].end)
		}
		end := int(n.lines[i].end)
		do(int(n.lines[i].doc), end-1-start)
		at = end
	}
}
