package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/rawjson"
	"toolfinch/tool"
	"toolfinch/wire"
)

// conn is one live connection: negotiated, able to send raw requests. It is
// used until it fails once, then another is dialled.
type conn struct {
	server   *server
	settings Settings
	main     bool // notifications of changed lists count
	log      *slog.Logger
	tap      *wire.Tap
	declare  json.RawMessage     // the client capabilities told to the server
	legacy   bool                // nothing but the handshake is tried
	http     transport.Interface // nil on stdio
	queue    *wire.Queue         // nil on HTTP
	process  *process            // nil on HTTP

	// Set by the negotiation; may be read once ready is closed.
	era          Era
	version      string // negotiated protocol version
	instructions string
	info         json.RawMessage // serverInfo, as sent
	offers       json.RawMessage // the server's capabilities, as sent
	ready        chan struct{}

	life context.Context // ends with the connection; its cause is why
	stop context.CancelCauseFunc
	once sync.Once

	service context.Context // ends when the connection gets no new calls, with its life at the latest
	retire  context.CancelFunc

	mu       sync.Mutex // guards what follows; never held over I/O
	reopen   *delays    // of the stream of notifications, nil before it was first opened
	opened   time.Time  // when that was, last
	streamed time.Time  // when a stream's end led to a new list
	closed   bool       // no work starts any more: it is waited for
	level    string     // that logging/setLevel was last asked for
	users    users
	flights  map[int64]*flight                  // calls in flight, by the ID of their request
	landed   chan struct{}                      // closed, and replaced, when one of them ends
	asks     map[string]context.CancelCauseFunc // requests of the server that are being answered, by their ID
	asking   int                                // how many of them there are, and those whose answer is on its way
	askBytes int                                // of their params, together
	waiting  int                                // how many wait to know whom they are for
	listen   listening
	rooting  rooting
	stalling stalling

	work sync.WaitGroup // goroutines of this connection
}

func newConn(l *line) *conn {
	s := l.server
	c := &conn{
		server: s, settings: s.settings, main: l.main, log: s.log,
		declare: l.declare, legacy: l.legacy || s.settings.Protocol == ProtocolLegacy,
		ready: make(chan struct{}), landed: make(chan struct{}),
		flights: map[int64]*flight{}, asks: map[string]context.CancelCauseFunc{},
		listen:  listening{changed: make(chan struct{}, 1), heard: make(chan struct{})},
		rooting: rooting{begun: make(chan struct{}), answered: make(chan struct{})},
	}
	if l.owner != "" {
		c.users = users{key: l.owner, count: usedByOne, legacy: true}
	}
	c.tap = &wire.Tap{Endpoint: c.endpoint, Notify: c.notified, Request: c.requested, Opening: c.streamOpening, Ended: c.streamEnded}
	c.life, c.stop = context.WithCancelCause(context.Background())
	c.service, c.retire = context.WithCancel(c.life)
	return c
}

// dead reports whether the connection has failed or was closed.
func (c *conn) dead() bool { return c.life.Err() != nil }

// fail ends the connection: what waits on it fails with err.
func (c *conn) fail(err error) {
	c.stop(err)
	c.tap.FailAll(context.Cause(c.life), true)
}

// spawn runs f, which must end with the connection's life, unless the
// connection is closed already. It reports whether f runs.
func (c *conn) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.work.Go(f)
	}
	return !c.closed
}

// finish ends the connection once no call is in flight over it, or after
// finishWithin, or with the server.
func (c *conn) finish(why error) {
	c.retire()
	patience := time.NewTimer(finishWithin)
	defer patience.Stop()
	for waiting := true; waiting; {
		c.mu.Lock()
		flying, landed := len(c.flights), c.landed
		c.mu.Unlock()
		if flying == 0 {
			break
		}
		select {
		case <-landed:
		case <-patience.C:
			c.log.Warn("calls did not end in time on a connection that is being replaced", "waited", finishWithin)
			waiting = false
		case <-c.life.Done():
			waiting = false
		case <-c.server.life.Done():
			waiting = false
		}
	}
	c.fail(why)
	c.close()
}

// close ends the connection and everything that belongs to it. Bounded.
func (c *conn) close() {
	c.fail(ErrClosed)
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.once.Do(func() {
		if c.process != nil {
			c.process.end()
			_ = c.queue.Close()
		}
		if c.http != nil {
			_ = c.http.Close() // ends the session, within 5 s
		}
	})
	c.work.Wait()
}

// undelivered wraps the error of a request that never reached the upstream.
type undelivered struct{ error }

func (u undelivered) Unwrap() error { return u.error }

// broken wraps an error after which the connection is of no more use.
type broken struct{ error }

func (b broken) Unwrap() error { return b.error }

// retriable wraps an error of one exchange that may go well the next time.
type retriable struct{ error }

func (r retriable) Unwrap() error { return r.error }

// request sends a request and returns the raw result. An error answer comes
// back as *tool.RPCError.
func (c *conn) request(ctx context.Context, method string, params json.RawMessage, header http.Header) (json.RawMessage, error) {
	id, reply := c.tap.Expect()
	defer c.tap.Forget(id)
	return c.exchange(ctx, id, reply, method, params, header)
}

// exchange is request with an ID that was reserved before.
func (c *conn) exchange(ctx context.Context, id int64, reply *wire.Reply, method string, params json.RawMessage, header http.Header) (json.RawMessage, error) {
	message := make([]byte, 0, len(params)+len(method)+64)
	message = append(message, `{"jsonrpc":"2.0","id":`...)
	message = strconv.AppendInt(message, id, 10)
	message = finish(message, method, params)
	var err error
	if c.queue != nil {
		err = c.queue.Send(append(message, '\n'), reply)
	} else {
		err = c.post(ctx, id, method, message, header, reply)
	}
	if err == nil {
		select {
		case <-reply.Done:
		case <-ctx.Done():
		}
	}
	select {
	case <-reply.Done:
		return c.answer(reply)
	default:
	}
	if ctx.Err() != nil {
		// A 2026-07-28 server over HTTP takes the end of the request for it.
		if c.era == EraLegacy || c.era == EraModern && c.queue != nil {
			c.cancel(id, context.Cause(ctx))
		}
		return nil, context.Cause(ctx)
	}
	err = c.explain(err, reply.Sent())
	if errors.As(err, new(retriable)) && reply.Status() == http.StatusOK && !errors.Is(err, wire.ErrWrongID) {
		return nil, retriable{marked{fmt.Errorf("the event stream ended without an answer: %w", plain(err)), ErrClosed}}
	}
	return nil, err
}

// finish appends what follows the ID of a message.
func finish(message []byte, method string, params json.RawMessage) []byte {
	message = append(append(message, `,"method":`...), strconv.Quote(method)...)
	if params != nil {
		message = append(append(message, `,"params":`...), rawjson.OneLine(params)...)
	}
	return append(message, '}')
}

// answer tells what a reply that is done means.
func (c *conn) answer(reply *wire.Reply) (json.RawMessage, error) {
	status := new(wire.StatusError)
	switch {
	case reply.Err == nil && reply.Error == nil:
		return reply.Result, nil
	case c.sessionLost(reply) && reply.Error != nil:
		return nil, undelivered{broken{rpcError(reply.Error)}}
	case c.sessionLost(reply):
		return nil, undelivered{broken{errSessionEnded}}
	case reply.Error != nil:
		return nil, rpcError(reply.Error)
	case errors.As(reply.Err, &status) && status.Code == http.StatusUnauthorized:
		return nil, errUnauthorized
	case c.dead() && !reply.Sent():
		return nil, undelivered{broken{reply.Err}}
	case c.dead():
		return nil, broken{reply.Err}
	case brokenOff(reply.Err):
		return nil, retriable{marked{reply.Err, ErrClosed}}
	}
	return nil, reply.Err
}

// brokenOff reports whether err is that the connection of one HTTP request was
// lost. The others have their own.
func brokenOff(err error) bool {
	return errors.As(err, new(*net.OpError)) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// sessionLost reports whether the server no longer knows our session. The
// specification wants 404; servers exist that answer 400 without having read
// whose request it is.
func (c *conn) sessionLost(reply *wire.Reply) bool {
	if c.http == nil || c.era != EraLegacy {
		return false
	}
	unread := reply.NoID || reply.Error == nil
	return unread && (reply.Status() == http.StatusNotFound || reply.Status() == http.StatusBadRequest)
}

// post sends over HTTP and returns when the tap has taken the answer in, or
// none can come any more.
func (c *conn) post(ctx context.Context, id int64, method string, message []byte, header http.Header, reply *wire.Reply) error {
	ctx, cancel := context.WithCancel(wire.Outgoing(ctx, message, reply))
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	if method == methodDiscover {
		method = "" // the library takes any answer to that for one of a 2026-07-28 server
	}
	_, err := c.http.SendRequest(ctx, transport.JSONRPCRequest{
		JSONRPC: mcp.JSONRPC_VERSION, ID: mcp.NewRequestId(id), Method: method, Header: header,
	})
	if err == nil { // it has seen an answer that is not ours
		err = wire.ErrWrongID
	}
	return err
}

var (
	errSessionEnded = marked{errors.New("the session has ended"), ErrClosed}
	errUnauthorized = errors.New("the server wants authorization (401): set it under headers")
)

// explain tells what it means that a request got no answer at all. sent says
// whether it may have reached the upstream.
func (c *conn) explain(err error, sent bool) error {
	var op *net.OpError
	status := new(wire.StatusError)
	switch {
	case errors.Is(err, wire.ErrNotReading):
		return undelivered{err}
	case c.dead():
		err = broken{context.Cause(c.life)}
	case c.queue != nil:
		err = broken{fmt.Errorf("%w: the server has closed its input", ErrClosed)}
	case errors.Is(err, transport.ErrSessionTerminated):
		return undelivered{broken{errSessionEnded}}
	case errors.Is(err, transport.ErrAuthorizationRequired):
		return errUnauthorized
	case errors.As(err, &status):
		return status
	case errors.Is(err, errRedirect):
		return clean(err)
	case errors.As(err, &op) && op.Op == "dial":
		return undelivered{broken{marked{clean(err), ErrNotConnected}}}
	case brokenOff(err):
		return retriable{marked{clean(err), ErrClosed}}
	default:
		return retriable{clean(err)}
	}
	if !sent {
		return undelivered{err}
	}
	return err
}

// clean is the error below the library's wrapping, without the URL, which may
// hold a secret.
func clean(err error) error {
	if u := new(url.Error); errors.As(err, &u) {
		return u.Err
	}
	text := strings.TrimPrefix(err.Error(), "transport error: ")
	text = strings.ReplaceAll(text, "failed to send request: ", "")
	return errors.New(rawjson.Clip(text, 300))
}

// cancel tells the upstream to stop working on a request, off the caller's path.
func (c *conn) cancel(id int64, why error) {
	reason := why.Error()
	if why == context.Canceled { // the end of a connection gives no reason
		reason = "the client has given the request up"
	}
	params, err := json.Marshal(map[string]any{"requestId": id, "reason": reason})
	if err != nil {
		return
	}
	tell := func() {
		ctx, cancel := context.WithTimeout(c.life, 5*time.Second)
		defer cancel()
		if err := c.notify(ctx, "notifications/cancelled", params); err != nil {
			c.log.Debug("the upstream was not told of a cancellation", "error", clean(err))
		}
	}
	if c.queue != nil {
		tell() // it only queues; what is sent next comes after it
		return
	}
	c.spawn(tell)
}

func (c *conn) notify(ctx context.Context, method string, params json.RawMessage) error {
	return c.send(ctx, finish([]byte(`{"jsonrpc":"2.0"`), method, params))
}

// send sends a message that gets no answer.
func (c *conn) send(ctx context.Context, message []byte) error {
	if c.queue != nil {
		return c.queue.Send(append(message, '\n'), nil)
	}
	return c.http.SendNotification(wire.Outgoing(ctx, message, nil), mcp.JSONRPCNotification{})
}

func rpcError(raw json.RawMessage) *tool.RPCError {
	e := &tool.RPCError{Raw: raw, Code: tool.CodeInternal}
	_ = json.Unmarshal(raw, e)
	return e
}

// Version is told to upstreams as this client's version.
var Version = "dev"

func clientInfo() json.RawMessage {
	info := rawjson.NewObject(64)
	info.AddText("name", "toolfinch")
	info.AddText("version", Version)
	return info.JSON()
}
