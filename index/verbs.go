package index

import (
	"slices"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// fieldVerbs has the concepts of the verbs in a tool's name.
const fieldVerbs = "verbs"

// destruction is the concept of the verbs that destroy, changes are those of all that change something.
const destruction = conceptMark + "delete"

var changes = []string{destruction, conceptMark + "create", conceptMark + "update", conceptMark + "rename"}

// verbsOf returns the concepts of the verbs in the name of a definition that change something, each once.
func (a *analyzer) verbsOf(def *tool.Def) (all []string) {
	for _, w := range a.words(rawjson.Head(ownName(def), 4*maxWord)) {
		if w.concept >= 0 && slices.Contains(changes, a.terms[w.concept]) && !slices.Contains(all, a.terms[w.concept]) {
			all = append(all, a.terms[w.concept])
		}
	}
	return all
}
