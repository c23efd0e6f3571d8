package login

import (
	"bytes"
	"compress/flate"
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
)

// pendingFor is how long a login may take.
const pendingFor = 10 * time.Minute

// Start describes a login to its start page. The start page is at the redirect URL, so that a reverse proxy forwards
// one path only.
type Start struct {
	ID        string    `json:"i"`
	Server    string    `json:"s"`
	Principal string    `json:"p,omitempty"` // who gets the login; "" for the owner's login, which all share
	Redirect  string    `json:"r"`           // the authorization server sends the browser to this URL
	At        string    `json:"a"`           // page of the authorization server, without a state
	Until     time.Time `json:"u"`
}

// onLoopback reports whether only browsers of this machine reach the start page.
func (s Start) onLoopback() bool {
	u, err := url.Parse(s.Redirect)
	return err == nil && discovery.IsLoopback(u.Hostname())
}

func (s Start) secure() bool { return strings.HasPrefix(s.Redirect, "https:") }

// ByOwner reports whether a request from an address may start the login as the owner. It may if the login is the
// owner's, and both browser and page are on this machine.
func (s Start) ByOwner(address string) bool {
	at, err := netip.ParseAddr(address)
	return s.Principal == "" && s.onLoopback() && err == nil && at.Unmap().IsLoopback()
}

func (s Start) byOwner(r *http.Request) bool {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && s.ByOwner(at.Addr().String())
}

// Query parameters of a start page.
const (
	paramLogin = "login"
	paramOwner = "owner"
)

// binder binds logins to browsers. Processes with the same key accept each other's start pages and states.
type binder struct {
	key    [32]byte
	aead   cipher.AEAD
	shared bool // other processes know the key
}

func newBinder(shared [32]byte) *binder {
	b := &binder{shared: shared != [32]byte{}}
	if !b.shared {
		_, _ = rand.Read(shared[:]) // never fails
	}
	derive := func(use string) []byte {
		key, err := hkdf.Key(sha256.New, shared[:], nil, "toolfinch server login "+use, 32)
		if err != nil {
			panic(err) // cannot happen: the length is valid
		}
		return key
	}
	b.key = [32]byte(derive("state"))
	block, err := aes.NewCipher(derive("start"))
	if err == nil {
		b.aead, err = cipher.NewGCMWithRandomNonce(block)
	}
	if err != nil {
		panic(err) // cannot happen: the key has a valid length
	}
	return b
}

// mac proves that a process with this key has bound a value to the login with an ID.
func (b *binder) mac(use, id, value string) string {
	h := hmac.New(sha256.New, b.key[:])
	for _, part := range []string{use, id, value} {
		fmt.Fprintf(h, "%d %s", len(part), part)
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// seal encrypts a value for open.
func (b *binder) seal(value any) (string, error) {
	var raw bytes.Buffer // compressed, because cookies are short and URLs are not
	deflate, err := flate.NewWriter(&raw, flate.BestCompression)
	if err == nil {
		err = errors.Join(json.NewEncoder(deflate).Encode(value), deflate.Close())
	}
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(b.aead.Seal(nil, nil, raw.Bytes(), nil)), nil
}

// open decodes a text made by seal. It reports false for any other text.
func (b *binder) open(sealed string, to any) bool {
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err == nil {
		raw, err = b.aead.Open(nil, nil, raw, nil)
	}
	return err == nil && json.NewDecoder(flate.NewReader(bytes.NewReader(raw))).Decode(to) == nil
}

// state returns the OAuth state of a login for the browser that has secret in a cookie.
func (b *binder) state(id, secret string, secure bool) string {
	use := "state"
	if secure {
		use = "secure state"
	}
	return id + "." + b.mac(use, id, secret)
}

// idOf returns the login ID in a state.
func idOf(state string) string {
	id, _, _ := strings.Cut(state, ".")
	return id
}

// opened reports whether the browser of a request has opened the start page that made state.
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

// cookieName returns the name of a login's cookie. No other host can set a cookie with the prefix __Host-, which
// needs HTTPS.
func cookieName(id string, secure bool) string {
	name := "toolfinch-login-" + id
	if secure {
		return "__Host-" + name
	}
	return name
}

// cookie returns the cookie that binds a login to a browser. The value "" deletes it.
func cookie(id, value string, secure bool) *http.Cookie {
	// Lax, because the browser comes back from the authorization server's site.
	c := &http.Cookie{Name: cookieName(id, secure), Value: value, Path: "/", HttpOnly: true, Secure: secure, SameSite: http.SameSiteLaxMode, MaxAge: int(pendingFor.Seconds())}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}

// startURL returns the URL of a start page. It contains only an ID; or s, encrypted, if other processes may serve the
// page.
func (b *binder) startURL(s Start) (string, error) {
	u, err := url.Parse(s.Redirect)
	if err != nil {
		return "", err
	}
	value := s.ID
	if b.shared {
		if value, err = b.seal(s); err != nil {
			return "", err
		}
	}
	q := u.Query()
	q.Set(paramLogin, value)
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// redirect sends a browser to the authorization server's page at, with a state.
func redirect(w http.ResponseWriter, at, state string) {
	w.Header().Set("Location", at+"&state="+url.QueryEscape(state))
	w.WriteHeader(http.StatusSeeOther)
}

// ProveLocally allows only the owner's logins, in browsers of this machine.
func ProveLocally(w http.ResponseWriter, r *http.Request, s Start) bool {
	if !s.byOwner(r) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, "This page cannot tell who you are. Log in to %s on the machine of toolfinch.\n", s.Server)
		return false
	}
	return true
}
