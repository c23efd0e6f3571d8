package conn

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"toolfinch/internal/rawjson"
)

// MaxAnswer is the longest message taken from a server, in bytes.
const MaxAnswer = 64 << 20

// Reply is the answer to one request. Its fields may be read once Done is closed.
type Reply struct {
	ID     int64 // ID of the request
	Done   chan struct{}
	Result json.RawMessage // nil if Error or Err is set
	Error  json.RawMessage // the JSON-RPC error object
	Err    error           // no answer will come

	status   int         // status of the HTTP response; 0 without
	proto    string      // HTTP version of the response
	standing bool        // nobody waits for it
	sent     atomic.Bool // the request may have reached the server
}

// Pending holds the requests of a connection that wait for their answers.
type Pending struct {
	lock    sync.Mutex // guards the fields below; held for look-ups only
	last    int64
	replies map[int64]*Reply
	err     error // error of a connection that has ended
}

// Expect reserves an ID for a request that Exchange sends; Forget ends the reservation. On a failed connection the
// reply fails at once.
func (p *Pending) Expect() *Reply { return p.expect(false) }

// ExpectStanding is Expect for a request that stays open for long: an error without an ID is not taken for its
// answer, and Waiting does not count it.
func (p *Pending) ExpectStanding() *Reply { return p.expect(true) }

// Forget drops a reply that nobody waits for any more.
func (p *Pending) Forget(r *Reply) { p.take(r.ID) }

func (p *Pending) expect(standing bool) *Reply {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.last++
	reply := &Reply{ID: p.last, Done: make(chan struct{}), standing: standing}
	if p.err != nil {
		reply.Err = p.err
		close(reply.Done)
		return reply
	}
	if p.replies == nil {
		p.replies = map[int64]*Reply{}
	}
	p.replies[reply.ID] = reply
	return reply
}

func (p *Pending) Waits(id int64) bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.replies[id] != nil
}

// Waiting counts the outstanding answers, without those to standing requests.
func (p *Pending) Waiting() (n int) {
	p.lock.Lock()
	defer p.lock.Unlock()
	for _, reply := range p.replies {
		if !reply.standing {
			n++
		}
	}
	return n
}

func (p *Pending) take(id int64) *Reply {
	p.lock.Lock()
	defer p.lock.Unlock()
	reply := p.replies[id]
	delete(p.replies, id)
	return reply
}

// takeOnly removes and returns the one reply that is waited for; nil if there are several.
func (p *Pending) takeOnly() *Reply {
	p.lock.Lock()
	defer p.lock.Unlock()
	var only *Reply
	for _, reply := range p.replies {
		if reply.standing {
			continue
		}
		if only != nil {
			return nil
		}
		only = reply
	}
	if only != nil {
		delete(p.replies, only.ID)
	}
	return only
}

// fail ends a reply with err, unless it is done.
func (p *Pending) fail(id int64, err error) {
	if reply := p.take(id); reply != nil {
		reply.Err = err
		close(reply.Done)
	}
}

// failAll ends all replies with err. With final, replies that are reserved later fail, too.
func (p *Pending) failAll(err error, final bool) {
	p.lock.Lock()
	failed := p.replies
	p.replies = nil
	if final && p.err == nil {
		p.err = err
	}
	p.lock.Unlock()
	for _, reply := range failed {
		reply.Err = err
		close(reply.Done)
	}
}

// failTooLong fails the request whose answer was too long to read, which it finds by the first bytes of the answer.
// If they do not tell, all requests fail.
func (p *Pending) failTooLong(head []byte) {
	for key, value := range rawjson.Members(head) {
		switch key {
		case "method":
			return // nobody waits for it
		case "id":
			if id, ok := parseID(value); ok {
				p.fail(id, ErrTooLarge)
				return
			}
		}
	}
	p.failAll(ErrTooLarge, false)
}

// answered hands an answer to the request with its ID. An error without an ID is about a request that the server
// could not read: the request of the stream, else the only request there is.
// It reports whether there is such a request.
func (p *Pending) answered(stream int64, id, result, failure json.RawMessage) bool {
	if isNull(failure) { // some servers send "error":null with a result
		failure = nil
	}
	var reply *Reply
	n, ok := parseID(id)
	switch {
	case ok:
		reply = p.take(n)
	case isNull(id) && stream != 0 && failure != nil && failure[0] == '{': // an error of JSON-RPC is an object
		reply = p.take(stream)
	case isNull(id) && stream == 0 && failure != nil:
		reply = p.takeOnly()
	}
	if reply == nil {
		return false
	}
	switch {
	case failure != nil && failure[0] == '{':
		reply.Error = bytes.Clone(failure)
	case failure == nil && result != nil:
		reply.Result = bytes.Clone(result)
	default:
		reply.Err = ErrNotMessage
	}
	close(reply.Done)
	return true
}

// receive takes one message or a batch that the server sent on the stream of a request. It reports false for anything
// else.
func (c *Conn) receive(stream int64, sent []byte) bool {
	sent = bytes.TrimPrefix(sent, byteOrderMark)
	if !json.Valid(sent) { // Valid accepts every byte beyond ASCII
		return false
	}
	if !utf8.Valid(sent) { // a client that decodes strictly would end its whole session
		sent = bytes.ToValidUTF8(sent, []byte("\uFFFD"))
	}
	sent = bytes.TrimSpace(sent)
	switch sent[0] {
	case '{':
		c.receiveOne(stream, sent)
	case '[': // revision 2025-03-26 allows batches
		for message := range rawjson.Elements(sent) {
			c.receiveOne(stream, message)
		}
	default:
		return false
	}
	return true
}

func (c *Conn) receiveOne(stream int64, message []byte) {
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
	switch {
	case method == nil:
		if !c.answered(stream, id, result, failure) {
			c.misunderstood("it answered with an id that no request has", message)
		}
	case isNull(id):
		c.handler.Notified(stream, rawjson.Text(method), bytes.Clone(params))
	default:
		c.handler.Asked(stream, bytes.Clone(id), rawjson.Text(method), bytes.Clone(params))
	}
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// parseID reads a request ID as servers send it back: 7, "7" or 7.0.
func parseID(raw json.RawMessage) (int64, bool) {
	s := strings.Trim(string(raw), `"`)
	if whole, fraction, ok := strings.Cut(s, "."); ok && strings.Trim(fraction, "0") == "" {
		s = whole
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}
