package proxy_test

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"toolfinch/configs"
	"toolfinch/internal/identity"
	"toolfinch/internal/must"
	"toolfinch/proxy"
	"toolfinch/store"
	"toolfinch/trust/audit"
	"toolfinch/trust/inbound"
	"toolfinch/trust/leaks"
)

// trusting is a way to serve whose cost is measured beside that of another.
type trusting struct {
	name   string
	config func(*configs.Config) (token string)
	audit  bool
	log    bool // each call has a line, as without a setting
}

// policed is a policy for all, and one that looks at the tool and the principal.
const policed = `permit (principal, action, resource);
forbid (principal, action, resource) when { resource.name like "*delete*" } unless { principal in Group::"admins" };`

// BenchmarkTrust measures what each part of trust adds to a call of 100 bytes over HTTP.
func BenchmarkTrust(b *testing.B) {
	up := newUpstream(b, 1)
	key := func(config *configs.Config) string { return benchKey(b, config) }
	token := benchIssuer(b)
	ways := []trusting{
		{name: "today"},
		{name: "again"}, // the noise
		{name: "key", config: key},
		{name: "jwt", config: token},
		{name: "policy", config: func(config *configs.Config) string {
			config.Policies = policies(b, policed)
			return ""
		}},
		{name: "audit", audit: true},
		{name: "log", log: true},
		{name: "secrets", config: func(config *configs.Config) string {
			config.Secrets = leaks.Redact
			return ""
		}},
		{name: "all", audit: true, config: func(config *configs.Config) string {
			config.Secrets, config.Policies = leaks.Redact, policies(b, policed)
			return token(config)
		}},
	}
	text := map[string]string{"text": strings.Repeat("x", 100)}
	sessions := make([]*session, len(ways))
	for i, way := range ways {
		config := &configs.Config{DataDir: b.TempDir(), TopK: 5, Routing: configs.RoutingAuto, MaxRegistered: 40}
		credentials := ""
		if way.config != nil {
			credentials = way.config(config)
		}
		var options []proxy.Option
		if way.audit {
			settings := audit.Settings{File: filepath.Join(b.TempDir(), audit.FileName), MaxSize: audit.DefaultMaxSize, MaxAge: audit.DefaultMaxAge}
			log := must.Get(audit.Open(settings, nil, slog.New(slog.DiscardHandler)))(b)
			options = append(options, proxy.WithAudit(log, settings))
		}
		if way.log {
			options = append(options, proxy.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))))
		}
		sessions[i] = newSessionAs(b, serveConfig(b, config, 1, options, up)+"/mcp", credentials)
		for range 50 {
			if _, err := sessions[i].call("up0_echo", text); err != nil {
				b.Fatalf("%s: %v", way.name, err)
			}
		}
	}
	names := make([]string, len(ways))
	for i, way := range ways {
		names[i] = way.name
	}
	takeTurns(b, names, func(i int) error {
		_, err := sessions[i].call("up0_echo", text)
		return err
	})
}

// takeTurns measures ways to do the same, call by call, so that a machine that slows down
// slows all of them: p50 of the first, and the difference of each other in µs.
func takeTurns(b *testing.B, ways []string, do func(way int) error) {
	times := make([][]time.Duration, len(ways))
	b.ResetTimer()
	for n := range b.N {
		for i := range ways {
			i = (i + n) % len(ways)
			start := time.Now()
			must.Do(b, do(i))
			times[i] = append(times[i], time.Since(start))
		}
	}
	b.StopTimer()
	first := 0.0
	for i, way := range ways {
		slices.Sort(times[i])
		p50 := float64(times[i][len(times[i])/2].Nanoseconds()) / 1000
		if i == 0 {
			first = p50
			b.ReportMetric(p50, "p50-µs")
			continue
		}
		b.ReportMetric(p50-first, way+"-µs")
	}
	b.ReportMetric(0, "ns/op")
}

// benchKey has a configuration ask for API keys, and returns one.
func benchKey(b *testing.B, config *configs.Config) string {
	db := must.Get(store.Open(b.Context(), config.DataDir, slog.New(slog.DiscardHandler)))(b)
	text, hash := inbound.NewKey()
	must.Do(b, db.Keys().Add(b.Context(), identity.Key{Name: "bench", ID: "key|bench", Hash: hash, Created: time.Now()}))
	must.Do(b, db.Close())
	config.Auth = inbound.Settings{Mode: inbound.Proof, Keys: true}
	return text
}

// benchIssuer returns what has a configuration ask for tokens of an issuer, and returns one.
func benchIssuer(b *testing.B) func(*configs.Config) string {
	const resource = "https://tools.example.com/mcp"
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		b.Fatal(err)
	}
	key := jose.JSONWebKey{Key: private, KeyID: "1", Algorithm: "RS256", Use: "sig"}
	mux := http.NewServeMux()
	issuer := httptest.NewServer(mux)
	b.Cleanup(issuer.Close)
	answer := func(path string, value any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(value) })
	}
	answer("/.well-known/openid-configuration", map[string]string{"issuer": issuer.URL, "jwks_uri": issuer.URL + "/jwks"})
	answer("/jwks", jose.JSONWebKeySet{Keys: []jose.JSONWebKey{key.Public()}})
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key}, nil)
	if err != nil {
		b.Fatal(err)
	}
	now := time.Now()
	token, err := jwt.Signed(signer).Claims(map[string]any{
		"iss": issuer.URL, "sub": "alice", "aud": resource, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(), "scope": "mcp:write", "groups": []string{"team"},
	}).Serialize()
	if err != nil {
		b.Fatal(err)
	}
	return func(config *configs.Config) string {
		config.Auth = inbound.Settings{Mode: inbound.Proof, Resource: resource, Issuers: []inbound.Issuer{{URL: issuer.URL, Algorithms: inbound.DefaultAlgorithms, AllowPrivate: true}}}
		return token
	}
}
