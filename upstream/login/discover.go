package login

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"toolfinch/internal/discovery"
	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
)

// challenge is what a server says with a refusal (RFC 6750, RFC 9728).
type challenge struct {
	refused  bool   // there was one
	bearer   bool   // it names the scheme Bearer
	err      string // "invalid_token", "insufficient_scope"
	scopes   []string
	metadata string // URL of the resource's metadata
}

// challengeOf reads the challenge of a response. A header that is none counts as absent.
func challengeOf(response *http.Response) (c challenge) {
	c.refused = true
	all, _ := oauthex.ParseWWWAuthenticate(response.Header.Values("WWW-Authenticate"))
	for _, one := range all {
		if one.Scheme != "bearer" {
			continue
		}
		c.bearer = true
		if c.err == "" {
			c.err = one.Params["error"]
		}
		if c.scopes == nil {
			c.scopes = strings.Fields(one.Params["scope"])
		}
		if c.metadata == "" {
			c.metadata = one.Params["resource_metadata"]
		}
	}
	return c
}

// wantsMore reports whether the challenge of a 403 is for more scopes: some servers name
// them and no error.
func (c challenge) wantsMore() bool {
	return c.err == "insufficient_scope" || c.err == "" && len(c.scopes) > 0
}

// place is where tokens for a server are got.
type place struct {
	meta     *discovery.Metadata
	resource string   // the parameter to send; "" for none
	scopes   []string // that the resource says it has
	found    bool     // there is metadata of the resource or of the authorization server
}

// errNoServer says that a server names no authorization server.
var errNoServer = errors.New("it names no authorization server")

// discover finds the authorization server: by the metadata of the resource (RFC 9728),
// else as revision 2025-03-26 has it, at the origin of the server.
func (s *Server) discover(ctx context.Context, c challenge) (*place, error) {
	resource, err := s.resource(ctx, c.metadata)
	if err != nil {
		return nil, err
	}
	p := &place{found: resource != nil}
	if resource == nil {
		own, err := url.Parse(s.url)
		if err != nil {
			return nil, errors.New("the configured URL is none")
		}
		resource = &oauthex.ProtectedResourceMetadata{Resource: s.url, AuthorizationServers: []string{own.Scheme + "://" + own.Host}}
	}
	p.scopes = resource.ScopesSupported
	switch p.resource = resource.Resource; s.settings.Resource {
	case "":
	case ResourceNone:
		p.resource = ""
	default:
		p.resource = s.settings.Resource
	}
	issuers := resource.AuthorizationServers
	if s.settings.Issuer != "" {
		if p.found && !slices.ContainsFunc(issuers, func(i string) bool { return sameIssuer(i, s.settings.Issuer) }) {
			return nil, fmt.Errorf("it names the authorization server %s, not the one of oauth.issuer", strings.Join(issuers, ", "))
		}
		issuers = []string{s.settings.Issuer}
	}
	var first error
	for _, issuer := range issuers {
		meta, err := discovery.Find(ctx, s.client, issuer, func(m *discovery.Metadata) error { return fits(m, issuer, p.found) })
		if err == nil {
			p.meta, p.found = meta, true
			return p, nil
		}
		if first == nil {
			first = fmt.Errorf("the authorization server %s: %w", issuer, err)
		}
	}
	if p.found || !errors.Is(first, discovery.ErrNone) {
		return nil, first
	}
	// Endpoints at fixed paths, as revision 2025-03-26 has them.
	at := issuers[0]
	p.meta = &discovery.Metadata{Issuer: at, AuthorizationEndpoint: at + "/authorize", TokenEndpoint: at + "/token", RegistrationEndpoint: at + "/register"}
	return p, nil
}

// fits says why metadata is not that of an issuer, or of no use. An issuer that is not named, but looked
// for at an origin as revision 2025-03-26 has it, may be at a path there.
func fits(m *discovery.Metadata, issuer string, named bool) error {
	switch {
	case named && !sameIssuer(m.Issuer, issuer), !named && originOf(m.Issuer) != originOf(issuer):
		return fmt.Errorf("it says that the issuer is %q", rawjson.Clip(printable.Line(m.Issuer), maxWords))
	case !slices.Contains(m.CodeChallengeMethodsSupported, "S256"):
		return errors.New("it does not support PKCE with S256")
	}
	return nil
}

func sameIssuer(a, b string) bool { return strings.TrimSuffix(a, "/") == strings.TrimSuffix(b, "/") }

// resource gets the metadata of the server as a resource: where the challenge says,
// else at the well-known places. It is nil where there is none.
func (s *Server) resource(ctx context.Context, named string) (*oauthex.ProtectedResourceMetadata, error) {
	own, err := url.Parse(s.url)
	if err != nil {
		return nil, errors.New("the configured URL is none")
	}
	const wellKnown = "/.well-known/oauth-protected-resource"
	var places []string
	if named != "" {
		places = append(places, named)
	}
	places = append(places, own.Scheme+"://"+own.Host+wellKnown+strings.TrimSuffix("/"+strings.TrimLeft(own.Path, "/"), "/"), own.Scheme+"://"+own.Host+wellKnown)
	var mismatch error
	for _, at := range slices.Compact(places) {
		var found oauthex.ProtectedResourceMetadata
		if err := discovery.Get(ctx, s.client, at, &found); err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			continue
		}
		if !isOf(found.Resource, own) {
			mismatch = fmt.Errorf("the metadata at %s is of another resource, %q", at, found.Resource)
			continue
		}
		if len(found.AuthorizationServers) == 0 {
			return nil, errNoServer
		}
		return &found, nil
	}
	return nil, mismatch
}

// isOf reports whether a resource is the server's URL or, as many servers have it, of
// the same origin and above it.
func isOf(resource string, own *url.URL) bool {
	u, err := url.Parse(resource)
	if err != nil || origin(u) != origin(own) {
		return false
	}
	above, path := strings.TrimSuffix(u.Path, "/"), strings.TrimSuffix(own.Path, "/")
	return above == path || strings.HasPrefix(path, above+"/")
}

// wanted are the scopes to ask for: those that are configured, else those of the
// challenge, else all that the resource says it has; what there was before (step-up),
// and offline_access where that is how refresh tokens are got.
func (s *Server) wanted(p *place, c challenge, before []string) []string {
	scopes := s.settings.Scopes
	switch {
	case len(scopes) > 0:
		scopes = union(scopes, c.scopes)
	case len(c.scopes) > 0:
		scopes = c.scopes
	default:
		scopes = p.scopes
	}
	scopes = union(before, scopes)
	if s.settings.interactive() && len(s.settings.Scopes) == 0 && slices.Contains(p.meta.ScopesSupported, offline) {
		scopes = union(scopes, []string{offline})
	}
	return scopes
}

const offline = "offline_access"
