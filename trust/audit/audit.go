// Package audit owns the audit log: lines of JSON in files, which it writes, rotates and reads. It
// knows neither tools nor stores: its callers fill in the lines.
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

// Settings are the log's settings.
type Settings struct {
	File    string        // absolute; "" for FileName in the folder of the store
	MaxSize int           // of a file, in bytes
	MaxAge  time.Duration // a file is rotated when its first line is this old
	Keep    int           // rotated files; 0: all
	// Arguments and Results say whether contents are written. Secrets are masked, and contents are cut at 4 KiB.
	Arguments Arguments
	Results   bool
}

// Arguments says what is written about the arguments of a call.
type Arguments string

// The values of Arguments.
const (
	ArgumentsDigest Arguments = "digest" // SHA-256
	ArgumentsFull   Arguments = "full"   // digest and content
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
	failing atomic.Pointer[error] // the error of the last write

	mu      sync.Mutex // guards the fields below; never held over I/O
	pending []Line     // lines to write
	closed  bool

	written, failed, lost atomic.Int64
	unreported            atomic.Int64 // lost lines that no line in the log reports yet
}

// maxPending bounds the lines that wait after a write has failed.
const maxPending = 65_536

// Open opens a log, or makes it (mode 0600) with its folder. clean, unless nil, masks secrets in contents.
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

// Name sets the replica of all further lines.
func (l *Log) Name(replica string) {
	if l == nil {
		return
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	l.file.replica = replica
}

// Admit returns an error, which wraps ErrUnavailable, while the log cannot be written. A nil Log admits
// everything.
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

// Write writes a line before its event; after an error the event must not happen. A nil Log drops the
// line.
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

// Add writes a line after its event. While the log cannot be written, it keeps the line: call Admit before the event.
// A nil Log drops the line.
func (l *Log) Add(line Line) {
	if l == nil {
		return
	}
	l.put(line)
	if l.failing.Load() == nil {
		_ = l.Flush() // Admit reports the error
	}
}

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

// Note writes a line about a refused event. While the log cannot be written, the line is counted as
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

// Record writes an event; it is an identity.Record. A nil Log drops it.
func (l *Log) Record(ctx context.Context, e identity.Event) {
	if l == nil {
		return
	}
	line := lineOf(e)
	l.About(ctx, &line)
	l.Add(line)
}

// About completes a line from the context of its event.
func (l *Log) About(ctx context.Context, line *Line) {
	if p := identity.PrincipalOf(ctx); p != nil && (line.Principal == nil || line.Principal.ID == p.ID) {
		line.Principal = &Principal{ID: p.ID, Groups: p.Groups}
	}
	if from, ok := identity.SourceOf(ctx); ok {
		line.SourceIP, line.Transport = from.Address, from.Transport
	}
}

// Run syncs lines to the disk, and retries failed writes, until ctx ends.
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

// syncEvery bounds how long a written line may be missing on the disk.
const syncEvery = time.Second

// Flush writes all pending lines together. After an error they stay pending.
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

// fails notes a failed write, and logs it once.
func (l *Log) fails(err error) {
	l.failed.Add(1)
	short := plain(err)
	if l.failing.Swap(&short) == nil {
		l.log.Error("the audit log cannot be written: calls are refused until it can be", "file", l.settings.File, "error", err)
	}
}

// plain returns an error for clients, without paths of this machine.
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

// Close writes the pending lines and ends the log. It may be called twice. After an error the pending
// lines are lost.
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

// Counts are the metrics of a log, since its start.
type Counts struct {
	Written, Failed, Lost int64 // written lines, failed writes, lost lines
}

// Counts returns the counts since Open.
func (l *Log) Counts() Counts {
	return Counts{Written: l.written.Load(), Failed: l.failed.Load(), Lost: l.lost.Load()}
}
