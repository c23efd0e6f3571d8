package store

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"toolfinch/internal/postgres"
)

// A pooler that gives each transaction another session is named; one of whole sessions is as
// good as PostgreSQL.
func TestPgBouncer(t *testing.T) {
	cluster := postgres.New(t)
	url := cluster.Database(t)
	furnish(t, open(t, url))
	for mode, want := range map[string]string{"session": "", "transaction": "PgBouncer", "statement": "PgBouncer"} {
		t.Run(mode, func(t *testing.T) {
			at := cluster.Pooled(t, url, mode)
			got, err := Examine(t.Context(), at)
			if said := strings.Join(got.Wrong, "\n"); err != nil || (said == "") != (want == "") || !strings.Contains(said, want) {
				t.Errorf("%+v, %v", got, err)
			}
			s, err := Open(t.Context(), at, slog.New(slog.DiscardHandler))
			if want == "" && err == nil {
				works(t, s)
				_ = s.Close()
			} else if err == nil || want == "" || !strings.Contains(err.Error(), want) {
				t.Errorf("opening: %v", err)
			}
			for name, open := range map[string]func() (*Store, error){
				"reading": func() (*Store, error) { return OpenReadOnly(t.Context(), at, slog.New(slog.DiscardHandler)) },
				"secrets": func() (*Store, error) { return OpenSealed(t.Context(), at, "") },
			} {
				s, err := open()
				if want == "" && err == nil {
					_ = s.Close()
				} else if err == nil || want == "" || !strings.Contains(err.Error(), want) {
					t.Errorf("opening for %s: %v", name, err)
				}
			}
			if want == "" {
				return
			}
			// What toolfinch sets for its connections is not left to others.
			conn, err := pgx.Connect(t.Context(), at+"&default_query_exec_mode=simple_protocol")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(t.Context())
			var readOnly string
			if err := conn.QueryRow(t.Context(), `SHOW default_transaction_read_only`).Scan(&readOnly); err != nil || readOnly != "off" {
				t.Errorf("another program's transactions are read only: %s, %v", readOnly, err)
			}
		})
	}
}
