// Package audit owns the log of what was done: lines of JSON in files, which it writes,
// rotates and reads. It knows neither tools nor stores: what lines are about is told it.
package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"toolfinch/trust"
)

// Settings are what the configuration says of the log.
type Settings struct {
	File    string        // absolute; "" for FileName in the folder of the store
	MaxSize int           // of a file, in bytes
	MaxAge  time.Duration // of the first line of a file, before it is rotated
	Keep    int           // rotated files; 0: all
	// Arguments and Results say whether the content of either is written: redacted, and
	// cut at 4 KiB.
	Arguments Arguments
	Results   bool
	Full      Full
}

// Arguments says what is written of arguments.
type Arguments string

// What is written of arguments.
const (
	ArgumentsDigest Arguments = "digest" // SHA-256
	ArgumentsFull   Arguments = "full"   // and their content
)

// Full says what is done when there is no room for more lines.
type Full string

// What is done when there is no room.
const (
	// FullWait has whoever causes a line wait; where the file cannot be written, it is
	// refused.
	FullWait Full = "wait"
	// FullDrop counts the line, which is lost.
	FullDrop Full = "drop"
)

// Defaults of Settings.
const (
	FileName       = "audit.jsonl"
	DefaultMaxSize = 100_000_000
	DefaultMaxAge  = 24 * time.Hour
	DefaultKeep    = 30
)

// ErrUnavailable is wrapped by the error of Admit while the log cannot be written.
var ErrUnavailable = errors.New("the audit log cannot be written")

// Log is an open log. Its methods are safe for concurrent use.
type Log struct {
	settings Settings
	log      *slog.Logger
	clean    func([]byte) []byte

	writing sync.Mutex // held while lines are written; guards file
	file    *file
	failing atomic.Pointer[error] // why the last write failed

	mu      sync.Mutex // guards what follows; never held over I/O
	pending []Line
	room    chan struct{} // closed when pending was taken
	closed  bool
	wake    chan struct{}

	written, waited, failed, lost atomic.Int64
	unreported                    atomic.Int64 // of lost: not yet said in the log
}

// queue is how many lines may wait to be written before calls wait, too. Calls that
// are under way then still add theirs.
const queue = 4096

// Open opens a log, which is made where there is none (mode 0600), with its folder. clean, which may be
// nil, masks secrets in contents. Nothing is written before Run or Flush.
func Open(s Settings, clean func([]byte) []byte, log *slog.Logger) (*Log, error) {
	l := &Log{
		settings: s, log: log, clean: clean, file: &file{settings: s, log: log},
		room: make(chan struct{}), wake: make(chan struct{}, 1),
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	err := os.MkdirAll(filepath.Dir(s.File), 0o700)
	if err == nil {
		_, err = l.file.append(nil)
	}
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	return l, nil
}

// Name has all lines from here on say which replica wrote them.
func (l *Log) Name(replica string) {
	if l == nil {
		return
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	l.file.replica = replica
}

// Admit waits until there is room for what a call will add. The error wraps
// ErrUnavailable where nothing can be written, or is why ctx ended. A nil Log admits
// everything.
func (l *Log) Admit(ctx context.Context) error {
	if l == nil || l.settings.Full == FullDrop {
		return nil
	}
	for waited := false; ; waited = true {
		if why := l.failing.Load(); why != nil {
			return fmt.Errorf("%w (%w): nothing is done until it can be again", ErrUnavailable, *why)
		}
		l.mu.Lock()
		full, room := len(l.pending) >= queue && !l.closed, l.room
		l.mu.Unlock()
		if !full {
			return nil
		}
		if !waited {
			l.waited.Add(1)
		}
		select {
		case <-room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Add has a line written soon. It does not wait: call Admit before what the line is
// about. A nil Log drops it.
func (l *Log) Add(line Line) {
	if l == nil {
		return
	}
	if line.Time.IsZero() {
		line.Time = time.Now()
	}
	l.mu.Lock()
	if l.settings.Full == FullDrop && len(l.pending) >= queue || len(l.pending) >= 16*queue {
		l.mu.Unlock()
		l.lost.Add(1)
		l.unreported.Add(1)
		return
	}
	l.pending = append(l.pending, line)
	n := len(l.pending)
	l.mu.Unlock()
	if n == 1 || n == queue/2 {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// Write has a line in the file before what it is about is done. The error is that of Admit, or says that the line
// could not be written, where nothing may be done that is not. A nil Log drops it.
func (l *Log) Write(ctx context.Context, line Line) error {
	if err := l.Admit(ctx); l == nil || err != nil {
		return err
	}
	l.Add(line)
	if err := l.Flush(); err != nil && l.settings.Full != FullDrop {
		return fmt.Errorf("%w (%w): nothing is done until it can be again", ErrUnavailable, plain(err))
	}
	return nil
}

// Note has a line written about what was not done. Where there is no room it is counted as lost: it
// takes none of what is done. A nil Log drops it.
func (l *Log) Note(line Line) {
	if l == nil {
		return
	}
	line.bound()
	l.mu.Lock()
	full := len(l.pending) >= queue
	l.mu.Unlock()
	if full {
		l.lost.Add(1)
		l.unreported.Add(1)
		return
	}
	l.Add(line)
}

// patience bounds how long Record waits for room.
const patience = 5 * time.Second

// Record writes an event down; it is a trust.Record. Where there is no room it waits
// up to 5 s. A nil Log drops it.
func (l *Log) Record(ctx context.Context, e trust.Event) {
	if l == nil {
		return
	}
	line := lineOf(e)
	l.About(ctx, &line)
	line.Time = time.Now()
	waits, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_ = l.Admit(waits) // what has happened is written down in any case
	l.Add(line)
}

// About adds to a line what the context of its event says.
func (l *Log) About(ctx context.Context, line *Line) {
	if p := trust.PrincipalOf(ctx); p != nil && (line.Principal == nil || line.Principal.ID == p.ID) {
		line.Principal = &Principal{ID: p.ID, Groups: p.Groups}
	}
	if from, ok := trust.SourceOf(ctx); ok {
		line.SourceIP, line.Transport = from.Address, from.Transport
	}
}

// Run writes until ctx ends, and what there is then.
func (l *Log) Run(ctx context.Context) {
	var sync <-chan time.Time // nil: all that was written is on the disk
	for {
		select {
		case <-l.wake:
			gather := time.NewTimer(linger)
			select {
			case <-gather.C:
			case <-l.wake: // there are many
			case <-ctx.Done():
			}
			gather.Stop()
			l.persist(ctx)
			if sync == nil {
				sync = time.After(syncEvery)
			}
		case <-sync:
			sync = nil
			l.sync()
		case <-ctx.Done():
			_ = l.Flush()
			return
		}
	}
}

// linger is how long a line may wait for others that are written with it: locks, checks of
// the file and the write cost more than a line.
const linger = 5 * time.Millisecond

// syncEvery is how long a line that was written may not be on the disk.
const syncEvery = time.Second

// persist writes what is pending, again and again until it can be or ctx ends.
func (l *Log) persist(ctx context.Context) {
	const least, most = 100 * time.Millisecond, 3 * time.Second
	for pause := least; l.Flush() != nil; pause = min(2*pause, most) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// Flush writes what is pending. After an error it stays pending.
func (l *Log) Flush() error {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	batch := l.pending
	l.pending = nil
	close(l.room)
	l.room = make(chan struct{})
	l.mu.Unlock()
	if lost := l.unreported.Swap(0); lost > 0 {
		batch = append(batch, Line{Time: time.Now(), Event: trust.EventLost, Outcome: trust.Failed, Details: map[string]string{"lines": fmt.Sprint(lost)}})
	}
	if len(batch) == 0 {
		return nil
	}
	n, err := l.file.append(batch)
	l.written.Add(int64(n))
	if err != nil {
		l.mu.Lock()
		l.pending = append(batch[n:len(batch):len(batch)], l.pending...)
		l.mu.Unlock()
		l.fails(err)
		return err
	}
	if l.failing.Swap(nil) != nil {
		l.log.Info("the audit log can be written again", "file", l.settings.File)
	}
	return nil
}

// fails remembers that a write failed, and says so once.
func (l *Log) fails(err error) {
	l.failed.Add(1)
	short := plain(err)
	if l.failing.Swap(&short) == nil {
		effect := "calls are refused until it can be"
		if l.settings.Full == FullDrop {
			effect = "what does not fit the queue is lost"
		}
		l.log.Error("the audit log cannot be written: "+effect, "file", l.settings.File, "error", err)
	}
}

// plain is an error without the paths of this machine, for clients.
func plain(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	if link, ok := errors.AsType[*os.LinkError](err); ok {
		return link.Err
	}
	return err
}

func (l *Log) sync() {
	l.writing.Lock()
	defer l.writing.Unlock()
	if err := l.file.sync(); err != nil {
		l.log.Warn("the audit log may not be on the disk", "file", l.settings.File, "error", err)
	}
}

// Close writes what is pending and ends the log. It may be called twice. After an error
// the lines that could not be written are lost.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	closed := l.closed
	l.closed = true
	l.mu.Unlock()
	if closed {
		return nil
	}
	err := l.Flush()
	l.writing.Lock()
	defer l.writing.Unlock()
	if err = errors.Join(err, l.file.close()); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// Counts are what metrics say of a log.
type Counts struct {
	Written, Waited, Failed, Lost int64 // lines, calls that waited, writes that failed, lines, since the start
	Queue                         int64 // lines that wait now
}

// Counts returns what happened since Open.
func (l *Log) Counts() Counts {
	l.mu.Lock()
	n := len(l.pending)
	l.mu.Unlock()
	return Counts{Written: l.written.Load(), Waited: l.waited.Load(), Failed: l.failed.Load(), Lost: l.lost.Load(), Queue: int64(n)}
}
