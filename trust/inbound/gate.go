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
	// Header is the HTTP header in which one of Proxies names who was authenticated; ""
	// for none. It counts in the modes Unsaid and None.
	Header  string
	Proxies []netip.Prefix // reverse proxies that are believed; nil: those on this machine
	Store   KeyStore       // of API keys
	// Heard reports whether Forget is called whenever a key is made or revoked: until then
	// keys are taken without a look at the store. Nil: nobody calls it.
	Heard func() bool
	// Refuse answers a request that is not let in.
	Refuse func(w http.ResponseWriter, r *http.Request, status int, reason string)
	// Root is the name of the view that is served at the root.
	Root   func() string
	Record identity.Record // nil: nobody
	Log    *slog.Logger
	Now    func() time.Time // nil: the clock of the machine
}

// Gate lets requests in. It has more than 30 methods: each kind of credential and each answer to a refused request needs the
// same settings and caches.
type Gate struct {
	Options
	issuers  []*issuer
	keys     *keys
	verified *lru.Cache[[32]byte, *verified]
	failures *lru.Cache[string, *rate.Limiter] // by address
	failing  *limit.Limit
	waiting  *limit.Limit // of requests for an issuer
	counts   counts
	inside   inside
	now      func() time.Time
}

const (
	maxVerified  = 10_000 // tokens that are remembered
	maxKeysKnown = 10_000 // likewise, API keys and what is none
	maxAddresses = 10_000 // addresses whose failures are remembered
	maxWaiting   = 256    // requests that wait for issuers at once

	// failuresAtOnce is how often an address may fail to prove who it is before it must
	// wait, and failureEvery how long it takes until it may once more.
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
		g.issuers = append(g.issuers, newIssuer(settings, options.Log, g.now, g.waiting))
	}
	return g
}

// latest keeps the values that were put or taken last, so many at most.
func latest[K comparable, V any](most int) *lru.Cache[K, V] {
	cache, _ := lru.New[K, V](most) // it fails for sizes below 1 alone
	return cache
}

var thisMachine = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

const (
	tendEvery = 30 * time.Second
	// lookEvery is how often keys are looked up with which requests or sessions go on: commands of other
	// processes over SQLite revoke keys without a word.
	lookEvery = time.Second
)

// Run keeps the keys of the issuers fresh, notes the use of API keys and ends what lasts
// longer than its credentials, until ctx ends.
func (g *Gate) Run(ctx context.Context) {
	ticker, look := time.NewTicker(tendEvery), time.NewTicker(lookEvery)
	defer ticker.Stop()
	defer look.Stop()
	if g.Mode != Proof {
		look.Stop() // nobody has credentials that end
	}
	learned := int64(-1) // g.keys.forgot when all keys were learned
	for {
		if now := g.keys.forgot.Load(); g.Keys && learned != now && g.keys.learn(ctx) == nil { // else soon
			learned = now
		}
		for _, i := range g.issuers {
			if i.stale() {
				_ = i.refresh(ctx, keysRetry) // an error is the end of ctx
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

// Limits are those of clients that fail, and of what waits for issuers.
func (g *Gate) Limits() []*limit.Limit { return []*limit.Limit{g.failing, g.waiting} }

// Counts returns how often requests were let in and refused, by reason.
func (g *Gate) Counts(reasons []Reason) []int64 {
	out := make([]int64, len(reasons))
	for i, reason := range reasons {
		out[i] = g.counts[reason].Load()
	}
	return out
}

// CheckListener says why a server must not listen at an address: beyond this machine
// nobody may come in without the owner having said who may.
func (s Settings) CheckListener(at net.Addr) error {
	if s.Mode != Unsaid || localAddr(at) {
		return nil
	}
	return fmt.Errorf("listening at %s lets other machines in, and the configuration does not say who may come in: "+
		"write auth: keys (and make one with: toolfinch key create NAME), auth: {issuers: [...]} for an identity provider, or auth: none for anyone", at)
}

// localAddr reports whether only this machine reaches an address.
func localAddr(at net.Addr) bool {
	if at == nil || at.Network() == "unix" || at.Network() == "pipe" {
		return true
	}
	to, err := netip.ParseAddrPort(at.String())
	return err == nil && isLocal(to.Addr())
}

// Target is what a request is for.
type Target struct {
	View string // as the request names it; "" for the root
	SSE  bool   // by HTTP+SSE, which only the root has
	Any  bool   // of no view: what is answered follows from who asks
}

// Enter lets requests in to next. Its context has the principal, and where it comes from;
// the credentials are taken out, so that nobody passes them on.
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

// Know is Enter for what everybody may ask: who proves nothing is nobody.
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

// Strangers reports whether a request must be told no more than it must know.
func (g *Gate) Strangers(r *http.Request) bool {
	return g.Mode == Proof && identity.PrincipalOf(r.Context()) == nil
}

// without takes the credentials out of a request.
func without(r *http.Request) *http.Request {
	if r.Header.Get("Authorization") != "" { // r is our own copy, its header is not
		r.Header = r.Header.Clone()
		r.Header.Del("Authorization")
	}
	return r
}

// secretsInQuery are parameters in which credentials are sent by mistake.
var secretsInQuery = []string{"access_token", "api_key", "apikey", "api-key", "token", "bearer"}

// prove returns what proves who makes a request; its principal is nil for nobody, where
// that suffices. It is not nil.
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
	case len(sent) == 1 && !strings.EqualFold(scheme, "Bearer"): // of another scheme, to which no error of this one belongs
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

// known proves a key or token. Who fails too often must wait with what would have others asked
// about it: the store, or an issuer. Others at the same address need not, whose token is signed
// or whose credentials were good when they were looked at last.
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
	failures, found := g.failures.Get(from.Address)
	if !found {
		failures = rate.NewLimiter(rate.Every(failureEvery), failuresAtOnce)
		if first, there, _ := g.failures.PeekOrAdd(from.Address, failures); there {
			failures = first
		}
	}
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

func (g *Gate) tooMany() *refusal {
	return &refusal{status: http.StatusTooManyRequests, reason: TooMany, words: g.failing.Refuse().Error(), wait: failureEvery}
}

// fits reports whether credentials are for the target: a key of one view for no other, a
// token for this server.
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

// admit checks that a principal may do something of a level at all.
func (g *Gate) admit(p *identity.Principal, level Level) *refusal {
	var lacks *identity.ScopeError
	if !errors.As(g.Scopes.Check(p, level, "this server"), &lacks) {
		return nil
	}
	return &refusal{status: http.StatusForbidden, reason: NoScope, words: lacks.Error(), code: "insufficient_scope", scope: strings.Join(lacks.Ask, " ")}
}

// refuse answers a request that is not let in.
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

// named is whom a reverse proxy names that is believed. A request that repeats the header
// is nobody's: a client may have added one. So is one with a name that a key or token proves.
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

// ownNames begin the IDs of bearers of API keys, of the owner on stdio, and of bearers of tokens.
var ownNames = []string{identity.From(identity.KeySource, ""), identity.From(identity.TransportStdio, ""), "https://", "http://"}

// remote is the address of the other end of a request's connection; not valid where it has none.
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

// fromProxy reports whether a reverse proxy that is believed sent a request. The other end
// of a Unix socket is on this machine.
func (g *Gate) fromProxy(r *http.Request) bool {
	address := remote(r)
	if at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); !address.IsValid() && ok && localAddr(at) {
		address = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return g.believes(address)
}

// maxHops bounds how many addresses of X-Forwarded-For are looked at.
const maxHops = 32

// Source is where a request comes from: past the reverse proxies that are believed.
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
