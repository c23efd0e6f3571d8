package transport

import (
	"context"
	"slices"
	"sync"
	"time"

	"toolfinch/internal/limit"
)

// Bounds of what waits for a client that does not read, or has no stream open.
const (
	maxWaiting      = 256
	maxWaitingBytes = 4 << 20 // one message alone may be longer
)

// outbox has the messages for the client of a session that belong to none of its
// requests. They wait until a writer is there.
type outbox struct {
	total *limit.Limit // bytes that wait, of all sessions

	mu      sync.Mutex // guards what follows; held for look-ups only
	waiting [][]byte
	bytes   int64
	closed  bool
	streams []*writer     // open ones, the newest last: it is written
	spare   []*writer     // requests, of which the newest is written while no stream is open
	gone    chan struct{} // closed when the last stream ends; nil while none is open
}

// writer is a way to the client.
type writer struct {
	write func(message []byte) error
	wake  chan struct{} // holds one signal: it is its turn, and something waits
}

func newWriter(write func([]byte) error) *writer { return &writer{write, make(chan struct{}, 1)} }

// push queues a message; it never blocks. It reports false when too much waits.
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

// back puts a message that could not be written in front.
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

// close drops what waits. Nothing is taken any more.
func (o *outbox) close() { o.rest() }

// rest returns what waits. Nothing is taken any more.
func (o *outbox) rest() [][]byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	waiting := o.waiting
	o.total.Release(o.bytes)
	o.waiting, o.bytes, o.closed = nil, 0, true
	return waiting
}

// current is for who holds the lock.
func (o *outbox) current() *writer {
	for _, open := range [][]*writer{o.streams, o.spare} {
		if len(open) > 0 {
			return open[len(open)-1]
		}
	}
	return nil
}

// signal is for who holds the lock.
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

// stream makes w the stream that is written; end takes it away.
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

// lend has w written while no stream is open; end takes it away.
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

// open returns what is closed when the last open stream ends; nil when none is open.
func (o *outbox) open() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.gone
}

// flush writes what waits, as long as it is the turn of w.
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

// run writes what comes until ctx ends, closing is closed, or a write fails. alive,
// if set, is called now and then.
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
