package store

import (
	"fmt"
	"os"
	"path/filepath"
)

// checkedName is a file beside a database that was found in order, and that
// nobody has changed since its last user closed it: it says what it was like then.
// Reading all of a large database takes longer than the rest of a start. Definitions, vectors
// and segments are checked as they are read.
const checkedName = "toolfinch.checked"

// stamp is what a database file is like, "" if that cannot be told or somebody may
// have it open.
func stamp(path string) string {
	if _, err := os.Stat(path + "-wal"); err == nil {
		return ""
	}
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprintln(info.Size(), info.ModTime().UnixNano())
}

// isChecked reports whether the database at path is as noteChecked found it.
func isChecked(path string) bool {
	now := stamp(path)
	noted, err := os.ReadFile(filepath.Join(filepath.Dir(path), checkedName))
	return err == nil && now != "" && string(noted) == now
}

// noteChecked notes what a database is like that was closed. Without the note it is
// checked again.
func noteChecked(path string) {
	if now := stamp(path); now != "" && !isChecked(path) {
		_ = os.WriteFile(filepath.Join(filepath.Dir(path), checkedName), []byte(now), 0o600)
	}
}
