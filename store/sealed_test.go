package store

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"toolfinch/trust"
	"toolfinch/trust/vault"
)

func putSealedRow(t *testing.T, s *Store, name, sealed string) {
	t.Helper()
	if err := s.Sealed().Put(t.Context(), vault.Row{Name: name, Sealed: []byte(sealed), At: time.UnixMilli(7)}); err != nil {
		t.Fatal(err)
	}
}

func wantSealed(t *testing.T, s *Store, name, want string) {
	t.Helper()
	row, err := s.Sealed().Find(t.Context(), name)
	if err != nil || row == nil || string(row.Sealed) != want || row.At.UnixMilli() != 7 {
		t.Errorf("%s: %+v, %v; want %q", name, row, err, want)
	}
}

// readSealed hands over what OpenSealed opens in dir.
func readSealed(t *testing.T, dir string, do func(*Store)) {
	t.Helper()
	s, err := OpenSealed(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	do(s)
}

func TestSealedRows(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		putSealedRow(t, s, "secret/a", "one")
		putSealedRow(t, s, "secret/Ä", "\x00\xff")
		putSealedRow(t, s, "login/a", "three")
		putSealedRow(t, s, "secret/a", "four")
		wantSealed(t, s, "secret/a", "four")
		wantSealed(t, s, "secret/Ä", "\x00\xff")
		names := func(prefix string) (names []string) {
			rows, err := s.Sealed().Names(t.Context(), prefix)
			if err != nil {
				t.Error(err)
			}
			for _, row := range rows {
				names = append(names, row.Name)
			}
			return names
		}
		if got := names("secret/"); !slices.Equal(got, []string{"secret/a", "secret/Ä"}) {
			t.Errorf("names %q", got)
		}
		if err := s.Sealed().Drop(t.Context(), "secret/a"); err != nil {
			t.Fatal(err)
		}
		if row, err := s.Sealed().Find(t.Context(), "secret/a"); row != nil || err != nil {
			t.Errorf("a dropped row is %+v, %v", row, err)
		}
		if err := s.Sealed().Drop(t.Context(), ""); err != nil || len(names("")) > 0 {
			t.Errorf("all dropped: %q, %v", names(""), err)
		}
	})
}

// The configuration is read before the store is brought to this version.
func TestSealedRowsAreReadWhateverTheVersion(t *testing.T) {
	dir := t.TempDir()
	readSealed(t, dir, func(s *Store) {
		if names, err := s.Sealed().Names(t.Context(), ""); err != nil || len(names) > 0 {
			t.Errorf("of no store: %v, %v", names, err)
		}
	})
	if files, _ := os.ReadDir(dir); len(files) > 0 {
		t.Errorf("reading made %v", files)
	}
	s := open(t, dir)
	putSealedRow(t, s, "secret/A", "a")
	readSealed(t, dir, func(r *Store) { wantSealed(t, r, "secret/A", "a") }) // while the store is open
	_ = s.Close()
	for _, version := range []int{1, 9999} {
		execute(t, filepath.Join(dir, fileName), fmt.Sprintf("PRAGMA user_version = %d", version))
		readSealed(t, dir, func(r *Store) { wantSealed(t, r, "secret/A", "a") })
	}
	execute(t, filepath.Join(dir, fileName), "DROP TABLE vault; PRAGMA user_version = 3")
	readSealed(t, dir, func(s *Store) {
		if row, err := s.Sealed().Find(t.Context(), "secret/A"); err != nil || row != nil {
			t.Errorf("of a version without secrets: %v, %v", row, err)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, fileName), []byte("no database, whatever its name says"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenSealed(t.Context(), dir, ""); err == nil {
		t.Error("what is no database has no secrets")
	}
}

// A database that cannot be reached is none without secrets.
func TestSecretsOfADatabaseThatCannotBeReached(t *testing.T) {
	for _, at := range []string{"postgres://127.0.0.1:1/x", "postgres:///x?host=" + t.TempDir()} {
		for _, snapshot := range []string{"", filepath.Join(t.TempDir(), "snapshot.db")} {
			if _, err := OpenSealed(t.Context(), at, snapshot); err == nil {
				t.Errorf("%s, snapshot %q: it has no secrets", at, snapshot)
			}
			if _, err := OpenReadOnly(t.Context(), at, slog.New(slog.DiscardHandler)); err == nil {
				t.Errorf("%s: it is empty", at)
			}
		}
	}
}

// Everything else is learned again; secrets and API keys are not.
func TestSealedRowsAndKeysOutliveADatabaseThatIsMovedAside(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	putSealedRow(t, s, "key", "k")
	putSealedRow(t, s, "login/a", "a")
	if err := s.Keys().Add(t.Context(), trust.Key{Name: "ci", Hash: [32]byte{1}, Scopes: []string{"x"}, Created: time.UnixMilli(7)}); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	execute(t, filepath.Join(dir, fileName), "PRAGMA user_version = 9999")
	s = open(t, dir)
	wantSealed(t, s, "key", "k")
	wantSealed(t, s, "login/a", "a")
	_ = s.Close()
	execute(t, filepath.Join(dir, fileName), "DROP TABLE tools") // damaged
	s = open(t, dir)
	wantSealed(t, s, "login/a", "a")
	if key, err := s.Keys().Find(t.Context(), [32]byte{1}); err != nil || key == nil || key.Name != "ci" {
		t.Errorf("the API key: %+v, %v", key, err)
	}
	if aside, _ := filepath.Glob(filepath.Join(dir, fileName+".*")); len(aside) < 2 {
		t.Errorf("moved aside: %v", aside)
	}
}

func TestSealedRowsAreOverwrittenWhenTheyAreDropped(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	for _, name := range []string{"login/a", "login/a/b", "login/b", "log%"} {
		putSealedRow(t, s, name, "sealed "+name)
	}
	if names, err := s.Sealed().Names(t.Context(), "login/a"); err != nil || len(names) != 2 || names[0].Sealed != nil {
		t.Errorf("%v, %v", names, err)
	}
	if err := s.Sealed().Drop(t.Context(), "login/a"); err != nil {
		t.Fatal(err)
	}
	if names, err := s.Sealed().Names(t.Context(), "log"); err != nil || len(names) != 3 {
		t.Errorf("%v, %v", names, err)
	}
	if err := s.Sealed().Drop(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if names, err := s.Sealed().Names(t.Context(), ""); err != nil || len(names) != 0 {
		t.Errorf("%v, %v", names, err)
	}
}

func TestRemoveTakesTheLocksWithIt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s := open(t, dir)
	v, err := vault.Open(s.Sealed(), vault.Options{Locks: s.Sealed().Locks(), KeyDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Locked(t.Context(), "login/a", func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	if err := Remove(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err == nil {
		left, _ := os.ReadDir(dir)
		t.Errorf("left behind: %v", left)
	}
}
