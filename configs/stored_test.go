package configs

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/store"
	"toolfinch/store/vault"
)

// storedKey is that of the vaults in these tests.
var storedKey = strings.Repeat("ab", 32)

// secretsIn stores secrets in a folder, as toolfinch secret set does.
func secretsIn(t *testing.T, dir string, pairs ...string) {
	t.Helper()
	db := must.Get(store.Open(t.Context(), dir, slog.New(slog.DiscardHandler)))(t)
	defer db.Close()
	v := must.Get(vault.Open(db.Sealed(), vault.Options{Key: storedKey, Locks: db.Sealed().Locks()}))(t)
	for i := 0; i < len(pairs); i += 2 {
		row, err := SecretRow(pairs[i])
		if err == nil {
			err = v.Put(t.Context(), row, []byte(pairs[i+1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// opens returns an OpenVault with a key, which notes what was opened.
func opens(t *testing.T, key string, opened *[]string) OpenVault {
	return func(at Places) (*vault.Vault, func() error, error) {
		*opened = append(*opened, at.Store, at.KeyDir)
		db, err := store.OpenSealed(t.Context(), at.Store)
		if err != nil {
			return nil, nil, err
		}
		v, err := vault.Open(db.Sealed(), vault.Options{Key: key, KeyDir: at.KeyDir, ReadOnly: true})
		return v, db.Close, err
	}
}

const storedFile = `
mcp_servers:
  github:
    command: github-mcp
    args: [--token, "${secret:GITHUB}", --level, "${secret:LEVEL:-low}"]
    env: {TOKEN: "${secret:GITHUB}", PIN: "${secret:short}"}
  linear:
    url: https://linear.example/mcp
    headers: {Authorization: "Bearer ${secret:linear.key-2}"}
top_k: ${secret:K}
data_dir: ${WHERE}/data
`

func TestStoredSecretsStandInTheConfiguration(t *testing.T) {
	dir, where := write(t, "toolfinch.yaml", storedFile), t.TempDir()
	data := filepath.Join(where, "data")
	secretsIn(t, data, "GITHUB", "github-token", "short", "q~7!", "linear.key-2", "linear-token", "K", "7")
	var opened []string
	c := must.Get(loadAll(Options{Trusts: trustsAll, Dir: dir, UserDir: t.TempDir(), Env: environ("WHERE=" + where), Vault: opens(t, storedKey, &opened)}))(t)
	// The file's data_dir stands below the secrets, and is known when they are met.
	if !slices.Equal(opened, []string{data, filepath.Join(data, "keys")}) {
		t.Errorf("opened: %v", opened)
	}
	github, linear := c.Servers[0], c.Servers[1]
	if !slices.Equal(github.Args, []string{"--token", "github-token", "--level", "low"}) || github.Env["PIN"] != "q~7!" || c.TopK != 7 ||
		linear.Headers["Authorization"] != "Bearer linear-token" {
		t.Errorf("%v, %v, %v, %d", github.Args, github.Env, linear.Headers, c.TopK)
	}
	// They are masked where a server repeats them, and where they are printed.
	if !slices.Contains(github.Secrets, "github-token") || !slices.Contains(linear.Secrets, "linear-token") {
		t.Errorf("%v, %v", github.Secrets, linear.Secrets)
	}
	for _, value := range []string{"github-token", "linear-token", "q~7!"} {
		if strings.Contains(c.Resolved(), value) {
			t.Errorf("%s is shown:\n%s", value, c.Resolved())
		}
	}
	valid(t, c)
}

func TestSecretsThatCannotBeHad(t *testing.T) {
	tests := []struct {
		about, file, key, want string
		flags                  map[string]string
	}{
		{"not stored", "description: ${secret:GITHUP}", storedKey, `toolfinch.yaml:4:18: server "s": description: secret "GITHUP" is not stored (did you mean "GITHUB"? Else: toolfinch secret set GITHUP)`, nil},
		{"unlike all others", "description: ${secret:nothing}", storedKey, `secret "nothing" is not stored (toolfinch secret set nothing)`, nil},
		{"another key", "description: ${secret:GITHUB}", strings.Repeat("00", 32), `secret "GITHUB": what is stored is sealed with a key that cannot be had: MCPPROXY_VAULT_KEY has another key`, nil},
		// A default is for what is not stored, not for what cannot be read.
		{"no key, with a default", "description: ${secret:GITHUB:-none}", "", `sealed with a key that cannot be had: it was given by MCPPROXY_VAULT_KEY, which is not set`, nil},
		{"no name", "description: ${secret:a b}", storedKey, `a ${secret:...} that names no secret (letters, digits, _, - and . make the name of a secret)`, nil},
		{"empty name", "description: ${secret:}", storedKey, `a ${secret:...} that names no secret`, nil},
		{"not of the environment", "description: ${env:secret:GITHUB}", storedKey, `a ${secret:...} that names no secret`, nil},
		{"malformed key", "description: ${secret:GITHUB}", "password", `a key is 32 bytes in base64`, nil},
	}
	for _, tt := range tests {
		t.Run(tt.about, func(t *testing.T) {
			data := t.TempDir()
			secretsIn(t, data, "GITHUB", "github-token")
			dir := write(t, "toolfinch.yaml", "mcp_servers:\n  s:\n    command: x\n    "+tt.file+"\n")
			_, err := loadAll(Options{Trusts: trustsAll, Dir: dir, UserDir: t.TempDir(), Env: environ(), Flags: map[string]string{"data_dir": data}, Vault: opens(t, tt.key, new([]string))})
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "github-token") {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

// Secrets are found by the places of the store, so these have none.
func TestPlacesHaveNoSecret(t *testing.T) {
	for key, value := range map[string]string{"data_dir": "/x/${secret:A}", "store": "postgres://me:${secret:A}@db/x"} {
		dir := write(t, "toolfinch.yaml", key+": "+value+"\nmcp_servers:\n  s: {command: x, env: {A: \"${secret:A}\"}}\n")
		_, err := loadAll(Options{Trusts: trustsAll, Dir: dir, UserDir: t.TempDir(), Env: environ(), Vault: opens(t, storedKey, new([]string))})
		at := fmt.Sprintf("toolfinch.yaml:1:%d:", len(key)+3)
		if err == nil || strings.Count(err.Error(), key+" cannot have a secret in it") != 2 || !strings.Contains(err.Error(), at) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// Commands that edit need no key: a secret that another machine has is no mistake.
func TestEditingNeedsNoSecrets(t *testing.T) {
	path := filepath.Join(write(t, "toolfinch.yaml", "mcp_servers:\n  s: {command: x, env: {A: \"${secret:A}\"}}\n"), "toolfinch.yaml")
	server := must.Get(Servers(path))(t)
	server[0].Name = "other"
	if err := AddServer(path, server[0]); err != nil {
		t.Errorf("%v", err)
	}
	if set, unset, err := Variables(path); err != nil || len(set)+len(unset) != 0 {
		t.Errorf("variables of the environment: %v, %v, %v", set, unset, err)
	}
	if unset := Unset("${secret:A} ${NOT_SET_HERE}"); !slices.Equal(unset, []string{"NOT_SET_HERE"}) {
		t.Errorf("unset: %v", unset)
	}
	if text, _ := os.ReadFile(path); strings.Count(string(text), "${secret:A}") != 2 {
		t.Errorf("%s", text)
	}
}

// What is to be stored may be the very thing that the configuration lacks.
func TestPlacesNeedNoValidConfiguration(t *testing.T) {
	ours := filepath.Join(home, ".local", "share", "toolfinch")
	none := t.TempDir()
	tests := []struct {
		file, flag, data, keys, store string
	}{
		{"top_k: ${secret:A}\nnonsense: 1\n", "", "", filepath.Join(ours, "keys"), ""},
		{"data_dir: " + none + "\n", "", none, filepath.Join(none, "keys"), ""},
		{"data_dir: /elsewhere\n", none, none, filepath.Join(none, "keys"), ""},
		{"data_dir: " + none + "\nstore: postgres://a:b@${DB}/x\n", "", none, filepath.Join(none, "keys"), "postgres://a:b@db.example/x"},
		{"data_dir: [\n", none, none, filepath.Join(none, "keys"), ""},
	}
	for _, tt := range tests {
		flags := map[string]string{}
		if tt.flag != "" {
			flags["data_dir"] = tt.flag
		}
		dir := write(t, "toolfinch.yaml", tt.file)
		got, err := FindPlaces(Options{Trusts: trustsAll, Dir: dir, UserDir: t.TempDir(), Env: environ("DB=db.example"), Flags: flags})
		if err != nil || tt.data != "" && got.DataDir != tt.data || tt.data == "" && filepath.Dir(got.DataDir) != ours || got.KeyDir != tt.keys || got.Store != cmp.Or(tt.store, got.DataDir) {
			t.Errorf("%q: %+v, %v", tt.file, got, err)
		}
	}
}
