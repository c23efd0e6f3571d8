package inbound

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"toolfinch/internal/identity"
)

// Bearer is who has shown an API key in a form, with the gate that took it.
type Bearer struct {
	gate *Gate
	*verified
}

// TakesKeys reports whether API keys let somebody in.
func (g *Gate) TakesKeys() bool { return g.Mode == Proof && g.Settings.Keys }

// ByForm proves an API key that a person typed into a form of the request. Who fails too
// often must wait, as with keys in headers. The error's text is for that person.
func (g *Gate) ByForm(r *http.Request, key string) (*Bearer, error) {
	r = r.WithContext(identity.WithSource(r.Context(), g.Source(r)))
	v, refused := &verified{}, invalid(Malformed, "this is no API key of toolfinch: it begins with "+keyPrefix)
	if key = strings.TrimSpace(key); g.TakesKeys() && strings.HasPrefix(key, keyPrefix) && len(key) <= maxToken {
		v, refused = g.known(r, key)
	}
	if refused == nil {
		refused = g.admit(v.principal, Read)
	}
	if refused != nil {
		g.counts[refused.reason].Add(1)
		if refused.reason != TooMany {
			g.Record.Event(r.Context(), identity.Event{Kind: identity.EventRefused, Outcome: identity.Denied, Reason: string(refused.reason)})
		}
		return nil, errors.New(refused.words)
	}
	g.counts[v.by].Add(1)
	return &Bearer{g, v}, nil
}

// Principal returns who holds the key now, nil for nobody: it is gone once it was revoked or has expired, and
// not while that cannot be looked up.
func (b *Bearer) Principal(ctx context.Context) (_ *identity.Principal, gone bool) {
	p, refused := b.gate.keys.find(ctx, b.key)
	if refused != nil {
		return nil, refused.status == http.StatusUnauthorized
	}
	return p, false
}

// Stay returns a context for one request of the bearer, which ends when the key does, and
// what to call at the end of the request.
func (b *Bearer) Stay(ctx context.Context) (_ context.Context, leave func()) {
	return b.gate.stay(ctx, b.verified)
}
