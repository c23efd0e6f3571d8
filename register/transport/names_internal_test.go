package transport

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
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

// The page may be opened by whichever name is ours, and by no other; elsewhere its Origin counts for nothing.
func TestThePageIsItsOwnOrigin(t *testing.T) {
	names := Names{Hosts: []string{"tools.example.com", "other.example.com:81"}, Pages: []string{"/ui/", "/oauth/callback"}}
	for _, test := range []struct {
		origin, path string
		want         bool
	}{
		{"https://here.example.com:8080", "/ui/call", true}, {"http://HERE.example.com:8080", "/ui/", true},
		{"https://tools.example.com", "/ui/", true}, {"https://tools.example.com:8443", "/ui/", true}, {"https://other.example.com:81", "/ui/", true},
		{"https://other.example.com:82", "/ui/", false}, {"https://here.example.com:8081", "/ui/", false}, {"https://evil.example.com", "/ui/", false},
		{"https://tools.example.com", "/mcp", false}, {"https://tools.example.com", "/", false},
		{"https://tools.example.com", "/oauth/callback", true}, {"https://evil.example.com", "/oauth/callback", false}, {"https://tools.example.com", "/oauth/callback/", false},
		{"null", "/ui/", false}, {"", "/ui/", false}, {"://", "/ui/", false},
	} {
		r := httptest.NewRequest(http.MethodPost, test.path, nil)
		r.Host = "here.example.com:8080"
		if got := names.own(r, test.origin); got != test.want {
			t.Errorf("%q at %s: %v, want %v", test.origin, test.path, got, test.want)
		}
		if (Names{Hosts: names.Hosts}).own(r, test.origin) {
			t.Errorf("%q at %s, where no page is served, is its own", test.origin, test.path)
		}
	}
}

// One request after another is served, however many there may be at a time.
func TestARequestThatIsAnsweredCountsNoMore(t *testing.T) {
	clients := NewClients(Limits{Requests: 1})
	refuse := func(w http.ResponseWriter, _ *http.Request, status int, _ string) { w.WriteHeader(status) }
	var within int
	var counted http.Handler
	counted = clients.Counted(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if within == 0 {
			inner := httptest.NewRecorder()
			counted.ServeHTTP(inner, r)
			within = inner.Code
		}
	}), refuse)
	for range 2 {
		answer := httptest.NewRecorder()
		counted.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
		if answer.Code != http.StatusOK {
			t.Errorf("it is answered %d", answer.Code)
		}
	}
	if within != http.StatusServiceUnavailable {
		t.Errorf("one more at the same time is answered %d", within)
	}
}

// A quarter of what bodies may take together is left for short ones.
func TestLongBodiesLeaveRoomForShortOnes(t *testing.T) {
	clients := NewClients(Limits{RequestBytes: 64 << 10})
	read := func(size int) (n int64, err error) {
		b := &body{ReadCloser: io.NopCloser(strings.NewReader(strings.Repeat("x", size))), clients: clients, control: http.NewResponseController(httptest.NewRecorder())}
		return io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{b}, make([]byte, 128))
	}
	if n, err := read(60 << 10); err == nil || n < 47<<10 || n > 48<<10 {
		t.Errorf("a long one is read to %d, %v", n, err)
	}
	if n, err := read(256); err != nil || n != 256 {
		t.Errorf("a short one is read to %d, %v", n, err)
	}
	if _, err := read(1 << 10); err == nil {
		t.Error("another long one is read")
	}
}
