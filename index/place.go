package index

import (
	"context"
	"fmt"
)

// place ranks the document Query.Place. Beyond the hits the score alone decides.
func (r *ranking) place(name string, hits []Hit) Place {
	for i, hit := range hits {
		if hit.Name == name {
			return Place{hit, i + 1}
		}
	}
	p := Place{Hit: Hit{Name: name}}
	doc, there := r.x.number(name)
	if !there {
		return p
	}
	r.sharpen(doc)
	if p.Score = round(r.scores[doc]); p.Score > 0 {
		p.Rank = 1
		for other, s := range r.scores {
			if s < p.Score-r.slack-rounding || s == 0 || other == doc {
				continue
			}
			r.sharpen(other)
			if s = round(r.scores[other]); s > p.Score || s == p.Score && r.x.at(other).Name < name {
				p.Rank++
			}
		}
		p.Rank = max(p.Rank, len(hits)+1)
	}
	one := []Hit{p.Hit}
	r.explain(one, []candidate{{Hit: p.Hit, doc: doc}})
	p.Hit = one[0]
	return p
}

// number returns the number of a document.
func (s *Snapshot) number(name string) (number int, there bool) {
	s.each(func(doc int, e *entry) {
		if e.Name == name {
			number, there = doc, true
		}
	})
	return number, there
}

// Instead returns the snapshot with d instead of the document of a name, as an attempt: the Index stays as it is. d
// keeps the vector of that document. The numbers of the others may change, so a Subset is to be made again.
func (s *Snapshot) Instead(ctx context.Context, name string, d Document) (*Snapshot, error) {
	number, there := s.number(name)
	if !there {
		return nil, fmt.Errorf("index: no document %q", name)
	}
	e := &entry{Document: d, slot: s.slotOf(number)}
	made, err := newPiece(ctx, []*entry{e})
	if err != nil {
		return nil, fmt.Errorf("index: %w", err)
	}
	next := &Snapshot{index: s.index}
	for i, p := range s.pieces {
		if at := number - s.from[i]; at >= 0 && at < len(p.docs) {
			p = p.without([]uint32{uint32(at)})
		}
		next.add(p)
	}
	next.add(made)
	return next, nil
}
