package transport

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	// writeWithin bounds the time in which a client reads writeAtOnce bytes: a client that does not
	// read must not hold its calls for ever.
	writeWithin = 30 * time.Second
	writeAtOnce = 64 << 10
)

// Timed is a ResponseWriter that gives the client a time to read what is written.
type Timed struct {
	http.ResponseWriter
	control *http.ResponseController
	within  time.Duration // for writeAtOnce bytes
	dated   bool          // a deadline is set
}

// NewTimed returns a Timed. Call End before the handler returns.
func NewTimed(w http.ResponseWriter) *Timed {
	return &Timed{ResponseWriter: w, control: http.NewResponseController(w), within: writeWithin}
}

// Unwrap is for http.ResponseController.
func (t *Timed) Unwrap() http.ResponseWriter { return t.ResponseWriter }

func (t *Timed) Write(p []byte) (written int, err error) {
	for len(p) > 0 && err == nil {
		part := p[:min(len(p), writeAtOnce)]
		// Without deadlines, the server's own timeouts bound the time.
		t.dated = t.control.SetWriteDeadline(time.Now().Add(t.within)) == nil
		var n int
		n, err = t.ResponseWriter.Write(part)
		written, p = written+n, p[n:]
	}
	return written, err
}

// FlushError flushes and removes the deadline: over HTTP/2 it would end a silent stream.
func (t *Timed) FlushError() error {
	err := t.control.Flush()
	if t.dated {
		_ = t.control.SetWriteDeadline(time.Time{})
		t.dated = false
	}
	return err
}

// End removes the deadline: the connection may carry other requests.
func (t *Timed) End() {
	if t.dated {
		_ = t.FlushError() // an error means that the client is gone
	}
}

// errEnded refuses a write after the request's handler has returned.
var errEnded = errors.New("the request has ended")

// answer is a ResponseWriter until its handler returns; net/http then gives its buffer to another
// response. Its methods are safe for concurrent use.
type answer struct {
	timed *Timed

	mu    sync.Mutex // guards the fields below, and timed; held during a write
	w     *Timed     // nil after the last write or the end of the handler
	begun bool       // the header was sent
}

func newAnswer(w http.ResponseWriter) *answer {
	timed := NewTimed(w)
	return &answer{timed: timed, w: timed}
}

// end must be called before the handler returns.
func (a *answer) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.w = nil
	a.timed.End()
}

// event writes one server-sent event, after the header of the stream.
func (a *answer) event(name string, data []byte) error { return a.stream(eventText(name, data)) }

func eventText(name string, data []byte) []byte {
	return bytes.Join([][]byte{[]byte("event: " + name + "\ndata: "), data, []byte("\n\n")}, nil)
}

// message writes a message as an event.
func (a *answer) message(message []byte) error { return a.event("message", message) }

// alive writes a sign of life to an event stream.
func (a *answer) alive() error { return a.stream([]byte(": alive\n\n")) }

// prime begins an event stream with an event that has only an ID, as clients since 2025-11-25 know
// (SEP-1699). We resume no stream, but an SDK gives a session up after some broken streams without a
// new event ID.
func (a *answer) prime() error { return a.stream([]byte("id: " + rand.Text() + "\ndata: \n\n")) }

func (a *answer) stream(text []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.streamed(text)
}

// streamed is stream; the caller holds the lock.
func (a *answer) streamed(text []byte) error {
	if a.w == nil {
		return errEnded
	}
	a.begin(http.StatusOK, "text/event-stream")
	if err := a.write(text); err != nil {
		return err
	}
	return a.w.FlushError()
}

// last writes the answer of a request, and nothing can be written afterwards. It is an event after the
// begin of a stream, else the body with a status; 0 is 200.
func (a *answer) last(message []byte, status int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer func() { a.w = nil }()
	switch {
	case a.w == nil:
		return errEnded
	case a.begun:
		return a.streamed(eventText("message", message))
	}
	a.w.Header().Set("Content-Length", strconv.Itoa(len(message)))
	a.begin(cmp.Or(status, http.StatusOK), "application/json")
	return a.write(message)
}

// forbidden is last for a missing scope, with the status that makes the client ask for more scopes. It
// reports false, and writes nothing, in a stream or without a challenge.
func (a *answer) forbidden(message []byte, challenge string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.w == nil || a.begun || challenge == "" {
		return false
	}
	defer func() { a.w = nil }()
	a.w.Header().Set("WWW-Authenticate", challenge)
	a.w.Header().Set("Content-Length", strconv.Itoa(len(message)))
	a.begin(http.StatusForbidden, "application/json")
	_ = a.write(message) // an error means that the client is gone
	return true
}

// accepted answers a message that needs no answer.
func (a *answer) accepted() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.w != nil && !a.begun {
		a.begun = true
		a.w.WriteHeader(http.StatusAccepted)
	}
}

// begin writes the header; the caller holds the lock.
func (a *answer) begin(status int, contentType string) {
	if a.begun {
		return
	}
	a.begun = true
	a.w.Header().Set("Content-Type", contentType)
	a.w.Header().Set("Cache-Control", "no-cache")
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		a.w.Header().Set("Retry-After", retryAfter)
	}
	a.w.WriteHeader(status)
}

// write writes bytes; the caller holds the lock.
func (a *answer) write(b []byte) error {
	_, err := a.w.Write(b)
	return err
}
