package proxy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"testing"
	"time"

	"toolfinch/configs"
	"toolfinch/internal/await"
	"toolfinch/internal/postgres"
	"toolfinch/store"
	"toolfinch/trust/vault"
)

// While PostgreSQL is away, a replica has the sealed rows that were there last: its own and those
// of others. What one of them drops is gone, and the rest stays.
func TestSealedRowsWhilePostgresIsAway(t *testing.T) {
	t.Parallel()
	cluster := postgres.New(t)
	config := &configs.Config{DataDir: t.TempDir(), TopK: 5, Routing: configs.RoutingAuto, Store: cluster.Database(t)}
	log := slog.New(slog.DiscardHandler)
	other, err := store.Open(t.Context(), config.Store, log)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	put := func(name string) {
		t.Helper()
		if err := other.Sealed().Put(t.Context(), vault.Row{Name: name, Sealed: []byte(name), At: time.Now()}); err != nil {
			t.Fatal(err)
		}
	}
	put("stays")
	put("dropped here")
	put("dropped there")
	p, err := Open(t.Context(), config, WithLogger(log))
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- p.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
	}()
	defer func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	await.True(t, p.others.changes.Heard)
	rows := p.logins.rows
	if err := rows.Drop(t.Context(), "dropped here"); err != nil {
		t.Fatal(err)
	}
	if err := other.Sealed().Drop(t.Context(), "dropped there"); err != nil {
		t.Fatal(err)
	}
	put("came later")
	await.True(t, func() bool {
		rows.mu.Lock()
		defer rows.mu.Unlock()
		return rows.last["came later"] != nil
	})
	cluster.Stop(t)
	await.True(t, func() bool { return p.store.Health() != nil })
	has := func() {
		t.Helper()
		for name, want := range map[string]bool{"stays": true, "dropped here": false, "dropped there": false, "came later": true, "never": false} {
			if row, err := rows.Find(t.Context(), name); err != nil || (row != nil) != want {
				t.Errorf("%s: %v, %v", name, row, err)
			}
		}
	}
	has()
	if err := rows.Drop(t.Context(), "stays"); err == nil {
		t.Error("a row is dropped without PostgreSQL")
	}
	has()
	cluster.Run(t)
	await.Nil(t, func() error { return rows.Drop(t.Context(), "") })
	if err := rows.readAnew(t.Context(), ""); err != nil || len(rows.last) > 0 {
		t.Error(fmt.Sprint("after all are dropped: ", rows.last), err)
	}
}

// What clients are told of a vault names neither hosts nor paths; callers still know the error.
func TestFaultsOfTheVaultNameNoPlaces(t *testing.T) {
	v := loginVault{log: slog.New(slog.DiscardHandler)}
	for name, c := range map[string]struct {
		err  error
		says string
	}{
		"a folder":     {fmt.Errorf("vault: open /home/ann/locks: %w", fs.ErrPermission), "cannot be read or stored now"},
		"a database":   {fmt.Errorf("vault: lock x: %w", &store.Away{Err: errors.New("dial 10.1.2.3:5432 user=ann")}), "PostgreSQL"},
		"another user": {fmt.Errorf("vault: lock x: %w", vault.ErrLocked), "in use"},
	} {
		got := v.fault(t.Context(), c.err)
		if !errors.Is(got, errors.Unwrap(c.err)) || !strings.Contains(got.Error(), c.says) || strings.Contains(got.Error(), "10.1.2.3") || strings.Contains(got.Error(), "/home") {
			t.Errorf("%s is told as %v", name, got)
		}
	}
}
