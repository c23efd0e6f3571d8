package login

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"toolfinch/printable"
	"toolfinch/rawjson"
	"toolfinch/trust"
)

// Grants and token types by their URN.
const (
	deviceGrant   = "urn:ietf:params:oauth:grant-type:device_code"
	bearerGrant   = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
)

// obtain gets a token where that needs no person, and stores it. before are the scopes
// that it is to have anyway. The lock of the row is held.
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
	a.event(ctx, trust.EventLogin, a.principal, c, nil)
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
	form := url.Values{}
	switch a.settings.Grant {
	case GrantCredentials:
		form.Set("grant_type", string(GrantCredentials))
	case GrantExchange:
		assertion, err := a.assertion(ctx, p, scopes)
		if err != nil {
			return nil, err
		}
		form.Set("grant_type", bearerGrant)
		form.Set("assertion", assertion)
	}
	if len(scopes) > 0 {
		form.Set("scope", strings.Join(scopes, " "))
	}
	if p.resource != "" {
		form.Set("resource", p.resource)
	}
	t, err := a.ask(ctx, p.meta.TokenEndpoint, p.meta.Issuer, client, form)
	if err != nil {
		return nil, err
	}
	return a.credentialOf(p, client, scopes, t), nil
}

// assertion exchanges the identity token for an assertion (ID-JAG) at the identity
// provider.
func (a *account) assertion(ctx context.Context, p *place, scopes []string) (string, error) {
	x := a.settings.Exchange
	identity := x.Token
	if file, ok := strings.CutPrefix(identity, "@"); ok {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", errors.New("the file of oauth.exchange.subject_token cannot be read")
		}
		identity = strings.TrimSpace(string(text))
	}
	kind := x.Type
	if kind == "" {
		kind = oauthex.TokenTypeIDToken
	}
	resource := p.resource
	if resource == "" {
		resource = a.url
	}
	form := url.Values{
		"grant_type": {oauthex.GrantTypeTokenExchange}, "requested_token_type": {oauthex.TokenTypeIDJAG},
		"audience": {p.meta.Issuer}, "resource": {resource}, "subject_token": {identity}, "subject_token_type": {kind},
	}
	if len(scopes) > 0 {
		form.Set("scope", strings.Join(scopes, " "))
	}
	method := methodNone
	if x.Secret != "" {
		method = methodBasic
	}
	t, err := a.ask(ctx, x.TokenURL, x.TokenURL, registered{ID: x.ClientID, Secret: x.Secret, Method: method}, form)
	if err != nil {
		return "", wrap("the identity provider", err)
	}
	if issued, _ := t.Extra("issued_token_type").(string); issued != oauthex.TokenTypeIDJAG {
		return "", fmt.Errorf("the identity provider gave a token of type %q, not an assertion", issued)
	}
	return t.AccessToken, nil
}

// assertionFor is how long an assertion of this client is good for: two clocks may
// differ by some of that.
const assertionFor = 5 * time.Minute

// sign adds the client's own assertion to a form (RFC 7523, private_key_jwt).
func (s *Server) sign(form url.Values, id, issuer string) error {
	key, algorithm, err := signingKey(s.settings.PrivateKey, s.settings.Algorithm)
	if err != nil {
		return err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return wrap("oauth.private_key", err)
	}
	now := time.Now()
	assertion, err := jwt.Signed(signer).Claims(jwt.Claims{
		Issuer: id, Subject: id, Audience: jwt.Audience{issuer}, ID: rand.Text(), IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(assertionFor)),
	}).Serialize()
	if err != nil {
		return wrap("oauth.private_key", err)
	}
	form.Set("client_assertion_type", assertionType)
	form.Set("client_assertion", assertion)
	return nil
}

// signingKey reads a private key: PEM or a JWK.
func signingKey(text, algorithm string) (any, jose.SignatureAlgorithm, error) {
	var key any
	if block, _ := pem.Decode([]byte(text)); block != nil {
		var err error
		if key, err = x509.ParsePKCS8PrivateKey(block.Bytes); err != nil {
			if key, err = x509.ParseECPrivateKey(block.Bytes); err != nil {
				key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
			}
		}
		if err != nil {
			return nil, "", errors.New("oauth.private_key holds no key that can be read")
		}
	} else {
		var jwk jose.JSONWebKey
		if json.Unmarshal([]byte(text), &jwk) != nil || jwk.IsPublic() {
			return nil, "", errors.New("oauth.private_key is neither a PEM block nor a JWK of a private key")
		}
		key = jwk
		if algorithm == "" {
			algorithm = jwk.Algorithm
		}
	}
	if algorithm == "" {
		algorithm = string(usual(key))
	}
	return key, jose.SignatureAlgorithm(algorithm), nil
}

// usual is the algorithm of a key where none is named.
func usual(key any) jose.SignatureAlgorithm {
	if jwk, ok := key.(jose.JSONWebKey); ok {
		key = jwk.Key
	}
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		switch k.Curve.Params().BitSize {
		case 384:
			return jose.ES384
		case 521:
			return jose.ES512
		}
		return jose.ES256
	case ed25519.PrivateKey:
		return jose.EdDSA
	case *rsa.PrivateKey, crypto.Signer:
		return jose.RS256
	}
	return jose.RS256
}

// CheckKey reports why a private key cannot be used, nil if it can.
func CheckKey(text, algorithm string) error {
	key, alg, err := signingKey(text, algorithm)
	if err == nil {
		_, err = jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, nil)
	}
	return err
}

// prepareDevice asks for a code that a person types in elsewhere (RFC 8628).
func (p *Pending) prepareDevice(ctx context.Context, before *credential) error {
	a := p.account
	at, err := a.deviceURL(ctx, p.place.meta)
	if err != nil {
		return err
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
	if u, err := url.Parse(p.at); err != nil || u.Scheme != "https" && !(u.Scheme == "http" && isLoopback(u.Hostname())) {
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

// poll asks for the token until the person has agreed.
func (p *Pending) poll() error {
	a := p.account
	for every := p.every; ; {
		select {
		case <-p.life.Done():
			return context.Cause(p.life)
		case <-time.After(every):
		}
		form := url.Values{"grant_type": {deviceGrant}, "device_code": {p.verifier}}
		if p.place.resource != "" {
			form.Set("resource", p.place.resource)
		}
		t, err := a.ask(p.life, p.place.meta.TokenEndpoint, p.place.meta.Issuer, p.client, form)
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

// deviceURL is the endpoint that the Go SDK's metadata lacks.
func (s *Server) deviceURL(ctx context.Context, meta *oauthex.AuthServerMeta) (string, error) {
	u, err := url.Parse(meta.Issuer)
	if err != nil {
		return "", err
	}
	at, path := u.Scheme+"://"+u.Host, strings.TrimSuffix(u.Path, "/")
	for _, document := range slices.Compact([]string{
		at + "/.well-known/oauth-authorization-server" + path, at + "/.well-known/openid-configuration" + path, at + path + "/.well-known/openid-configuration",
	}) {
		var found struct {
			Issuer string `json:"issuer"`
			Device string `json:"device_authorization_endpoint"`
		}
		if there, err := s.document(ctx, document, &found); err == nil && there && found.Issuer == meta.Issuer && found.Device != "" {
			return found.Device, nil
		}
	}
	return "", fmt.Errorf("the authorization server %s has no device grant", meta.Issuer)
}

// Logout forgets a principal's login, and has it revoked (RFC 7009) where the
// authorization server can. It reports whether there was one, and whether that is revoked;
// the error is why it could not be.
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
	s.event(ctx, trust.EventLogout, principal, c, err)
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
	switch client.Method {
	case methodPost:
		form.Set("client_secret", client.Secret)
	case methodKey:
		if err := s.sign(form, client.ID, c.Issuer); err != nil {
			return err
		}
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
	if json.NewDecoder(io.LimitReader(response.Body, maxDocument)).Decode(&said) == nil {
		refusal.Code = rawjson.Clip(printable.Line(said.Error), 60)
	}
	if refusal.Code == "unsupported_token_type" { // of access tokens that nobody is asked about: they end by themselves
		return nil
	}
	return refusal
}
