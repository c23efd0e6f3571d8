package retrieve

import (
	"encoding/json"
	"net/url"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// scheme begins URIs that name their server.
const scheme = "toolfinch:"

// exposedURI returns the URI or template that clients see: the server's own, if no other server has it. A URI that
// itself begins with scheme, as from another toolfinch, always gets a prefix, so that exposed URIs differ.
func exposedURI(id tool.ID, servers int) string {
	if _, _, prefixed := splitURI(id.Name); servers == 1 && !prefixed {
		return id.Name
	}
	return prefixedURI(id.Server, id.Name)
}

func prefixedURI(server, uri string) string { return scheme + url.PathEscape(server) + "/" + uri }

// splitURI reverses prefixedURI.
func splitURI(uri string) (server, own string, ok bool) {
	if len(uri) < len(scheme) || !strings.EqualFold(uri[:len(scheme)], scheme) {
		return "", "", false
	}
	escaped, own, ok := strings.Cut(uri[len(scheme):], "/")
	server, err := url.PathUnescape(escaped)
	return server, own, ok && err == nil && server != ""
}

// normalURI returns the form of a URI that comparisons use.
func normalURI(uri string) string {
	if server, own, ok := splitURI(uri); ok {
		return prefixedURI(server, tool.NormalURI(own))
	}
	return tool.NormalURI(uri)
}

// withURIs returns a result of resources/read with other URIs in its contents.
func withURIs(result tool.Result, as func(uri string) string) tool.Result {
	var contents []json.RawMessage
	for item := range rawjson.Elements(rawjson.Member(result, "contents")) {
		if uri := rawjson.Text(rawjson.Member(item, "uri")); uri != "" {
			if own, err := rawjson.Set(item, "uri", rawjson.Quote(as(uri))); err == nil {
				item = own
			}
		}
		contents = append(contents, item)
	}
	if exposed, err := rawjson.Set(result, "contents", rawjson.Array(contents)); err == nil && contents != nil {
		return exposed
	}
	return result
}

const skillScheme = "skill://"

// skillURI returns the URI of a skill for clients. It names the server, because two servers may have the same URI, and
// models must see whose text it is (SEP-2640, "Names").
func skillURI(id tool.ID) string {
	if path, own := strings.CutPrefix(id.Name, skillScheme); own {
		return skillScheme + url.PathEscape(id.Server) + "/" + path
	}
	return prefixedURI(id.Server, id.Name)
}

// splitSkillURI reverses skillURI for files of skills.
func splitSkillURI(uri string) (server, own string, ok bool) {
	rest, ok := strings.CutPrefix(uri, skillScheme)
	escaped, path, found := strings.Cut(rest, "/")
	server, err := url.PathUnescape(escaped)
	return server, skillScheme + path, ok && found && err == nil
}

// skillRoot returns the URI of the directory of a skill.
func skillRoot(uri string) string { return strings.TrimSuffix(uri, tool.SkillFile) }

// maxMatchedURI bounds the URIs that are matched against templates and skills, in bytes.
const maxMatchedURI = 2 << 10
