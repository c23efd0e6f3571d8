package configs

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

// watching is a running Watch.
type watching struct {
	t       *testing.T
	mu      sync.Mutex // guards files
	files   []string
	changed <-chan struct{}
}

func (w *watching) names() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.files
}

func (w *watching) set(files ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.files = files
}

// told waits until a change is told.
func (w *watching) told(what string) {
	w.t.Helper()
	w.t.Log(what)
	await.True(w.t, func() bool {
		select {
		case _, open := <-w.changed:
			if !open {
				w.t.Fatalf("%s: the watch has ended", what)
			}
			return true
		default:
			return false
		}
	})
}

// startWatch starts a Watch that has ended when the test ends.
func startWatch(t *testing.T, files ...string) *watching {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &watching{t: t, files: files}
	changed := must.Get(watch(ctx, w.names, slog.New(slog.DiscardHandler), 10*time.Millisecond))(t)
	w.changed = changed
	t.Cleanup(func() {
		cancel()
		for range changed {
		}
	})
	return w
}

// However a file is saved, it is told.
func TestWatchTellsEveryWayToSave(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "toolfinch.yaml")
	must.Write(t, file, "one")
	w := startWatch(t, file)

	must.Write(t, file, "two: in place")
	w.told("a file written in place")

	must.Write(t, filepath.Join(dir, ".swp"), "three: beside it")
	must.Do(t, os.Rename(filepath.Join(dir, ".swp"), file))
	w.told("a file renamed over it")

	must.Do(t, os.Remove(file))
	w.told("a file removed")

	must.Write(t, file, "four: again")
	w.told("a file that is back")

	must.Write(t, file, "five: and written")
	w.told("a write to the file that is back")
}

// Other files of the folder, and a file that stays what it was, are no change.
func TestWatchTellsNothingElse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, other := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	must.Write(t, file, "one")
	must.Write(t, other, "one")
	w := &watcher{files: func() []string { return []string{file} }, refused: make(map[string]bool)}
	w.notify = mustNotify(t)
	if w.look() {
		t.Error("the first look is a change")
	}
	must.Write(t, other, "another one")
	must.Do(t, os.Chmod(file, 0o644))
	if w.look() {
		t.Error("another file is a change")
	}
	must.Write(t, file, "longer")
	if !w.look() || w.look() {
		t.Error("a change is not told once")
	}
	// The same size at another time.
	must.Do(t, os.Chtimes(file, time.Time{}, time.Unix(1_000_000_000, 0)))
	if !w.look() {
		t.Error("a file of another time is no change")
	}
}

// A file that the configuration has come to name is watched, and one it no
// longer names is not.
func TestWatchAsksForFilesAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, hook := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "hooks", "a.star")
	must.Write(t, file, "one")
	must.Write(t, hook, "one")
	w := startWatch(t, file)
	must.Write(t, file, "names the hook")
	w.told("the configuration")
	w.set(file, hook)
	must.Write(t, hook, "another") // at any time from now on, looked at before or not
	w.told("the hook")
	w.set(hook)
	must.Write(t, hook, "yet another")
	w.told("the hook, when it is the only file")
}

// A folder that comes later is found.
func TestWatchWaitsForFolders(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "later", "a.yaml")
	w := startWatch(t, file)
	must.Write(t, file, "here")
	w.told("a file in a new folder")
	must.Do(t, os.RemoveAll(filepath.Dir(file)))
	w.told("a folder that is gone")
	must.Write(t, file, "here again")
	w.told("a folder that is back")
	must.Write(t, file, "here and there")
	w.told("a write in the folder that is back")
}

// A volume of Kubernetes: the file is a link through ..data, which is replaced.
func TestWatchFollowsLinks(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("symbolic links need rights on Windows")
	}
	dir := t.TempDir()
	file, link := filepath.Join(dir, "toolfinch.yaml"), filepath.Join(dir, "..data")
	must.Write(t, filepath.Join(dir, "..v1", "toolfinch.yaml"), "same")
	must.Write(t, filepath.Join(dir, "..v2", "toolfinch.yaml"), "same")
	must.Do(t, os.Symlink("..v1", link))
	must.Do(t, os.Symlink(filepath.Join("..data", "toolfinch.yaml"), file))
	w := startWatch(t, file)

	must.Do(t, os.Symlink("..v2", link+"_tmp"))
	must.Do(t, os.Rename(link+"_tmp", link))
	w.told("another version behind the link")

	must.Write(t, filepath.Join(dir, "..v2", "toolfinch.yaml"), "edited")
	w.told("an edit behind the link")
}

// Watch ends with its context, in whatever state.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	ctx, cancel := context.WithCancel(context.Background())
	changed := must.Get(Watch(ctx, func() []string { return []string{file} }, slog.New(slog.DiscardHandler)))(t)
	must.Write(t, file, "one")
	cancel()
	for range changed { // ends when the channel is closed
	}
}

func mustNotify(t testing.TB) *fsnotify.Watcher {
	t.Helper()
	notify := must.Get(fsnotify.NewWatcher())(t)
	t.Cleanup(func() { notify.Close() })
	return notify
}

func BenchmarkLook(b *testing.B) {
	dir := b.TempDir()
	var files []string
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		files = append(files, must.Write(b, filepath.Join(dir, name), ""))
	}
	w := &watcher{files: func() []string { return files }, refused: make(map[string]bool), notify: mustNotify(b)}
	for b.Loop() {
		w.look()
	}
}
