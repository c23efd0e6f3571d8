package index

// Subset is some documents of one Snapshot. It never changes.
type Subset struct{ has []bool } // by number

// Subset returns the documents that have one of the names.
func (s *Snapshot) Subset(names []string) *Subset {
	wanted := make(map[string]bool, len(names))
	for _, name := range names {
		wanted[name] = true
	}
	all := &Subset{make([]bool, s.end)}
	s.each(func(doc int, e *entry) { all.has[doc] = wanted[e.Name] })
	return all
}
