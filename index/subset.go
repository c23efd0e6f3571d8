package index

// Subset is some documents of one Snapshot. It never changes.
type Subset struct{ has []bool } // by the library's number

// Subset returns the documents that have one of the names.
func (s *Snapshot) Subset(names []string) (*Subset, error) {
	all := &Subset{}
	if s.reader == nil {
		return all, nil
	}
	for _, name := range names {
		id, err := s.reader.InternalID(name)
		if err != nil {
			return nil, err
		}
		if id == nil {
			continue
		}
		doc := int(id.Value())
		if more := doc + 1 - len(all.has); more > 0 {
			all.has = append(all.has, make([]bool, more)...)
		}
		all.has[doc] = true
	}
	return all, nil
}

// keep returns the scores of the subset; others are 0.
func (s *Subset) keep(scores []float64) []float64 {
	kept := make([]float64, len(scores))
	for doc := range min(len(scores), len(s.has)) {
		if s.has[doc] {
			kept[doc] = scores[doc]
		}
	}
	return kept
}
