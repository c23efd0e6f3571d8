// Package inbound decides who may come in over HTTP: it proves API keys and access tokens,
// answers those without as the MCP specification wants it, and knows what scopes allow. It
// issues no tokens, and keeps nothing: keys come from whoever stores them.
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
	Keys     bool     // API keys are taken
	Resource string   // URL of the root as clients know it; "": the one that a request names, which must be the address that it came to
	Issuers  []Issuer // of access tokens
	Scopes   Scopes   // none: whoever comes in may do everything
}

// Mode is whether clients must prove who they are.
type Mode string

// The modes.
const (
	Unsaid Mode = ""     // nothing was configured: anyone on this machine may come in
	None   Mode = "none" // anyone may come in
	Proof  Mode = "on"   // nobody without a key or token
)

// Issuer is an authorization server whose access tokens are taken.
type Issuer struct {
	URL          string        // as in the claim iss
	Audiences    []string      // values of aud that are taken for every view; none: the URL of the server or view itself
	Algorithms   []string      // of signatures; see Algorithms
	Introspect   Introspection // zero: its tokens must be JWTs
	Claims       Claims
	AllowPrivate bool   // its addresses may be private ones
	ClientID     string // of a public client there, with which browsers prove whose they are; "" to register one
}

// Introspection is how opaque tokens are asked for (RFC 7662).
type Introspection struct {
	ClientID, ClientSecret string
	URL                    string // "": what the issuer's metadata says
}

// Claims name the claims that say something of the bearer. A name with dots that is no
// claim leads into objects: realm_access.roles.
type Claims struct {
	Principal string // default sub
	Groups    string // default groups
	Scopes    string // default scope, else scp
}

// signatures are the algorithms that may be configured. None of them has a shared secret.
var signatures = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA, jose.PS256, jose.RS384, jose.RS512, jose.ES384, jose.ES512, jose.PS384, jose.PS512}

// Algorithms are their names.
var Algorithms = func() (names []string) {
	for _, algorithm := range signatures {
		names = append(names, string(algorithm))
	}
	return names
}()

// DefaultAlgorithms are those of an issuer that names none.
var DefaultAlgorithms = Algorithms[:4]

// Level is how much an operation changes, or a scope allows: what allows more allows what
// changes less.
type Level string

// The levels, by how much they allow.
const (
	Read        Level = "read"
	Write       Level = "write"
	Destructive Level = "destructive"
)

// Levels in their order.
var Levels = []Level{Read, Write, Destructive}

func (l Level) rank() int { return slices.Index(Levels, l) }

// Scope is what a scope allows.
type Scope struct {
	Name   string
	Allows Level
}

// Scopes are all that mean something here, in the order of the configuration.
type Scopes []Scope

// names of those that filter takes.
func (s Scopes) names(filter func(Scope) bool) (names []string) {
	for _, scope := range s {
		if filter(scope) {
			names = append(names, scope.Name)
		}
	}
	return names
}

// least is the scope that allows a level and no more than must be; "" where none does.
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

// Have reports whether one of the scopes allows a level.
func (s Scopes) Have(level Level) bool { return s.least(level) != "" }

// Check reports whether a principal may do an operation of a level: the error is a
// *identity.ScopeError. Nobody, who came in without a proof, may: whoever asks for proofs lets
// nobody in.
func (s Scopes) Check(p *identity.Principal, level Level, operation string) error {
	if len(s) == 0 || p == nil {
		return nil
	}
	if level == Destructive && !s.Have(Destructive) {
		level = Write // who names no scope for what destroys does not tell it from other writing
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

// LevelOf is how much a tool changes by its annotations. One that says nothing of it writes.
func LevelOf(def *tool.Def) Level {
	switch {
	case def.Annotations.ReadOnly:
		return Read
	case def.Annotations.SaysDestructive:
		return Destructive
	}
	return Write
}

// isLocal reports whether an address is this machine's own.
func isLocal(address netip.Addr) bool { return address.Unmap().IsLoopback() }
