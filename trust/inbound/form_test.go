package inbound_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/must"
	"toolfinch/trust/inbound"
)

// A key that a person types counts as one in a header does, for as long as it holds.
func TestAKeyIsTypedIntoAForm(t *testing.T) {
	d := newDoor(t, inbound.Settings{Mode: inbound.Proof, Keys: true, Scopes: scopes})
	typed := func(key string) (*inbound.Bearer, error) {
		return d.gate.ByForm(httptest.NewRequest(http.MethodPost, "http://127.0.0.1/ui/login", nil), key)
	}
	good := d.keys.add(identity.Key{Name: "ci", Scopes: []string{"mcp:read"}, Expires: d.time.now().Add(time.Hour)})
	b := must.Get(typed(" " + good + "\n"))(t)
	holds := func(want string, wantGone bool) {
		t.Helper()
		d.gate.Forget()
		id := ""
		p, gone := b.Principal(t.Context())
		if p != nil {
			id = p.ID
		}
		if id != want || gone != wantGone {
			t.Errorf("%q, gone %v; want %q, %v", id, gone, want, wantGone)
		}
	}
	holds("key|ci", false)
	stayed, leave := b.Stay(t.Context())
	defer leave()
	if err := stayed.Err(); err != nil {
		t.Errorf("the request of a bearer has ended: %v", err)
	}
	for key, words := range map[string]string{
		"": "begins with tfkey_", "hello": "begins with tfkey_", "tfkey_" + strings.Repeat("a", 20<<10): "begins with tfkey_", "tfkey_" + strings.Repeat("a", 52): "not known",
		d.keys.add(identity.Key{Name: "none"}): `needs the scope "mcp:read"`,
	} {
		if b, err := typed(key); b != nil || err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%.20q: %v, want %q", key, err, words)
		}
	}
	d.time.add(time.Hour)
	holds("", true)
	if _, err := typed(good); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("a key that has expired: %v", err)
	}
	d.time.add(-time.Hour)
	d.keys.revoke("ci")
	holds("", true)

	off := newDoor(t, inbound.Settings{Mode: inbound.Proof, Issuers: []inbound.Issuer{{URL: "https://idp.example.com"}}})
	text := off.keys.add(identity.Key{Name: "ci"})
	if _, err := off.gate.ByForm(httptest.NewRequest(http.MethodPost, "http://127.0.0.1/", nil), text); err == nil || off.gate.TakesKeys() || !d.gate.TakesKeys() {
		t.Errorf("a key where none are taken: %v", err)
	}
}

// The audit log and the metrics hear of each request that was refused, by which proof others came in, and who lacked a scope.
func TestWhoComesInAndWhoIsRefusedIsNoted(t *testing.T) {
	var events []string
	d := newDoor(t, inbound.Settings{Mode: inbound.Proof, Keys: true, Scopes: scopes}, func(o *inbound.Options) {
		o.Record = func(_ context.Context, e identity.Event) {
			events = append(events, strings.Join([]string{e.Kind, e.Outcome, e.Reason, e.View, e.Principal}, " "))
		}
	})
	key, none := d.keys.add(identity.Key{Name: "ci", Scopes: []string{"mcp:read"}}), d.keys.add(identity.Key{Name: "none"})
	byForm := func(key string) {
		_, _ = d.gate.ByForm(httptest.NewRequest(http.MethodPost, "http://127.0.0.1/ui/login", nil), key)
	}
	d.ask("/mcp", key)
	byForm(key)
	d.ask("/mcp/reader", "tfkey_"+strings.Repeat("a", 52))
	d.ask("/mcp", none)
	byForm("hello")
	refused := identity.EventRefused + " " + identity.Denied + " "
	want := []string{refused + string(inbound.UnknownKey) + " reader ", refused + string(inbound.NoScope) + "  key|none", refused + string(inbound.Malformed) + "  "}
	if !slices.Equal(events, want) {
		t.Errorf("%q, want %q", events, want)
	}
	if in := d.gate.Counts(inbound.Accepted); !slices.Equal(in, []int64{2, 0, 0, 0}) {
		t.Errorf("%v came in by %v", in, inbound.Accepted)
	}
}

// What everybody may ask is answered to nobody, too, who is told no more than that.
func TestWhoIsKnownOfThoseWhoMayAsk(t *testing.T) {
	for name, test := range map[string]struct {
		settings     inbound.Settings
		key, text    bool // sent: that of the store, another
		want         string
		wantStranger bool
	}{
		"a key":        {inbound.Settings{Mode: inbound.Proof, Keys: true}, true, false, "key|ci", false},
		"another one":  {inbound.Settings{Mode: inbound.Proof, Keys: true}, false, true, "", true},
		"none":         {inbound.Settings{Mode: inbound.Proof, Keys: true}, false, false, "", true},
		"no proof":     {inbound.Settings{}, false, false, "", false},
		"a key for no": {inbound.Settings{}, true, false, "", false},
	} {
		d := newDoor(t, test.settings)
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/health", nil)
		key := d.keys.add(identity.Key{Name: "ci"})
		switch {
		case test.key:
			r.Header.Set("Authorization", "Bearer "+key)
		case test.text:
			r.Header.Set("Authorization", "Bearer tfkey_"+strings.Repeat("a", 52))
		}
		asked := false
		d.gate.Know(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			asked = true
			id := ""
			if p := identity.PrincipalOf(r.Context()); p != nil {
				id = p.ID
			}
			if id != test.want || d.gate.Strangers(r) != test.wantStranger || r.Header.Get("Authorization") != "" {
				t.Errorf("%s: %q, a stranger: %v, sees %q", name, id, d.gate.Strangers(r), r.Header.Get("Authorization"))
			}
		}), func(*http.Request) inbound.Target { return inbound.Target{} }).ServeHTTP(httptest.NewRecorder(), r)
		if !asked {
			t.Errorf("%s: it is not answered", name)
		}
	}
}
