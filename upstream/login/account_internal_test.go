package login

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/internal/authserver"
	"toolfinch/internal/must"
)

// sent is where requests end, with the last of which it keeps the token.
type sent struct{ token string }

func (s *sent) RoundTrip(r *http.Request) (*http.Response, error) {
	s.token = r.Header.Get("Authorization")
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

// A server may take a token that is revoked, so it is not left to that.
func TestALoginThatAnotherProcessEndsIsUsedNoMore(t *testing.T) {
	const at = "https://notes.example.com/mcp"
	row := must.Get(json.Marshal(credential{URL: at, AccessToken: "one", Obtained: time.Now()}))(t)
	for name, test := range map[string]struct {
		told         bool
		later, after func(*Server)
		pause, most  time.Duration // after each of them
	}{
		"it is told":      {told: true, later: func(s *Server) { s.Changed("login/notes bob") }, pause: time.Hour, after: func(s *Server) { s.Changed("login/notes") }},
		"it is told less": {told: true, later: func(*Server) {}, after: func(s *Server) { s.Changed("") }},
		"nobody tells":    {later: func(*Server) {}, pause: lookAgain - time.Nanosecond, after: func(*Server) {}, most: time.Nanosecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				vault, to := authserver.NewVault(), &sent{}
				_ = vault.Put(t.Context(), "login/notes", row)
				logins := New(Options{Vault: vault, Told: func() bool { return test.told }})
				defer logins.Close()
				s := logins.Server("notes", at, Settings{})
				sends := func(want string) {
					t.Helper()
					request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, at, nil))(t)
					if _, err := s.Transport(to, "").RoundTrip(request); err != nil || to.token != want {
						t.Errorf("a request is sent with %q, %v, want %q", to.token, err, want)
					}
				}
				sends("Bearer one")
				_ = vault.Delete(t.Context(), "login/notes")
				test.later(s)
				time.Sleep(test.pause)
				sends("Bearer one")
				test.after(s)
				time.Sleep(test.most)
				sends("")
			})
		})
	}
}

// The lock of a login is a connection to the database, and may be lost: another process then renews the
// token meanwhile.
func TestARefusedRefreshTokenThatWasReplacedEndsNoLogin(t *testing.T) {
	vault, to := authserver.NewVault(), &sent{}
	row := credential{URL: "http://127.0.0.1/mcp", Grant: GrantCode, AccessToken: "one", RefreshToken: "first", Obtained: time.Now().Add(-time.Hour), Expires: time.Now()}
	store := func() {
		data, err := json.Marshal(row)
		if err != nil {
			t.Error(err)
		}
		_ = vault.Put(t.Context(), "login/notes", data)
	}
	as := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.PostFormValue("refresh_token"); got != "first" {
			t.Errorf("renewed with %q", got)
		}
		row.AccessToken, row.RefreshToken, row.Expires = "two", "second", time.Now().Add(time.Hour)
		store()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error":"invalid_grant"}`))
	}))
	defer as.Close()
	row.TokenURL = as.URL
	store()
	logins := New(Options{Vault: vault})
	defer logins.Close()
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, row.URL, nil))(t)
	s := logins.Server("notes", row.URL, Settings{})
	if _, err := s.Transport(to, "").RoundTrip(request); err != nil || to.token != "Bearer two" {
		t.Errorf("a request is sent with %q, %v", to.token, err)
	}
	if now, err := s.account("").load(t.Context(), true); err != nil || now.Dead != "" || now.RefreshToken != "second" {
		t.Errorf("the login is %+v, %v", now, err)
	}
}
