package clients

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Backups are bounded, and the one that undo needs stays whatever comes after it.
func TestJournalKeepsFewBackups(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "mcp.json")
	j := Journal{Dir: filepath.Join(dir, "undo")}
	f := File{Client: Find("cursor"), Path: path, block: mcpServers}
	now := time.Date(2026, 7, 28, 9, 5, 0, 0, time.UTC)
	first := []byte(`{"mcpServers": {"moved": {"command": "m"}}}`)
	if err := Replace(path, nil, first); err != nil {
		t.Fatal(err)
	}
	edit := Edit{Path: path, Before: first, After: []byte(`{}`), Moved: []string{"moved"}}
	for n := range 20 {
		if _, err := j.Write(edit, now.Add(time.Duration(n)*time.Minute)); err != nil {
			t.Fatal(err)
		}
		other := []byte(strings.Repeat(" ", n) + "{}\n")
		if err := Replace(path, edit.After, other); err != nil {
			t.Fatal(err)
		}
		edit = Edit{Path: path, Before: other, After: []byte(`{"n": 1}`)}
	}
	backups, err := filepath.Glob(path + backupMark + "*")
	if err != nil || len(backups) > maxBackups+2 {
		t.Errorf("%d backups: %v", len(backups), err)
	}
	u, err := j.Undo(f, "toolfinch")
	if err != nil || !strings.Contains(string(u.After), `"moved"`) || u.Exact {
		t.Fatalf("undone: %s, %v", u.After, err)
	}
	if _, err := j.Restore(u, now); err != nil {
		t.Fatal(err)
	}
	if u, err = j.Undo(f, "toolfinch"); err != nil || u.Back != nil {
		t.Errorf("undone twice: %v, %v", u.Back, err)
	}
}

// Without the backup nothing is written, and the error says what is missing.
func TestJournalWithoutItsBackup(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "c.yaml")
	j := Journal{Dir: filepath.Join(dir, "undo")}
	if err := Replace(path, nil, []byte("a")); err != nil {
		t.Fatal(err)
	}
	backup, err := j.Write(Edit{Path: path, Before: []byte("a"), After: []byte("b"), Setup: true}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if paths, err := j.Setup(); err != nil || len(paths) != 1 || paths[0] != path {
		t.Errorf("edited by setup: %v, %v", paths, err)
	}
	if err := os.Rename(backup, backup+"x"); err != nil {
		t.Fatal(err)
	}
	if _, err := j.UndoFile(path); err == nil || !strings.Contains(err.Error(), "the backup is needed") || strings.Contains(err.Error(), dir) {
		t.Errorf("error = %v", err)
	}
	if err := Replace(path, []byte("b"), []byte("c")); err != nil {
		t.Fatal(err)
	}
	if _, err := j.UndoFile(path); !errors.Is(err, ErrChanged) {
		t.Errorf("error = %v, want %v", err, ErrChanged)
	}
}
