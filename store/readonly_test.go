package store

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"toolfinch/tool"
)

func openReadOnly(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := OpenReadOnly(t.Context(), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestAReadOnlyStoreReadsAndWritesNothing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, "a", defs(t, "a", `{"name":"x"}`, `{"name":"y"}`)...)
	if err := s.Usage().PutClient(t.Context(), "agent 1", tool.RelistsAlways); err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{"an open store", "a closed one"} {
		r := openReadOnly(t, dir)
		clients, err := r.Usage().Clients(t.Context())
		if got := ids(tools(t, r)); !slices.Equal(got, []string{"a.x", "a.y"}) || clients["agent 1"] != tool.RelistsAlways || err != nil || r.Durable() {
			t.Errorf("of %s it reads %v and %v, %v", of, got, clients, err)
		}
		if _, err := r.KeepServers(t.Context(), nil); !errors.Is(err, ErrReadOnly) {
			t.Errorf("of %s: KeepServers = %v", of, err)
		}
		if _, err := r.db.Exec(`DELETE FROM tools`); err == nil {
			t.Errorf("of %s: the database lets itself be changed", of)
		}
		_ = s.Close()
	}
	if got := ids(tools(t, open(t, dir))); !slices.Equal(got, []string{"a.x", "a.y"}) {
		t.Errorf("the store has %v", got)
	}
}

func TestAReadOnlyStoreOfNothingIsEmpty(t *testing.T) {
	damaged, none := t.TempDir(), filepath.Join(t.TempDir(), "none")
	if err := os.WriteFile(filepath.Join(damaged, fileName), []byte("no database, whatever its name says"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{damaged, none} {
		if got := tools(t, openReadOnly(t, dir)); len(got) > 0 {
			t.Errorf("%s: %v", dir, got)
		}
		if s, err := OpenExisting(t.Context(), dir, slog.New(slog.DiscardHandler)); err == nil { // a copy would be one of nothing
			t.Errorf("%s: it exists", dir)
			_ = s.Close()
		}
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("a folder was made")
	}
	if left, _ := os.ReadDir(damaged); len(left) != 1 {
		t.Errorf("files were made: %v", left)
	}
}

// A store of another version of the program stays as it is.
func TestAReadOnlyStoreIsNotMigrated(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if _, err := s.db.Exec("PRAGMA user_version = 1"); err != nil {
		t.Fatal(err)
	}
	if got := tools(t, openReadOnly(t, dir)); len(got) > 0 {
		t.Errorf("it reads %v", got)
	}
	var version int
	if err := s.db.QueryRow("PRAGMA user_version").Scan(&version); err != nil || version != 1 {
		t.Errorf("the schema has version %d, %v", version, err)
	}
}
