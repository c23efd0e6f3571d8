package inbound_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"toolfinch/internal/await"
	"toolfinch/internal/identity"
	"toolfinch/internal/must"
	"toolfinch/tool"
	"toolfinch/trust/inbound"
)

var scopes = inbound.Scopes{{"mcp:read", inbound.Read}, {"mcp:write", inbound.Write}, {"mcp:admin", inbound.Destructive}}

// Each token comes with what is wrong with it. The reason is that of the metrics, the
// words are what the client is told.
func TestTokens(t *testing.T) {
	f := newFaulty(t)
	good, second, stranger := f.rsaKey("one"), f.ecKey("two"), f.rsaKey("one")
	weak := jose.JSONWebKey{Key: []byte("a secret of the whole world, in the open"), KeyID: "shared", Algorithm: "HS256"}
	f.set(func() { f.keys = []jose.JSONWebKey{good, second, weak} })
	now := time.Now()
	jwt := func(key jose.JSONWebKey, changes map[string]any) string {
		return f.sign(key, "at+jwt", f.claims(changes))
	}
	shared := func(secret []byte) string {
		return f.sign(jose.JSONWebKey{Key: secret, KeyID: "one", Algorithm: "HS256"}, "JWT", f.claims(nil))
	}
	unsigned := func(alg string, header ...any) string {
		part := func(value any) string {
			text, _ := json.Marshal(value)
			return base64.RawURLEncoding.EncodeToString(text)
		}
		head := map[string]any{"alg": alg, "typ": "JWT"}
		for i := 0; i+1 < len(header); i += 2 {
			head[header[i].(string)] = header[i+1]
		}
		return part(head) + "." + part(f.claims(nil)) + "."
	}
	twice := f.signText(good, `{"iss":"https://evil.example.com","iss":"`+f.url+`","sub":"alice"}`)
	forged := strings.Split(jwt(good, nil), ".")
	forged[1] = strings.Split(jwt(good, map[string]any{"sub": "root"}), ".")[1]

	for _, test := range []struct {
		name, token, path string
		reason            inbound.Reason // "": it is let in
		words             string         // in the answer
	}{
		{"RS256", jwt(good, nil), "/mcp", "", f.url + "|alice groups=" + f.url + "|all," + f.url + "|team scopes=mcp:read,mcp:write"},
		{"ES256", jwt(second, nil), "/mcp", "", f.url + "|alice"},
		{"typ JWT", f.sign(good, "JWT", f.claims(nil)), "/mcp", "", f.url + "|alice"},
		{"typ of its own among the claims", f.sign(good, "JWT", f.claims(map[string]any{"typ": "Bearer", "alg": "none", "kid": "two"})), "/mcp", "", f.url + "|alice"},
		{"issuer in capitals, too", jwt(good, map[string]any{"ISS": "https://evil.example.com"}), "/mcp", "", f.url + "|alice"},
		{"one of several audiences", jwt(good, map[string]any{"aud": []string{"other", resource}}), "/mcp", "", "alice"},
		{"audience with a slash", jwt(good, map[string]any{"aud": resource + "/"}), "/mcp", "", "alice"},
		{"scopes in scp, as a list", jwt(good, map[string]any{"scope": nil, "scp": []string{"mcp:read"}}), "/mcp", "", "scopes=mcp:read"},
		{"of the view", jwt(good, map[string]any{"aud": resource + "/reader"}), "/mcp/reader", "", "alice"},
		{"of the root, by its name", jwt(good, nil), "/mcp/main", "", "alice"},
		{"of the root, at /sse", jwt(good, nil), "/sse", "", "alice"},
		{"of /sse", jwt(good, map[string]any{"aud": "https://tools.example.com/sse"}), "/sse", "", "alice"},
		{"a clock that is slow by 20 s", jwt(good, map[string]any{"exp": now.Add(-20 * time.Second).Unix()}), "/mcp", "", "alice"},
		{"a clock that is fast by 20 s", jwt(good, map[string]any{"iat": now.Add(20 * time.Second).Unix(), "nbf": now.Add(20 * time.Second).Unix()}), "/mcp", "", "alice"},

		{"of another server", jwt(good, map[string]any{"aud": "https://other.example.com/mcp"}), "/mcp", inbound.WrongAudience, "for another server: ask for one with the resource " + resource},
		{"of no server", jwt(good, map[string]any{"aud": nil}), "/mcp", inbound.WrongAudience, "for another server"},
		{"of the root, for a view", jwt(good, nil), "/mcp/reader", inbound.WrongAudience, "resource " + resource + "/reader"},
		{"of a view, for the root", jwt(good, map[string]any{"aud": resource + "/reader"}), "/mcp", inbound.WrongAudience, "for another server"},
		{"of a URL that begins alike", jwt(good, map[string]any{"aud": resource + ".evil.example.com"}), "/mcp", inbound.WrongAudience, "for another server"},
		{"of another issuer", jwt(good, map[string]any{"iss": "https://evil.example.com"}), "/mcp", inbound.WrongIssuer, "an issuer that is not accepted"},
		{"of an issuer with a slash", jwt(good, map[string]any{"iss": f.url + "/"}), "/mcp", inbound.WrongIssuer, "an issuer that is not accepted"},
		{"of no issuer", jwt(good, map[string]any{"iss": nil}), "/mcp", inbound.WrongIssuer, "an issuer that is not accepted"},
		{"HS256 with the public key", shared(asShared(t, good.Public().Key)), "/mcp", inbound.WrongAlg, "algorithm"},
		{"HS256 with a secret among the keys", f.sign(weak, "JWT", f.claims(nil)), "/mcp", inbound.WrongAlg, "algorithm"},
		{"no algorithm", unsigned("none"), "/mcp", inbound.WrongAlg, "algorithm"},
		{"no algorithm, in capitals", unsigned("NONE"), "/mcp", inbound.WrongAlg, "algorithm"},
		{"no signature", unsigned("RS256"), "/mcp", inbound.WrongKey, "signature"},
		{"ES256 with the ID of an RSA key", f.sign(jose.JSONWebKey{Key: second.Key, KeyID: "one", Algorithm: "ES256"}, "JWT", f.claims(nil)), "/mcp", inbound.WrongKey, "signature"},
		{"PS256 with a key for RS256", f.sign(jose.JSONWebKey{Key: good.Key, KeyID: "one", Algorithm: "PS256"}, "JWT", f.claims(nil)), "/mcp", inbound.WrongKey, "signature"},
		{"the key of a stranger", jwt(stranger, nil), "/mcp", inbound.WrongKey, "signature"},
		{"claims of another token", strings.Join(forged, "."), "/mcp", inbound.WrongKey, "signature"},
		{"expired", jwt(good, map[string]any{"exp": now.Add(-time.Minute).Unix()}), "/mcp", inbound.Expired, "expired"},
		{"without end", jwt(good, map[string]any{"exp": nil}), "/mcp", inbound.WrongClaims, "when it expires"},
		{"an end that is no number", jwt(good, map[string]any{"exp": "2100"}), "/mcp", inbound.WrongClaims, "when it expires"},
		{"not yet valid", jwt(good, map[string]any{"nbf": now.Add(time.Minute).Unix()}), "/mcp", inbound.NotYet, "not valid yet"},
		{"issued in the future", jwt(good, map[string]any{"iat": now.Add(time.Minute).Unix()}), "/mcp", inbound.NotYet, "not valid yet"},
		{"nobody's", jwt(good, map[string]any{"sub": nil}), "/mcp", inbound.WrongClaims, "whose it is, in the claim sub"},
		{"of a name with a line break", jwt(good, map[string]any{"sub": "a\nb"}), "/mcp", inbound.WrongClaims, "whose it is"},
		{"of a name without end", jwt(good, map[string]any{"sub": strings.Repeat("a", 2000)}), "/mcp", inbound.WrongClaims, "whose it is"},
		{"bound to a key", jwt(good, map[string]any{"cnf": map[string]string{"jkt": "x"}}), "/mcp", inbound.WrongClaims, "bearer token"},
		{"a token of another kind", f.sign(good, "logout+jwt", f.claims(nil)), "/mcp", inbound.Malformed, "no access token"},
		{"a token of another kind, with a typ among the claims", f.sign(good, "logout+jwt", f.claims(map[string]any{"typ": "jwt"})), "/mcp", inbound.Malformed, "no access token"},
		{"of an issuer in capitals alone", jwt(good, map[string]any{"iss": nil, "ISS": f.url}), "/mcp", inbound.WrongIssuer, "an issuer that is not accepted"},
		{"an algorithm in capitals alone", unsigned("", "ALG", "RS256"), "/mcp", inbound.Malformed, "neither an API key nor"},
		{"two issuers", twice, "/mcp", inbound.Malformed, "neither an API key nor"},
		{"a typ that is no text", unsigned("RS256", "typ", 1), "/mcp", inbound.Malformed, "neither an API key nor"},
		{"no token", "something", "/mcp", inbound.Malformed, "neither an API key nor an access token"},
		{"an API key that is none", "tfkey_" + strings.Repeat("a", 52), "/mcp", inbound.UnknownKey, "not known"},
		{"very long", strings.Repeat("a", 20<<10), "/mcp", inbound.Malformed, "too long"},
		{"without a known scope", jwt(good, map[string]any{"scope": "openid"}), "/mcp", inbound.NoScope, `needs the scope "mcp:read"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newDoor(t, inbound.Settings{Mode: inbound.Proof, Keys: true, Resource: resource, Issuers: []inbound.Issuer{{URL: f.url}}, Scopes: scopes})
			for range 2 { // the second time it may be remembered
				got := d.ask(test.path, test.token)
				status := http.StatusOK
				switch test.reason {
				case "":
				case inbound.NoScope:
					status = http.StatusForbidden
				default:
					status = http.StatusUnauthorized
				}
				if got.status != status || !strings.Contains(got.body, test.words) {
					t.Fatalf("%d %s, want %d with %q", got.status, got.body, status, test.words)
				}
				if status == http.StatusUnauthorized && !strings.Contains(got.challenge, `error="invalid_token"`) {
					t.Errorf("the challenge is %s", got.challenge)
				}
			}
			if want := string(test.reason) + " 2"; test.reason != "" && d.refused() != want {
				t.Errorf("counted: %s, want %s", d.refused(), want)
			}
		})
	}
}

// What a client learns that has no token: where to get one, for this very URL.
func TestChallengesLeadToATokenForThisServer(t *testing.T) {
	f := newFaulty(t)
	issuers := []inbound.Issuer{{URL: f.url}, {URL: "https://idp.example.com"}}
	public := newDoor(t, inbound.Settings{Mode: inbound.Proof, Resource: resource, Issuers: issuers, Scopes: scopes})
	local := newDoor(t, inbound.Settings{Mode: inbound.Proof, Issuers: issuers})
	odd := newDoor(t, inbound.Settings{Mode: inbound.Proof, Resource: "https://example.com/tools/", Issuers: issuers})
	for _, test := range []struct {
		door           *door
		path, metadata string // of a request, and where the challenge leads
		at, resource   string // where the metadata is here, and what it is about
	}{
		{public, "/mcp", "https://tools.example.com/.well-known/oauth-protected-resource/mcp", "/mcp", resource},
		{public, "/mcp/reader", "https://tools.example.com/.well-known/oauth-protected-resource/mcp/reader", "/mcp/reader", resource + "/reader"},
		{public, "/mcp/not%20there", "https://tools.example.com/.well-known/oauth-protected-resource/mcp/not%20there", "/mcp/not%20there", resource + "/not%20there"},
		{public, "/sse", "https://tools.example.com/.well-known/oauth-protected-resource/sse", "/sse", "https://tools.example.com/sse"},
		{public, "/mcp", "https://tools.example.com/.well-known/oauth-protected-resource/mcp", "", resource},
		{local, "/mcp/reader", local.url + "/.well-known/oauth-protected-resource/mcp/reader", "/mcp/reader", local.url + "/mcp/reader"},
		{odd, "/mcp/reader", "https://example.com/.well-known/oauth-protected-resource/tools/reader", "/tools/reader", "https://example.com/tools/reader"},
		{odd, "/mcp", "https://example.com/.well-known/oauth-protected-resource/tools", "/mcp", "https://example.com/tools/"},
	} {
		got := test.door.ask(test.path, "")
		want := `Bearer resource_metadata="` + test.metadata + `"`
		if test.door == public {
			want += `, scope="mcp:read"`
		}
		if got.status != http.StatusUnauthorized || got.challenge != want || !strings.Contains(got.body, "Authorization: Bearer") {
			t.Errorf("%s: %d %s %s\nwant %s", test.path, got.status, got.challenge, got.body, want)
		}
		about := struct {
			Resource string   `json:"resource"`
			Servers  []string `json:"authorization_servers"`
			Scopes   []string `json:"scopes_supported"`
			Methods  []string `json:"bearer_methods_supported"`
		}{}
		read := test.door.ask("/.well-known/oauth-protected-resource"+test.at, "")
		if err := json.Unmarshal([]byte(read.body), &about); err != nil {
			t.Fatalf("%s: %d %s", test.at, read.status, read.body)
		}
		if about.Resource != test.resource || !slices.Equal(about.Servers, []string{f.url, "https://idp.example.com"}) || !slices.Equal(about.Methods, []string{"header"}) {
			t.Errorf("%s: %+v", test.at, about)
		}
		if test.door == public && !slices.Equal(about.Scopes, []string{"mcp:read", "mcp:write", "mcp:admin"}) {
			t.Errorf("scopes: %v", about.Scopes)
		}
	}
	for _, path := range []string{"/a/b/c", "/api", "/mcp/a/b"} {
		if got := public.ask("/.well-known/oauth-protected-resource"+path, ""); got.status != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	keys := newDoor(t, inbound.Settings{Mode: inbound.Proof, Keys: true})
	if got := keys.ask("/mcp", ""); got.challenge != `Bearer realm="toolfinch"` || !strings.Contains(got.body, "API key") {
		t.Errorf("with keys alone: %+v", got)
	}
	if got := keys.ask("/.well-known/oauth-protected-resource/mcp", ""); got.status != http.StatusNotFound {
		t.Errorf("with keys alone there is metadata: %s", got.body)
	}
}

// Without a configured URL, a token for another server of this machine is not one for this
// server because a client says so in Host.
func TestNobodySaysThatThisIsAnotherServer(t *testing.T) {
	f := newFaulty(t)
	key := f.rsaKey("one")
	f.set(func() { f.keys = []jose.JSONWebKey{key} })
	open := newDoor(t, inbound.Settings{Mode: inbound.Proof, Keys: true, Issuers: []inbound.Issuer{{URL: f.url}}})
	named := newDoor(t, inbound.Settings{Mode: inbound.Proof, Resource: resource, Issuers: []inbound.Issuer{{URL: f.url}}})
	other := newDoor(t, inbound.Settings{Mode: inbound.Proof, Issuers: []inbound.Issuer{{URL: f.url, Audiences: []string{"api"}}}})
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(open.url, "http://"))
	for _, test := range []struct {
		door      *door
		host, aud string
		status    int
	}{
		{open, "127.0.0.1:" + port, "http://127.0.0.1:" + port + "/mcp", 200},
		{open, "localhost:" + port, "http://localhost:" + port + "/mcp", 200},
		{open, "tools.localhost:" + port, "http://tools.localhost:" + port + "/mcp", 200},
		{open, "localhost:" + port, "http://127.0.0.1:" + port + "/mcp", 401},
		{open, "localhost:9", "http://localhost:9/mcp", 421},
		{open, "127.0.0.1:9", "http://127.0.0.1:9/mcp", 421},
		{open, "localhost", "http://localhost/mcp", 421},
		{open, "127.0.0.2:" + port, "http://127.0.0.2:" + port + "/mcp", 421},
		{open, "10.0.0.1:" + port, "http://10.0.0.1:" + port + "/mcp", 421},
		{open, "[::1]:" + port, "http://[::1]:" + port + "/mcp", 421},
		{named, "localhost:9", resource, 200},
		{named, "localhost:9", "http://localhost:9/mcp", 401},
		{other, "localhost:9", "api", 200},
	} {
		got := test.door.ask("/mcp", f.sign(key, "at+jwt", f.claims(map[string]any{"aud": test.aud})), "Host", test.host)
		if got.status != test.status || got.status == 421 && (!strings.Contains(got.body, "auth.resource") || got.challenge != "") {
			t.Errorf("Host %s, a token for %s: %d %s %s", test.host, test.aud, got.status, got.body, got.challenge)
		}
	}
	if got := open.ask("/mcp", open.keys.add(identity.Key{Name: "ci"}), "Host", "localhost:9"); got.status != http.StatusOK {
		t.Errorf("an API key: %d %s", got.status, got.body)
	}
}

func TestCredentialsAreSentInOneHeader(t *testing.T) {
	d := newDoor(t, inbound.Settings{Mode: inbound.Proof, Keys: true})
	key := d.keys.add(identity.Key{Name: "ci"})
	if got := d.ask("/mcp", key); got.status != http.StatusOK || !strings.HasPrefix(got.body, "key|ci ") {
		t.Fatalf("the key: %d %s", got.status, got.body)
	}
	for _, query := range []string{"?access_token=" + key, "?token=" + key, "?api_key=" + key, "?x=1&apikey=" + key} {
		for _, token := range []string{"", key} {
			if got := d.ask("/mcp"+query, token); got.status != http.StatusBadRequest || strings.Contains(got.body, key) || !strings.Contains(got.body, "in the URL are refused") {
				t.Errorf("%s: %d %s", query, got.status, got.body)
			}
		}
	}
	for _, header := range [][]string{
		{"Authorization", "Bearer"}, {"Authorization", "Bearer " + key + " more"},
		{"Authorization", "Bearer " + key, "Authorization", "Bearer " + key}, {"Authorization", "Bearer x, Bearer " + key},
		{"Authorization", "Basic x", "Authorization", "Bearer " + key},
	} {
		if got := d.ask("/mcp", "", header...); got.status != http.StatusBadRequest || !strings.Contains(got.challenge, `error="invalid_request"`) {
			t.Errorf("%q: %d %s", header, got.status, got.challenge)
		}
	}
	for _, header := range []string{key, "Basic " + key, "Digest username=x, realm=y", ""} {
		if got := d.ask("/mcp", "", "Authorization", header); got.status != http.StatusUnauthorized || got.challenge != `Bearer realm="toolfinch"` {
			t.Errorf("another scheme, %q: %d %s", header, got.status, got.challenge)
		}
	}
	if got := d.ask("/mcp", "", "Authorization", "bearer "+key); got.status != http.StatusOK {
		t.Errorf("in small letters: %d %s", got.status, got.body)
	}
	if got := d.ask("/mcp", "", "X-Api-Key", key); got.status != http.StatusUnauthorized || got.challenge != `Bearer realm="toolfinch"` {
		t.Errorf("in another header: %+v", got)
	}
}

// A key that was made, revoked, or has expired is noticed within a second; the second look
// here is past that.
func TestKeysAreLookedUp(t *testing.T) {
	d := newDoor(t, inbound.Settings{Mode: inbound.Proof, Keys: true})
	wants := func(what, path, key string, status int, words string) {
		t.Helper()
		if got := d.ask(path, key); got.status != status || !strings.Contains(got.body, words) {
			t.Errorf("%s: %d %s, want %d %s", what, got.status, got.body, status, words)
		}
	}
	brief := d.keys.add(identity.Key{Name: "brief", Expires: d.time.now().Add(time.Minute)})
	bound := d.keys.add(identity.Key{Name: "bound", View: "reader", Scopes: []string{"a", "b"}, Groups: []string{"g"}})
	root := d.keys.add(identity.Key{Name: "root", View: "main"})
	wants("a key", "/mcp", brief, 200, "key|brief ")
	wants("a key of a view", "/mcp/reader", bound, 200, "key|bound groups=key|g scopes=a,b")
	for _, path := range []string{"/mcp", "/mcp/main", "/mcp/other", "/sse"} {
		wants("a key of a view, elsewhere", path, bound, 403, `for the view "reader" alone: connect to /mcp/reader`)
	}
	for _, path := range []string{"/mcp", "/mcp/main", "/sse"} {
		wants("a key of the view that the root serves", path, root, 200, "key|root")
	}
	wants("a key of the view that the root serves, elsewhere", "/mcp/reader", root, 403, "alone")

	d.time.add(2 * time.Minute)
	wants("expired", "/mcp", brief, 401, "expired")
	d.keys.revoke("bound")
	d.time.add(2 * time.Second)
	wants("revoked", "/mcp/reader", bound, 401, "revoked")

	wants("a key", "/mcp", root, 200, "key|root")
	d.keys.mu.Lock()
	d.keys.err = errors.New("the disk is full")
	d.keys.mu.Unlock()
	d.time.add(2 * time.Second)
	wants("while the store fails", "/mcp", root, 200, "key|root")
	d.time.add(20 * time.Minute)
	if got := d.ask("/mcp", root); got.status != http.StatusServiceUnavailable || got.wait == "" || strings.Contains(got.body, "disk") {
		t.Errorf("while the store fails for long: %+v", got)
	}
}

// Keys of the issuer change while it runs, it goes away and comes back; strangers cannot
// make anybody ask it often.
func TestKeysOfAnIssuerChange(t *testing.T) {
	f := newFaulty(t)
	one, two, three := f.rsaKey("one"), f.rsaKey("two"), f.rsaKey("three")
	f.set(func() { f.keys = []jose.JSONWebKey{one} })
	d := newDoor(t, inbound.Settings{Mode: inbound.Proof, Resource: resource, Issuers: []inbound.Issuer{{URL: f.url}}})
	user := 0
	wants := func(what string, key jose.JSONWebKey, status int) {
		t.Helper()
		user++ // none is remembered
		token := f.sign(key, "at+jwt", f.claims(map[string]any{"jti": user, "exp": d.time.now().Add(time.Hour).Unix()}))
		if got := d.ask("/mcp", token); got.status != status {
			t.Errorf("%s: %d %s, want %d", what, got.status, got.body, status)
		}
	}
	asked := func() (n int) { f.set(func() { n, f.asked = f.asked, 0 }); return n }

	f.set(func() { f.down = true })
	wants("before its keys were ever had", one, 503)
	f.set(func() { f.down = false })
	wants("at once after that", one, 503)
	d.time.add(10 * time.Second)
	wants("a while after that", one, 200)
	if n := asked(); n != 1 {
		t.Errorf("asked %d times for keys", n)
	}
	for range 10 {
		wants("a key that is not known", two, 401)
	}
	if n := asked(); n != 0 {
		t.Errorf("asked %d times for a key that is not known, within a minute", n)
	}
	f.set(func() { f.keys = []jose.JSONWebKey{one, two} })
	d.time.add(2 * time.Minute) // which also lets failures be forgotten
	wants("a new key", two, 200)
	if n := asked(); n != 1 {
		t.Errorf("asked %d times for a new key", n)
	}
	f.set(func() { f.down = true })
	d.time.add(2 * time.Minute)
	wants("while it is down", one, 200)
	wants("a key that is not known, while it is down", three, 401)
	wants("after that", two, 200)
	f.set(func() { f.down, f.keys = false, []jose.JSONWebKey{three} })
	d.time.add(2 * time.Minute)
	wants("back, with another key", three, 200)
	wants("by a key that was taken back", one, 401)
}

func TestOpaqueTokensAreAskedFor(t *testing.T) {
	f := newFaulty(t)
	f.set(func() { f.keys = []jose.JSONWebKey{f.rsaKey("one")} })
	d := newDoor(t, inbound.Settings{Mode: inbound.Proof, Resource: resource, Issuers: []inbound.Issuer{{
		URL: f.url, Introspect: inbound.Introspection{ClientID: "toolfinch", ClientSecret: "hush"},
		Claims: inbound.Claims{Principal: "user.name", Groups: "user.roles"},
	}}})
	user := map[string]any{"name": "alice", "roles": []string{"team"}}
	grant := func(token string, changes map[string]any) {
		claims := f.claims(map[string]any{"active": true, "user": user})
		for name, value := range changes {
			claims[name] = value
		}
		f.set(func() { f.active[token] = claims })
	}
	grant("good", nil)
	grant("other", map[string]any{"aud": "https://other.example.com"})
	grant("foreign", map[string]any{"iss": "https://other.example.com"})
	grant("old", map[string]any{"exp": time.Now().Add(-time.Hour).Unix()})
	for token, want := range map[string]string{
		"good": "200 " + f.url + "|alice groups=" + f.url + "|team", "other": "401 the token is for another server", "foreign": "401 the token is of another issuer",
		"old": "401 the token has expired", "unknown": "401 the token is not active",
	} {
		got := d.ask("/mcp", token)
		status, words, _ := strings.Cut(want, " ")
		if http.StatusText(got.status) == "" || !strings.HasPrefix(want, status) || !strings.Contains(got.body, words) {
			t.Errorf("%s: %d %s, want %s", token, got.status, got.body, want)
		}
	}
	f.set(func() { delete(f.active, "good") })
	if got := d.ask("/mcp", "good"); got.status != http.StatusOK {
		t.Errorf("within a minute: %d %s", got.status, got.body)
	}
	d.time.add(2 * time.Minute)
	if got := d.ask("/mcp", "good"); got.status != http.StatusUnauthorized {
		t.Errorf("after it was revoked: %d %s", got.status, got.body)
	}
	f.set(func() { f.down = true })
	if got := d.ask("/mcp", "new"); got.status != http.StatusServiceUnavailable || got.wait == "" {
		t.Errorf("while the issuer is down: %+v", got)
	}
}

// An issuer's documents are not believed blindly.
func TestDocumentsOfIssuers(t *testing.T) {
	for name, document := range map[string]func(f *faulty) string{
		"of another issuer": func(f *faulty) string {
			return `{"issuer":"https://other.example.com","jwks_uri":"` + f.url + `/jwks"}`
		},
		"keys over plain HTTP":  func(f *faulty) string { return `{"issuer":"` + f.url + `","jwks_uri":"http://10.0.0.1/jwks"}` },
		"keys at a private one": func(f *faulty) string { return `{"issuer":"` + f.url + `","jwks_uri":"https://169.254.169.254/jwks"}` },
		"without keys":          func(f *faulty) string { return `{"issuer":"` + f.url + `"}` },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFaulty(t)
			key := f.rsaKey("one")
			f.set(func() { f.keys = []jose.JSONWebKey{key} })
			token := f.sign(key, "at+jwt", f.claims(nil))
			f.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.URL.Path, "/.well-known/") {
					_, _ = w.Write([]byte(document(f)))
					return
				}
				t.Errorf("%s was asked for", r.URL)
			})
			d := newDoor(t, inbound.Settings{Mode: inbound.Proof, Resource: resource, Issuers: []inbound.Issuer{{URL: f.url}}})
			if got := d.ask("/mcp", token); got.status != http.StatusServiceUnavailable {
				t.Errorf("%d %s", got.status, got.body)
			}
		})
	}
}

func TestWhoFailsOftenWaits(t *testing.T) {
	d := newDoor(t, inbound.Settings{Mode: inbound.Proof, Keys: true})
	known, later := d.keys.add(identity.Key{Name: "known"}), d.keys.add(identity.Key{Name: "later"})
	if got := d.ask("/mcp", known); got.status != http.StatusOK {
		t.Fatal(got)
	}
	statuses := map[int]int{}
	var last said
	for range 40 {
		last = d.ask("/mcp", "tfkey_guess")
		statuses[last.status]++
	}
	if statuses[401] != 30 || statuses[429] != 10 || last.wait != "2" || !strings.Contains(last.body, "the limit is 30") {
		t.Errorf("%v, the last %+v", statuses, last)
	}
	if got := d.ask("/mcp", later); got.status != http.StatusTooManyRequests {
		t.Errorf("a key that is not known to be good: %d", got.status)
	}
	d.time.add(2 * time.Second)
	if got := d.ask("/mcp", known); got.status != http.StatusOK {
		t.Errorf("a key that is known: %d %s", got.status, got.body)
	}
	if got := d.ask("/mcp", later); got.status != http.StatusOK {
		t.Errorf("after a while: %d %s", got.status, got.body)
	}
	if hits := d.gate.Limits()[0].Hits(); hits != 11 {
		t.Errorf("%d hits are counted", hits)
	}
}

// Who fails at an address does not keep others out that are there: their signed tokens are
// verified, and opaque ones that were good are asked for again.
func TestWhoFailsKeepsNoTokensOut(t *testing.T) {
	f := newFaulty(t)
	key, stranger := f.rsaKey("one"), f.rsaKey("one")
	f.set(func() { f.keys = []jose.JSONWebKey{key} })
	f.set(func() { f.active["good"] = f.claims(map[string]any{"active": true}) })
	f.set(func() { f.active["new"] = f.active["good"] })
	d := newDoor(t, inbound.Settings{Mode: inbound.Proof, Resource: resource, Issuers: []inbound.Issuer{{
		URL: f.url, Introspect: inbound.Introspection{ClientID: "toolfinch", ClientSecret: "hush"},
	}}})
	forged := f.sign(stranger, "at+jwt", f.claims(nil))
	signed := f.sign(key, "at+jwt", f.claims(nil))
	if got := d.ask("/mcp", "good"); got.status != http.StatusOK {
		t.Fatal(got)
	}
	d.time.add(2 * time.Minute)
	for i := range 40 {
		want := http.StatusUnauthorized
		if i >= 30 {
			want = http.StatusTooManyRequests
		}
		token := forged
		if i%2 == 0 {
			token = "unknown"
		}
		if got := d.ask("/mcp", token); got.status != want {
			t.Fatalf("failure %d: %+v, want %d", i, got, want)
		}
	}
	for _, test := range []struct {
		name, token string
		status      int
	}{
		{"a signed token that was never seen", signed, 200},
		{"an opaque one that was good", "good", 200},
		{"an opaque one that was never seen", "new", 429},
	} {
		if got := d.ask("/mcp", test.token); got.status != test.status {
			t.Errorf("%s: %d %s", test.name, got.status, got.body)
		}
	}
	f.set(func() { delete(f.active, "good") })
	d.time.add(2 * time.Minute)
	if got := d.ask("/mcp", "good"); got.status != http.StatusUnauthorized {
		t.Errorf("an opaque one that was revoked: %+v", got)
	}
}

// An issuer that is asked for a token of another could use it.
func TestAnOpaqueTokenGoesToOneIssuer(t *testing.T) {
	f, other := newFaulty(t), newFaulty(t)
	for _, issuer := range []*faulty{f, other} {
		issuer.set(func() { issuer.keys = []jose.JSONWebKey{issuer.rsaKey("one")} })
	}
	asking := inbound.Introspection{ClientID: "toolfinch", ClientSecret: "hush"}
	d := newDoor(t, inbound.Settings{Mode: inbound.Proof, Resource: resource, Issuers: []inbound.Issuer{
		{URL: f.url, Introspect: asking}, {URL: other.url, Introspect: asking},
	}})
	other.set(func() { other.slow = func() { t.Error("the second issuer saw the token") } })
	if got := d.ask("/mcp", "opaque"); got.status != http.StatusUnauthorized {
		t.Errorf("a token that the first does not know: %d %s", got.status, got.body)
	}
}

// While an issuer is slow, so many requests wait for it and no more; those with a key that is
// known do not.
func TestFewWaitForASlowIssuer(t *testing.T) {
	f := newFaulty(t)
	key, later := f.rsaKey("one"), f.rsaKey("two")
	f.set(func() { f.keys = []jose.JSONWebKey{key} })
	d := newDoor(t, inbound.Settings{Mode: inbound.Proof, Resource: resource, Issuers: []inbound.Issuer{{
		URL: f.url, Introspect: inbound.Introspection{ClientID: "toolfinch", ClientSecret: "hush"},
	}}})
	if got := d.ask("/mcp", f.sign(key, "at+jwt", f.claims(nil))); got.status != http.StatusOK {
		t.Fatal(got)
	}
	waiting := d.gate.Limits()[1]
	must.Do(t, waiting.Take(waiting.Max()-1))
	defer waiting.Release(waiting.Max() - 1)
	asked, answer := make(chan struct{}), make(chan struct{})
	f.set(func() { f.slow = func() { close(asked); <-answer } })
	done := make(chan said)
	go func() { done <- d.ask("/mcp", "opaque") }()
	await.Value(t, asked)
	for name, token := range map[string]string{"an opaque token": "other", "a token of a key that is not known": f.sign(later, "at+jwt", f.claims(nil))} {
		got := d.ask("/mcp", token)
		if got.status != http.StatusServiceUnavailable || got.wait == "" || !strings.Contains(got.body, "too many requests wait for an identity provider: the limit is 256") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := d.ask("/mcp", f.sign(key, "at+jwt", f.claims(map[string]any{"jti": "other"}))); got.status != http.StatusOK {
		t.Errorf("a token of a key that is known: %+v", got)
	}
	close(answer)
	if got := await.Value(t, done); got.status != http.StatusUnauthorized || waiting.Used() != waiting.Max()-1 {
		t.Errorf("what waited: %+v, %d wait", got, waiting.Used())
	}
}

// A header says who is calling only where a proxy that is believed sends it, and once.
func TestProxiesAreBelieved(t *testing.T) {
	open := inbound.Settings{Mode: inbound.None}
	here := newDoor(t, open, func(o *inbound.Options) { o.Header = "X-User" })
	elsewhere := newDoor(t, open, func(o *inbound.Options) {
		o.Header, o.Proxies = "X-User", []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	})
	nobody := newDoor(t, open, func(o *inbound.Options) { o.Header, o.Proxies = "X-User", []netip.Prefix{} })
	long := strings.Repeat("x", 1024)
	for _, test := range []struct {
		door   *door
		header []string
		want   string // the ID and the address
	}{
		{here, []string{"X-User", "ann"}, "ann from=127.0.0.1"},
		{here, []string{"x-user", long}, long + " from=127.0.0.1"},
		{here, []string{"X-User", long + "x"}, "from=127.0.0.1"},
		{here, []string{"X-User", "ann", "X-User", "ann"}, "from=127.0.0.1"},
		{here, []string{"X-User", ""}, "from=127.0.0.1"},
		{here, []string{"X-User", "key|ann"}, "from=127.0.0.1"},
		{here, []string{"X-User", "stdio|owner"}, "from=127.0.0.1"},
		{here, nil, "from=127.0.0.1"},
		{here, []string{"X-User", "ann", "X-Forwarded-For", "8.8.8.8, 9.9.9.9"}, "ann from=9.9.9.9"},
		{here, []string{"X-Forwarded-For", "8.8.8.8, 127.0.0.2"}, "from=8.8.8.8"},
		{here, []string{"X-Forwarded-For", "8.8.8.8, no address"}, "from=127.0.0.1"},
		{elsewhere, []string{"X-User", "ann", "X-Forwarded-For", "8.8.8.8"}, "from=127.0.0.1"},
		{nobody, []string{"X-User", "ann", "X-Forwarded-For", "8.8.8.8"}, "from=127.0.0.1"},
	} {
		got := test.door.ask("/mcp", "", test.header...)
		if told := strings.Replace(got.body, "groups= scopes= ", "", 1); got.status != http.StatusOK || told != test.want {
			t.Errorf("%.80q: %d %.80s, want %.80s", test.header, got.status, got.body, test.want)
		}
	}
	proof := newDoor(t, inbound.Settings{Mode: inbound.Proof, Keys: true}, func(o *inbound.Options) { o.Header = "X-User" })
	if got := proof.ask("/mcp", "", "X-User", "ann"); got.status != http.StatusUnauthorized {
		t.Errorf("a header in place of a key: %d %s", got.status, got.body)
	}
}

func TestWhatAScopeAllows(t *testing.T) {
	def := func(annotations string) *tool.Def {
		return must.Get(tool.ParseDef("s", []byte(`{"name":"t","inputSchema":{}`+annotations+`}`)))(t)
	}
	for _, test := range []struct {
		annotations string
		level       inbound.Level
	}{
		{``, inbound.Write},
		{`,"annotations":{}`, inbound.Write},
		{`,"annotations":{"title":"Delete all"}`, inbound.Write},
		{`,"annotations":{"readOnlyHint":true}`, inbound.Read},
		{`,"annotations":{"readOnlyHint":true,"destructiveHint":true}`, inbound.Read},
		{`,"annotations":{"readOnlyHint":"true"}`, inbound.Write},
		{`,"annotations":{"destructiveHint":true}`, inbound.Destructive},
		{`,"annotations":{"destructiveHint":false}`, inbound.Write},
	} {
		if got := inbound.LevelOf(def(test.annotations)); got != test.level {
			t.Errorf("%s is %s, want %s", test.annotations, got, test.level)
		}
	}
	for _, test := range []struct {
		scopes []string
		level  inbound.Level
		needed string // "": allowed
		ask    string
	}{
		{[]string{"mcp:read"}, inbound.Read, "", ""},
		{[]string{"mcp:admin"}, inbound.Read, "", ""},
		{[]string{"mcp:admin"}, inbound.Destructive, "", ""},
		{[]string{"other", "mcp:write"}, inbound.Write, "", ""},
		{[]string{"mcp:read"}, inbound.Write, "mcp:write", "mcp:read mcp:write"},
		{[]string{"mcp:read", "mcp:write"}, inbound.Destructive, "mcp:admin", "mcp:read mcp:write mcp:admin"},
		{[]string{"other"}, inbound.Write, "mcp:write", "mcp:write"},
		{nil, inbound.Read, "mcp:read", "mcp:read"},
	} {
		err := scopes.Check(&identity.Principal{ID: "i|s", Scopes: test.scopes}, test.level, "calling t")
		var lacks *identity.ScopeError
		if errors.As(err, &lacks) != (test.needed != "") || lacks != nil && (lacks.Needed != test.needed || strings.Join(lacks.Ask, " ") != test.ask) {
			t.Errorf("%v, %s: %v", test.scopes, test.level, err)
		}
	}
	writer := &identity.Principal{ID: "i|s", Scopes: []string{"mcp:write"}}
	if err := scopes[:2].Check(writer, inbound.Destructive, "x"); err != nil {
		t.Errorf("no scope is for what destroys: %v", err)
	}
	if err := scopes[:1].Check(writer, inbound.Write, "calling t"); err == nil || err.Error() != "calling t is not allowed here: the configuration has no scope for it (auth.scopes)" {
		t.Errorf("no scope is for writing: %v", err)
	}
	if err := scopes.Check(nil, inbound.Destructive, "x"); err != nil {
		t.Errorf("the owner, on stdio: %v", err)
	}
	if err := (inbound.Scopes)(nil).Check(&identity.Principal{}, inbound.Destructive, "x"); err != nil {
		t.Errorf("without scopes: %v", err)
	}
}

func TestOnlyThisMachineComesInUnasked(t *testing.T) {
	at := func(network, address string) net.Addr {
		if network == "unix" {
			return &net.UnixAddr{Name: address, Net: network}
		}
		return must.Get(net.ResolveTCPAddr(network, address))(t)
	}
	for _, test := range []struct {
		network, address string
		mode             inbound.Mode
		refused          bool
	}{
		{"tcp", "127.0.0.1:8080", inbound.Unsaid, false},
		{"tcp", "[::1]:8080", inbound.Unsaid, false},
		{"unix", "/run/toolfinch.sock", inbound.Unsaid, false},
		{"tcp", "0.0.0.0:8080", inbound.Unsaid, true},
		{"tcp", "[::]:8080", inbound.Unsaid, true},
		{"tcp", "192.168.1.5:8080", inbound.Unsaid, true},
		{"tcp", "0.0.0.0:8080", inbound.None, false},
		{"tcp", "0.0.0.0:8080", inbound.Proof, false},
	} {
		err := inbound.Settings{Mode: test.mode}.CheckListener(at(test.network, test.address))
		if (err != nil) != test.refused || err != nil && !strings.Contains(err.Error(), "auth: none") {
			t.Errorf("%s with auth %q: %v", test.address, test.mode, err)
		}
	}
}

// The time of the last use is noted while the gate runs, at the latest at its end.
func TestUsesOfKeysAreNoted(t *testing.T) {
	d := newDoor(t, inbound.Settings{Mode: inbound.Proof, Keys: true})
	key := d.keys.add(identity.Key{Name: "ci"})
	d.keys.add(identity.Key{Name: "idle"})
	d.ask("/mcp", key)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	d.gate.Run(ctx)
	d.keys.mu.Lock()
	defer d.keys.mu.Unlock()
	if len(d.keys.used) != 1 {
		t.Errorf("noted: %v", d.keys.used)
	}
}

// A key that nobody has used here counts while the store is away.
func TestKeysAreKnownFromTheStart(t *testing.T) {
	d := newDoor(t, inbound.Settings{Mode: inbound.Proof, Keys: true}, func(*inbound.Options) {})
	key := d.keys.add(identity.Key{Name: "ann"})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	d.gate.Run(ctx)
	d.keys.fail(errors.New("away"))
	d.time.add(time.Minute)
	if got := d.ask("/mcp", key); got.status != http.StatusOK {
		t.Errorf("a known key, without the store: %d %s", got.status, got.body)
	}
}

// Once another process has made or revoked some key, all are learned again: who is idle counts while the
// store is away, and who was revoked does not.
func TestKeysAreKnownAgainOnceSomeChange(t *testing.T) {
	d := newDoor(t, inbound.Settings{Mode: inbound.Proof, Keys: true}, func(o *inbound.Options) { o.Heard = func() bool { return false } })
	idle, revoked := d.keys.add(identity.Key{Name: "idle"}), d.keys.add(identity.Key{Name: "revoked"})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); d.gate.Run(ctx) }()
	defer func() { stop(); <-done }()
	learned := func(times int) {
		await.True(t, func() bool {
			d.keys.mu.Lock()
			defer d.keys.mu.Unlock()
			return d.keys.reads == times
		})
	}
	learned(1)
	d.time.add(10 * time.Minute)
	late := d.keys.add(identity.Key{Name: "late"})
	d.keys.revoke("revoked")
	d.gate.Forget()
	learned(2)
	d.keys.fail(errors.New("away"))
	for name, c := range map[string]struct {
		key  string
		want int
	}{"idle": {idle, 200}, "made meanwhile": {late, 200}, "revoked meanwhile": {revoked, 503}} {
		await.Nil(t, func() error {
			if got := d.ask("/mcp", c.key); got.status != c.want {
				return fmt.Errorf("%s: %d %s, want %d", name, got.status, got.body, c.want)
			}
			return nil
		})
	}
}

// Where it is heard of when keys change, a key is looked up once until then.
func TestKeysAreKnownUntilTheyChange(t *testing.T) {
	heard := true
	d := newDoor(t, inbound.Settings{Mode: inbound.Proof, Keys: true}, func(o *inbound.Options) { o.Heard = func() bool { return heard } })
	key := d.keys.add(identity.Key{Name: "ann"})
	status := func(what string, want int) {
		t.Helper()
		if got := d.ask("/mcp", key); got.status != want {
			t.Errorf("%s: %d %s, want %d", what, got.status, got.body, want)
		}
	}
	status("a key", 200)
	d.keys.fail(errors.New("away"))
	d.time.add(time.Hour)
	status("an hour later, without the store", 200)
	heard = false
	d.time.add(14 * time.Minute)
	status("while nothing is heard, without the store", 200)
	d.time.add(2 * time.Minute)
	status("for too long", 503)
	heard = true
	d.keys.fail(nil)
	status("with the store again", 200)
	d.keys.revoke("ann")
	status("revoked, and not heard of", 200)
	d.gate.Forget()
	status("revoked", 401)
	key = d.keys.add(identity.Key{Name: "bob"})
	status("made", 200)
	heard = false
	d.keys.revoke("bob")
	d.time.add(2 * time.Second)
	status("revoked, while nothing is heard", 401)
}
