package index

import (
	"slices"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// fieldDestroys is in documents of tools whose name says that they destroy; its only term has the same name.
const fieldDestroys = "destroys"

// destruction is the concept of the verbs that destroy.
const destruction = conceptMark + "delete"

// destroys reports whether the name of a definition says that it destroys.
func (a *analyzer) destroys(def *tool.Def) bool {
	return slices.ContainsFunc(a.words(rawjson.Head(ownName(def), 4*maxWord)), func(w word) bool {
		return w.concept >= 0 && a.terms[w.concept] == destruction
	})
}
