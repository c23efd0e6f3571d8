package store

import (
	"fmt"
	"os"
	"path/filepath"
)

// checkedName is a file beside a database that was intact and is unchanged since its last user closed it: it
// records the file's state at that time. Reading all of a large database takes longer than the rest of a start.
// Definitions, vectors and segments are checked as they are read.
const checkedName = "toolfinch.checked"

// stamp describes the state of a database file; "" if it is unknown, or if a process may have it open.
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

// isChecked reports whether the database at path is unchanged since noteChecked.
func isChecked(path string) bool {
	now := stamp(path)
	noted, err := os.ReadFile(filepath.Join(filepath.Dir(path), checkedName))
	return err == nil && now != "" && string(noted) == now
}

// noteChecked records the state of a closed database. Without the record it is checked again.
func noteChecked(path string) {
	if now := stamp(path); now != "" && !isChecked(path) {
		_ = os.WriteFile(filepath.Join(filepath.Dir(path), checkedName), []byte(now), 0o600)
	}
}
