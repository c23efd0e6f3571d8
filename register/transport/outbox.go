package transport

import (
	"context"
	"slices"
	"sync"
	"time"

	"toolfinch/internal/limit"
)

// Bounds of the messages for a client that is slow or has no open stream.
const (
	maxWaiting      = 256
	maxWaitingBytes = 4 << 20 // one message alone may be longer
)

// outbox has the messages for a session's client outside of its requests. They wait for a writer.
type outbox struct {
	total *limit.Limit // waiting bytes of all sessions

	mu      sync.Mutex // guards the fields below; held for look-ups only
	waiting [][]byte
	bytes   int64
	closed  bool
	streams []*writer     // open streams, the newest last: it is written
	spare   []*writer     // requests; the newest is written without an open stream
	gone    chan struct{} // closed with the last stream; nil without one
}

// writer is one connection to the client.
type writer struct {
	write func(message []byte) error
	wake  chan struct{} // holds one signal: this writer's turn, and a message waits
}

func newWriter(write func([]byte) error) *writer { return &writer{write, make(chan struct{}, 1)} }

// push queues a message; it never blocks. It reports false past the bounds.
func (o *outbox) push(message []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	size, most := int64(len(message)), o.total.Max()
	if len(o.waiting) > 0 || o.current() == nil {
		most -= most / 4 // the rest is for clients that read
	}
	if o.closed || len(o.waiting) >= maxWaiting || len(o.waiting) > 0 && o.bytes+size > maxWaitingBytes || o.total.TakeBelow(size, most) != nil {
		return false
	}
	o.waiting = append(o.waiting, message)
	o.bytes += size
	o.signal()
	return true
}

// back returns a message to the front after a failed write.
func (o *outbox) back(message []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	size := int64(len(message))
	if o.closed || o.total.Take(size) != nil {
		return
	}
	o.waiting = slices.Insert(o.waiting, 0, message)
	o.bytes += size
}

// close drops the messages and takes no more.
func (o *outbox) close() { o.rest() }

// rest returns the messages and takes no more.
func (o *outbox) rest() [][]byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	waiting := o.waiting
	o.total.Release(o.bytes)
	o.waiting, o.bytes, o.closed = nil, 0, true
	return waiting
}

// current returns the writer whose turn it is; the caller holds the lock.
func (o *outbox) current() *writer {
	for _, open := range [][]*writer{o.streams, o.spare} {
		if len(open) > 0 {
			return open[len(open)-1]
		}
	}
	return nil
}

// signal wakes the current writer; the caller holds the lock.
func (o *outbox) signal() {
	if w := o.current(); w != nil && len(o.waiting) > 0 {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// take returns the next message, if it is the turn of w.
func (o *outbox) take(w *writer) (message []byte, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.waiting) == 0 || o.current() != w {
		return nil, false
	}
	message, o.waiting = o.waiting[0], o.waiting[1:]
	o.bytes -= int64(len(message))
	o.total.Release(int64(len(message)))
	return message, true
}

// stream makes w the written stream; end removes it.
func (o *outbox) stream(w *writer) (end func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.streams = append(o.streams, w)
	if o.gone == nil {
		o.gone = make(chan struct{})
	}
	o.signal()
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.streams = without(o.streams, w)
		if len(o.streams) == 0 {
			close(o.gone)
			o.gone = nil
		}
		o.signal()
	}
}

// lend makes w a writer while no stream is open; end removes it.
func (o *outbox) lend(w *writer) (end func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.spare = append(o.spare, w)
	o.signal()
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.spare = without(o.spare, w)
		o.signal()
	}
}

func without(all []*writer, w *writer) []*writer {
	return slices.DeleteFunc(all, func(one *writer) bool { return one == w })
}

// open returns a channel that the end of the last open stream closes; nil without one.
func (o *outbox) open() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.gone
}

// flush writes the waiting messages, as long as it is the turn of w.
func (o *outbox) flush(w *writer) error {
	for {
		message, ok := o.take(w)
		if !ok {
			return nil
		}
		if err := w.write(message); err != nil {
			o.back(message)
			return err
		}
	}
}

// run writes messages until ctx ends, closing is closed, or a write fails. It calls alive, if set, at
// times.
func (o *outbox) run(ctx context.Context, closing <-chan struct{}, w *writer, alive func() error) error {
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for {
		if err := o.flush(w); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-closing:
			return nil
		case <-w.wake:
		case <-tick.C:
			if alive != nil {
				if err := alive(); err != nil {
					return err
				}
			}
		}
	}
}
