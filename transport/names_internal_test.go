package transport

import (
	"net"
	"testing"
)

// Beyond this machine an address in Host is no rebound name.
func TestHostsBeyondThisMachine(t *testing.T) {
	names := Names{Hosts: []string{"tools.example.com"}}
	here, beyond, socket := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, &net.TCPAddr{IP: net.IPv4(172, 17, 0, 2)}, &net.UnixAddr{Net: "unix", Name: "/run/t.sock"}
	for _, test := range []struct {
		host string
		at   net.Addr
		want bool
	}{
		{"192.0.2.1:8080", beyond, true}, {"[2001:db8::1]", beyond, true}, {"localhost:8080", beyond, true}, {"tools.example.com", beyond, true},
		{"evil.example.com", beyond, false}, {"192.0.2.1.evil.example.com", beyond, false}, {"", beyond, false},
		{"192.0.2.1", here, false}, {"192.0.2.1", socket, false}, {"localhost", socket, true},
	} {
		if got := names.has(test.host, test.at); got != test.want {
			t.Errorf("%q at %s: %v, want %v", test.host, test.at, got, test.want)
		}
	}
}
