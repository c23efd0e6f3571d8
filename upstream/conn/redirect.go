package conn

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// maxRedirects bounds how many redirects of one request are followed.
const maxRedirects = 5

// errRedirect tells that a server redirects to a place that is not followed.
var errRedirect = errors.New("the server redirects")

// checkRedirect keeps a request, whose headers may hold secrets, at the configured origin. Go's default drops
// Authorization and cookies alone, and follows from https to http.
func checkRedirect(next *http.Request, via []*http.Request) error {
	first := via[0]
	switch {
	case origin(next.URL) != origin(first.URL):
		return fmt.Errorf("%w to another origin (%s), which is not followed: configure that URL", errRedirect, origin(next.URL))
	case next.Method != first.Method:
		return fmt.Errorf("%w with status %d, by which a request loses its body: configure the URL that it leads to", errRedirect, next.Response.StatusCode)
	case len(via) > maxRedirects:
		return fmt.Errorf("%w more than %d times", errRedirect, maxRedirects)
	}
	return nil
}

// origin is the scheme, the host and the port of a URL (RFC 6454).
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}
