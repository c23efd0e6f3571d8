package conn

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"toolfinch/internal/wire"
)

// stdio is the channel to a child process: one message on each line.
type stdio struct {
	conn    *Conn
	process *process // nil until the process was started
	queue   *queue
}

func (s *stdio) open(context.Context) error {
	c := s.conn
	p, err := start(c.options)
	if err != nil {
		return err
	}
	s.process = p
	// A process that has closed its input is of no more use, whatever it says.
	s.queue = newQueue(p.stdin, p.kill)
	read := make(chan struct{})
	c.Go(func() {
		defer close(read)
		c.readLines(p.stdout)
	})
	c.Go(func() { s.follow(read) })
	return nil
}

func (s *stdio) send(_ context.Context, message []byte, _ http.Header, reply *Reply) error {
	return s.queue.send(append(message, '\n'), reply)
}

func (s *stdio) close() {
	if s.process != nil {
		s.process.end()
		s.queue.close()
	}
}

// follow fails the connection when the process has exited or closed its output. The last lines are read first: they
// may be answers, or say why the process ended.
func (s *stdio) follow(read <-chan struct{}) {
	c, p := s.conn, s.process
	select {
	case <-p.exited:
		select {
		case <-read:
		case <-time.After(grace): // another process holds the child's stdout
		case <-c.Life.Done():
		}
		c.Fail(p.ended())
	case <-read:
		select {
		case <-p.exited: // the exit tells more, and is the usual reason
			c.Fail(p.ended())
		case <-time.After(grace):
			c.Fail(fmt.Errorf("%w: the process has closed its output", ErrClosed))
		case <-c.Life.Done():
		}
	case <-c.Life.Done():
	}
}

// garbageLogged bounds how many lines that are no message are logged for each connection.
const garbageLogged = 5

// readLines reads the stdout of a process to its end.
func (c *Conn) readLines(stdout io.Reader) {
	in := bufio.NewReaderSize(stdout, 64<<10)
	garbage := 0
	for {
		line, head, err := wire.ReadLine(in, c.most)
		switch {
		case errors.Is(err, wire.ErrLineTooLong):
			c.log.Warn("a message on stdout is too long and was dropped", "limit", c.most)
			c.failTooLong(head)
			continue
		case err != nil:
			return // nothing more can be read
		}
		if line = bytes.TrimSpace(line); len(line) == 0 || c.receive(0, line) {
			continue
		}
		c.misunderstood(notMessage(line), line)
		if garbage++; garbage <= garbageLogged {
			c.log.Warn("a line on stdout is no message", "line", string(line[:min(200, len(line))]))
		}
	}
}

// notMessage says why a line is no message.
func notMessage(line []byte) string {
	switch {
	case bytes.IndexByte(line, 0) >= 0:
		return "its output is UTF-16 and not UTF-8"
	case bytes.HasPrefix(line, []byte("\x1b")):
		return "it writes escape codes of a terminal to stdout"
	case bytes.HasPrefix(line, []byte(`{"`)):
		return "a line on stdout is not one JSON message"
	}
	return "it writes text to stdout"
}

// maxQueued bounds how many bytes may wait for a server that does not read. A single message may be longer.
const maxQueued = 8 << 20

// queue writes to the stdin of a process from one goroutine, so that a process that does not read blocks no caller.
type queue struct {
	out    io.WriteCloser
	failed func() // is called when a write has failed and nothing can be sent any more
	done   chan struct{}

	mu      sync.Mutex // guards the fields below; never held over a write to out
	changed *sync.Cond // signals a message or err
	waiting []queued
	size    int // bytes that wait or are being written
	err     error
}

type queued struct {
	message []byte
	reply   *Reply // nil for notifications
}

// newQueue starts the goroutine that close ends.
func newQueue(out io.WriteCloser, failed func()) *queue {
	q := &queue{out: out, failed: failed, done: make(chan struct{})}
	q.changed = sync.NewCond(&q.mu)
	go q.run()
	return q
}

// send queues a message and keeps its bytes. It fails at once, without queueing, when too much is waiting or the
// process has closed its end.
func (q *queue) send(message []byte, reply *Reply) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.err != nil:
		return q.err
	case q.size > 0 && q.size+len(message) > maxQueued:
		return ErrNotReading
	}
	q.waiting = append(q.waiting, queued{message, reply})
	q.size += len(message)
	q.changed.Signal()
	return nil
}

func (q *queue) run() {
	defer close(q.done)
	for going := true; going; {
		q.mu.Lock()
		for len(q.waiting) == 0 && q.err == nil {
			q.changed.Wait()
		}
		batch := q.waiting
		q.waiting, going = nil, q.err == nil
		q.mu.Unlock()
		for i := 0; going && i < len(batch); i++ {
			going = q.write(batch[i])
		}
	}
}

// write writes the next message, and reports whether another may be written.
func (q *queue) write(one queued) bool {
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
		q.failed()
	}
	return err == nil
}

// close closes the stdin, which ends a write in progress, and waits for the
// goroutine.
func (q *queue) close() {
	q.mu.Lock()
	if q.err == nil {
		q.err = io.ErrClosedPipe
	}
	q.changed.Signal()
	q.mu.Unlock()
	_ = q.out.Close()
	<-q.done
}
