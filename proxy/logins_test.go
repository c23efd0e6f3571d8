package proxy_test

import (
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"toolfinch/configs"
	"toolfinch/internal/authserver"
	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/proxy"
	"toolfinch/trust/inbound"
	"toolfinch/upstream"
	"toolfinch/upstream/login"
	"toolfinch/view"
)

// loggingIn is a proxy with a server that wants logins.
type loggingIn struct {
	as    *authserver.Server
	proxy *proxy.Proxy
	url   string
	keys  map[string]string
	log   await.Log
}

func logsIn(t *testing.T, change func(*configs.Config, *authserver.Server)) *loggingIn {
	t.Helper()
	opaque := true
	l := &loggingIn{as: authserver.New(t, authserver.Settings{Clients: []authserver.Client{authserver.Inspector}, Now: authserver.Now{Opaque: &opaque}})}
	config := configOf(t, nil, everything(view.Default, view.ExposureRetrieve))
	config.Servers = []upstream.Settings{{Name: "notes", URL: authserver.Protect(t, l.as, true).At(), Login: login.Settings{PerUser: true, AllowPrivate: true}}}
	l.keys = keysOf(t, config, "ann", "bob")
	config.UI, config.Transport = true, configs.TransportHTTP
	change(config, l.as)
	l.proxy, l.url = running(t, config, proxy.WithLogger(slog.New(slog.NewTextHandler(&l.log, nil))))
	goes(t, http.DefaultClient, l.url, nil) // once it answers, it knows where logins come back to
	return l
}

// asks is a login that a principal has asked for.
func (l *loggingIn) asks(t *testing.T, principal string) *login.Pending {
	t.Helper()
	pending := must.Get(l.proxy.Login("notes").Begin(t.Context(), principal))(t)
	return pending
}

// goes has a browser ask for something, without following redirects.
func goes(t *testing.T, browser *http.Client, at string, form url.Values, headers ...string) answered {
	t.Helper()
	method, body := http.MethodGet, io.Reader(nil)
	if form != nil {
		method, body = http.MethodPost, strings.NewReader(form.Encode())
	}
	request, err := http.NewRequestWithContext(t.Context(), method, at, body)
	if err != nil {
		t.Fatal(err)
	}
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if request.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			request.Host = headers[i+1]
		}
	}
	client := http.Client{Jar: browser.Jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answered{response.StatusCode, response.Header, string(got)}
}

// Ann's agent has asked for a login to a server, and somebody has its URL: ann, or bob, to whom ann has sent
// it because she wants his account, or who has found it because he wants her to use his.
func TestOnlyTheAskerGetsPastTheStartPage(t *testing.T) {
	t.Parallel()
	keys := func(config *configs.Config, _ *authserver.Server) {
		config.Auth, config.Hosts = inbound.Settings{Mode: inbound.Proof, Keys: true}, []string{"tools.example.com"}
	}
	header := func(config *configs.Config, _ *authserver.Server) { config.PrincipalHeader = "X-User" }
	for name, test := range map[string]struct {
		auth    func(*configs.Config, *authserver.Server)
		asker   string
		key     string // that is typed in: whose
		headers func(l *loggingIn) []string
		passes  bool
		says    string
	}{
		"keys: nothing is proved":           {auth: keys, asker: "key|ann", says: `name="key"`},
		"keys: the asker's key is typed in": {auth: keys, asker: "key|ann", key: "ann", passes: true},
		"keys: another's key is typed in":   {auth: keys, asker: "key|ann", key: "bob", says: "Another user asked"},
		"keys: what is no key is typed in":  {auth: keys, asker: "key|ann", key: "nobody", says: "this is no API key"},
		"keys: the asker's key in a header": {auth: keys, asker: "key|ann", headers: func(l *loggingIn) []string { return []string{"Authorization", "Bearer " + l.keys["ann"]} }, passes: true},
		"keys: another's key in a header":   {auth: keys, asker: "key|ann", headers: func(l *loggingIn) []string { return []string{"Authorization", "Bearer " + l.keys["bob"]} }, says: "Another user asked"},
		"keys: a header of a proxy":         {auth: keys, asker: "key|ann", headers: func(*loggingIn) []string { return []string{"X-User", "key|ann"} }, says: `name="key"`},
		"keys: in the form of a public name": {auth: keys, asker: "key|ann", key: "ann", headers: func(*loggingIn) []string {
			return []string{"Host", "tools.example.com", "Origin", "https://tools.example.com"}
		}, passes: true},
		"keys: in a form of another site":                    {auth: keys, asker: "key|ann", key: "ann", headers: func(*loggingIn) []string { return []string{"Origin", "https://evil.example"} }, says: "Origin is not allowed"},
		"keys: in a form of another program of this machine": {auth: keys, asker: "key|ann", key: "ann", headers: func(*loggingIn) []string { return []string{"Origin", "http://127.0.0.1:1"} }, says: "Another site sent"},
		"header: nothing is proved":                          {auth: header, asker: "lina", says: "cannot tell who you are"},
		"header: the proxy names the asker":                  {auth: header, asker: "lina", headers: func(*loggingIn) []string { return []string{"X-User", "lina"} }, passes: true},
		"header: the proxy names another":                    {auth: header, asker: "lina", headers: func(*loggingIn) []string { return []string{"X-User", "bob"} }, says: "Another user asked"},
		"header: a key is typed in":                          {auth: header, asker: "lina", key: "ann", says: "cannot tell who you are"},
		"an asker of an issuer that has gone":                {auth: keys, asker: "https://gone.example|ann", key: "ann", says: "cannot tell who you are"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := logsIn(t, test.auth)
			pending := l.asks(t, test.asker)
			var headers []string
			if test.headers != nil {
				headers = test.headers(l)
			}
			var form url.Values
			if test.key != "" {
				form = url.Values{"key": {l.keys[test.key]}}
			}
			browser := authserver.NewBrowser()
			got := goes(t, browser, pending.URL(), form, headers...)
			to := got.header.Get("Location")
			if !test.passes {
				if to != "" || got.header.Get("Set-Cookie") != "" || !strings.Contains(got.body, test.says) || strings.Contains(got.body, test.asker) {
					t.Errorf("the start page answers %d, %q: %s", got.status, to, got.body)
				}
				if recognised := strings.Contains(test.says, "Another user"); strings.Contains(l.log.String(), "another user opened it") != recognised {
					t.Errorf("the log has\n%s", l.log.String())
				}
				return
			}
			if got.status != http.StatusSeeOther || !strings.HasPrefix(to, l.as.Issuer) {
				t.Fatalf("the start page answers %d, %q: %s", got.status, to, got.body)
			}
			answer := l.as.Browse(t, to, l.url)
			if refused := goes(t, authserver.NewBrowser(), answer.String(), nil, headers...); refused.status != http.StatusForbidden {
				t.Errorf("another browser brings the answer: %d", refused.status)
			}
			if taken := goes(t, browser, answer.String(), nil, headers...); taken.status != http.StatusOK {
				t.Errorf("the asker's browser brings the answer: %d %s", taken.status, taken.body)
			}
			await.Value(t, pending.Done())
			if !l.proxy.Login("notes").Has(t.Context(), test.asker) {
				t.Error("the asker is not logged in")
			}
		})
	}
}

// Whose agent came with an access token logs in at its issuer.
func TestAUserOfAnAccessTokenProvesItAtTheIssuer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		user   string // who logs in at the issuer
		passes bool
	}{
		"the asker": {"ann", true}, "another user": {"bob", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := logsIn(t, func(config *configs.Config, as *authserver.Server) {
				config.Auth = inbound.Settings{Mode: inbound.Proof, Keys: true, Issuers: []inbound.Issuer{{
					URL: as.Issuer, AllowPrivate: true, Introspect: inbound.Introspection{ClientID: authserver.Inspector.ID, ClientSecret: authserver.Inspector.Secret, URL: as.Issuer + "/token/introspection"},
				}}}
			})
			asker := l.as.Issuer + "|ann"
			pending, browser := l.asks(t, asker), authserver.NewBrowser()
			page := goes(t, browser, pending.URL(), nil)
			if page.status != http.StatusOK || !strings.Contains(page.body, l.as.Issuer) || strings.Contains(page.body, `name="key"`) || page.header.Get("Location") != "" {
				t.Fatalf("the start page answers %d: %s", page.status, page.body)
			}
			l.as.Set(t, authserver.Now{User: test.user})
			to := goes(t, browser, pending.URL(), url.Values{"identify": {"yes"}}).header.Get("Location")
			if at, _ := url.Parse(to); at.Query().Get("resource") != l.url+"/mcp" {
				t.Fatalf("the browser is sent to %q", to)
			}
			back := goes(t, browser, l.as.Browse(t, to, l.url).String(), nil)
			if !test.passes {
				if back.status != http.StatusForbidden || back.header.Get("Location") != "" || strings.Contains(back.body, "|ann") {
					t.Errorf("the start page answers %d, %q: %s", back.status, back.header.Get("Location"), back.body)
				}
				return
			}
			if back.status != http.StatusSeeOther {
				t.Fatalf("the start page answers %d: %s", back.status, back.body)
			}
			if taken := goes(t, browser, l.as.Browse(t, back.header.Get("Location"), l.url).String(), nil); taken.status != http.StatusOK {
				t.Errorf("the answer: %d %s", taken.status, taken.body)
			}
			await.Value(t, pending.Done())
			if !l.proxy.Login("notes").Has(t.Context(), asker) {
				t.Error("the asker is not logged in")
			}
		})
	}
}

// A login that all share is the owner's: begun on this machine, or from the owner's page.
func TestTheSharedLoginIsTheOwners(t *testing.T) {
	t.Parallel()
	const public = "https://tools.example.com/oauth/callback"
	for name, test := range map[string]struct {
		redirect string
		headers  []string
		page     bool // the browser comes from the owner's page
		passes   bool
	}{
		"on this machine":                             {passes: true},
		"through a reverse proxy on this machine":     {headers: []string{"X-Forwarded-For", "192.0.2.1"}},
		"at a public URL":                             {redirect: public},
		"at a public URL, from the owner's page":      {redirect: public, page: true, passes: true},
		"at a public URL, with a key":                 {redirect: public, headers: []string{"Authorization", "ann"}},
		"at a public URL, where a proxy names a user": {redirect: public, headers: []string{"X-User", "owner"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := logsIn(t, func(config *configs.Config, _ *authserver.Server) {
				config.Servers[0].Login.PerUser, config.Servers[0].Login.RedirectURL = false, test.redirect
				config.Auth = inbound.Settings{Mode: inbound.Proof, Keys: true}
			})
			at := l.asks(t, "").URL()
			if test.page {
				_, at, _ = strings.Cut(owner(t, l.proxy, l.url).do("/ui/servers?name=notes", nil).body, `The login has begun. <a href="`)
				at, _, _ = strings.Cut(html.UnescapeString(at), `"`)
			}
			here, _, _ := strings.Cut(public, "/oauth")
			at = strings.Replace(at, here, l.url, 1)
			if len(test.headers) > 1 && test.headers[1] == "ann" {
				test.headers[1] = "Bearer " + l.keys["ann"]
			}
			got := goes(t, authserver.NewBrowser(), at, nil, test.headers...)
			if passes := strings.HasPrefix(got.header.Get("Location"), l.as.Issuer); passes != test.passes || !passes && got.status != http.StatusForbidden {
				t.Errorf("the start page answers %d, %q: %s", got.status, got.header.Get("Location"), got.body)
			}
		})
	}
}
