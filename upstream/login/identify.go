package login

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/oauth2"

	"toolfinch/internal/discovery"
	"toolfinch/internal/identity"
	"toolfinch/internal/printable"
)

// Issuer is an authorization server that issues tokens for toolfinch: a login there proves who a user is.
type Issuer struct {
	URL          string   `json:"u"`
	Resource     string   `json:"r"`           // URL of toolfinch for its clients
	ClientID     string   `json:"c,omitempty"` // ID of a public client; "" registers a client
	Scopes       []string `json:"s,omitempty"`
	AllowPrivate bool     `json:"p,omitempty"`
}

// identification is a pending login at an issuer. The browser keeps it, encrypted, in a cookie. So strangers use none
// of our memory, and each process with the same key can continue it.
type identification struct {
	ID       string     `json:"id"` // the state
	Start    Start      `json:"start"`
	Issuer   Issuer     `json:"issuer"`
	Client   registered `json:"client"`
	Verifier string     `json:"verifier"`
}

func (i Issuer) server(l *Logins, redirect string) *Server {
	return l.Server("toolfinch", i.Resource, Settings{Set: true, Issuer: i.URL, ClientID: i.ClientID, Resource: i.Resource, Scopes: i.Scopes, AllowPrivate: i.AllowPrivate, RedirectURL: redirect})
}

// place finds the endpoints of the issuer.
func (i Issuer) place(ctx context.Context, s *Server) (*place, error) {
	meta, err := discovery.Find(ctx, s.client, i.URL, func(m *discovery.Metadata) error { return s.fits(m, i.URL, true) })
	if err != nil {
		return nil, fmt.Errorf("the authorization server %s: %w", i.URL, err)
	}
	if !discovery.IsWeb(meta.AuthorizationEndpoint) {
		return nil, fmt.Errorf("the authorization server %s names no https URL to log in at", i.URL)
	}
	return &place{meta: meta, resource: i.Resource, found: true}, nil
}

// errAttempts tells an address that it must wait.
var errAttempts = errors.New("too many attempts: try again in a minute")

// maxCookie bounds the value of a cookie, in bytes: browsers drop cookies above 4,096 bytes with the name.
const maxCookie = 3800

// cookie returns the cookie of the identification: another identification for the same login replaces it.
func (i identification) cookie(sealed string) *http.Cookie {
	return cookie(identifying(i.ID), sealed, i.Start.secure())
}

// identifying returns the part of the cookie's name that stands for an identification's state.
func identifying(state string) string { return idOf(state) + "-who" }

// Identify redirects a browser to an issuer, to prove that its user is the user who asked for the login.
func (l *Logins) Identify(w http.ResponseWriter, r *http.Request, start Start, at Issuer) error {
	if !l.attempt(r) {
		return errAttempts
	}
	ctx, cancel := context.WithTimeout(r.Context(), renewWithin)
	defer cancel()
	s := at.server(l, start.Redirect)
	p, err := at.place(ctx, s)
	if err != nil {
		return err
	}
	client, known, err := s.configured(p.meta, nil)
	if err == nil && !known {
		client, err = s.register(ctx, p, start.Redirect)
	}
	if err != nil {
		return err
	}
	i := identification{ID: start.ID + "." + rand.Text(), Start: start, Issuer: at, Client: client, Verifier: oauth2.GenerateVerifier()}
	sealed, err := l.binder.seal(i)
	if err != nil {
		return err
	}
	if len(sealed) > maxCookie {
		return fmt.Errorf("the login to %s asks for so much that a browser cannot keep it; configure fewer scopes", start.Server)
	}
	http.SetCookie(w, i.cookie(sealed))
	redirect(w, codeRequest{p, client, start.Redirect, i.Verifier}.askedAt(at.Scopes), i.ID)
	return nil
}

// identification returns the identification with this state from the cookies of a request.
func (l *Logins) identification(r *http.Request, state string) (i identification, is bool) {
	for _, secure := range []bool{false, true} {
		for _, c := range r.CookiesNamed(cookieName(identifying(state), secure)) {
			if l.binder.open(c.Value, &i) && i.ID == state && i.Start.secure() == secure && time.Now().Before(i.Start.Until) {
				return i, true
			}
		}
	}
	return i, false
}

// identified continues a login if the issuer says that the browser is the asking user's.
func (l *Logins) identified(w http.ResponseWriter, r *http.Request, i identification, q url.Values) {
	http.SetCookie(w, i.cookie(""))
	ctx, cancel := context.WithTimeout(r.Context(), renewWithin)
	defer cancel()
	s := i.Issuer.server(l, i.Start.Redirect)
	p, err := i.Issuer.place(ctx, s)
	var t *token
	if err == nil {
		t, err = s.exchange(ctx, codeRequest{p, i.Client, i.Start.Redirect, i.Verifier}, q)
	}
	if refusal, ok := errors.AsType[*Refusal](err); ok && refusal.final() {
		err = errors.Join(err, s.forget(ctx, p.meta.Issuer, i.Client.ID))
	}
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, "The login at %s has failed: %s\n", i.Issuer.URL, printable.Line(WithWords(err)))
		return
	}
	if who := l.whose(r, string(t.Access)); who != i.Start.Principal {
		l.Refused(r, i.Start, who)
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, "The user who asked for the login to %s is not the one who has logged in at %s. Nothing was changed. If somebody sent you here, do not go on.\n", i.Start.Server, i.Issuer.URL)
		return
	}
	l.sendOn(w, i.Start)
}

// Refused records that a user opened the start page of another user's login.
func (l *Logins) Refused(r *http.Request, s Start, who string) {
	l.log.Warn("a login was refused: another user opened it", "server", s.Server, "principal", s.Principal, "opened_by", who)
	l.record.Event(r.Context(), identity.Event{Kind: identity.EventLogin, Principal: who, Server: s.Server, Outcome: identity.Denied, Reason: "the login of another user was opened"})
}
