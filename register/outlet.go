package register

import (
	"bytes"
	"net/http"
	"sync"
	"sync/atomic"
)

// outlet is the open GET stream of a streamable HTTP session. mcp-go's queue of
// a session is emptied by whichever request of it is open, and what a request
// takes in the moment of its end is lost; so what belongs to no call is written
// here. mcp-go opens the stream and keeps it alive.
type outlet struct {
	http.ResponseWriter
	queued chan []byte
	ended  chan struct{}

	open atomic.Bool // the header has been sent
	mu   sync.Mutex  // held while something is written
}

// maxOutlet is how many messages may wait for a client that does not read.
const maxOutlet = 256

func newOutlet(w http.ResponseWriter) *outlet {
	return &outlet{ResponseWriter: w, queued: make(chan []byte, maxOutlet), ended: make(chan struct{})}
}

// offer queues a message; it never blocks. It reports false when the stream is
// not open, or too much waits already.
func (o *outlet) offer(message []byte) bool {
	if !o.open.Load() {
		return false
	}
	select {
	case o.queued <- message:
		return true
	default:
		return false
	}
}

// run writes what is queued until end.
func (o *outlet) run() {
	for {
		select {
		case message := <-o.queued:
			o.mu.Lock()
			// In one write, as mcp-go does: package wire knows events by that. An
			// error means that the client is gone: its request ends.
			_, _ = o.ResponseWriter.Write(bytes.Join([][]byte{[]byte("event: message\ndata: "), message, []byte("\n\n")}, nil))
			_ = http.NewResponseController(o.ResponseWriter).Flush()
			o.mu.Unlock()
		case <-o.ended:
			return
		}
	}
}

// end makes run return; the stream is not written any more.
func (o *outlet) end() {
	o.open.Store(false)
	close(o.ended)
}

func (o *outlet) WriteHeader(status int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ResponseWriter.WriteHeader(status)
	o.open.Store(status == http.StatusOK)
}

func (o *outlet) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ResponseWriter.Write(p)
}

func (o *outlet) Flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	_ = http.NewResponseController(o.ResponseWriter).Flush()
}

// Unwrap lets http.ResponseController reach the connection.
func (o *outlet) Unwrap() http.ResponseWriter { return o.ResponseWriter }
