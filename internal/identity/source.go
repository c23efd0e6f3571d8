package identity

import "strings"

// KeySource stands for an issuer in the IDs and groups of API keys.
const KeySource = "key"

// sourceEnds separates a source (an issuer, or KeySource) from a name.
const sourceEnds = "|"

// From returns a subject or a group with its source in front.
func From(source, name string) string { return source + sourceEnds + name }

// AllFrom is From for several names of one source.
func AllFrom(source string, names []string) []string {
	var all []string
	for _, name := range names {
		all = append(all, From(source, name))
	}
	return all
}

// Of reports whether a name has a source in front.
func Of(source, name string) bool { return strings.HasPrefix(name, source+sourceEnds) }

// Label returns the name of a principal in policies: "key|NAME" for an API key, else the ID. All keys that ever had a
// name share its label.
func Label(id string) string {
	if !Of(KeySource, id) {
		return id
	}
	parts := strings.SplitN(id, sourceEnds, 3)
	return From(KeySource, parts[1])
}
