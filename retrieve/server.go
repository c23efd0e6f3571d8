package retrieve

import (
	"encoding/json"
	"time"

	"toolfinch/tool"
)

// Server is what one upstream contributes to the catalog. A tool with a name is
// exposed under that name; the catalog names the others.
type Server struct {
	Name         string
	Description  string
	Tools        []*tool.Tool            // of all kinds, of each in listed order; nil while never listed
	Prefix       *string                 // what exposed names begin with; nil for its name, "" for nothing
	Instructions string                  // its own instructions for use
	Capabilities json.RawMessage         // the object as the server sent it; nil while unknown
	Cache        map[tool.Kind]CacheHint // the hints that it gave with its lists
	// Excluded, if set, reports whether a resource that Tools does not list is left
	// out.
	Excluded func(id tool.ID) bool
	Unlisted Unlisted // which URIs that it does not list are sent to it
	Held     []Held   // what of it waits for approval

	has *has // of Tools, once a catalog looked
}

// Contents are what a Catalog is made of.
type Contents struct {
	Servers  []Server
	Reserved []string // names that meta-tools have
	Pins     []string // globs over exposed names and "server.name" of tools that are listed from the start

	listed map[string]bool  // names of further tools that are listed from the start
	hidden map[tool.ID]bool // may be called, and is neither listed nor found
	plain  map[string]bool  // names in Servers that another catalog made: they are not searched as given ones are
}

// CacheHint is a server's statement how long one of its lists may be cached, and
// whether for everybody.
type CacheHint struct {
	TTL    time.Duration
	Public bool
}

// Unlisted selects which URIs are sent to a server that does not list them, beside
// those that come from one of its templates.
type Unlisted int

// The values of Unlisted.
const (
	UnlistedNamed    Unlisted = iota // those that name the server, and those of UnlistedOnly
	UnlistedOnly                     // those that name no server, while no other has resources
	UnlistedTemplate                 // none
)

// Held is a definition that waits for the owner's approval. Nothing finds, lists, calls
// or reads it; whoever names it is told why.
type Held struct {
	*tool.Tool        // under the name that the view gives it, if it gives one
	Why        string // after its ID: "was changed by its server"
	// Quiet leaves it out of the count that answers of searches have.
	Quiet bool
}

// HeldByName is what is held of a server, once for each name: several views that are served together may have it.
func (s Server) HeldByName() (all []Held) {
	type named struct {
		name string
		id   tool.ID
	}
	there := map[named]bool{}
	for _, h := range s.Held {
		if is := (named{h.Name, h.Def.ID}); !there[is] {
			there[is] = true
			all = append(all, h)
		}
	}
	return all
}

// has is what follows from the tools of a Server alone.
type has struct {
	of     []*tool.Tool
	others []*tool.Tool // those that are prompts, resources or templates
	apps   bool         // it has apps
	named  bool         // some tool has a name
}

// look returns what the server has. It looks once.
func (s *Server) look() *has {
	if s.has != nil && len(s.has.of) == len(s.Tools) && (len(s.Tools) == 0 || tool.Same(s.has.of, s.Tools)) {
		return s.has
	}
	s.has = &has{of: s.Tools}
	for _, t := range s.Tools {
		if t.Def.ID.Kind != tool.KindTool {
			s.has.others = append(s.has.others, t)
		} else if t.Name != "" {
			s.has.named = true
		}
		s.has.apps = s.has.apps || t.Def.App.Shown
	}
	return s.has
}

func descriptions(servers []Server) map[string]string {
	about := make(map[string]string, len(servers))
	for _, s := range servers {
		about[s.Name] = s.Description
	}
	return about
}

// claims returns the IDs of tools without a name, the names of the others, and the
// prefixes of servers that have one.
func claims(servers []Server) (unnamed []tool.ID, given map[string]bool, prefix map[string]string) {
	given = map[string]bool{}
	for _, s := range servers {
		for _, t := range s.Tools {
			switch {
			case t.Def.ID.Kind != tool.KindTool:
			case t.Name != "":
				given[t.Name] = true
			default:
				unnamed = append(unnamed, t.Def.ID)
			}
		}
	}
	return unnamed, given, prefixesOf(servers)
}

// prefixesOf are those of the servers that have one.
func prefixesOf(servers []Server) map[string]string {
	prefix := map[string]string{}
	for _, s := range servers {
		if s.Prefix != nil {
			prefix[s.Name] = *s.Prefix
		}
	}
	return prefix
}
