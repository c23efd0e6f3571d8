package proxy

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"toolfinch/configs"
	"toolfinch/internal/await"
	"toolfinch/internal/postgres"
	"toolfinch/tool"
	"toolfinch/upstream"
)

// A database that is full is logged once, however many servers wait, and tried seldom.
func TestWhatADatabaseRefusesIsTriedSeldom(t *testing.T) {
	config := &configs.Config{DataDir: t.TempDir(), Store: postgres.Start(t), TopK: 5, Routing: configs.RoutingAuto}
	var listed []upstream.Change
	for _, server := range []string{"one", "two", "three"} {
		config.Servers = append(config.Servers, upstream.Settings{Name: server, URL: "http://127.0.0.1:1/mcp"})
		listed = append(listed, upstream.Change{Server: server, Defs: []*tool.Def{sold(t, server, "hat")}})
	}
	var log await.Log
	p, err := Open(t.Context(), config, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	db, err := pgx.Connect(t.Context(), config.Store)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(t.Context())
	run := func(statement string) {
		t.Helper()
		if _, err := db.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	run(`CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'no space' USING ERRCODE = '53100'; END$$;
		CREATE TRIGGER full_disk BEFORE INSERT ON servers EXECUTE FUNCTION full_disk()`)

	p.loop.take(t.Context(), listed)
	p.loop.take(t.Context(), []upstream.Change{{Server: "one", Followed: true}}) // as when nobody leads it for a moment
	for range 3 {
		p.loop.take(t.Context(), slices.Collect(maps.Values(p.loop.waiting)))
	}
	if len(p.loop.waiting) != 3 || p.loop.rest() != refusedAgain || strings.Count(log.String(), "level=WARN") != 1 {
		t.Errorf("%d servers wait for %s; the log has\n%s", len(p.loop.waiting), p.loop.rest(), log.String())
	}
	run(`DROP TRIGGER full_disk ON servers`)
	p.loop.take(t.Context(), slices.Collect(maps.Values(p.loop.waiting)))
	if len(p.loop.waiting) != 0 || p.loop.rest() != storeAgain || !strings.Contains(log.String(), "stores again") {
		t.Errorf("%d servers wait for %s; the log has\n%s", len(p.loop.waiting), p.loop.rest(), log.String())
	}
}
