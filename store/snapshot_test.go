package store

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"toolfinch/internal/await"
	"toolfinch/internal/postgres"
)

// A store whose database is not there is read from its snapshot until it is.
func TestASnapshotStandsInForPostgres(t *testing.T) {
	cluster := postgres.New(t)
	url, path := cluster.Database(t), filepath.Join(t.TempDir(), "folder", "snapshot.db")
	s := open(t, url)
	furnish(t, s)
	for range 2 { // the second one in place of the first
		if err := s.Snapshot(t.Context(), path); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("beside it: %v, %v", left, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	want := contents(t, s)
	for _, table := range passing {
		delete(want, table)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for how, fault := range map[string]struct{ begin, end func(testing.TB) }{
		"stopped": {cluster.Stop, cluster.Run},
		"paused":  {cluster.Pause, cluster.Resume},
	} {
		t.Run(how, func(t *testing.T) {
			fault.begin(t)
			s, err := OpenOr(t.Context(), url+"&connect_timeout=3", path, slog.New(slog.DiscardHandler))
			if err != nil {
				fault.end(t)
				t.Fatal(err)
			}
			defer s.Close()
			if got := contents(t, s); !reflect.DeepEqual(got, want) {
				t.Errorf("got  %v\nwant %v", got, want)
			}
			away := s.Health()
			if away == nil || away.Snapshot.IsZero() || !strings.Contains(away.Error(), "snapshot") {
				t.Errorf("health: %v", away)
			}
			sessions, _ := s.Sessions()
			for what, do := range map[string]func() error{
				"a write":      func() error { return s.Pins().Approve(t.Context(), nil, "") },
				"a connection": func() error { _, err := s.remote.connect(t.Context()); return err },
				"a lock":       func() error { _, err := s.Sealed().Locks().Take(t.Context(), "x"); return err },
				"a replica":    func() error { _, err := s.Replicas().There(t.Context(), "x"); return err },
				"a session":    func() error { _, _, err := sessions.Find(t.Context(), name("x")); return err },
			} {
				if err := do(); !errors.As(err, &away) {
					t.Errorf("%s: %v", what, err)
				}
			}
			fault.end(t)
			await.True(t, func() bool { return s.Health() == nil })
			if _, _, err := sessions.Find(t.Context(), name("x")); err != nil {
				t.Error(err)
			}
			if got := contents(t, s); len(got["savings"]) == 0 || !reflect.DeepEqual(got["tools"], want["tools"]) {
				t.Errorf("of the database: %v", got)
			}
			if err := s.Pins().Approve(t.Context(), nil, ""); err != nil {
				t.Error(err)
			}
			if err := s.Snapshot(t.Context(), path); err != nil {
				t.Error(err)
			}
			want["decisions"] = contents(t, s)["decisions"]
		})
	}
}

// What a program of an older version wrote is brought to this one.
func TestSnapshotsOfOtherVersions(t *testing.T) {
	dir, newest, err := migrationsOf("sqlite")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "snapshot.db")
	var statements []string
	for version := range newest - 1 {
		statements = append(statements, migration(t, dir, version+1))
	}
	old(t, path, statements, newest-1)
	db, _, err := openSnapshot(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`DELETE FROM servers`); err == nil {
		t.Error("it can be written to")
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	execute(t, path, `PRAGMA user_version = 999`)
	if _, _, err := openSnapshot(t.Context(), path); !errors.Is(err, errNewer) {
		t.Errorf("a newer one: %v", err)
	}
}

// A snapshot stands in for a database that cannot be reached, not for one that refuses.
func TestNoSnapshotStandsIn(t *testing.T) {
	cluster := postgres.New(t)
	url, dir := cluster.Database(t), t.TempDir()
	path, damaged := filepath.Join(dir, "snapshot.db"), filepath.Join(dir, "damaged.db")
	if err := open(t, url).Snapshot(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(damaged, slices.Repeat([]byte("no database"), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	opening := func(url, path string) error {
		s, err := OpenOr(t.Context(), url, path, slog.New(slog.DiscardHandler))
		if err == nil {
			_ = s.Close()
		}
		return err
	}
	if err := opening(url+"&user=nobody", path); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("an unknown user: %v", err)
	}
	cluster.Stop(t)
	for path, want := range map[string]string{"": "", damaged: "damaged.db", filepath.Join(dir, "none"): "none"} {
		if err := opening(url, path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// A database that answers and cannot be used is said to, once, and what is wrong.
func TestASnapshotStandsInForADatabaseThatCannotBeUsed(t *testing.T) {
	cluster := postgres.New(t)
	url, path := cluster.Database(t), filepath.Join(t.TempDir(), "snapshot.db")
	s := open(t, url)
	put(t, s, "a", def(t, "a", `{"name":"x"}`))
	if err := s.Snapshot(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	var before int
	if err := s.db.QueryRow(`SELECT since FROM compatible`).Scan(&before); err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.Exec(`UPDATE compatible SET since = 999`); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cluster.Stop(t)
	var log await.Log
	s, err := OpenOr(t.Context(), url, path, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	cluster.Run(t)
	var refused *Away
	for range 2 { // it is tried again
		last := refused
		await.True(t, func() bool { refused = s.Health(); return refused != last && errors.Is(refused, errNewer) })
	}
	if got := refused.Brief(); !strings.Contains(got, "answers, but could not be used since") || !strings.Contains(got, "snapshot") {
		t.Error(got)
	}
	if n := strings.Count(log.String(), "cannot be used: what is known"); n != 1 || !strings.Contains(log.String(), "schema version") {
		t.Errorf("it is said %d times:\n%s", n, log.String())
	}
	if got := ids(tools(t, s)); !slices.Equal(got, []string{"a.x"}) {
		t.Errorf("tools %v", got)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `UPDATE compatible SET since = $1`, before); err != nil {
		t.Fatal(err)
	}
	await.True(t, func() bool { return s.Health() == nil })
}
