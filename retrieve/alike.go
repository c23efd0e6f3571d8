package retrieve

import (
	"strings"

	"toolfinch/tool"
)

// Alike is what a server may understand by the URI of a resource that it does not list.
type Alike struct {
	ID tool.ID // in another spelling, or of what is listed
	// Equal says that the URI stands for it by RFC 3986, or leads out of a folder to it.
	Equal bool
}

// Alike returns what a server may understand by the URI of a resource that it does not
// list: other spellings (tool.Spellings), in their case and in lower case, and the
// resources and templates that it lists in one of them.
func (o *others) Alike(id tool.ID) (all []Alike) {
	listed := o.alike()
	seen := map[tool.ID]bool{id: true}
	add := func(id tool.ID, equal bool) {
		if !seen[id] {
			seen[id] = true
			all = append(all, Alike{id, equal})
		}
	}
	for uri, more := id.Name, true; more; _, uri, more = splitURI(uri) { // the server may be a toolfinch, too
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

// climbs reports whether a URI has "..", however it is written: a server may be led out of
// the folder with which it begins.
func climbs(uri string) bool { return strings.Contains(tool.UnescapeURI(uri), "..") }
