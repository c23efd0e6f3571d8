package view

import (
	"regexp"
	"slices"
	"strings"

	"toolfinch/tool"
)

var expression = regexp.MustCompile(`\{[^{}]*\}`)

// Excludes reports whether the view leaves out an item that is not listed. A pattern for a template also excludes the
// template's URIs.
func (s *Settings) Excludes(id tool.ID) bool {
	patterns := slices.Clone(s.Exclude)
	for i := range patterns {
		patterns[i].Glob = expression.ReplaceAllString(patterns[i].Glob, "*")
	}
	return !s.IncludeAll || excluded(patterns, id)
}

// Restricts reports whether the view may leave out items of a server.
func (s *Settings) Restricts(server string) bool {
	return !s.IncludeAll || slices.ContainsFunc(s.Exclude, func(p Pattern) bool { return p.concerns(server) })
}

func excluded(patterns []Pattern, id tool.ID) bool {
	var uris []string
	return slices.ContainsFunc(patterns, func(p Pattern) bool {
		switch {
		case !p.concerns(id.Server):
			return false
		case matches(p.Glob, id.String()):
			return true
		case id.Kind != tool.KindResource && id.Kind != tool.KindTemplate && id.Kind != tool.KindSkill:
			return false
		case uris == nil:
			uris = tool.Spellings(id.Name)
			for i := range uris {
				uris[i] = strings.ToLower(uris[i])
			}
		}
		return p.matchesAny(id.Server, uris)
	})
}

// concerns reports whether the pattern may match items of a server.
func (p Pattern) concerns(server string) bool {
	i := strings.IndexAny(p.Glob, `*?[\`)
	if i < 0 {
		return strings.HasPrefix(p.Glob, server+".")
	}
	return strings.HasPrefix(p.Glob[:i], server+".") || strings.HasPrefix(server+".", p.Glob[:i])
}

// matchesAny reports whether the pattern matches a spelling of a server's resource. uris are the spellings, in lower
// case.
func (p Pattern) matchesAny(server string, uris []string) bool {
	glob := p.Glob
	if uri, own := strings.CutPrefix(glob, server+"."); own {
		glob = server + "." + strings.ToLower(tool.NormalURI(uri))
	} else {
		glob, server = strings.ToLower(glob), strings.ToLower(server)
	}
	return slices.ContainsFunc(uris, func(uri string) bool { return matches(glob, server+"."+uri) })
}
