package page

import (
	"net/http"
	"strings"

	"toolfinch/internal/identity"
	"toolfinch/trust/inbound"
)

// door is the data of the login page.
type door struct {
	Problem string
	Keys    bool   // API keys are accepted
	In      bool   // the login has succeeded; the browser goes on by itself
	Again   string // link to the requested page, after a link from another site: with these, browsers send no cookie
}

var doorScreen = &screen{Path: "login", title: "Log in", file: "login.html"}

// askIn answers requests without a session: scripts with a status, others with the login page.
func (s *Server) askIn(q *request, status int, why string) {
	if q.Header.Get(swapHeader) != "" || q.Header.Get("Sec-Fetch-Dest") == "empty" {
		http.Error(q.w, "log in first", http.StatusForbidden)
		return
	}
	d := door{Problem: why, Keys: s.Entrance.TakesKeys()}
	if q.Method == http.MethodGet && q.Header.Get("Sec-Fetch-Site") == "cross-site" && !strings.HasPrefix(q.URL.Path, Path+"login") {
		d.Again = "./" + strings.TrimPrefix(q.URL.Path, Path) + query(q)
	}
	s.render(q, doorScreen, status, d)
}

// login handles the login page: a login needs a link or an API key.
func (s *Server) login(q *request) {
	switch {
	case q.Method == http.MethodPost:
		if !s.Entrance.TakesKeys() {
			s.askIn(q, http.StatusForbidden, "")
			return
		}
		bearer, err := s.Entrance.ByForm(q.Request, q.PostFormValue("key"))
		if err != nil {
			s.askIn(q, http.StatusForbidden, err.Error())
			return
		}
		s.letIn(q, bearer)
		redirect(q.w, "")
	case q.Method != http.MethodGet: // also HEAD, which must not use up a link
		http.Error(q.w, "GET or POST", http.StatusMethodNotAllowed)
	case q.URL.Query().Has("link"):
		// A program of another user must not use up the link.
		if link := q.URL.Query().Get("link"); s.sessions.isHere(link) && !ofThisUser(q.Request) || !s.sessions.take(link) {
			if q.owner() { // a logged-in browser opens the link again
				redirect(q.w, "")
				return
			}
			if s.refused.admits() {
				s.Log.Warn("page: a login link was refused", "address", sourceOf(q).Address)
			}
			s.Record.Event(q.Context(), identity.Event{Kind: identity.EventRefused, Outcome: identity.Denied, Reason: "a link to the page was used before, is another user's, or is none"})
			s.askIn(q, http.StatusForbidden, "this link was used before, is too old, or was for another user's browser: get another one with toolfinch ui")
			return
		}
		s.letIn(q, nil)
		// No redirect: a browser that comes from another site would not send the cookie.
		s.render(q, doorScreen, http.StatusOK, door{In: true})
	case q.session != nil:
		redirect(q.w, "")
	default:
		s.askIn(q, http.StatusOK, "")
	}
}

// letIn begins a session for the bearer of a key; a nil bearer is the owner.
func (s *Server) letIn(q *request, bearer *inbound.Bearer) {
	principal := ""
	if bearer != nil {
		p, _ := bearer.Principal(q.Context())
		principal = identity.NameOf(identity.WithPrincipal(q.Context(), p))
	}
	s.keep(q, s.sessions.open(bearer, principal))
	s.Log.Info("page: logged in", "principal", principal, "owner", bearer == nil, "address", sourceOf(q).Address)
	s.Record.Event(q.Context(), identity.Event{Kind: identity.EventPage, Principal: principal})
}

func sourceOf(q *request) identity.Source {
	from, _ := identity.SourceOf(q.Context())
	return from
}

// keep gives the browser the cookie of its session. The cookie has no path: browsers then send it only to the page, even
// if a reverse proxy serves the page under another path.
func (s *Server) keep(q *request, secret string) {
	http.SetCookie(q.w, &http.Cookie{Name: s.sessions.cookie, Value: secret, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: sourceOf(q).Secure})
}

func (s *Server) logout(q *request) {
	if q.Method != http.MethodPost {
		redirect(q.w, "login")
		return
	}
	if q.session != nil {
		s.sessions.end(q.session)
	}
	http.SetCookie(q.w, &http.Cookie{Name: s.sessions.cookie, MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: sourceOf(q).Secure})
	redirect(q.w, "login")
}
