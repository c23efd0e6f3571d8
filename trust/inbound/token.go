package inbound

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"toolfinch/internal/identity"
	"toolfinch/internal/limit"
)

const (
	// skew is the tolerated difference between our clock and an issuer's.
	skew = 30 * time.Second

	tokenFresh  = 5 * time.Minute // then a JWT is verified again
	opaqueFresh = time.Minute     // then its issuer is asked again

	maxToken   = 16 << 10 // bytes
	maxSubject = 1024     // bytes of a principal's ID
	maxNames   = 1000     // groups, or scopes, of a token
)

// verified is the result of a successful proof.
type verified struct {
	principal *identity.Principal
	audience  []string
	issuer    *issuer
	until     time.Time // time of the next verification
	ends      time.Time // expiry of a token, with skew; zero for a key
	key       [32]byte  // hash of an API key
	by        Reason
}

// unproved is a JWT before its verification.
type unproved struct {
	token                        *jwt.JSONWebToken // nil if no issuer may use the algorithm
	algorithm, kind, key, issuer string
}

// read parses a JWT without proving anything; is reports whether the token is a JWT.
func read(token string) (u unproved, is bool) {
	parsed, err := jwt.ParseSigned(token, signatures)
	if other, ok := errors.AsType[*jose.ErrUnexpectedSignatureAlgorithm](err); ok {
		return u, other.Got != ""
	}
	var claims map[string]any
	if err != nil || parsed.UnsafeClaimsWithoutVerification(&claims) != nil {
		return u, false
	}
	header := parsed.Headers[0]
	u = unproved{token: parsed, algorithm: header.Algorithm, key: header.KeyID}
	kind, there := header.ExtraHeaders[jose.HeaderType]
	if u.kind, is = kind.(string); there && !is {
		return u, false
	}
	u.issuer, _ = claims["iss"].(string)
	return u, true
}

// typesOfTokens are the accepted values of typ, in lower case.
var typesOfTokens = []string{"", "jwt", "at+jwt", "application/at+jwt"}

// verifyJWT proves a signed access token, but does not check its audience.
func (g *Gate) verifyJWT(ctx context.Context, u unproved) (*verified, *refusal) {
	wrongAlgorithm := invalid(WrongAlg, "the token is signed by an algorithm that is not accepted here")
	if u.token == nil {
		return nil, wrongAlgorithm
	}
	at := slices.IndexFunc(g.issuers, func(i *issuer) bool { return i.URL == u.issuer })
	if at < 0 {
		return nil, invalid(WrongIssuer, "the token is of an issuer that is not accepted here")
	}
	i := g.issuers[at]
	switch {
	case !slices.Contains(i.Algorithms, u.algorithm):
		return nil, wrongAlgorithm
	case !slices.Contains(typesOfTokens, strings.ToLower(u.kind)):
		return nil, invalid(Malformed, "this is no access token, by its typ")
	}
	keys, err := i.named(ctx, u.key)
	var full *limit.Error
	switch {
	case errors.As(err, &full):
		return nil, unavailable(full.Error())
	case errors.Is(err, errNoKeys):
		return nil, unavailable("the keys of the token's issuer cannot be had")
	case err != nil:
		return nil, unavailable("the request ended")
	}
	var claims map[string]any
	for _, key := range keys {
		if key.Algorithm != "" && key.Algorithm != u.algorithm {
			continue
		}
		if u.token.Claims(key.Key, &claims) == nil {
			return g.accept(i, claims, ByToken, tokenFresh)
		}
		claims = nil
	}
	return nil, invalid(WrongKey, "the signature of the token is not one of its issuer's")
}

// introspect proves an opaque token, like verifyJWT. Only the first issuer with Introspect is asked, because another
// issuer could misuse the token.
func (g *Gate) introspect(ctx context.Context, token string) (*verified, *refusal) {
	at := slices.IndexFunc(g.issuers, func(i *issuer) bool { return i.Introspect.ClientID != "" })
	if at < 0 {
		return nil, invalid(Malformed, "this is neither an API key nor an access token that can be read here")
	}
	i := g.issuers[at]
	claims, err := i.introspect(ctx, token)
	var full *limit.Error
	switch {
	case errors.As(err, &full):
		return nil, unavailable(full.Error())
	case err != nil:
		i.log.Warn("the issuer cannot be asked for a token", "error", err)
		return nil, unavailable("the issuer of the token cannot be asked")
	case claims == nil:
		return nil, invalid(Inactive, "the token is not active")
	case claims["iss"] != nil && claims["iss"] != i.URL:
		return nil, invalid(WrongIssuer, "the token is of another issuer")
	}
	return g.accept(i, claims, ByOpaque, opaqueFresh)
}

// accept checks the claims of a token whose origin is proved.
func (g *Gate) accept(i *issuer, claims map[string]any, by Reason, fresh time.Duration) (*verified, *refusal) {
	now := g.now()
	expires, ok := timeOf(claims["exp"])
	switch {
	case !ok:
		return nil, invalid(WrongClaims, "the token does not say when it expires")
	case now.After(expires.Add(skew)):
		return nil, invalid(Expired, "the token has expired")
	}
	for _, name := range []string{"nbf", "iat"} {
		if from, ok := timeOf(claims[name]); ok && now.Add(skew).Before(from) {
			return nil, invalid(NotYet, "the token is not valid yet: compare the clocks")
		}
	}
	if claims["cnf"] != nil { // RFC 7800: the bearer must also prove possession of a key
		return nil, invalid(WrongClaims, "the token is bound to a key, which this server cannot check: ask for a bearer token")
	}
	subject, _ := claim(claims, or(i.Claims.Principal, "sub")).(string)
	id := identity.From(i.URL, subject)
	if subject == "" || len(id) > maxSubject || strings.ContainsFunc(subject, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return nil, invalid(WrongClaims, "the token does not say whose it is, in the claim "+or(i.Claims.Principal, "sub"))
	}
	scopes := claim(claims, or(i.Claims.Scopes, "scope"))
	if scopes == nil && i.Claims.Scopes == "" {
		scopes = claims["scp"]
	}
	v := &verified{
		principal: &identity.Principal{ID: id, Groups: identity.AllFrom(i.URL, namesIn(claim(claims, or(i.Claims.Groups, "groups")), false)), Scopes: namesIn(scopes, true)},
		audience:  namesIn(claims["aud"], false), issuer: i, by: by, until: now.Add(fresh), ends: expires.Add(skew),
	}
	if v.ends.Before(v.until) {
		v.until = v.ends
	}
	return v, nil
}

func or(name, usual string) string {
	if name == "" {
		return usual
	}
	return name
}

// claim returns a claim by its name, else by a dotted path.
func claim(claims map[string]any, name string) any {
	if value, ok := claims[name]; ok {
		return value
	}
	first, rest, ok := strings.Cut(name, ".")
	if below, is := claims[first].(map[string]any); ok && is {
		return claim(below, rest)
	}
	return nil
}

// namesIn returns the strings of a claim, sorted, without duplicates. With words, a single string is a list of words.
func namesIn(value any, words bool) []string {
	var names []string
	switch value := value.(type) {
	case string:
		names = []string{value}
		if words {
			names = strings.Fields(value)
		}
	case []any:
		for _, item := range value {
			if name, ok := item.(string); ok && name != "" {
				names = append(names, name)
			}
		}
	}
	names = names[:min(len(names), maxNames)]
	slices.Sort(names)
	return slices.Compact(names)
}

func timeOf(value any) (time.Time, bool) {
	var seconds float64
	switch value := value.(type) {
	case float64:
		seconds = value
	case json.Number:
		seconds, _ = value.Float64()
	default:
		return time.Time{}, false
	}
	const most = 1 << 40 // seconds: about 30,000 years
	if math.IsNaN(seconds) || seconds < 0 || seconds > most {
		return time.Time{}, false
	}
	return time.Unix(int64(seconds), 0), true
}
