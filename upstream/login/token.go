package login

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"toolfinch/internal/discovery"
	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
)

// registered is this client's registration at an authorization server.
type registered struct {
	ID       string    `json:"id"`
	Secret   string    `json:"secret,omitempty"`
	Method   string    `json:"method"` // one of the methods below
	Redirect string    `json:"redirect,omitempty"`
	Expires  time.Time `json:"expires,omitzero"` // when the secret expires
}

// Methods by which a client proves its identity (RFC 7591, token_endpoint_auth_method).
const (
	methodNone  = "none"
	methodBasic = "client_secret_basic"
	methodPost  = "client_secret_post"
)

// credential is one login, as the vault stores it.
type credential struct {
	URL           string     `json:"url"` // URL of the server
	Issuer        string     `json:"issuer"`
	TokenURL      string     `json:"token_url"`
	RevocationURL string     `json:"revocation_url,omitempty"`
	Client        registered `json:"client"`
	Grant         Grant      `json:"grant"`
	Resource      string     `json:"resource,omitempty"`
	Scopes        []string   `json:"scopes,omitempty"`  // requested scopes
	Granted       []string   `json:"granted,omitempty"` // as the authorization server says; nil if it does not say
	Wanted        []string   `json:"wanted,omitempty"`  // scopes that the server has asked for since, for the next login
	AccessToken   string     `json:"access_token"`
	RefreshToken  string     `json:"refresh_token,omitempty"`
	Obtained      time.Time  `json:"obtained"`
	Expires       time.Time  `json:"expires,omitzero"`
	Dead          string     `json:"dead,omitempty"` // why the token cannot be renewed
}

// fresh reports whether the access token stays valid for margin. Both times come from this machine's clock. If the
// clock was set back to before Obtained, the token does not count as fresh.
func (c *credential) fresh(now time.Time, margin time.Duration) bool {
	if c.AccessToken == "" {
		return false
	}
	if c.Expires.IsZero() || now.Before(c.Obtained.Add(-time.Minute)) {
		return c.Expires.IsZero()
	}
	return now.Add(margin).Before(c.Expires)
}

// A token is renewed between early and early+jitter before it expires, so that processes with one login do not renew it
// together. A short-lived token is renewed a quarter of its life before it expires.
const (
	early  = time.Minute
	jitter = 30 * time.Second
)

func (c *credential) margin() time.Duration {
	return min(early+rand.N(jitter), c.Expires.Sub(c.Obtained)/4)
}

// may returns the granted scopes, or else the requested scopes.
func (c *credential) may() []string {
	if c.Granted != nil {
		return c.Granted
	}
	return c.Scopes
}

func (c *credential) status(server, principal string) Status {
	return Status{
		Server: server, Principal: principal, Issuer: c.Issuer, Grant: c.Grant, Scopes: c.may(), Resource: c.Resource,
		Expires: c.Expires, Refreshes: c.RefreshToken != "" || c.Grant == GrantCredentials, Obtained: c.Obtained,
	}
}

// read reads a principal's login from the vault. It returns nil for none, and for a login to another origin: a token
// is never sent to another origin.
func (s *Server) read(ctx context.Context, principal string) (*credential, error) {
	raw, err := s.logins.vault.Get(ctx, s.row(principal))
	if err != nil || raw == nil {
		return nil, err
	}
	c := &credential{}
	if err := json.Unmarshal(raw, c); err != nil {
		return nil, fmt.Errorf("the stored login to %s cannot be read: %w", s.name, err)
	}
	if originOf(c.URL) != originOf(s.url) {
		return nil, nil
	}
	return c, nil
}

// write stores a login, even if ctx ends: otherwise a rotated refresh token would be lost.
func (s *Server) write(ctx context.Context, principal string, c *credential) error {
	raw, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return s.logins.vault.Put(context.WithoutCancel(ctx), s.row(principal), raw)
}

func (s *Server) credentialOf(p *place, client registered, scopes []string, t *oauth2.Token) *credential {
	c := &credential{
		URL: s.url, Issuer: p.meta.Issuer, TokenURL: p.meta.TokenEndpoint, RevocationURL: p.meta.RevocationEndpoint,
		Client: client, Grant: s.settings.Grant, Resource: p.resource, Scopes: scopes,
	}
	c.take(t)
	return c
}

// take stores a token in the login. Without a new refresh token, the old one stays.
func (c *credential) take(t *oauth2.Token) {
	c.AccessToken, c.Obtained, c.Dead = t.AccessToken, time.Now().Truncate(time.Second), ""
	if t.RefreshToken != "" {
		c.RefreshToken = t.RefreshToken
	}
	c.Expires = time.Time{}
	if t.ExpiresIn > 0 {
		c.Expires = c.Obtained.Add(time.Duration(t.ExpiresIn) * time.Second)
	} else if !t.Expiry.IsZero() {
		c.Expires = t.Expiry
	}
	if scope, ok := t.Extra("scope").(string); ok {
		c.Granted = strings.Fields(scope)
	}
}

// errType refuses tokens that are not bearer tokens.
var errType = errors.New("the authorization server issues tokens of another type than Bearer")

// ask requests a token. form contains the grant and its parameters.
func (s *Server) ask(ctx context.Context, tokenURL string, client registered, form url.Values) (*oauth2.Token, error) {
	c := clientcredentials.Config{ClientID: client.ID, TokenURL: tokenURL, EndpointParams: form, AuthStyle: oauth2.AuthStyleInParams}
	switch client.Method {
	case methodBasic:
		c.ClientSecret, c.AuthStyle = client.Secret, oauth2.AuthStyleInHeader
	case methodPost:
		c.ClientSecret = client.Secret
	}
	t, err := c.Token(context.WithValue(ctx, oauth2.HTTPClient, s.client))
	if err != nil {
		return nil, plain(err)
	}
	if kind := t.TokenType; kind != "" && !strings.EqualFold(kind, "bearer") {
		return nil, errType
	}
	return t, nil
}

// Refusal is the error in an authorization server's answer (RFC 6749, 5.2).
type Refusal struct {
	Code string // such as "invalid_grant"; "" for none
	Text string // description, on one line
	HTTP int
}

func (r *Refusal) Error() string {
	text := r.Code
	if text == "" {
		text = fmt.Sprintf("HTTP status %d %s", r.HTTP, http.StatusText(r.HTTP))
	}
	if r.Text != "" {
		text += ": " + r.Text
	}
	return "the authorization server refuses: " + text
}

// final reports whether the same request would be refused again.
func (r *Refusal) final() bool {
	return slices.Contains([]string{"invalid_grant", "invalid_client", "unauthorized_client", "invalid_scope", "invalid_target", "unsupported_grant_type", "access_denied", "invalid_request"}, r.Code)
}

// maxWords is the most bytes that are repeated from an authorization server's texts.
const maxWords = 300

// plain returns an error of the library without the parts of requests and answers that it repeats.
func plain(err error) error {
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		r := &Refusal{Code: rawjson.Clip(printable.Line(refused.ErrorCode), 60), Text: rawjson.Clip(printable.Line(refused.ErrorDescription), maxWords)}
		if refused.Response != nil {
			r.HTTP = refused.Response.StatusCode
		}
		return r
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("%s cannot be asked: %w", originOf(u.URL), u.Err)
	}
	return err
}

// configured returns the client that the configuration names by its ID or metadata document, and whether there is one.
// Without a configured issuer, a client ID is used only at the authorization server of the last login.
func (s *Server) configured(meta *discovery.Metadata, before *credential) (registered, bool, error) {
	switch {
	case s.settings.ClientID != "":
		if before != nil && s.settings.Issuer == "" && before.Client.ID == s.settings.ClientID && before.Issuer != meta.Issuer {
			return registered{}, false, fmt.Errorf("its authorization server was %s and is %s now: if client_id is registered there, set oauth.issuer to it", before.Issuer, meta.Issuer)
		}
		return registered{ID: s.settings.ClientID, Secret: s.settings.Secret, Method: s.method(meta.AuthMethodsSupported)}, true, nil
	case s.settings.MetadataURL != "" && meta.ClientMetadataSupported:
		return registered{ID: s.settings.MetadataURL, Method: methodNone}, true, nil
	}
	return registered{}, false, nil
}

// method returns how a configured client proves its identity.
func (s *Server) method(supported []string) string {
	if s.settings.Secret == "" {
		return methodNone
	}
	return secretMethod(supported)
}

// secretMethod returns how to send a secret. The default is from RFC 8414.
func secretMethod(supported []string) string {
	if len(supported) > 0 && !slices.Contains(supported, methodBasic) && slices.Contains(supported, methodPost) {
		return methodPost
	}
	return methodBasic
}

// clientPrefix begins the names of the registrations in the vault.
const clientPrefix = "client/"

// registrations are the registrations at one authorization server, by redirect URL.
type registrations map[string]registered

// maxRegistrations bounds the stored registrations at one authorization server.
const maxRegistrations = 8

func (s *Server) registrations(ctx context.Context, issuer string) registrations {
	all := registrations{}
	raw, err := s.logins.vault.Get(ctx, clientPrefix+issuer)
	if err != nil || raw == nil || json.Unmarshal(raw, &all) != nil {
		return registrations{}
	}
	now := time.Now()
	for redirect, r := range all {
		if !r.Expires.IsZero() && r.Expires.Before(now) {
			delete(all, redirect)
		}
	}
	return all
}

// register returns this client's registration at an authorization server. If there is none, it registers the client
// (RFC 7591) and stores the registration for later logins.
func (s *Server) register(ctx context.Context, p *place, redirect string) (registered, error) {
	if r, ok := s.registrations(ctx, p.meta.Issuer)[redirect]; ok {
		return r, nil
	}
	if p.meta.RegistrationEndpoint == "" {
		return registered{}, fmt.Errorf("the authorization server %s takes no registration of clients: register toolfinch there, with the redirect URL %s, and set oauth.client_id", p.meta.Issuer, redirect)
	}
	method := methodNone
	if supported := p.meta.AuthMethodsSupported; len(supported) > 0 && !slices.Contains(supported, methodNone) {
		method = secretMethod(supported)
	}
	grants := []string{string(GrantCode), "refresh_token"}
	metadata := &oauthex.ClientRegistrationMetadata{
		ClientName: "toolfinch", ApplicationType: "native", TokenEndpointAuthMethod: method,
		RedirectURIs: []string{redirect}, GrantTypes: grants, ResponseTypes: []string{"code"}, Scope: strings.Join(s.settings.Scopes, " "),
	}
	if s.settings.Grant == GrantDevice {
		metadata.GrantTypes = []string{deviceGrant, "refresh_token"}
	}
	if u, err := url.Parse(redirect); err == nil && !discovery.IsLoopback(u.Hostname()) {
		metadata.ApplicationType = "web"
	}
	answer, err := oauthex.RegisterClient(ctx, p.meta.RegistrationEndpoint, metadata, s.client)
	if err != nil {
		return registered{}, fmt.Errorf("the client cannot be registered at %s: %s", p.meta.Issuer, rawjson.Clip(printable.Line(err.Error()), maxWords))
	}
	r := registered{ID: answer.ClientID, Secret: answer.ClientSecret, Method: answer.TokenEndpointAuthMethod, Redirect: redirect, Expires: answer.ClientSecretExpiresAt}
	switch {
	case r.Secret == "":
		r.Method = methodNone
	case r.Method == "", r.Method == methodNone:
		r.Method = secretMethod(p.meta.AuthMethodsSupported)
	}
	return r, s.keepRegistration(ctx, p.meta.Issuer, redirect, &r)
}

// keepRegistration stores a registration; nil deletes it.
func (s *Server) keepRegistration(ctx context.Context, issuer, redirect string, r *registered) error {
	name := clientPrefix + issuer
	return s.logins.vault.Locked(ctx, name, func(ctx context.Context) error {
		all := s.registrations(ctx, issuer)
		delete(all, redirect)
		for other := range all {
			if len(all) < maxRegistrations {
				break
			}
			delete(all, other)
		}
		if r != nil {
			all[redirect] = *r
		}
		raw, err := json.Marshal(all)
		if err != nil {
			return err
		}
		return s.logins.vault.Put(ctx, name, raw)
	})
}
