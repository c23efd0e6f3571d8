package store

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestACopyHasWhatTheStoreHasAndChangesNothing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, "a", defs(t, "a", `{"name":"x"}`, `{"name":"y"}`)...)
	if err := s.PutClient(t.Context(), "agent 1", true); err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{"an open store", "a closed one"} {
		c, err := OpenCopy(t.Context(), dir, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		clients, err := c.Clients(t.Context())
		if got := ids(tools(t, c)); !slices.Equal(got, []string{"a.x", "a.y"}) || !clients["agent 1"] || err != nil || c.Durable() {
			t.Errorf("a copy of %s has %v and %v, %v", of, got, clients, err)
		}
		if _, err := c.KeepServers(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		put(t, c, "b", defs(t, "b", `{"name":"z"}`)...)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		_ = s.Close()
	}
	if got := ids(tools(t, open(t, dir))); !slices.Equal(got, []string{"a.x", "a.y"}) {
		t.Errorf("the store has %v", got)
	}
}

func TestACopyOfNothingIsEmpty(t *testing.T) {
	damaged, none := t.TempDir(), filepath.Join(t.TempDir(), "none")
	if err := os.WriteFile(filepath.Join(damaged, fileName), []byte("no database, whatever its name says"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{damaged, none} {
		c, err := OpenCopy(t.Context(), dir, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if got := tools(t, c); len(got) > 0 {
			t.Errorf("%s: %v", dir, got)
		}
		if _, err := c.PutServer(t.Context(), Server{Name: "a"}, nil); err != nil {
			t.Error(err)
		}
		_ = c.Close()
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("a folder was made")
	}
	if left, _ := os.ReadDir(damaged); len(left) != 1 {
		t.Errorf("files were made: %v", left)
	}
}
