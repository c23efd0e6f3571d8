package wire

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/rawjson"
)

// HTTP wraps the handler of a streamable HTTP endpoint so that tools/call and
// tools/list are answered with raw bytes through their Exchange. A body longer
// than limit bytes is refused with 413.
func HTTP(next http.Handler, limit int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
		if err != nil {
			status := http.StatusBadRequest
			if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
				status = http.StatusRequestEntityTooLarge
			}
			http.Error(w, "the request body could not be read: "+err.Error(), status)
			return
		}
		res := &response{w: w}
		x := NewExchange(body, res.event)
		if x == nil {
			setBody(r, body)
			next.ServeHTTP(w, r)
			return
		}
		res.x = x
		r = r.WithContext(x.Context(r.Context()))
		// The stub changes the name in the body, so the header that mirrors it
		// changes with it. One that does not match stays, and mcp-go refuses it.
		if name, ok := mcp.DecodeHeaderValue(r.Header.Get(mcp.HeaderName)); ok && name == x.name && name != "" {
			r.Header = r.Header.Clone()
			r.Header.Set(mcp.HeaderName, StubTool)
		}
		setBody(r, x.Stub())
		next.ServeHTTP(res, r)
		x.Answer() // nothing may be written once the handler has returned
	})
}

func setBody(r *http.Request, body []byte) {
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
}

// response replaces the answer of mcp-go by that of the exchange, and turns
// into an event stream when a notification comes first. What it does is
// guarded by the exchange's lock.
type response struct {
	w      http.ResponseWriter
	x      *Exchange
	stream bool // the header was sent as text/event-stream
}

func (r *response) Header() http.Header { return r.w.Header() }

func (r *response) WriteHeader(status int) {
	r.x.mu.Lock()
	defer r.x.mu.Unlock()
	if r.stream {
		return
	}
	r.stream = strings.HasPrefix(r.w.Header().Get("Content-Type"), "text/event-stream")
	if r.x.answer != nil && r.x.status != 0 && !r.stream {
		status = r.x.status
	}
	r.w.WriteHeader(status)
}

// Write takes one whole message: mcp-go writes an event or a body at a time.
func (r *response) Write(b []byte) (int, error) {
	r.x.mu.Lock()
	defer r.x.mu.Unlock()
	data, isEvent := bytes.CutPrefix(b, []byte("event: message\ndata: "))
	if isEvent && rawjson.Member(data, "method") != nil { // a message of its own, no answer
		return r.w.Write(b)
	}
	message := bytes.TrimSpace(data)
	if r.x.answer != nil {
		message = r.x.answer
		r.x.closed = true
	}
	var err error
	if r.stream {
		err = r.writeEvent(message)
	} else {
		_, err = r.w.Write(message)
	}
	return len(b), err
}

// event is the exchange's send: called with its lock held.
func (r *response) event(message []byte) {
	if !r.stream {
		r.stream = true
		header := r.w.Header()
		header.Set("Content-Type", "text/event-stream")
		header.Set("Cache-Control", "no-cache")
		r.w.WriteHeader(http.StatusOK)
	}
	// An error means that the client is gone; its context says so.
	if r.writeEvent(message) == nil {
		r.flush()
	}
}

func (r *response) writeEvent(message []byte) error {
	for _, part := range [][]byte{[]byte("event: message\ndata: "), message, []byte("\n\n")} {
		if _, err := r.w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

func (r *response) Flush() {
	r.x.mu.Lock()
	defer r.x.mu.Unlock()
	r.flush()
}

func (r *response) flush() {
	if f, ok := r.w.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (r *response) Unwrap() http.ResponseWriter { return r.w }
