package authserver_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"toolfinch/internal/authserver"
	"toolfinch/internal/must"
	"toolfinch/internal/pipes"
)

func TestMain(m *testing.M) {
	pipes.Install()
	os.Exit(m.Run())
}

const resource = "https://tools.example.com/mcp"

// The server grants by each way that tests need: to a machine, to a user with a browser,
// to a device; and it forgets nothing while its port is closed.
func TestGrants(t *testing.T) {
	machine := authserver.Machine("ci", "a secret")
	web := authserver.Client{ID: "app", Secret: "another", RedirectURIs: []string{"http://127.0.0.1:1/back"}, ResponseTypes: []string{"code"},
		GrantTypes: []string{"authorization_code", "refresh_token"}, ApplicationType: "native"}
	device := authserver.Client{ID: "tv", RedirectURIs: []string{}, ResponseTypes: []string{}, AuthMethod: "none",
		GrantTypes: []string{"urn:ietf:params:oauth:grant-type:device_code", "refresh_token"}}
	s := authserver.New(t, authserver.Settings{
		Clients: []authserver.Client{machine, web, device},
		Now:     authserver.Now{Groups: map[string][]string{"bob": {"team"}}},
	})

	if token := s.Machine(t, machine, resource, "mcp:read"); strings.Count(token, ".") != 2 {
		t.Errorf("a machine gets %q, want a JWT", token)
	}
	tokens := s.User(t, web, "bob", resource, "mcp:read mcp:write")
	if strings.Count(tokens.Access, ".") != 2 || tokens.Refresh == "" || tokens.Scope != "mcp:read mcp:write" {
		t.Errorf("a user gets %+v", tokens)
	}
	opaque := true
	s.Set(t, authserver.Now{Opaque: &opaque})
	if token := s.Machine(t, machine, resource, "mcp:read"); strings.Contains(token, ".") {
		t.Errorf("a machine gets %q, want an opaque token", token)
	}
	opaque = false
	s.Set(t, authserver.Now{Opaque: &opaque})

	began := post(t, s.Issuer+"/device/auth", url.Values{"client_id": {"tv"}, "resource": {resource}, "scope": {"mcp:read"}})
	s.Browse(t, began["verification_uri_complete"].(string), "")
	form := url.Values{"client_id": {"tv"}, "grant_type": {"urn:ietf:params:oauth:grant-type:device_code"}, "device_code": {began["device_code"].(string)}, "resource": {resource}}
	if got := post(t, s.Issuer+"/token", form); got["access_token"] == nil || got["refresh_token"] == nil {
		t.Errorf("a device gets %v", got)
	}

	s.Down(t)
	if _, err := http.Get(s.Issuer + "/.well-known/openid-configuration"); err == nil {
		t.Error("it answers though it is down")
	}
	s.Up(t)
	if got := post(t, s.Issuer+"/token", form); got["error"] != "invalid_grant" {
		t.Errorf("a device code that was used gets %v", got)
	}
	events := s.Seen(t)
	if last := events[len(events)-1]; last.What != "refused" && last.What != "revoked" {
		t.Errorf("the last event is %+v", last)
	}
}

func post(t *testing.T, to string, form url.Values) (answer map[string]any) {
	t.Helper()
	response := must.Get(http.PostForm(to, form))(t)
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatalf("%s answers %s: %s", to, response.Status, body)
	}
	return answer
}
