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
			s, err := OpenOr(t.Context(), url+"&connect_timeout=1", path, slog.New(slog.DiscardHandler))
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
				"a write":      func() error { return s.Pins().Approve(t.Context(), nil) },
				"a connection": func() error { _, err := s.connect(t.Context()); return err },
				"a lock":       func() error { _, err := s.Sealed().Locks().Take(t.Context(), "x"); return err },
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
			if err := s.Pins().Approve(t.Context(), nil); err != nil {
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
