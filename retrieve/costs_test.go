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
	for i := range 5 * minCosts {
		c.cost(fmt.Sprint(i), func() []byte { return nil })
		if i%(minCosts/2) == 0 && used() != first {
			t.Fatal("another count")
		}
	}
	if n := len(c.current) + len(c.previous); n > 2*minCosts {
		t.Errorf("%d counts are kept, want %d at most", n, 2*minCosts)
	}
	if counted != 1 {
		t.Errorf("what is used was counted %d times", counted)
	}
}

// However many tools there are, a start counts no definition again whose count was stored, and
// none that was counted is counted for the next answer.
func TestCostsOfAllToolsAreHeld(t *testing.T) {
	const tools = minCosts + minCosts/5
	counts := map[string]int{}
	for i := range tools {
		counts[fmt.Sprint("hash", i)] = i
	}
	k := &shared{}
	k.LearnTokens(counts)
	k.costs.reserve(4 * tools) // as With does
	for range 2 {
		for i := range tools {
			def := &tool.Def{ID: tool.ID{Server: "s", Name: fmt.Sprint("t", i)}, Hash: fmt.Sprint("hash", i), Raw: []byte("counted anew")}
			if n := k.rawTokens(def); n != i {
				t.Fatalf("the definition of tool %d is %d tokens", i, n)
			}
			k.Tokens(&tool.Tool{Name: "s_" + def.ID.Name, Def: def})
		}
	}
	if k.costs.previous != nil {
		t.Errorf("with %d tools %d counts are half forgotten", tools, len(k.costs.previous))
	}
}

// A catalog makes room for what is counted of its tools: the definition, the name that clients
// see, that of its server, and what answers of searches have.
func TestRoomForCostsFollowsTheTools(t *testing.T) {
	catalog := newCatalog(t, nil)
	none := catalog.costs.most
	catalog = with(t, catalog, fewServers(t, echo))
	if n := catalog.Len(); n == 0 || catalog.costs.most < 4*n {
		t.Errorf("of %d tools %d counts are held", n, catalog.costs.most)
	}
	if catalog = with(t, catalog, nil); catalog.costs.most != none {
		t.Errorf("without tools %d counts are held, want %d", catalog.costs.most, none)
	}
}
