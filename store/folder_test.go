package store

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

func TestFolders(t *testing.T) {
	base := t.TempDir()
	if folders, err := Folders(filepath.Join(base, "none")); len(folders) != 0 || err != nil {
		t.Fatalf("got %v, %v of a folder that is not there", folders, err)
	}
	log := slog.New(slog.DiscardHandler)
	for _, name := range []string{"a", "b"} {
		s, err := Open(t.Context(), filepath.Join(base, name), log)
		if err != nil {
			t.Fatal(err)
		}
		if name == "a" {
			for range 2 {
				if err := s.MadeFor("/home/ada/toolfinch.yaml"); err != nil {
					t.Fatal(err)
				}
			}
			if err := Remove(t.Context(), filepath.Join(base, "a")); !errors.Is(err, ErrInUse) {
				t.Errorf("got %v, want ErrInUse", err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(base, "b", "mine.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(base, "c"), 0o700); err != nil {
		t.Fatal(err)
	}

	folders, err := Folders(base)
	if err != nil || len(folders) != 2 {
		t.Fatalf("got %+v, %v", folders, err)
	}
	for i, want := range []string{"/home/ada/toolfinch.yaml", ""} {
		if f := folders[i]; f.Configuration != want || f.Bytes == 0 || f.Written.IsZero() {
			t.Errorf("got %+v, want a store of %q", f, want)
		}
		if err := Remove(t.Context(), folders[i].Path); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(base, "a")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a is still there: %v", err)
	}
	left, err := os.ReadDir(filepath.Join(base, "b"))
	if err != nil || len(left) != 1 || left[0].Name() != "mine.txt" {
		t.Errorf("of b is left %v, %v", left, err)
	}
}
