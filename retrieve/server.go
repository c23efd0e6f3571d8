package retrieve

import (
	"encoding/json"
	"time"

	"toolfinch/tool"
)

// Server is one upstream's content for a catalog. The catalog names the tools that have no name.
type Server struct {
	Name         string
	Description  string
	Folders      bool                    // its skills are from the owner's folders
	Skills       []tool.ID               // all skills that the server lists, also those left out of Tools
	Tools        []*tool.Tool            // all kinds, each in listed order; nil while never listed
	Prefix       *string                 // prefix of exposed names; nil for the server's name, "" for none
	Instructions string                  // the server's instructions for use
	Capabilities json.RawMessage         // the object as the server sent it; nil while unknown
	Cache        map[tool.Kind]CacheHint // hints that came with the server's lists
	// Excluded, if set, reports whether an unlisted resource is left out.
	Excluded func(id tool.ID) bool
	Unlisted Unlisted // selects the unlisted URIs that are sent to the server
	Held     []Held   // definitions that wait for approval

	summary *summary // of Tools; nil until summarize
}

// Contents are the input of a Catalog.
type Contents struct {
	Servers  []Server
	Reserved []string // names of meta-tools
	Pins     []string // globs over exposed names and "server.name"; matching tools are listed from the start

	listed map[string]bool  // further tools that are listed from the start, by name
	hidden map[tool.ID]bool // tools that can be called, but are neither listed nor found
	plain  map[string]bool  // names that another catalog made: searches treat them as default names
}

// CacheHint says how long a list of a server may be cached, and whether for everybody.
type CacheHint struct {
	TTL    time.Duration
	Public bool
}

// Unlisted selects the URIs that are sent to a server that does not list them. A URI from one of its templates is
// always sent.
type Unlisted int

// The values of Unlisted.
const (
	UnlistedNamed    Unlisted = iota // URIs that name the server, and UnlistedOnly
	UnlistedOnly                     // URIs that name no server, if no other server has resources
	UnlistedTemplate                 // no URI
)

// Held is a definition that waits for the owner's approval. It is not found, listed, called or read; an error for
// its name says why.
type Held struct {
	*tool.Tool        // with the view's name, if the view renames it
	Why        string // completes a sentence that begins with the ID: "was changed by its server"
	// Quiet excludes it from the count in answers of searches.
	Quiet bool
}

// HeldByName returns the held definitions of a server, each name once: combined views may repeat one.
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

// summary is derived from the tools of one Server.
type summary struct {
	tools    []*tool.Tool
	nonTools []*tool.Tool // prompts, resources and templates
	apps     bool         // some tool shows an app
	named    bool         // a view has named some tool
}

// summarize returns the server's summary, and caches it.
func (s *Server) summarize() *summary {
	if s.summary != nil && len(s.summary.tools) == len(s.Tools) && (len(s.Tools) == 0 || tool.Same(s.summary.tools, s.Tools)) {
		return s.summary
	}
	s.summary = &summary{tools: s.Tools}
	for _, t := range s.Tools {
		if t.Def.ID.Kind != tool.KindTool {
			s.summary.nonTools = append(s.summary.nonTools, t)
		} else if t.Name != "" {
			s.summary.named = true
		}
		s.summary.apps = s.summary.apps || t.Def.App.Shown
	}
	return s.summary
}

func descriptions(servers []Server) map[string]string {
	about := make(map[string]string, len(servers))
	for _, s := range servers {
		about[s.Name] = s.Description
	}
	return about
}

// claims returns the IDs of tools without a name, the names of the other tools, and the configured prefixes of
// servers.
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

// prefixesOf returns the configured prefixes by server.
func prefixesOf(servers []Server) map[string]string {
	prefix := map[string]string{}
	for _, s := range servers {
		if s.Prefix != nil {
			prefix[s.Name] = *s.Prefix
		}
	}
	return prefix
}
