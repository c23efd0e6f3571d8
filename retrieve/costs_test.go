package retrieve

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

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
		catalog := with(t, catalog, servers)
		for _, one := range catalog.Tools() {
			got, exact := catalog.Tokens(one), tool.CountTokens(one.Listed())
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

// Servers may change their definitions for ever: what is kept of them is bounded,
// and what is in use stays known.
func TestCostsForgetWhatIsNotUsed(t *testing.T) {
	var c costs
	counted := 0
	used := func() int { return c.cost("used", func() []byte { counted++; return []byte("one two") }) }
	first := used()
	for i := range 5 * maxCosts {
		c.cost(fmt.Sprint(i), func() []byte { return nil })
		if i%(maxCosts/2) == 0 && used() != first {
			t.Fatal("another count")
		}
	}
	if n := len(c.known) + len(c.before); n > 2*maxCosts {
		t.Errorf("%d counts are kept, want %d at most", n, 2*maxCosts)
	}
	if counted != 1 {
		t.Errorf("what is used was counted %d times", counted)
	}
}
