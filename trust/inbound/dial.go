package inbound

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/trust"
)

// askFor bounds a question to an issuer.
const askFor = 5 * time.Second

// newClient asks an issuer. What it is led to by the issuer's documents may be no private
// address, unless the owner allowed that, or configured an issuer on this machine.
func newClient(issuer Issuer) *http.Client {
	own, _ := url.Parse(issuer.URL)
	local := own != nil && isLocalHost(own.Hostname())
	dialer := &net.Dialer{Timeout: leeway.Of(askFor), Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		ip := to.Addr().Unmap()
		if issuer.AllowPrivate || local && ip.IsLoopback() || trust.Public(ip) {
			return nil
		}
		return fmt.Errorf("%s is a private address: write allow_private: true under the issuer to allow it", ip)
	}}
	direct := &http.Transport{DialContext: dialer.DialContext, ForceAttemptHTTP2: true, TLSHandshakeTimeout: leeway.Of(askFor), MaxIdleConns: 4, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10}
	proxied := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSHandshakeTimeout: leeway.Of(askFor), MaxIdleConns: 4, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10}
	return &http.Client{
		Timeout: leeway.Of(askFor),
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if !secure(r.URL, local) {
				return nil, fmt.Errorf("%s://%s is not https", r.URL.Scheme, r.URL.Host)
			}
			if through, err := http.ProxyFromEnvironment(r); err == nil && through != nil {
				return proxied.RoundTrip(r) // where it leads is the proxy's to know
			}
			return direct.RoundTrip(r)
		}),
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("it redirects, which an issuer's documents must not")
		},
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// secure reports whether keys may be had from a URL: by https, or from this machine for
// an issuer on it.
func secure(u *url.URL, local bool) bool {
	return u.Scheme == "https" || local && u.Scheme == "http" && isLocalHost(u.Hostname())
}

func isLocalHost(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return isLocal(ip)
	}
	return host == "localhost"
}

// transportError is an error of asking without the URL, which may carry a secret.
func transportError(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s", leeway.Of(askFor))
	}
	return err
}
