package login

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"toolfinch/internal/discovery"
	"toolfinch/internal/identity"
	"toolfinch/internal/leeway"
)

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
	form := url.Values{}
	if len(p.scopes) > 0 {
		form.Set("scope", strings.Join(p.scopes, " "))
	}
	if p.place.resource != "" {
		form.Set("resource", p.place.resource)
	}
	var code struct {
		User     discovery.Text    `json:"user_code"`
		Device   discovery.Text    `json:"device_code"`
		At       discovery.Text    `json:"verification_uri"`
		AtGoogle discovery.Text    `json:"verification_url"`
		Complete discovery.Text    `json:"verification_uri_complete"`
		Interval discovery.Seconds `json:"interval"`
	}
	if err := a.post(ctx, at, client, form, &code); err != nil {
		return err
	}
	p.userCode, p.verifier, p.at = string(code.User), string(code.Device), string(cmp.Or(code.Complete, code.At, code.AtGoogle))
	if p.userCode == "" || p.verifier == "" {
		return fmt.Errorf("the authorization server %s answers without a code", p.place.meta.Issuer)
	}
	if !discovery.IsWeb(p.at) {
		return fmt.Errorf("the authorization server %s names no https URL to log in at", p.place.meta.Issuer)
	}
	p.every = time.Duration(cmp.Or(min(code.Interval, maxInterval), 5)) * time.Second
	close(p.ready)
	return nil
}

// maxInterval bounds the seconds between two requests for the token.
const maxInterval = 60

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
		case refused && refusal.final():
			return err
		default:
			every += 5 * time.Second // RFC 8628 3.5
		}
	}
}
