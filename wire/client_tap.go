package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"toolfinch/rawjson"
)

// MaxAnswer is the longest message taken from an upstream, in bytes.
const MaxAnswer = 64 << 20

// Why there is no answer.
var (
	// ErrTooLarge says that an upstream's message is longer than MaxAnswer.
	ErrTooLarge = errors.New("the answer is longer than 64 MiB")
	// ErrWrongID says that an upstream answered over HTTP with another ID.
	ErrWrongID = errors.New("the answer carries the id of another request")
	// ErrNotMessage says that what came instead of an answer is not JSON-RPC.
	ErrNotMessage = errors.New("the answer is not a JSON-RPC message")
)

// StatusError is an HTTP status that came instead of an answer.
type StatusError struct{ Code int }

func (e *StatusError) Error() string {
	return strings.TrimSpace("HTTP status " + strconv.Itoa(e.Code) + " " + http.StatusText(e.Code))
}

// Tap stands between one connection to an upstream and mcp-go's client
// transport. Answers that are expected, all notifications, and all requests are
// taken out as the bytes they are; the library sees an empty result, or nothing.
//
// stream is the ID of the request whose HTTP answer a message came on, and that
// it belongs to therefore; 0 on stdio and on streams that are for no request of
// ours.
type Tap struct {
	// Notify gets the notifications, one at a time per stream. Nothing more is read
	// from the stream until it returns.
	Notify func(stream int64, method string, params json.RawMessage)
	// Request gets the requests of the upstream, with their ID as it was sent. It
	// must not block. Without it the library answers them.
	Request func(stream int64, id json.RawMessage, method string, params json.RawMessage)
	// Endpoint, if set, gets the URL that an HTTP+SSE server names for messages.
	Endpoint func(url string)
	// Opening, if set, is called before an HTTP event stream that is for no request
	// of ours is asked for. It may wait; an error keeps it from being asked for.
	Opening func(ctx context.Context) error
	// Ended, if set, is called when such a stream has ended, or could not be asked for. It must not block.
	Ended func()

	mu      sync.Mutex // guards what follows; held for look-ups only
	next    int64
	pending map[int64]*Reply
	err     error // of a connection that has ended
}

// Reply is the answer to one request. It may be read once Done is closed.
type Reply struct {
	Done   chan struct{}
	Result json.RawMessage // nil if Error or Err is set
	Error  json.RawMessage // the JSON-RPC error object
	NoID   bool            // Error came without the request's ID: it was refused unread
	Err    error           // no answer will come

	id       int64
	standing bool
	sent     atomic.Bool
	status   atomic.Int32
}

// Sent reports whether any byte of the request may have reached the upstream.
func (r *Reply) Sent() bool { return r.sent.Load() }

// Status is the HTTP status of the answer, 0 when there is none.
func (r *Reply) Status() int { return int(r.status.Load()) }

// stream is the ID of the request that r answers, 0 for a nil r.
func (r *Reply) stream() int64 {
	if r == nil {
		return 0
	}
	return r.id
}

// firstID keeps our request IDs clear of those mcp-go counts from 1.
const firstID = 1 << 32

// Expect returns a fresh request ID and the reply to it. After Fail the reply
// has failed at once.
func (t *Tap) Expect() (int64, *Reply) { return t.expect(false) }

// ExpectStanding is Expect for a request that stays open for long: an error
// without an ID is not taken for its answer.
func (t *Tap) ExpectStanding() (int64, *Reply) { return t.expect(true) }

func (t *Tap) expect(standing bool) (int64, *Reply) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	id := firstID + t.next
	reply := &Reply{Done: make(chan struct{}), id: id, standing: standing}
	if t.err != nil {
		reply.Err = t.err
		close(reply.Done)
		return id, reply
	}
	if t.pending == nil {
		t.pending = map[int64]*Reply{}
	}
	t.pending[id] = reply
	return id, reply
}

// Waits reports whether the answer to a request is still to come.
func (t *Tap) Waits(id int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pending[id] != nil
}

// Waiting is how many answers are still to come, without those to standing requests.
func (t *Tap) Waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, reply := range t.pending {
		if !reply.standing {
			n++
		}
	}
	return n
}

// Forget gives up on a reply.
func (t *Tap) Forget(id int64) { t.take(id) }

func (t *Tap) take(id int64) *Reply {
	t.mu.Lock()
	defer t.mu.Unlock()
	reply := t.pending[id]
	delete(t.pending, id)
	return reply
}

// Fail ends the pending reply with err.
func (t *Tap) Fail(id int64, err error) {
	if reply := t.take(id); reply != nil {
		reply.Err = err
		close(reply.Done)
	}
}

// FailAll ends all pending replies with err, and with final all to come.
func (t *Tap) FailAll(err error, final bool) {
	t.mu.Lock()
	pending := t.pending
	t.pending = nil
	if final && t.err == nil {
		t.err = err
	}
	t.mu.Unlock()
	for _, reply := range pending {
		reply.Err = err
		close(reply.Done)
	}
}

// Filter takes one message of the upstream and returns what of it mcp-go is to
// see: a stub for an expected answer, nil for a notification, a request and for
// what is no message, else all of it. valid is false for what is no message.
func (t *Tap) Filter(message []byte) (forward []byte, valid bool) { return t.filterOn(0, message) }

// filterOn is Filter for a message that came on the stream of a request.
func (t *Tap) filterOn(stream int64, message []byte) (forward []byte, valid bool) {
	if !json.Valid(message) {
		return nil, false
	}
	message = bytes.TrimSpace(message)
	switch message[0] {
	case '{':
		return t.filter(stream, message), true
	case '[': // a batch, which revision 2025-03-26 allowed
		var batch []json.RawMessage
		if json.Unmarshal(message, &batch) != nil {
			return nil, false
		}
		for _, one := range batch {
			if f := t.filter(stream, one); f != nil {
				forward = f // mcp-go takes one message; all others are taken out here
			}
		}
		return forward, true
	}
	return nil, false
}

func (t *Tap) filter(stream int64, message []byte) []byte {
	var id, method, params, result, failure json.RawMessage
	for key, value := range rawjson.Members(message) {
		switch key {
		case "id":
			id = value
		case "method":
			method = value
		case "params":
			params = value
		case "result":
			result = value
		case "error":
			failure = value
		}
	}
	if isNull(failure) { // some servers send "error":null with a result
		failure = nil
	}
	switch {
	case method == nil:
	case isNull(id):
		if t.Notify != nil {
			t.Notify(stream, rawjson.Text(method), bytes.Clone(params))
		}
		return nil
	case t.Request != nil:
		t.Request(stream, bytes.Clone(id), rawjson.Text(method), bytes.Clone(params))
		return nil
	default:
		return message
	}
	n, ok := parseID(id)
	reply := (*Reply)(nil)
	switch {
	case ok:
		reply = t.take(n)
	case isNull(id) && failure != nil:
		reply = t.takeOnly() // the upstream could not read the request
	}
	if reply == nil {
		if ok && firstID > n {
			// mcp-go finds its own request only by a number.
			if fixed, err := rawjson.Set(message, "id", strconv.AppendInt(nil, n, 10)); err == nil {
				return fixed
			}
		}
		return message
	}
	switch {
	case failure != nil && failure[0] == '{':
		reply.Error, reply.NoID = bytes.Clone(failure), !ok
	case failure == nil && result != nil:
		reply.Result = bytes.Clone(result)
	default:
		reply.Err = ErrNotMessage
	}
	close(reply.Done)
	return stub(reply.id)
}

// stub is all that mcp-go sees of an answer of ours.
func stub(id int64) []byte {
	return []byte(`{"jsonrpc":"2.0","id":` + strconv.FormatInt(id, 10) + `,"result":{}}`)
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// takeOnly takes the one reply that is pending, if it is one.
func (t *Tap) takeOnly() *Reply {
	t.mu.Lock()
	defer t.mu.Unlock()
	var only *Reply
	for _, reply := range t.pending {
		if reply.standing {
			continue
		}
		if only != nil {
			return nil
		}
		only = reply
	}
	if only != nil {
		delete(t.pending, only.id)
	}
	return only
}

// parseID reads a request ID as servers send it back: 7, "7" or 7.0.
func parseID(raw json.RawMessage) (int64, bool) {
	s := strings.Trim(string(raw), `"`)
	if whole, fraction, ok := strings.Cut(s, "."); ok && strings.Trim(fraction, "0") == "" {
		s = whole
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// failHead attributes a message that was too long to read to its request, by
// its first bytes; where that fails nobody can tell whose it was, and all
// pending requests fail.
func (t *Tap) failHead(head []byte) {
	for key, value := range rawjson.Members(head) {
		switch key {
		case "method":
			return // nobody waits for it
		case "id":
			if id, ok := parseID(value); ok {
				t.Fail(id, ErrTooLarge)
				return
			}
		}
	}
	t.FailAll(ErrTooLarge, false)
}
