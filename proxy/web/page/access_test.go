package page

import (
	"io"
	"testing"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/trust/inbound"
	"toolfinch/trust/policy"
)

// The template has an answer to whatever there is, and to nothing.
func TestTheTemplateOfAccess(t *testing.T) {
	full := access{
		Owner: true, Transports: transports, Kinds: askKinds, Question: policy.Question{Transport: "http", Tool: "a.b", Groups: []string{"g"}}, Asked: true, Wrong: "no", WrongKey: "no", Made: "tfkey_x",
		Access: Access{
			Mode: inbound.Proof, TakesKeys: true, Issuers: []string{"https://a", "https://b"}, Header: "X-User", Scopes: inbound.Scopes{{Name: "mcp:read", Allows: inbound.Read}},
			Views:    []Shown{{Name: "v", Root: true, ReadOnly: true, Description: "d", Gated: &Budget{}}},
			Policies: []policy.By{{ID: "p", File: "f", Line: 1, Forbid: true}}, Denied: map[string]int64{"p": 2}, Texts: []policy.Text{{Cedar: "c", File: "f", Line: 1}},
			Keys: []identity.Key{{Name: "k", Expires: time.Now(), Scopes: []string{"s"}}}, KeyViews: []string{"v"}, Rates: []Rate{{"10 a minute", 3}},
		},
	}
	for name, data := range map[string]access{
		"full": full, "open": {Owner: true, Access: Access{Open: true, Mode: inbound.None}}, "nothing": {Owner: true},
		"a key": {Me: &identity.Principal{ID: "key|k", Scopes: []string{"s"}, Groups: []string{"g"}, View: "v"}},
	} {
		if err := parsed()["access.html"].ExecuteTemplate(io.Discard, "main", frame{Screen: accessScreen, Data: data}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
