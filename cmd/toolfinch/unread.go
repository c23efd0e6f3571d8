package main

import (
	"io"
	"log/slog"
	"sync"
	"time"

	"toolfinch/configs"
)

// Bounds of a backlog: in bytes, and of the wait for its reader at the end.
const (
	maxBacklog  = 1 << 20
	backlogLast = time.Second
)

// backlog writes the lines of a log in the background. Some clients never read what a
// server writes to standard error; once the pipe is full, every call would wait to log.
type backlog struct {
	to   io.Writer
	log  *slog.Logger // writes to to
	wake chan struct{}
	done chan struct{}

	mu      sync.Mutex // guards what follows; never held over a write
	lines   [][]byte
	bytes   int // of lines
	dropped int // lines, since that was logged last
	closed  bool
}

func newBacklog(to io.Writer, config *configs.Config) *backlog {
	b := &backlog{to: to, log: newLog(to, config), wake: make(chan struct{}, 1), done: make(chan struct{})}
	go b.run()
	return b
}

// Write takes one line, or drops it where too much waits. It never fails.
func (b *backlog) Write(line []byte) (int, error) {
	b.mu.Lock()
	if b.closed || b.bytes+len(line) > maxBacklog {
		b.dropped++
	} else {
		b.lines = append(b.lines, append([]byte(nil), line...))
		b.bytes += len(line)
	}
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return len(line), nil
}

// run writes until close, and what there is then.
func (b *backlog) run() {
	defer close(b.done)
	for range b.wake {
		b.mu.Lock()
		lines, closed := b.lines, b.closed
		b.lines = nil
		b.mu.Unlock()
		for _, line := range lines {
			_, _ = b.to.Write(line)
			b.mu.Lock()
			b.bytes -= len(line)
			b.mu.Unlock()
		}
		b.mu.Lock()
		dropped := b.dropped
		b.dropped = 0
		b.mu.Unlock()
		if dropped > 0 {
			b.log.Warn("lines of this log were dropped: nobody read it", "lines", dropped)
		}
		if closed {
			return
		}
	}
}

// close returns once everything is written, or when nobody has read it for a second.
func (b *backlog) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
	select {
	case <-b.done:
	case <-time.After(backlogLast):
	}
}
