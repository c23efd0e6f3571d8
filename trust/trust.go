// Package trust has the nouns that the packages of its folder share: the principal, and
// the event of the audit log.
package trust

import "context"

// Principal is who makes a request, once that was proved. It is not changed.
type Principal struct {
	// ID is unique: "ISSUER|SUBJECT" for the bearer of a token, "key|NAME" for that of
	// an API key, and else what a trusted reverse proxy says.
	ID string
	// Groups and Scopes are those of the token or key, sorted, each once.
	Groups, Scopes []string
	// View is the only view that the principal may use, "" for any.
	View string
}

type principalKey struct{}

// WithPrincipal returns a context of requests that p makes; nil is nobody.
func WithPrincipal(ctx context.Context, p *Principal) context.Context {
	if p == nil {
		return ctx
	}
	return context.WithValue(ctx, principalKey{}, p)
}

// As returns ctx for what the request of another context asks for: who makes it and where
// it comes from are those of from. A session outlives its requests.
func As(ctx, from context.Context) context.Context {
	ctx = WithPrincipal(ctx, PrincipalOf(from))
	if source, ok := SourceOf(from); ok {
		ctx = WithSource(ctx, source)
	}
	if challenge, ok := from.Value(challengeKey{}).(func(*ScopeError) string); ok {
		ctx = WithChallenge(ctx, challenge)
	}
	return ctx
}

// NameOf is the ID of who makes the request of a context, "" for nobody.
func NameOf(ctx context.Context) string {
	if p := PrincipalOf(ctx); p != nil {
		return p.ID
	}
	return ""
}

// PrincipalOf returns who makes the request of a context, nil where nobody proved
// to be anybody.
func PrincipalOf(ctx context.Context) *Principal {
	p, _ := ctx.Value(principalKey{}).(*Principal)
	return p
}
