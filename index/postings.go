package index

import (
	"slices"
	"strings"
)

// Bounds of the decoded postings of a segment: some postings per document, plus a constant. A list counts a few
// more postings than it has. At the bound the cache is emptied.
const (
	decodedPerDoc = 48
	decodedMore   = 1 << 14
	listOverhead  = 16
)

// list returns the documents that have a term in a field, deleted ones too. The caller must not change the list.
func (s *segment) list(field, term string) ([]posting, error) {
	key := listKey{field, term}
	s.decoded.mu.RLock()
	list, known := s.decoded.lists[key]
	s.decoded.mu.RUnlock()
	if known {
		return list, nil
	}
	list, err := s.decode(field, term)
	if err != nil {
		return nil, err
	}
	s.decoded.mu.Lock()
	defer s.decoded.mu.Unlock()
	more := len(list) + listOverhead
	if s.decoded.lists == nil || s.decoded.size+more > decodedPerDoc*len(s.prints)+decodedMore {
		s.decoded.lists, s.decoded.size = map[listKey][]posting{}, 0
	}
	if _, known := s.decoded.lists[key]; !known {
		s.decoded.lists[listKey{field, strings.Clone(term)}] = list // the term may share the memory of a long query
		s.decoded.size += more
	}
	return list, nil
}

func (s *segment) decode(field, term string) ([]posting, error) {
	dictionary, err := s.Dictionary(field)
	if err != nil {
		return nil, err
	}
	found, err := dictionary.PostingsList([]byte(term), nil, nil)
	if err != nil {
		return nil, err
	}
	list := make([]posting, 0, found.Count())
	for at := found.Iterator(true, false, false, nil); ; {
		next, err := at.Next()
		if err != nil || next == nil {
			return list, err
		}
		list = append(list, posting(next.Number()<<freqBits|min(next.Frequency(), 1<<freqBits-1)))
	}
}

// matches are the documents that have a term in one of several fields: a list for each field and piece.
type matches struct {
	lists []list
	count int // of documents
}

type list struct {
	postings []posting
	piece    int
}

// find looks a term up.
func (x *Snapshot) find(fields []string, term string) (matches, error) {
	var f matches
	for _, field := range fields {
		for i, p := range x.pieces {
			postings, err := p.list(field, term)
			if err != nil {
				return f, err
			}
			if len(postings) > 0 {
				f.lists = append(f.lists, list{postings, i})
				f.count += p.here(postings)
			}
		}
	}
	return f, nil
}

// here returns how many of the documents are still in the index.
func (p *piece) here(postings []posting) int {
	if p.gone == nil {
		return len(postings)
	}
	n := 0
	for _, at := range postings {
		if p.docs[at.doc()] != nil {
			n++
		}
	}
	return n
}

// each calls do for every document.
func (x *Snapshot) eachMatch(f matches, do func(doc, freq int)) {
	for _, l := range f.lists {
		p, from := x.pieces[l.piece], x.from[l.piece]
		for _, at := range l.postings {
			if p.docs[at.doc()] != nil {
				do(from+at.doc(), at.freq())
			}
		}
	}
}

// postings calls do for every document that has term in one of fields. A document has each term in at most one of
// them.
func (x *Snapshot) postings(fields []string, term string, do func(doc, freq int)) error {
	f, err := x.find(fields, term)
	if err == nil {
		x.eachMatch(f, do)
	}
	return err
}

// freq returns how often a document of the snapshot has the term.
func (x *Snapshot) freq(f matches, doc int) int {
	for _, l := range f.lists {
		number := doc - x.from[l.piece]
		if number < 0 || number >= len(x.pieces[l.piece].docs) {
			continue
		}
		at, _ := slices.BinarySearch(l.postings, posting(number)<<freqBits)
		if at < len(l.postings) && l.postings[at].doc() == number {
			return l.postings[at].freq()
		}
	}
	return 0
}
