package view

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	"toolfinch/tool"
)

var expression = regexp.MustCompile(`\{[^{}]*\}`)

// Excludes reports whether the view leaves out a tool, prompt or resource that no
// list has. A pattern that names a template also matches the URIs made from it.
func (s *Settings) Excludes(id tool.ID) bool {
	patterns := slices.Clone(s.Exclude)
	for i := range patterns {
		patterns[i].Glob = expression.ReplaceAllString(patterns[i].Glob, "*")
	}
	return !s.IncludeAll || excluded(patterns, id)
}

// Restricts reports whether the view may leave out something of a server.
func (s *Settings) Restricts(server string) bool {
	return !s.IncludeAll || slices.ContainsFunc(s.Exclude, func(p Pattern) bool { return p.concerns(server) })
}

// excluded reports whether one of the patterns is for id.
func excluded(patterns []Pattern, id tool.ID) bool {
	var uris []string
	return slices.ContainsFunc(patterns, func(p Pattern) bool {
		switch {
		case !p.concerns(id.Server):
			return false
		case matches(p.Glob, id.String()):
			return true
		case id.Kind != tool.KindResource && id.Kind != tool.KindTemplate:
			return false
		case uris == nil:
			uris = spellings(id.Name)
		}
		return p.matchesAny(id.Server, uris)
	})
}

// concerns reports whether the pattern may be for something of a server.
func (p Pattern) concerns(server string) bool {
	i := strings.IndexAny(p.Glob, `*?[\`)
	if i < 0 {
		return strings.HasPrefix(p.Glob, server+".")
	}
	return strings.HasPrefix(p.Glob[:i], server+".") || strings.HasPrefix(server+".", p.Glob[:i])
}

// matchesAny reports whether the pattern is for one of the spellings of a
// server's resource.
func (p Pattern) matchesAny(server string, uris []string) bool {
	glob := p.Glob
	if uri, own := strings.CutPrefix(glob, server+"."); own {
		glob = server + "." + strings.ToLower(tool.NormalURI(uri))
	} else {
		glob, server = strings.ToLower(glob), strings.ToLower(server)
	}
	return slices.ContainsFunc(uris, func(uri string) bool { return matches(glob, server+"."+uri) })
}

// spellings returns, in lower case, the URIs that a server may understand by a URI:
// its normal form (RFC 3986), and its forms for servers that decode every escape,
// read "\" as "/", or ignore the query or all but the path's segments.
func spellings(uri string) []string {
	normal := tool.NormalURI(uri)
	all := []string{normal}
	for _, uri := range []string{uri, normal} {
		decoded := tool.NormalURI(strings.ReplaceAll(tool.UnescapeURI(uri), `\`, "/"))
		path := decoded
		if i := strings.IndexFunc(path, func(r rune) bool { return strings.ContainsRune("?#;", r) || unicode.IsControl(r) }); i >= 0 {
			path = path[:i]
		}
		all = append(all, decoded, path, plainPath(path))
	}
	for i := range all {
		all[i] = strings.ToLower(all[i])
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// plainPath is a URI without user and port, without empty segments, and without
// the spaces and dots at its end, which some file systems ignore.
func plainPath(uri string) string {
	scheme, rest, _ := strings.Cut(uri, ":")
	authority := ""
	if afterSlashes, ok := strings.CutPrefix(rest, "//"); ok {
		authority, rest, _ = strings.Cut(afterSlashes, "/")
		authority, _, _ = strings.Cut(authority[strings.LastIndexByte(authority, '@')+1:], ":")
	}
	if scheme == "file" {
		authority = "" // RFC 8089: file:/x, file:///x and file://localhost/x are one file
	}
	segments := strings.FieldsFunc(rest, func(r rune) bool { return r == '/' })
	return strings.TrimRight(scheme+"://"+authority+"/"+strings.Join(segments, "/"), " ./")
}
