package configs

import (
	"cmp"
	"strings"

	"toolfinch/internal/document"
	"toolfinch/upstream/login"
)

// oauthKind says how to log in to a server: a word, or a mapping.
type oauthKind struct{}

const (
	oauthAuto = "auto"
	oauthOff  = "off"
)

var oauthWords = choice[string]{words: []string{oauthAuto, oauthOff}}

var grants = choice[login.Grant]{
	words: []login.Grant{login.GrantCode, login.GrantDevice, login.GrantCredentials},
}

// oauthKeys are the keys of oauth.
var oauthKeys = section[login.Settings]{check: (*decoder).checkOAuth, keys: keys{
	{
		name: "grant", change: reconnect,
		doc:   "`authorization_code` (a browser), `device_code` (no browser), `client_credentials` (a machine's own login)",
		value: in(func(s *login.Settings) *login.Grant { return &s.Grant }).is(grants, login.GrantCode),
	},
	{
		name: "client_id", change: reconnect, without: "toolfinch registers itself",
		doc:   "of a registered client",
		value: in(func(s *login.Settings) *string { return &s.ClientID }).is(str{check: notEmpty, word: true}),
	},
	{
		name: "client_secret", change: reconnect,
		doc:   "its secret: use the environment",
		value: in(func(s *login.Settings) *string { return &s.Secret }).is(hidden),
	},
	{
		name: "issuer", change: reconnect, without: "the first one that the server names",
		doc:   "the authorization server of `client_id`",
		value: in(func(s *login.Settings) *string { return &s.Issuer }).is(webURL),
	},
	{
		name: "client_metadata_url", change: reconnect,
		doc:   "the client's metadata document (CIMD), used without `client_id`",
		value: in(func(s *login.Settings) *string { return &s.MetadataURL }).is(webURL),
	},
	{
		name: "scopes", change: reconnect, without: "as the server asks",
		doc:   "scopes to request",
		value: in(func(s *login.Settings) *[]string { return &s.Scopes }).is(scopesKind{}),
	},
	{
		name: "resource", change: reconnect, without: "as the server names itself",
		doc:   "audience of tokens (RFC 8707), or `none`",
		value: in(func(s *login.Settings) *string { return &s.Resource }).is(str{check: notEmpty}),
	},
	{
		name: "allow_private", change: reconnect, without: "`false`",
		doc:   "the authorization server may be at a private address",
		value: in(func(s *login.Settings) *bool { return &s.AllowPrivate }).is(boolean{only: true}),
	},
	{
		name: "assume_pkce", change: reconnect, without: "`false`",
		doc:   "the authorization server supports PKCE (S256) but does not advertise it, like Entra ID and Cognito",
		value: in(func(s *login.Settings) *bool { return &s.AssumePKCE }).is(boolean{only: true}),
	},
	{
		name: "redirect_url", change: reconnect, without: "a port of 127.0.0.1",
		doc:   "redirect of the browser: as registered, or the public URL of `/oauth/callback`",
		value: in(func(s *login.Settings) *string { return &s.RedirectURL }).is(webURL),
	},
}}

// scopesKind is a list of scopes, or a text of scopes with blanks between.
type scopesKind struct{}

func (scopesKind) read(d *decoder, n *document.Node, label string, to *[]string) bool {
	if n.Kind == document.Text && !n.Outside() {
		var text string
		ok := d.text(n, label, &text)
		*to = strings.Fields(text)
		return ok
	}
	return list[string]{item: str{check: notEmpty}}.read(d, n, label, to)
}

func (scopesKind) show(s *secrets, scopes []string) *document.Node {
	return list[string]{item: str{}}.show(s, scopes)
}

func (scopesKind) schema() schema {
	return anyOf(list[string]{item: str{}}.schema(), schema{"type": "string"})
}

func (oauthKind) read(d *decoder, n *document.Node, label string, to *login.Settings) bool {
	switch n.Kind {
	case document.Mapping:
		perUser := to.PerUser
		*to = oauthKeys.fresh()
		to.Set, to.PerUser = true, perUser
		keys := oauthKeys
		keys.foreign = (*decoder).foreignOAuth
		return keys.read(d, n, label, to)
	case document.Bool: // as opencode writes it
		to.Off, to.Set = n.Text == "false", n.Text == "true"
		return true
	}
	var word string
	ok := oauthWords.read(d, n, label, &word)
	to.Off, to.Set = word == oauthOff, word == oauthAuto
	return ok
}

func (oauthKind) show(s *secrets, v login.Settings) *document.Node {
	v.PerUser = false
	switch {
	case v.Off:
		return document.NewText(oauthOff)
	case !v.Set:
		return nil
	}
	if v.Grant == login.GrantCode {
		v.Grant = ""
	}
	if n := oauthKeys.show(s, v); len(n.Pairs) > 0 {
		return n
	}
	return document.NewText(oauthAuto)
}

func (oauthKind) schema() schema {
	all := oauthKeys.schema()
	properties := all["properties"].(schema)
	for name, ours := range oauthRows {
		if properties[name] == nil {
			properties[name] = schema{"description": cmp.Or(ours, "not used") + ", of other clients"}
		}
	}
	return anyOf(oauthWords.schema(), schema{"type": "boolean"}, all)
}

// foreignOAuth deals with a key that dialect.read has left.
func (d *decoder) foreignOAuth(p document.Pair, label string, _ *login.Settings) bool {
	if d.foreign {
		d.warn(p.Key, label+"."+p.Key.Text+" is not used", "")
	}
	return d.foreign
}

// checkOAuth looks for contradictions between the keys.
func (d *decoder) checkOAuth(n *document.Node, label string, s *login.Settings) {
	wants := func(key, value string) {
		if value == "" {
			d.fail(n, label+": grant "+string(s.Grant)+" needs "+key, "")
		}
	}
	if s.Secret != "" && s.ClientID == "" {
		d.fail(n, label+" has a secret of a client but no client_id", "")
	}
	if s.Grant == login.GrantCredentials {
		wants("client_id", s.ClientID)
		wants("client_secret", s.Secret)
	}
}
