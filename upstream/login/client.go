package login

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"toolfinch/internal/discovery"
)

// requestWithin bounds one request to an authorization server.
const requestWithin = 20 * time.Second

// newClient is the client for requests to authorization servers. They are named by the
// server, so private addresses are refused, but for the server's own host and, of one
// on loopback, loopback. They are asked over https, whichever document says where they are:
// over http on this machine alone, where the server is there too or private addresses are
// allowed, and for documents of the server itself.
func newClient(server string, allowPrivate bool) *http.Client {
	rules := discovery.Rules{AllowPrivate: allowPrivate, Redirects: true, Timeout: requestWithin}
	if own, err := url.Parse(server); err == nil {
		rules.Host = own.Hostname()
		rules.Local = discovery.IsLoopback(rules.Host)
	}
	rules.Plain = func(r *http.Request) bool {
		return allowPrivate && discovery.IsLoopback(r.URL.Hostname()) || r.Method == http.MethodGet && origin(r.URL) == originOf(server)
	}
	return discovery.NewClient(rules)
}

// origin is the scheme, the host and the port of a URL (RFC 6454).
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

// originOf is origin of a text; "" if that is no URL.
func originOf(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return ""
	}
	return origin(u)
}
