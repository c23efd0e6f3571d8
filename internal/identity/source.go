package identity

import "strings"

// KeySource is the source of the groups and IDs of API keys, as an issuer is that of its tokens.
const KeySource = "key"

// sourceEnds ends the source of a name: an issuer, or KeySource.
const sourceEnds = "|"

// From is a name as its source gives it: a subject or a group.
func From(source, name string) string { return source + sourceEnds + name }

// AllFrom are names of one source.
func AllFrom(source string, names []string) []string {
	var all []string
	for _, name := range names {
		all = append(all, From(source, name))
	}
	return all
}

// Of reports whether a source gives a name.
func Of(source, name string) bool { return strings.HasPrefix(name, source+sourceEnds) }

// Label is what policies call the principal of an ID: "key|NAME" for an API key, whichever of
// the keys that had the name; else the ID.
func Label(id string) string {
	if !Of(KeySource, id) {
		return id
	}
	parts := strings.SplitN(id, sourceEnds, 3)
	return From(KeySource, parts[1])
}
