package discovery

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
)

// Rules restrict the requests to authorization servers.
type Rules struct {
	Local        bool                     // servers may be on this machine, also over plain http: its user names them
	Host         string                   // a host that may have a private address; "" for none
	AllowPrivate bool                     // any host may have a private address
	Plain        func(*http.Request) bool // reports further requests that may use plain http; may be nil
	Redirects    bool                     // GET requests follow up to five redirects, but not from https to http
	Timeout      time.Duration            // for one request
	Agent        string                   // User-Agent
	TLS          TLS                      // for Host; other hosts share only the authorities
}

// NewClient returns a client that sends only requests within the rules.
func NewClient(rules Rules) *http.Client {
	others := rules.TLS
	others.CertFile = ""
	t := proxiedTransport{rules: rules, host: rules.transports(rules.TLS), others: rules.transports(others)}
	return &http.Client{Transport: t, Timeout: rules.Timeout, CheckRedirect: rules.redirect}
}

// transports are the transports for one kind of hosts.
type transports struct {
	direct, proxied *http.Transport
	fault           error // why there are none; nil if there are
}

func (r Rules) transports(files TLS) (t transports) {
	t.proxied = http.DefaultTransport.(*http.Transport).Clone()
	t.proxied.MaxResponseHeaderBytes = maxHeader
	t.fault = files.Configure(t.proxied)
	t.direct = t.proxied.Clone()
	if !r.AllowPrivate {
		t.direct.DialContext = r.dial
	}
	return t
}

// dial checks the IP address of a connection, because a host name may have any address.
func (r Rules) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: r.Timeout}
	if host, _, err := net.SplitHostPort(address); err != nil || r.Host == "" || !strings.EqualFold(host, r.Host) {
		dialer.Control = func(_, to string, _ syscall.RawConn) error { return r.allows(to) }
	}
	return dialer.DialContext(ctx, network, address)
}

func (r Rules) allows(address string) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip := to.Addr().Unmap()
	if r.Local && ip.IsLoopback() || public(ip) {
		return nil
	}
	return fmt.Errorf("%s: it is at a private address, which allow_private allows", ip)
}

// secure reports whether a request's transport is allowed.
func (r Rules) secure(request *http.Request) bool {
	switch request.URL.Scheme {
	case "https":
		return true
	case "http":
		return r.Local && IsLoopback(request.URL.Hostname()) || r.Plain != nil && r.Plain(request)
	}
	return false
}

func (r Rules) redirect(next *http.Request, via []*http.Request) error {
	switch {
	case !r.Redirects:
		return errors.New("it redirects, which is not followed")
	case via[0].Method != http.MethodGet:
		return errors.New("it redirects a request with secrets, which is not followed")
	case next.URL.Scheme != "https" && via[0].URL.Scheme == "https":
		return errors.New("it redirects from https to http, which is not followed")
	case len(via) > 5:
		return errors.New("it redirects more than 5 times")
	}
	return nil
}

// proxiedTransport sends requests through the environment's HTTP proxy, if it has one for them. The
// proxy's address is trusted, and the proxy decides where requests go.
type proxiedTransport struct {
	rules        Rules
	host, others transports
}

func (g proxiedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	to := g.others
	if strings.EqualFold(r.URL.Hostname(), g.rules.Host) {
		to = g.host
	}
	fault := to.fault
	if !g.rules.secure(r) {
		fault = fmt.Errorf("%s://%s is not https", r.URL.Scheme, r.URL.Host)
	}
	if fault != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, fault
	}
	if g.rules.Agent != "" {
		r = r.Clone(r.Context())
		r.Header.Set("User-Agent", g.rules.Agent)
	}
	if through, err := http.ProxyFromEnvironment(r); err == nil && through != nil {
		return to.proxied.RoundTrip(r)
	}
	return to.direct.RoundTrip(r)
}

func (g proxiedTransport) CloseIdleConnections() {
	for _, t := range []*http.Transport{g.host.direct, g.host.proxied, g.others.direct, g.others.proxied} {
		t.CloseIdleConnections()
	}
}

// IsLoopback reports whether a host name means this machine.
func IsLoopback(host string) bool {
	host = strings.ToLower(host)
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// IsWeb reports whether a text is a URL that a browser may open.
func IsWeb(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "https" && u.Host != "" || u.Scheme == "http" && IsLoopback(u.Hostname()))
}
