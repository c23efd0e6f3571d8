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
	quietTime  = 100 * time.Millisecond // editors save in several steps
	maxQuiet   = time.Second            // longest delay by a folder with constant events
	clockSlack = 2 * time.Second        // the coarsest time of file systems
	lookTime   = 2 * time.Second        // interval of looks without events: not every file system sends events
)

// Watch sends a value when one of the files has changed, appeared or gone; at most one value
// waits in the channel. files returns absolute paths. Watch calls it often, because a new
// configuration may name other files; it must be safe for concurrent use.
//
// Watch watches folders, because editors rename files, and a file behind a symbolic link (a
// Kubernetes volume) changes with the link. A change in a file's place, size or time is sent
// 100 ms after the last event, or after a second of constant events.
//
// Watch ends with ctx, and closes the channel when its goroutine has ended.
func Watch(ctx context.Context, files func() []string, log *slog.Logger) (<-chan struct{}, error) {
	return watch(ctx, files, log, lookTime)
}

// watch is Watch with an interval of looks.
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

// mark is the state of a file; the zero mark is no file.
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
	var first time.Time // first event since the last look; zero for none
	wait := func() {
		if first.IsZero() {
			first = time.Now()
		}
		quiet.Reset(max(0, min(quietTime, maxQuiet-time.Since(first))))
	}
	pending := false // a look without events found a change
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
				default: // a value waits already
				}
			}
		}
	}
}

// look reports whether a file changed, and watches the folders of all files.
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
			changed = true // may be written after the last value was sent
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

// watch watches only the folders.
func (w *watcher) watch(folders []string) {
	for _, folder := range w.notify.WatchList() {
		if !slices.Contains(folders, folder) {
			_ = w.notify.Remove(folder) // fails if the folder is gone
		}
	}
	for _, folder := range folders {
		// Every time: a new folder may have the name.
		err := w.notify.Add(folder)
		if err != nil && !w.refused[folder] {
			w.log.Warn("folder is not watched, its files are looked at now and then", "folder", folder, "error", err)
		}
		w.refused[folder] = err != nil
	}
}
