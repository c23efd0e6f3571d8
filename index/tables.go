package index

import (
	"strings"
	"sync"
	"sync/atomic"
)

// tables hold facts about all documents of a piece, in flat form. Each table is made when it is first needed.
type tables struct {
	facts *lazy[[]docFacts] // by number
	names *lazy[nameLines]
}

func newTables() tables { return tables{&lazy[[]docFacts]{}, &lazy[nameLines]{}} }

// next returns the tables of a piece with fewer documents: made tables are shared.
func (t tables) next() tables { return tables{t.facts.next(), t.names.next()} }

// lazy is a value that is made when it is first needed.
type lazy[T any] struct {
	once sync.Once
	made atomic.Pointer[T]
}

func (l *lazy[T]) get(build func() T) T {
	l.once.Do(func() {
		value := build()
		l.made.Store(&value)
	})
	return *l.made.Load()
}

// next returns the value if it is made, else a new lazy value.
func (l *lazy[T]) next() *lazy[T] {
	if l.made.Load() != nil {
		return l
	}
	return &lazy[T]{}
}

// docFacts is what a search by vectors needs of a document.
type docFacts struct {
	slot           int32
	there, nonTool bool // other: in groupOthers
}

// nameLines are the squeezed names of documents, one per line.
type nameLines struct {
	text  string
	lines []line
}

type line struct {
	end int32 // in the text
	doc int32 // number
}

// containing calls do for each name that contains the squeezed text, with its length.
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
