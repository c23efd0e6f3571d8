package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/rawjson"
)

// HTTP wraps the handler of a streamable HTTP endpoint so that requests are
// answered with raw bytes through their Exchange. A body longer than limit
// bytes is refused with 413. answered is asked to take what answers a request
// that was sent to the session's client; what it does not know goes to next.
func HTTP(next http.Handler, limit int64, answered func(session string, reply *ClientReply) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w = &impatient{w, http.NewResponseController(w), writeWithin}
		if r.Method != http.MethodPost {
			next.ServeHTTP(&unwrapper{w}, r)
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
		res := &response{w: w, header: w.Header().Clone()}
		x := NewExchange(body, res.event)
		if x == nil || !mirrored(x, r) {
			if reply := ParseReply(body); reply != nil && answered(r.Header.Get(mcp.HeaderSessionID), reply) {
				w.WriteHeader(http.StatusAccepted)
				return
			}
			if isCancel(body) && mcp.RequiresStandardHeaders(r.Header.Get(mcp.HeaderProtocolVersion)) {
				// In that era the end of the request is the cancellation; mcp-go
				// would look among the requests of all clients for the ID.
				w.WriteHeader(http.StatusAccepted)
				return
			}
			setBody(r, body)
			next.ServeHTTP(&unwrapper{w}, r.WithContext(WithMessage(r.Context(), body)))
			return
		}
		res.x = x
		setBody(r, x.Stub())
		next.ServeHTTP(res, r.WithContext(x.Context(r.Context())))
		x.Answer() // nothing may be written once the handler has returned
	})
}

func isCancel(body []byte) bool {
	return json.Valid(body) && rawjson.Text(rawjson.Member(body, "method")) == "notifications/cancelled"
}

// mirrored makes the headers that mirror the body of a 2026-07-28 request fit
// its stub. It reports false when they did not fit the body: mcp-go is to see
// that, and refuses the request.
func mirrored(x *Exchange, r *http.Request) bool {
	x.Header = r.Header
	version := r.Header.Get(mcp.HeaderProtocolVersion)
	if !mcp.RequiresStandardHeaders(version) {
		return true
	}
	named := []byte(`{}`) // of params what the library looks at: it would decode all
	for _, key := range []string{"name", "uri"} {
		if value := rawjson.Member(x.Params, key); value != nil {
			named, _ = rawjson.Set(named, key, value)
		}
	}
	if mcp.ValidateStandardHeaders(r.Header.Get, version, mcp.MCPMethod(x.Method), named) != nil {
		return false
	}
	r.Header = r.Header.Clone()
	r.Header.Set(mcp.HeaderMethod, MethodCallTool)
	r.Header.Set(mcp.HeaderName, StubTool)
	return true
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
	header http.Header // of mcp-go, which fills it without our lock
	begun  bool        // the header was sent
	stream bool        // as text/event-stream
}

func (r *response) Header() http.Header { return r.header }

func (r *response) WriteHeader(status int) {
	r.x.mu.Lock()
	defer r.x.mu.Unlock()
	r.begin(status)
}

func (r *response) begin(status int) {
	if r.begun {
		return
	}
	r.begun = true
	r.stream = strings.HasPrefix(r.header.Get("Content-Type"), "text/event-stream")
	if r.x.answer != nil && r.x.status != 0 && !r.stream {
		status = r.x.status
	}
	maps.Copy(r.w.Header(), r.header)
	r.w.WriteHeader(status)
}

// Write takes one whole message: mcp-go writes an event or a body at a time.
func (r *response) Write(b []byte) (int, error) {
	r.x.mu.Lock()
	defer r.x.mu.Unlock()
	r.begin(http.StatusOK)
	data, isEvent := bytes.CutPrefix(b, eventHead)
	if isEvent && rawjson.Member(data, "method") != nil { // a message of its own, no answer
		return len(b), r.writeEvent(unwrap(bytes.TrimSpace(data)))
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
	if !r.begun {
		r.begun, r.stream = true, true
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
	return writeEvent(r.w, message)
}

var eventHead = []byte("event: message\ndata: ")

func writeEvent(w io.Writer, message []byte) error {
	for _, part := range [][]byte{eventHead, message, []byte("\n\n")} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

const (
	// writeWithin is how long a client may take to read writeAtOnce bytes.
	writeWithin = 30 * time.Second
	writeAtOnce = 64 << 10
)

// impatient writes to a client that has to read: one that does not must not
// hold its calls forever. After an error the request's context ends.
type impatient struct {
	http.ResponseWriter
	control *http.ResponseController
	within  time.Duration
}

func (i *impatient) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		part := b[:min(len(b), writeAtOnce)]
		_ = i.control.SetWriteDeadline(time.Now().Add(i.within))
		var written int
		written, err = i.ResponseWriter.Write(part)
		n, b = n+written, b[len(part):]
	}
	return n, err
}

func (i *impatient) Flush() {
	_ = i.control.SetWriteDeadline(time.Now().Add(i.within))
	_ = i.control.Flush()
}

// Unwrap lets http.ResponseController reach the connection.
func (i *impatient) Unwrap() http.ResponseWriter { return i.ResponseWriter }

// unwrapper puts the messages that MethodRaw stands for into a stream of mcp-go.
type unwrapper struct{ http.ResponseWriter }

func (u *unwrapper) Write(b []byte) (int, error) {
	if data, isEvent := bytes.CutPrefix(b, eventHead); isEvent {
		return len(b), writeEvent(u.ResponseWriter, unwrap(bytes.TrimSpace(data)))
	}
	return u.ResponseWriter.Write(b)
}

func (u *unwrapper) Flush() {
	if f, ok := u.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (u *unwrapper) Unwrap() http.ResponseWriter { return u.ResponseWriter }

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
