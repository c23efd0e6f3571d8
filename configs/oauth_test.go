package configs

import (
	"reflect"
	"strings"
	"testing"

	"toolfinch/upstream/login"
)

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
		"oauth: {scopes: read write, allow_private: true}":                             {Set: true, Grant: login.GrantCode, Scopes: []string{"read", "write"}, AllowPrivate: true},
		"oauth: {clientId: a, callbackPort: 3118}":                                     {Set: true, Grant: login.GrantCode, ClientID: "a", RedirectURL: "http://localhost:3118/callback"}, // Claude Code's
		"oauth: {enabled: true, clientId: a, redirectUri: 'http://localhost:7777/cb'}": {Set: true, Grant: login.GrantCode, ClientID: "a", RedirectURL: "http://localhost:7777/cb"},       // Gemini CLI's
		"oauth: {grant: client_credentials, client_id: a, client_secret: b}":           {Set: true, Grant: login.GrantCredentials, ClientID: "a", Secret: "b"},
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
		if strings.Contains(string(printed), "s3cret") {
			t.Errorf("%s is printed as %s", text, printed)
		}
		if len(c.Warnings) > 0 {
			t.Errorf("%s: warnings %v", text, c.Warnings)
		}
	}
	for text, want := range map[string]string{
		"oauth: yes please":                                "oauth must be",
		"oauth: {cleint_id: a}":                            `did you mean "client_id"`,
		"oauth: {client_secret: a}":                        "no client_id",
		"oauth: {grant: password}":                         "grant must be",
		"oauth: {grant: client_credentials}":               "needs client_id",
		"oauth: {grant: client_credentials, client_id: a}": "needs client_secret",
		"oauth: {grant: token_exchange}":                   "grant must be",
		"oauth: {client_id: a, private_key: a.pem}":        "private_key",
		"oauth: {issuer: idp.example}":                     "http or https URL",
		"per_user: true, oauth: {grant: client_credentials, client_id: a, client_secret: b}": "contradict",
		"per_user: true, oauth: {grant: device_code}":                                        "contradict",
		"oauth: {grant: device_code}, per_user: true":                                        "contradict",
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
