package tool

import (
	"slices"
	"strings"
	"unicode"

	"toolfinch/internal/printable"
)

// NormalURI returns the form of a URI that equals for equivalent URIs (RFC 3986, sections 6.2.2 and 6.2.3): scheme
// and host in lower case, no escapes of unreserved characters, no dot segments. A text without a scheme stays
// unchanged.
func NormalURI(uri string) string {
	scheme, rest, _ := strings.Cut(uri, ":")
	if !isScheme(scheme) || len(scheme) == len(uri) {
		return uri
	}
	rest, fragment, hasFragment := strings.Cut(normalEscapes(rest), "#")
	path, query, hasQuery := strings.Cut(rest, "?")
	out := strings.ToLower(scheme) + ":"
	if afterSlashes, ok := strings.CutPrefix(path, "//"); ok {
		end := strings.IndexByte(afterSlashes, '/')
		if end < 0 {
			afterSlashes, end = afterSlashes+"/", len(afterSlashes)
		}
		out += "//" + normalAuthority(afterSlashes[:end]) + withoutDots(afterSlashes[end:])
	} else {
		path = withoutDots(path)
		if strings.HasPrefix(path, "//") { // else it would become an authority
			path = "/." + path
		}
		out += path
	}
	if hasQuery {
		out += "?" + query
	}
	if hasFragment {
		out += "#" + fragment
	}
	return out
}

func isScheme(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c|0x20 && c|0x20 <= 'z':
		case i > 0 && ('0' <= c && c <= '9' || c == '+' || c == '-' || c == '.'):
		default:
			return false
		}
	}
	return s != ""
}

// normalAuthority returns user@host:port with the host in lower case and without an empty port.
func normalAuthority(authority string) string {
	host := strings.LastIndexByte(authority, '@') + 1
	return authority[:host] + normalEscapes(lowerASCII(strings.TrimRight(authority[host:], ":")))
}

// lowerASCII keeps bytes that are not UTF-8, which strings.ToLower replaces.
func lowerASCII(s string) string {
	lower := []byte(s)
	for i, c := range lower {
		if 'A' <= c && c <= 'Z' {
			lower[i] = c | 0x20
		}
	}
	return string(lower)
}

// normalEscapes decodes escapes of unreserved characters (RFC 3986, section 2.3), and writes other escapes and "%"
// itself in upper case.
func normalEscapes(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		value, ok := escapeAt(s, i)
		switch {
		case !ok && s[i] == '%': // else the next characters could complete an escape
			out.WriteString("%25")
			continue
		case !ok:
			out.WriteByte(s[i])
			continue
		case isUnreserved(value):
			out.WriteByte(value)
		default:
			out.WriteString(strings.ToUpper(s[i : i+3]))
		}
		i += 2
	}
	return out.String()
}

// UnescapeURI decodes every escape, repeatedly: "%2541" and "%4%31" are "A". Other "%" stay.
func UnescapeURI(uri string) string {
	out := make([]byte, 0, len(uri))
	for i := range len(uri) {
		out = append(out, uri[i])
		for last := len(out) - 3; last >= 0; last = len(out) - 3 {
			value, ok := escapeAt(string(out[last:]), 0)
			if !ok {
				break
			}
			out = append(out[:last], value)
		}
	}
	return string(out)
}

// escapeAt returns the byte of the escape at i, as in "%2F".
func escapeAt(s string, i int) (value byte, ok bool) {
	if s[i] != '%' || i+2 >= len(s) {
		return 0, false
	}
	high, ok1 := hexDigit(s[i+1])
	low, ok2 := hexDigit(s[i+2])
	return high<<4 | low, ok1 && ok2
}

func hexDigit(c byte) (value byte, ok bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10, true
	}
	return 0, false
}

func isUnreserved(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

// withoutDots removes the segments "." and ".." of a path (RFC 3986, section
// 5.2.4).
func withoutDots(path string) string {
	segments := strings.Split(path, "/")
	kept := segments[:0]
	for i, segment := range segments {
		last := i == len(segments)-1
		switch {
		case segment != "." && segment != "..":
			kept = append(kept, segment)
			continue
		case segment == ".." && len(kept) > 1:
			kept = kept[:len(kept)-1]
		case segment == ".." && len(kept) == 1 && kept[0] != "":
			kept[0] = ""
		}
		if last {
			kept = append(kept, "")
		}
	}
	return strings.Join(kept, "/")
}

// Spellings returns the URIs that a server may take a URI for: first its normal form, then its forms for servers
// that decode every escape, read "\" as "/", take a query for a part of the path, or ignore the query or all but
// the path's segments.
func Spellings(uri string) []string {
	normal := NormalURI(uri)
	all := []string{normal}
	add := func(uri string) {
		if !slices.Contains(all, uri) {
			all = append(all, uri)
		}
	}
	for _, uri := range []string{uri, normal} {
		plain := strings.ReplaceAll(UnescapeURI(uri), `\`, "/")
		path := NormalURI(plain)
		add(path)
		add(UnescapeURI(NormalURI(asPath.Replace(plain))))
		if i := strings.IndexFunc(path, func(r rune) bool { return strings.ContainsRune("?#;", r) || unicode.IsControl(r) }); i >= 0 {
			path = path[:i]
		}
		add(path)
		add(plainPath(path))
	}
	return all
}

var asPath = strings.NewReplacer("?", "%3F", "#", "%23")

// plainPath returns a URI without user and port, empty segments, and the trailing spaces and dots that some file
// systems ignore.
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

// Shown is String for logs and people, without the possibly secret parts of a URI.
func (id ID) Shown() string {
	if id.Kind == KindTool || id.Kind == KindPrompt {
		return id.String()
	}
	return id.Server + "." + printable.URI(id.Name)
}
