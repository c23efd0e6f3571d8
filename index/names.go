package index

import (
	"slices"
	"strings"
)

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
	err := r.x.postings(r.grouped(fieldNames), name, func(doc, level int) {
		if r.allowed.allows(doc) {
			r.levels[doc] = level
		}
	})
	if err != nil || len(r.levels) == 0 {
		return err
	}
	top := r.top()
	r.lifts = make(map[int]float64)
	for doc, level := range r.levels {
		level = r.x.spelled(doc, level, text)
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
func (x *Snapshot) spelled(doc, level int, text string) int {
	switch d := x.at(doc).Document; text {
	case d.exposed(), d.Def.ID.String():
		return spelledID
	case d.Def.ID.Name:
		return max(level, spelledName)
	}
	return level
}
