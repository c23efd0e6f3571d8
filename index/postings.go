package index

import (
	"errors"

	api "github.com/blevesearch/bleve_index_api"
)

// found are the live documents that have a term in one of several fields.
type found struct {
	postings []api.TermFieldReader // by field
	count    uint64
}

// find looks a term up. The caller closes the result, on an error, too.
func (r *ranking) find(fields []string, term string) (found, error) {
	var f found
	for _, field := range fields {
		postings, err := r.reader.TermFieldReader(r.ctx, []byte(term), field, true, false, false)
		if err != nil {
			return f, err
		}
		f.postings = append(f.postings, postings)
		f.count += postings.Count()
	}
	return f, nil
}

func (f found) close() (err error) {
	for _, postings := range f.postings {
		err = errors.Join(err, postings.Close())
	}
	return err
}

// postings calls do for every live document that has term in one of fields,
// with the number of such documents. A document has each term in one of them at
// most.
func (r *ranking) postings(fields []string, term string, do func(found uint64, doc int, freq uint64)) error {
	f, err := r.find(fields, term)
	if err != nil {
		return errors.Join(err, f.close())
	}
	return f.each(func(doc int, freq uint64) { do(f.count, doc, freq) })
}

// each calls do for every document, and closes f.
func (f found) each(do func(doc int, freq uint64)) error {
	defer f.close()
	for _, postings := range f.postings {
		var at api.TermFieldDoc
		for {
			next, err := postings.Next(at.Reset())
			if err != nil {
				return err
			}
			if next == nil {
				break
			}
			do(int(next.ID.Value()), next.Freq)
		}
	}
	return nil
}

// has reports whether one of the documents, which are sorted, has a term.
func (r *ranking) has(docs []int, term string) (bool, error) {
	f, err := r.find(r.grouped(fieldTerms), term)
	for _, postings := range f.postings {
		for i := 0; err == nil && i < len(docs); i++ {
			id := api.NewIndexInternalID(nil, uint64(docs[i]))
			var at *api.TermFieldDoc
			if at, err = postings.Advance(id, nil); err == nil && at != nil && at.ID.Equals(id) {
				return true, f.close()
			}
		}
	}
	return false, errors.Join(err, f.close())
}

// rarity is that of a term.
func (r *ranking) rarity(term string) (float64, error) {
	f, err := r.find(r.grouped(fieldTerms), term)
	return rarity(r.total, int(f.count)), errors.Join(err, f.close())
}
