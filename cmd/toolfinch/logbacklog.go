package main

import (
	"bytes"
	"io"
	"log/slog"
	"sync"
	"time"

	"toolfinch/configs"
	"toolfinch/internal/leeway"
)

// Bounds of a backlog.
const (
	maxBacklog  = 1 << 20     // bytes
	backlogLast = time.Second // wait for the reader in close
)

// gathering is how long a line waits for further lines. Only the first line wakes the writing goroutine: on a busy
// proxy a wake-up costs more than a line.
const gathering = 20 * time.Millisecond

// backlog writes log lines in the background. Some clients never read standard error: once the pipe is full, every
// call that logs would block.
type backlog struct {
	to     io.Writer
	log    *slog.Logger // writes directly to to
	wake   chan struct{}
	ending chan struct{} // closed by close
	done   chan struct{}

	mu      sync.Mutex // guards the fields below; never held over a write
	lines   []byte     // waiting lines
	writing int        // bytes being written
	dropped int        // lines dropped since the last message
	all     int64      // lines dropped or not written
	closed  bool
}

func newBacklog(to io.Writer, config *configs.Config) *backlog {
	b := &backlog{to: to, log: newLog(to, config), wake: make(chan struct{}, 1), ending: make(chan struct{}), done: make(chan struct{})}
	go b.run()
	return b
}

// Write takes one line, or drops it if the backlog is full. It never fails.
func (b *backlog) Write(line []byte) (int, error) {
	b.mu.Lock()
	first := len(b.lines) == 0
	if b.closed || len(b.lines)+b.writing+len(line) > maxBacklog {
		b.dropped++
		b.all++
	} else {
		b.lines = append(b.lines, line...)
	}
	b.mu.Unlock()
	if first {
		select {
		case b.wake <- struct{}{}:
		default:
		}
	}
	return len(line), nil
}

// lost counts the lines that nobody will read.
func (b *backlog) lost() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all
}

// run writes lines until close, and then the rest.
func (b *backlog) run() {
	defer close(b.done)
	gather := time.NewTimer(0)
	var written []byte // reused memory
	for ended := false; !ended; {
		select {
		case <-b.wake:
			gather.Reset(gathering)
			select {
			case <-gather.C:
			case <-b.ending:
				ended = true
			}
		case <-b.ending:
			ended = true
		}
		b.mu.Lock()
		lines, dropped := b.lines, b.dropped
		b.lines, b.writing, b.dropped = written[:0], len(lines), 0
		b.mu.Unlock()
		var lost int64
		if len(lines) > 0 {
			if _, err := b.to.Write(lines); err != nil { // the reader has closed the pipe
				lost = int64(bytes.Count(lines, []byte("\n")))
			}
		}
		b.mu.Lock()
		b.writing = 0
		b.all += lost
		b.mu.Unlock()
		if dropped > 0 {
			b.log.Warn("lines of this log were dropped: nobody read it", "lines", dropped)
		}
		if written = lines; cap(written) > maxBacklog/16 {
			written = nil
		}
	}
}

// close writes the waiting lines, for at most a second. Call it once.
func (b *backlog) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	close(b.ending)
	select {
	case <-b.done:
	case <-time.After(leeway.Of(backlogLast)):
	}
}
