package inbound_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"toolfinch/internal/identity"
	"toolfinch/internal/must"
	"toolfinch/trust/inbound"
)

// faulty is an authorization server that does what a real one would not: it signs any
// claims by any key, forgets its keys, and is down on demand.
type faulty struct {
	t      testing.TB
	url    string
	server *httptest.Server

	mu     sync.Mutex // guards what follows
	keys   []jose.JSONWebKey
	down   bool
	slow   func() // nil: it answers at once; once, for introspection
	asked  int    // for its keys
	active map[string]map[string]any
}

func newFaulty(t testing.TB) *faulty {
	f := &faulty{t: t, active: map[string]map[string]any{}}
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, value any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(value)
	}
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]string{"issuer": f.url, "jwks_uri": f.url + "/jwks", "introspection_endpoint": f.url + "/introspect"})
	})
	mux.HandleFunc("/jwks", func(w http.ResponseWriter, _ *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.asked++
		set := []any{map[string]string{"kty": "new", "kid": "of another kind"}}
		for _, key := range f.keys {
			if public := key.Public(); public.Key != nil {
				set = append(set, public)
			} else {
				set = append(set, key)
			}
		}
		answer(w, map[string]any{"keys": set})
	})
	mux.HandleFunc("POST /introspect", func(w http.ResponseWriter, r *http.Request) {
		if id, secret, _ := r.BasicAuth(); id != "toolfinch" || secret != "hush" {
			http.Error(w, "who?", http.StatusUnauthorized)
			return
		}
		f.mu.Lock()
		slow := f.slow
		f.slow = nil
		f.mu.Unlock()
		if slow != nil {
			slow()
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		claims := f.active[r.FormValue("token")]
		if claims == nil {
			claims = map[string]any{"active": false}
		}
		answer(w, claims)
	})
	f.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		down := f.down
		f.mu.Unlock()
		if down {
			panic(http.ErrAbortHandler)
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(f.server.Close)
	f.url = f.server.URL
	return f
}

func (f *faulty) set(change func()) { f.mu.Lock(); defer f.mu.Unlock(); change() }

func (f *faulty) rsaKey(id string) jose.JSONWebKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		f.t.Fatal(err)
	}
	return jose.JSONWebKey{Key: key, KeyID: id, Algorithm: "RS256", Use: "sig"}
}

func (f *faulty) ecKey(id string) jose.JSONWebKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.t.Fatal(err)
	}
	return jose.JSONWebKey{Key: key, KeyID: id, Algorithm: "ES256", Use: "sig"}
}

// sign makes a token. alg "" is that of the key.
func (f *faulty) sign(key jose.JSONWebKey, typ string, claims map[string]any) string {
	f.t.Helper()
	options := (&jose.SignerOptions{}).WithType(jose.ContentType(typ)).WithHeader("kid", key.KeyID)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(key.Algorithm), Key: key.Key}, options)
	if err != nil {
		f.t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		f.t.Fatal(err)
	}
	return token
}

// signText makes a token with claims as they are written.
func (f *faulty) signText(key jose.JSONWebKey, claims string) string {
	f.t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(key.Algorithm), Key: key.Key}, (&jose.SignerOptions{}).WithHeader("kid", key.KeyID))
	if err != nil {
		f.t.Fatal(err)
	}
	signed, err := signer.Sign([]byte(claims))
	if err != nil {
		f.t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		f.t.Fatal(err)
	}
	return token
}

// claims are those of a good token for alice, with changes: nil takes a claim away.
func (f *faulty) claims(changes map[string]any) map[string]any {
	now := time.Now()
	claims := map[string]any{"iss": f.url, "sub": "alice", "aud": resource, "exp": now.Add(time.Hour).Unix(), "iat": now.Unix(),
		"scope": "mcp:read mcp:write", "groups": []string{"team", "all", "team"}}
	for name, value := range changes {
		if claims[name] = value; value == nil {
			delete(claims, name)
		}
	}
	return claims
}

// asShared is a public key as the secret of HS256.
func asShared(t testing.TB, public crypto.PublicKey) []byte {
	t.Helper()
	return must.Get(json.Marshal(jose.JSONWebKey{Key: public}))(t)
}

// resource is the URL of the root.
const resource = "https://tools.example.com/mcp"

// keyRing keeps API keys in memory.
type keyRing struct {
	mu    sync.Mutex // guards what follows
	keys  map[[32]byte]*identity.Key
	used  map[[32]byte]time.Time
	err   error
	reads int // of all
}

func (k *keyRing) All(context.Context) (all []identity.Key, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range k.keys {
		all = append(all, *key)
	}
	k.reads++
	return all, k.err
}

func (k *keyRing) Find(_ context.Context, hash [32]byte) (*identity.Key, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.keys[hash], k.err
}

func (k *keyRing) Used(_ context.Context, used map[[32]byte]time.Time) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.used = used
	return k.err
}

func (k *keyRing) add(key identity.Key) (text string) {
	text, key.Hash = inbound.NewKey()
	key.ID = "key|" + key.Name
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keys == nil {
		k.keys = map[[32]byte]*identity.Key{}
	}
	k.keys[key.Hash] = &key
	return text
}

// fail has all methods fail with err, nil for not.
func (k *keyRing) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
}

func (k *keyRing) revoke(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for hash, key := range k.keys {
		if key.Name == name {
			delete(k.keys, hash)
		}
	}
}

// clock is a time that tests move.
type clock struct {
	mu sync.Mutex // guards at
	at time.Time
}

func (c *clock) now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.at }
func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// door is a gate in front of a handler that says who comes.
type door struct {
	t    testing.TB
	gate *inbound.Gate
	url  string
	time *clock
	keys *keyRing
}

func newDoor(t testing.TB, settings inbound.Settings, change ...func(*inbound.Options)) *door {
	t.Helper()
	d := &door{t: t, time: &clock{at: time.Now()}, keys: &keyRing{}}
	options := inbound.Options{
		Settings: settings, Store: d.keys, Root: func() string { return "main" }, Log: slog.New(slog.DiscardHandler), Now: d.time.now,
		Refuse: func(w http.ResponseWriter, _ *http.Request, status int, reason string) { http.Error(w, reason, status) },
	}
	for _, f := range change {
		f(&options)
	}
	d.gate = inbound.New(options)
	mux := http.NewServeMux()
	says := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "" {
			t.Errorf("the handler sees Authorization: %s", got)
		}
		p := identity.PrincipalOf(r.Context())
		if p == nil {
			p = &identity.Principal{}
		}
		from, _ := identity.SourceOf(r.Context())
		fmt.Fprintf(w, "%s groups=%s scopes=%s from=%s", p.ID, strings.Join(p.Groups, ","), strings.Join(p.Scopes, ","), from.Address)
	})
	inPath := func(r *http.Request) inbound.Target { return inbound.Target{View: r.PathValue("view")} }
	mux.Handle("/mcp", d.gate.Enter(says, inPath))
	mux.Handle("/mcp/{view}", d.gate.Enter(says, inPath))
	mux.Handle("/sse", d.gate.Enter(says, func(*http.Request) inbound.Target { return inbound.Target{SSE: true} }))
	for _, pattern := range inbound.MetadataPatterns {
		mux.HandleFunc(pattern, d.gate.Metadata)
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	d.url = server.URL
	return d
}

// said is an answer.
type said struct {
	status    int
	body      string
	challenge string
	wait      string
	header    http.Header
}

func (d *door) ask(path, token string, header ...string) said {
	d.t.Helper()
	r, err := http.NewRequest(http.MethodGet, d.url+path, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return said{response.StatusCode, strings.TrimSpace(string(body)), response.Header.Get("WWW-Authenticate"), response.Header.Get("Retry-After"), response.Header}
}

// refused returns the reasons that were counted, with how often.
func (d *door) refused() string {
	var all []string
	for i, n := range d.gate.Counts(inbound.Refused) {
		if n > 0 {
			all = append(all, fmt.Sprintf("%s %d", inbound.Refused[i], n))
		}
	}
	return strings.Join(all, ", ")
}
