package inbound

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"toolfinch/internal/identity"
)

// oneKey is a store of one key, or of none.
type oneKey struct{ key *identity.Key }

func (k *oneKey) All(context.Context) ([]identity.Key, error)           { return nil, nil }
func (k *oneKey) Find(context.Context, [32]byte) (*identity.Key, error) { return k.key, nil }
func (k *oneKey) Used(context.Context, map[[32]byte]time.Time) error    { return nil }

// What lasts ends with the credentials that it began with.
func TestWhatLastsEndsWithItsCredentials(t *testing.T) {
	text, hash := NewKey()
	ring, now := &oneKey{&identity.Key{Name: "ci", ID: "key|ci", Hash: hash}}, time.Now()
	g := New(Options{Settings: Settings{Mode: Proof, Keys: true}, Store: ring, Root: func() string { return "" }, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }})
	let := g.Enter(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		g.lookAround(t.Context())
		if r.Context().Err() != nil {
			t.Error("it ended though the key is good")
		}
		ring.key, now = nil, now.Add(2*time.Second)
		g.lookAround(t.Context())
		if r.Context().Err() == nil {
			t.Error("it goes on though the key was revoked")
		}
	}), func(*http.Request) Target { return Target{} })
	r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
	r.Header.Set("Authorization", "Bearer "+text)
	let.ServeHTTP(httptest.NewRecorder(), r)

	token := &verified{by: ByToken, ends: now.Add(time.Minute)}
	stream, leaveStream := g.stay(t.Context(), token)
	identity.Lasts(stream)
	call, leaveCall := g.stay(t.Context(), token)
	g.lookAround(t.Context())
	if stream.Err() != nil {
		t.Error("a stream ended before its token")
	}
	now = now.Add(2 * time.Minute)
	g.lookAround(t.Context())
	if stream.Err() == nil || call.Err() != nil {
		t.Errorf("past the end of their token: the stream %v, the call %v", stream.Err(), call.Err())
	}
	leaveStream()
	leaveCall()
	if len(g.inside.all) != 0 {
		t.Errorf("%d are left inside", len(g.inside.all))
	}
}

// The names of this machine are not those of an address that others reach.
func TestHostNamesTheAddressThatWasReached(t *testing.T) {
	for _, test := range []struct {
		host, local string
		own         bool
	}{
		{"10.0.0.5:8080", "10.0.0.5:8080", true},
		{"10.0.0.6:8080", "10.0.0.5:8080", false},
		{"10.0.0.5", "10.0.0.5:80", true},
		{"tools.example.com:8080", "10.0.0.5:8080", true}, // in allowed_hosts
		{"tools.example.com", "10.0.0.5:8080", false},
		{"LOCALHOST.:8080", "10.0.0.5:8080", false},
		{"a.localhost:8080", "10.0.0.5:8080", false},
		{"LOCALHOST.:8080", "127.0.0.1:8080", true},
		{"[::1]:8080", "[::1]:8080", true},
		{"10.0.0.5:8080", "[::ffff:10.0.0.5]:8080", true},
		{"localhost", "/run/toolfinch.sock", false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/mcp", nil)
		r.Host = test.host
		var at net.Addr = &net.UnixAddr{Name: test.local, Net: "unix"}
		if to, err := netip.ParseAddrPort(test.local); err == nil {
			at = net.TCPAddrFromAddrPort(to)
		}
		if got := isOwn(r.WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, at))); got != test.own {
			t.Errorf("Host %s at %s: %v", test.host, test.local, got)
		}
	}
}
