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
	// writeWithin is how long a client may take to read writeAtOnce bytes: one that
	// does not read must not hold its calls for ever.
	writeWithin = 30 * time.Second
	writeAtOnce = 64 << 10
)

// Timed is a ResponseWriter to which a client has to read what is written, within a time.
type Timed struct {
	http.ResponseWriter
	control *http.ResponseController
	within  time.Duration // for writeAtOnce bytes
	dated   bool          // a deadline was set
}

// NewTimed returns a Timed. End is to be called before the handler returns.
func NewTimed(w http.ResponseWriter) *Timed {
	return &Timed{ResponseWriter: w, control: http.NewResponseController(w), within: writeWithin}
}

// Unwrap is for http.ResponseController.
func (t *Timed) Unwrap() http.ResponseWriter { return t.ResponseWriter }

func (t *Timed) Write(p []byte) (written int, err error) {
	for len(p) > 0 && err == nil {
		part := p[:min(len(p), writeAtOnce)]
		// Where no deadline can be set, whoever serves bounds the time.
		t.dated = t.control.SetWriteDeadline(time.Now().Add(t.within)) == nil
		var n int
		n, err = t.ResponseWriter.Write(part)
		written, p = written+n, p[n:]
	}
	return written, err
}

// FlushError flushes what was written, and takes the deadline away: over HTTP/2 it would end a stream that is silent.
func (t *Timed) FlushError() error {
	err := t.control.Flush()
	if t.dated {
		_ = t.control.SetWriteDeadline(time.Time{})
		t.dated = false
	}
	return err
}

// End takes the deadline away: it must not outlive the request, as the connection may carry others.
func (t *Timed) End() {
	if t.dated {
		_ = t.FlushError() // an error means that the client is gone
	}
}

// errEnded is returned for what comes after the handler of the request has returned.
var errEnded = errors.New("the request has ended")

// answer is a ResponseWriter for as long as its handler runs. net/http gives the
// buffer of one that has returned to another client's response. Its methods are
// safe for concurrent use.
type answer struct {
	timed *Timed

	mu    sync.Mutex // guards what follows, and timed; held while something is written
	w     *Timed     // nil once the last was written, or the handler has returned
	begun bool       // the header was sent
}

func newAnswer(w http.ResponseWriter) *answer {
	timed := NewTimed(w)
	return &answer{timed: timed, w: timed}
}

// end is to be called before the handler returns.
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

// prime begins an event stream with an event that has an ID and nothing else, as clients since
// 2025-11-25 know (SEP-1699). No stream is resumed; but an SDK gives a session up whose streams
// break some times without an event that has another ID than the last one.
func (a *answer) prime() error { return a.stream([]byte("id: " + rand.Text() + "\ndata: \n\n")) }

func (a *answer) stream(text []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.streamed(text)
}

// streamed is stream for who holds the lock.
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

// last writes the answer of a request: as an event where a stream has begun, else
// as the body, with a status that is 200 where it is 0. Nothing can be written
// afterwards.
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

// forbidden is last for what the client lacks a scope for, with the status that leads it
// to ask for more. It reports false, and wrote nothing, where a stream has begun, or there
// is no challenge.
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

// accepted answers what wants no answer.
func (a *answer) accepted() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.w != nil && !a.begun {
		a.begun = true
		a.w.WriteHeader(http.StatusAccepted)
	}
}

// begin is for who holds the lock.
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

// write is for who holds the lock.
func (a *answer) write(b []byte) error {
	_, err := a.w.Write(b)
	return err
}
