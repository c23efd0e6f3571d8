package login

import (
	"cmp"
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

// challenge is the header WWW-Authenticate of a refusal (RFC 6750, RFC 9728).
type challenge struct {
	refused  bool   // there was a refusal
	bearer   bool   // it names the scheme Bearer
	err      string // "invalid_token", "insufficient_scope"
	scopes   []string
	metadata string // URL of the resource's metadata
}

// challengeOf reads the challenge of a response. A malformed header counts as absent.
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

// wantsMore reports whether the challenge of a 403 asks for more scopes. Some servers name the scopes without an error.
func (c challenge) wantsMore() bool {
	return c.err == "insufficient_scope" || c.err == "" && len(c.scopes) > 0
}

// place describes the authorization server of a server.
type place struct {
	meta     *discovery.Metadata
	resource string   // parameter resource of requests; "" for none
	scopes   []string // scopes_supported of the resource's metadata
	found    bool     // the resource or the authorization server has metadata
}

// errNoServer is the error for a server that names no authorization server.
var errNoServer = errors.New("it names no authorization server: put a token under headers")

// discover finds the authorization server: in the metadata of the resource (RFC 9728), or else at the origin of the
// server (revision 2025-03-26).
func (s *Server) discover(ctx context.Context, c challenge) (*place, error) {
	own, err := url.Parse(s.url)
	if err != nil {
		return nil, errors.New("the configured URL is none")
	}
	resource, err := s.resource(ctx, own, c.metadata)
	if err != nil {
		return nil, err
	}
	p := &place{found: len(resource.AuthorizationServers) > 0, scopes: resource.ScopesSupported, resource: cmp.Or(string(resource.Resource), s.url)}
	switch s.settings.Resource {
	case "":
	case ResourceNone:
		p.resource = ""
	default:
		p.resource = s.settings.Resource
	}
	issuers := []string(resource.AuthorizationServers)
	switch configured := s.settings.Issuer; {
	case configured != "" && p.found && !slices.ContainsFunc(issuers, func(i string) bool { return sameIssuer(i, configured) }):
		return nil, fmt.Errorf("it names the authorization server %s, not the one of oauth.issuer", strings.Join(issuers, ", "))
	case configured != "":
		issuers = []string{configured}
	case !p.found:
		issuers = []string{own.Scheme + "://" + own.Host}
	}
	var first error
	for _, issuer := range issuers {
		meta, err := discovery.Find(ctx, s.client, issuer, func(m *discovery.Metadata) error { return s.fits(m, issuer, p.found) })
		if err == nil {
			p.meta, p.found = meta, true
			return p, nil
		}
		if first == nil {
			first = fmt.Errorf("the authorization server %s: %w", issuer, err)
		}
	}
	page := errors.Is(first, discovery.ErrForm) // there is one at every path
	if p.found || !page && !errors.Is(first, discovery.ErrNone) {
		return nil, first
	}
	// Revision 2025-03-26 defines endpoints at fixed paths.
	at := issuers[0]
	p.meta = &discovery.Metadata{Issuer: at, AuthorizationEndpoint: at + "/authorize", TokenEndpoint: at + "/token", RegistrationEndpoint: at + "/register"}
	if s.settings.Issuer == "" && (page || !s.has(ctx, p.meta.AuthorizationEndpoint)) {
		return nil, errNoServer
	}
	return p, nil
}

// has reports whether a page exists, or may exist.
func (s *Server) has(ctx context.Context, at string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return false
	}
	response, err := s.client.Do(request)
	if err != nil {
		return true
	}
	_ = response.Body.Close()
	return !slices.Contains([]int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone}, response.StatusCode)
}

// fits returns an error if metadata belongs to another issuer or cannot be used. If no metadata named the issuer
// (revision 2025-03-26), the true issuer may have a path at the same origin.
func (s *Server) fits(m *discovery.Metadata, issuer string, named bool) error {
	methods := m.CodeChallengeMethodsSupported
	switch {
	case named && !sameIssuer(m.Issuer, issuer), !named && originOf(m.Issuer) != originOf(issuer):
		return fmt.Errorf("it says that the issuer is %q", rawjson.Clip(printable.Line(m.Issuer), maxWords))
	case s.settings.Grant != GrantCode, slices.Contains(methods, "S256"), len(methods) == 0 && s.settings.AssumePKCE:
		return nil
	case len(methods) == 0:
		return errors.New("it does not say that it supports PKCE with S256: if it does, set oauth.assume_pkce: true")
	}
	return errors.New("it does not support PKCE with S256")
}

func sameIssuer(a, b string) bool { return strings.TrimSuffix(a, "/") == strings.TrimSuffix(b, "/") }

// resourceMetadata is what matters of a resource's metadata.
type resourceMetadata struct {
	Resource             discovery.Text  `json:"resource"`
	AuthorizationServers discovery.Words `json:"authorization_servers"`
	ScopesSupported      discovery.Words `json:"scopes_supported"`
}

// UnmarshalJSON implements json.Unmarshaler with discovery.Lenient.
func (m *resourceMetadata) UnmarshalJSON(raw []byte) error {
	type members resourceMetadata
	return discovery.Lenient(raw, (*members)(m))
}

// resource gets the metadata of the server: at the URL in the challenge, or else at the well-known URLs. A document that
// names an authorization server is preferred. It is empty for none.
func (s *Server) resource(ctx context.Context, own *url.URL, named string) (best resourceMetadata, err error) {
	const wellKnown = "/.well-known/oauth-protected-resource"
	var places []string
	if named != "" {
		places = append(places, named)
	}
	places = append(places, own.Scheme+"://"+own.Host+wellKnown+strings.TrimSuffix("/"+strings.TrimLeft(own.Path, "/"), "/"), own.Scheme+"://"+own.Host+wellKnown)
	for _, at := range slices.Compact(places) {
		var found resourceMetadata
		if err := discovery.Get(ctx, s.client, at, &found); err != nil {
			if ctx.Err() != nil {
				return best, err
			}
			continue
		}
		switch {
		case !isOf(string(found.Resource), own):
			err = fmt.Errorf("the metadata at %s is of another resource, %q", at, rawjson.Clip(printable.Line(string(found.Resource)), maxWords))
		case len(found.AuthorizationServers) > 0:
			return found, nil
		case best.Resource == "":
			best = found
		}
	}
	if best.Resource != "" {
		err = nil
	}
	return best, err
}

// isOf reports whether a resource is the server's URL or a parent of it at the same origin, as many servers say.
func isOf(resource string, own *url.URL) bool {
	u, err := url.Parse(resource)
	if err != nil || discovery.Origin(u) != discovery.Origin(own) {
		return false
	}
	above, path := strings.TrimSuffix(u.Path, "/"), strings.TrimSuffix(own.Path, "/")
	return above == path || strings.HasPrefix(path, above+"/")
}

// wanted returns the scopes to ask for: the configured scopes and the challenge's, or else all of the resource. It adds
// the scopes before (step-up), and offline_access if the authorization server has it for refresh tokens.
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
