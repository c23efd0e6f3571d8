package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"toolfinch/internal/leeway"
)

// file is what a log is written to. Several processes may write one: each takes a lock for as long as it writes.
type file struct {
	settings Settings
	log      *slog.Logger
	replica  string // of the lines

	lock   *flock.Flock
	open   *os.File // nil: not open
	size   int64
	first  time.Time // when its first line was written, as far as it is known
	wait   time.Time // when to try again to put it aside
	synced bool      // all that this process wrote is on the disk
}

const lockSuffix = ".lock"

// lockWait bounds the wait for another process that writes.
const lockWait = 5 * time.Second

// hold takes the lock.
func (f *file) hold() (release func(), err error) {
	if f.lock == nil {
		f.lock = flock.New(f.settings.File+lockSuffix, flock.SetPermissions(0o600))
	}
	ctx, cancel := context.WithTimeout(context.Background(), leeway.Of(lockWait))
	defer cancel()
	if _, err := f.lock.TryLockContext(ctx, 5*time.Millisecond); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, fmt.Errorf("another process has held the lock for %v", lockWait)
		}
		return nil, err
	}
	return func() { _ = f.lock.Unlock() }, nil
}

// append writes lines, and returns how many were written. The file is as it was before a line that could not be
// written whole. It is opened, and made, also where there are none.
func (f *file) append(lines []Line) (n int, err error) {
	release, err := f.hold()
	if err != nil {
		return 0, err
	}
	defer release()
	if err := f.reopen(); err != nil {
		return 0, err
	}
	for n < len(lines) {
		if err := f.rotate(); err != nil {
			return n, err
		}
		wrote, err := f.write(lines[n:])
		if n += wrote; err != nil {
			return n, err
		}
	}
	return n, nil
}

// atOnce is how many bytes are written at once.
const atOnce = 256 << 10

// write writes as many lines as fit the file, one at least, at once.
func (f *file) write(lines []Line) (n int, err error) {
	var text []byte
	for _, line := range lines {
		line.PID, line.Replica, line.Time = pid, f.replica, line.Time.UTC()
		encoded, err := line.encode()
		if err != nil {
			return 0, err
		}
		if n > 0 && (len(text)+len(encoded) > atOnce || f.size+int64(len(text)+len(encoded)) > int64(f.settings.MaxSize)) {
			break
		}
		text = append(text, encoded...)
		n++
	}
	if wrote, err := f.open.Write(text); err != nil {
		if wrote > 0 { // half a line
			err = errors.Join(err, f.open.Truncate(f.size))
		}
		return 0, err
	}
	if f.size == 0 {
		f.first = time.Now()
	}
	f.size += int64(len(text))
	f.synced = false
	return n, nil
}

var pid = os.Getpid()

// reopen has the file open that has the name now, and knows its size, whoever wrote it.
func (f *file) reopen() error {
	now, err := os.Stat(f.settings.File)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if f.open != nil {
		mine, err := f.open.Stat()
		if now != nil && err == nil && os.SameFile(mine, now) {
			return f.resume(now.Size())
		}
		_ = f.open.Close() // another process rotated it, or somebody removed it
		f.open = nil
	}
	file, err := os.OpenFile(f.settings.File, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	f.open, f.size, f.first = file, 0, info.ModTime()
	_ = scan(f.settings.File, Filter{}, func(l *Line, _ []byte) error { f.first = l.Time; return errFirst })
	return f.resume(info.Size())
}

// resume notes how long the file has become. What a crash, also of another process, has left of a line is ended, so
// that the next line is whole.
func (f *file) resume(size int64) error {
	if size == f.size {
		return nil
	}
	if size > 0 {
		last := make([]byte, 1)
		if _, err := f.open.ReadAt(last, size-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			if _, err := f.open.WriteString("\n"); err != nil {
				return err
			}
			size++
		}
	}
	f.size = size
	return nil
}

// errFirst ends a scan with its first line.
var errFirst = errors.New("the first line")

// rotate puts a file that is full or old aside, makes another, and removes the oldest.
func (f *file) rotate() error {
	full := f.size >= int64(f.settings.MaxSize) || time.Since(f.first) >= f.settings.MaxAge
	if f.size == 0 || !full || time.Now().Before(f.wait) {
		return nil
	}
	if err := f.close(); err != nil {
		return err
	}
	at := time.Now()
	for exists(rotatedName(f.settings.File, at)) { // in the same millisecond
		at = at.Add(time.Millisecond)
	}
	if err := os.Rename(f.settings.File, rotatedName(f.settings.File, at)); err != nil {
		// Another process has it open, on Windows: a file that grows is better than none.
		f.log.Warn("a file of the audit log could not be put aside", "file", f.settings.File, "error", err)
		f.wait = time.Now().Add(time.Minute)
		return f.reopen()
	}
	if err := f.reopen(); err != nil {
		return err
	}
	old := rotated(f.settings.File)
	for f.settings.Keep > 0 && len(old) > f.settings.Keep {
		if err := os.Remove(old[0]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			f.log.Warn("an old file of the audit log could not be removed", "file", old[0], "error", err)
		} else {
			f.log.Info("an old file of the audit log was removed", "file", old[0], "keep", f.settings.Keep)
		}
		old = old[1:]
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// rotatedTime sorts as the times do.
const rotatedTime = "20060102T150405.000Z"

func rotatedName(file string, at time.Time) string {
	ext := filepath.Ext(file)
	return strings.TrimSuffix(file, ext) + "-" + at.UTC().Format(rotatedTime) + ext
}

// rotated are the files that were put aside, the oldest first.
func rotated(file string) (paths []string) {
	found, _ := os.ReadDir(filepath.Dir(file)) // none can be read: the caller learns that from the file
	ext := filepath.Ext(file)
	for _, entry := range found {
		rest, ok := strings.CutPrefix(entry.Name(), strings.TrimSuffix(filepath.Base(file), ext)+"-")
		when, named := strings.CutSuffix(rest, ext)
		if _, err := time.Parse(rotatedTime, when); ok && named && err == nil && entry.Type().IsRegular() {
			paths = append(paths, filepath.Join(filepath.Dir(file), entry.Name()))
		}
	}
	slices.Sort(paths)
	return paths
}

// Files are those of a log, the oldest first.
func Files(file string) []string {
	files := rotated(file)
	if _, err := os.Stat(file); err == nil {
		files = append(files, file)
	}
	return files
}

// sync has what was written on the disk.
func (f *file) sync() error {
	if f.synced || f.open == nil {
		return nil
	}
	err := f.open.Sync()
	f.synced = err == nil
	return err
}

func (f *file) close() error {
	if f.open == nil {
		return nil
	}
	err := errors.Join(f.sync(), f.open.Close())
	f.open = nil
	return err
}
