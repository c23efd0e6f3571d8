package configs

import (
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"toolfinch/configs/clients"
	"toolfinch/internal/discovery"
	"toolfinch/internal/must"
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
		"oauth: {assume_pkce: true}":                                                   {Set: true, Grant: login.GrantCode, AssumePKCE: true},
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

// Certificates are files, beside the configuration or elsewhere.
func TestCertificateFiles(t *testing.T) {
	for text, test := range map[string]struct {
		want          discovery.TLS // DIR is the folder of the configuration
		warning, fail string
	}{
		"ca_file: a.pem":                       {want: discovery.TLS{CAFile: "DIR/a.pem"}},
		"ca_file: ~/a.pem":                     {want: discovery.TLS{CAFile: "/home/finch/a.pem"}},
		"cert_file: /c.pem":                    {want: discovery.TLS{CertFile: "/c.pem"}},
		"cert_file: /c.pem, key_file: k.pem":   {want: discovery.TLS{CertFile: "/c.pem", KeyFile: "DIR/k.pem"}},
		"key_file: /k.pem":                     {fail: "key_file needs cert_file"},
		"ca_file: ''":                          {fail: "ca_file is empty"},
		"ca_file: [a.pem]":                     {fail: "ca_file must be"},
		"ca_flie: a.pem":                       {fail: `did you mean "ca_file"`},
		"url: 'http://a.example', ca_file: /a": {want: discovery.TLS{CAFile: "/a"}, warning: "not used with an http URL"},
		"command: a, url: null, cert_file: /c": {want: discovery.TLS{CertFile: "/c"}, warning: "not used with command"},
		"ca_file: '${CA:-/b.pem}'":             {want: discovery.TLS{CAFile: "/b.pem"}},
	} {
		if !strings.Contains(text, "url:") {
			text = "url: 'https://a.example/mcp', " + text
		}
		dir := write(t, "toolfinch.yaml", "mcp_servers: {a: {"+text+"}}")
		c, err := loadAll(Options{Trusts: trustsAll, Dir: dir, Env: environ()})
		if err == nil && len(c.Broken) > 0 {
			err = c.Broken[0]
		}
		if err != nil || test.fail != "" {
			if err == nil || test.fail == "" || !strings.Contains(err.Error(), test.fail) {
				t.Errorf("%s: %v, want %q", text, err, test.fail)
			}
			continue
		}
		for _, path := range []*string{&test.want.CAFile, &test.want.KeyFile} {
			*path = strings.Replace(*path, "DIR", dir, 1)
		}
		if got := c.Servers[0].TLS; got != test.want {
			t.Errorf("%s: %+v, want %+v", text, got, test.want)
		}
		if again := mustLoad(t, c.Resolved()).Servers[0].TLS; again != test.want {
			t.Errorf("%s, printed and read again: %+v", text, again)
		}
		if len(c.Warnings) > 0 != (test.warning != "") || test.warning != "" && !strings.Contains(Errors(c.Warnings).Error(), test.warning) {
			t.Errorf("%s: warnings %v", text, c.Warnings)
		}
	}
}

// A vendor's callbackPort means the address that the vendor's client uses, also after an import.
func TestCallbackPortIsTheVendors(t *testing.T) {
	path := must.Write(t, filepath.Join(t.TempDir(), "mcp.json"), `{"mcpServers": {"a": {"url": "https://a", "oauth": {"clientId": "c", "callbackPort": 3118}}}}`)
	own := filepath.Join(t.TempDir(), "toolfinch.yaml")
	files := must.Get(ClientFiles(path, clients.System{GOOS: runtime.GOOS, Env: os.LookupEnv, Dir: "/"}))(t)
	found := must.Get(ServersIn(files[0], []byte(must.Read(t, path))))(t)
	must.Do(t, AddServer(own, found[0]))
	for _, file := range []string{path, own} {
		c := must.Get(loadAll(Options{Path: file, Env: os.LookupEnv}))(t)
		if l := c.Servers[0].Login; l.ClientID != "c" || l.RedirectURL != "http://localhost:3118/callback" {
			t.Errorf("%s: %+v", filepath.Base(file), l)
		}
	}
}
