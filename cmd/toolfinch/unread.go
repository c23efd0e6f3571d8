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

// Bounds of a backlog: in bytes, and of the wait for its reader at the end.
const (
	maxBacklog  = 1 << 20
	backlogLast = time.Second
)

// gathering is how long a line waits for others. A call that logs wakes the goroutine that
// writes only when nothing waits yet: on a busy proxy that costs more than the line itself.
const gathering = 20 * time.Millisecond

// backlog writes the lines of a log in the background. Some clients never read what a
// server writes to standard error; once the pipe is full, every call would wait to log.
type backlog struct {
	to     io.Writer
	log    *slog.Logger // writes to to
	wake   chan struct{}
	ending chan struct{} // closed by close
	done   chan struct{}

	mu      sync.Mutex // guards what follows; never held over a write
	lines   []byte     // that wait
	writing int        // bytes that are being written
	dropped int        // lines, since that was logged last
	all     int64      // lines that were dropped or could not be written
	closed  bool
}

func newBacklog(to io.Writer, config *configs.Config) *backlog {
	b := &backlog{to: to, log: newLog(to, config), wake: make(chan struct{}, 1), ending: make(chan struct{}), done: make(chan struct{})}
	go b.run()
	return b
}

// Write takes one line, or drops it where too much waits. It never fails.
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

// lost returns how many lines nobody will read.
func (b *backlog) lost() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all
}

// run writes until close, and what there is then.
func (b *backlog) run() {
	defer close(b.done)
	gather := time.NewTimer(0)
	var written []byte // its room is used again
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
			if _, err := b.to.Write(lines); err != nil { // nobody can read it any more
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

// close returns once everything is written, or when nobody has read it for a second. It is
// called once.
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
