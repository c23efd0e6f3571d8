package retrieve

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"toolfinch/register"
	"toolfinch/tool"
)

// prefixes are what servers may be configured to begin exposed names with.
var prefixes = []string{"", "gh", strings.Repeat("quux_zebra_", 4), "acme-internal_production_eu-west-1_"}

// What a definition costs is not what it cost under the name that was counted
// first.
func TestTokensOfRenamedTools(t *testing.T) {
	catalog := newCatalog(t, nil)
	for _, prefix := range slices.Concat(prefixes, prefixes[:1]) {
		servers := fewServers(t, echo)
		for i := range servers {
			servers[i].Prefix = &prefix
		}
		if err := catalog.Swap(t.Context(), servers); err != nil {
			t.Fatal(err)
		}
		for _, one := range catalog.Tools() {
			got, exact := catalog.Tokens(one), tool.CountTokens(register.Listed(one))
			if got < exact-1 || got > exact+1 || one.Name == one.Def.ID.Name && got != exact {
				t.Errorf("%s costs %d tokens, want %d", one.Name, got, exact)
			}
		}
	}
}

// The counts that outlive the process are those of definitions under their own
// names: another process may call them otherwise.
func TestCountsAreOfDefinitionsWhateverTheyAreCalled(t *testing.T) {
	counted := func(prefix string) (map[string]int, *Catalog) {
		servers := fewServers(t, echo)
		for i := range servers {
			servers[i].Prefix = &prefix
		}
		catalog := newCatalog(t, servers)
		return catalog.CountTokens(t.Context()), catalog
	}
	plain, _ := counted("")
	long, catalog := counted(prefixes[2])
	if len(plain) == 0 || !maps.Equal(plain, long) {
		t.Errorf("counted %v, and under longer names %v", plain, long)
	}
	total := 0
	for _, one := range catalog.Tools() {
		if n := tool.CountTokens(one.Def.Raw); plain[one.Def.Hash] != n {
			t.Errorf("%s counts %d, want %d", one.Name, plain[one.Def.Hash], n)
		}
		total += catalog.Tokens(one)
	}
	if listing, complete := catalog.ListingTokens(); listing != total || !complete {
		t.Errorf("listing all costs %d, %t; want %d", listing, complete, total)
	}
	if again := catalog.CountTokens(t.Context()); len(again) != 0 {
		t.Errorf("counted again: %v", again)
	}
}
