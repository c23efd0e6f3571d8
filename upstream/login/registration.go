package login

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"toolfinch/internal/discovery"
)

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
		if !s.unknown(ctx, p, r) {
			return r, nil
		}
		if err := s.forget(ctx, p.meta.Issuer, r.ID); err != nil {
			return registered{}, err
		}
	}
	if p.meta.RegistrationEndpoint == "" {
		return registered{}, fmt.Errorf("the authorization server %s takes no registration of clients: %s", p.meta.Issuer, s.byHand(redirect))
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
	body, err := json.Marshal(metadata)
	if err != nil {
		return registered{}, err
	}
	var answer struct {
		ID      discovery.Text    `json:"client_id"`
		Secret  discovery.Text    `json:"client_secret"`
		Method  discovery.Text    `json:"token_endpoint_auth_method"`
		Expires discovery.Seconds `json:"client_secret_expires_at"`
	}
	switch err := s.send(ctx, p.meta.RegistrationEndpoint, "application/json", string(body), nil, &answer); {
	case !p.found && (err != nil || answer.ID == ""): // nothing but a guess led there
		return registered{}, errNoServer
	case errors.As(err, new(*Refusal)):
		return registered{}, fmt.Errorf("%s does not register toolfinch: %w: %s", p.meta.Issuer, err, s.byHand(redirect))
	case err != nil:
		return registered{}, fmt.Errorf("toolfinch cannot be registered at %s: %w", p.meta.Issuer, err)
	case answer.ID == "":
		return registered{}, fmt.Errorf("toolfinch cannot be registered at %s: its answer has no client_id: %s", p.meta.Issuer, s.byHand(redirect))
	}
	r := registered{ID: string(answer.ID), Secret: string(answer.Secret), Method: string(answer.Method), Redirect: redirect}
	if answer.Expires > 0 {
		r.Expires = time.Unix(int64(answer.Expires), 0)
	}
	switch {
	case r.Secret == "":
		r.Method = methodNone
	case r.Method != methodBasic && r.Method != methodPost:
		r.Method = secretMethod(p.meta.AuthMethodsSupported)
	}
	return r, s.keepRegistration(ctx, p.meta.Issuer, r)
}

// byHand says how to configure a client that toolfinch cannot register itself. The redirect URL has a fixed port, because
// it must be the registered one.
func (s *Server) byHand(redirect string) string {
	text := "register a client there, with the redirect URL %s, and set oauth.client_id"
	if s.settings.Grant == GrantDevice {
		return "register a client there, for the device grant, and set oauth.client_id"
	}
	if s.settings.RedirectURL == "" && redirect != s.logins.callback() {
		redirect, text = suggestedRedirect, text+" and oauth.redirect_url"
	}
	return fmt.Sprintf(text, redirect)
}

// suggestedRedirect is outside the ports that systems choose by themselves.
const suggestedRedirect = "http://127.0.0.1:8976" + callbackPath

// unknown reports whether an authorization server says that it does not know a registered client, by renewing a
// token that it never gave: otherwise a person would find out, on a page that leads nowhere.
func (s *Server) unknown(ctx context.Context, p *place, r registered) bool {
	_, err := s.ask(ctx, p.meta.TokenEndpoint, r, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {rand.Text()}})
	refusal, refused := errors.AsType[*Refusal](err)
	return refused && refusal.ofClient() && refusal.Code != "unauthorized_client" // a client that may not renew is known
}

// keepRegistration stores a registration.
func (s *Server) keepRegistration(ctx context.Context, issuer string, r registered) error {
	return s.changeRegistrations(ctx, issuer, func(all registrations) {
		delete(all, r.Redirect)
		for other := range all {
			if len(all) < maxRegistrations {
				break
			}
			delete(all, other)
		}
		all[r.Redirect] = r
	})
}

// forget drops the registration of a client at an authorization server, with the ID "" all of them.
func (s *Server) forget(ctx context.Context, issuer, id string) error {
	return s.changeRegistrations(ctx, issuer, func(all registrations) {
		maps.DeleteFunc(all, func(_ string, r registered) bool { return id == "" || r.ID == id })
	})
}

func (s *Server) changeRegistrations(ctx context.Context, issuer string, change func(registrations)) error {
	name := clientPrefix + issuer
	return s.logins.vault.Locked(ctx, name, func(ctx context.Context) error {
		all := s.registrations(ctx, issuer)
		change(all)
		if len(all) == 0 {
			return s.logins.vault.Delete(ctx, name)
		}
		raw, err := json.Marshal(all)
		if err != nil {
			return err
		}
		return s.logins.vault.Put(ctx, name, raw)
	})
}
