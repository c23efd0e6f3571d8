package login_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"toolfinch/internal/authserver"
	"toolfinch/internal/await"
	"toolfinch/internal/identity"
	"toolfinch/internal/limit"
	"toolfinch/internal/must"
	"toolfinch/upstream/login"
)

// fetched is the status of what a browser gets.
func fetched(t *testing.T, browser *http.Client, at string) int {
	t.Helper()
	response := must.Get(browser.Get(at))(t)
	response.Body.Close()
	return response.StatusCode
}

// opened goes with a browser from the start page to the answer of the authorization server, which the browser
// does not bring yet.
func (h *house) opened(t *testing.T, browser *http.Client, pending *login.Pending) *url.URL {
	t.Helper()
	back, _, _ := strings.Cut(pending.URL(), "?")
	return h.as.BrowseIn(t, browser, pending.URL(), back)
}

// withState is an answer with another state.
func withState(answer *url.URL, state string) string {
	q := answer.Query()
	q.Set("state", state)
	changed := *answer
	changed.RawQuery = q.Encode()
	return changed.String()
}

// The attacker has the URL of the victim's login, or has the victim open the attacker's, and gets as far as
// the answer of the authorization server. The answer is worth nothing in another browser, and the attempt
// uses nothing up.
func TestAnAnswerCountsInTheBrowserThatOpenedTheLogin(t *testing.T) {
	for name, attack := range map[string]func(t *testing.T, h *house, p *process, pending *login.Pending, opener *http.Client, answer *url.URL) int{
		"a browser that opened nothing": func(t *testing.T, _ *house, _ *process, _ *login.Pending, _ *http.Client, answer *url.URL) int {
			return fetched(t, authserver.NewBrowser(), answer.String())
		},
		"a browser that opened the same login": func(t *testing.T, h *house, _ *process, pending *login.Pending, _ *http.Client, answer *url.URL) int {
			other := authserver.NewBrowser()
			if own := h.opened(t, other, pending); own.Query().Get("state") == answer.Query().Get("state") {
				t.Error("two browsers have one state")
			}
			return fetched(t, other, answer.String())
		},
		"a browser that opened another login": func(t *testing.T, h *house, p *process, _ *login.Pending, _ *http.Client, answer *url.URL) int {
			another := must.Get(p.server.Begin(t.Context(), "idp|bob"))(t)
			other := authserver.NewBrowser()
			h.opened(t, other, another)
			return fetched(t, other, answer.String())
		},
		"the opener with the state of another browser": func(t *testing.T, h *house, _ *process, pending *login.Pending, opener *http.Client, answer *url.URL) int {
			return fetched(t, opener, withState(answer, h.opened(t, authserver.NewBrowser(), pending).Query().Get("state")))
		},
		"the opener with the ID, which clients know, as the state": func(t *testing.T, _ *house, _ *process, pending *login.Pending, opener *http.Client, answer *url.URL) int {
			return fetched(t, opener, withState(answer, pending.ID()))
		},
		"the opener without a state": func(t *testing.T, _ *house, _ *process, _ *login.Pending, opener *http.Client, answer *url.URL) int {
			return fetched(t, opener, withState(answer, ""))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, authserver.Settings{})
			p := h.processOf(t, login.Settings{}, login.Options{Prove: anybody})
			pending := must.Get(p.server.Begin(t.Context(), ""))(t)
			opener := authserver.NewBrowser()
			answer := h.opened(t, opener, pending)
			if status := attack(t, h, p, pending, opener, answer); status != http.StatusForbidden {
				t.Errorf("the attack is answered %d", status)
			}
			if h.row(t) != nil {
				t.Fatal("the attack has logged somebody in")
			}
			if status := fetched(t, opener, answer.String()); status != http.StatusOK {
				t.Errorf("the browser that opened the login is answered %d", status)
			}
			await.Value(t, pending.Done())
			h.works(t, p)
		})
	}
}

// A start page is opened by anybody who has its URL: the one who asked, or whoever got it from the asker.
func TestWhoGetsPastAStartPage(t *testing.T) {
	const here, public = "http://127.0.0.1:8080/oauth/callback", "https://tools.example.com/oauth/callback"
	for name, test := range map[string]struct {
		principal, redirect string
		owner               bool   // the browser comes from the owner's page
		from                string // its address
		passes              bool
	}{
		"the owner's login, on this machine":                         {redirect: here, from: "127.0.0.1:5000", passes: true},
		"the owner's login, on this machine, by IPv6":                {redirect: here, from: "[::1]:5000", passes: true},
		"the owner's login, from elsewhere":                          {redirect: here, from: "192.0.2.1:5000"},
		"the owner's login at a public URL":                          {redirect: public, from: "192.0.2.1:5000"},
		"the owner's login at a public URL, by a local proxy":        {redirect: public, from: "127.0.0.1:5000"},
		"the owner's login at a public URL, from the owner's page":   {redirect: public, from: "192.0.2.1:5000", owner: true, passes: true},
		"a user's login, on this machine":                            {principal: "key|ann", redirect: here, from: "127.0.0.1:5000"},
		"a user's login, with what the owner's page would have":      {principal: "key|ann", redirect: public, from: "192.0.2.1:5000", owner: true},
		"the owner's login, from an address that cannot be read":     {redirect: here, from: "@"},
		"the owner's login, from this machine's name for the public": {redirect: "http://tools.example.com/oauth/callback", from: "127.0.0.1:5000"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, authserver.Settings{})
			p := h.processOf(t, login.Settings{RedirectURL: test.redirect}, login.Options{Callback: func() string { return here }})
			pending := must.Get(p.server.Begin(t.Context(), test.principal))(t)
			at := pending.URL()
			if strings.Contains(at, "code_challenge") || !strings.HasPrefix(at, test.redirect+"?login=") {
				t.Errorf("clients are told %s", at)
			}
			if test.owner {
				at = pending.OwnerURL()
			}
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				w := httptest.NewRecorder()
				r := httptest.NewRequest(method, at, nil)
				r.RemoteAddr = test.from
				p.logins.ServeHTTP(w, r)
				location, cookies := w.Header().Get("Location"), w.Result().Cookies()
				if !test.passes {
					if w.Code != http.StatusForbidden || location != "" || len(cookies) > 0 {
						t.Errorf("%s is answered %d, %q, %v", method, w.Code, location, cookies)
					}
					continue
				}
				if w.Code != http.StatusSeeOther || !strings.HasPrefix(location, h.as.Issuer) || len(cookies) != 1 {
					t.Fatalf("%s is answered %d, %q, %v", method, w.Code, location, cookies)
				}
				if c := cookies[0]; !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Secure != (test.redirect == public) || strings.HasPrefix(c.Name, "__Host-") != c.Secure || c.Domain != "" {
					t.Errorf("the cookie is %s", c)
				}
			}
		})
	}
}

// Another host of the same domain can set a cookie for this one, but none with the prefix __Host-. Over
// HTTPS no other name is believed.
func TestACookieThatAnotherHostSetsIsNotBelieved(t *testing.T) {
	h := newHouse(t, authserver.Settings{})
	p := h.process(t, login.Settings{RedirectURL: "https://tools.example.com/oauth/callback"})
	pending := must.Get(p.server.Begin(t.Context(), ""))(t)
	w := httptest.NewRecorder()
	p.logins.ServeHTTP(w, httptest.NewRequest(http.MethodGet, pending.OwnerURL(), nil))
	at, _ := url.Parse(w.Header().Get("Location"))
	cookie := w.Result().Cookies()[0]
	bring := func(name string) int {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "https://tools.example.com/oauth/callback?code=stolen&state="+url.QueryEscape(at.Query().Get("state")), nil)
		r.AddCookie(&http.Cookie{Name: name, Value: cookie.Value})
		p.logins.ServeHTTP(w, r)
		return w.Code
	}
	if status := bring(strings.TrimPrefix(cookie.Name, "__Host-")); status != http.StatusForbidden {
		t.Errorf("the cookie without its prefix: %d", status)
	}
	if status := bring(cookie.Name); status != http.StatusBadRequest { // by the authorization server, for the code
		t.Errorf("the cookie: %d", status)
	}
}

func TestThatAnotherBrowserBroughtAnAnswerIsTakenDown(t *testing.T) {
	h := newHouse(t, authserver.Settings{})
	var events []identity.Event
	p := h.processOf(t, login.Settings{}, login.Options{Prove: anybody, Record: func(_ context.Context, e identity.Event) { events = append(events, e) }})
	pending := must.Get(p.server.Begin(t.Context(), "key|ann"))(t)
	answer := h.opened(t, authserver.NewBrowser(), pending)
	fetched(t, authserver.NewBrowser(), answer.String())
	fetched(t, authserver.NewBrowser(), withState(answer, "ABCDEFGHIJKLMNOPQRSTUVWXYZ.x")) // of a login that nobody has begun
	if len(events) != 1 || events[0].Kind != identity.EventLogin || events[0].Outcome != identity.Denied || events[0].Principal != "key|ann" || events[0].Server != "notes" {
		t.Errorf("the events are %+v", events)
	}
	if log := h.log.String(); strings.Count(log, "another browser") != 1 {
		t.Errorf("the log has\n%s", log)
	}
}

// Whoever has the code of the device grant can agree to it, so it proves nothing of a user.
func TestNoUserLogsInByTheDeviceGrant(t *testing.T) {
	h := newHouse(t, authserver.Settings{})
	p := h.process(t, login.Settings{Grant: login.GrantDevice, PerUser: true})
	if _, err := p.server.Begin(t.Context(), "key|ann"); err == nil || !strings.Contains(err.Error(), "authorization_code") {
		t.Errorf("a user: %v", err)
	}
	if pending, err := p.server.Begin(t.Context(), ""); err != nil || pending.UserCode() == "" {
		t.Errorf("the owner: %v", err)
	}
}

// A balancer sends a browser to any replica: with the start page, and with the answer.
func TestReplicasServeEachOthersLogins(t *testing.T) {
	h := newHouse(t, authserver.Settings{})
	const public = "http://tools.example.com/oauth/callback"
	settings := login.Settings{RedirectURL: public}
	one := h.processOf(t, settings, login.Options{Key: [32]byte{1}})
	forwarded := 0
	other := h.processOf(t, settings, login.Options{Key: [32]byte{1}, Prove: func(_ http.ResponseWriter, _ *http.Request, s login.Start) bool {
		return s.Principal == "key|ann"
	}, Forward: func(_ context.Context, query string) bool {
		forwarded++
		one.logins.Answer(query)
		return true
	}})
	stranger := h.processOf(t, settings, login.Options{Key: [32]byte{2}, Prove: anybody})
	pending := must.Get(one.server.Begin(t.Context(), "key|ann"))(t)
	if strings.Contains(pending.URL(), "ann") {
		t.Errorf("the URL tells whose login it is: %s", pending.URL())
	}
	get := func(p *process, at string, cookies ...*http.Cookie) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, at, nil)
		for _, c := range cookies {
			r.AddCookie(c)
		}
		p.logins.ServeHTTP(w, r)
		return w
	}
	if w := get(stranger, pending.URL()); w.Code != http.StatusNotFound {
		t.Errorf("a process with another key answers %d", w.Code)
	}
	started := get(other, pending.URL())
	if started.Code != http.StatusSeeOther {
		t.Fatalf("the start page: %d %s", started.Code, started.Body)
	}
	answer := h.as.Browse(t, started.Header().Get("Location"), public)
	if w := get(other, answer.String()); w.Code != http.StatusForbidden || forwarded > 0 {
		t.Errorf("without the cookie: %d, forwarded %d times", w.Code, forwarded)
	}
	if w := get(other, answer.String(), started.Result().Cookies()...); w.Code != http.StatusOK || forwarded != 1 {
		t.Errorf("with the cookie: %d, forwarded %d times", w.Code, forwarded)
	}
	await.Value(t, pending.Done())
	if err := pending.Err(); err != nil {
		t.Error(err)
	}
}

// A token of the issuer of clients proves who opened a login.
func TestALoginAtTheIssuerProvesWhoOpenedALogin(t *testing.T) {
	for name, test := range map[string]struct {
		is      string // whose token the issuer gives
		browser func(opener *http.Client) *http.Client
		status  int
		passes  bool
	}{
		"the asker":                     {is: "idp|ann", status: http.StatusOK, passes: true},
		"another user":                  {is: "idp|bob", status: http.StatusForbidden},
		"nobody":                        {is: "", status: http.StatusForbidden},
		"the asker, in another browser": {is: "idp|ann", browser: func(*http.Client) *http.Client { return authserver.NewBrowser() }, status: http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, authserver.Settings{})
			var p *process
			var denied []identity.Event
			p = h.processOf(t, login.Settings{}, login.Options{
				Record: func(_ context.Context, e identity.Event) {
					if e.Outcome == identity.Denied {
						denied = append(denied, e)
					}
				},
				Prove: func(w http.ResponseWriter, r *http.Request, s login.Start) bool {
					if err := p.logins.Identify(w, r, s, login.Issuer{URL: h.as.Issuer, Resource: h.rs.URL + "/mcp", AllowPrivate: true}); err != nil {
						t.Error(err)
					}
					return false
				},
				Whose: func(_ *http.Request, token string) string {
					if h.rs.scopes(t, token) == nil {
						t.Error("the issuer does not know the token")
					}
					return test.is
				},
			})
			pending, err := p.server.Begin(t.Context(), "idp|ann")
			if err != nil {
				t.Fatal(err)
			}
			opener := authserver.NewBrowser()
			answer := h.opened(t, opener, pending) // of the login at the issuer
			browser := opener
			if test.browser != nil {
				browser = test.browser(opener)
			}
			if test.passes {
				h.as.BrowseIn(t, browser, answer.String(), "")
				await.Value(t, pending.Done())
			} else if status := fetched(t, browser, answer.String()); status != test.status {
				t.Errorf("it is answered %d", status)
			}
			if test.browser == nil && len(denied) > 0 == test.passes || len(denied) > 0 && denied[0].Principal != test.is {
				t.Errorf("taken down as refused: %+v", denied)
			}
			raw, err := h.vault.Get(t.Context(), "login/notes idp|ann")
			if err != nil || (raw != nil) != test.passes {
				t.Errorf("the login of the asker: %s, %v", raw, err)
			}
		})
	}
}

// A browser keeps one proof of each login, and none that is too long for a cookie; an address has only so many attempts.
func TestProofsOfBrowsersAreBounded(t *testing.T) {
	h := newHouse(t, authserver.Settings{})
	attempts := 3
	p := h.processOf(t, login.Settings{}, login.Options{Attempt: func(*http.Request) bool { attempts--; return attempts >= 0 }})
	at := login.Issuer{URL: h.as.Issuer, Resource: h.rs.URL + "/mcp", AllowPrivate: true}
	start := login.Start{ID: "ABC", Server: "notes", Principal: "idp|ann", Redirect: "https://tools.example.com/oauth/callback"}
	identify := func(asked string) (string, error) {
		w := httptest.NewRecorder()
		start.At = "https://idp.example/authorize?scope=" + asked
		err := p.logins.Identify(w, httptest.NewRequest(http.MethodPost, "/", nil), start, at)
		name, _, _ := strings.Cut(w.Header().Get("Set-Cookie"), "=")
		return name, err
	}
	var scopes strings.Builder
	for i := range 30 {
		fmt.Fprintf(&scopes, "https://www.googleapis.com/auth/scope.%d.readonly&", i)
	}
	first, err := identify(scopes.String())
	if second, again := identify("all"); err != nil || again != nil || first == "" || first != second {
		t.Errorf("the cookies are %q and %q (%v, %v)", first, second, err, again)
	}
	var noise strings.Builder
	for i := range uint64(500) {
		fmt.Fprintf(&noise, "%x", sha256.Sum256(binary.BigEndian.AppendUint64(nil, i)))
	}
	if _, err := identify(noise.String()); err == nil || !strings.Contains(err.Error(), "fewer scopes") {
		t.Errorf("too much for a cookie: %v", err)
	}
	if _, err := identify("all"); err == nil || !strings.Contains(err.Error(), "too many attempts") {
		t.Errorf("one attempt too many: %v", err)
	}
}

// An issuer that takes no registration is told by the owner which client this is.
func TestAnIssuerThatRegistersNobody(t *testing.T) {
	h := newHouse(t, authserver.Settings{})
	p := h.process(t, login.Settings{})
	w := httptest.NewRecorder()
	at := login.Issuer{URL: h.as.Issuer, Resource: h.rs.URL + "/mcp", ClientID: "browser", AllowPrivate: true}
	start := login.Start{ID: "ABC", Server: "notes", Principal: "idp|ann", Redirect: "https://tools.example.com/oauth/callback"}
	must.Do(t, p.logins.Identify(w, httptest.NewRequest(http.MethodPost, "/", nil), start, at))
	if to, _ := url.Parse(w.Header().Get("Location")); to.Query().Get("client_id") != "browser" || to.Query().Get("redirect_uri") != start.Redirect {
		t.Errorf("the browser is sent to %s", to)
	}
	if registered := grants(h.as.Seen(t), "registered", ""); len(registered) > 0 {
		t.Errorf("registered: %+v", registered)
	}
	h.as.Down(t)
	if err := p.logins.Identify(w, httptest.NewRequest(http.MethodPost, "/", nil), start, at); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an issuer that is away: %v", err)
	}
}

func TestLoginsUnderWayAreBounded(t *testing.T) {
	const here = "http://127.0.0.1:8080/oauth/callback"
	h := newHouse(t, authserver.Settings{})
	p := h.processOf(t, login.Settings{RedirectURL: here}, login.Options{Callback: func() string { return here }})
	for i := range 200 {
		for range 2 { // each user has one
			must.Get(p.server.Begin(t.Context(), fmt.Sprint("key|", i)))(t)
		}
	}
	if _, err := p.server.Begin(t.Context(), "key|one more"); !errors.As(err, new(*limit.Error)) {
		t.Errorf("one more login begins: %v", err)
	}
}
