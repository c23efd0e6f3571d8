package index

import (
	"slices"
	"strings"
	"sync"
	"unicode"

	"toolfinch/internal/rawjson"
)

// posting is a document of a segment and how often it has a term. A segment has fewer than two million documents,
// and the weights of texts bound the count of a term at 1,505 sixteenths.
type posting uint32

const freqBits = 11

func (p posting) doc() int  { return int(p >> freqBits) }
func (p posting) freq() int { return int(p & (1<<freqBits - 1)) }

// decoded caches the postings of a segment in the form that searches read, in the order of documents. The library
// reads its own form ten times slower, and queries repeat words: a list is decoded when it is first needed. The
// zero value is empty.
type decoded struct {
	mu    sync.RWMutex // guards the fields below; never held while decoding
	lists map[listKey][]posting
	size  int // postings in lists
}

type listKey struct{ field, term string }

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
func (r *ranking) find(fields []string, term string) (matches, error) {
	var f matches
	for _, field := range fields {
		for i, p := range r.x.pieces {
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
func (r *ranking) each(f matches, do func(doc, freq int)) {
	for _, l := range f.lists {
		p, from := r.x.pieces[l.piece], r.x.from[l.piece]
		for _, at := range l.postings {
			if p.docs[at.doc()] != nil {
				do(from+at.doc(), at.freq())
			}
		}
	}
}

// postings calls do for every document that has term in one of fields. A document has each term in at most one of
// them.
func (r *ranking) postings(fields []string, term string, do func(doc, freq int)) error {
	f, err := r.find(fields, term)
	if err == nil {
		r.each(f, do)
	}
	return err
}

// freq returns how often a document of the snapshot has the term.
func (r *ranking) freq(f matches, doc int) int {
	for _, l := range f.lists {
		number := doc - r.x.from[l.piece]
		if number < 0 || number >= len(r.x.pieces[l.piece].docs) {
			continue
		}
		at, _ := slices.BinarySearch(l.postings, posting(number)<<freqBits)
		if at < len(l.postings) && l.postings[at].doc() == number {
			return l.postings[at].freq()
		}
	}
	return 0
}

// has reports whether one of the documents has a term.
func (r *ranking) has(docs []int, term string) (bool, error) {
	f, err := r.find(r.grouped(fieldTerms), term)
	return slices.ContainsFunc(docs, func(doc int) bool { return r.freq(f, doc) > 0 }), err
}

// rarity returns the rarity of a term.
func (r *ranking) rarity(term string) (float64, error) {
	f, err := r.find(r.grouped(fieldTerms), term)
	return rarity(r.total, f.count), err
}

// resembling finds names that contain the query: a half-typed word, or a word that occurs only in compounds.
func (r *ranking) resembling(name string) {
	if len(name) < 2 || stopWords[name] {
		return
	}
	for i, p := range r.x.pieces {
		p.names().containing(name, func(number, length int) {
			if e := p.docs[number]; e != nil && slices.Contains(r.groups, groupOf(e.Def.ID.Kind)) {
				r.scores[r.x.from[i]+number] += resemblance * float64(len(name)) / float64(length)
			}
		})
	}
}

// exact ranks the documents with this name above all others.
func (r *ranking) exact(text string) error {
	name, text := squeeze(text), strings.TrimSpace(text)
	if name == "" {
		return nil
	}
	r.levels = make(map[int]int)
	err := r.postings(r.grouped(fieldNames), name, func(doc, level int) {
		if r.allows(doc) {
			r.levels[doc] = level
		}
	})
	if err != nil || len(r.levels) == 0 {
		return err
	}
	top := r.top()
	r.lifts = make(map[int]float64)
	for doc, level := range r.levels {
		level = r.spelled(doc, level, text)
		if level < spelledName && strings.Contains(text, " ") && r.isOld(doc) {
			delete(r.levels, doc) // "read file" need not mean the deprecated read_file; readFile does
			continue
		}
		r.sharpen(doc)
		r.levels[doc] = level
		r.lifts[doc] = float64(level)*(1+top) + max(0, -r.scores[doc])
		r.scores[doc] += r.lifts[doc]
	}
	return nil
}

// spelled returns the level of a document one of whose names is text in some spelling.
func (r *ranking) spelled(doc, level int, text string) int {
	switch d := r.x.at(doc).Document; text {
	case d.exposed(), d.Def.ID.String():
		return spelledID
	case d.Def.ID.Name:
		return max(level, spelledName)
	}
	return level
}

// squeeze reduces a name to its letters and digits: search_code, "Search code" and searchCode become the same name.
func squeeze(name string) string {
	return strings.ToLower(strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return -1
	}, string(fold([]byte(rawjson.Head(name, 4*maxWord))))))
}
