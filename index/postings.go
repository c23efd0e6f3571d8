package index

import (
	"github.com/RoaringBitmap/roaring/v2"
	library "github.com/blevesearch/scorch_segment_api/v2"
)

// found are the live documents that have a term in one of several fields.
type found struct {
	lists []list
	count uint64
}

// list are those of one field and piece.
type list struct {
	library.PostingsList
	from int // the first number of the piece
}

// dictionary is that of a field in one piece.
type dictionary struct {
	library.TermDictionary
	gone *roaring.Bitmap
	from int
}

// dictionaries returns those of a field, which the search keeps.
func (r *ranking) dictionaries(field string) ([]dictionary, error) {
	if all, known := r.fields[field]; known {
		return all, nil
	}
	all := make([]dictionary, len(r.x.pieces))
	for i, p := range r.x.pieces {
		one, err := p.Dictionary(field)
		if err != nil {
			return nil, err
		}
		all[i] = dictionary{one, p.gone, r.x.from[i]}
	}
	if r.fields == nil {
		r.fields = map[string][]dictionary{}
	}
	r.fields[field] = all
	return all, nil
}

// find looks a term up.
func (r *ranking) find(fields []string, term string) (found, error) {
	var f found
	for _, field := range fields {
		all, err := r.dictionaries(field)
		if err != nil {
			return f, err
		}
		for _, in := range all {
			if err := f.add(in, term); err != nil {
				return f, err
			}
		}
	}
	return f, nil
}

// add looks a term up in one dictionary.
func (f *found) add(in dictionary, term string) error {
	postings, err := in.PostingsList([]byte(term), in.gone, nil)
	if err != nil {
		return err
	}
	if n := postings.Count(); n > 0 {
		f.lists = append(f.lists, list{postings, in.from})
		f.count += n
	}
	return nil
}

// postings calls do for every live document that has term in one of fields,
// with the number of such documents. A document has each term in one of them at
// most.
func (r *ranking) postings(fields []string, term string, do func(found uint64, doc int, freq uint64)) error {
	f, err := r.find(fields, term)
	if err != nil {
		return err
	}
	return f.each(func(doc int, freq uint64) { do(f.count, doc, freq) })
}

// each calls do for every document.
func (f found) each(do func(doc int, freq uint64)) error {
	var reused library.PostingsIterator
	for _, l := range f.lists {
		reused = l.Iterator(true, false, false, reused)
		for {
			next, err := reused.Next()
			if err != nil {
				return err
			}
			if next == nil {
				break
			}
			do(l.from+int(next.Number()), next.Frequency())
		}
	}
	return nil
}

// has reports whether one of the documents, which are sorted, has a term.
func (r *ranking) has(docs []int, term string) (bool, error) {
	f, err := r.find(r.grouped(fieldTerms), term)
	if err != nil {
		return false, err
	}
	for _, l := range f.lists {
		postings := l.Iterator(false, false, false, nil)
		last := -1 // where the iterator stands
		for _, doc := range docs {
			number := doc - l.from
			if number < 0 || number < last {
				continue
			}
			if number > last {
				at, err := postings.Advance(uint64(number))
				if err != nil {
					return false, err
				}
				if at == nil {
					break
				}
				last = int(at.Number())
			}
			if last == number {
				return true, nil
			}
		}
	}
	return false, nil
}

// rarity is that of a term.
func (r *ranking) rarity(term string) (float64, error) {
	f, err := r.find(r.grouped(fieldTerms), term)
	return rarity(r.total, int(f.count)), err
}
