package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"toolfinch/e2e/postgres"
	"toolfinch/internal/await"
	"toolfinch/store"
	. "toolfinch/store/storetest"
)

// One cluster, which is pooled, stopped, paused, and at last made a standby.
func TestACluster(t *testing.T) {
	cluster := postgres.New(t)
	at := cluster.Database(t)
	s := Open(t, at)
	Fill(t, s)

	// A pooler that gives each transaction another session is named; one of whole sessions is as good as PostgreSQL.
	for mode, want := range map[string]string{"session": "", "transaction": "PgBouncer", "statement": "PgBouncer"} {
		t.Run("pooled by "+mode, func(t *testing.T) {
			at := cluster.Pooled(t, at, mode)
			right := func(what string, err error) {
				t.Helper()
				if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v", what, err)
				}
			}
			got, err := store.Examine(t.Context(), at)
			Must(t, err)
			if said := strings.Join(got.Wrong, "\n"); (said == "") != (want == "") || !strings.Contains(said, want) {
				t.Errorf("examined: %+v", got)
			}
			for name, open := range map[string]func() (*store.Store, error){
				"writing": func() (*store.Store, error) { return store.Open(t.Context(), at, quiet) },
				"reading": func() (*store.Store, error) { return store.OpenReadOnly(t.Context(), at, quiet) },
				"secrets": func() (*store.Store, error) { return store.OpenSealed(t.Context(), at) },
			} {
				s, err := open()
				if right(name, err); err == nil {
					Must(t, s.Close())
				}
			}
			if want == "" {
				return
			}
			// What toolfinch sets for its connections is not left to others.
			conn, err := pgx.Connect(t.Context(), with(at, "default_query_exec_mode", "simple_protocol"))
			Must(t, err)
			defer conn.Close(t.Context())
			var readOnly string
			if err := conn.QueryRow(t.Context(), `SHOW default_transaction_read_only`).Scan(&readOnly); err != nil || readOnly != "off" {
				t.Errorf("another program's transactions are read only: %s, %v", readOnly, err)
			}
		})
	}

	writes := func() error {
		_, err := s.PutServer(t.Context(), store.Upstream{Name: "b"}, Defs(t, "b", `{"name":"y"}`), nil)
		return err
	}
	for name, fault := range map[string]struct{ begin, end func(testing.TB) }{
		"stopped": {cluster.Stop, cluster.Run},
		"paused":  {cluster.Pause, cluster.Resume},
	} {
		t.Run("while it is "+name+", stores say so, and go on after it", func(t *testing.T) {
			await.Expiry(t)
			fault.begin(t)
			var away *store.Away
			await.Nil(t, func() error {
				if err := writes(); !errors.As(err, &away) {
					return fmt.Errorf("not known to be away: %w", err)
				}
				return nil
			})
			if _, err := s.Tools(t.Context()); !errors.As(err, &away) {
				t.Errorf("a read: %v", err)
			}
			if _, err := s.Sealed().Locks().Take(t.Context(), "login/a"); !errors.As(err, &away) { // what is done with it could not be stored
				t.Errorf("a lock: %v", err)
			}
			fault.end(t)
			await.Nil(t, writes)
		})
	}

	t.Run("a standby has no replicas", func(t *testing.T) {
		cluster.Standby(t) // its locks keep nobody out who uses the database itself
		await.True(t, func() bool {
			_, err := s.Replicas().Join(t.Context())
			return err != nil && strings.Contains(err.Error(), "it is a standby")
		})
	})
}
