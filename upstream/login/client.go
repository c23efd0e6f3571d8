package login

import (
	"net/http"
	"net/url"
	"time"

	"toolfinch/internal/discovery"
)

// requestWithin bounds one request to an authorization server.
const requestWithin = 20 * time.Second

// newClient returns the client for requests to authorization servers. The upstream server names their addresses, so
// private addresses are refused, except the server's own host, and loopback for a server on loopback. Requests need
// https, except for documents at the server's own origin, and on loopback if the server is there or AllowPrivate is set.
func newClient(server, agent string, s Settings) *http.Client {
	rules := discovery.Rules{AllowPrivate: s.AllowPrivate, Redirects: true, Timeout: requestWithin, Agent: agent, TLS: s.TLS}
	if own, err := url.Parse(server); err == nil {
		rules.Host = own.Hostname()
		rules.Local = discovery.IsLoopback(rules.Host)
	}
	rules.Plain = func(r *http.Request) bool {
		return s.AllowPrivate && discovery.IsLoopback(r.URL.Hostname()) || r.Method == http.MethodGet && discovery.Origin(r.URL) == originOf(server)
	}
	return discovery.NewClient(rules)
}

// originOf returns the origin of a URL in text; "" if text is no URL.
func originOf(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return ""
	}
	return discovery.Origin(u)
}
