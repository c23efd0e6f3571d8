package inbound

import (
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
)

// metadataPath begins the path of the metadata of a protected resource (RFC 9728). The path of the resource follows.
const metadataPath = "/.well-known/oauth-protected-resource"

// MetadataPatterns are the patterns of net/http.ServeMux that serve Metadata.
var MetadataPatterns = []string{metadataPath, metadataPath + "/"}

const (
	rootPath = "/mcp"
	ssePath  = "/sse"
)

// root returns the URL of the root, as clients know it. If none is configured, the request names it; it is trusted
// only with isOwn.
func (g *Gate) root(r *http.Request) string {
	if g.Resource != "" {
		return g.Resource
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + r.Host + rootPath
}

// URL returns the URL of the root, as the client of a request knows it.
func (g *Gate) URL(r *http.Request) string { return g.root(r) }

// isOwn reports whether the Host header of a request names the address that the request came to. Otherwise tokens for
// another server of the machine or network could be accepted here. Other names than localhost are checked against
// allowed_hosts.
func isOwn(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	local, err := netip.ParseAddrPort(at.String())
	if err != nil { // a Unix socket, which has no URL
		return false
	}
	host := url.URL{Host: strings.ToLower(r.Host)}
	port := host.Port()
	if port == "" {
		if port = "80"; r.TLS != nil {
			port = "443"
		}
	}
	if port != strconv.Itoa(int(local.Port())) {
		return false
	}
	address, name := local.Addr().Unmap().WithZone(""), strings.TrimSuffix(host.Hostname(), ".")
	if named, err := netip.ParseAddr(name); err == nil {
		return named.Unmap().WithZone("") == address
	}
	return isLocal(address) || name != "localhost" && !strings.HasSuffix(name, ".localhost")
}

// resource returns the URL of a target, which is the audience of its tokens.
func (g *Gate) resource(r *http.Request, to Target) string {
	root := g.root(r)
	switch {
	case to.SSE:
		return sseOf(root)
	case to.View != "":
		return strings.TrimSuffix(root, "/") + "/" + url.PathEscape(to.View)
	}
	return root
}

// sseOf returns the URL for HTTP+SSE that belongs to the URL of a root.
func sseOf(root string) string {
	u, err := url.Parse(root)
	if err != nil {
		return root
	}
	u.Path, u.RawPath = path.Join(path.Dir(strings.TrimSuffix(u.Path, "/")), ssePath), ""
	return u.String()
}

// resolved returns the name of a target's view.
func (g *Gate) resolved(to Target) string {
	if to.View == "" {
		return g.Root()
	}
	return to.View
}

// audiences returns the accepted audiences of tokens for a target. The view at the root has several URLs.
func (g *Gate) audiences(r *http.Request, to Target) []string {
	own := []string{g.resource(r, to)}
	if root := g.Root(); g.resolved(to) == root {
		own = append(own, g.root(r), sseOf(g.root(r)))
		if root != "" {
			own = append(own, g.resource(r, Target{View: root}))
		}
	}
	return own
}

// sameURL compares URLs of resources: clients and issuers add a slash to a URL without a path.
func sameURL(a, b string) bool { return strings.TrimSuffix(a, "/") == strings.TrimSuffix(b, "/") }

// metadataOf returns the URL of the metadata of a resource.
func metadataOf(resource string) string {
	u, err := url.Parse(resource)
	if err != nil {
		return ""
	}
	own := strings.TrimSuffix(u.EscapedPath(), "/")
	return u.Scheme + "://" + u.Host + metadataPath + own
}

// Metadata tells clients how to get a token (RFC 9728). It does not look up views, so that strangers do not learn
// which views exist.
func (g *Gate) Metadata(w http.ResponseWriter, r *http.Request) {
	resource, ok := g.described(r)
	if !ok || len(g.issuers) == 0 || g.Mode != Proof {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "read it with GET", http.StatusMethodNotAllowed)
		return
	}
	about := struct {
		Resource string   `json:"resource"`
		Name     string   `json:"resource_name"`
		Servers  []string `json:"authorization_servers"`
		Scopes   []string `json:"scopes_supported,omitempty"`
		Methods  []string `json:"bearer_methods_supported"`
	}{Resource: resource, Name: "toolfinch", Scopes: g.Scopes.names(func(Scope) bool { return true }), Methods: []string{"header"}}
	for _, i := range g.issuers {
		about.Servers = append(about.Servers, i.URL)
	}
	body, _ := json.Marshal(about) // cannot fail for strings
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write(body)
}

// described returns the resource whose metadata a request asks for, by its public path or by its path here.
func (g *Gate) described(r *http.Request) (resource string, ok bool) {
	asked := strings.TrimSuffix(strings.TrimPrefix(r.URL.EscapedPath(), metadataPath), "/")
	root, err := url.Parse(g.root(r))
	if err != nil {
		return "", false
	}
	public := strings.TrimSuffix(root.EscapedPath(), "/")
	sse, _ := url.Parse(sseOf(root.String()))
	switch {
	case asked == "", asked == public, asked == rootPath:
		return g.root(r), true
	case asked == ssePath, asked == sse.EscapedPath():
		return sse.String(), true
	}
	for _, prefix := range slices.Compact([]string{public, rootPath}) {
		if escaped, below := strings.CutPrefix(asked, prefix+"/"); below && escaped != "" && !strings.Contains(escaped, "/") {
			if view, err := url.PathUnescape(escaped); err == nil {
				return g.resource(r, Target{View: view}), true
			}
		}
	}
	return "", false
}

// metadataFor returns the URL of the metadata of a target; "" without issuers.
func (g *Gate) metadataFor(r *http.Request, to Target) string {
	if len(g.issuers) == 0 {
		return ""
	}
	return metadataOf(g.resource(r, to))
}

// challenge returns the value of WWW-Authenticate (RFC 6750, RFC 9728). metadata is the URL of the metadata of the
// resource, "" for none.
func (g *Gate) challenge(metadata string, why *refusal) string {
	var parts []string
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, name+`="`+quotable(value)+`"`)
		}
	}
	add("resource_metadata", metadata)
	scope := why.scope
	if scope == "" {
		scope = g.Scopes.least(Read)
	}
	add("scope", scope)
	add("error", why.code)
	if why.code != "" {
		add("error_description", why.words)
	}
	if len(parts) == 0 {
		add("realm", "toolfinch")
	}
	return "Bearer " + strings.Join(parts, ", ")
}

// quotable replaces or drops the characters that a parameter of a challenge must not have.
func quotable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '"' || r == '\\':
			return '\''
		case r < ' ' || r > '~':
			return -1
		}
		return r
	}, text)
}
