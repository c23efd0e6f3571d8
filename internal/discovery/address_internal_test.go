package discovery

import (
	"net/netip"
	"testing"
)

func TestPublic(t *testing.T) {
	for want, addresses := range map[bool][]string{
		true: {"1.1.1.1", "8.8.8.8", "198.17.255.255", "2606:4700:4700::1111", "::ffff:1.1.1.1"},
		false: {
			"0.0.0.1", "10.1.2.3", "100.64.0.1", "127.0.0.1", "169.254.169.254", "172.16.0.1", "192.0.0.192", "192.168.0.1", "198.18.0.1", "224.0.0.1", "240.0.0.1",
			"255.255.255.255", "::", "::1", "fe80::1", "fd00::1", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "::ffff:10.0.0.1", "::ffff:198.18.0.1",
		},
	} {
		for _, address := range addresses {
			if got := public(netip.MustParseAddr(address)); got != want {
				t.Errorf("public(%s) = %v", address, got)
			}
		}
	}
}
