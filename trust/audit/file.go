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

// file is the log on the disk. Several processes may write to it: each holds a lock during a write.
type file struct {
	settings Settings
	log      *slog.Logger
	replica  string // replica in the lines

	lock   *flock.Flock
	open   *os.File // nil: not open
	size   int64
	first  time.Time // time of its first line, if known
	wait   time.Time // time of the next attempt to rotate
	synced bool      // all writes of this process are on the disk
}

const lockSuffix = ".lock"

// lockWait bounds the wait for another writing process.
const lockWait = 5 * time.Second

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

// append writes lines, and returns how many were written. A partly written line is removed. Without lines, append
// only makes the file.
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

// atOnce bounds the bytes of one write.
const atOnce = 256 << 10

// write writes lines in one write: as many as the file has room for, at least one.
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
		if wrote > 0 { // a partial line
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

// reopen opens the file that has the name now, and reads its size, because other processes also write and rotate it.
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

// resume notes the size of the file. It ends the partial line of a crashed process, so that the next line is whole.
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

// errFirst ends a scan after the first line.
var errFirst = errors.New("the first line")

// rotate renames a full or old file, makes a new file, and removes the oldest files.
func (f *file) rotate() error {
	full := f.size >= int64(f.settings.MaxSize) || time.Since(f.first) >= f.settings.MaxAge
	if f.size == 0 || !full || time.Now().Before(f.wait) {
		return nil
	}
	if err := f.close(); err != nil {
		return err
	}
	at := time.Now()
	for exists(rotatedName(f.settings.File, at)) { // within the same millisecond
		at = at.Add(time.Millisecond)
	}
	if err := os.Rename(f.settings.File, rotatedName(f.settings.File, at)); err != nil {
		// On Windows another process may have it open: a growing file is better than none.
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

// rotatedTime is a format whose texts sort by time.
const rotatedTime = "20060102T150405.000Z"

func rotatedName(file string, at time.Time) string {
	ext := filepath.Ext(file)
	return strings.TrimSuffix(file, ext) + "-" + at.UTC().Format(rotatedTime) + ext
}

// rotated returns the renamed files, the oldest first.
func rotated(file string) (paths []string) {
	found, _ := os.ReadDir(filepath.Dir(file)) // unreadable: opening the file will fail, too
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

// Files returns the files of a log, the oldest first.
func Files(file string) []string {
	files := rotated(file)
	if _, err := os.Stat(file); err == nil {
		files = append(files, file)
	}
	return files
}

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
