package discovery

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/must"
)

// What is asked for comes by https; by http from this machine alone, for whoever is on it.
func TestRequestsAreSecure(t *testing.T) {
	for text, want := range map[string][2]bool{ // for somebody elsewhere, for somebody on this machine
		"https://idp.example.com/x": {true, true}, "https://localhost/x": {true, true}, "http://idp.example.com/x": {false, false}, "http://10.0.0.1/": {false, false},
		"http://localhost:1/x": {false, true}, "http://127.0.0.1/": {false, true}, "http://[::1]/": {false, true}, "ftp://localhost/": {false, false}, "http://localhost.example.com/": {false, false},
	} {
		r := must.Get(http.NewRequest(http.MethodGet, text, nil))(t)
		if got := [2]bool{Rules{}.secure(r), Rules{Local: true}.secure(r)}; got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

func TestWhereAClientMayBeLed(t *testing.T) {
	there := httptest.NewServer(http.RedirectHandler("/again", http.StatusFound))
	defer there.Close()
	anything := func(*http.Request) bool { return true }
	for want, rules := range map[string]Rules{
		"is not https":         {},
		"private address":      {Plain: anything},
		"is not followed":      {Local: true},
		"more than 5 times":    {Plain: anything, Host: "127.0.0.1", Redirects: true},
		"more than 5 times: ?": {Plain: anything, AllowPrivate: true, Redirects: true},
	} {
		want, _, _ = strings.Cut(want, ":")
		rules.Timeout = time.Minute
		if err := Get(t.Context(), NewClient(rules), there.URL, &Metadata{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", rules, err, want)
		}
	}
	r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, there.URL, strings.NewReader("code=secret")))(t)
	if err := Read(NewClient(Rules{Local: true, Redirects: true, Timeout: time.Minute}), r, &Metadata{}); err == nil || !strings.Contains(err.Error(), "with secrets") {
		t.Errorf("a redirected POST: %v", err)
	}
}

func TestFind(t *testing.T) {
	const document = `{"issuer":"ISSUER","jwks_uri":"https://idp.example/keys"}`
	for name, test := range map[string]struct {
		path  string
		there map[string]string
		fault string
	}{
		"OAuth":                     {there: map[string]string{"/.well-known/oauth-authorization-server": document}},
		"OAuth, with a path":        {path: "/a", there: map[string]string{"/.well-known/oauth-authorization-server/a": document}},
		"OpenID":                    {there: map[string]string{"/.well-known/openid-configuration": document}},
		"OpenID, path in the end":   {path: "/a", there: map[string]string{"/.well-known/openid-configuration/a": document}},
		"OpenID, path in the front": {path: "/a", there: map[string]string{"/a/.well-known/openid-configuration": document}},
		"the first is another's": {there: map[string]string{
			"/.well-known/oauth-authorization-server": `{"issuer":"https://other.example"}`, "/.well-known/openid-configuration": document,
		}},
		"nothing":       {fault: ErrNone.Error()},
		"another's":     {there: map[string]string{"/.well-known/openid-configuration": `{"issuer":"https://other.example"}`}, fault: "another"},
		"no JSON":       {there: map[string]string{"/.well-known/openid-configuration": "<html>"}, fault: "no JSON"},
		"without end":   {there: map[string]string{"/.well-known/openid-configuration": `{"issuer":"` + strings.Repeat("a", 2*MaxDocument) + `"}`}, fault: "too large"},
		"with a fault":  {there: map[string]string{"/.well-known/openid-configuration": "500"}, fault: "it answers 500"},
		"of the origin": {path: "/a", there: map[string]string{"/.well-known/openid-configuration": document}, fault: ErrNone.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			issuer := ""
			there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch text, ok := test.there[r.URL.Path]; {
				case !ok:
					http.NotFound(w, r)
				case text == "500":
					w.WriteHeader(http.StatusInternalServerError)
				default:
					_, _ = w.Write([]byte(strings.ReplaceAll(text, "ISSUER", issuer)))
				}
			}))
			defer there.Close()
			issuer = there.URL + test.path
			m, err := Find(t.Context(), NewClient(Rules{Local: true, Timeout: time.Minute}), issuer, func(m *Metadata) error {
				if m.Issuer != issuer {
					return errors.New("another")
				}
				return nil
			})
			switch {
			case test.fault == "" && (err != nil || m.JWKSURI != "https://idp.example/keys"):
				t.Errorf("%+v, %v", m, err)
			case test.fault != "" && (err == nil || !strings.Contains(err.Error(), test.fault)):
				t.Errorf("%v, want %q", err, test.fault)
			}
		})
	}
}

// A URL may carry a secret: it is in no error.
func TestErrorsNameNoURL(t *testing.T) {
	gone := errors.New("connection refused")
	if err := withoutURL(&url.Error{Op: "Get", URL: "https://u:secret@h", Err: gone}); err != gone {
		t.Error(err)
	}
	if err := withoutURL(&url.Error{Op: "Get", URL: "https://u:secret@h", Err: context.DeadlineExceeded}); err.Error() != "no answer in time" {
		t.Error(err)
	}
}
