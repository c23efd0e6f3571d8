package configs

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"toolfinch/internal/document"
	"unicode"
	"unicode/utf8"
)

// isWebURL reports whether text is an http or https URL.
func isWebURL(text string) (*url.URL, bool) {
	u, err := url.Parse(text)
	return u, err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != ""
}

// webURL is text that must be an http or https URL.
var webURL = str{mask: (*secrets).url, check: func(d *decoder, n *document.Node, label string, text *string) bool {
	_, ok := isWebURL(*text)
	return d.require(ok, n, label, "an http or https URL", "")
}}

// serverURL checks the address of a server. Messages do not repeat it, because it may hold
// a password or a key.
func serverURL(d *decoder, n *document.Node, label string, text *string) bool {
	if _, ok := isWebURL(*text); !ok {
		d.fail(n, label+" must be an http or https URL", "like https://mcp.example.com/mcp")
		return false
	}
	return true
}

func listen(d *decoder, n *document.Node, label string, text *string) bool {
	_, port, err := net.SplitHostPort(*text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	return d.require(err == nil, n, label, "host:port", "like "+DefaultListen)
}

// webOrigin checks the origin of a web page and lowers its case, as browsers do.
func webOrigin(d *decoder, n *document.Node, label string, text *string) bool {
	*text = strings.ToLower(*text)
	u, err := url.Parse(*text)
	ok := err == nil && u.Scheme != "" && u.Hostname() != "" && !strings.Contains(u.Host, "*") && *text == u.Scheme+"://"+u.Host
	return d.require(ok, n, label, "scheme://host or scheme://host:port, without a path", "like https://app.example.com")
}

// headerName checks the name of a header and lowers its case.
func headerName(d *decoder, n *document.Node, label string, text *string) bool {
	*text = strings.ToLower(*text)
	return d.require(checkHeaderName(*text) == "", n, label, "the name of an HTTP header", "like X-User")
}

func checkHeaderName(name string) string {
	legal := func(r rune) bool {
		return r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) || strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	}
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return !legal(r) }) {
		return "is no name of a header"
	}
	return ""
}

// hostName checks a host with or without a port, and lowers its case.
func hostName(d *decoder, n *document.Node, label string, text *string) bool {
	*text = strings.ToLower(*text)
	u, err := url.Parse("http://" + *text)
	ok := err == nil && u.Host == *text && u.Hostname() != "" && !strings.Contains(*text, "*")
	return d.require(ok, n, label, "the name of a host", "like tools.example.com; with a port it is for that port alone")
}

// prefixes are IP addresses and ranges of addresses.
type prefixes struct{}

func (prefixes) read(d *decoder, n *document.Node, label string, to *netip.Prefix) bool {
	var text string
	if !d.text(n, label, &text) {
		return false
	}
	prefix, err := netip.ParsePrefix(text)
	if ip, ipErr := netip.ParseAddr(text); ipErr == nil {
		prefix, err = netip.PrefixFrom(ip, ip.BitLen()), nil
	}
	if err != nil {
		d.mustBe(n, label, "an IP address, or a range of them", "like 10.0.0.5 or 10.0.0.0/8")
		return false
	}
	*to = prefix.Masked()
	return true
}

func (prefixes) show(s *secrets, v netip.Prefix) *document.Node {
	if v.IsSingleIP() {
		return document.NewText(v.Addr().String())
	}
	return document.NewText(v.String())
}

func (prefixes) schema() schema { return anyText }

func isLoopbackHost(u *url.URL) bool {
	ip, err := netip.ParseAddr(u.Hostname())
	return err == nil && ip.Unmap().IsLoopback() || u.Hostname() == "localhost"
}

// listensLocally reports whether only this machine can reach an address. A name counts as
// local: the listener resolves it later.
func listensLocally(at string) bool {
	host, _, err := net.SplitHostPort(at)
	if err != nil || host == "" {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err != nil || ip.Unmap().IsLoopback()
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
