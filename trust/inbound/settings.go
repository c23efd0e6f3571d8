// Package inbound decides who may come in over HTTP: it proves API keys and access tokens, answers requests without
// them as the MCP specification demands, and knows what scopes allow. It issues no tokens, and stores nothing: keys
// come from a KeyStore.
package inbound

import (
	"net/netip"
	"slices"

	"github.com/go-jose/go-jose/v4"

	"toolfinch/internal/identity"
	"toolfinch/tool"
)

// Settings say who may come in.
type Settings struct {
	Mode     Mode
	Keys     bool     // API keys are accepted
	Resource string   // URL of the root as clients know it; "": the URL in a request, which must name the address that it came to
	Issuers  []Issuer // issuers of accepted access tokens
	Scopes   Scopes   // none: every client may do everything
}

// Sources returns the sources of groups: the issuers, and identity.KeySource if API keys are accepted.
func (s Settings) Sources() (all []string) {
	if s.Keys {
		all = append(all, identity.KeySource)
	}
	for _, issuer := range s.Issuers {
		all = append(all, issuer.URL)
	}
	return all
}

// Mode says whether clients must prove who they are.
type Mode string

// The modes.
const (
	Unsaid Mode = ""     // nothing was configured: anyone on this machine may come in
	None   Mode = "none" // anyone may come in
	Proof  Mode = "on"   // only clients with a key or token may come in
)

// Issuer is an authorization server whose access tokens are accepted.
type Issuer struct {
	URL          string        // equal to the claim iss
	Audiences    []string      // accepted values of aud, for every view; none: the URL of the server or view
	Algorithms   []string      // of signatures; see Algorithms
	Introspect   Introspection // zero: its tokens must be JWTs
	Claims       Claims
	AllowPrivate bool   // its addresses may be private
	ClientID     string // ID of a public client, for logins in a browser; "": we register one
}

// Introspection says how to ask for the claims of opaque tokens (RFC 7662).
type Introspection struct {
	ClientID, ClientSecret string
	URL                    string // "": the URL in the issuer's metadata
}

// Claims are the names of the claims about the bearer. A dotted name that is no claim is a path into objects:
// realm_access.roles.
type Claims struct {
	Principal string // default sub
	Groups    string // default groups
	Scopes    string // default scope, else scp
}

// signatures are the algorithms that may be configured. None of them uses a shared secret.
var signatures = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA, jose.PS256, jose.RS384, jose.RS512, jose.ES384, jose.ES512, jose.PS384, jose.PS512}

// Algorithms are the names of signatures.
var Algorithms = func() (names []string) {
	for _, algorithm := range signatures {
		names = append(names, string(algorithm))
	}
	return names
}()

// DefaultAlgorithms are the algorithms of an issuer that names none.
var DefaultAlgorithms = Algorithms[:4]

// Level is how much an operation changes, or how much a scope allows. A scope also allows all lower levels.
type Level string

// The levels, the lowest first.
const (
	Read        Level = "read"
	Write       Level = "write"
	Destructive Level = "destructive"
)

// Levels are all levels, the lowest first.
var Levels = []Level{Read, Write, Destructive}

func (l Level) rank() int { return slices.Index(Levels, l) }

// Scope is a scope, and the highest level that it allows.
type Scope struct {
	Name   string
	Allows Level
}

// Scopes are the configured scopes, in their order.
type Scopes []Scope

func (s Scopes) names(filter func(Scope) bool) (names []string) {
	for _, scope := range s {
		if filter(scope) {
			names = append(names, scope.Name)
		}
	}
	return names
}

// least returns the name of the lowest scope that allows a level; "" if no scope does.
func (s Scopes) least(level Level) string {
	var least *Scope
	for i, scope := range s {
		if scope.Allows.rank() >= level.rank() && (least == nil || scope.Allows.rank() < least.Allows.rank()) {
			least = &s[i]
		}
	}
	if least == nil {
		return ""
	}
	return least.Name
}

// Have reports whether a configured scope allows a level.
func (s Scopes) Have(level Level) bool { return s.least(level) != "" }

// Check returns a *identity.ScopeError if a principal may not do an operation of a level. A nil principal may: where
// proofs are required, the gate admits no anonymous request.
func (s Scopes) Check(p *identity.Principal, level Level, operation string) error {
	if len(s) == 0 || p == nil {
		return nil
	}
	if level == Destructive && !s.Have(Destructive) {
		level = Write // without a destructive scope, scopes for writing suffice
	}
	for _, scope := range s {
		if scope.Allows.rank() >= level.rank() && slices.Contains(p.Scopes, scope.Name) {
			return nil
		}
	}
	needed := s.least(level)
	return &identity.ScopeError{
		Operation: operation, Needed: needed, Key: identity.Of(identity.KeySource, p.ID),
		Ask: s.names(func(scope Scope) bool { return scope.Name == needed || slices.Contains(p.Scopes, scope.Name) }),
	}
}

// LevelOf returns the level of a tool by its annotations; the default is Write.
func LevelOf(def *tool.Def) Level {
	switch {
	case def.Annotations.ReadOnly:
		return Read
	case def.Annotations.SaysDestructive:
		return Destructive
	}
	return Write
}

func isLocal(address netip.Addr) bool { return address.Unmap().IsLoopback() }
