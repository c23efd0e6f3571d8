package page

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"toolfinch/trust"
)

// Files of clients are written for a browser on this machine: no reverse proxy may stand
// between, whatever it says of itself.
func TestWhoIsHere(t *testing.T) {
	for _, test := range []struct {
		address, host, headers string
		here                   bool
	}{
		{"127.0.0.1", "127.0.0.1:8080", "Origin: http://127.0.0.1:8080", true},
		{"127.0.0.1", "localhost:8080", "Referer: http://localhost:8080/ui/", true},
		{"::1", "[::1]:8080", "", true},
		{"192.0.2.1", "127.0.0.1:8080", "", false},
		{"127.0.0.1", "tools.example", "", false},                                           // a proxy that passes Host on
		{"127.0.0.1", "127.0.0.1:8080", "Origin: https://tools.example", false},             // one that says nothing
		{"127.0.0.1", "127.0.0.1:8080", "Referer: https://tools.example/ui/connect", false}, // the same, of GET
		{"127.0.0.1", "127.0.0.1:8080", "X-Forwarded-For: 127.0.0.1", false},                // ssh -R, and a proxy at the other end
		{"127.0.0.1", "127.0.0.1:8080", "X-Real-Ip: 192.0.2.1", false},
		{"127.0.0.1", "127.0.0.1:8080", "Via: 1.1 proxy", false},
		{"127.0.0.1", "127.0.0.1:8080", "Origin: null", false},
	} {
		r := httptest.NewRequest(http.MethodPost, "/ui/connect", nil)
		r.Host = test.host
		if name, value, ok := strings.Cut(test.headers, ": "); ok {
			r.Header.Set(name, value)
		}
		q := &request{Request: r.WithContext(trust.WithSource(r.Context(), trust.Source{Address: test.address}))}
		if q.here() != test.here {
			t.Errorf("%s, Host %s, %s: here is %t", test.address, test.host, test.headers, q.here())
		}
	}
}
