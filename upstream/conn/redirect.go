package conn

import (
	"errors"
	"fmt"
	"net/http"

	"toolfinch/internal/discovery"
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
	case discovery.Origin(next.URL) != discovery.Origin(first.URL):
		return fmt.Errorf("%w to another origin (%s), which is not followed: configure that URL", errRedirect, discovery.Origin(next.URL))
	case next.Method != first.Method:
		return fmt.Errorf("%w with status %d, by which a request loses its body: configure the URL that it leads to", errRedirect, next.Response.StatusCode)
	case len(via) > maxRedirects:
		return fmt.Errorf("%w more than %d times", errRedirect, maxRedirects)
	}
	return nil
}
