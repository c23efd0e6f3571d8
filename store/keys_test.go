package store

import (
	"crypto/sha256"
	"errors"
	"reflect"
	"testing"
	"time"

	"toolfinch/trust"
)

// Another process adds, uses and revokes keys; who has the store open sees it at once.
func TestKeysAreSharedBetweenProcesses(t *testing.T) {
	processes(t, func(t *testing.T, open func() *Store) {
		running, command := open(), open()
		now := time.Now().UTC().Truncate(time.Millisecond)
		ci := trust.Key{Name: "ci", Hash: sha256.Sum256([]byte("one")), View: "github", Scopes: []string{"mcp:read"}, Groups: []string{"bots"}, Created: now, Expires: now.Add(time.Hour)}
		ops := trust.Key{Name: "ops", Hash: sha256.Sum256([]byte("two")), Created: now}
		for _, key := range []trust.Key{ops, ci} {
			if err := command.Keys().Add(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		if err := command.Keys().Add(t.Context(), trust.Key{Name: "ci", Hash: sha256.Sum256([]byte("three"))}); !errors.Is(err, ErrKeyExists) {
			t.Errorf("a second key of the same name: %v", err)
		}
		if got, err := running.Keys().Find(t.Context(), ci.Hash); err != nil || !reflect.DeepEqual(got, &ci) {
			t.Errorf("Key = %+v, %v, want %+v", got, err, ci)
		}
		if got, err := running.Keys().Find(t.Context(), sha256.Sum256([]byte("other"))); got != nil || err != nil {
			t.Errorf("an unknown key is %+v, %v", got, err)
		}
		used := now.Add(time.Minute)
		if err := running.Keys().Used(t.Context(), map[[32]byte]time.Time{ci.Hash: used}); err != nil {
			t.Fatal(err)
		}
		ci.Used = used
		if got, err := command.Keys().All(t.Context()); err != nil || !reflect.DeepEqual(got, []trust.Key{ci, ops}) {
			t.Errorf("Keys = %+v, %v", got, err)
		}
		if was, err := command.Keys().Revoke(t.Context(), "ci"); !was || err != nil {
			t.Errorf("RevokeKey = %v, %v", was, err)
		}
		if was, err := command.Keys().Revoke(t.Context(), "ci"); was || err != nil {
			t.Errorf("a second RevokeKey = %v, %v", was, err)
		}
		if got, err := running.Keys().Find(t.Context(), ci.Hash); got != nil || err != nil {
			t.Errorf("a revoked key is %+v, %v", got, err)
		}
	})
}
