package login

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"toolfinch/internal/discovery"
	"toolfinch/internal/identity"
	"toolfinch/internal/leeway"
	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
)

// deviceGrant is the grant_type of the device grant.
const deviceGrant = "urn:ietf:params:oauth:grant-type:device_code"

// obtain gets and stores a token, for a grant that needs no person. It asks for the scopes before in any case. The
// lock of the row is held.
func (a *account) obtain(ctx context.Context, before []string) (*credential, error) {
	if err := a.resting(); err != nil {
		return nil, err
	}
	c, err := a.grant(ctx, before)
	if err != nil {
		a.rest(err)
		return nil, err
	}
	a.rested()
	a.event(ctx, identity.EventLogin, a.principal, c, nil)
	a.mu.Lock()
	stored := cmp.Or(a.now, &credential{})
	a.mu.Unlock()
	if err := a.store(ctx, stored, c); err != nil {
		a.log.Error("a token could not be stored", "error", err)
	}
	return c, nil
}

func (a *account) grant(ctx context.Context, before []string) (*credential, error) {
	a.mu.Lock()
	asked := a.asked
	a.mu.Unlock()
	p, err := a.discover(ctx, asked)
	if err != nil {
		return nil, err
	}
	scopes := a.wanted(p, asked, before)
	client, known, err := a.configured(p.meta, nil)
	if err != nil {
		return nil, err
	}
	if !known {
		return nil, errors.New("oauth.client_id is not set")
	}
	form := url.Values{"grant_type": {string(GrantCredentials)}}
	if len(scopes) > 0 {
		form.Set("scope", strings.Join(scopes, " "))
	}
	if p.resource != "" {
		form.Set("resource", p.resource)
	}
	t, err := a.ask(ctx, p.meta.TokenEndpoint, client, form)
	if err != nil {
		return nil, err
	}
	return a.credentialOf(p, client, scopes, t), nil
}

// prepareDevice gets a code that a person types into the authorization server's page (RFC 8628).
func (p *Pending) prepareDevice(ctx context.Context, before *credential) error {
	a := p.account
	at := p.place.meta.DeviceAuthorizationEndpoint
	if at == "" {
		return fmt.Errorf("the authorization server %s has no device grant", p.place.meta.Issuer)
	}
	client, known, err := a.configured(p.place.meta, before)
	if err == nil && !known {
		client, err = a.register(ctx, p.place, "http://127.0.0.1"+callbackPath)
	}
	if err != nil {
		return err
	}
	p.client = client
	p.config = oauth2.Config{ClientID: client.ID, Scopes: p.scopes, Endpoint: oauth2.Endpoint{DeviceAuthURL: at}}
	code, err := p.config.DeviceAuth(context.WithValue(ctx, oauth2.HTTPClient, a.client), p.deviceOptions()...)
	if err != nil {
		return plain(err)
	}
	p.userCode, p.verifier = code.UserCode, code.DeviceCode
	if p.at = code.VerificationURIComplete; p.at == "" {
		p.at = code.VerificationURI
	}
	if !discovery.IsWeb(p.at) {
		return fmt.Errorf("the authorization server %s names no https URL to log in at", p.place.meta.Issuer)
	}
	p.every = max(time.Duration(code.Interval)*time.Second, time.Second)
	if code.Interval == 0 {
		p.every = 5 * time.Second
	}
	close(p.ready)
	return nil
}

func (p *Pending) deviceOptions() []oauth2.AuthCodeOption {
	if p.place.resource == "" {
		return nil
	}
	return []oauth2.AuthCodeOption{oauth2.SetAuthURLParam("resource", p.place.resource)}
}

// poll asks for the token until the person has logged in.
func (p *Pending) poll() error {
	a := p.account
	for every := p.every; ; {
		if !leeway.Wait(p.life, every) {
			return context.Cause(p.life)
		}
		form := url.Values{"grant_type": {deviceGrant}, "device_code": {p.verifier}}
		if p.place.resource != "" {
			form.Set("resource", p.place.resource)
		}
		t, err := a.ask(p.life, p.place.meta.TokenEndpoint, p.client, form)
		refusal, refused := errors.AsType[*Refusal](err)
		switch {
		case err == nil:
			return p.keep(p.life, t)
		case refused && refusal.Code == "authorization_pending":
		case refused && refusal.Code == "slow_down", !refused:
			every += 5 * time.Second // RFC 8628 3.5
		default:
			return err
		}
	}
}

// Logout deletes a principal's login, and revokes its tokens (RFC 7009) if the authorization server can. was reports
// that there was a login, and revoked that its tokens are revoked.
func (s *Server) Logout(ctx context.Context, principal string) (was, revoked bool, err error) {
	a := s.account(principal)
	var c *credential
	err = s.logins.vault.Locked(ctx, s.row(principal), func(ctx context.Context) (err error) {
		if c, err = s.read(ctx, principal); err != nil {
			return err
		}
		err = s.logins.vault.Delete(ctx, s.row(principal))
		a.keep(nil)
		return err
	})
	a.happened()
	s.event(ctx, identity.EventLogout, principal, c, err)
	if err != nil || c == nil {
		return false, false, err
	}
	if c.RevocationURL == "" {
		return true, false, nil
	}
	for _, one := range []struct{ token, hint string }{{c.RefreshToken, "refresh_token"}, {c.AccessToken, "access_token"}} {
		if one.token == "" {
			continue
		}
		if err := s.revoke(ctx, c, a.secretOf(c.Client), one.token, one.hint); err != nil {
			return true, false, wrap("the token was not revoked at "+c.Issuer, err)
		}
	}
	return true, true, nil
}

func (s *Server) revoke(ctx context.Context, c *credential, client registered, token, hint string) error {
	form := url.Values{"token": {token}, "token_type_hint": {hint}, "client_id": {client.ID}}
	if client.Method == methodPost {
		form.Set("client_secret", client.Secret)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.RevocationURL, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if client.Method == methodBasic {
		request.SetBasicAuth(url.QueryEscape(client.ID), url.QueryEscape(client.Secret))
	}
	response, err := s.client.Do(request)
	if err != nil {
		return plain(err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	refusal := &Refusal{HTTP: response.StatusCode}
	var said struct{ Error string }
	if json.NewDecoder(io.LimitReader(response.Body, discovery.MaxDocument)).Decode(&said) == nil {
		refusal.Code = rawjson.Clip(printable.Line(said.Error), 60)
	}
	if refusal.Code == "unsupported_token_type" { // such access tokens cannot be revoked: they expire
		return nil
	}
	return refusal
}

// endWithin bounds how long one login may take to end.
const endWithin = 10 * time.Second

// EndGone ends the logins of principals that no longer exist, and returns their number. gone selects these principals.
// to returns the Server of a name; nil if the server is no longer configured: its tokens are then deleted, but not
// revoked. After an error EndGone continues with the other logins.
func (l *Logins) EndGone(ctx context.Context, gone func(ctx context.Context, principals []string) ([]string, error), to func(server string) *Server) (ended int, err error) {
	rows, err := l.vault.Names(ctx, rowPrefix)
	if err != nil {
		return 0, err
	}
	var principals []string
	for _, row := range rows {
		if _, principal := partsOf(row); principal != "" {
			principals = append(principals, principal)
		}
	}
	if len(principals) == 0 {
		return 0, nil
	}
	if principals, err = gone(ctx, principals); err != nil {
		return 0, err
	}
	var failed []error
	for _, row := range rows {
		if server, principal := partsOf(row); slices.Contains(principals, principal) {
			was, err := l.endOne(ctx, to(server), server, principal, row)
			if err != nil {
				failed = append(failed, wrap("server "+server, err))
			}
			if was {
				ended++
			}
		}
	}
	return ended, errors.Join(failed...)
}

// partsOf returns the server and the principal of a row. The principal is "" for the owner.
func partsOf(row string) (server, principal string) {
	escaped, principal, _ := strings.Cut(strings.TrimPrefix(row, rowPrefix), " ")
	server, err := url.PathUnescape(escaped)
	if err != nil {
		return "", ""
	}
	return server, principal
}

// endOne ends one login, and reports whether the login is gone. It revokes the tokens if the server is configured and
// the login can be read.
func (l *Logins) endOne(ctx context.Context, to *Server, server, principal, row string) (was bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, leeway.Of(endWithin))
	defer cancel()
	if to != nil {
		if was, _, err = to.Logout(ctx, principal); was || err == nil {
			return was, err
		}
	}
	deleted := l.vault.Locked(ctx, row, func(ctx context.Context) error { return l.vault.Delete(ctx, row) })
	if deleted == nil {
		l.record.Event(ctx, identity.Event{Kind: identity.EventLogout, Principal: principal, Server: server})
	}
	return deleted == nil, errors.Join(err, deleted)
}
