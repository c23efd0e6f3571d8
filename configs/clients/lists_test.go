package clients

import "testing"

func TestClientsAreKnownByHowTheyNameThemselves(t *testing.T) {
	for _, test := range []struct {
		name, announced string
		want            bool
	}{
		{"opencode", "opencode 1.18.33", true},
		{"opencode", "opencode", true},
		{"opencode", "opencode2 1", false},
		{"gemini", "gemini-cli-mcp-client 0.61.0", true},
		{"gemini", "gemini-cli-mcp-client-toolfinch 0.61.0", true},
		{"qwen", "qwen-cli-mcp-client-toolfinch 0.0.1", true},
		{"qwen", "gemini-cli-mcp-client 0.61.0", false},
		{"cline-cli", "@cline/core 0.0.0", true},
		{"@cline/core", "@cline/core 0.0.0", true},
		{"My Editor", "My Editor 2.0 beta", true},
		{"My *", "My Editor 2.0 beta", true},
		{"Visual*", "My Editor 2.0 beta", false},
		{"[", "[ 1", false},
	} {
		if got := Announces(test.name, test.announced); got != test.want {
			t.Errorf("%q is %q: %t, want %t", test.announced, test.name, got, test.want)
		}
	}
	for _, l := range Listings {
		if Find(l.ID) == nil {
			t.Errorf("%s is not the name of a client", l.ID)
		}
	}
	if got := ListingOf("codex-mcp-client 0.169.0"); got == nil || got.ID != "codex" || got.Relists {
		t.Errorf("codex is %+v", got)
	}
	if got := ListingOf("somebody 1"); got != nil {
		t.Errorf("somebody is %+v", got)
	}
}
