package store

import (
	"os"
	"path/filepath"
	"strings"
)

// madeForName is a text file beside the database, so that it can be read whatever the
// state and the version of the database.
const madeForName = "configuration"

// MadeFor notes the path of the configuration that the store is for, beside it. It
// does nothing for a store in memory.
func (s *Store) MadeFor(config string) error {
	if s.path == "" || config == "" {
		return nil
	}
	path := filepath.Join(filepath.Dir(s.path), madeForName)
	if madeFor(path) == config {
		return nil
	}
	return failed("note whose it is", os.WriteFile(path, []byte(config+"\n"), 0o600))
}

// madeFor reads what MadeFor wrote, "" if nothing can be read.
func madeFor(path string) string {
	const longest = 1 << 16
	if info, err := os.Stat(path); err != nil || info.Size() > longest {
		return ""
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(text), "\n")
}
