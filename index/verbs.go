package index

import (
	"cmp"
	"slices"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// fieldVerbs has the concepts of the verbs in a tool's name.
const fieldVerbs = "verbs"

// destruction is the concept of the verbs that destroy, changes are those of all that change something.
const destruction = conceptMark + "delete"

var changes = []string{destruction, conceptMark + "create", conceptMark + "update", conceptMark + "rename"}

// verbsOf counts the verbs in the name of a definition that change something.
func (a *analyzer) verbsOf(def *tool.Def) (all []count) {
	for _, w := range a.words(rawjson.Head(ownName(def), 4*maxWord)) {
		if w.concept >= 0 && slices.Contains(changes, a.terms[w.concept]) {
			all = append(all, count{a.terms[w.concept], 1})
		}
	}
	slices.SortFunc(all, func(a, b count) int { return cmp.Compare(a.term, b.term) })
	return slices.Compact(all)
}

// unwanted returns the tools that do what the query does not ask for: that destroy, or change something although it
// only reads.
func (r *ranking) unwanted(q request) (map[int]bool, error) {
	all := map[int]bool{}
	changing := slices.ContainsFunc(changes, func(verb string) bool { return q.terms[verb] != nil })
	for _, verb := range changes {
		if q.terms[verb] != nil || verb != destruction && (changing || !q.reads) {
			continue
		}
		if err := r.x.postings(r.grouped(fieldVerbs), verb, func(doc, _ int) { all[doc] = true }); err != nil {
			return nil, err
		}
	}
	return all, nil
}
