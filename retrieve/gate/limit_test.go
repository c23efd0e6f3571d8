package gate

import (
	"context"
	"hash/maphash"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"toolfinch/tool"
)

// Gates for the same clients count their owners together, sessions not.
func TestGatesForTheSameClientsShareALimit(t *testing.T) {
	limit := NewLimit()
	one, source := gated(t, Options{Limit: limit, Kept: crowd(2)}, Budget{})
	other, otherSource := gated(t, Options{Limit: limit}, Budget{})
	provision(t, other, "principal 0", 0, "srv_b")
	otherSource.open("s")
	provision(t, other, tool.SessionOwner("s"), 0, "srv_b")
	if limit.Used() != 3 {
		t.Errorf("%d owners, want 3", limit.Used())
	}
	if _, err := one.Unprovision(t.Context(), "principal 0", ids(source, "srv_a")); err != nil || limit.Used() != 2 {
		t.Errorf("%d owners, %v, want 2", limit.Used(), err)
	}
}

// An owner whose set is being written keeps it for now: nobody else waits for that.
func TestNobodyWaitsForTheSetThatIsToGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := crowd(maxOwners)
		write := make(chan struct{})
		g, source := gated(t, Options{Kept: kept, Store: keep(func(context.Context, string, []tool.Provisioned) error { return nil }, kept)}, Budget{})
		g.store = blocked{g.store, "principal 0", write}
		for _, k := range kept[1:] {
			g.Granted(k.Owner)
		}
		written := make(chan error)
		go func() {
			_, err := g.Provision(t.Context(), "principal 0", Request{Tools: pick(source, "srv_b")})
			written <- err
		}()
		synctest.Wait()
		for _, k := range kept[1:] {
			g.Granted(k.Owner) // after the look-up of the change that is being written
		}
		late := "principal late"
		for turn := func(owner string) uint64 { return maphash.String(g.seed, owner) % uint64(len(g.turns)) }; turn(late) == turn("principal 0"); {
			late += "r" // one that shares no turn with it
		}
		provision(t, g, late, 0, "srv_a")
		if got := has(g, late); got != "srv_a" {
			t.Errorf("has %s", got)
		}
		close(write)
		if err := <-written; err != nil {
			t.Error(err)
		}
	})
}

// Clients are told of what was taken from their owner, and of nothing that stays.
func TestWhoLosesToolsIsTold(t *testing.T) {
	g, source := gated(t, Options{}, Budget{MaxTools: 2})
	provision(t, g, "principal ann", 0, "srv_a", "srv_b")
	source.told = nil
	if _, err := g.Unprovision(t.Context(), "principal ann", ids(source, "srv_a")); err != nil || !slices.Equal(source.told, []string{"principal ann"}) {
		t.Errorf("told %q, %v", source.told, err)
	}
	source.told = nil
	if _, err := g.Provision(t.Context(), "principal ann", Request{Tools: pick(source, "srv_c", "srv_d")}); err == nil || source.told != nil {
		t.Errorf("told %q of what was refused, %v", source.told, err)
	}
}

// A refused change leaves a session what it has.
func TestARefusedSessionKeepsItsTools(t *testing.T) {
	g, source := gated(t, Options{}, Budget{MaxTools: 1})
	source.open("s")
	owner := tool.SessionOwner("s")
	provision(t, g, owner, 0, "srv_a")
	if _, err := g.Provision(t.Context(), owner, Request{Tools: pick(source, "srv_b", "srv_c")}); err == nil || has(g, owner) != "srv_a" {
		t.Errorf("it has %q, %v", has(g, owner), err)
	}
	source.change(func(tools map[string]*tool.Tool) { delete(tools, "srv_a") })
	source.cost = func() int { return 5 * each }
	if priced := g.terms().priced(g.ledger.of(owner)); len(priced) != 1 || priced[0].Tokens != each {
		t.Errorf("a tool that is gone costs %+v", priced)
	}
}

// Of what a store has twice, one counts; what it has of others does not.
func TestAStoredSetIsOfOneOwnerAndHasEachToolOnce(t *testing.T) {
	of := func(owner, name string) tool.Provisioned {
		return tool.Provisioned{Owner: owner, ID: tool.ID{Server: "srv", Name: name}}
	}
	all := storedOf("ann", []tool.Provisioned{of("ann", "a"), of("bob", "b"), of("ann", "a"), of("ann", "c"), of("ann", "c")})
	if got := provisionNames(all); got != "srv_a srv_c" {
		t.Errorf("%q", got)
	}
}

func TestBudgetsInWords(t *testing.T) {
	for budget, want := range map[Budget]string{
		{}: "any number of tools and any number of tokens", {MaxTools: 1}: "1 tool and any number of tokens", {MaxTools: 2, MaxTokens: 1}: "2 tools and 1 token", {MaxTokens: 9}: "any number of tools and 9 tokens",
	} {
		if got := budget.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	const rest = ". Nothing was changed: unprovision tools, or ask for fewer"
	refused := BudgetError{Asked: Usage{2, 20}, Used: Usage{1, 10}, Budget: Budget{MaxTools: 2}}
	if got := refused.Error(); got != "over budget: asked for 2 tools (20 tokens) beside 1 tool (10 tokens) already provisioned; the budget is 2 tools and any number of tokens"+rest {
		t.Error(got)
	}
	refused.MaxTokens = 1
	if got := refused.Error(); !strings.HasSuffix(got, "any number of tokens, of which this request may add 1 token"+rest) {
		t.Error(got)
	}
	if got := (Usage{1, 2}).String(); got != "1 tool (2 tokens)" {
		t.Error(got)
	}
}

// blocked is a Store that writes the set of one owner when it may.
type blocked struct {
	Store
	owner string
	may   chan struct{}
}

func (b blocked) Change(ctx context.Context, owner string, f func([]tool.Provisioned) ([]tool.Provisioned, error)) error {
	if owner == b.owner {
		<-b.may
	}
	return b.Store.Change(ctx, owner, f)
}
