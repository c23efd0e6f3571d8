package proxy_test

import (
	"testing"

	"toolfinch/trust/policy"
)

// policies compiles a text of policies.
func policies(t testing.TB, text string) *policy.Policies {
	t.Helper()
	compiled, wrong := policy.Compile([]policy.Text{{Cedar: text, File: "team.cedar", Line: 1, Column: 1}})
	for _, err := range wrong {
		t.Fatal(err)
	}
	return compiled
}
