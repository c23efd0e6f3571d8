package authserver

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"toolfinch/internal/pipes"
)

// New starts a server in this process, reached over pipes: strict enough for clients' tests, not
// certified, with JWTs only in form. It ends with its test.
func New(t testing.TB, settings Settings) *Server {
	t.Helper()
	host := pipes.NewHost()
	p := &plain{Settings: settings, issuer: "http://" + host + ":80", host: host, codes: map[string]*grant{}, devices: map[string]*grant{}, tokens: map[string]*grant{}}
	p.User = cmp.Or(p.User, "alice")
	p.Lifetime = cmp.Or(p.Lifetime, 3600)
	p.up()
	t.Cleanup(p.down)
	return &Server{Issuer: p.issuer, do: p.do, plain: true}
}

// plain is a server in this process.
type plain struct {
	Settings
	issuer, host string
	server       *http.Server
	ended        chan struct{}

	mu      sync.Mutex // guards the fields below, and Settings
	seen    []Event
	codes   map[string]*grant // by code
	devices map[string]*grant // by device code
	tokens  map[string]*grant // by access or refresh token
}

// grant is a grant of a user or a machine to a client.
type grant struct {
	client, user, scope, resource, challenge, redirect string
	agreed, over                                       bool
	refresh                                            string               // the valid refresh token
	expires                                            map[string]time.Time // of access tokens
}

func (p *plain) up() {
	mux := http.NewServeMux()
	for at, handler := range map[string]http.HandlerFunc{
		"/.well-known/oauth-authorization-server": p.metadata,
		"POST /reg":                 p.register,
		"/auth":                     p.authorize,
		"POST /token":               p.token,
		"POST /token/introspection": p.introspect,
		"POST /token/revocation":    p.revoke,
		"POST /device/auth":         p.device,
		"/device":                   p.agree,
	} {
		mux.HandleFunc(at, func(w http.ResponseWriter, r *http.Request) {
			p.mu.Lock()
			defer p.mu.Unlock()
			handler(w, r)
		})
	}
	server, ended := &http.Server{Handler: mux}, make(chan struct{})
	listener := pipes.Listen(p.host)
	go func() {
		_ = server.Serve(listener)
		close(ended)
	}()
	p.server, p.ended = server, ended
}

func (p *plain) down() {
	_ = p.server.Close()
	<-p.ended
}

func (p *plain) do(name string, values, to any) error {
	switch name {
	case "up":
		p.up()
		return nil
	case "down":
		p.down()
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if name == "seen" {
		*to.(*[]Event), p.seen = p.seen, nil
		return nil
	}
	given, err := json.Marshal(values)
	if err == nil {
		err = json.Unmarshal(given, &p.Now)
	}
	return err
}

func (p *plain) note(what, client string, params url.Values, code string) {
	event := Event{What: what, Client: client, Params: map[string]any{}, Error: code}
	for name := range params {
		event.Params[name] = params.Get(name)
	}
	p.seen = append(p.seen, event)
}

func (p *plain) say(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	if p.Skew != nil {
		w.Header().Set("Date", time.Now().Add(time.Duration(*p.Skew)*time.Second).UTC().Format(http.TimeFormat))
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (p *plain) metadata(w http.ResponseWriter, _ *http.Request) {
	p.say(w, http.StatusOK, map[string]any{
		"issuer": p.issuer, "authorization_endpoint": p.issuer + "/auth", "token_endpoint": p.issuer + "/token", "registration_endpoint": p.issuer + "/reg",
		"revocation_endpoint": p.issuer + "/token/revocation", "introspection_endpoint": p.issuer + "/token/introspection", "device_authorization_endpoint": p.issuer + "/device/auth",
		"code_challenge_methods_supported": []string{"S256"}, "response_types_supported": []string{"code"}, "scopes_supported": []string{"openid", "offline_access", "mcp:read", "mcp:write"},
		"grant_types_supported":                          []string{"authorization_code", "refresh_token", "client_credentials", deviceGrant},
		"token_endpoint_auth_methods_supported":          []string{"none", "client_secret_basic"},
		"authorization_response_iss_parameter_supported": true,
	})
}

const deviceGrant = "urn:ietf:params:oauth:grant-type:device_code"

func (p *plain) register(w http.ResponseWriter, r *http.Request) {
	var client Client
	if err := json.NewDecoder(r.Body).Decode(&client); err != nil {
		p.say(w, http.StatusBadRequest, map[string]string{"error": "invalid_client_metadata"})
		return
	}
	client.ID = rand.Text()
	p.Clients = append(p.Clients, client)
	p.note("registered", client.ID, url.Values{"application_type": {client.ApplicationType}, "token_endpoint_auth_method": {client.AuthMethod}}, "")
	p.say(w, http.StatusCreated, client)
}

// client finds a client by its ID, nil for none.
func (p *plain) client(id string) *Client {
	i := slices.IndexFunc(p.Clients, func(c Client) bool { return c.ID == id })
	if i < 0 {
		return nil
	}
	return &p.Clients[i]
}

// ofResource removes the scopes of OpenID.
func ofResource(scope string) string {
	return strings.Join(slices.DeleteFunc(strings.Fields(scope), func(s string) bool { return !strings.HasPrefix(s, "mcp:") }), " ")
}

// granted removes unknown scopes.
func granted(scope string) string {
	all := strings.Fields(scope)
	return strings.Join(slices.DeleteFunc(all, func(s string) bool {
		return !slices.Contains([]string{"openid", "offline_access", "mcp:read", "mcp:write"}, s)
	}), " ")
}

func (p *plain) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	client, back := p.client(q.Get("client_id")), q.Get("redirect_uri")
	if client == nil || !slices.ContainsFunc(client.RedirectURIs, func(one string) bool { return portless(one) == portless(back) }) ||
		q.Get("code_challenge_method") != "S256" || q.Get("response_type") != "code" {
		p.say(w, http.StatusBadRequest, map[string]string{"error": "invalid_request"})
		return
	}
	answer := url.Values{"iss": {p.issuer}, "state": {q.Get("state")}}
	if p.Deny != nil && *p.Deny {
		answer.Set("error", "access_denied")
		answer.Set("error_description", "the user said no")
	} else {
		code, user := rand.Text(), p.User
		if hint := q.Get("login_hint"); hint != "" {
			user = hint
		}
		p.codes[code] = &grant{client: client.ID, user: user, scope: granted(q.Get("scope")), resource: q.Get("resource"), challenge: q.Get("code_challenge"), redirect: back, agreed: true, expires: map[string]time.Time{}}
		answer.Set("code", code)
		p.note("authorized", client.ID, q, "")
	}
	http.Redirect(w, r, back+"?"+answer.Encode(), http.StatusSeeOther)
}

// portless removes the port of a URL: on loopback any port is allowed (RFC 8252 7.3).
func portless(at string) string {
	u, err := url.Parse(at)
	if err != nil {
		return at
	}
	return u.Scheme + "://" + u.Hostname() + u.Path
}

func (p *plain) device(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	code, user := rand.Text(), rand.Text()[:8]
	p.devices[code] = &grant{client: r.Form.Get("client_id"), scope: granted(r.Form.Get("scope")), resource: r.Form.Get("resource"), challenge: user, expires: map[string]time.Time{}}
	at := p.issuer + "/device"
	p.say(w, http.StatusOK, map[string]any{"device_code": code, "user_code": user, "verification_uri": at, "verification_uri_complete": at + "?user_code=" + user, "expires_in": 600})
}

func (p *plain) agree(_ http.ResponseWriter, r *http.Request) {
	for _, g := range p.devices {
		if g.challenge == r.URL.Query().Get("user_code") {
			g.agreed, g.user = true, p.User
		}
	}
}

func (p *plain) token(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	id, secret, basic := r.BasicAuth()
	if basic { // RFC 6749 2.3.1
		id, _ = url.QueryUnescape(id)
		secret, _ = url.QueryUnescape(secret)
	} else {
		id = r.Form.Get("client_id")
	}
	client := p.client(id)
	refuse := func(status int, code string) {
		p.note("refused", id, r.Form, code)
		p.say(w, status, map[string]string{"error": code})
	}
	if client == nil || client.Secret != secret {
		refuse(http.StatusUnauthorized, "invalid_client")
		return
	}
	var g *grant
	kind := r.Form.Get("grant_type")
	switch kind {
	case "client_credentials":
		g = &grant{client: id, user: id, scope: granted(r.Form.Get("scope")), resource: r.Form.Get("resource"), agreed: true, expires: map[string]time.Time{}}
	case "authorization_code":
		code := r.Form.Get("code")
		sum := sha256.Sum256([]byte(r.Form.Get("code_verifier")))
		if g = p.codes[code]; g != nil && (g.redirect != r.Form.Get("redirect_uri") || g.challenge != base64.RawURLEncoding.EncodeToString(sum[:])) {
			g = nil
		}
		delete(p.codes, code)
	case deviceGrant:
		code := r.Form.Get("device_code")
		if g = p.devices[code]; g != nil && !g.agreed {
			refuse(http.StatusBadRequest, "authorization_pending")
			return
		}
		delete(p.devices, code)
	case "refresh_token":
		token := r.Form.Get("refresh_token")
		if g = p.tokens[token]; g != nil && g.refresh != token { // reused, perhaps by a thief
			g.over = true
		}
	}
	if g == nil || g.over || g.client != id || g.resource != r.Form.Get("resource") {
		refuse(http.StatusBadRequest, "invalid_grant")
		return
	}
	p.note("granted", id, r.Form, "")
	p.say(w, http.StatusOK, p.issue(g, kind != "client_credentials"))
}

// issue makes tokens of a grant.
func (p *plain) issue(g *grant, renewable bool) map[string]any {
	access := rand.Text()
	if p.Opaque == nil || !*p.Opaque {
		access = rand.Text() + "." + rand.Text() + "." + rand.Text()
	}
	lifetime := time.Duration(p.Lifetime) * time.Second
	g.expires[access], p.tokens[access] = time.Now().Add(lifetime), g
	answer := map[string]any{"access_token": access, "token_type": "Bearer", "expires_in": p.Lifetime, "scope": ofResource(g.scope)}
	if renewable {
		g.refresh = rand.Text()
		p.tokens[g.refresh] = g
		answer["refresh_token"] = g.refresh
	}
	return answer
}

func (p *plain) introspect(w http.ResponseWriter, r *http.Request) {
	token := r.FormValue("token")
	g := p.tokens[token]
	if g == nil || g.over || !time.Now().Before(g.expires[token]) {
		p.say(w, http.StatusOK, map[string]any{"active": false})
		return
	}
	p.say(w, http.StatusOK, map[string]any{"active": true, "scope": g.scope, "sub": g.user, "aud": g.resource, "exp": g.expires[token].Unix()})
}

func (p *plain) revoke(w http.ResponseWriter, r *http.Request) {
	token := r.FormValue("token")
	if strings.Contains(token, ".") { // a JWT
		p.say(w, http.StatusBadRequest, map[string]string{"error": "unsupported_token_type"})
		return
	}
	if g := p.tokens[token]; g != nil {
		delete(p.tokens, token)
		if token == g.refresh {
			g.over = true
			p.note("revoked", g.client, nil, "")
		}
	}
	fmt.Fprintln(w)
}
