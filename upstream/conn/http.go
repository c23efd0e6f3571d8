package conn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/discovery"
	"toolfinch/internal/leeway"
	"toolfinch/internal/rawjson"
	"toolfinch/upstream/login"
)

// sender sends the HTTP requests of a connection.
type sender struct {
	conn    *Conn
	client  *http.Client
	fault   error        // why no request can be sent; nil if requests can
	session atomic.Value // string: the session ID of the server; nil for none
}

// A request over a TCP connection that the server closes at that moment gets no answer, and nobody knows whether the
// server carried it out. So we close idle connections before servers do: Node and uvicorn close them after 5 s,
// gunicorn after 2 s, load balancers after a minute.
const idlePlain, idleTLS = 1500 * time.Millisecond, 50 * time.Second

// An HTTP/2 connection that was silent for askedAfter is pinged. Without the ping, a connection that a laptop took
// into another network would keep all calls for a quarter of an hour, until the kernel gives it up.
const askedAfter, answeredWithin = 20 * time.Second, 10 * time.Second

// newSender keeps more idle TCP connections than the two of Go's default, and follows redirects within the origin
// only.
func newSender(c *Conn) *sender {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost, base.IdleConnTimeout = 64, idlePlain
	base.HTTP2 = &http.HTTP2Config{SendPingTimeout: askedAfter, PingTimeout: answeredWithin}
	if to, err := url.Parse(c.options.URL); err == nil && to.Scheme == "https" {
		base.IdleConnTimeout = idleTLS
	}
	s := &sender{conn: c, client: &http.Client{Transport: base, CheckRedirect: checkRedirect}}
	s.fault = c.options.TLS.Configure(base)
	if around := c.options.Around; around != nil {
		s.client.Transport = around(base)
	}
	return s
}

func (s *sender) sessionID() string {
	id, _ := s.session.Load().(string)
	return id
}

// modern reports whether requests name a version of the 2026-07-28 era.
func (s *sender) modern() bool { return mcp.IsModernProtocol(s.conn.spoken.Load().(string)) }

const (
	typeJSON   = "application/json"
	typeEvents = "text/event-stream"
	// maxText is how much is read of a body that is no message, in bytes.
	maxText = 4 << 10
)

// request makes a request with the headers that all requests of the connection have.
func (s *sender) request(ctx context.Context, method, to string, body []byte, header http.Header) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, method, to, bytes.NewReader(body))
	if err != nil {
		return nil, errBadURL
	}
	if header != nil {
		request.Header = header.Clone()
	}
	if body != nil {
		request.Header.Set("Content-Type", typeJSON)
	}
	if version := s.conn.spoken.Load().(string); version != "" {
		request.Header.Set(mcp.HeaderProtocolVersion, version)
	}
	if session := s.sessionID(); session != "" {
		request.Header.Set(mcp.HeaderSessionID, session)
	}
	request.Header.Set("User-Agent", "toolfinch/"+s.conn.options.ClientVersion)
	for name, value := range s.conn.options.Headers {
		request.Header.Set(name, value)
	}
	return request, nil
}

const (
	// restWithin and maxRest bound, in time and bytes, the rest of a response that is read so that
	// its TCP connection carries other requests: streams end a moment after their answer.
	restWithin = time.Second
	maxRest    = 4 << 10
)

// do sends one request. The request ends with ctx and with the connection; the body of the response stays readable
// until end closes it. The error does not show the URL, which may hold a secret.
func (s *sender) do(ctx context.Context, method, to, accept string, body []byte, header http.Header) (response *http.Response, end func(), err error) {
	within, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stops := [2]func() bool{context.AfterFunc(ctx, cancel), context.AfterFunc(s.conn.Life, cancel)}
	closed := func() {
		stops[1]()
		cancel() // before Close, which over HTTP/2 may wait for the end of the request
		if response != nil {
			_ = response.Body.Close()
		}
	}
	request, err := s.request(within, method, to, body, header)
	if err == nil {
		request.Header.Set("Accept", accept)
		response, err = s.client.Do(request)
	}
	if err != nil {
		stops[0]()
		closed()
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err
		}
		return nil, nil, discovery.WithHint(err)
	}
	rest := &unread{ReadCloser: response.Body, over: response.Body == http.NoBody}
	response.Body = rest
	return response, func() {
		if stops[0](); rest.over || within.Err() != nil || !s.conn.Go(func() {
			defer time.AfterFunc(restWithin, cancel).Stop()
			_, _ = io.CopyN(io.Discard, rest, maxRest)
			closed()
		}) {
			closed()
		}
	}, nil
}

// unread is a body that knows whether it was read to its end.
type unread struct {
	io.ReadCloser
	over bool
}

func (u *unread) Read(p []byte) (int, error) {
	n, err := u.ReadCloser.Read(p)
	u.over = u.over || err != nil
	return n, err
}

// errBadURL does not wrap the library's error, because that shows the URL, which may hold a secret.
var errBadURL = errors.New("the configured URL is none")

// contentType is the media type of a response.
func contentType(response *http.Response) string {
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	return kind
}

// statusOf is the error of a status that carries no answer; nil for other statuses.
func statusOf(response *http.Response) error {
	if response.StatusCode < 300 {
		return nil
	}
	return statusError(response)
}

// streamable is the channel of the streamable HTTP transport.
type streamable struct {
	*sender
	opened  chan struct{} // closed when the stream of notifications was first asked for and answered
	streams atomic.Bool   // the stream of notifications stands
}

func (s *streamable) open(context.Context) error { return s.fault }

func (s *streamable) send(ctx context.Context, message []byte, header http.Header, reply *Reply) error {
	if s.conn.Dead() {
		return context.Cause(s.conn.Life)
	}
	if reply != nil {
		reply.sent.Store(true)
	}
	response, end, err := s.post(ctx, message, header)
	if err != nil {
		return err
	}
	defer end()
	if reply == nil {
		return statusOf(response)
	}
	reply.status, reply.proto = response.StatusCode, response.Proto
	if s.conn.spoken.Load() == "" && response.StatusCode < 300 { // the answer to initialize
		s.session.Store(response.Header.Get(mcp.HeaderSessionID))
	}
	switch kind := contentType(response); {
	case kind == typeJSON:
		return s.takeMessage(response, reply)
	case kind == typeEvents && response.StatusCode < 300:
		return s.takeEvents(ctx, response.Body, reply)
	case response.StatusCode >= 300:
		s.conn.fail(reply.ID, statusError(response))
		return nil
	default:
		return fmt.Errorf("it answered with content type %.100q", kind)
	}
}

// post posts a message. It posts it again when the server refuses the protocol version but names the same version
// among the versions that it supports.
func (s *streamable) post(ctx context.Context, message []byte, header http.Header) (*http.Response, func(), error) {
	const accept = typeJSON + ", " + typeEvents
	response, end, err := s.do(ctx, http.MethodPost, s.conn.options.URL, accept, message, header)
	if err != nil || response.StatusCode != http.StatusBadRequest || !s.modern() {
		return response, end, err
	}
	version := response.Request.Header.Get(mcp.HeaderProtocolVersion)
	head, broken := io.ReadAll(io.LimitReader(response.Body, maxText))
	var refusal struct {
		Error struct {
			Code int
			Data struct{ Supported []string }
		}
	}
	if broken == nil && json.Unmarshal(head, &refusal) == nil && refusal.Error.Code == mcp.UNSUPPORTED_PROTOCOL_VERSION &&
		slices.Contains(refusal.Error.Data.Supported, version) {
		end()
		return s.do(ctx, http.MethodPost, s.conn.options.URL, accept, message, header)
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), response.Body), response.Body}
	return response, end, nil
}

// takeMessage reads the one message of a body. Afterwards the reply is done, or there is an error.
func (s *streamable) takeMessage(response *http.Response, reply *Reply) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, int64(s.conn.most)+1))
	greeting := s.conn.spoken.Load() == "" // the status of an answer to initialize tells which transport to try next
	switch {
	case err != nil && response.StatusCode < 300:
		return err
	case response.StatusCode == http.StatusUnauthorized, greeting && response.StatusCode/100 == 4 && isNull(rawjson.Member(body, "id")):
	case len(body) > s.conn.most:
		err = ErrTooLarge
	case !s.conn.receive(reply.ID, body):
		err = ErrNotMessage
	}
	switch {
	case response.StatusCode >= 300:
		s.conn.fail(reply.ID, statusErrorOf(response, body[:min(len(body), maxText)]))
	case err != nil:
		s.conn.fail(reply.ID, err)
	default:
		s.conn.fail(reply.ID, ErrWrongID)
	}
	return nil
}

var errNoAnswer = Mark(errors.New("the event stream ended without an answer"), ErrClosed)

// mostPause bounds how far the pauses between requests for a stream grow. A server may ask for longer pauses.
const mostPause = 5 * time.Second

// maxMisses is how many requests for a stream in a row may fail before we give the stream up.
const maxMisses = 3

// takeEvents reads the messages of an event stream until the answer is among them. When a stream of a legacy server
// ends or breaks before, it is requested again from its last event on, if that event has an ID; pauses grow while
// nothing comes.
func (s *streamable) takeEvents(ctx context.Context, body io.Reader, reply *Reply) error {
	c := s.conn
	e := &events{most: c.most, retry: defaultRetry}
	defer e.end()
	end := func() {}
	defer func() { end() }()
	misses := 0
	for pause := e.retry; ; {
		before := e.lastID
		var err error
		if body != nil {
			e.read(body)
			err = s.takeAll(e, reply, nil)
		}
		switch {
		case !c.Waits(reply.ID):
			return nil
		case errors.As(err, new(tooLong)):
			c.fail(reply.ID, ErrTooLarge)
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case c.Dead():
			return context.Cause(c.Life)
		case e.lastID == "" || s.modern():
			return errNoAnswer
		}
		if e.lastID == before {
			pause = max(e.retry, min(2*pause, mostPause))
		} else {
			pause = e.retry
		}
		end()
		end = func() {}
		select { // a retired connection still finishes its calls
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.Life.Done():
			return context.Cause(c.Life)
		}
		response, closed, err := s.get(ctx, e.lastID)
		if err != nil {
			if misses++; misses == maxMisses || ctx.Err() != nil || errors.Is(err, errRedirect) || login.About(err) {
				return fmt.Errorf("%w: %v", errNoAnswer, err) // the text alone: the request itself was sent
			}
			body = nil
			continue
		}
		end = closed
		if err := statusOf(response); err != nil || contentType(response) != typeEvents {
			return errNoAnswer
		}
		body, misses = response.Body, 0
	}
}

// takeAll reads the messages of a stream until the stream ends, or until the reply, which may be nil, is done. other
// gets events of other types than message.
func (s *sender) takeAll(e *events, reply *Reply, other func(kind string, data []byte)) error {
	c, stream := s.conn, int64(0)
	if reply != nil {
		stream = reply.ID
	}
	for {
		kind, data, err := e.next()
		long, isLong := errors.AsType[tooLong](err)
		switch {
		case isLong && reply != nil && rawjson.Member(long.head, "method") == nil:
			return err // the too long event was the answer
		case isLong:
			c.failTooLong(long.head)
		case err != nil:
			return err
		case kind == "" || kind == "message":
			c.receive(stream, data)
		case other != nil:
			other(kind, data)
		}
		if reply != nil && !c.Waits(stream) {
			return nil
		}
	}
}

// get requests an event stream, from the event after lastID on; from now on if lastID is "".
func (s *streamable) get(ctx context.Context, lastID string) (*http.Response, func(), error) {
	header := http.Header{}
	if lastID != "" {
		header.Set(mcp.HeaderLastEventID, lastID)
	}
	return s.do(ctx, http.MethodGet, s.conn.options.URL, typeEvents, nil, header)
}

const (
	// streamDelay is the first delay before a stream of notifications that has ended
	// is opened again.
	streamDelay = time.Second
	// streamStands is how long it has to stand so that the next delay is that one.
	streamStands = 10 * time.Second
	// mostAsked bounds how long a server may ask for to be left alone: what happens meanwhile it may not keep.
	mostAsked = 10 * time.Minute
)

// listen keeps the stream of notifications open until the connection ends; it ends at once where the server has no
// such stream.
func (s *streamable) listen() {
	c := s.conn
	delays := NewDelays(streamDelay)
	e := &events{most: c.most}
	defer e.end()
	told, opened := false, sync.OnceFunc(func() { close(s.opened) })
	var asked time.Duration // least pause that the server asks for
	for again := true; again; again = c.Pause(c.Life, max(asked, delays.Next())) {
		began, before := time.Now(), e.lastID
		asked = 0
		response, end, err := s.get(c.Life, e.lastID)
		standing := err == nil && response.StatusCode < 300 && contentType(response) == typeEvents
		s.streams.Store(standing)
		opened()
		switch {
		case err != nil:
			c.handler.StreamEnded()
			continue
		case response.StatusCode == http.StatusMethodNotAllowed:
			end() // the server has no such stream
			return
		case !standing:
			end()
			e.lastID = ""
			if !told && s.sessionID() != "" { // the server may have lost the session: the next request will tell
				told = true
				c.handler.StreamEnded()
			}
			if response.StatusCode == http.StatusNotFound {
				return
			}
			continue
		}
		e.read(response.Body)
		err = s.takeAll(e, nil, nil)
		end()
		s.streams.Store(false)
		c.log.Debug("the stream of notifications has ended", "error", err)
		c.handler.StreamEnded()
		if errors.Is(err, io.EOF) {
			asked = min(e.retry, mostAsked)
		}
		if time.Since(began) > streamStands || asked > 0 && e.lastID != before { // the server ends its streams on purpose
			delays.Reset()
		}
	}
}

// closeWithin bounds how long the end of a session may take.
const closeWithin = 5 * time.Second

// close ends the session.
func (s *streamable) close() {
	defer s.client.CloseIdleConnections()
	if s.sessionID() == "" || s.modern() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leeway.Of(closeWithin))
	defer cancel()
	request, err := s.request(ctx, http.MethodDelete, s.conn.options.URL, nil, nil)
	if err != nil {
		return
	}
	if response, err := s.client.Do(request); err == nil {
		_ = response.Body.Close()
	}
}
