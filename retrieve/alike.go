package retrieve

import (
	"strings"

	"toolfinch/tool"
)

// Alike is another resource that a server may take the URI of an unlisted resource for.
type Alike struct {
	ID tool.ID // another spelling, or a listed resource
	// Equal says that both URIs are the same by RFC 3986, or that the URI contains "..", which may lead to this
	// one.
	Equal bool
}

// Alike returns the resources that a server may take an unlisted URI for: other spellings (tool.Spellings), in
// their case and in lower case, and listed resources and templates that match one of them.
func (o *nonTools) Alike(id tool.ID) (all []Alike) {
	listed := o.byForms()
	seen := map[tool.ID]bool{id: true}
	add := func(id tool.ID, equal bool) {
		if !seen[id] {
			seen[id] = true
			all = append(all, Alike{id, equal})
		}
	}
	for uri, more := id.Name, true; more; _, uri, more = splitURI(uri) { // the server may be another toolfinch
		normal := tool.NormalURI(uri)
		climbs := climbs(uri)
		for _, spelling := range append([]string{uri}, tool.Spellings(uri)...) {
			lower := strings.ToLower(spelling)
			for _, t := range listed[tool.ID{Server: id.Server, Name: lower}] {
				add(t.Def.ID, tool.NormalURI(t.Def.ID.Name) == normal)
			}
			add(tool.ID{Server: id.Server, Name: spelling, Kind: id.Kind}, spelling == normal || climbs)
			add(tool.ID{Server: id.Server, Name: lower, Kind: id.Kind}, false)
		}
	}
	return all
}

// climbs reports whether a URI contains "..", in any encoding: it may lead out of the folder that it begins with.
func climbs(uri string) bool { return strings.Contains(tool.UnescapeURI(uri), "..") }
