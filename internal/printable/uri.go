package printable

import "strings"

// URI is a URI, or a name, for logs and people: without its user and query, which may be secret.
func URI(uri string) string {
	uri, _, _ = strings.Cut(uri, "?")
	scheme, rest, ok := strings.Cut(uri, "://")
	if !ok {
		return uri
	}
	authority, path, below := strings.Cut(rest, "/")
	if uri = scheme + "://" + authority[strings.LastIndexByte(authority, '@')+1:]; below {
		uri += "/" + path
	}
	return uri
}
