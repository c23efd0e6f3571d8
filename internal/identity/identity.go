// Package identity has the nouns that the packages of trust share with their callers: the principal, and the event of
// the audit log. It proves no principal, and writes no event.
package identity

import "context"

// Principal is the proved maker of a request. It never changes.
type Principal struct {
	// ID never belongs to another principal later. It is "ISSUER|SUBJECT" for the bearer of a token, the ID of an API
	// key, or the name that a trusted reverse proxy gives. Everything that belongs to a principal is stored under it.
	ID string
	// Groups are "ISSUER|GROUP" for a token, and "key|GROUP" for an API key: the same group from another source is
	// another group. Groups and Scopes are sorted, without duplicates.
	Groups, Scopes []string
	// View is the only view that the principal may use, "" for any.
	View string
}

// Label returns the principal's name in policies.
func (p *Principal) Label() string { return Label(p.ID) }

type principalKey struct{}

// WithPrincipal returns a context of requests of p; nil is an anonymous client.
func WithPrincipal(ctx context.Context, p *Principal) context.Context {
	if p == nil {
		return ctx
	}
	return context.WithValue(ctx, principalKey{}, p)
}

// As returns ctx with the principal, the source and the challenge of the request of from. A session needs it, because
// its own context outlives its requests.
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

// WithLasts returns a context of an admitted HTTP request. Lasts calls lasts if the answer is an event stream, which
// must end with the credentials of the request.
func WithLasts(ctx context.Context, lasts func()) context.Context {
	return context.WithValue(ctx, lastsKey{}, lasts)
}

// Lasts tells the gate that the answer to the HTTP request of a context is an event stream.
func Lasts(ctx context.Context) {
	if lasts, ok := ctx.Value(lastsKey{}).(func()); ok {
		lasts()
	}
}

type outlivesKey struct{}

// WithOutlives returns a context of an admitted HTTP request. Outlives calls outlives for something that lasts longer
// than the request, such as a session. end is called once the credentials are revoked or have expired; call leave if
// the session ends otherwise.
func WithOutlives(ctx context.Context, outlives func(end func()) (leave func())) context.Context {
	return context.WithValue(ctx, outlivesKey{}, outlives)
}

// Outlives tells the gate that a session outlives the HTTP request of a context; see WithOutlives.
func Outlives(ctx context.Context, end func()) (leave func()) {
	if outlives, ok := ctx.Value(outlivesKey{}).(func(func()) func()); ok {
		return outlives(end)
	}
	return func() {}
}

// NameOf returns the ID of the principal of a context, "" for none.
func NameOf(ctx context.Context) string {
	if p := PrincipalOf(ctx); p != nil {
		return p.ID
	}
	return ""
}

// PrincipalOf returns the principal of a context, nil for an anonymous client.
func PrincipalOf(ctx context.Context) *Principal {
	p, _ := ctx.Value(principalKey{}).(*Principal)
	return p
}

// Transports of requests.
const (
	TransportStdio = "stdio"
	TransportHTTP  = "http"
	TransportSSE   = "sse"
	TransportREST  = "rest"
	TransportUI    = "ui" // the page
)

// Party has what policies know of the maker of a request: the principal, the client program and the transport. The
// name and version of the program are its own statements, without a proof.
type Party struct {
	Principal       *Principal // nil: anonymous
	Client, Version string
	Transport       string // one of the Transports
	// Groups says that the client declared the groups extension, so it is shown other lists; policies do not know it.
	Groups bool
}

type partyKey struct{}

// WithParty returns a context of requests of p.
func WithParty(ctx context.Context, p Party) context.Context {
	return context.WithValue(ctx, partyKey{}, p)
}

// PartyOf returns the party of a context, and false if the request is from the user of this program.
func PartyOf(ctx context.Context) (Party, bool) {
	p, ok := ctx.Value(partyKey{}).(Party)
	return p, ok
}
