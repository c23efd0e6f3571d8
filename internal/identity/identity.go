// Package identity has the nouns that the packages of its folder share: the principal, and
// the event of the audit log.
package identity

import "context"

// Principal is who makes a request, once that was proved. It is not changed.
type Principal struct {
	// ID is never used again for somebody else: "ISSUER|SUBJECT" for the bearer of a token, the
	// ID of an API key, or the name that a trusted reverse proxy gives. Everything that
	// belongs to a principal is kept by it.
	ID string
	// Groups are "ISSUER|GROUP" of a token, "key|GROUP" of an API key: a group of another
	// source is another group. Groups and Scopes are sorted, each once.
	Groups, Scopes []string
	// View is the only view that the principal may use, "" for any.
	View string
}

// Label is what policies call the principal.
func (p *Principal) Label() string { return Label(p.ID) }

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

type lastsKey struct{}

// WithLasts returns a context of an HTTP request that was let in. lasts is called where its
// answer turns out to be an event stream, which is not to outlive the credentials.
func WithLasts(ctx context.Context, lasts func()) context.Context {
	return context.WithValue(ctx, lastsKey{}, lasts)
}

// Lasts says that the answer to the HTTP request of a context is an event stream.
func Lasts(ctx context.Context) {
	if lasts, ok := ctx.Value(lastsKey{}).(func()); ok {
		lasts()
	}
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

// Transports that a request may come by.
const (
	TransportStdio = "stdio"
	TransportHTTP  = "http"
	TransportSSE   = "sse"
	TransportREST  = "rest"
	TransportUI    = "ui" // the page
)

// Party is who makes a request, with what program and over which transport: what
// policies know of it. The name and version of the program are what it says itself.
type Party struct {
	Principal       *Principal // nil: nobody proved to be anybody
	Client, Version string
	Transport       string // one of the Transports
}

type partyKey struct{}

// WithParty returns a context of requests of p.
func WithParty(ctx context.Context, p Party) context.Context {
	return context.WithValue(ctx, partyKey{}, p)
}

// PartyOf returns whose request a context is of, and false where it is the program's
// own user's.
func PartyOf(ctx context.Context) (Party, bool) {
	p, ok := ctx.Value(partyKey{}).(Party)
	return p, ok
}
