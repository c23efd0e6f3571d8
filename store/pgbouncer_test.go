package store

import (
	"log/slog"
	"strings"
	"testing"

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
		})
	}
}
