package configs

import (
	"strings"
	"testing"
)

func TestOneIssuerIsAskedForOpaqueTokens(t *testing.T) {
	const jwts, asked, also = "https://a.example", "{issuer: 'https://b.example', introspect: {client_id: x, client_secret: y}}", "{issuer: 'https://c.example', introspect: {client_id: x, client_secret: y}}"
	for issuers, want := range map[string]string{
		jwts + ", " + asked: "",
		asked + ", " + also: "more than one issuer has introspect",
	} {
		_, err := load(t, "auth: {resource: 'https://tools.example/mcp', issuers: ["+issuers+"]}")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", issuers, err, want)
		}
	}
}
