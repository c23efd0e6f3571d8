// Package conn owns one connection to one MCP server: it starts the process or speaks HTTP, agrees on a protocol
// version, sends requests, matches answers to requests, and hands on the server's own messages, all without changing
// a byte. It knows neither clients nor tools. It never reconnects: a connection that has failed stays failed.
package conn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"toolfinch/internal/discovery"
	"toolfinch/internal/leeway"
	"toolfinch/internal/rawjson"
	"toolfinch/internal/telemetry"
	"toolfinch/tool"
	"toolfinch/upstream/sandbox"
)

// Era is the kind of protocol that a server speaks: a session with a handshake, or the stateless protocol of
// 2026-07-28.
type Era string

// EraUnknown is the era of a server that was not asked yet.
const (
	EraUnknown Era = ""
	EraLegacy  Era = "legacy"
	EraModern  Era = "2026-07-28"
)

// Transport is the way to a server.
type Transport string

// TransportAuto means stdio for a command; for a URL streamable HTTP, then SSE.
const (
	TransportAuto  Transport = "auto"
	TransportStdio Transport = "stdio"
	TransportHTTP  Transport = "streamable-http"
	TransportSSE   Transport = "sse"
)

// Options say how to reach a server: a command to start, or a URL.
type Options struct {
	Name       string            // name of the server in spans
	Command    string            // stdio: the program to start
	Args       []string          // stdio: its arguments
	Env        map[string]string // stdio: environment on top of the minimal one
	InheritEnv []string          // stdio: patterns of the variables that the process inherits from ours
	Cwd        string            // stdio: working directory; "" for ours
	Sandbox    sandbox.Settings  // stdio: files and addresses that the process may reach
	Program    Program           // stdio: runs instead of the command; nil for none
	URL        string            // HTTP: the endpoint
	Headers    map[string]string // HTTP: sent with every request
	TLS        discovery.TLS     // HTTP: certificates
	// Around, unless nil, returns what sends the HTTP requests in the place of base. What
	// it adds goes to the origin of URL alone.
	Around         func(base http.RoundTripper) http.RoundTripper
	Transport      Transport
	MaxAnswer      int             // most bytes of a message; default MaxAnswer
	ConnectTimeout time.Duration   // bounds how long an HTTP+SSE server may take to name its endpoint
	Known          Era             // era of the server's last connection
	Legacy         bool            // connects by handshake even where the server speaks the later era
	Capabilities   json.RawMessage // client capabilities that the server is told
	ClientVersion  string          // client version that the server is told
	Started        func(*Process)  // stdio: is called with the process; may be nil
	Traces         *telemetry.Traces
	Log            *slog.Logger
	Again          bool     // the last attempt failed: repeated warnings are logged at level debug
	Before         *Process // stdio: the process of the last attempt; nil for none
}

// Handler gets the requests and notifications of the server. Its methods run on the loop that reads the connection.
// stream is the ID of the request whose HTTP response carried the message; it is 0 on stdio and on streams that
// belong to no request.
type Handler interface {
	// Notified gets a notification. Nothing more is read from the stream until it
	// returns.
	Notified(stream int64, method string, params json.RawMessage)
	// Asked gets a request, which Respond answers, with its ID as sent. It must not
	// block.
	Asked(stream int64, id json.RawMessage, method string, params json.RawMessage)
	// StreamEnded is told that notifications may have been missed. It must not block.
	StreamEnded()
}

// Conn is one live connection. Its methods are safe for concurrent use.
type Conn struct {
	Pending

	// What was agreed on; may be read once Ready is closed.
	Era          Era
	Version      string          // protocol version
	Capabilities json.RawMessage // capabilities of the server, as sent
	Info         json.RawMessage // serverInfo, as sent
	Instructions string
	Transport    Transport // as connected
	Ready        chan struct{}

	options Options
	handler Handler
	log     *slog.Logger
	most    int // most bytes of a message
	channel channel
	peer    *telemetry.Peer // nil without traces
	odd     atomic.Value    // string: what came last that answers nothing; "" for nothing
	spoken  atomic.Value    // string: the protocol version in the header of HTTP requests; "" for none

	Life    context.Context    // ends with the connection; its cause is the error that ended the connection
	Service context.Context    // ends when the connection gets no new calls, with Life at the latest
	Retire  context.CancelFunc // ends Service
	stop    context.CancelCauseFunc
	once    sync.Once

	mu     sync.Mutex     // guards closed; never held over I/O
	closed bool           // no goroutine starts any more
	work   sync.WaitGroup // goroutines that Close waits for
}

// channel carries messages to the server, and hands messages of the server to Conn.receive.
type channel interface {
	// open gets ready to send. The channel ends with the connection's life; ctx
	// bounds the opening alone.
	open(ctx context.Context) error
	// send sends a message. reply is nil for what gets no answer; otherwise it is
	// marked as sent before the server can read the message. Over HTTP send returns
	// once the answer is there, or none can come.
	send(ctx context.Context, message []byte, header http.Header, reply *Reply) error
	// close ends the channel, and waits a bounded time for that.
	close()
}

func newConn(options Options, transport Transport, handler func(*Conn) Handler) *Conn {
	c := &Conn{options: options, log: options.Log, most: cmp.Or(options.MaxAnswer, MaxAnswer), Transport: transport, Ready: make(chan struct{})}
	c.Life, c.stop = context.WithCancelCause(context.Background())
	c.spoken.Store("")
	c.odd.Store("")
	c.Service, c.Retire = context.WithCancel(c.Life)
	switch transport {
	case TransportStdio:
		c.channel = &stdio{conn: c}
	case TransportSSE:
		c.options.Legacy = true
		c.channel = &sse{sender: newSender(c)}
	default:
		c.channel = &streamable{sender: newSender(c), opened: make(chan struct{})}
	}
	c.peer = options.peer(transport)
	c.handler = handler(c)
	return c
}

// misunderstood keeps what came, in printable form, for the reason of a connection that does not come up.
func (c *Conn) misunderstood(why string, came []byte) {
	c.odd.Store(fmt.Sprintf(": %s%s%.*q", why, itSays, maxWords, came[:min(len(came), maxWords)]))
}

// Dead reports whether the connection has failed or was closed.
func (c *Conn) Dead() bool { return c.Life.Err() != nil }

// Fail ends the connection: requests that wait for an answer fail with err.
func (c *Conn) Fail(err error) {
	c.stop(err)
	c.failAll(context.Cause(c.Life), true)
}

// Go runs f on a goroutine that Close waits for; f must end with Life. Go reports false, without running f, when the
// connection is closed.
func (c *Conn) Go(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.work.Go(f)
	}
	return !c.closed
}

// Close ends the connection and its process or session, within seconds: two for a process that does not want to end,
// five for an HTTP session.
func (c *Conn) Close() {
	c.Fail(ErrClosed)
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.once.Do(c.channel.close)
	c.work.Wait()
}

// Pause waits for delay. It reports false when the connection was retired or ctx ended before.
func (c *Conn) Pause(ctx context.Context, delay time.Duration) bool {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-c.Service.Done():
		return false
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Has reports whether the server declared a capability.
func (c *Conn) Has(capability string) bool {
	return !isNull(rawjson.Member(c.Capabilities, capability))
}

// Sessionless reports whether this is a legacy connection over HTTP without a
// session. Its server has no way to ask anything.
func (c *Conn) Sessionless() bool {
	s, ok := c.channel.(*streamable)
	return ok && c.Era == EraLegacy && s.sessionID() == ""
}

// Streams reports whether a legacy server can send messages outside of requests now.
func (c *Conn) Streams() bool {
	s, ok := c.channel.(*streamable)
	return !ok || s.streams.Load()
}

// Request sends a request and returns the raw result. An error of the server is a *tool.RPCError; FailureOf explains
// the other errors.
func (c *Conn) Request(ctx context.Context, method string, params json.RawMessage, header http.Header) (json.RawMessage, error) {
	reply := c.Expect()
	defer c.Forget(reply)
	return c.Exchange(ctx, reply, method, params, header)
}

// Exchange is Request for a reserved ID (see Pending.Expect). When ctx ends, the server is told that the request is
// cancelled.
func (c *Conn) Exchange(ctx context.Context, reply *Reply, method string, params json.RawMessage, header http.Header) (json.RawMessage, error) {
	if c.peer == nil || reply.standing { // a request that stays open for days gets no span
		return c.exchange(ctx, reply, method, params, header)
	}
	return c.traced(ctx, reply, method, params, header)
}

func (c *Conn) exchange(ctx context.Context, reply *Reply, method string, params json.RawMessage, header http.Header) (json.RawMessage, error) {
	message := make([]byte, 0, len(params)+len(method)+64)
	message = append(message, `{"jsonrpc":"2.0","id":`...)
	message = strconv.AppendInt(message, reply.ID, 10)
	err := c.channel.send(ctx, withMethod(message, method, params), header, reply)
	if err == nil {
		select {
		case <-reply.Done:
		case <-ctx.Done():
		}
	}
	select {
	case <-reply.Done:
		return c.answer(ctx, reply)
	default:
	}
	if ctx.Err() == nil {
		return nil, c.explain(err, reply.sent.Load())
	}
	// A 2026-07-28 server over HTTP takes the end of the HTTP request for it.
	if c.Era == EraLegacy || c.Era == EraModern && c.Transport == TransportStdio {
		c.cancel(reply.ID, context.Cause(ctx))
	}
	return nil, context.Cause(ctx)
}

// withMethod adds method and params to a message that has its ID.
func withMethod(message []byte, method string, params json.RawMessage) []byte {
	message = append(append(message, `,"method":`...), rawjson.Quote(method)...)
	if params != nil {
		message = append(append(message, `,"params":`...), rawjson.OneLine(params)...)
	}
	return append(message, '}')
}

// answerWithin bounds how long the sending of a notification or an answer may take.
const answerWithin = 10 * time.Second

// cancel tells the server to stop working on a request, without making the caller wait.
func (c *Conn) cancel(id int64, why error) {
	reason := why.Error()
	if why == context.Canceled { // the end of a connection gives no reason
		reason = "the client has given the request up"
	}
	params := rawjson.Of(map[string]any{"requestId": id, "reason": reason})
	tell := func() {
		ctx, cancel := context.WithTimeout(c.Life, leeway.Of(answerWithin))
		defer cancel()
		if err := c.Notify(ctx, "notifications/cancelled", params); err != nil {
			c.log.Debug("the upstream was not told of a cancellation", "error", err)
		}
	}
	if c.Transport == TransportStdio {
		tell() // the cancellation is only queued, in front of later messages
		return
	}
	c.Go(tell)
}

// Notify sends a notification.
func (c *Conn) Notify(ctx context.Context, method string, params json.RawMessage) error {
	return c.channel.send(ctx, withMethod([]byte(`{"jsonrpc":"2.0"`), method, params), nil, nil)
}

// Respond answers a request of the server: with err unless it is nil, else with the result; a nil result is an empty
// one.
func (c *Conn) Respond(id, result json.RawMessage, err *tool.RPCError) {
	member, value := `,"result":`, result
	if err != nil {
		member, value = `,"error":`, err.JSON()
	}
	if len(value) == 0 {
		value = json.RawMessage(`{}`)
	}
	message := append(append([]byte(`{"jsonrpc":"2.0","id":`), id...), member...)
	message = append(append(message, rawjson.OneLine(value)...), '}')
	ctx, cancel := context.WithTimeout(c.Life, leeway.Of(answerWithin))
	defer cancel()
	if err := c.channel.send(ctx, message, nil, nil); err != nil && !c.Dead() {
		c.log.Debug("the answer to a request of the upstream was not sent", "error", err)
	}
}

// answer is the result or the error that a done reply holds.
func (c *Conn) answer(ctx context.Context, reply *Reply) (json.RawMessage, error) {
	err := reply.Err
	if reply.Error != nil {
		err = rpcError(reply.Error)
	}
	switch {
	case err == nil:
		return reply.Result, nil
	case unauthorized(err):
		return nil, err
	case c.Dead() && reply.Error == nil:
		return nil, Failure{Err: err, Sent: reply.sent.Load(), Lost: true}
	case c.sessionLost(ctx, reply):
		status, _ := errors.AsType[*StatusError](err)
		if reply.Error == nil && reply.status < http.StatusInternalServerError {
			err = errSessionEnded
		}
		// Behind a gateway a server may have carried out what a bare 5xx answers.
		return nil, Failure{Err: err, Lost: true, Sent: status != nil && status.Code/100 == 5 && !status.aboutSession()}
	}
	return nil, err
}

// probeSession bounds the question whether the server still knows our session.
const probeSession = 3 * time.Second

// sessionLost reports whether the server no longer knows our session. It does not judge by words: a 404 to a request
// of a session says so; after any other refusal a ping tells, which the server then refuses in the same way.
func (c *Conn) sessionLost(ctx context.Context, reply *Reply) bool {
	s, overHTTP := c.channel.(*streamable)
	refused := refusalOf(reply)
	switch {
	case c.Transport == TransportStdio || c.Era != EraLegacy || refused == refusal{}:
		return false
	case refused.status == http.StatusNotFound && (!overHTTP || s.sessionID() != ""):
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, leeway.Of(probeSession))
	defer cancel()
	ping := c.Expect()
	defer c.Forget(ping)
	message := withMethod(strconv.AppendInt([]byte(`{"jsonrpc":"2.0","id":`), ping.ID, 10), "ping", nil)
	if c.channel.send(ctx, message, nil, ping) != nil {
		return false
	}
	select {
	case <-ping.Done:
		return refusalOf(ping) == refused
	case <-ctx.Done():
		return false
	}
}

// refusal is how a server refused a request; zero if it did not, or says that it lacks the method, a scope or time.
type refusal struct {
	status, code int
	words        string // of an answer with status 200: a tool may fail with the code that the server refuses pings with
}

func refusalOf(reply *Reply) (r refusal) {
	if reply.Error != nil {
		rpc := rpcError(reply.Error)
		if r.code = rpc.Code; reply.status < http.StatusBadRequest {
			r.words = rpc.Message
		}
	} else if status, ok := errors.AsType[*StatusError](reply.Err); !ok || status.Wait > 0 || status.Scope != "" {
		return r
	}
	if r.code == tool.CodeMethodNotFound || reply.status == http.StatusTooManyRequests {
		return refusal{}
	}
	r.status = reply.status
	return r
}

func rpcError(raw json.RawMessage) *tool.RPCError {
	e := &tool.RPCError{Raw: raw, Code: tool.CodeInternal}
	_ = json.Unmarshal(raw, e)
	return e
}
