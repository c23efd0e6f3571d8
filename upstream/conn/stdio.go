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

// stdio is the channel to a child process: a message a line.
type stdio struct {
	conn    *Conn
	process *process // nil until it was started
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

// follow fails the connection when the process has ended, or says no more. What
// it said last is read first: it may be answers, or why it ended.
func (s *stdio) follow(read <-chan struct{}) {
	c, p := s.conn, s.process
	select {
	case <-p.exited:
		select {
		case <-read:
		case <-time.After(grace): // someone else holds its stdout
		case <-c.Life.Done():
		}
		c.Fail(p.ended())
	case <-read:
		select {
		case <-p.exited: // the usual reason; it says more
			c.Fail(p.ended())
		case <-time.After(grace):
			c.Fail(fmt.Errorf("%w: the process has closed its output", ErrClosed))
		case <-c.Life.Done():
		}
	case <-c.Life.Done():
	}
}

// garbageLogged is how many lines that are no message are logged a connection.
const garbageLogged = 5

// readLines takes in what a process writes to its stdout, to the end.
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
			return // however it ended, nothing more will come
		}
		if line = bytes.TrimSpace(line); len(line) == 0 || c.receive(0, line) {
			continue
		}
		if garbage++; garbage <= garbageLogged {
			c.log.Warn("a line on stdout is no message", "line", string(line[:min(200, len(line))]))
		}
	}
}

// maxQueued is how many bytes may wait for a server that does not read. One
// message may be longer.
const maxQueued = 8 << 20

// queue writes to the stdin of a process from one goroutine, so that one that
// does not read blocks nobody.
type queue struct {
	out    io.WriteCloser
	failed func() // a write has failed: nothing can be sent any more
	done   chan struct{}

	mu      sync.Mutex // guards what follows; never held over a write to out
	changed *sync.Cond // there is a message, or err
	waiting []queued
	size    int // bytes waiting or being written
	err     error
}

type queued struct {
	message []byte
	reply   *Reply // nil when nobody asks whether it was sent
}

// newQueue starts the goroutine; close ends it.
func newQueue(out io.WriteCloser, failed func()) *queue {
	q := &queue{out: out, failed: failed, done: make(chan struct{})}
	q.changed = sync.NewCond(&q.mu)
	go q.run()
	return q
}

// send queues a message, which it keeps. It fails at once, with nothing queued,
// when too much is waiting or the process has closed its end.
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

// write reports whether the next message may be written.
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
