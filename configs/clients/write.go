package clients

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// maxSize bounds a file, in bytes: Claude Code's file has histories, too.
const maxSize = 64 << 20

// ErrChanged says that a file changed since it was read for the edit.
var ErrChanged = errors.New("the file has changed meanwhile; try again")

// ErrReadOnly says that a file is write-protected.
var ErrReadOnly = errors.New("the file is read-only")

// ReadFile returns the bytes of a file. Errors have only the base name of its path.
func ReadFile(path string) ([]byte, error) {
	name := filepath.Base(path)
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, reason(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, reason(err))
	}
	if len(data) > maxSize {
		return nil, fmt.Errorf("%s: is larger than %d MiB", name, maxSize>>20)
	}
	return data, nil
}

// Replace writes after in place of before, the file's present content, nil for no file. A
// failure leaves the whole old file. Mode and, if possible, owner stay; through a symbolic
// link the target is written. A new file is readable by its user only, because it may get
// secrets; missing folders are made.
func Replace(path string, before, after []byte) error {
	return named(path, replace(path, before, after, 0o777))
}

// ReplacePrivate is Replace for bytes with secrets: only the owner may read the new file.
func ReplacePrivate(path string, before, after []byte) error {
	return named(path, replace(path, before, after, 0o700))
}

func named(path string, err error) error {
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), reason(err))
	}
	return nil
}

// replace keeps the bits of the file's mode in mask.
func replace(path string, before, after []byte, mask fs.FileMode) (err error) {
	path = target(path)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		if err := writable(path, info); err != nil {
			return err
		}
	}
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = temp.Close() // the file is closed already, or removed
			_ = os.Remove(temp.Name())
		}
	}()
	if _, err := temp.Write(after); err != nil {
		return err
	}
	if info != nil {
		if err := temp.Chmod(info.Mode().Perm() & mask); err != nil {
			return err
		}
		keepOwner(temp, info)
	}
	if err := temp.Sync(); err != nil {
		return err
	}
	if err := temp.Close(); err != nil {
		return err
	}
	if err := unchanged(path, before); err != nil {
		return err
	}
	if err := os.Rename(temp.Name(), path); err != nil {
		return err
	}
	syncDir(filepath.Dir(path))
	return nil
}

// target follows symbolic links to a file that need not exist.
func target(path string) string {
	for range 40 { // the bound of Linux
		link, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(link) {
			link = filepath.Join(filepath.Dir(path), link)
		}
		path = link
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// writable refuses protected files and paths that are no file, because a rename would
// replace both.
func writable(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return errors.New("it is not a regular file")
	}
	if info.Mode().Perm()&0o200 == 0 {
		return ErrReadOnly
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// Writable returns why the file at a path cannot be replaced, nil for a missing file.
func Writable(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = writable(path, info)
	}
	return named(path, err)
}

func unchanged(path string, before []byte) error {
	now, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if before == nil {
			return nil
		}
		return ErrChanged
	}
	if err != nil {
		return err
	}
	if before == nil || !bytes.Equal(now, before) {
		return ErrChanged
	}
	return nil
}

// syncDir makes the rename durable. Errors are ignored: not every system supports it.
func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}

// reason is an error of a file without its path.
func reason(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}
