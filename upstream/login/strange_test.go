package login_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/internal/authserver"
	"toolfinch/internal/await"
	"toolfinch/internal/identity"
	"toolfinch/internal/pipes"
	"toolfinch/upstream/login"
)

// strange is an authorization server, and a server that requires a token of it, whose answers a test can replace.
type strange struct {
	*httptest.Server
	vault  *authserver.Vault
	log    await.Log
	events []string

	mu         sync.Mutex // guards the fields below
	instead    map[string]func(w http.ResponseWriter, r *http.Request)
	clients    map[string]bool // known ones
	registered int
	seen       []string // method and path
	refuse     string   // token that is refused
	tokens     int
}

const secretWord = "hunter2canary"

// newStrange has answers by path instead of the usual ones.
func newStrange(t *testing.T, instead map[string]string) *strange {
	s := &strange{vault: authserver.NewVault(), instead: map[string]func(http.ResponseWriter, *http.Request){}, clients: map[string]bool{}}
	s.Server = pipes.NewServer(t, http.HandlerFunc(s.serve))
	for path, answer := range instead {
		s.set(path, answer)
	}
	return s
}

// set replaces the answer at a path: "200 {...}"; "" restores the usual one.
func (s *strange) set(path, answer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if answer == "" {
		delete(s.instead, path)
		return
	}
	s.instead[path] = func(w http.ResponseWriter, _ *http.Request) {
		var status int
		kind := "application/json"
		text := answer
		if strings.HasPrefix(text, "text/") || strings.HasPrefix(text, "application/") {
			kind, text, _ = strings.Cut(text, " ")
		}
		_, _ = fmt.Sscan(text, &status)
		_, body, _ := strings.Cut(text, " ")
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, strings.ReplaceAll(body, "SELF", s.URL))
	}
}

// forget makes the authorization server forget its clients.
func (s *strange) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.clients)
}

func (s *strange) serve(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, r.Method+" "+r.URL.Path)
	say := func(status int, body string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, strings.ReplaceAll(body, "SELF", s.URL))
	}
	if instead := s.instead[r.URL.Path]; instead != nil {
		instead(w, r)
		return
	}
	client := r.Form.Get("client_id")
	if id, _, ok := r.BasicAuth(); ok {
		client = id
	}
	switch r.URL.Path {
	case "/mcp":
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if token == "" || token == s.refuse {
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+s.URL+`/.well-known/oauth-protected-resource/mcp"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.Copy(w, r.Body)
	case "/.well-known/oauth-protected-resource/mcp":
		say(200, `{"resource":"SELF/mcp","authorization_servers":["SELF"]}`)
	case "/.well-known/oauth-authorization-server":
		say(200, usualMetadata)
	case "/register":
		s.registered++
		id := fmt.Sprintf("client-%d", s.registered)
		s.clients[id] = true
		say(201, `{"client_id":"`+id+`"}`)
	case "/authorize":
		if !s.clients[client] {
			say(422, `{"message":"unknown client"}`)
			return
		}
		http.Redirect(w, r, r.Form.Get("redirect_uri")+"?"+url.Values{"code": {"good"}, "state": {r.Form.Get("state")}}.Encode(), http.StatusSeeOther)
	case "/device":
		if !s.clients[client] {
			say(401, `{"error":"invalid_client"}`)
			return
		}
		say(200, `{"user_code":"ABCD","device_code":"good","verification_uri":"SELF/agree","interval":1}`)
	case "/revoke":
		w.WriteHeader(http.StatusOK)
	case "/token":
		code := r.Form.Get("code") + r.Form.Get("device_code") + r.Form.Get("refresh_token")
		switch {
		case !s.clients[client]:
			say(401, `{"error":"invalid_client"}`)
		case code != "good" && code != "renew":
			say(400, `{"error":"invalid_grant"}`)
		default:
			s.tokens++
			say(200, fmt.Sprintf(`{"access_token":"token-%d","token_type":"Bearer","expires_in":3600,"refresh_token":"renew"}`, s.tokens))
		}
	default:
		http.NotFound(w, r)
	}
}

const usualMetadata = `{"issuer":"SELF","authorization_endpoint":"SELF/authorize","token_endpoint":"SELF/token","registration_endpoint":"SELF/register",
	"device_authorization_endpoint":"SELF/device","revocation_endpoint":"SELF/revoke","code_challenge_methods_supported":["S256"]}`

func (s *strange) process(t *testing.T, settings login.Settings) *process {
	t.Helper()
	settings.AllowPrivate = true
	logins := login.New(login.Options{Vault: s.vault, Log: slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Record: func(_ context.Context, e identity.Event) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.events = append(s.events, fmt.Sprintf("%+v", e))
	}})
	t.Cleanup(logins.Close)
	server := logins.Server("notes", s.URL+"/mcp", settings)
	return &process{logins, server, &http.Client{Transport: server.Transport(http.DefaultTransport, "")}}
}

// call returns the status, or the error, of a request.
func (s *strange) call(t *testing.T, p *process) (int, error) {
	t.Helper()
	response, err := p.client.Post(s.URL+"/mcp", "application/json", strings.NewReader("hello"))
	if err != nil {
		return 0, err
	}
	response.Body.Close()
	return response.StatusCode, nil
}

// login logs in as a person does, in a browser.
func (s *strange) login(t *testing.T, p *process) error {
	t.Helper()
	_, _ = s.call(t, p)
	pending, err := p.server.Begin(t.Context(), "")
	if err != nil {
		return err
	}
	if pending.UserCode() == "" && fetched(t, authserver.NewBrowser(), pending.URL()) == http.StatusUnprocessableEntity {
		p.logins.Close() // the person gives up
	}
	await.Value(t, pending.Done())
	return pending.Err()
}

// An authorization server that says, at whatever step, that it does not know the client, gets another registration: by the
// same login if it says so in time, and by the next one at the latest.
func TestAForgottenClientIsRegisteredAnew(t *testing.T) {
	const anything = "400 {\"error\":\"invalid_grant\"}"
	for name, test := range map[string]struct {
		settings login.Settings
		before   func(t *testing.T, s *strange, p *process)
		fails    int // logins that may fail
	}{
		"it tells when it is asked":       {before: func(_ *testing.T, s *strange, _ *process) { s.forget() }},
		"a renewal: invalid_client":       {before: renewal(`401 {"error":"invalid_client"}`)},
		"a renewal: unauthorized_client":  {before: renewal(`400 {"error":"unauthorized_client"}`)},
		"a renewal: the grant is lost":    {before: renewal(anything)},
		"a renewal: 401 without a word":   {before: renewal(`text/html 401 <h1>who?</h1>`)},
		"a renewal: a nested error":       {before: renewal(`400 {"error":{"code":"client_not_found"}}`)},
		"a renewal: 200 with an error":    {before: renewal(`200 {"ok":false,"error":"invalid_refresh_token"}`)},
		"a renewal: a code of its own":    {before: renewal(`400 {"error":"client_not_found"}`)},
		"a renewal: 403 with an error":    {before: renewal(`403 {"error":"unauthorized_client"}`)},
		"only the page tells the browser": {fails: 1, before: func(_ *testing.T, s *strange, _ *process) { s.forget(); s.set("/token", anything) }},
		"only the page, after a logout": {before: func(t *testing.T, s *strange, p *process) {
			s.forget()
			s.set("/token", anything)
			if was, _, err := p.server.Logout(t.Context(), ""); !was || err != nil {
				t.Errorf("the logout: %v, %v", was, err)
			}
		}},
		"only the page, after a logout without a login": {before: func(t *testing.T, s *strange, p *process) {
			_ = s.vault.Delete(t.Context(), "login/notes")
			s.forget()
			s.set("/token", anything)
			if was, _, err := p.server.Logout(t.Context(), ""); was || err != nil {
				t.Errorf("the logout: %v, %v", was, err)
			}
		}},
		"a logout that it refuses": {before: func(t *testing.T, s *strange, p *process) {
			s.forget()
			s.set("/revoke", `401 {"error":"invalid_client"}`)
			if was, revoked, err := p.server.Logout(t.Context(), ""); !was || revoked || err != nil {
				t.Errorf("the logout: %v, %v, %v", was, revoked, err)
			}
		}},
		"the code is refused": {fails: 1, before: func(_ *testing.T, s *strange, _ *process) {
			s.mu.Lock()
			defer s.mu.Unlock()
			known := 0
			s.instead["/token"] = func(w http.ResponseWriter, r *http.Request) {
				if known++; known == 1 { // the question about the client
					http.Error(w, "busy", http.StatusServiceUnavailable)
					return
				}
				delete(s.instead, "/token")
				clear(s.clients)
				w.WriteHeader(http.StatusUnauthorized)
			}
		}},
		"the answer of the page": {fails: 1, before: func(_ *testing.T, s *strange, _ *process) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.instead["/authorize"] = func(w http.ResponseWriter, r *http.Request) {
				delete(s.instead, "/authorize")
				clear(s.clients)
				http.Redirect(w, r, r.Form.Get("redirect_uri")+"?"+url.Values{"error": {"unauthorized_client"}, "state": {r.Form.Get("state")}}.Encode(), http.StatusSeeOther)
			}
		}},
		"a device": {settings: login.Settings{Grant: login.GrantDevice}, before: func(_ *testing.T, s *strange, _ *process) { s.forget() }},
		"a device that is asked about too early": {settings: login.Settings{Grant: login.GrantDevice}, fails: 1, before: func(_ *testing.T, s *strange, _ *process) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.instead["/token"] = func(w http.ResponseWriter, r *http.Request) {
				if r.Form.Get("device_code") != "good" {
					http.Error(w, "busy", http.StatusServiceUnavailable)
					return
				}
				delete(s.instead, "/token")
				clear(s.clients)
				w.WriteHeader(http.StatusUnauthorized)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(t *testing.T) {
				s := newStrange(t, nil)
				p := s.process(t, test.settings)
				if err := s.login(t, p); err != nil {
					t.Fatal(err)
				}
				p.logins.Close() // so that its port is free
				test.before(t, s, s.process(t, test.settings))
				for fails := 0; ; fails++ {
					again := s.process(t, test.settings)
					if name == "only the page tells the browser" && fails == 1 {
						s.set("/token", "")
					}
					if strings.Contains(name, "logout") {
						s.set("/token", "")
					}
					err := s.login(t, again)
					again.logins.Close()
					if err == nil {
						break
					}
					if fails == test.fails {
						t.Fatalf("the login: %v\n%s", err, s.log.String())
					}
				}
				if s.registered != 2 {
					t.Errorf("%d registrations", s.registered)
				}
				if status, err := s.call(t, s.process(t, test.settings)); status != http.StatusOK {
					t.Errorf("a call: %d, %v", status, err)
				}
			}
			if test.settings.Grant == login.GrantDevice { // it waits between two questions
				synctest.Test(t, run)
				return
			}
			run(t)
		})
	}
}

// renewal makes the authorization server forget its clients, and refuse a renewal with an answer.
func renewal(answer string) func(*testing.T, *strange, *process) {
	return func(t *testing.T, s *strange, p *process) {
		s.set("/token", answer)
		s.mu.Lock()
		s.refuse = fmt.Sprintf("token-%d", s.tokens)
		s.mu.Unlock()
		_, err := s.call(t, p)
		needed, ok := errors.AsType[*login.Needed](err)
		if !ok || needed.Why == "" {
			t.Errorf("the call: %v, want that it needs a login", err)
		}
		s.forget()
		s.set("/token", "")
	}
}

// Of an answer only what matters is read, in every form in which it comes.
func TestAnswersAreReadLeniently(t *testing.T) {
	for name, test := range map[string]struct {
		instead map[string]string // answers
		expires time.Duration     // default: unknown
		scopes  string            // of the login
	}{
		"registered: times as text":            {instead: map[string]string{"/register": `201 {"client_id":"client-1","client_id_issued_at":"2026-11-29T10:00:00Z","client_secret_expires_at":"0"}`}},
		"registered: times as fractions":       {instead: map[string]string{"/register": `201 {"client_id":"client-1","client_id_issued_at":1764400000.5,"client_secret_expires_at":0.0}`}},
		"registered: nothing where a time is":  {instead: map[string]string{"/register": `200 {"client_id":"client-1","client_secret_expires_at":null,"client_secret":null}`}},
		"registered: scope as a list":          {instead: map[string]string{"/register": `201 {"client_id":"client-1","scope":["a","b"],"redirect_uris":"x","grant_types":"y","contacts":{}}`}},
		"registered: methods as a list":        {instead: map[string]string{"/register": `201 {"client_id":"client-1","token_endpoint_auth_method":["none"]}`}},
		"registered: as text/plain":            {instead: map[string]string{"/register": `text/plain 201 {"client_id":"client-1"}`}},
		"registered: as text/html":             {instead: map[string]string{"/register": `text/html 202 {"client_id":"client-1"}`}},
		"registered: a byte order mark":        {instead: map[string]string{"/register": "201 \ufeff{\"client_id\":\"client-1\"}\n"}},
		"registered: a secret and no method":   {instead: map[string]string{"/register": `201 {"client_id":"client-1","client_secret":"s","token_endpoint_auth_method":"none"}`}},
		"registered: a method of no one":       {instead: map[string]string{"/register": `201 {"client_id":"client-1","client_secret":"s","token_endpoint_auth_method":"private_key_jwt"}`}},
		"registered: an ID that is a number":   {instead: map[string]string{"/register": `201 {"client_id":4711}`}},
		"token: expiry as text":                {instead: map[string]string{"/token": `200 {"access_token":"a","token_type":"bearer","expires_in":"3600"}`}, expires: time.Hour},
		"token: expiry as a fraction":          {instead: map[string]string{"/token": `200 {"access_token":"a","token_type":"Bearer","expires_in":3600.0}`}, expires: time.Hour},
		"token: expiry as a text of fractions": {instead: map[string]string{"/token": `200 {"access_token":"a","expires_in":" 3600.00 "}`}, expires: time.Hour},
		"token: expiry with an exponent":       {instead: map[string]string{"/token": `200 {"access_token":"a","expires_in":3.6e3}`}, expires: time.Hour},
		"token: no expiry":                     {instead: map[string]string{"/token": `200 {"access_token":"a","expires_in":null,"token_type":null}`}},
		"token: an expiry of words":            {instead: map[string]string{"/token": `200 {"access_token":"a","expires_in":"never"}`}},
		"token: an expiry before now":          {instead: map[string]string{"/token": `200 {"access_token":"a","expires_in":-1}`}},
		"token: no end":                        {instead: map[string]string{"/token": `200 {"access_token":"a","expires_in":1e300}`}, expires: 9e9 * time.Second},
		"token: scope as a list":               {instead: map[string]string{"/token": `200 {"access_token":"a","scope":["x","y"]}`}, scopes: "x y"},
		"token: scope with commas":             {instead: map[string]string{"/token": `200 {"access_token":"a","scope":"x,y"}`}, scopes: "x y"},
		"token: scope as a mapping":            {instead: map[string]string{"/token": `200 {"access_token":"a","scope":{"x":true}}`}},
		"token: text/plain":                    {instead: map[string]string{"/token": `text/plain 200 {"access_token":"a","scope":"x"}`}, scopes: "x"},
		"token: text/html":                     {instead: map[string]string{"/token": `text/html 201 {"access_token":"a","scope":"x"}`}, scopes: "x"},
		"token: a form":                        {instead: map[string]string{"/token": `application/x-www-form-urlencoded 200 access_token=a&scope=x&expires_in=3600&token_type=bearer`}, expires: time.Hour, scopes: "x"},
		"token: a form in text/plain":          {instead: map[string]string{"/token": `text/plain 200 access_token=a&scope=x`}, scopes: "x"},
		"token: more than there is to know":    {instead: map[string]string{"/token": `200 {"access_token":"a","id_token":{},"refresh_token":null,"user":[1],"error":null,"error_description":""}`}},
		"server: lists as text":                {instead: map[string]string{"/.well-known/oauth-authorization-server": strings.Replace("200 "+usualMetadata, `["S256"]`, `"plain S256"`, 1)}},
		"server: nothing, and other types":     {instead: map[string]string{"/.well-known/oauth-authorization-server": strings.Replace("200 "+usualMetadata, `{`, `{"scopes_supported":null,"token_endpoint_auth_methods_supported":"none","revocation_endpoint":false,"grant_types_supported":7,`, 1)}},
		"server: text/plain and a mark":        {instead: map[string]string{"/.well-known/oauth-authorization-server": "text/plain 200 \ufeff" + usualMetadata}},
		"resource: one server as text":         {instead: map[string]string{"/.well-known/oauth-protected-resource/mcp": `200 {"resource":"SELF/mcp","authorization_servers":"SELF","scopes_supported":"x y","bearer_methods_supported":"header"}`}, scopes: "x y"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStrange(t, test.instead)
			s.clients["client-1"] = true
			if test.instead["/register"] != "" && strings.Contains(test.instead["/register"], "4711") {
				s.clients["4711"] = true
			}
			p := s.process(t, login.Settings{})
			if err := s.login(t, p); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(name, "registered") { // the usual tokens
				test.expires = time.Hour
			} else if strings.HasPrefix(name, "server") || strings.HasPrefix(name, "resource") {
				test.expires = time.Hour
			}
			all, err := p.server.Statuses(t.Context())
			if err != nil || len(all) != 1 {
				t.Fatalf("the logins: %v, %v", all, err)
			}
			var expires time.Duration
			if !all[0].Expires.IsZero() {
				expires = all[0].Expires.Sub(all[0].Obtained)
			}
			if expires != test.expires || strings.Join(all[0].Scopes, " ") != test.scopes {
				t.Errorf("the login expires after %s and has the scopes %q", expires, all[0].Scopes)
			}
			if status, err := s.call(t, p); status != http.StatusOK {
				t.Errorf("a call: %d, %v", status, err)
			}
		})
	}
}

// A reason says what is wrong and which key helps; it repeats nothing of the answer.
func TestReasonsNameTheKeyThatHelps(t *testing.T) {
	const described = `,"error_description":"` + secretWord + `"}`
	none := strings.Replace(usualMetadata, `"registration_endpoint":"SELF/register",`, "", 1)
	for name, test := range map[string]struct {
		settings login.Settings
		instead  map[string]string
		want     []string
	}{
		"registration: no endpoint":            {instead: map[string]string{"/.well-known/oauth-authorization-server": "200 " + none}, want: []string{"takes no registration", "oauth.client_id and oauth.redirect_url", "http://127.0.0.1:8976/oauth/callback"}},
		"registration: no endpoint, a place":   {settings: login.Settings{RedirectURL: "http://127.0.0.1:9999/x"}, instead: map[string]string{"/.well-known/oauth-authorization-server": "200 " + none}, want: []string{"http://127.0.0.1:9999/x", "set oauth.client_id"}},
		"registration: 401":                    {instead: map[string]string{"/register": `401 {"error":"invalid_token"` + described}, want: []string{"invalid_token", "oauth.client_id"}},
		"registration: 403 of a gateway":       {instead: map[string]string{"/register": "text/html 403 <h1>" + secretWord}, want: []string{"403 Forbidden", "oauth.client_id"}},
		"registration: 404":                    {instead: map[string]string{"/register": "404 " + secretWord}, want: []string{"404 Not Found", "oauth.client_id"}},
		"registration: 422":                    {instead: map[string]string{"/register": `422 {"detail":[{"msg":"` + secretWord + `"}]}`}, want: []string{"422", "oauth.client_id"}},
		"registration: 400":                    {instead: map[string]string{"/register": `400 {"error":"invalid_redirect_uri"` + described}, want: []string{"invalid_redirect_uri", "oauth.redirect_url"}},
		"registration: a sentence for a code":  {instead: map[string]string{"/register": `400 {"error":"no ` + secretWord + `"}`}, want: []string{"400 Bad Request", "oauth.client_id"}},
		"registration: cut off":                {instead: map[string]string{"/register": `201 {"client_id":"c","client_secret":"` + secretWord}, want: []string{"no JSON of the expected form"}},
		"registration: a page":                 {instead: map[string]string{"/register": "text/html 200 <p>" + secretWord}, want: []string{"no JSON of the expected form"}},
		"registration: a list":                 {instead: map[string]string{"/register": `201 ["` + secretWord + `"]`}, want: []string{"no JSON of the expected form"}},
		"registration: no ID":                  {instead: map[string]string{"/register": `201 {"client_secret":"` + secretWord + `"}`}, want: []string{"no client_id", "oauth.client_id"}},
		"registration: for the device":         {settings: login.Settings{Grant: login.GrantDevice}, instead: map[string]string{"/register": "403 " + secretWord}, want: []string{"device grant", "oauth.client_id"}},
		"token: no JSON":                       {instead: map[string]string{"/token": "200 " + secretWord}, want: []string{"no JSON of the expected form"}},
		"token: cut off":                       {instead: map[string]string{"/token": `200 {"access_token":"` + secretWord}, want: []string{"no JSON of the expected form"}},
		"token: none":                          {instead: map[string]string{"/token": `200 {"refresh_token":"` + secretWord + `"}`}, want: []string{"without a token"}},
		"token: of another type":               {instead: map[string]string{"/token": `200 {"access_token":"` + secretWord + `","token_type":"DPoP"}`}, want: []string{"another type than Bearer"}},
		"token: a client that it refuses":      {settings: login.Settings{ClientID: "client-1"}, instead: map[string]string{"/token": `401 {"error":"invalid_client"` + described}, want: []string{"invalid_client", "oauth.client_id and oauth.client_secret"}},
		"token: a scope that it refuses":       {instead: map[string]string{"/token": `400 {"error":"invalid_scope"` + described}, want: []string{"invalid_scope", "oauth.scopes"}},
		"token: a resource that it refuses":    {instead: map[string]string{"/token": `400 {"error":"invalid_target"` + described}, want: []string{"invalid_target", "oauth.resource: none"}},
		"token: a grant that it has not":       {instead: map[string]string{"/token": `400 {"error":"unsupported_grant_type"` + described}, want: []string{"unsupported_grant_type", "oauth.grant"}},
		"token: a refusal of a gateway":        {instead: map[string]string{"/token": "text/plain 403 " + secretWord}, want: []string{"403 Forbidden"}},
		"device: no JSON":                      {settings: login.Settings{Grant: login.GrantDevice}, instead: map[string]string{"/device": "200 " + secretWord}, want: []string{"no JSON of the expected form"}},
		"device: no code":                      {settings: login.Settings{Grant: login.GrantDevice}, instead: map[string]string{"/device": `200 {"x":"` + secretWord + `"}`}, want: []string{"without a code"}},
		"discovery: PKCE is not advertised":    {instead: map[string]string{"/.well-known/oauth-authorization-server": "200 " + withoutPKCE}, want: []string{"PKCE", "oauth.assume_pkce: true"}},
		"discovery: PKCE without S256":         {settings: login.Settings{AssumePKCE: true}, instead: map[string]string{"/.well-known/oauth-authorization-server": "200 " + strings.Replace(usualMetadata, "S256", "plain", 1)}, want: []string{"does not support PKCE with S256"}},
		"discovery: another issuer":            {settings: login.Settings{Issuer: "https://other.example"}, want: []string{"oauth.issuer"}},
		"no metadata: nothing there":           {instead: unnamed("404 no"), want: []string{"names no authorization server", "put a token under headers"}},
		"no metadata: all is refused":          {instead: unnamed("401 no"), want: []string{"names no authorization server", "put a token under headers"}},
		"no metadata: a page for everything":   {instead: unnamed("text/html 200 <p>" + secretWord), want: []string{"names no authorization server", "put a token under headers"}},
		"no metadata: an origin without /auth": {instead: map[string]string{"/.well-known/oauth-protected-resource/mcp": `200 {"resource":"SELF/mcp"}`, "/.well-known/oauth-authorization-server": "404 no", "/authorize": "404 no"}, want: []string{"put a token under headers"}},
	} {
		t.Run(name, func(t *testing.T) {
			if test.instead["/.well-known/oauth-authorization-server"] == "404 no" {
				test.instead["/.well-known/openid-configuration"] = "404 no"
			}
			s := newStrange(t, test.instead)
			s.clients["client-1"] = true
			p := s.process(t, test.settings)
			err := s.login(t, p)
			if err == nil {
				t.Fatal("the login went well")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the reason lacks %q: %v", want, err)
				}
			}
			_, needed := s.call(t, p)
			for what, text := range map[string]string{"reason": err.Error(), "log": s.log.String(), "audit log": strings.Join(s.events, "\n"), "call": fmt.Sprint(needed)} {
				if strings.Contains(text, secretWord) {
					t.Errorf("the %s repeats the answer: %s", what, text)
				}
			}
		})
	}
}

var withoutPKCE = strings.Replace(usualMetadata, `,"code_challenge_methods_supported":["S256"]`, "", 1)

// unnamed is a server that refuses, and has no metadata: it has answer at every path where some could be.
func unnamed(answer string) map[string]string {
	all := map[string]string{"/mcp": "401 no"}
	for _, path := range []string{"/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource", "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration", "/authorize", "/register"} {
		all[path] = answer
	}
	return all
}

// The login goes on at the next document, endpoint or method if the first cannot be used.
func TestALoginGoesOnWhereTheFirstDocumentIsWrong(t *testing.T) {
	const ofResource, ofOrigin, ofServer = "/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource", "/.well-known/oauth-authorization-server"
	const right = `200 {"resource":"SELF/mcp","authorization_servers":["SELF"]}`
	for name, test := range map[string]struct {
		settings login.Settings
		instead  map[string]string
	}{
		"the resource names no server":             {instead: map[string]string{ofResource: `200 {"resource":"SELF/mcp"}`, ofOrigin: right}},
		"the resource names an empty list":         {instead: map[string]string{ofResource: `200 {"resource":"SELF/mcp","authorization_servers":[]}`, ofOrigin: right}},
		"no document names a server":               {instead: map[string]string{ofResource: `200 {"resource":"SELF/mcp"}`}},
		"the resource is another":                  {instead: map[string]string{ofResource: `200 {"resource":"https://other.example","authorization_servers":["SELF"]}`, ofOrigin: right}},
		"the resource is a page":                   {instead: map[string]string{ofResource: "text/html 200 <p>", ofOrigin: right}},
		"the resource has a fault":                 {instead: map[string]string{ofResource: "500 no", ofOrigin: right}},
		"the resource is a list":                   {instead: map[string]string{ofResource: "200 []", ofOrigin: right}},
		"the first of two servers is wrong":        {instead: map[string]string{ofResource: `200 {"resource":"SELF/mcp","authorization_servers":["SELF/gone","SELF"]}`}},
		"the first of two servers is no URL":       {instead: map[string]string{ofResource: `200 {"resource":"SELF/mcp","authorization_servers":["::","SELF"]}`}},
		"the server's document is a page":          {instead: map[string]string{ofServer: "text/html 200 <p>", "/.well-known/openid-configuration": "200 " + usualMetadata}},
		"the server's document is another's":       {instead: map[string]string{ofServer: `200 {"issuer":"https://other.example"}`, "/.well-known/openid-configuration": "200 " + usualMetadata}},
		"the server's document has a fault":        {instead: map[string]string{ofServer: "500 no", "/.well-known/openid-configuration": "200 " + usualMetadata}},
		"the first lacks PKCE, the second has it":  {instead: map[string]string{ofServer: "200 " + withoutPKCE, "/.well-known/openid-configuration": "200 " + usualMetadata}},
		"PKCE is assumed":                          {settings: login.Settings{AssumePKCE: true}, instead: map[string]string{ofServer: "200 " + withoutPKCE}},
		"a device needs no PKCE":                   {settings: login.Settings{Grant: login.GrantDevice}, instead: map[string]string{ofServer: "200 " + withoutPKCE}},
		"endpoints at fixed paths, of a 2025 text": {instead: map[string]string{ofResource: "404 no", ofServer: "404 no"}},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(t *testing.T) {
				s := newStrange(t, test.instead)
				p := s.process(t, test.settings)
				if err := s.login(t, p); err != nil {
					t.Fatal(err)
				}
				if status, err := s.call(t, p); status != http.StatusOK {
					t.Errorf("a call: %d, %v", status, err)
				}
			}
			if test.settings.Grant == login.GrantDevice {
				synctest.Test(t, run)
				return
			}
			run(t)
		})
	}
}

// A server that only wants a token is told from one that wants a login, before anybody tries one.
func TestAServerThatOnlyWantsATokenNeedsNoLogin(t *testing.T) {
	for _, challenge := range []string{"", "Basic", "Bearer", `Bearer realm="x"`, `Bearer error="invalid_token"`} {
		s := newStrange(t, unnamed("404 no"))
		s.instead["/mcp"] = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", challenge)
			w.WriteHeader(http.StatusUnauthorized)
		}
		if status, err := s.call(t, s.process(t, login.Settings{})); status != http.StatusUnauthorized || err != nil {
			t.Errorf("%q: %d, %v, want the server's own answer", challenge, status, err)
		}
	}
}

// A renewal follows an authorization server whose endpoints have moved.
func TestAnEndpointThatMovedIsFound(t *testing.T) {
	for name, old := range map[string]string{"gone": "404 no", "another method": "405 no", "a page that is gone": "text/html 410 <p>", "a redirect": "302 no"} {
		t.Run(name, func(t *testing.T) {
			s := newStrange(t, nil)
			p := s.process(t, login.Settings{})
			if err := s.login(t, p); err != nil {
				t.Fatal(err)
			}
			s.set("/token", old)
			s.set("/.well-known/oauth-authorization-server", "200 "+strings.Replace(usualMetadata, "SELF/token", "SELF/token2", 1))
			s.set("/token2", `200 {"access_token":"moved","refresh_token":"renew"}`)
			s.mu.Lock()
			s.refuse = "token-1"
			s.mu.Unlock()
			if status, err := s.call(t, p); status != http.StatusOK {
				t.Errorf("a call: %d, %v", status, err)
			}
		})
	}
}

// The owner at a terminal logs in with a browser elsewhere, and pastes the address at which it ends.
func TestAPastedAddress(t *testing.T) {
	for name, test := range map[string]struct {
		paste func(at, other string) string // at is the right address, other that of another login
		fails bool
	}{
		"the address":              {paste: func(at, _ string) string { return at }},
		"in quotes, with blanks":   {paste: func(at, _ string) string { return "  \"" + at + "\" \r\n" }},
		"in angle brackets":        {paste: func(at, _ string) string { return "<" + at + ">" }},
		"with a fragment":          {paste: func(at, _ string) string { return at + "#_=_" }},
		"without its host":         {paste: func(at, _ string) string { _, query, _ := strings.Cut(at, "?"); return query }},
		"at another host and port": {paste: func(at, _ string) string { return strings.Replace(at, "127.0.0.1:", "localhost:1", 1) }},
		"the code alone":           {fails: true, paste: func(string, string) string { return "good" }},
		"the page of the login":    {fails: true, paste: func(at, _ string) string { return strings.Replace(at, "code=", "client_id=", 1) }},
		"without a state":          {fails: true, paste: func(at, _ string) string { before, _, _ := strings.Cut(at, "&state"); return before }},
		"of another login":         {fails: true, paste: func(_, other string) string { return other }},
		"nothing of it":            {fails: true, paste: func(string, string) string { return "%zz?%zz" }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStrange(t, nil)
			end := func(p *process) (*login.Pending, string) {
				_, _ = s.call(t, p)
				pending, err := p.server.Begin(t.Context(), "")
				if err != nil {
					t.Fatal(err)
				}
				if !strings.HasPrefix(pending.DirectURL(), s.URL+"/authorize?") {
					t.Errorf("the page is %s", pending.DirectURL())
				}
				nowhere := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
				response, err := nowhere.Get(pending.DirectURL())
				if err != nil {
					t.Fatal(err)
				}
				response.Body.Close()
				return pending, response.Header.Get("Location")
			}
			_, other := end(s.process(t, login.Settings{}))
			pending, at := end(s.process(t, login.Settings{}))
			err := pending.Paste(test.paste(at, other))
			if (err != nil) != test.fails {
				t.Errorf("pasted: %v", err)
			}
			if err != nil { // it still waits
				select {
				case <-pending.Done():
					t.Fatal("the login is over")
				default:
				}
				err = pending.Paste(at)
			}
			await.Value(t, pending.Done())
			if err != nil || pending.Err() != nil {
				t.Errorf("the login: %v, %v", err, pending.Err())
			}
		})
	}
}

// The page for the owner's terminal is opened in a browser of this machine, too; its answer counts from nowhere else.
func TestADirectPageEndsOnThisMachine(t *testing.T) {
	s := newStrange(t, nil)
	for from, passes := range map[string]bool{"127.0.0.1:9": true, "[::1]:9": true, "192.0.2.7:9": false} {
		p := s.process(t, login.Settings{})
		_, _ = s.call(t, p)
		pending, err := p.server.Begin(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		at, err := url.Parse(pending.DirectURL())
		if err != nil {
			t.Fatal(err)
		}
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/oauth/callback?code=good&state="+url.QueryEscape(at.Query().Get("state")), nil)
		r.RemoteAddr = from
		p.logins.ServeHTTP(w, r)
		if w.Code == http.StatusOK != passes {
			t.Errorf("%s: %d %s", from, w.Code, w.Body)
		}
		p.logins.Close()
	}
}
