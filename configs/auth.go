package configs

import (
	"net"
	"slices"
	"strconv"
	"strings"

	"toolfinch/internal/document"
	"toolfinch/trust/inbound"
)

// authKind says who may come in over HTTP: a word, or a mapping.
type authKind struct{}

const (
	authNone = "none"
	authKeys = "keys"
)

var authWords = choice[string]{words: []string{authNone, authKeys}}

var authKeysOf = section[inbound.Settings]{
	keys: keys{
		{
			name:  "keys",
			doc:   "accepts API keys, which `toolfinch key create` makes",
			value: in(func(s *inbound.Settings) *bool { return &s.Keys }).is(boolean{}, true),
		},
		{
			name: "resource", without: "as requested",
			doc:   "the public URL of `/mcp`: the audience of access tokens",
			value: in(func(s *inbound.Settings) *string { return &s.Resource }).is(str{check: resourceURL}),
		},
		{
			name:  "issuers",
			doc:   "authorization servers: URLs, or mappings; see [Issuers](#issuers)",
			value: in(func(s *inbound.Settings) *[]inbound.Issuer { return &s.Issuers }).is(list[inbound.Issuer]{item: issuerKind{}}),
		},
		{
			name: "scopes", without: "whoever comes in may do everything",
			doc:   "by scope: `read`, `write` (includes `read`) or `destructive` (everything); see [security.md](security.md#what-scopes-allow)",
			value: in(func(s *inbound.Settings) *[]inbound.Scope { return (*[]inbound.Scope)(&s.Scopes) }).is(scopeList),
		},
	},
	check: func(d *decoder, n *document.Node, label string, s *inbound.Settings) {
		if !s.Keys && len(s.Issuers) == 0 {
			d.fail(n, label+": nobody can come in, with neither keys nor issuers", "write keys: true, or issuers: [URL]")
		}
		asked := 0
		for _, i := range s.Issuers {
			if i.Introspect.ClientID != "" {
				asked++
			}
		}
		if asked > 1 {
			d.fail(n, label+": more than one issuer has introspect: an opaque token does not say which issuer it is of, and another that is asked could use it",
				"write introspect for one issuer; tokens of the other issuers must be JWTs")
		}
	},
}

var scopeList = named[inbound.Scope]{
	noun: "scope", of: "scopes to what they allow", hint: `like {"mcp:read": read, "mcp:write": write}`,
	item:  scopeKind{},
	fresh: func(p document.Pair) inbound.Scope { return inbound.Scope{Name: p.Key.Text} },
	name:  func(s *inbound.Scope) string { return s.Name },
	check: func(d *decoder, key *document.Node, label string) {
		if !isScope(key.Text) {
			d.fail(key, label+" is no name of a scope", "letters, digits and signs, without spaces, quotes and backslashes")
		}
	},
}

// isScope is scope-token of RFC 6749.
func isScope(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' })
}

type scopeKind struct{}

var scopeLevels = choice[inbound.Level]{words: inbound.Levels}

func (scopeKind) read(d *decoder, n *document.Node, label string, to *inbound.Scope) bool {
	return scopeLevels.read(d, n, label, &to.Allows)
}
func (scopeKind) show(s *secrets, v inbound.Scope) *document.Node {
	return scopeLevels.show(s, v.Allows)
}
func (scopeKind) schema() schema { return scopeLevels.schema() }

var issuerKeys = section[inbound.Issuer]{
	keys: keys{
		{
			name:  "issuer",
			doc:   "its URL, as in the claim `iss`. Required",
			value: in(func(i *inbound.Issuer) *string { return &i.URL }).is(str{check: issuerURL}),
		},
		{
			name: "audience", without: "the called URL",
			doc:   "accepted values of the claim `aud`, for issuers that cannot put URLs there",
			value: in(func(i *inbound.Issuer) *[]string { return &i.Audiences }).is(list[string]{item: str{check: notEmpty}}),
		},
		{
			name: "algorithms", without: "`RS256`, `ES256`, `EdDSA`, `PS256`",
			doc:   "accepted signature algorithms",
			value: in(func(i *inbound.Issuer) *[]string { return &i.Algorithms }).is(list[string]{item: choice[string]{words: inbound.Algorithms}}),
		},
		{
			name: "introspect", without: "tokens must be JWTs",
			doc:   "`{client_id: ..., client_secret: ...}`, and `url` if the metadata has none, for opaque tokens",
			value: in(func(i *inbound.Issuer) *inbound.Introspection { return &i.Introspect }).is(ifGiven[inbound.Introspection]{introspectionKeys}),
		},
		{
			name:  "claims",
			doc:   "claims of `principal` (default `sub`), `groups` (default `groups`) and `scopes` (default `scope`, else `scp`)",
			value: in(func(i *inbound.Issuer) *inbound.Claims { return &i.Claims }).is(ifGiven[inbound.Claims]{claimKeys}),
		},
		{
			name:  "allow_private",
			doc:   "whether it may be at a private address",
			value: in(func(i *inbound.Issuer) *bool { return &i.AllowPrivate }).is(boolean{only: true}),
		},
		{
			name: "client_id", without: "toolfinch registers itself",
			doc:   "of a public client with the redirect URL of [`per_user`](security.md#logging-in-to-servers) logins, with which users prove who they are",
			value: in(func(i *inbound.Issuer) *string { return &i.ClientID }).is(str{check: notEmpty, word: true}),
		},
	},
	check: func(d *decoder, n *document.Node, label string, i *inbound.Issuer) {
		if n.Given("issuer") == nil {
			d.fail(n, label+" has no issuer", "its URL, as in iss of its tokens")
		}
	},
}

// issuerKind is the URL of an issuer, or a mapping.
type issuerKind struct{}

func (issuerKind) read(d *decoder, n *document.Node, label string, to *inbound.Issuer) bool {
	if n.Kind == document.Text {
		return str{check: issuerURL}.read(d, n, label, &to.URL)
	}
	*to = issuerKeys.fresh()
	return issuerKeys.read(d, n, label, to)
}

func (issuerKind) show(s *secrets, v inbound.Issuer) *document.Node {
	shown := issuerKeys.show(s, v)
	if len(shown.Pairs) == 1 {
		return shown.Pairs[0].Value
	}
	return shown
}

func (issuerKind) schema() schema { return anyOf(anyText, issuerKeys.schema()) }

var introspectionKeys = section[inbound.Introspection]{keys: keys{
	{
		name: "client_id", doc: "of this server at the issuer",
		value: in(func(i *inbound.Introspection) *string { return &i.ClientID }).is(str{check: notEmpty}),
	},
	{
		name: "client_secret", doc: "best a variable",
		value: in(func(i *inbound.Introspection) *string { return &i.ClientSecret }).is(hidden),
	},
	{
		name: "url", without: "what the issuer's metadata says", doc: "of the introspection endpoint",
		value: in(func(i *inbound.Introspection) *string { return &i.URL }).is(str{check: issuerURL}),
	},
}, check: func(d *decoder, n *document.Node, label string, _ *inbound.Introspection) {
	for _, name := range []string{"client_id", "client_secret"} {
		if n.Given(name) == nil {
			d.fail(n, label+" has no "+name, "")
		}
	}
}}

// ifGiven is a section that is not printed if it is empty.
type ifGiven[T any] struct{ section[T] }

func (k ifGiven[T]) show(s *secrets, v T) *document.Node {
	if n := k.section.show(s, v); len(n.Pairs) > 0 {
		return n
	}
	return nil
}

var claimKeys = section[inbound.Claims]{keys: keys{
	{
		name: "principal", without: "`sub`", doc: "the claim that names the user",
		value: in(func(c *inbound.Claims) *string { return &c.Principal }).is(str{check: notEmpty}),
	},
	{
		name: "groups", without: "`groups`", doc: "the claim with the groups; dots lead into objects",
		value: in(func(c *inbound.Claims) *string { return &c.Groups }).is(str{check: notEmpty}),
	},
	{
		name: "scopes", without: "`scope`, else `scp`", doc: "the claim with the scopes",
		value: in(func(c *inbound.Claims) *string { return &c.Scopes }).is(str{check: notEmpty}),
	},
}}

func (authKind) read(d *decoder, n *document.Node, label string, to *inbound.Settings) bool {
	if n.Kind == document.Mapping {
		*to = authKeysOf.fresh()
		to.Mode = inbound.Proof
		return authKeysOf.read(d, n, label, to)
	}
	var word string
	if !authWords.read(d, n, label, &word) {
		return false
	}
	*to = inbound.Settings{Mode: inbound.None}
	if word == authKeys {
		*to = authKeysOf.fresh()
		to.Mode = inbound.Proof
	}
	return true
}

func (authKind) show(s *secrets, v inbound.Settings) *document.Node {
	switch v.Mode {
	case inbound.Unsaid:
		return nil
	case inbound.None:
		return document.NewText(authNone)
	}
	if v.Keys && v.Resource == "" && len(v.Issuers)+len(v.Scopes) == 0 {
		return document.NewText(authKeys)
	}
	return authKeysOf.show(s, v)
}

func (authKind) schema() schema { return anyOf(authWords.schema(), authKeysOf.schema()) }

// resourceURL checks the URL of a protected resource (RFC 9728).
func resourceURL(d *decoder, n *document.Node, label string, text *string) bool {
	u, ok := isWebURL(*text)
	ok = ok && u.RawQuery == "" && u.Fragment == "" && u.User == nil
	return d.require(ok, n, label, "an http or https URL without a query", "like https://tools.example.com/mcp")
}

// issuerURL checks the URL of an issuer. It must be https, because the answers of the issuer
// decide who comes in.
func issuerURL(d *decoder, n *document.Node, label string, text *string) bool {
	u, ok := isWebURL(*text)
	ok = ok && u.RawQuery == "" && u.Fragment == "" && u.User == nil && (u.Scheme == "https" || isLoopbackHost(u)) &&
		!strings.Contains(*text, "|") // which ends the issuer in the names of its users and groups
	return d.require(ok, n, label, "an https URL without a query and |", "like https://idp.example.com/realms/main; http only for this machine")
}

// seenHeader checks the name of a header for hooks, which never see credentials.
func seenHeader(d *decoder, n *document.Node, label string, text *string) bool {
	if !headerName(d, n, label, text) {
		return false
	}
	if slices.Contains([]string{"authorization", "proxy-authorization"}, *text) {
		d.fail(n, label+": credentials of clients are shown to nobody", "hooks are told who is calling: ctx.principal")
		return false
	}
	return true
}

// checkAuth looks for contradictions between auth and the keys of HTTP.
func (d *decoder) checkAuth(c *Config) {
	at := d.origins["auth"]
	if at.node != nil && !at.ok {
		return
	}
	open := c.Transport == TransportHTTP && !listensLocally(c.Listen)
	if open && c.Auth.Mode == inbound.Unsaid {
		from := d.origins["listen"]
		d.fail(from.node, from.label+" lets other machines in, and nothing says who may come in",
			"write auth: keys, and make one with: toolfinch key create NAME; auth: {issuers: [URL]} for an identity provider; auth: none for anyone")
	}
	if c.Auth.Mode != inbound.Proof {
		return
	}
	if header := d.origins["principal_header"]; c.PrincipalHeader != "" {
		d.fail(header.node, header.label+": with auth, clients prove who they are: a header says nothing",
			"remove one; behind a reverse proxy that logs users in, write auth: none, and listen where that proxy alone comes")
	}
	if len(c.Auth.Issuers) > 0 && at.node.Given("resource") == nil && (open || len(c.Hosts) > 0) {
		d.fail(at.node, at.label+".resource is missing: access tokens must be for this server, and it has several names",
			"the URL of /mcp as clients write it, like https://tools.example.com/mcp")
	}
}

// Port returns the TCP port of listen, 0 for none or for a port that the system chooses.
func (c *Config) Port() int {
	if c.Transport != TransportHTTP {
		return 0
	}
	_, text, _ := net.SplitHostPort(c.Listen)
	port, _ := strconv.Atoi(text)
	return port
}
