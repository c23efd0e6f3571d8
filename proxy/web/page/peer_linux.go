package page

import (
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// ofThisUser reports whether the request comes from this machine, from a program of the user that runs this process. The
// tables of the kernel have the user of each connection; for a closed end they have root.
func ofThisUser(r *http.Request) bool {
	far, err := netip.ParseAddrPort(r.RemoteAddr)
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if err != nil || !ok || !far.Addr().Unmap().IsLoopback() {
		return false
	}
	near := netip.AddrPortFrom(at.AddrPort().Addr().Unmap(), at.AddrPort().Port())
	far = netip.AddrPortFrom(far.Addr().Unmap(), far.Port())
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(table) // without IPv6, the second table is missing
		for line := range strings.Lines(string(text)) {
			const local, remote, uid = 1, 2, 7
			fields := strings.Fields(line)
			if len(fields) > uid && endOf(fields[local]) == far && endOf(fields[remote]) == near {
				return fields[uid] == strconv.Itoa(os.Geteuid())
			}
		}
	}
	return false
}

// endOf parses an address like "0100007F:1F90", whose 32-bit words have the byte order of this machine. Other texts give
// the zero value.
func endOf(text string) netip.AddrPort {
	address, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(address)
	n, bad := strconv.ParseUint(port, 16, 16)
	if err != nil || bad != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	ip, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(ip.Unmap(), uint16(n))
}
