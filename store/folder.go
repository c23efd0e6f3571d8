package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// madeForName is a text file beside the database, so that it can be read whatever the
// state and the version of the database.
const madeForName = "configuration"

// MadeFor notes the path of the configuration that the store is for, see Folders. It
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

// Folder is a folder with a store.
type Folder struct {
	Path          string
	Configuration string    // path of the configuration that last used it; "" if that is not noted
	Bytes         int64     // of the files of the store
	Written       time.Time // when something was last written
}

// Folders returns the folders in base that have a store, by name. Nothing is opened or
// written. There are none where base is missing.
func Folders(base string) ([]Folder, error) {
	entries, err := os.ReadDir(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	var folders []Folder
	for _, entry := range entries {
		dir := filepath.Join(base, entry.Name())
		if _, err := os.Stat(filepath.Join(dir, fileName)); err != nil || !entry.IsDir() {
			continue
		}
		f := Folder{Path: dir, Configuration: madeFor(filepath.Join(dir, madeForName))}
		for _, path := range files(dir) {
			if info, err := os.Stat(path); err == nil {
				f.Bytes += info.Size()
				if info.ModTime().After(f.Written) {
					f.Written = info.ModTime()
				}
			}
		}
		folders = append(folders, f)
	}
	return folders, nil
}

// files are the files of a store but for its lock: the database, what SQLite keeps
// beside it, databases that were set aside, and the notes of MadeFor, noteChecked and noteBaselines.
func files(dir string) []string {
	entries, _ := os.ReadDir(dir) // what cannot be read has no files to remove
	var paths []string
	for _, entry := range entries {
		if name := entry.Name(); name == madeForName || name == checkedName || name == baselinesName || name == fileName || strings.HasPrefix(name, fileName+"-") || strings.HasPrefix(name, fileName+".") {
			paths = append(paths, filepath.Join(dir, name))
		}
	}
	return paths
}

// ErrInUse is wrapped by the error of Remove for a store that a process has open.
var ErrInUse = errors.New("a running toolfinch uses it")

// Remove removes the store in dir, and dir itself unless something else is in it.
func Remove(ctx context.Context, dir string) (err error) {
	lock, err := openLock(ctx, filepath.Join(dir, lockName))
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	switch alone, err := lock.Alone(ctx); {
	case err != nil:
		return fmt.Errorf("store: %w", err)
	case !alone:
		return ErrInUse
	}
	for _, path := range files(dir) {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("store: %w", err)
		}
	}
	if err := errors.Join(lock.Release(ctx), lock.Close()); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, lockName)), os.RemoveAll(filepath.Join(dir, lockDirName))); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	_ = os.Remove(dir) // fails where the user keeps something else in it
	return nil
}
