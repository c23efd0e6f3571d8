package gate

import (
	"context"
	"hash/maphash"
	"slices"
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
