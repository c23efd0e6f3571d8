package index

import (
	"sort"
)

// Snapshot is one set of documents of an Index. It is immutable, except that vectors come and go, as texts are
// embedded and later sets drop theirs.
//
// Documents are numbered over all pieces, with gaps.
type Snapshot struct {
	index  *Index
	pieces []*piece
	from   []int // the first number of each piece
	end    int   // the number after the last
	live   int   // documents
}

// snapshot returns the present documents; the caller holds making or write.
func (x *Index) snapshot() *Snapshot {
	s := &Snapshot{index: x}
	for _, p := range x.pieces {
		s.add(p)
	}
	return s
}

func (s *Snapshot) add(p *piece) {
	s.pieces, s.from = append(s.pieces, p), append(s.from, s.end)
	s.end += len(p.docs)
	s.live += p.live
}

// Len returns the number of documents.
func (s *Snapshot) Len() int { return s.live }

// at returns the document of a number.
func (s *Snapshot) at(doc int) *entry {
	i := sort.SearchInts(s.from, doc+1) - 1
	return s.pieces[i].docs[doc-s.from[i]]
}

// each calls do with every document.
func (s *Snapshot) each(do func(doc int, e *entry)) {
	for i, p := range s.pieces {
		for number, e := range p.docs {
			if e != nil {
				do(s.from[i]+number, e)
			}
		}
	}
}

// Subset returns the documents with the names.
func (s *Snapshot) Subset(names []string) *Subset {
	wanted := make(map[string]bool, len(names))
	for _, name := range names {
		wanted[name] = true
	}
	all := &Subset{make([]bool, s.end)}
	s.each(func(doc int, e *entry) { all.has[doc] = wanted[e.Name] })
	return all
}
