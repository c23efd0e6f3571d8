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

	"toolfinch/internal/identity"
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
}

// Arguments says what is written of arguments.
type Arguments string

// What is written of arguments.
const (
	ArgumentsDigest Arguments = "digest" // SHA-256
	ArgumentsFull   Arguments = "full"   // and their content
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
	pending []Line     // not written yet: others are being written, or they cannot be
	closed  bool

	written, failed, lost atomic.Int64
	unreported            atomic.Int64 // of lost: not yet said in the log
}

// maxPending bounds the lines of calls that were under way when the log could not be written any more.
const maxPending = 65_536

// Open opens a log, which is made where there is none (mode 0600), with its folder. clean, which may be
// nil, masks secrets in contents.
func Open(s Settings, clean func([]byte) []byte, log *slog.Logger) (*Log, error) {
	l := &Log{settings: s, log: log, clean: clean, file: &file{settings: s, log: log}}
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

// Admit returns an error, which wraps ErrUnavailable, while nothing can be written. A nil Log
// admits everything.
func (l *Log) Admit() error {
	if l == nil {
		return nil
	}
	if why := l.failing.Load(); why != nil {
		return unavailable(*why)
	}
	return nil
}

func unavailable(why error) error {
	return fmt.Errorf("%w (%w): nothing is done until it can be again", ErrUnavailable, why)
}

// Write writes a line before what it is about is done, which must not be done after an
// error. A nil Log drops it.
func (l *Log) Write(line Line) error {
	if err := l.Admit(); l == nil || err != nil {
		return err
	}
	l.put(line)
	if err := l.Flush(); err != nil {
		return unavailable(plain(err))
	}
	return nil
}

// Add writes a line about what was done. A line that cannot be written is kept until it can
// be: call Admit before what the line is about. A nil Log drops it.
func (l *Log) Add(line Line) {
	if l == nil {
		return
	}
	l.put(line)
	if l.failing.Load() == nil {
		_ = l.Flush() // which says so
	}
}

// put adds a line to those that are to be written.
func (l *Log) put(line Line) {
	if line.Time.IsZero() {
		line.Time = time.Now()
	}
	line.bound()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.pending) >= maxPending {
		l.loses()
		return
	}
	l.pending = append(l.pending, line)
}

// Note writes a line about what was not done. While nothing can be written it is counted as
// lost. A nil Log drops it.
func (l *Log) Note(line Line) {
	if l != nil && l.failing.Load() != nil {
		l.loses()
		return
	}
	l.Add(line)
}

func (l *Log) loses() {
	l.lost.Add(1)
	l.unreported.Add(1)
}

// Record writes an event down; it is a identity.Record. A nil Log drops it.
func (l *Log) Record(ctx context.Context, e identity.Event) {
	if l == nil {
		return
	}
	line := lineOf(e)
	l.About(ctx, &line)
	l.Add(line)
}

// About adds to a line what the context of its event says.
func (l *Log) About(ctx context.Context, line *Line) {
	if p := identity.PrincipalOf(ctx); p != nil && (line.Principal == nil || line.Principal.ID == p.ID) {
		line.Principal = &Principal{ID: p.ID, Groups: p.Groups}
	}
	if from, ok := identity.SourceOf(ctx); ok {
		line.SourceIP, line.Transport = from.Address, from.Transport
	}
}

// Run has what was written on the disk, and tries again what could not be written, until ctx
// ends.
func (l *Log) Run(ctx context.Context) {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if l.Flush() == nil {
				l.sync()
			}
		case <-ctx.Done():
			return
		}
	}
}

// syncEvery is how long a line that was written may not be on the disk.
const syncEvery = time.Second

// Flush writes what is pending, together: who waits for writing meanwhile adds to the next
// lines. After an error it stays pending.
func (l *Log) Flush() error {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	batch := l.pending
	l.pending = nil
	l.mu.Unlock()
	if lost := l.unreported.Swap(0); lost > 0 {
		batch = append(batch, Line{Time: time.Now(), Event: identity.EventLost, Outcome: identity.Failed, Details: map[string]string{"lines": fmt.Sprint(lost)}})
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
		l.log.Error("the audit log cannot be written: calls are refused until it can be", "file", l.settings.File, "error", err)
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
	Written, Failed, Lost int64 // lines, writes that failed, lines, since the start
}

// Counts returns what happened since Open.
func (l *Log) Counts() Counts {
	return Counts{Written: l.written.Load(), Failed: l.failed.Load(), Lost: l.lost.Load()}
}
