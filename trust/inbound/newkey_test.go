package inbound_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/tool"
	"toolfinch/trust/inbound"
)

// A key opens what it was asked for, and nothing is made of a request that means nothing.
func TestKeysAreMadeAsRequested(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	good := inbound.KeyRequest{Name: "ci", View: "reader", Scopes: []string{"mcp:write", "mcp:read", "mcp:read"}, Groups: []string{"b", "a", "b"}, Lasts: "30d"}
	with := func(change func(*inbound.KeyRequest)) inbound.KeyRequest {
		k := good
		change(&k)
		return k
	}
	for _, test := range []struct {
		name    string
		request inbound.KeyRequest
		scopes  inbound.Scopes
		lasts   time.Duration
		field   string // of the error; "" for none
		text    string // in the error
	}{
		{"all of it", good, scopes, 30 * 24 * time.Hour, "", ""},
		{"for good", with(func(k *inbound.KeyRequest) { k.Lasts = "" }), scopes, 0, "", ""},
		{"for hours", with(func(k *inbound.KeyRequest) { k.Lasts = "12h" }), scopes, 12 * time.Hour, "", ""},
		{"for a hundred years", with(func(k *inbound.KeyRequest) { k.Lasts = "36500d" }), scopes, 36500 * 24 * time.Hour, "", ""},
		{"for longer", with(func(k *inbound.KeyRequest) { k.Lasts = "36501d" }), scopes, 0, "expires", "36501d"},
		{"for no time", with(func(k *inbound.KeyRequest) { k.Lasts = "0d" }), scopes, 0, "expires", "0d"},
		{"for some time", with(func(k *inbound.KeyRequest) { k.Lasts = "long" }), scopes, 0, "expires", "like 30d or 12h"},
		{"of any view", with(func(k *inbound.KeyRequest) { k.View = "" }), scopes, 30 * 24 * time.Hour, "", ""},
		{"of a view that is not", with(func(k *inbound.KeyRequest) { k.View = "raeder" }), scopes, 0, "view", "did you mean reader?"},
		{"of nothing like a view", with(func(k *inbound.KeyRequest) { k.View = "xyz" }), scopes, 0, "view", "in tool_views"},
		{"a scope that is not", with(func(k *inbound.KeyRequest) { k.Scopes = []string{"mcp:read", "openid"} }), scopes, 0, "scope", `no "openid"; there are mcp:read`},
		{"another scope than the only one", with(func(k *inbound.KeyRequest) { k.Scopes = []string{"openid"} }), scopes[:1], 0, "scope", "there are mcp:read"},
		{"no scope, where there is one alone", with(func(k *inbound.KeyRequest) { k.Scopes = nil }), scopes[:1], 0, "scope", "is needed"},
		{"no scope", with(func(k *inbound.KeyRequest) { k.Scopes = nil }), scopes, 0, "scope", "is needed"},
		{"any scope, where none means anything", with(func(k *inbound.KeyRequest) { k.Scopes = []string{"openid"} }), nil, 30 * 24 * time.Hour, "", ""},
		{"no name", with(func(k *inbound.KeyRequest) { k.Name = "" }), scopes, 0, "", "name"},
	} {
		text, key, err := test.request.Make(inbound.Settings{Scopes: test.scopes}, []string{"reader", "writer"}, now)
		if test.text != "" {
			var wrong *identity.FieldError
			if !errors.As(err, &wrong) || wrong.Field != test.field || !strings.Contains(wrong.Text, test.text) || text != "" || key.Hash != [32]byte{} {
				t.Errorf("%s: %q, %+v", test.name, text, err)
			}
			continue
		}
		expires := now.Add(test.lasts)
		if test.lasts == 0 {
			expires = time.Time{}
		}
		sorted := slices.Compact(slices.Sorted(slices.Values(test.request.Scopes)))
		if err != nil || !strings.HasPrefix(text, "tfkey_") || key.Name != "ci" || key.View != test.request.View || key.Created != now || key.Expires != expires ||
			!slices.Equal(key.Scopes, sorted) || !slices.Equal(key.Groups, []string{"a", "b"}) || !slices.Equal(good.Groups, []string{"b", "a", "b"}) {
			t.Errorf("%s: %+v, %v", test.name, key, err)
		}
	}
}

// Names of keys stand in logs, in policies and in principals.
func TestNamesOfKeys(t *testing.T) {
	for name, good := range map[string]bool{
		"ci": true, "a.b@c~!": true, strings.Repeat("a", 64): true, strings.Repeat("a", 65): false, "": false, "a b": false, "a|b": false, "a\nb": false, "é": false, "a\x7f": false,
	} {
		if err := inbound.CheckKeyName(name); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// Policies and the audit log go by the surface of a request.
func TestTheSurfaceOfARequest(t *testing.T) {
	d := newDoor(t, inbound.Settings{})
	for path, want := range map[string]string{
		"/mcp": "http", "/mcp/reader": "http", "/": "http", "/apis": "http", "/sse": "sse", "/message": "sse", "/sse/reader": "sse", "/api/v1/tools": "rest", "/metrics": "rest", "/openapi.json": "rest", "/ui/": "ui", "/ui": "ui",
	} {
		if got := d.gate.Source(httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+path, nil)); got.Transport != want || got.Secure {
			t.Errorf("%s: %+v, want %s", path, got, want)
		}
	}
	if got := d.gate.Source(httptest.NewRequest(http.MethodGet, "https://127.0.0.1/mcp", nil)); !got.Secure {
		t.Errorf("over TLS: %+v", got)
	}
}

// Whatever surface a call comes by, it needs a scope for what the tool may do.
func TestScopesGuardTools(t *testing.T) {
	for _, test := range []struct {
		scopes      inbound.Scopes
		annotations tool.Annotations
		has         []string // nil: nobody
		want        bool
	}{
		{scopes, tool.Annotations{ReadOnly: true}, []string{"mcp:read"}, true},
		{scopes, tool.Annotations{ReadOnly: true}, []string{"mcp:admin"}, true},
		{scopes, tool.Annotations{ReadOnly: true}, []string{"openid"}, false},
		{scopes, tool.Annotations{}, []string{"mcp:read"}, false},
		{scopes, tool.Annotations{}, []string{"mcp:write"}, true},
		{scopes, tool.Annotations{Destructive: true, SaysDestructive: true}, []string{"mcp:write"}, false},
		{scopes, tool.Annotations{Destructive: true, SaysDestructive: true}, []string{"mcp:admin"}, true},
		{scopes[:2], tool.Annotations{Destructive: true, SaysDestructive: true}, []string{"mcp:write"}, true}, // nothing tells it from other writing
		{nil, tool.Annotations{Destructive: true, SaysDestructive: true}, []string{"openid"}, true},
		{scopes, tool.Annotations{Destructive: true, SaysDestructive: true}, nil, true},
	} {
		ctx := t.Context()
		if test.has != nil {
			ctx = identity.WithPrincipal(ctx, &identity.Principal{ID: "alice", Scopes: test.has})
		}
		called := false
		guarded := &tool.Tool{Def: &tool.Def{Annotations: test.annotations}, Handler: func(context.Context, *tool.Call) (tool.Result, error) { called = true; return nil, nil }}
		guarded = guarded.With(tool.LayerScopes, test.scopes.Guard(guarded))
		_, err := guarded.Handler(ctx, &tool.Call{Name: "delete"})
		var lacks *identity.ScopeError
		if called != test.want || called == errors.As(err, &lacks) || lacks != nil && !strings.Contains(lacks.Operation, "delete") {
			t.Errorf("%+v: called %v, %v", test, called, err)
		}
	}
}
