package index

import (
	"slices"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// fieldVerb has one term for a tool whose name says that it destroys or changes something.
const (
	fieldVerb   = "verb"
	destroying  = "destroying"
	changing    = "changing"
	destruction = conceptMark + "delete" // the concept of the verbs that destroy
)

// changes are the concepts of the other verbs that change something.
var changes = []string{conceptMark + "create", conceptMark + "update", conceptMark + "rename"}

// verbOf returns what the name of a definition says that it does; "" for nothing of the two.
func (a *analyzer) verbOf(def *tool.Def) (verb string) {
	for _, w := range a.words(rawjson.Head(ownName(def), 4*maxWord)) {
		switch {
		case w.concept < 0:
		case a.terms[w.concept] == destruction:
			return destroying
		case slices.Contains(changes, a.terms[w.concept]):
			verb = changing
		}
	}
	return verb
}
