package configs

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	quietTime  = 100 * time.Millisecond // an editor saves in several steps
	maxQuiet   = time.Second            // a folder that is never quiet holds nothing up for longer
	clockSlack = 2 * time.Second        // the times of files are coarser than ours, by so much on some file systems
	lookTime   = 2 * time.Second        // files are looked at without a reason too: not every file system tells
)

// Watch tells when one of the files has changed, appeared or gone: a value on
// the channel, at most one of them waiting. files returns absolute paths. It is
// asked again and again, as another configuration may name others, and must be
// safe to call concurrently with whoever changes them.
//
// Folders are watched, not files: editors rename, and a file behind a symbolic
// link (a Kubernetes volume) changes with the link. A change is told 100 ms after
// the last event, by the file's place, size and time: who writes the same file
// again without end is told once a second.
//
// Watch ends with ctx. Its goroutine has ended once the channel is closed: who
// cancels ctx receives until then.
func Watch(ctx context.Context, files func() []string, log *slog.Logger) (<-chan struct{}, error) {
	return watch(ctx, files, log, lookTime)
}

// watch is Watch that looks at the files without a reason every so often.
func watch(ctx context.Context, files func() []string, log *slog.Logger, every time.Duration) (<-chan struct{}, error) {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch configuration files: %w", err)
	}
	w := &watcher{notify: notify, files: files, log: log, refused: make(map[string]bool)}
	w.look()
	changed := make(chan struct{}, 1)
	go func() {
		defer close(changed)
		defer notify.Close()
		w.run(ctx, changed, every)
	}()
	return changed, nil
}

// watcher belongs to one goroutine.
type watcher struct {
	notify  *fsnotify.Watcher
	files   func() []string
	log     *slog.Logger
	seen    map[string]mark // by path; nil before the first look
	told    time.Time       // when a change was told last
	refused map[string]bool // folders that could not be watched, and were logged
}

// mark is how a file was found; the zero mark is no file.
type mark struct {
	path string // behind symbolic links
	info os.FileInfo
}

func (m mark) same(other mark) bool {
	if m.info == nil || other.info == nil {
		return m.info == nil && other.info == nil
	}
	return m.path == other.path && os.SameFile(m.info, other.info) &&
		m.info.Size() == other.info.Size() && m.info.ModTime().Equal(other.info.ModTime())
}

func (w *watcher) run(ctx context.Context, changed chan<- struct{}, every time.Duration) {
	look := time.NewTicker(every)
	defer look.Stop()
	quiet := time.NewTimer(quietTime)
	quiet.Stop()
	defer quiet.Stop()
	var first time.Time // event that waits for quiet; zero for none
	wait := func() {
		if first.IsZero() {
			first = time.Now()
		}
		quiet.Reset(max(0, min(quietTime, maxQuiet-time.Since(first))))
	}
	pending := false // a change that a look has found
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-w.notify.Events:
			if !open {
				return
			}
			wait()
		case err, open := <-w.notify.Errors:
			if !open {
				return
			}
			w.log.Debug("watching configuration files", "error", err) // events were lost: look
			wait()
		case <-look.C:
			if first.IsZero() && w.look() {
				pending = true
				wait()
			}
		case <-quiet.C:
			first = time.Time{}
			if w.look() || pending {
				pending = false
				w.told = time.Now()
				select {
				case changed <- struct{}{}:
				default: // one waits already
				}
			}
		}
	}
}

// look reports whether a file is not as it was, and watches the folders of all.
func (w *watcher) look() (changed bool) {
	files := w.files()
	now := make(map[string]mark, len(files))
	var folders []string
	for _, file := range files {
		m := markOf(file)
		now[file] = m
		folders = append(folders, filepath.Dir(file))
		if m.info != nil {
			folders = append(folders, filepath.Dir(m.path))
		}
		before, known := w.seen[file]
		switch {
		case known:
			changed = changed || !m.same(before)
		case !w.told.IsZero() && m.info != nil && m.info.ModTime().After(w.told.Add(-clockSlack)):
			changed = true // perhaps written since somebody was told to read it
		}
	}
	w.seen = now
	w.watch(folders)
	return changed
}

func markOf(file string) mark {
	path, err := filepath.EvalSymlinks(file)
	if err != nil {
		return mark{}
	}
	info, err := os.Stat(path)
	if err != nil {
		return mark{}
	}
	return mark{path, info}
}

// watch watches the folders and no others.
func (w *watcher) watch(folders []string) {
	for _, folder := range w.notify.WatchList() {
		if !slices.Contains(folders, folder) {
			_ = w.notify.Remove(folder) // gone with its folder, at worst
		}
	}
	for _, folder := range folders {
		// Again and again: another folder may have got the name.
		err := w.notify.Add(folder)
		if err != nil && !w.refused[folder] {
			w.log.Warn("folder is not watched, its files are looked at now and then", "folder", folder, "error", err)
		}
		w.refused[folder] = err != nil
	}
}
