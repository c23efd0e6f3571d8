package discovery

import (
	"cmp"
	"net/netip"
	"net/url"
	"strings"
)

// reserved are ranges that are not on the internet, or that lead into other ranges (NAT64, 6to4). netip does not know
// them (RFC 6890).
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("2002::/16"),
}

// public reports whether an address is on the internet. URLs from strangers must not lead to other addresses, which
// our network may reach and strangers may not.
func public(ip netip.Addr) bool {
	ip = ip.Unmap()
	for _, prefix := range reserved {
		if prefix.Contains(ip) {
			return false
		}
	}
	return ip.IsGlobalUnicast() && !ip.IsPrivate()
}

// Origin returns the scheme, the host and the port of a URL (RFC 6454).
func Origin(u *url.URL) string {
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}
