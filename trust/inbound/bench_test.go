package inbound_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"toolfinch/internal/identity"
	"toolfinch/trust/inbound"
)

// What it costs to let a request in: without a proof, by a key, by a token that is known,
// and by one that is not.
func BenchmarkEnter(b *testing.B) {
	f := newFaulty(b)
	key := f.ecKey("one")
	f.set(func() { f.keys = []jose.JSONWebKey{key} })
	ring := &keyRing{}
	api := ring.add(identity.Key{Name: "ci", Scopes: []string{"mcp:read"}})
	nobody := inbound.Settings{Mode: inbound.None}
	proof := inbound.Settings{Mode: inbound.Proof, Keys: true, Resource: resource, Issuers: []inbound.Issuer{{URL: f.url}}, Scopes: scopes}
	token := func(i int) string {
		return f.sign(key, "at+jwt", f.claims(map[string]any{"jti": fmt.Sprint(i)}))
	}
	for _, test := range []struct {
		name     string
		settings inbound.Settings
		token    func(i int) string
	}{
		{"nobody", nobody, func(int) string { return "" }},
		{"key", proof, func(int) string { return api }},
		{"token", proof, func() func(int) string { one := token(0); return func(int) string { return one } }()},
		{"new_token", proof, token},
	} {
		b.Run(test.name, func(b *testing.B) {
			gate := inbound.New(inbound.Options{Settings: test.settings, Store: ring, Root: func() string { return "main" }, Log: slog.New(slog.DiscardHandler),
				Refuse: func(_ http.ResponseWriter, _ *http.Request, status int, reason string) { b.Fatal(status, reason) }})
			handler := gate.Enter(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), func(*http.Request) inbound.Target { return inbound.Target{} })
			requests := make([]*http.Request, min(b.N, 5000))
			for i := range requests {
				requests[i] = httptest.NewRequest(http.MethodPost, "/mcp", nil)
				if token := test.token(i); token != "" {
					requests[i].Header.Set("Authorization", "Bearer "+token)
				}
			}
			w := httptest.NewRecorder()
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				handler.ServeHTTP(w, requests[i%len(requests)])
			}
		})
	}
}
