package register

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolfinch/tool"
	"toolfinch/wire"
)

const (
	// MaxMessage is the longest message taken from a client, in bytes.
	MaxMessage = 16 << 20
	// maxInFlight is how many requests one stream may have open.
	maxInFlight = 1024
	// drain is how long calls in flight may go on after the client closed its
	// end or the program was told to stop.
	drain = 10 * time.Second
	// keepAlive is how often a quiet event stream gets a sign of life.
	keepAlive = 30 * time.Second
)

// stream is a client that sends and receives messages on one connection: stdio,
// or legacy HTTP+SSE. mcp-go's own loops for them have a session per process
// and no room for raw bytes.
type stream struct {
	live *Live
	id   string

	write         func(message []byte) error // frames one message
	writing       sync.Mutex                 // held while one message is written
	notifications chan mcp.JSONRPCNotification
	requests      sync.WaitGroup
	listens       sync.WaitGroup // subscriptions/listen: they last as long as the session
	inFlight      atomic.Int32

	initialized atomic.Bool
	mu          sync.Mutex // guards what follows; held for assignments only
	finished    bool       // no request is taken any more
	info        mcp.Implementation
	abilities   mcp.ClientCapabilities
	level       mcp.LoggingLevel
	filter      *mcp.SubscriptionFilter
}

// open makes the stream known; ctx is the life of its session.
func (l *Live) open(ctx context.Context, id string, write func([]byte) error) (*stream, context.Context, error) {
	s := &stream{live: l, id: id, write: write, level: mcp.LoggingLevelError,
		notifications: make(chan mcp.JSONRPCNotification, 100)}
	l.remember(id)
	if s := l.session(id); s != nil {
		s.mu.Lock()
		s.piped = true
		s.mu.Unlock()
	}
	if err := l.mcp.RegisterSession(ctx, s); err != nil {
		l.forget(id)
		return nil, nil, fmt.Errorf("session %s: %w", id, err)
	}
	return s, l.mcp.WithContext(ctx, s), nil
}

func (s *stream) close() { s.live.mcp.UnregisterSession(context.Background(), s.id) }

// forward writes notifications until ctx ends, and then those of the calls that
// have ended before it.
func (s *stream) forward(ctx context.Context) {
	for {
		select {
		case n := <-s.notifications:
			s.notify(n)
		case <-ctx.Done():
			for len(s.notifications) > 0 {
				s.notify(<-s.notifications)
			}
			return
		}
	}
}

func (s *stream) notify(n mcp.JSONRPCNotification) {
	if raw, ok := n.Params.AdditionalFields["message"].([]byte); ok && n.Method == wire.MethodRaw {
		s.send(raw)
		return
	}
	if message, err := json.Marshal(n); err == nil {
		s.send(message)
	}
}

func (s *stream) send(message []byte) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.write(message); err != nil {
		s.live.log.Debug("message not delivered", "session", s.id, "error", err)
	}
}

// receive handles one message: a request on its own goroutine, which
// s.requests counts, a notification and initialize at once, so that none
// overtakes another.
func (s *stream) receive(ctx context.Context, message []byte) {
	var head struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	valid := json.Unmarshal(message, &head) == nil
	isRequest := head.Method != "" && len(head.ID) > 0
	if !isRequest {
		if valid && len(head.ID) > 0 {
			if reply := wire.ParseReply(message); reply != nil {
				s.live.answered(s.id, reply)
			}
			return
		}
		s.handle(ctx, nil, message)
		return
	}
	if s.inFlight.Add(1) > maxInFlight {
		s.inFlight.Add(-1)
		s.fail(head.ID, "too many requests in flight")
		return
	}
	if head.Method == string(mcp.MethodInitialize) {
		// What follows counts on it, also from a client that does not wait for the
		// answer.
		defer s.inFlight.Add(-1)
		s.handle(ctx, head.ID, message)
		return
	}
	group := &s.requests
	if head.Method == string(mcp.MethodSubscriptionsListen) {
		group = &s.listens
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.finished {
		return
	}
	group.Go(func() {
		defer s.inFlight.Add(-1)
		s.handle(ctx, head.ID, message)
	})
}

func (s *stream) handle(ctx context.Context, id json.RawMessage, message []byte) {
	defer func() {
		if r := recover(); r != nil {
			s.live.log.Error("panic while handling a request", "session", s.id, "panic", r)
			s.fail(id, "internal error")
		}
	}()
	x := wire.NewExchange(message, s.send)
	if x != nil {
		ctx, message = x.Context(ctx), x.Stub()
	} else {
		ctx = wire.WithMessage(ctx, message)
	}
	response := s.live.mcp.HandleMessage(ctx, message)
	if x != nil {
		if answer := x.Answer(); answer != nil {
			s.send(answer)
			return
		}
	}
	if response == nil {
		return
	}
	out, err := json.Marshal(response)
	if err != nil {
		s.fail(id, "internal error")
		return
	}
	s.send(out)
}

func (s *stream) fail(id json.RawMessage, message string) {
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	rpc := &tool.RPCError{Code: tool.CodeInternal, Message: message}
	s.send(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":%s}`, id, rpc.JSON()))
}

// finish waits for the calls in flight, bounded, then ends the rest. Those that
// ask the client something end at once: it sends no more.
func (s *stream) finish(cancel context.CancelFunc) {
	s.mu.Lock()
	s.finished = true
	s.mu.Unlock()
	if session := s.live.session(s.id); session != nil {
		session.end()
	}
	done := make(chan struct{})
	go func() { s.requests.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(drain):
	}
	cancel()
	<-done
	s.listens.Wait()
}

// ServeStdio serves the one client of a process: a message a line. It returns
// nil once the client has closed in, or ctx ended, and the calls in flight are
// answered, or cancelled after 10 s.
func (l *Live) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	// The session outlives ctx for the time calls in flight get to end.
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	s, life, err := l.open(life, "stdio", func(message []byte) error {
		_, err := out.Write(append(message, '\n'))
		return err
	})
	if err != nil {
		return err
	}
	defer s.close()
	var forwarding sync.WaitGroup
	forwarding.Go(func() { s.forward(life) })
	defer forwarding.Wait()
	defer s.finish(cancel)

	lines := make(chan []byte)
	ended := make(chan error, 1)
	// A read of stdin cannot be interrupted: this goroutine ends with the
	// process, or when the client closes its end.
	go func() { ended <- s.read(life, in, lines) }()
	for {
		select {
		case line := <-lines:
			s.receive(life, line)
		case err := <-ended:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("stdin: %w", err)
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *stream) read(life context.Context, in io.Reader, lines chan<- []byte) error {
	reader := bufio.NewReaderSize(in, 64<<10)
	for {
		line, err := wire.ReadLine(reader, MaxMessage)
		switch {
		case errors.Is(err, wire.ErrLineTooLong):
			s.fail(nil, fmt.Sprintf("a message is longer than %d MiB", MaxMessage>>20))
			continue
		case err != nil:
			return err
		case len(bytes.TrimSpace(line)) == 0:
			continue
		}
		select {
		case lines <- line:
		case <-life.Done():
			return io.EOF
		}
	}
}

// SSE serves the transport of protocol version 2024-11-05: events opens a
// session and its stream, messages takes what the client posts to it.
// endpoint is the path under which messages is mounted.
func (l *Live) SSE(endpoint string) (events, messages http.Handler) {
	var streams sync.Map // session ID -> *sseSession
	events = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, "open the event stream with GET", http.StatusMethodNotAllowed)
			return
		}
		life, cancel := context.WithCancel(r.Context())
		defer cancel()
		client := http.NewResponseController(w)
		event := func(name string, data []byte) error {
			// A client that does not read must not hold its calls forever.
			_ = client.SetWriteDeadline(time.Now().Add(keepAlive))
			_, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, data)
			if err == nil {
				err = client.Flush()
			}
			if err != nil {
				cancel()
			}
			return err
		}
		s, life, err := l.open(life, "sse-"+rand.Text(), func(message []byte) error { return event("message", message) })
		if err != nil {
			http.Error(w, "no session", http.StatusInternalServerError)
			return
		}
		defer s.close()
		streams.Store(s.id, &sseSession{s, life})
		defer streams.Delete(s.id)
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-cache")
		s.writing.Lock()
		err = event("endpoint", []byte(endpoint+"?sessionId="+s.id))
		s.writing.Unlock()
		if err != nil {
			return
		}
		// None of these may write after this returns.
		var writers sync.WaitGroup
		defer writers.Wait()
		writers.Go(func() { s.keepAlive(life, w, client) })
		writers.Go(func() { s.forward(life) })
		defer s.finish(cancel)
		select {
		case <-life.Done():
		case <-l.closing:
		}
	})
	messages = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		found, ok := streams.Load(r.URL.Query().Get("sessionId"))
		if !ok {
			http.Error(w, "unknown session", http.StatusNotFound)
			return
		}
		message, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxMessage))
		if err != nil {
			http.Error(w, "the request body could not be read: "+err.Error(), http.StatusRequestEntityTooLarge)
			return
		}
		w.WriteHeader(http.StatusAccepted)
		session := found.(*sseSession)
		session.receive(session.life, message)
	})
	return events, messages
}

// sseSession is a stream with the context that its requests live in.
type sseSession struct {
	*stream
	life context.Context
}

func (s *stream) keepAlive(ctx context.Context, w io.Writer, client *http.ResponseController) {
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.writing.Lock()
			_ = client.SetWriteDeadline(time.Now().Add(keepAlive))
			_, _ = io.WriteString(w, ": alive\n\n")
			_ = client.Flush()
			s.writing.Unlock()
		}
	}
}

// What mcp-go asks of a session.

func (s *stream) SessionID() string                                   { return s.id }
func (s *stream) Initialize()                                         { s.initialized.Store(true) }
func (s *stream) Initialized() bool                                   { return s.initialized.Load() }
func (s *stream) NotificationChannel() chan<- mcp.JSONRPCNotification { return s.notifications }

func (s *stream) GetClientInfo() mcp.Implementation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info
}

func (s *stream) SetClientInfo(info mcp.Implementation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info = info
}

func (s *stream) GetClientCapabilities() mcp.ClientCapabilities {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.abilities
}

func (s *stream) SetClientCapabilities(abilities mcp.ClientCapabilities) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abilities = abilities
}

func (s *stream) GetLogLevel() mcp.LoggingLevel {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.level
}

func (s *stream) SetLogLevel(level mcp.LoggingLevel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.level = level
}

// SetSubscriptionFilter and SubscriptionFilter carry subscriptions/listen of
// the 2026-07-28 era: the zero filter means that no such stream is open.
func (s *stream) SetSubscriptionFilter(filter mcp.SubscriptionFilter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.filter = nil
	if !filter.IsEmpty() {
		s.filter = &filter
	}
}

func (s *stream) SubscriptionFilter() (mcp.SubscriptionFilter, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.filter == nil {
		return mcp.SubscriptionFilter{}, false
	}
	return *s.filter, true
}

var (
	_ server.SessionWithClientInfo         = (*stream)(nil)
	_ server.SessionWithLogging            = (*stream)(nil)
	_ server.SessionWithSubscriptionFilter = (*stream)(nil)
)
