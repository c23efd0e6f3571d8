package inbound

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"toolfinch/internal/identity"
	"toolfinch/internal/limit"
)

// Options of a Gate.
type Options struct {
	Settings
	// Header is the HTTP header in which a reverse proxy of Proxies names the authenticated user; "" for none. It
	// counts in the modes Unsaid and None.
	Header  string
	Proxies []netip.Prefix // trusted reverse proxies; nil: loopback addresses
	Store   KeyStore       // has the API keys
	// Heard reports whether each change of API keys calls Forget. While it is true, cached keys are accepted without
	// reading the store. Nil: no change calls Forget.
	Heard func() bool
	// Refuse answers a refused request.
	Refuse func(w http.ResponseWriter, r *http.Request, status int, reason string)
	// Root returns the name of the view that is served at the root.
	Root   func() string
	Record identity.Record // nil: drops events
	Log    *slog.Logger
	Agent  string           // User-Agent of requests to issuers
	Now    func() time.Time // nil: the machine's clock
}

// Gate admits or refuses requests. It has more than 30 methods: each kind of credential and each answer to a refused
// request needs the same settings and caches.
type Gate struct {
	Options
	issuers  []*issuer
	keys     *keys
	verified *lru.Cache[[32]byte, *verified]
	failures *lru.Cache[string, *rate.Limiter] // by address
	failing  *limit.Limit
	waiting  *limit.Limit // bounds requests that wait for issuers
	counts   counts
	inside   inside
	now      func() time.Time
}

const (
	maxVerified  = 10_000 // cached tokens
	maxKeysKnown = 10_000 // cached API keys, also unknown ones
	maxAddresses = 10_000 // addresses with counted failures
	maxWaiting   = 256    // requests that wait for issuers at once

	// An address may send failuresAtOnce wrong credentials at once, and then one each failureEvery.
	failuresAtOnce = 30
	failureEvery   = 2 * time.Second
)

// New returns a gate.
func New(options Options) *Gate {
	if options.Proxies == nil {
		options.Proxies = thisMachine
	}
	g := &Gate{Options: options, now: options.Now, counts: newCounts()}
	if g.now == nil {
		g.now = time.Now
	}
	g.keys = &keys{store: options.Store, heard: options.Heard, log: options.Log, now: g.now, recent: latest[[32]byte, knownKey](maxKeysKnown), used: map[[32]byte]time.Time{}, again: make(chan struct{}, 1)}
	g.verified = latest[[32]byte, *verified](maxVerified)
	g.failures = latest[string, *rate.Limiter](maxAddresses)
	g.failing = limit.New("failed_credentials", failuresAtOnce, "credentials of this address were refused", "send others later")
	g.waiting = limit.New("issuer_requests", maxWaiting, "requests wait for an identity provider", "send fewer at once")
	for _, settings := range options.Issuers {
		g.issuers = append(g.issuers, newIssuer(settings, options.Agent, options.Log, g.now, g.waiting))
	}
	return g
}

// latest returns a cache of the most recently used entries.
func latest[K comparable, V any](most int) *lru.Cache[K, V] {
	cache, _ := lru.New[K, V](most) // it fails only for sizes below 1
	return cache
}

var thisMachine = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

const (
	tendEvery = 30 * time.Second
	// lookEvery is the pause between checks of the keys of open requests and sessions: with SQLite, commands in other
	// processes revoke keys silently.
	lookEvery = time.Second
)

// Run refreshes the issuers' keys, stores when API keys were used, and ends requests and sessions that outlast their
// credentials, until ctx ends.
func (g *Gate) Run(ctx context.Context) {
	ticker, look := time.NewTicker(tendEvery), time.NewTicker(lookEvery)
	defer ticker.Stop()
	defer look.Stop()
	if g.Mode != Proof {
		look.Stop() // without proofs no credentials can end
	}
	learned := int64(-1) // g.keys.forgot at the last successful learn
	for {
		if now := g.keys.forgot.Load(); g.Keys && learned != now && g.keys.learn(ctx) == nil { // else the next round
			learned = now
		}
		for _, i := range g.issuers {
			if i.stale() {
				_ = i.refresh(ctx, keysRetry) // fails only when ctx ends
			}
		}
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			g.keys.flush(last)
			return
		case <-g.keys.again:
			g.lookAround(ctx)
		case <-look.C:
			g.lookAround(ctx)
		case <-ticker.C:
			g.keys.flush(ctx)
		}
	}
}

// Limits returns the limits of failing addresses, and of requests that wait for issuers.
func (g *Gate) Limits() []*limit.Limit { return []*limit.Limit{g.failing, g.waiting} }

// Counts returns the number of requests for each of the reasons, in their order.
func (g *Gate) Counts(reasons []Reason) []int64 {
	out := make([]int64, len(reasons))
	for i, reason := range reasons {
		out[i] = g.counts[reason].Load()
	}
	return out
}

// CheckListener returns an error for an address that other machines can reach, unless the owner has configured who
// may come in.
func (s Settings) CheckListener(at net.Addr) error {
	if s.Mode != Unsaid || localAddr(at) {
		return nil
	}
	return fmt.Errorf("listening at %s lets other machines in, and the configuration does not say who may come in: "+
		"write auth: keys (and make one with: toolfinch key create NAME), auth: {issuers: [...]} for an identity provider, or auth: none for anyone", at)
}

func localAddr(at net.Addr) bool {
	if at == nil || at.Network() == "unix" || at.Network() == "pipe" {
		return true
	}
	to, err := netip.ParseAddrPort(at.String())
	return err == nil && isLocal(to.Addr())
}

// Target is the destination of a request.
type Target struct {
	View string // its name; "" for the root
	SSE  bool   // over HTTP+SSE, which only the root serves
	Any  bool   // no single view: the answer depends on the principal
}

// Enter passes admitted requests to next, with the principal and the source in their context. It removes the
// credentials, so that no later handler passes them on.
func (g *Gate) Enter(next http.Handler, target func(*http.Request) Target) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := identity.WithSource(r.Context(), g.Source(r))
		to := target(r)
		v, refused := g.prove(r.WithContext(ctx), to)
		if refused == nil && g.Mode == Proof {
			refused = g.admit(v.principal, Read)
		}
		if refused != nil {
			g.refuse(w, r.WithContext(ctx), to, v.principal, refused)
			return
		}
		if v.by != "" {
			g.counts[v.by].Add(1)
		}
		if g.Mode == Proof {
			var leave func()
			ctx, leave = g.stay(ctx, v)
			defer leave()
		}
		if len(g.Scopes) > 0 {
			metadata := g.metadataFor(r, to)
			ctx = identity.WithChallenge(ctx, func(e *identity.ScopeError) string {
				g.counts[NoScope].Add(1)
				return g.challenge(metadata, &refusal{code: "insufficient_scope", scope: strings.Join(e.Ask, " "), words: e.Error()})
			})
		}
		next.ServeHTTP(w, without(r.WithContext(identity.WithPrincipal(ctx, v.principal))))
	})
}

// Know is Enter for all requests. A request without valid credentials has no principal.
func (g *Gate) Know(next http.Handler, target func(*http.Request) Target) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := identity.WithSource(r.Context(), g.Source(r))
		if g.Mode != Proof || r.Header.Get("Authorization") != "" {
			if v, refused := g.prove(r.WithContext(ctx), target(r)); refused == nil {
				ctx = identity.WithPrincipal(ctx, v.principal)
			}
		}
		next.ServeHTTP(w, without(r.WithContext(ctx)))
	})
}

// Strangers reports whether a request lacks a required proof, so that its answer must reveal as little as possible.
func (g *Gate) Strangers(r *http.Request) bool {
	return g.Mode == Proof && identity.PrincipalOf(r.Context()) == nil
}

func without(r *http.Request) *http.Request {
	if r.Header.Get("Authorization") != "" { // r is our copy, but its header is shared
		r.Header = r.Header.Clone()
		r.Header.Del("Authorization")
	}
	return r
}

// secretsInQuery are query parameters in which clients send credentials by mistake.
var secretsInQuery = []string{"access_token", "api_key", "apikey", "api-key", "token", "bearer"}

// prove proves who makes a request. The result is never nil; its principal is nil for an anonymous request, which
// some modes allow.
func (g *Gate) prove(r *http.Request, to Target) (*verified, *refusal) {
	if g.Mode != Proof {
		if p := g.named(r); p != nil {
			return &verified{principal: p, by: ByProxy}, nil
		}
		return &verified{}, nil
	}
	query := r.URL.Query()
	for _, name := range secretsInQuery {
		if query.Has(name) {
			return &verified{}, &refusal{status: http.StatusBadRequest, reason: BadRequest, code: "invalid_request",
				words: "credentials in the URL are refused, because URLs are logged: send Authorization: Bearer ..., and replace what was sent"}
		}
	}
	sent := r.Header.Values("Authorization")
	scheme, token, _ := strings.Cut(strings.Join(sent, ","), " ")
	token = strings.TrimSpace(token)
	switch {
	case len(sent) == 0:
		return &verified{}, &refusal{status: http.StatusUnauthorized, reason: NoCredentials, words: "credentials are missing: send " + g.wanted()}
	case len(sent) == 1 && !strings.EqualFold(scheme, "Bearer"): // another scheme, for which RFC 6750 has no error code
		return &verified{}, &refusal{status: http.StatusUnauthorized, reason: BadRequest, words: "send one header: " + g.wanted()}
	case len(sent) > 1 || token == "" || strings.ContainsAny(token, " ,"): // RFC 6750, section 3.1
		return &verified{}, &refusal{status: http.StatusBadRequest, reason: BadRequest, code: "invalid_request", words: "send one header: " + g.wanted()}
	}
	if len(token) > maxToken {
		return &verified{}, invalid(Malformed, "the token is too long")
	}
	v, refused := g.known(r, token)
	if refused != nil {
		return &verified{}, refused
	}
	return v, g.fits(r, to, v)
}

func (g *Gate) wanted() string {
	switch {
	case len(g.issuers) == 0:
		return "Authorization: Bearer, with an API key"
	case !g.Settings.Keys:
		return "Authorization: Bearer, with an access token"
	}
	return "Authorization: Bearer, with an API key or an access token"
}

// known proves a key or token. An address with too many failures must wait if the proof needs the store or an
// issuer's introspection, unless the credentials were good at the last check.
func (g *Gate) known(r *http.Request, token string) (*verified, *refusal) {
	hash := sha256.Sum256([]byte(token))
	isKey := g.Settings.Keys && strings.HasPrefix(token, keyPrefix)
	good := isKey && g.keys.good(hash)
	if !isKey {
		v, ok := g.verified.Get(hash)
		if ok && g.now().Before(v.until) {
			return v, nil
		}
		good = ok
	}
	var jwt unproved
	signed := false
	if !isKey {
		jwt, signed = read(token)
	}
	from, _ := identity.SourceOf(r.Context())
	failures := g.failuresOf(from.Address)
	if !good && !signed && failures.TokensAt(g.now()) < 1 {
		return nil, g.tooMany()
	}
	v := &verified{by: ByKey, key: hash}
	var refused *refusal
	switch {
	case isKey:
		v.principal, refused = g.keys.find(r.Context(), hash)
	case signed:
		v, refused = g.verifyJWT(r.Context(), jwt)
	default:
		v, refused = g.introspect(r.Context(), token)
	}
	switch {
	case refused == nil && !isKey:
		g.verified.Add(hash, v)
	case refused != nil && refused.status == http.StatusUnauthorized:
		g.verified.Remove(hash)
		if !failures.AllowN(g.now(), 1) {
			return nil, g.tooMany()
		}
	}
	return v, refused
}

// failuresOf returns the limiter of an address.
func (g *Gate) failuresOf(address string) *rate.Limiter {
	failures, found := g.failures.Get(address)
	if !found {
		failures = rate.NewLimiter(rate.Every(failureEvery), failuresAtOnce)
		if first, there, _ := g.failures.PeekOrAdd(address, failures); there {
			failures = first
		}
	}
	return failures
}

// Attempt counts an attempt to prove something elsewhere as a failure of the request's address, and reports whether the
// address may make it.
func (g *Gate) Attempt(r *http.Request) bool {
	return g.failuresOf(g.Source(r).Address).AllowN(g.now(), 1)
}

func (g *Gate) tooMany() *refusal {
	return &refusal{status: http.StatusTooManyRequests, reason: TooMany, words: g.failing.Refuse().Error(), wait: failureEvery}
}

// fits checks that credentials are for the target: a key of one view opens no other view, and a token must be for
// this server.
func (g *Gate) fits(r *http.Request, to Target, v *verified) *refusal {
	if only := v.principal.View; only != "" && !to.Any && g.resolved(to) != only {
		return &refusal{status: http.StatusForbidden, reason: WrongView, words: fmt.Sprintf("this API key is for the view %q alone: connect to /mcp/%s", only, url.PathEscape(only))}
	}
	if v.issuer == nil {
		return nil
	}
	accepted := v.issuer.Audiences
	if len(accepted) == 0 {
		if g.Resource == "" && !isOwn(r) {
			return &refusal{status: http.StatusMisdirectedRequest, reason: WrongAudience, words: "whether the token is for this server cannot be told: the Host header does not name the address " +
				"and port that the request came to. If clients reach this server by another one, its owner writes it as auth.resource"}
		}
		accepted = g.audiences(r, to)
	}
	if !slices.ContainsFunc(v.audience, func(is string) bool {
		return slices.ContainsFunc(accepted, func(want string) bool { return sameURL(is, want) })
	}) {
		return invalid(WrongAudience, "the token is for another server: ask for one with the resource "+g.resource(r, to))
	}
	return nil
}

// admit checks that a principal may do anything of a level.
func (g *Gate) admit(p *identity.Principal, level Level) *refusal {
	var lacks *identity.ScopeError
	if !errors.As(g.Scopes.Check(p, level, "this server"), &lacks) {
		return nil
	}
	return &refusal{status: http.StatusForbidden, reason: NoScope, words: lacks.Error(), code: "insufficient_scope", scope: strings.Join(lacks.Ask, " ")}
}

// refuse counts, records and answers a refused request.
func (g *Gate) refuse(w http.ResponseWriter, r *http.Request, to Target, p *identity.Principal, why *refusal) {
	g.counts[why.reason].Add(1)
	if why.reason != TooMany {
		event := identity.Event{Kind: identity.EventRefused, Outcome: identity.Denied, View: to.View, Reason: string(why.reason)}
		if p != nil {
			event.Principal = p.ID
		}
		g.Record.Event(r.Context(), event)
	}
	if why.status == http.StatusUnauthorized || why.code != "" {
		w.Header().Set("WWW-Authenticate", g.challenge(g.metadataFor(r, to), why))
	}
	if why.wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(why.wait/time.Second)))
	}
	g.Refuse(w, r, why.status, why.words)
}

// named returns the principal that a trusted reverse proxy names. A request that repeats the header is anonymous,
// because a client may have added the second one. So is a request with the ID of a key or token.
func (g *Gate) named(r *http.Request) *identity.Principal {
	if g.Header == "" || !g.fromProxy(r) {
		return nil
	}
	values := r.Header.Values(g.Header)
	if len(values) != 1 || values[0] == "" || len(values[0]) > maxSubject || slices.ContainsFunc(ownNames, func(prefix string) bool { return strings.HasPrefix(values[0], prefix) }) {
		return nil
	}
	return &identity.Principal{ID: values[0]}
}

// ownNames are prefixes of IDs that a header must not name: of API keys, the owner on stdio, and tokens.
var ownNames = []string{identity.From(identity.KeySource, ""), identity.From(identity.TransportStdio, ""), "https://", "http://"}

// remote returns the address of the client end of a connection; it is not valid for a Unix socket.
func remote(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap().WithZone("")
}

func (g *Gate) believes(address netip.Addr) bool {
	return slices.ContainsFunc(g.Proxies, func(prefix netip.Prefix) bool { return prefix.Contains(address) })
}

// fromProxy reports whether a trusted reverse proxy sent a request. The client of a Unix socket is on this machine.
func (g *Gate) fromProxy(r *http.Request) bool {
	address := remote(r)
	if at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); !address.IsValid() && ok && localAddr(at) {
		address = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return g.believes(address)
}

// maxHops bounds the addresses that are read from X-Forwarded-For.
const maxHops = 32

// Source returns where a request comes from, before any trusted reverse proxies.
func (g *Gate) Source(r *http.Request) identity.Source {
	from := identity.Source{Transport: "http", Secure: r.TLS != nil}
	switch first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); first {
	case "sse", "message":
		from.Transport = "sse"
	case "api", "metrics", "openapi.json":
		from.Transport = "rest"
	case "ui":
		from.Transport = identity.TransportUI
	}
	address := remote(r)
	if g.fromProxy(r) {
		from.Secure = from.Secure || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
		hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
		for _, hop := range slices.Backward(hops[max(0, len(hops)-maxHops):]) {
			next, err := netip.ParseAddr(strings.TrimSpace(hop))
			if err != nil {
				break
			}
			if address = next.Unmap().WithZone(""); !g.believes(address) {
				break
			}
		}
	}
	if address.IsValid() {
		from.Address = address.String()
	}
	return from
}
