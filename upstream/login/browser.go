package login

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"toolfinch/internal/discovery"
	"toolfinch/internal/identity"
	"toolfinch/internal/printable"
)

// Start is a login whose start page a browser has opened. The start page is at the redirect URL, so that
// a reverse proxy forwards one path.
type Start struct {
	ID        string    `json:"i"`
	Server    string    `json:"s"`
	Principal string    `json:"p,omitempty"` // whose login it becomes; "" for the owner's, which all share
	Redirect  string    `json:"r"`           // where the authorization server sends the browser
	At        string    `json:"a"`           // the page of the authorization server, without a state
	Until     time.Time `json:"u"`
}

// OnLoopback reports whether only browsers of this machine get to the start page.
func (s Start) OnLoopback() bool {
	u, err := url.Parse(s.Redirect)
	return err == nil && discovery.IsLoopback(u.Hostname())
}

func (s Start) secure() bool { return strings.HasPrefix(s.Redirect, "https:") }

// ByOwner reports whether a request from an address may start the login as the owner: the login is the
// owner's, and both the browser and the page are on this machine.
func (s Start) ByOwner(address string) bool {
	at, err := netip.ParseAddr(address)
	return s.Principal == "" && s.OnLoopback() && err == nil && at.Unmap().IsLoopback()
}

// Names of the parameters of a start page's URL.
const (
	paramLogin = "login"
	paramOwner = "owner"
)

// binder binds logins to browsers. Processes with the same key take each other's start pages and states.
type binder struct {
	key    [32]byte
	aead   cipher.AEAD
	shared bool // other processes have the key
}

func newBinder(shared [32]byte) *binder {
	b := &binder{shared: shared != [32]byte{}}
	if !b.shared {
		_, _ = rand.Read(shared[:]) // it never fails
	}
	derive := func(use string) []byte {
		key, err := hkdf.Key(sha256.New, shared[:], nil, "toolfinch login "+use, 32)
		if err != nil {
			panic(err) // the length is valid
		}
		return key
	}
	b.key = [32]byte(derive("state"))
	block, err := aes.NewCipher(derive("start"))
	if err == nil {
		b.aead, err = cipher.NewGCMWithRandomNonce(block)
	}
	if err != nil {
		panic(err) // the key has a valid length
	}
	return b
}

// mac proves that this process, or one with the same key, has bound a value to a login.
func (b *binder) mac(use, id, value string) string {
	h := hmac.New(sha256.New, b.key[:])
	for _, part := range []string{use, id, value} {
		fmt.Fprintf(h, "%d %s", len(part), part)
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// seal encrypts a value for open.
func (b *binder) seal(value any) (string, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(b.aead.Seal(nil, nil, raw, nil)), nil
}

// open reports whether a text was sealed, and reads its value.
func (b *binder) open(sealed string, to any) bool {
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err == nil {
		raw, err = b.aead.Open(nil, nil, raw, nil)
	}
	return err == nil && json.Unmarshal(raw, to) == nil
}

// state is the state of a login in the browser that has the secret in a cookie.
func (b *binder) state(id, secret string, secure bool) string {
	use := "state"
	if secure {
		use = "secure state"
	}
	return id + "." + b.mac(use, id, secret)
}

// idOf is the ID of the login of a state.
func idOf(state string) string {
	id, _, _ := strings.Cut(state, ".")
	return id
}

// opened reports whether the browser of a request has opened the start page of the login of a state.
func (b *binder) opened(r *http.Request, state string) bool {
	id := idOf(state)
	for _, secure := range []bool{false, true} {
		for _, c := range r.CookiesNamed(cookieName(id, secure)) {
			if hmac.Equal([]byte(state), []byte(b.state(id, c.Value, secure))) {
				return true
			}
		}
	}
	return false
}

// cookieName is the name of the cookie of a login. No other host can set a cookie with the prefix __Host-,
// which only HTTPS has.
func cookieName(id string, secure bool) string {
	name := "toolfinch-login-" + id
	if secure {
		return "__Host-" + name
	}
	return name
}

// cookie is the cookie that binds a login to a browser; it is deleted with the value "".
func cookie(id, value string, secure bool) *http.Cookie {
	// Lax: the browser comes back from the site of the authorization server.
	c := &http.Cookie{Name: cookieName(id, secure), Value: value, Path: "/", HttpOnly: true, Secure: secure, SameSite: http.SameSiteLaxMode, MaxAge: int(pendingFor.Seconds())}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}

// startURL is the URL of a start page. It tells only an ID, unless other processes must be able to serve
// the page.
func (l *Logins) startURL(s Start) (string, error) {
	u, err := url.Parse(s.Redirect)
	if err != nil {
		return "", err
	}
	value := s.ID
	if l.binder.shared {
		if value, err = l.binder.seal(s); err != nil {
			return "", err
		}
	}
	q := u.Query()
	q.Set(paramLogin, value)
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// startOf is the login of a start page's URL.
func (l *Logins) startOf(value string) (s Start, found bool) {
	if p := l.waiting(value); p != nil {
		return p.start, true
	}
	return s, l.binder.open(value, &s) && s.At != "" && time.Now().Before(s.Until)
}

// waiting is the login of an ID that waits for a browser; nil for none.
func (l *Logins) waiting(id string) *Pending {
	l.mu.Lock()
	p := l.pending[id]
	l.mu.Unlock()
	if p == nil || p.url() == "" {
		return nil
	}
	return p
}

// OwnerURL is URL for a browser that has already proved to be the owner's. No client gets it.
func (p *Pending) OwnerURL() string {
	if p.userCode != "" || p.account.principal != "" {
		return p.at
	}
	return p.at + "&" + paramOwner + "=" + p.account.logins.binder.mac("owner", p.id, "")
}

// ServeHTTP serves the start pages of logins, and takes the answers of authorization servers that browsers
// bring to the same URL. An answer counts only in the browser that opened the start page. A HEAD uses
// nothing up: programs that look at links send it.
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

// serveStart sends a browser to the authorization server if the browser is the asker's. Each opening has
// a state of its own, which only this browser learns.
func (l *Logins) serveStart(w http.ResponseWriter, r *http.Request, q url.Values) {
	s, found := l.startOf(q.Get(paramLogin))
	if !found {
		noLogin(w)
		return
	}
	byOwner := s.Principal == "" && hmac.Equal([]byte(q.Get(paramOwner)), []byte(l.binder.mac("owner", s.ID, "")))
	if !byOwner && !l.prove(w, r, s) {
		return
	}
	l.sendOn(w, s)
}

// sendOn binds a login to the browser of the asker, and sends it to the authorization server.
func (l *Logins) sendOn(w http.ResponseWriter, s Start) {
	secret := rand.Text()
	http.SetCookie(w, cookie(s.ID, secret, s.secure()))
	redirect(w, s.At, l.binder.state(s.ID, secret, s.secure()))
}

// redirect sends a browser to a page of an authorization server with a state.
func redirect(w http.ResponseWriter, at, state string) {
	w.Header().Set("Location", at+"&state="+url.QueryEscape(state))
	w.WriteHeader(http.StatusSeeOther)
}

// ProveLocally lets the owner's logins start in browsers of this machine.
func ProveLocally(w http.ResponseWriter, r *http.Request, s Start) bool {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !s.ByOwner(at.Addr().String()) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, "This page cannot tell who you are. Log in to %s on the machine of toolfinch.\n", s.Server)
		return false
	}
	return true
}

// serveAnswer takes the answer that a browser brings, or hands it to the process in which the login began.
func (l *Logins) serveAnswer(w http.ResponseWriter, r *http.Request, q url.Values) {
	state := q.Get("state")
	if i, is := l.identification(r, state); is {
		l.identified(w, r, i, q)
		return
	}
	p := l.waiting(idOf(state))
	if !l.binder.opened(r, state) {
		if p != nil {
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
		fmt.Fprintf(w, "The login to %s has failed: %s\n", p.account.name, printable.Line(err.Error()))
		return
	}
	fmt.Fprintf(w, "Logged in to %s. You can close this window.\n", p.account.name)
}

// Answer takes an answer that a browser brought to another process, which has checked the browser.
func (l *Logins) Answer(query string) {
	if q, err := url.ParseQuery(query); err == nil {
		if p := l.waiting(idOf(q.Get("state"))); p != nil {
			_ = l.take(p, q) // it ends the login, which tells who waits
		}
	}
}

// errTaken is about a second answer.
var errTaken = errors.New("another answer was taken first")

// take ends a login with an answer, which is used once.
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
