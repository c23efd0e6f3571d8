package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"sync"
)

// Lines reads the messages of a stdio upstream from its stdout through tap,
// and gives mcp-go what is left of them. Lines that are no JSON are logged, a
// few of them, and dropped.
func Lines(stdout io.Reader, tap *Tap, log *slog.Logger) io.Reader {
	return &lines{in: bufio.NewReaderSize(stdout, 64<<10), tap: tap, log: log}
}

type lines struct {
	in      *bufio.Reader
	tap     *Tap
	log     *slog.Logger
	garbage int
	rest    []byte
}

// garbageLogged is how many lines that are no JSON are logged a connection.
const garbageLogged = 5

func (l *lines) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		line, head, err := readLine(l.in, MaxAnswer)
		switch {
		case errors.Is(err, ErrLineTooLong):
			l.tap.failHead(head)
			continue
		case err != nil:
			return 0, err
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		if line[0] != '{' && line[0] != '[' || !json.Valid(line) {
			if l.garbage++; l.garbage <= garbageLogged {
				l.log.Warn("a line on stdout is no message", "line", string(line[:min(200, len(line))]))
			}
			continue
		}
		if forward := l.tap.Filter(line); forward != nil {
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
	out  io.WriteCloser
	wake chan struct{}
	done chan struct{}

	mu     sync.Mutex // guards what follows; never held over a write to out
	queued [][]byte
	size   int
	err    error
}

// NewQueue starts the goroutine; Close ends it.
func NewQueue(out io.WriteCloser) *Queue {
	q := &Queue{out: out, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go q.run()
	return q
}

// Write queues a copy of p. It fails at once, with nothing queued, when too
// much is waiting or the upstream has closed its end.
func (q *Queue) Write(p []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.err != nil:
		return 0, q.err
	case q.size > 0 && q.size+len(p) > maxQueued:
		return 0, ErrNotReading
	}
	q.queued = append(q.queued, bytes.Clone(p))
	q.size += len(p)
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (q *Queue) run() {
	defer close(q.done)
	for {
		q.mu.Lock()
		err := q.err
		var message []byte
		if len(q.queued) > 0 {
			message = q.queued[0]
			q.queued = q.queued[1:]
		}
		q.mu.Unlock()
		if err != nil {
			return
		}
		if message == nil {
			<-q.wake
			continue
		}
		_, err = q.out.Write(message)
		q.mu.Lock()
		q.size -= len(message)
		if err != nil && q.err == nil {
			q.err = err
		}
		q.mu.Unlock()
	}
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
	select {
	case q.wake <- struct{}{}:
	default:
	}
	<-q.done
	return err
}
