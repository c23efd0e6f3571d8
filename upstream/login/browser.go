package login

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/printable"
)

// startOf returns the login for a value of paramLogin.
func (l *Logins) startOf(value string) (s Start, found bool) {
	if p := l.waiting(value); p != nil {
		return p.start, true
	}
	return s, l.binder.open(value, &s) && s.At != "" && time.Now().Before(s.Until)
}

// waiting returns the login with this ID that waits for a browser; nil for none.
func (l *Logins) waiting(id string) *Pending {
	l.mu.Lock()
	p := l.pending[id]
	l.mu.Unlock()
	if p == nil || p.url() == "" {
		return nil
	}
	return p
}

// OwnerURL returns the page for a browser that has already proved to be the owner's. It is never shown to clients.
func (p *Pending) OwnerURL() string {
	if p.userCode != "" || p.account.principal != "" {
		return p.at
	}
	return p.at + "&" + paramOwner + "=" + p.account.logins.binder.mac("owner", p.id, "")
}

// DirectURL returns the authorization server's own page, for the owner at a terminal, whose browser may be on another
// machine. Its answer counts in a browser of this machine, or by Paste. It is never shown to clients.
func (p *Pending) DirectURL() string {
	if p.userCode != "" {
		return p.at
	}
	p.opened.Store(true)
	return p.start.At + "&state=" + url.QueryEscape(p.directState())
}

func (p *Pending) directState() string {
	return p.id + "." + p.account.logins.binder.mac("direct", p.id, "")
}

// Paste takes the address at which the owner's browser has ended. An error says why the text is no such address: the
// login then still waits.
func (p *Pending) Paste(text string) error {
	text = strings.Trim(text, " \t\r\n\"'`<>")
	if _, query, is := strings.Cut(text, "?"); is {
		text = query
	}
	text, _, _ = strings.Cut(text, "#")
	q, err := url.ParseQuery(text)
	switch {
	case err != nil, !q.Has("state"), !q.Has("code") && !q.Has("error"):
		return fmt.Errorf("that is not the address at which the browser ended after the login: it begins with %s and contains code= and state=", p.redirect)
	case !hmac.Equal([]byte(q.Get("state")), []byte(p.directState())):
		return errors.New("that address belongs to another login")
	}
	_ = p.account.logins.take(p, q) // Err has its error
	return nil
}

// ServeHTTP serves the start pages of logins, and at the same URL accepts the answers of authorization servers. An
// answer counts only in the browser that opened the start page. HEAD changes nothing, because link checkers send it.
func (l *Logins) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Frame-Options", "DENY")
	q := r.URL.Query()
	switch {
	case q.Has(paramLogin) && (r.Method == http.MethodGet || r.Method == http.MethodPost):
		l.serveStart(w, r, q)
	case r.Method == http.MethodGet:
		l.serveAnswer(w, r, q)
	default:
		noLogin(w)
	}
}

func noLogin(w http.ResponseWriter) {
	w.WriteHeader(http.StatusNotFound)
	fmt.Fprintln(w, "No login waits for this. It may have taken too long, or be over: begin it again.")
}

// serveStart redirects the asking user's browser to the authorization server. Each request gets its own state, which
// only this browser learns.
func (l *Logins) serveStart(w http.ResponseWriter, r *http.Request, q url.Values) {
	s, found := l.startOf(q.Get(paramLogin))
	if !found {
		noLogin(w)
		return
	}
	// A page of the asker could prove in the browser of somebody else that the asker is there.
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintln(w, "Another site sent this form. Open the login again, and fill its own form in.")
		return
	}
	byOwner := hmac.Equal([]byte(q.Get(paramOwner)), []byte(l.binder.mac("owner", s.ID, "")))
	if !byOwner && !l.prove(w, r, s) {
		return
	}
	l.sendOn(w, s)
}

// sendOn binds a login to a browser, and redirects the browser to the authorization server.
func (l *Logins) sendOn(w http.ResponseWriter, s Start) {
	if p := l.waiting(s.ID); p != nil {
		p.opened.Store(true)
	}
	secret := rand.Text()
	http.SetCookie(w, cookie(s.ID, secret, s.secure()))
	redirect(w, s.At, l.binder.state(s.ID, secret, s.secure()))
}

// serveAnswer takes the answer that a browser brings, or forwards it to the process that began the login.
func (l *Logins) serveAnswer(w http.ResponseWriter, r *http.Request, q url.Values) {
	state := q.Get("state")
	if i, is := l.identification(r, state); is {
		if !l.attempt(r) {
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprintln(w, errAttempts)
			return
		}
		l.identified(w, r, i, q)
		return
	}
	p := l.waiting(idOf(state))
	direct := p != nil && hmac.Equal([]byte(state), []byte(p.directState())) && p.start.byOwner(r)
	if !direct && !l.binder.opened(r, state) {
		if p != nil && l.attempt(r) {
			p.account.log.Warn("the answer to a login was refused: another browser brought it", "principal", p.account.principal)
			l.record.Event(r.Context(), identity.Event{Kind: identity.EventLogin, Principal: p.account.principal, Server: p.account.name, Outcome: identity.Denied, Reason: "another browser than the one that opened the login brought the answer"})
		}
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintln(w, "This browser did not begin this login, or it has taken too long. Nothing was changed. If somebody sent you here, do not go on. Otherwise begin the login again, and stay in one browser.")
		return
	}
	if p == nil && l.forward(r.Context(), r.URL.RawQuery) {
		fmt.Fprintln(w, "Thank you. The login goes on. If it has not ended in a minute, begin it again.")
		return
	}
	if p == nil {
		noLogin(w)
		return
	}
	http.SetCookie(w, cookie(p.id, "", p.start.secure()))
	if err := l.take(p, q); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, "The login to %s has failed: %s\n", p.account.name, printable.Line(WithWords(err)))
		return
	}
	fmt.Fprintf(w, "Logged in to %s. You can close this window.\n", p.account.name)
}

// Answer takes an answer that a browser brought to another process. That process has checked the browser.
func (l *Logins) Answer(query string) {
	if q, err := url.ParseQuery(query); err == nil {
		if p := l.waiting(idOf(q.Get("state"))); p != nil {
			_ = l.take(p, q) // waiting callers get the error from the ended login
		}
	}
}

// errTaken is the error of a second answer.
var errTaken = errors.New("another answer was taken first")

// take ends a login with an answer. Only the first answer counts.
func (l *Logins) take(p *Pending, q url.Values) error {
	l.mu.Lock()
	first := l.pending[p.id] == p
	delete(l.pending, p.id)
	l.mu.Unlock()
	if !first {
		return errTaken
	}
	ctx, cancel := context.WithTimeout(p.life, renewWithin)
	defer cancel()
	err := p.answered(ctx, q)
	p.finish(err)
	return err
}
