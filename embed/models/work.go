package models

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// work is the temporary folder in which one pull assembles a model.
type work struct {
	place
	temp             string
	note             func(string)
	source, revision string
	files            map[string]File // complete and checked
}

func (w *work) path(name string) string {
	return filepath.Join(w.temp, "model", filepath.FromSlash(name))
}

// add copies a file into the model. It must have the size and sum of want, where those
// are known, and at most limit bytes.
func (w *work) add(ctx context.Context, name string, from io.Reader, limit int64, want File) error {
	path := w.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	hash := sha256.New()
	limit = cmp.Or(want.Size, limit)
	n, err := io.Copy(io.MultiWriter(file, hash), io.LimitReader(reader{ctx, from}, limit+1))
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	got := File{n, hex.EncodeToString(hash.Sum(nil))}
	switch {
	case n > limit:
		return fmt.Errorf("%s %w (%s)", name, errTooLarge, Bytes(limit))
	case want.Size > 0 && n != want.Size:
		return fmt.Errorf("%s has %d bytes instead of %d", name, n, want.Size)
	case want.SHA256 != "" && got.SHA256 != want.SHA256:
		return fmt.Errorf("%s is not the published file: its sha256 is %s instead of %s", name, got.SHA256, want.SHA256)
	}
	w.files[name] = got
	return plausible(name, path)
}

// has reports whether a file is complete.
func (w *work) has(name string) bool { _, ok := w.files[name]; return ok }

// install puts the finished model in place of the old one.
func (w *work) install() error {
	if lacking := missing(w.has); lacking != nil {
		return fmt.Errorf("it lacks %s", strings.Join(lacking, ", "))
	}
	raw, err := json.MarshalIndent(Manifest{w.name, w.source, w.revision, time.Now().UTC().Truncate(time.Second), w.files}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(w.path(manifestFile), append(raw, '\n'), 0o644); err != nil {
		return err
	}
	old := filepath.Join(w.temp, "old")
	if err := os.Rename(w.dir, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(w.path(""), w.dir); err != nil {
		if _, other := w.check(); other == nil {
			return nil // another pull was faster
		}
		return errors.Join(err, os.Rename(old, w.dir))
	}
	return nil
}

// errTooLarge ends a file that has more bytes than it may.
var errTooLarge = errors.New("has more bytes than it may have")
