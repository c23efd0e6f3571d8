package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
)

// MaxAnswer is the longest message taken from an upstream, in bytes.
const MaxAnswer = 64 << 20

// ErrTooLarge says that an upstream's message is longer than MaxAnswer.
var ErrTooLarge = errors.New("the answer is longer than 64 MiB")

// Tap stands between one connection to an upstream and mcp-go's client
// transport. Answers that are expected, and all notifications, are taken out
// as the bytes they are; the library sees an empty result, or nothing.
type Tap struct {
	// Notify gets the notifications, one at a time per stream. It must not block.
	Notify func(method string, params json.RawMessage)

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
	Err    error           // no answer will come
}

// firstID keeps our request IDs clear of those mcp-go counts from 1.
const firstID = 1 << 32

// Expect returns a fresh request ID and the reply to it. After Fail the reply
// has failed at once.
func (t *Tap) Expect() (int64, *Reply) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	id, reply := firstID+t.next, &Reply{Done: make(chan struct{})}
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
// see: nil for a notification, a stub for an expected answer, else all of it.
func (t *Tap) Filter(message []byte) []byte {
	if !json.Valid(message) {
		return message // the library reports it
	}
	var id, method, params, result, failure json.RawMessage
	for key, value := range Members(message) {
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
	if method != nil {
		if id != nil {
			return message
		}
		if t.Notify != nil {
			t.Notify(unquote(method), bytes.Clone(params))
		}
		return nil
	}
	n, ok := parseID(id)
	if !ok {
		return message
	}
	reply := t.take(n)
	if reply == nil {
		return message
	}
	switch {
	case failure != nil && string(failure) != "null":
		reply.Error = bytes.Clone(failure)
	case result != nil:
		reply.Result = bytes.Clone(result)
	default:
		reply.Err = errors.New("the answer has neither result nor error")
	}
	close(reply.Done)
	return []byte(`{"jsonrpc":"2.0","id":` + strconv.FormatInt(n, 10) + `,"result":{}}`)
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
	if i := bytes.Index(head, []byte(`"id":`)); i >= 0 && !bytes.Contains(head[:i], []byte(`"result"`)) {
		rest := bytes.TrimLeft(head[i+len(`"id":`):], " ")
		if end := bytes.IndexAny(rest, ",} "); end > 0 {
			if id, ok := parseID(bytes.TrimSpace(rest[:end])); ok {
				t.Fail(id, ErrTooLarge)
				return
			}
		}
	}
	t.FailAll(ErrTooLarge, false)
}
