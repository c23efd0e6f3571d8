package login_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/internal/authserver"
	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/internal/pipes"
	"toolfinch/upstream/login"
)

// row is the stored login to the house's server.
func (h *house) row(t *testing.T) (row map[string]any) {
	t.Helper()
	raw, _ := h.vault.Get(t.Context(), "login/notes")
	if raw != nil && json.Unmarshal(raw, &row) != nil {
		t.Fatalf("the row is %s", raw)
	}
	return row
}

// resource is a protected server, which asks the authorization server about each token.
type resource struct {
	*httptest.Server
	as *authserver.Server

	mu     sync.Mutex // guards what follows
	scope  string     // that requests need
	tokens []string   // that came
	refuse bool       // every token
	not    string     // a token that is refused
}

func newResource(t *testing.T, as *authserver.Server) *resource {
	r := &resource{as: as, scope: "mcp:read"}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/oauth-protected-resource/mcp", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"resource":%q,"authorization_servers":[%q],"scopes_supported":["mcp:read","mcp:write"]}`, r.URL+"/mcp", as.Issuer)
	})
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, req *http.Request) {
		token := strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")
		r.mu.Lock()
		r.tokens = append(r.tokens, token)
		need, refuse := r.scope, r.refuse || token != "" && token == r.not
		r.mu.Unlock()
		has := r.scopes(t, token)
		metadata := r.URL + "/.well-known/oauth-protected-resource/mcp"
		switch {
		case has == nil || refuse:
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer resource_metadata="%s", scope="mcp:read"`, metadata))
			w.WriteHeader(http.StatusUnauthorized)
		case !slices.Contains(has, need):
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer error="insufficient_scope", scope="%s", resource_metadata="%s"`, need, metadata))
			w.WriteHeader(http.StatusForbidden)
		default:
			_, _ = io.Copy(w, req.Body)
		}
	})
	r.Server = pipes.NewServer(t, mux)
	return r
}

// scopes are those of a token that is good, else nil.
func (r *resource) scopes(t *testing.T, token string) []string {
	if token == "" {
		return nil
	}
	about, err := r.as.Introspect(t.Context(), token)
	switch {
	case err != nil:
		return []string{"mcp:read"} // the authorization server is down: a resource with JWTs would not notice
	case !about.Active:
		return nil
	}
	return strings.Fields(about.Scope)
}

// seen are the tokens that came since the last time.
func (r *resource) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.tokens
	r.tokens = nil
	return all
}

func (r *resource) set(f func(*resource)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(r)
}

// house is an authorization server, a protected server, and a vault.
type house struct {
	as    *authserver.Server
	rs    *resource
	vault *authserver.Vault
	log   await.Log // of all processes
}

func newHouse(t *testing.T, settings authserver.Settings) *house {
	opaque := true
	settings.Opaque = &opaque
	settings.Clients = append(settings.Clients, authserver.Inspector)
	as := authserver.New(t, settings)
	return &house{as: as, rs: newResource(t, as), vault: authserver.NewVault()}
}

// loggedIn is a house, and a process that has logged in to its server.
func loggedIn(t *testing.T, settings authserver.Settings) (*house, *process) {
	h := newHouse(t, settings)
	p := h.process(t, login.Settings{})
	h.wants(t, p)
	h.login(t, p)
	return h, p
}

func TestMain(m *testing.M) {
	pipes.Install()
	os.Exit(m.Run())
}

// process is what one process has.
type process struct {
	logins *login.Logins
	server *login.Server
	client *http.Client
}

func (h *house) process(t *testing.T, s login.Settings) *process {
	return h.processOf(t, s, login.Options{})
}

func (h *house) processOf(t *testing.T, s login.Settings, o login.Options) *process {
	s.AllowPrivate = true // over pipes
	o.Vault, o.Log = h.vault, slog.New(slog.NewTextHandler(&h.log, nil))
	logins := login.New(o)
	t.Cleanup(logins.Close)
	server := logins.Server("notes", h.rs.URL+"/mcp", s)
	return &process{logins, server, &http.Client{Transport: server.Transport(http.DefaultTransport, "")}}
}

// call sends one request to the protected server.
func (h *house) call(t *testing.T, p *process) (int, error) {
	t.Helper()
	response, err := p.client.Post(h.rs.URL+"/mcp", "application/json", strings.NewReader("hello"))
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if response.StatusCode == http.StatusOK && string(body) != "hello" {
		t.Errorf("the body that arrived is %q", body)
	}
	return response.StatusCode, err
}

// login logs in as a browser does.
func (h *house) login(t *testing.T, p *process) *login.Pending {
	t.Helper()
	pending := must.Get(p.server.Begin(t.Context(), ""))(t)
	h.as.Browse(t, pending.URL(), "")
	await.Value(t, pending.Done())
	if err := pending.Err(); err != nil {
		t.Fatalf("the login: %v", err)
	}
	return pending
}

// works fails the test unless the next request goes well.
func (h *house) works(t *testing.T, p *process) {
	t.Helper()
	if status, err := h.call(t, p); err != nil || status != http.StatusOK {
		t.Fatalf("the request: %d, %v", status, err)
	}
}

// wants fails the test unless the next request needs a login.
func (h *house) wants(t *testing.T, p *process) *login.Needed {
	t.Helper()
	status, err := h.call(t, p)
	needed, ok := errors.AsType[*login.Needed](err)
	if !ok {
		t.Fatalf("the request: %d, %v; want that it needs a login", status, err)
	}
	return needed
}

// event returns the events of a kind, with the grant of those at the token endpoint.
func grants(events []authserver.Event, what, grant string) (found []authserver.Event) {
	for _, e := range events {
		if e.What == what && (grant == "" || e.Params["grant_type"] == grant) {
			found = append(found, e)
		}
	}
	return found
}

func TestLogin(t *testing.T) {
	h := newHouse(t, authserver.Settings{})
	p := h.process(t, login.Settings{})
	needed := h.wants(t, p)
	if text := needed.Error(); text != "needs a login: run `toolfinch server login notes`" {
		t.Errorf("the error is %q", text)
	}
	h.rs.seen()
	h.wants(t, p)
	if seen := h.rs.seen(); len(seen) > 0 {
		t.Errorf("a server that wants a login was asked again: %q", seen)
	}
	status := h.login(t, p).Status()
	if status.Issuer != h.as.Issuer || !slices.Equal(status.Scopes, []string{"mcp:read"}) || !status.Refreshes || time.Until(status.Expires) < 50*time.Minute {
		t.Errorf("the login is %+v", status)
	}
	h.works(t, p)
	row := h.row(t)
	if log := h.log.String(); strings.Count(log, "\n") != 1 || !strings.HasSuffix(log, `msg="logged in" server=notes principal="" issuer=`+h.as.Issuer+" scopes=mcp:read\n") {
		t.Errorf("the log has\n%s", log)
	}
	if masked := p.server.Mask(fmt.Sprintf("no %s, no %s", row["access_token"], row["refresh_token"])); masked != "no ***, no ***" {
		t.Errorf("what a server repeats is shown as %q", masked)
	}
	events := h.as.Seen(t)
	registered := grants(events, "registered", "")
	if len(registered) != 1 || registered[0].Params["application_type"] != "native" || registered[0].Params["token_endpoint_auth_method"] != "none" {
		t.Errorf("registered: %+v", registered)
	}
	for _, e := range grants(events, "granted", "authorization_code") {
		if e.Params["resource"] != h.rs.URL+"/mcp" {
			t.Errorf("the token was asked for with %v", e.Params)
		}
	}

	t.Run("another process uses it, and registers nothing", func(t *testing.T) {
		redirect := must.Get(url.Parse(row["client"].(map[string]any)["redirect"].(string)))(t)
		await.Nil(t, func() error { // the first process may still wait there for who reads its last page
			port, err := net.Listen("tcp", redirect.Host)
			if err == nil {
				err = port.Close()
			}
			return err
		})
		other := h.process(t, login.Settings{})
		h.works(t, other)
		h.login(t, other)
		if again := grants(h.as.Seen(t), "registered", ""); len(again) > 0 {
			t.Errorf("registered again: %+v", again)
		}
	})
	t.Run("the token goes to the server alone", func(t *testing.T) {
		var got http.Header
		elsewhere := pipes.NewServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
		response := must.Get(p.client.Get(elsewhere.URL))(t)
		response.Body.Close()
		if _, ok := got["Authorization"]; ok {
			t.Errorf("another origin got %v", got)
		}
	})
	t.Run("a server that moved gets none", func(t *testing.T) {
		moved := newResource(t, h.as)
		server := p.logins.Server("notes", moved.URL+"/mcp", login.Settings{AllowPrivate: true})
		_, err := (&http.Client{Transport: server.Transport(http.DefaultTransport, "")}).Get(moved.URL + "/mcp")
		if _, ok := errors.AsType[*login.Needed](err); !ok {
			t.Errorf("the error is %v", err)
		}
		if seen := moved.seen(); len(seen) != 1 || seen[0] != "" {
			t.Errorf("it got %q", seen)
		}
	})
}

func TestRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, p := loggedIn(t, authserver.Settings{Now: authserver.Now{Lifetime: 120}})
		first := h.row(t)
		h.works(t, p)
		if h.row(t)["access_token"] != first["access_token"] {
			t.Error("a token that is good was renewed")
		}
		h.as.Set(t, authserver.Now{Lifetime: 3600})
		time.Sleep(2 * time.Minute)
		h.works(t, p)
		second := h.row(t)
		if second["refresh_token"] == first["refresh_token"] {
			t.Error("the rotated refresh token is not stored")
		}
		for _, e := range grants(h.as.Seen(t), "granted", "refresh_token") {
			if e.Params["resource"] != h.rs.URL+"/mcp" || e.Params["scope"] != "mcp:read offline_access" {
				t.Errorf("the refresh was asked for with %v", e.Params)
			}
		}
		for _, token := range h.rs.seen() {
			if token == "" {
				continue
			}
			if has := h.rs.scopes(t, token); has == nil && token != first["access_token"] {
				t.Errorf("an expired token was sent")
			}
		}

		// A token that the server refuses is renewed once.
		h.as.Seen(t)
		h.refuse(t)
		h.works(t, p)
		if n := len(grants(h.as.Seen(t), "granted", "refresh_token")); n != 1 {
			t.Errorf("%d refreshes", n)
		}
		// A server that refuses every token is no reason to go on.
		h.rs.set(func(r *resource) { r.refuse = true })
		h.rs.seen()
		h.wants(t, p)
		if n := len(h.rs.seen()); n > 3 {
			t.Errorf("%d requests", n)
		}
		if n := len(grants(h.as.Seen(t), "granted", "refresh_token")); n > 2 {
			t.Errorf("%d refreshes", n)
		}
	})
}

// fullVault takes nothing more while it is full.
type fullVault struct {
	*authserver.Vault
	full atomic.Bool
}

func (v *fullVault) Put(ctx context.Context, name string, value []byte) error {
	if v.full.Load() {
		return errors.New("the disk is full")
	}
	return v.Vault.Put(ctx, name, value)
}

// A refresh token that was rotated and could not be stored is used, not the one that is stored and that
// an authorization server takes no more; and it is stored as soon as that can be.
func TestARotatedTokenThatCannotBeStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := loggedIn(t, authserver.Settings{Now: authserver.Now{Lifetime: 3600}})
		vault := &fullVault{Vault: h.vault}
		logins := login.New(login.Options{Vault: vault, Log: slog.New(slog.NewTextHandler(&h.log, nil))})
		t.Cleanup(logins.Close)
		server := logins.Server("notes", h.rs.URL+"/mcp", login.Settings{AllowPrivate: true})
		p := &process{logins, server, &http.Client{Transport: server.Transport(http.DefaultTransport, "")}}
		h.works(t, p)
		stored := h.row(t)["refresh_token"]
		vault.full.Store(true)
		for range 2 {
			seen := h.rs.seen()
			h.rs.set(func(r *resource) { r.not = seen[len(seen)-1] }) // the token in use
			h.works(t, p)
		}
		if got := h.row(t)["refresh_token"]; got != stored {
			t.Fatal("a vault that is full has stored something")
		}
		vault.full.Store(false)
		seen := h.rs.seen()
		h.rs.set(func(r *resource) { r.not = seen[len(seen)-1] })
		h.works(t, p)
		if got := h.row(t)["refresh_token"]; got == stored {
			t.Error("the token is not stored once that can be")
		}
		h.works(t, h.process(t, login.Settings{}))
	})
}

// refuse has the protected server refuse the token that there is now.
func (h *house) refuse(t *testing.T) {
	t.Helper()
	token := h.row(t)["access_token"].(string)
	h.rs.set(func(r *resource) { r.not = token })
}

// revoke revokes a token at the authorization server, as an administrator would, and with it all
// of the same login.
func (h *house) revoke(t *testing.T, token string) {
	t.Helper()
	form := url.Values{"token": {token}}
	request, _ := http.NewRequest(http.MethodPost, h.as.Issuer+"/token/revocation", strings.NewReader(form.Encode()))
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.SetBasicAuth(authserver.Inspector.ID, authserver.Inspector.Secret)
	response, err := http.DefaultClient.Do(request)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("revoke: %v %v", response, err)
	}
	response.Body.Close()
}

func TestRefreshTokenThatIsRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, p := loggedIn(t, authserver.Settings{})
		h.works(t, p)
		row := h.row(t)
		if log := h.log.String(); strings.Count(log, "\n") != 1 || !strings.HasSuffix(log, `msg="logged in" server=notes principal="" issuer=`+h.as.Issuer+" scopes=mcp:read\n") {
			t.Errorf("the log has\n%s", log)
		}
		h.revoke(t, row["refresh_token"].(string))
		h.revoke(t, row["access_token"].(string))
		needed := h.wants(t, p)
		if !strings.Contains(needed.Error(), "invalid_grant") {
			t.Errorf("the error is %q", needed)
		}
		h.as.Seen(t)
		h.wants(t, p)
		h.wants(t, h.process(t, login.Settings{}))
		if tried := grants(h.as.Seen(t), "refused", "refresh_token"); len(tried) > 0 {
			t.Errorf("a dead refresh token was used again: %+v", tried)
		}
		h.login(t, p) // without deleting anything
		h.works(t, p)
	})
}

func TestAuthorizationServerAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, p := loggedIn(t, authserver.Settings{Now: authserver.Now{Lifetime: 120}})
		first := h.row(t)
		h.as.Down(t)
		h.works(t, p) // the token is good
		time.Sleep(2 * time.Minute)
		_, fault := h.call(t, p)
		if errors.As(fault, new(*login.Needed)) || !errors.As(fault, new(*login.Failed)) {
			t.Errorf("the error is %v, as if a login would help", fault)
		}
		if row := h.row(t); row["refresh_token"] != first["refresh_token"] || row["dead"] != nil {
			t.Errorf("the login is %v", row)
		}
		h.as.Up(t)
		time.Sleep(time.Minute)
		h.works(t, p)
	})
}

// Another clock of the authorization server makes no difference.
func TestClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, p := loggedIn(t, authserver.Settings{})
		for _, skew := range []int{-3600, 3600} {
			h.as.Set(t, authserver.Now{Skew: &skew})
			h.refuse(t)
			h.works(t, p)
			h.as.Seen(t)
			for range 3 {
				h.works(t, p)
			}
			if n := len(grants(h.as.Seen(t), "granted", "refresh_token")); n > 0 {
				t.Errorf("%d seconds: %d refreshes of a token that is good for an hour", skew, n)
			}
		}
	})
}

func TestTwoProcessesRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, authserver.Settings{})
		one, two := h.process(t, login.Settings{}), h.process(t, login.Settings{})
		h.wants(t, one)
		h.login(t, one)
		h.works(t, one)
		h.works(t, two)
		h.refuse(t)
		h.as.Seen(t)
		var both sync.WaitGroup
		for range 4 {
			both.Go(func() { h.works(t, one) })
			both.Go(func() { h.works(t, two) })
		}
		both.Wait()
		if n := len(grants(h.as.Seen(t), "granted", "refresh_token")); n != 1 {
			t.Errorf("%d refreshes for one token: a rotated one would be used twice", n)
		}
		h.works(t, one)
		h.works(t, two)
	})
}

func TestRefreshTokenUsedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, p := loggedIn(t, authserver.Settings{})
		stolen, _ := h.vault.Get(t.Context(), "login/notes")
		h.refuse(t)
		h.works(t, p)
		// A copy of the old row comes back, as from a backup: its refresh token was used.
		_ = h.vault.Put(t.Context(), "login/notes", stolen)
		needed := h.wants(t, h.process(t, login.Settings{}))
		if !strings.Contains(needed.Error(), "invalid_grant") {
			t.Errorf("the error is %q", needed)
		}
	})
}

func TestStepUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, p := loggedIn(t, authserver.Settings{})
		h.works(t, p)
		h.rs.set(func(r *resource) { r.scope = "mcp:write" })
		needed := h.wants(t, p)
		if !slices.Equal(needed.Scopes, []string{"mcp:write"}) || !strings.Contains(needed.Error(), "mcp:write") {
			t.Errorf("the error is %q, %v", needed, needed.Scopes)
		}
		h.rs.set(func(r *resource) { r.scope = "mcp:read" })
		h.works(t, p) // what needs no more goes on
		status := h.login(t, p).Status()
		if !slices.Equal(status.Scopes, []string{"mcp:read", "mcp:write"}) {
			t.Errorf("the scopes are %v", status.Scopes)
		}
		h.rs.set(func(r *resource) { r.scope = "mcp:admin" })
		h.wants(t, p)
		h.login(t, p) // which does not give it
		h.rs.seen()
		if status, err := h.call(t, p); err != nil || status != http.StatusForbidden {
			t.Errorf("the request: %d, %v; want the server's own answer", status, err)
		}
		if n := len(h.rs.seen()); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

// TestStepUpByAnotherProcess: a login in a shell asks for what the process that serves was
// refused for.
func TestStepUpByAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := loggedIn(t, authserver.Settings{})
		h.rs.set(func(r *resource) { r.scope = "mcp:write" })
		h.wants(t, h.process(t, login.Settings{}))
		shell := h.process(t, login.Settings{})
		h.login(t, shell)
		h.works(t, shell)
		if wanted := h.row(t)["wanted"]; wanted != nil {
			t.Errorf("the new login still wants %v", wanted)
		}
	})
}

// anybody lets every browser start every login.
func anybody(http.ResponseWriter, *http.Request, login.Start) bool { return true }

func TestLoginsAtOnce(t *testing.T) {
	h := newHouse(t, authserver.Settings{})
	p := h.processOf(t, login.Settings{PerUser: true}, login.Options{Prove: anybody})
	clients := map[string]*http.Client{}
	pending := map[string]*login.Pending{}
	for _, user := range []string{"https://idp.example|ann", "https://idp.example|bob"} {
		clients[user] = &http.Client{Transport: p.server.Transport(http.DefaultTransport, user)}
		one, err := p.server.Begin(t.Context(), user)
		if err != nil {
			t.Fatal(err)
		}
		joined, err := p.server.Begin(t.Context(), user)
		if err != nil || joined != one {
			t.Errorf("another login was begun: %v", err)
		}
		pending[user] = one
	}
	for _, user := range []string{"https://idp.example|bob", "https://idp.example|ann"} {
		h.as.Set(t, authserver.Now{User: user})
		h.as.Browse(t, pending[user].URL(), "")
		await.Value(t, pending[user].Done())
		if err := pending[user].Err(); err != nil {
			t.Errorf("%s: %v", user, err)
		}
	}
	tokens := map[string]bool{}
	for user, client := range clients {
		h.rs.seen()
		response, err := client.Post(h.rs.URL+"/mcp", "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatalf("%s: %v", user, err)
		}
		response.Body.Close()
		for _, token := range h.rs.seen() {
			tokens[token] = true
		}
	}
	if len(tokens) != 2 {
		t.Errorf("two users have %d tokens", len(tokens))
	}
	_, err := (&http.Client{Transport: p.server.Transport(http.DefaultTransport, "https://idp.example|eve")}).Post(h.rs.URL+"/mcp", "text/plain", strings.NewReader("x"))
	if _, ok := errors.AsType[*login.Needed](err); !ok {
		t.Errorf("a third user: %v", err)
	}
}

func TestAnotherProcessLogsIn(t *testing.T) {
	h := newHouse(t, authserver.Settings{})
	serving, shell := h.process(t, login.Settings{}), h.process(t, login.Settings{})
	needed := h.wants(t, serving)
	noticed := make(chan error, 1)
	go func() { noticed <- serving.server.Await(t.Context(), "", needed.Mark(), "") }()
	h.wants(t, shell)
	h.login(t, shell)
	must.Do(t, await.Value(t, noticed))
	h.works(t, serving)
	if was, revoked, err := shell.server.Logout(t.Context(), ""); !was || !revoked || err != nil {
		t.Errorf("logout: %v %v %v", was, revoked, err)
	}
	h.wants(t, serving)
	if row := h.row(t); row != nil {
		t.Errorf("the row is %v", row)
	}

	opaque := false
	h.as.Set(t, authserver.Now{Opaque: &opaque}) // a JWT cannot be revoked
	h.login(t, shell)
	if was, revoked, err := shell.server.Logout(t.Context(), ""); !was || !revoked || err != nil {
		t.Errorf("logout with a JWT: %v %v %v", was, revoked, err)
	}
}

func TestUserSaysNo(t *testing.T) {
	yes := true
	h := newHouse(t, authserver.Settings{Now: authserver.Now{Deny: &yes}})
	p := h.process(t, login.Settings{})
	pending, err := p.server.Begin(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	browser := authserver.NewBrowser()
	back, _, _ := strings.Cut(pending.URL(), "?")
	final := h.as.BrowseIn(t, browser, pending.URL(), back)
	looked, err := browser.Head(final.String())
	if err != nil {
		t.Fatal(err)
	}
	looked.Body.Close()
	if looked.StatusCode != http.StatusNotFound {
		t.Errorf("HEAD, as of a program that looks at links: %d", looked.StatusCode)
	}
	response, err := browser.Get(final.String())
	if err != nil {
		t.Fatal(err)
	}
	page, _ := io.ReadAll(response.Body)
	response.Body.Close()
	await.Value(t, pending.Done())
	if err := pending.Err(); err == nil || !strings.Contains(err.Error(), "access_denied") || !strings.Contains(string(page), "the user said no") {
		t.Errorf("the error is %v, the page %q", err, page)
	}
	if again, err := browser.Get(final.String()); err == nil {
		again.Body.Close()
		if again.StatusCode == http.StatusOK {
			t.Error("an answer was taken twice")
		}
	}
}

func TestClientCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machine := authserver.Machine("robot", "robot-secret")
		h := newHouse(t, authserver.Settings{Clients: []authserver.Client{machine}})
		p := h.process(t, login.Settings{Set: true, Grant: login.GrantCredentials, ClientID: "robot", Secret: "robot-secret"})
		h.works(t, p)
		h.works(t, p)
		if n := len(grants(h.as.Seen(t), "granted", "client_credentials")); n != 1 {
			t.Errorf("%d tokens for two requests", n)
		}
		h.revoke(t, h.row(t)["access_token"].(string))
		h.works(t, p)
		h.rs.set(func(r *resource) { r.scope = "mcp:write" })
		h.works(t, p) // more scopes need nobody either
		wrong := h.process(t, login.Settings{Set: true, Grant: login.GrantCredentials, ClientID: "robot", Secret: "wrong"})
		_ = h.vault.Delete(t.Context(), "login/notes")
		_, err := h.call(t, wrong)
		if !errors.As(err, new(*login.Failed)) || !strings.Contains(err.Error(), "invalid_client") || strings.Contains(err.Error(), "wrong") {
			t.Errorf("the error is %v", err)
		}
		h.as.Seen(t)
		_, _ = h.call(t, wrong)
		if tried := grants(h.as.Seen(t), "refused", ""); len(tried) > 0 {
			t.Error("the authorization server was asked again at once")
		}
	})
}

func TestDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, authserver.Settings{})
		p := h.process(t, login.Settings{Grant: login.GrantDevice})
		h.wants(t, p)
		pending := must.Get(p.server.Begin(t.Context(), ""))(t)
		if pending.UserCode() == "" {
			t.Error("there is no code")
		}
		h.as.Browse(t, pending.URL(), "")
		await.Value(t, pending.Done())
		must.Do(t, pending.Err())
		h.works(t, p)
		h.refuse(t)
		h.works(t, p)
		time.Sleep(time.Minute) // x/oauth2 leaves the body of an answer open, until its time is over
	})
}

// Whatever a document of the authorization server says, tokens are sent over https, and
// over http to this machine alone.
func TestTokensAreSentToNoPlainEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := loggedIn(t, authserver.Settings{})
		row := h.row(t)
		row["revocation_url"] = "http://192.0.2.1/revoke"
		raw, _ := json.Marshal(row)
		must.Do(t, h.vault.Put(t.Context(), "login/notes", raw))
		if _, revoked, err := h.process(t, login.Settings{AllowPrivate: true}).server.Logout(t.Context(), ""); revoked || err == nil || !strings.Contains(err.Error(), "http://192.0.2.1 is not https") {
			t.Errorf("logging out at a plain endpoint: %v, %v", revoked, err)
		}
	})
}

func TestALoginThatEndsAtThisProcess(t *testing.T) {
	const elsewhere, here = "https://tools.example.com/oauth/callback", "http://127.0.0.1:8080/oauth/callback"
	for name, test := range map[string]struct {
		given login.Settings
		want  string // RedirectURL
		fails bool
	}{
		"a client that is to be registered":      {given: login.Settings{RedirectURL: elsewhere}},
		"a client that was registered":           {given: login.Settings{RedirectURL: elsewhere, ClientID: "one"}, want: elsewhere, fails: true},
		"a client that is a document":            {given: login.Settings{RedirectURL: elsewhere, MetadataURL: "https://tools.example.com/client"}, want: elsewhere, fails: true},
		"a client that was registered with here": {given: login.Settings{RedirectURL: here, ClientID: "one"}, want: here},
		"without a browser":                      {given: login.Settings{RedirectURL: elsewhere, ClientID: "one", Grant: login.GrantDevice}, want: elsewhere},
		"the default":                            {},
	} {
		t.Run(name, func(t *testing.T) {
			if err := test.given.EndHere(); (err != nil) != test.fails || test.given.RedirectURL != test.want {
				t.Errorf("it ends at %q, %v", test.given.RedirectURL, err)
			}
		})
	}
}

// A login does not outlive its principal: it ends at the authorization server, and one of a server that is not
// configured any more is deleted. Logins of others stay.
func TestLoginsOfPrincipalsThatAreGone(t *testing.T) {
	h := newHouse(t, authserver.Settings{})
	p := h.processOf(t, login.Settings{PerUser: true}, login.Options{Prove: anybody})
	clients := map[string]*http.Client{}
	call := func(principal string) (int, error) {
		client := clients[principal]
		if client == nil {
			client = &http.Client{Transport: p.server.Transport(http.DefaultTransport, principal)}
			clients[principal] = client
		}
		response, err := client.Post(h.rs.URL+"/mcp", "application/json", strings.NewReader("hello"))
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}
	for _, principal := range []string{"key|ci|1", "key|ci|2"} {
		_, _ = call(principal) // which finds out where to log in
		pending := must.Get(p.server.Begin(t.Context(), principal))(t)
		h.as.Browse(t, pending.URL(), "")
		await.Value(t, pending.Done())
		if status, err := call(principal); pending.Err() != nil || status != http.StatusOK || err != nil {
			t.Fatalf("%s: %v; %d, %v", principal, pending.Err(), status, err)
		}
	}
	tokens := h.rs.seen()
	must.Do(t, h.vault.Put(t.Context(), "login/was%20here key|ci|1", []byte("{}")))
	gone := func(_ context.Context, principals []string) ([]string, error) {
		return slices.DeleteFunc(principals, func(p string) bool { return p != "key|ci|1" }), nil
	}
	to := func(server string) *login.Server {
		if server == "notes" {
			return p.server
		}
		return nil
	}
	for _, want := range []int{2, 0} {
		if ended, err := p.logins.EndGone(t.Context(), gone, to); ended != want || err != nil {
			t.Errorf("ended %d, %v; want %d", ended, err, want)
		}
	}
	rows, err := h.vault.Names(t.Context(), "login/")
	if err != nil || !slices.Equal(rows, []string{"login/notes key|ci|2"}) {
		t.Errorf("left are %q, %v", rows, err)
	}
	if status, err := call("key|ci|1"); !errors.As(err, new(*login.Needed)) {
		t.Errorf("the principal that is gone: %d, %v", status, err)
	}
	if status, err := call("key|ci|2"); status != http.StatusOK || err != nil {
		t.Errorf("the other one: %d, %v", status, err)
	}
	if len(h.rs.scopes(t, tokens[len(tokens)-1])) == 0 {
		t.Error("the token of the other one was revoked")
	}
	if got := h.rs.scopes(t, tokens[slices.IndexFunc(tokens, func(token string) bool { return token != "" })]); len(got) > 0 {
		t.Errorf("the authorization server still takes the token, for %q", got)
	}
}
