package configs

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/trust/login"
)

// aKey is a private key of nobody, made for this test.
const aKey = `{"kty":"OKP","crv":"Ed25519","d":"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}`

func TestOAuth(t *testing.T) {
	for text, want := range map[string]login.Settings{
		"oauth: auto":  {Set: true},
		"oauth: true":  {Set: true},
		"oauth: off":   {Off: true},
		"oauth: false": {Off: true}, // opencode's
		"oauth: {}":    {Set: true, Grant: login.GrantCode},
		"oauth: {client_id: a, client_secret: s3cret, scopes: [read, write], resource: none}": {
			Set: true, Grant: login.GrantCode, ClientID: "a", Secret: "s3cret", Scopes: []string{"read", "write"}, Resource: login.ResourceNone,
		},
		"oauth: {scopes: read write, allow_private: true}":                              {Set: true, Grant: login.GrantCode, Scopes: []string{"read", "write"}, AllowPrivate: true},
		"per_user: true, oauth: {grant: device}":                                        {Set: true, Grant: login.GrantDevice, PerUser: true},
		"oauth: {grant: device}, per_user: true":                                        {Set: true, Grant: login.GrantDevice, PerUser: true},
		"oauth: {clientId: a, callbackPort: 3118}":                                      {Set: true, Grant: login.GrantCode, ClientID: "a", RedirectPort: 3118},                      // Claude Code's
		"oauth: {enabled: true, clientId: a, redirectUri: 'http://localhost:7777/cb'}":  {Set: true, Grant: login.GrantCode, ClientID: "a", RedirectURL: "http://localhost:7777/cb"}, // Gemini CLI's
		"oauth: {grant: client_credentials, client_id: a, private_key: '" + aKey + "'}": {Set: true, Grant: login.GrantCredentials, ClientID: "a", PrivateKey: aKey},
		"oauth: {grant: token_exchange, client_id: a, exchange: {token_url: 'https://idp.example/token', client_id: b, subject_token: '@id.jwt'}}": {
			Set: true, Grant: login.GrantExchange, ClientID: "a", Exchange: login.Exchange{TokenURL: "https://idp.example/token", ClientID: "b", Token: "@id.jwt"},
		},
	} {
		c, err := load(t, "mcp_servers: {a: {url: 'https://a.example/mcp', "+text+"}}")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := c.Servers[0].Login
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
		printed := c.Resolved()
		if strings.Contains(string(printed), "s3cret") || strings.Contains(string(printed), "nWGxne") || strings.Contains(string(printed), "id.jwt") {
			t.Errorf("%s is printed as %s", text, printed)
		}
		if len(c.Warnings) > 0 {
			t.Errorf("%s: warnings %v", text, c.Warnings)
		}
	}
	for text, want := range map[string]string{
		"oauth: yes please":                  "oauth must be",
		"oauth: {cleint_id: a}":              `did you mean "client_id"`,
		"oauth: {client_secret: a}":          "no client_id",
		"oauth: {grant: password}":           "grant must be",
		"oauth: {grant: client_credentials}": "needs client_id",
		"oauth: {client_id: a, client_secret: b, private_key: '" + aKey + "'}":                                   "keep one",
		"oauth: {client_id: a, private_key: no-such.pem}":                                                        "cannot be read",
		"oauth: {issuer: idp.example}":                                                                           "http or https URL",
		"per_user: true, oauth: {grant: client_credentials, client_id: a, client_secret: b}":                     "contradict",
		"oauth: {grant: token_exchange, client_id: a, exchange: {client_id: b, token_url: 'https://i.example'}}": "needs exchange.subject_token",
	} {
		c, err := load(t, "mcp_servers: {a: {url: 'https://a.example/mcp', "+text+"}}")
		if err == nil && len(c.Broken) > 0 {
			err = c.Broken[0]
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestPrivateKeysAreReadFromFiles(t *testing.T) {
	dir := write(t, "toolfinch.yaml", "mcp_servers: {a: {url: 'https://a.example/mcp', oauth: {client_id: a, private_key: keys/a.json}}}")
	must.Do(t, os.Mkdir(filepath.Join(dir, "keys"), 0o700))
	for text, want := range map[string]string{aKey: "", strings.Replace(aKey, `"d"`, `"e"`, 1): "neither a PEM block nor a JWK", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n": "no key that can be read"} {
		must.Do(t, os.WriteFile(filepath.Join(dir, "keys", "a.json"), []byte(text), 0o600))
		c, err := loadAll(Options{Dir: dir, Env: environ()})
		if err == nil && len(c.Broken) > 0 {
			err = c.Broken[0]
		}
		switch {
		case want == "" && (err != nil || c.Servers[0].Login.PrivateKey != aKey):
			t.Errorf("the key is not read: %v", err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%.40s: %v, want %q", text, err, want)
		}
	}
}
