package login

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"toolfinch/internal/discovery"
)

// pendingFor is how long a login that was begun may take.
const pendingFor = 10 * time.Minute

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

// onLoopback reports whether only browsers of this machine get to the start page.
func (s Start) onLoopback() bool {
	u, err := url.Parse(s.Redirect)
	return err == nil && discovery.IsLoopback(u.Hostname())
}

func (s Start) secure() bool { return strings.HasPrefix(s.Redirect, "https:") }

// ByOwner reports whether a request from an address may start the login as the owner: the login is the
// owner's, and both the browser and the page are on this machine.
func (s Start) ByOwner(address string) bool {
	at, err := netip.ParseAddr(address)
	return s.Principal == "" && s.onLoopback() && err == nil && at.Unmap().IsLoopback()
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

// sendOn binds a login to the browser of the asker, and sends it to the authorization server.
func (b *binder) sendOn(w http.ResponseWriter, s Start) {
	secret := rand.Text()
	http.SetCookie(w, cookie(s.ID, secret, s.secure()))
	redirect(w, s.At, b.state(s.ID, secret, s.secure()))
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
