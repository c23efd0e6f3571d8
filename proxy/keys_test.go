package proxy_test

import (
	"log/slog"
	"testing"
	"time"

	"toolfinch/internal/await"
	"toolfinch/internal/identity"
	"toolfinch/internal/must"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/trust/inbound"
	"toolfinch/view"
)

// What a key had does not stay when the key has expired, or was revoked by a program that ended too early.
func TestWhatKeysLeaveIsSweptAway(t *testing.T) {
	t.Parallel()
	v := everything(view.Default, view.ExposureDirect)
	v.Gating = &view.Gating{MaxTools: 3}
	config := configOf(t, []*script{wares(t)}, v)
	config.Auth = inbound.Settings{Mode: inbound.Proof, Keys: true}
	keysOf(t, config, "present")
	db := must.Get(store.Open(t.Context(), config.Places().Store, slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(func() { _ = db.Close() })
	must.Do(t, db.Keys().Add(t.Context(), identity.Key{Name: "late", ID: "key|late", Expires: time.Now().Add(-time.Second)}))
	owns := func(id string) bool {
		all, err := db.Usage().ProvisionsOf(t.Context(), v.Name, tool.PrincipalOwner(id))
		return err == nil && len(all) > 0
	}
	for _, id := range []string{"key|present", "key|late", "key|gone|1"} {
		set := []tool.Provisioned{{ID: tool.ID{Server: "up", Name: "read"}}}
		err := db.Usage().ChangeProvisions(t.Context(), v.Name, tool.PrincipalOwner(id), func([]tool.Provisioned) ([]tool.Provisioned, error) { return set, nil })
		if err != nil || !owns(id) {
			t.Fatal(id, err)
		}
	}
	openViews(t, "", config)
	await.True(t, func() bool { return !owns("key|late") && !owns("key|gone|1") })
	if !owns("key|present") {
		t.Error("the key that is there has lost what it had")
	}
}
