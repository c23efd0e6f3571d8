// Package authserver starts a certified authorization server (oidc-provider) for tests. It logs
// everybody in without a human. Only tests import it.
package authserver

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"toolfinch/internal/must"
)

// Settings are a server's settings. Empty ones have the defaults of testdata/node/authserver.mjs.
type Settings struct {
	Port      int      `json:"port,omitempty"`      // default: any
	Scopes    []string `json:"scopes,omitempty"`    // of every resource; default mcp:read and mcp:write
	Resources []string `json:"resources,omitempty"` // for which tokens can be requested; default any
	Algorithm string   `json:"algorithm,omitempty"` // of tokens' signatures: RS256 (default), ES256 or EdDSA
	Clients   []Client `json:"clients,omitempty"`   // registered beforehand

	Registration      *bool `json:"registration,omitempty"`      // dynamic registration; default true
	HeldToScopes      bool  `json:"heldToScopes,omitempty"`      // a client gets only scopes that it registered for
	MetadataDocuments bool  `json:"metadataDocuments,omitempty"` // client IDs can be URLs of documents
	Rotate            *bool `json:"rotate,omitempty"`            // refresh tokens; default true. Reuse of an old one revokes the grant
	Offline           bool  `json:"offline,omitempty"`           // refresh tokens only with offline_access
	Granted           bool  `json:"granted,omitempty"`           // a token request without resource gets the granted one

	Now
}

// Now are settings that can change while the server runs.
type Now struct {
	User     string              `json:"user,omitempty"`     // logged in without a login_hint; default alice
	Groups   map[string][]string `json:"groups,omitempty"`   // of users, for the claim groups
	Lifetime int                 `json:"lifetime,omitempty"` // of access tokens, in seconds; default 3600
	Opaque   *bool               `json:"opaque,omitempty"`   // access tokens are not JWTs; default false
	Deny     *bool               `json:"deny,omitempty"`     // the user says no; default false
	Skew     *int                `json:"skew,omitempty"`     // of the server's clock, in seconds
}

// Client is a registered client, with the metadata of RFC 7591.
type Client struct {
	ID              string          `json:"client_id"`
	Secret          string          `json:"client_secret,omitempty"`
	RedirectURIs    []string        `json:"redirect_uris"` // not nil
	GrantTypes      []string        `json:"grant_types,omitempty"`
	ResponseTypes   []string        `json:"response_types"` // not nil; empty without redirects
	ApplicationType string          `json:"application_type,omitempty"`
	AuthMethod      string          `json:"token_endpoint_auth_method,omitempty"`
	Keys            json.RawMessage `json:"jwks,omitempty"`
}

// Machine is a client with a token of its own, by client_credentials, with its secret in the
// Authorization header.
func Machine(id, secret string) Client {
	return Client{ID: id, Secret: secret, RedirectURIs: []string{}, ResponseTypes: []string{}, GrantTypes: []string{"client_credentials"}}
}

// Server is a running server. It ends with its test.
type Server struct {
	Issuer string

	do    func(command string, values, to any) error
	plain bool // made by New
}

// process is a server in Node.
type process struct {
	Issuer string
	mu     sync.Mutex // held over one command
	in     io.Writer
	out    *bufio.Reader
}

// Start starts a server with Node in an environment; modules is the folder of the npm packages.
func Start(t testing.TB, node, modules string, environment []string, settings Settings) *Server {
	t.Helper()
	given, err := json.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(node, filepath.Join(modules, "..", "authserver.mjs"), string(given))
	cmd.Env = environment
	cmd.Stderr = &errorsOf{t: t}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close() // closing standard input ends it
		_ = cmd.Wait()
	})
	s := &process{in: in, out: bufio.NewReader(out)}
	line, err := s.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, s)
	}
	if err != nil {
		t.Fatalf("the authorization server did not start: %v", err)
	}
	return &Server{Issuer: s.Issuer, do: s.do}
}

// Set changes the settings that are not empty.
func (s *Server) Set(t testing.TB, now Now) {
	t.Helper()
	s.command(t, "set", now, nil)
}

// Down closes the port and all connections; the server keeps its state.
func (s *Server) Down(t testing.TB) { t.Helper(); s.command(t, "down", nil, nil) }

// Up opens the port again after Down.
func (s *Server) Up(t testing.TB) { t.Helper(); s.command(t, "up", nil, nil) }

// Event is a request to the server: granted, refused (at the token endpoint), authorized, not
// authorized, registered, not registered, device, revoked.
type Event struct {
	What          string
	Client        string
	Params        map[string]any
	Error, Reason string
}

// Seen returns the events since the last call of Seen.
func (s *Server) Seen(t testing.TB) []Event {
	t.Helper()
	var events []Event
	s.command(t, "seen", nil, &events)
	return events
}

func (s *Server) command(t testing.TB, name string, values, to any) {
	t.Helper()
	if err := s.do(name, values, to); err != nil {
		t.Fatalf("authorization server: %s: %v", name, err)
	}
}

func (s *process) do(name string, values, to any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	line, err := json.Marshal(map[string]any{"command": name, "values": values})
	if err == nil {
		_, err = s.in.Write(append(line, '\n'))
	}
	if err == nil {
		line, err = s.out.ReadBytes('\n')
	}
	answer := struct {
		Result any
		Error  string
	}{Result: to}
	if err == nil {
		err = json.Unmarshal(line, &answer)
	}
	if err == nil && answer.Error != "" {
		err = errors.New(answer.Error)
	}
	return err
}

// Tokens is an answer of the token endpoint.
type Tokens struct {
	Access  string `json:"access_token"`
	Refresh string `json:"refresh_token"`
	Scope   string `json:"scope"`
	Expires int    `json:"expires_in"`
}

// Machine returns a token of a client of kind Machine, for a resource.
func (s *Server) Machine(t testing.TB, client Client, resource, scope string) string {
	t.Helper()
	form := url.Values{"grant_type": {"client_credentials"}, "resource": {resource}, "scope": {scope}}
	return s.tokens(t, client, form).Access
}

// verifier is a PKCE verifier, and challenge its S256 challenge (RFC 7636, appendix B).
const (
	verifier  = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
	challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
)

// User returns tokens of a user, for a resource. The client needs the grant type authorization_code and
// a redirect URI, at which nothing must listen.
func (s *Server) User(t testing.TB, client Client, user, resource, scope string) Tokens {
	t.Helper()
	back := client.RedirectURIs[0]
	query := url.Values{
		"client_id": {client.ID}, "response_type": {"code"}, "redirect_uri": {back}, "scope": {scope}, "resource": {resource},
		"code_challenge": {challenge}, "code_challenge_method": {"S256"}, "login_hint": {user}, "prompt": {"consent"},
	}
	final := s.Browse(t, s.Issuer+"/auth?"+query.Encode(), back)
	code := final.Query().Get("code")
	if code == "" {
		t.Fatalf("no code: %s", final)
	}
	return s.tokens(t, client, url.Values{"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {back}, "code_verifier": {verifier}, "resource": {resource}})
}

func (s *Server) tokens(t testing.TB, client Client, form url.Values) Tokens {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, s.Issuer+"/token", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth(url.QueryEscape(client.ID), url.QueryEscape(client.Secret))
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	var tokens Tokens
	if err == nil {
		err = json.Unmarshal(body, &tokens)
	}
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("the token endpoint answers %s: %s %v", response.Status, body, err)
	}
	return tokens
}

// form and input find the forms of the server's pages, which submit themselves in a browser.
var (
	form  = regexp.MustCompile(`(?s)<form[^>]* action="([^"]*)".*?</form>`)
	input = regexp.MustCompile(`<input[^>]* name="([^"]*)" value="([^"]*)"`)
)

// Browse follows a URL like a browser, with cookies, and submits the forms that it meets. It returns
// the last URL: the first one with the prefix until, if that is not empty, without requesting it.
func (s *Server) Browse(t testing.TB, from, until string) *url.URL {
	t.Helper()
	return s.BrowseIn(t, NewBrowser(), from, until)
}

// NewBrowser is a browser without cookies.
func NewBrowser() *http.Client {
	jar, _ := cookiejar.New(nil) // it never fails
	return &http.Client{Jar: jar}
}

// BrowseIn is Browse in a browser, whose cookies stay.
func (s *Server) BrowseIn(t testing.TB, browser *http.Client, from, until string) *url.URL {
	t.Helper()
	stop := func(u *url.URL) bool { return until != "" && strings.HasPrefix(u.String(), until) }
	client := &http.Client{Jar: browser.Jar, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		switch {
		case stop(r.URL):
			return http.ErrUseLastResponse
		case len(via) > 20:
			return fmt.Errorf("too many redirects, the last to %s", r.URL)
		}
		return nil
	}}
	get, err := http.NewRequest(http.MethodGet, from, nil)
	if err != nil {
		t.Fatal(err)
	}
	get.Header.Set("Accept", "text/html")
	response, err := client.Do(get)
	for {
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
		response.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if next, err := response.Location(); err == nil && stop(next) {
			return next
		}
		page := form.FindSubmatch(body)
		if page == nil {
			if response.StatusCode >= http.StatusBadRequest {
				t.Fatalf("%s answers %s: %s", response.Request.URL, response.Status, body)
			}
			return response.Request.URL
		}
		values := url.Values{}
		for _, field := range input.FindAllSubmatch(page[0], -1) {
			values.Set(string(field[1]), html.UnescapeString(string(field[2])))
		}
		action, parseErr := response.Request.URL.Parse(html.UnescapeString(string(page[1])))
		if parseErr != nil {
			t.Fatal(parseErr)
		}
		response, err = client.PostForm(action.String(), values)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// errorsOf logs the server's errors.
type errorsOf struct{ t testing.TB }

func (e *errorsOf) Write(p []byte) (int, error) {
	if text := strings.TrimSpace(string(p)); text != "" {
		e.t.Log("authorization server:", text)
	}
	return len(p), nil
}
