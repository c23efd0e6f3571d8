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

// madeForName is a text file beside the database, readable whatever the state and version of the database.
const madeForName = "configuration"

// MadeFor records the path of the store's configuration, see Folders. It does nothing for a store in memory.
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

// madeFor reads the path that MadeFor recorded; "" if it cannot be read.
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
	Configuration string    // path of the configuration that last used it; "" if unknown
	Bytes         int64     // of the files of the store
	Written       time.Time // time of the last write
}

// Folders returns the folders in base that contain a store, by name. It opens and writes nothing. A missing base
// has none.
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

// files returns the files of a store except its lock: the database, SQLite's files beside it, databases that were
// set aside, and the files of MadeFor, noteChecked and noteBaselines.
func files(dir string) []string {
	entries, _ := os.ReadDir(dir) // an unreadable folder has no files to remove
	var paths []string
	for _, entry := range entries {
		if name := entry.Name(); name == madeForName || name == checkedName || name == baselinesName || name == fileName || strings.HasPrefix(name, fileName+"-") || strings.HasPrefix(name, fileName+".") {
			paths = append(paths, filepath.Join(dir, name))
		}
	}
	return paths
}

// ErrInUse is returned by Remove for a store that a process has open.
var ErrInUse = errors.New("a running toolfinch uses it")

// Remove deletes the store in dir, and dir itself if it is then empty.
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
	_ = os.Remove(dir) // fails if the user keeps other files in it
	return nil
}
