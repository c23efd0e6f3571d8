package inbound

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"toolfinch/trust"
)

// oneKey is a store of one key, or of none.
type oneKey struct{ key *trust.Key }

func (k *oneKey) Key(context.Context, [32]byte) (*trust.Key, error)      { return k.key, nil }
func (k *oneKey) UsedKeys(context.Context, map[[32]byte]time.Time) error { return nil }

// What lasts ends with the credentials that it began with.
func TestWhatLastsEndsWithItsCredentials(t *testing.T) {
	text, hash := NewKey()
	ring, now := &oneKey{&trust.Key{Name: "ci", Hash: hash}}, time.Now()
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
	stream, leaveStream := g.stay(t.Context(), token, true)
	call, leaveCall := g.stay(t.Context(), token, false)
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
