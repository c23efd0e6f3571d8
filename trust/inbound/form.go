package inbound

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"toolfinch/internal/identity"
)

// Bearer is the holder of an API key that was typed into a form, with the gate that proved the key.
type Bearer struct {
	gate *Gate
	*verified
}

// TakesKeys reports whether the gate accepts API keys.
func (g *Gate) TakesKeys() bool { return g.Mode == Proof && g.Settings.Keys }

// ByForm proves an API key that a person typed into a form. After too many failures the person must wait, as with
// keys in headers. The error's text is for the person.
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

// Principal returns the principal of the key, nil if the key is not proved now. gone reports that the key was revoked
// or has expired; it is false while the store cannot be read.
func (b *Bearer) Principal(ctx context.Context) (_ *identity.Principal, gone bool) {
	p, refused := b.gate.keys.find(ctx, b.key)
	if refused != nil {
		return nil, refused.status == http.StatusUnauthorized
	}
	return p, false
}

// Stay returns a context for one request of the bearer, which ends with the key. Call leave at the end of the
// request.
func (b *Bearer) Stay(ctx context.Context) (_ context.Context, leave func()) {
	return b.gate.stay(ctx, b.verified)
}
