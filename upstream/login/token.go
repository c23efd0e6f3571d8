package login

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"
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

func (s *Server) credentialOf(p *place, client registered, scopes []string, t *token) *credential {
	c := &credential{
		URL: s.url, Issuer: p.meta.Issuer, TokenURL: p.meta.TokenEndpoint, RevocationURL: p.meta.RevocationEndpoint,
		Client: client, Grant: s.settings.Grant, Resource: p.resource, Scopes: scopes,
	}
	c.take(t)
	return c
}

// take stores a token in the login. Without a new refresh token, the old one stays.
func (c *credential) take(t *token) {
	c.AccessToken, c.Obtained, c.Dead = string(t.Access), time.Now().Truncate(time.Second), ""
	if t.Refresh != "" {
		c.RefreshToken = string(t.Refresh)
	}
	c.Expires = time.Time{}
	if t.ExpiresIn > 0 {
		c.Expires = c.Obtained.Add(time.Duration(t.ExpiresIn) * time.Second)
	}
	if t.Scope != nil {
		c.Granted = t.Scope
	}
}
