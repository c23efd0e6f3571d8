package login

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"toolfinch/trust"
)

// requestWithin bounds one request to an authorization server.
const requestWithin = 20 * time.Second

// ErrPrivate is about an authorization server at an address that only this machine or
// network reaches: whoever names it may want to use our place in the network.
var ErrPrivate = errors.New("it is at a private address, which oauth.allow_private allows")

// newClient is the client for requests to authorization servers. They are named by the
// server, so private addresses are refused, but for the server's own host and, of one
// on loopback, loopback. They are asked over https, whichever document says where they are:
// over http on this machine alone, where the server is there too or private addresses are
// allowed, and for documents of the server itself. It follows redirects of documents alone,
// and none to http.
func newClient(server string, allowPrivate bool) *http.Client {
	base := http.DefaultTransport.(*http.Transport).Clone()
	guarded := base.Clone()
	own := ""
	if u, err := url.Parse(server); err == nil {
		own = strings.ToLower(u.Hostname())
	}
	secure := func(r *http.Request) bool {
		switch {
		case r.URL.Scheme == "https":
			return true
		case r.URL.Scheme != "http":
			return false
		case isLoopback(strings.ToLower(r.URL.Hostname())):
			return isLoopback(own) || allowPrivate
		}
		return r.Method == http.MethodGet && origin(r.URL) == originOf(server)
	}
	if !allowPrivate {
		guarded.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			host, _, _ := net.SplitHostPort(address)
			dialer := net.Dialer{Timeout: 10 * time.Second}
			if strings.ToLower(host) != own {
				dialer.Control = func(_, to string, _ syscall.RawConn) error { return public(to, isLoopback(own)) }
			}
			return dialer.DialContext(ctx, network, address)
		}
	}
	return &http.Client{
		Transport: chosen{secure: secure, direct: guarded, proxied: base},
		Timeout:   requestWithin,
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			switch {
			case via[0].Method != http.MethodGet:
				return errors.New("it redirects a request with secrets, which is not followed")
			case next.URL.Scheme != "https" && via[0].URL.Scheme == "https":
				return errors.New("it redirects from https to http, which is not followed")
			case len(via) > 5:
				return errors.New("it redirects more than 5 times")
			}
			return nil
		},
	}
}

// chosen sends what a proxy of the environment is for to that proxy, whose own address
// says nothing. It sends nothing that is not secure.
type chosen struct {
	secure          func(*http.Request) bool
	direct, proxied *http.Transport
}

func (c chosen) RoundTrip(r *http.Request) (*http.Response, error) {
	if !c.secure(r) {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, fmt.Errorf("%s://%s is not https", r.URL.Scheme, r.URL.Host)
	}
	if through, err := http.ProxyFromEnvironment(r); err == nil && through != nil {
		return c.proxied.RoundTrip(r)
	}
	return c.direct.RoundTrip(r)
}

func (c chosen) CloseIdleConnections() {
	c.direct.CloseIdleConnections()
	c.proxied.CloseIdleConnections()
}

// public refuses addresses that are not of the internet.
func public(address string, loopback bool) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip := to.Addr().Unmap()
	switch {
	case ip.IsLoopback():
		if loopback {
			return nil
		}
	case trust.Public(ip):
		return nil
	}
	return fmt.Errorf("%s: %w", ip, ErrPrivate)
}

// isLoopback reports whether a host is this machine by its name.
func isLoopback(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
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
