package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"log/slog"
	"sync"
)

// Lines reads the messages of a stdio upstream from its stdout through tap,
// and gives mcp-go what is left of them. Lines that are no JSON are logged, a
// few of them, and dropped; of a line longer than MaxAnswer nothing is kept.
// ended is called once, when everything that can be read has been read.
func Lines(stdout io.Reader, tap *Tap, log *slog.Logger, ended func()) io.Reader {
	return &lines{in: bufio.NewReaderSize(stdout, 64<<10), tap: tap, log: log, ended: ended}
}

type lines struct {
	in      *bufio.Reader
	tap     *Tap
	log     *slog.Logger
	ended   func()
	garbage int
	rest    []byte
	err     error
}

// garbageLogged is how many lines that are no JSON are logged a connection.
const garbageLogged = 5

func (l *lines) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		if l.err != nil {
			return 0, l.err
		}
		line, head, err := readLine(l.in, MaxAnswer)
		switch {
		case errors.Is(err, ErrLineTooLong):
			l.log.Warn("a message on stdout is too long and was dropped", "limit", MaxAnswer)
			l.tap.failHead(head)
			continue
		case err != nil:
			l.err = io.EOF // however it ended, nothing more will come
			l.ended()
			continue
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		forward, valid := l.tap.Filter(line)
		switch {
		case !valid:
			if l.garbage++; l.garbage <= garbageLogged {
				l.log.Warn("a line on stdout is no message", "line", string(line[:min(200, len(line))]))
			}
		case forward != nil:
			l.rest = append(forward, '\n')
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// ErrNotReading says that an upstream has not read what was sent to it.
var ErrNotReading = errors.New("it does not read its input")

// maxQueued is how many bytes may wait for an upstream that does not read. One
// message may be longer.
const maxQueued = 8 << 20

// Queue writes to an upstream's stdin from one goroutine, so that one that
// does not read blocks nobody. Each Write is one message.
type Queue struct {
	out    io.WriteCloser
	failed func(error)
	wake   chan struct{} // holds one signal
	done   chan struct{}

	mu     sync.Mutex // guards what follows; never held over a write to out
	queued []queued
	size   int // bytes queued or being written
	err    error
}

type queued struct {
	message []byte
	reply   *Reply // nil when nobody asks whether it was sent
}

// NewQueue starts the goroutine; Close ends it. failed is called, on that
// goroutine, when a write fails before Close: nothing can be sent any more.
func NewQueue(out io.WriteCloser, failed func(error)) *Queue {
	q := &Queue{out: out, failed: failed, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go q.run()
	return q
}

// Write queues a copy of p. It fails at once, with nothing queued, when too
// much is waiting or the upstream has closed its end.
func (q *Queue) Write(p []byte) (int, error) {
	if err := q.Send(bytes.Clone(p), nil); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Send is Write for a request, whose reply will know whether it was sent. It
// keeps message.
func (q *Queue) Send(message []byte, reply *Reply) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.err != nil:
		return q.err
	case q.size > 0 && q.size+len(message) > maxQueued:
		return ErrNotReading
	}
	q.queued = append(q.queued, queued{message, reply})
	q.size += len(message)
	q.signal()
	return nil
}

func (q *Queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *Queue) run() {
	defer close(q.done)
	for {
		q.mu.Lock()
		batch, err := q.queued, q.err
		q.queued = nil
		q.mu.Unlock()
		switch {
		case err != nil:
			return
		case len(batch) == 0:
			<-q.wake
			continue
		}
		for _, one := range batch {
			if !q.write(one) {
				return
			}
		}
	}
}

// write reports whether the next message may be written.
func (q *Queue) write(one queued) bool {
	// Marked before the write: half a message may be read as well.
	if one.reply != nil {
		one.reply.sent.Store(true)
	}
	n, err := q.out.Write(one.message)
	if err != nil && n == 0 && one.reply != nil {
		one.reply.sent.Store(false)
	}
	q.mu.Lock()
	q.size -= len(one.message)
	first := err != nil && q.err == nil
	if first {
		q.err = err
	}
	q.mu.Unlock()
	if first {
		q.failed(err)
	}
	return err == nil
}

// Close closes the upstream's stdin, which ends a write in progress, and waits
// for the goroutine.
func (q *Queue) Close() error {
	q.mu.Lock()
	if q.err == nil {
		q.err = io.ErrClosedPipe
	}
	q.mu.Unlock()
	err := q.out.Close()
	q.signal()
	<-q.done
	return err
}
