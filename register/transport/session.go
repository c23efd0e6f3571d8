package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/identity"
	"toolfinch/internal/rawjson"
	"toolfinch/internal/telemetry"
	"toolfinch/internal/wire"
)

// session is one legacy client, whatever it connects by: what it has asked, and what
// waits for it. On stdio and HTTP+SSE, requests of the 2026-07-28 era come through it
// too.
type session struct {
	library
	opening context.Context // of the request that opened it: whose it is, and where that came from
	host    Host
	clients *Clients
	log     *slog.Logger
	out     outbox
	place   place
	calls   atomic.Int64 // of clients.calls

	life   context.Context // of its requests
	end    context.CancelCauseFunc
	known  context.Context // until the session is closed: of its event streams
	forget context.CancelFunc
	ended  func() // called once at the end

	asking   sync.Mutex // guards what follows; held for assignments only
	requests map[*request]struct{}
	stored   bool // Sessions hears of its end

	takenOver bool // another process had it; set before others see the session
}

// request is one that is being answered.
type request struct {
	*wire.Inbound
	refusal []byte // answers it, if it was not taken: the rest is not there then

	ctx    context.Context
	cancel context.CancelCauseFunc
	over   func() // is to be called once the answer is written: what a client does not read counts
}

// requests are those of the messages that came at once, in their places; nil is none.
type requests []*request

// over counts them out.
func (all requests) over() {
	for _, r := range all {
		if r != nil && r.refusal == nil {
			r.over()
		}
	}
}

// areTaken reports whether one of them was not refused.
func (all requests) areTaken() bool {
	return slices.ContainsFunc(all, func(r *request) bool { return r != nil && r.refusal == nil })
}

var (
	errCancelled = errors.New("the client cancelled the request")
	errStopped   = errors.New("toolfinch was told to stop, and could not wait for the end of this request: a call may or may not have happened; check before you repeat it")
	errDropped   = errors.New("the client's connection is gone")
	errRevoked   = errors.New("the API key of the session was revoked or has expired")
)

// open makes a session, whose requests end with ctx, and which is that of whoever makes
// the request of opening. A piped one has one connection
// for everything. ended, which may be nil, is called once when the session ends.
func (c *Clients) open(ctx, opening context.Context, host Host, log *slog.Logger, id string, piped bool, ended func()) (*session, error) {
	s := &session{opening: identity.As(context.Background(), opening), host: host, clients: c, log: log, ended: ended, requests: map[*request]struct{}{}}
	s.library.id, s.out.total = id, c.waiting
	if err := c.admit(s); err != nil {
		return nil, err
	}
	s.life, s.end = context.WithCancelCause(ctx)
	s.known, s.forget = context.WithCancel(ctx)
	host.Open(id, identity.NameOf(opening), piped, s.out.push, func() bool { return s.out.open() != nil })
	return s, nil
}

// close ends the session. Requests that are being answered go on, as long as their
// own connections do.
func (s *session) close() {
	if !s.clients.leave(s) {
		return
	}
	if s.ended != nil {
		s.ended()
	}
	s.forget()
	s.out.close()
	s.host.Forget(s.id)
}

// revoke ends the session and the requests that are being answered: who opened it may nothing more.
func (s *session) revoke() {
	s.end(errRevoked)
	s.close()
}

// begin counts requests in, before anything that comes later is handled. Their contexts end when the client cancels
// them, the session ends, or over is called.
func (s *session) begin(messages ...*wire.Inbound) requests {
	all := make(requests, len(messages))
	for i, m := range messages {
		if m.IsRequest() {
			all[i] = s.beginOne(m)
		}
	}
	return all
}

func (s *session) beginOne(m *wire.Inbound) *request {
	r := &request{Inbound: m}
	err := s.clients.fits(m)
	if err == nil {
		err = s.clients.calls.TakeOf(&s.calls)
	}
	if err == nil {
		if err = s.clients.requests.Take(1); err != nil {
			s.clients.calls.ReleaseOf(&s.calls)
		}
	}
	if err != nil {
		r.refusal = refused(m, err)
		return r
	}
	r.ctx, r.cancel = context.WithCancelCause(s.life)
	r.over = func() {
		s.asking.Lock()
		delete(s.requests, r)
		s.asking.Unlock()
		r.cancel(nil)
		s.clients.requests.Release(1)
		s.clients.calls.ReleaseOf(&s.calls)
	}
	s.asking.Lock()
	s.requests[r] = struct{}{}
	s.asking.Unlock()
	return r
}

// maxReason is how much of a client's reason is kept, in bytes.
const maxReason = 1000

// cancel ends the requests of the session that have an ID: those of nobody else.
// The client's reason, if it gives one, is the text of their contexts' cause.
func (s *session) cancel(id json.RawMessage, reason string) {
	why := errCancelled
	if reason != "" {
		why = errors.New(strings.ToValidUTF8(reason[:min(len(reason), maxReason)], ""))
	}
	s.asking.Lock()
	defer s.asking.Unlock()
	for r := range s.requests {
		if sameID(r.ID, id) {
			r.cancel(why)
		}
	}
}

// sameID compares IDs, of which strings may be escaped in several ways.
func sameID(a, b json.RawMessage) bool {
	return bytes.Equal(a, b) || len(b) > 0 && a[0] == '"' && b[0] == '"' && rawjson.Text(a) == rawjson.Text(b)
}

// take handles a notification or a reply. It reports false for a reply to nothing.
func (s *session) take(m *wire.Inbound) bool {
	switch {
	case m.IsReply():
		return s.host.Answered(s.id, m)
	case m.Method == string(mcp.MethodNotificationCancelled):
		s.cancel(rawjson.Member(m.Params, "requestId"), rawjson.Text(rawjson.Member(m.Params, "reason")))
	default:
		respond(identity.As(s.life, s.opening), s.host, &s.library, m, nil, nil, s.log)
	}
	return true
}

// principal is who opened the session, "" for nobody.
func (s *session) principal() string { return identity.NameOf(s.opening) }

// address is where the session was opened from; "" for this machine, on which reverse
// proxies and everything else of one owner share an address.
func (s *session) address() string {
	from, _ := identity.SourceOf(s.opening)
	if IsLoopback(from.Address) {
		return ""
	}
	return from.Address
}

// isOf reports whether the session is that of who makes the request of a context.
func (s *session) isOf(ctx context.Context) bool { return s.principal() == identity.NameOf(ctx) }

// answer answers a request, which is made by whoever makes that of the context from.
// header is that of the HTTP request that it came with, nil for none. send writes what comes before the answer. lacks
// says that the answer is the lack of a scope.
func (s *session) answer(r *request, from context.Context, header http.Header, send func([]byte) error) (message []byte, lacks *identity.ScopeError) {
	if r.refusal != nil {
		return r.refusal, nil
	}
	return respond(by(r.ctx, from), s.host, &s.library, r.Inbound, header, send, s.log)
}

// fits checks a request of which parts are kept for long.
func (c *Clients) fits(m *wire.Inbound) error {
	longest := c.messages
	switch m.Method {
	case string(mcp.MethodInitialize):
		longest = c.greetings
	case string(mcp.MethodSubscriptionsListen):
		longest = c.listens
	}
	if int64(len(m.Raw)) > longest.Max() {
		return longest.Refuse()
	}
	return nil
}

// codeBusy is the JSON-RPC code of a request that a limit refuses.
const codeBusy = -32000

// refused is the answer to a request that is not taken.
func refused(m *wire.Inbound, err error) []byte {
	refusal := wire.Refusal{ID: m.ID, Code: codeBusy, Reason: err.Error()}
	return refusal.Answer()
}

// batches reports whether the negotiated version has JSON-RPC batches.
func (s *session) batches() bool {
	version := s.ProtocolVersion()
	return version != "" && version <= mcp.ProtocolVersion20250326
}

// batch answers what was sent at once, in which begun are the requests; nil where there is nothing to answer.
func (s *session) batch(messages []*wire.Inbound, begun requests, refusals []*wire.Refusal, answer func(*request) []byte) []byte {
	var (
		mu      sync.Mutex // guards answers
		answers [][]byte
		all     sync.WaitGroup
	)
	for _, refusal := range refusals {
		answers = append(answers, refusal.Answer())
	}
	for i, m := range messages {
		switch {
		case !m.IsRequest():
			s.take(m)
		case m.Method == string(mcp.MethodInitialize):
			refusal := wire.Refusal{ID: m.ID, Code: mcp.INVALID_REQUEST, Reason: "initialize must not be part of a batch"}
			mu.Lock()
			answers = append(answers, refusal.Answer())
			mu.Unlock()
		default:
			all.Go(func() {
				one := answer(begun[i])
				mu.Lock()
				defer mu.Unlock()
				answers = append(answers, one)
			})
		}
	}
	all.Wait()
	if len(answers) == 0 {
		return nil
	}
	return bytes.Join([][]byte{{'['}, bytes.Join(answers, []byte{','}), {']'}}, nil)
}

// noBatch refuses a batch where the negotiated version has none.
func (s *session) noBatch() *wire.Refusal {
	return &wire.Refusal{Code: mcp.INVALID_REQUEST, Reason: fmt.Sprintf(
		"protocol version %q has no JSON-RPC batches: send one message at a time", s.ProtocolVersion())}
}

// traced begins the span of a request, where there are traces.
func traced(ctx context.Context, lib *library, m *wire.Inbound) (context.Context, *telemetry.Span) {
	if !m.IsRequest() || !telemetry.Traced(ctx) {
		return ctx, nil
	}
	return telemetry.Serve(ctx, telemetry.Message{
		Method: m.Method, ID: m.ID, Params: m.Params, Session: lib.id, Version: lib.ProtocolVersion(),
	})
}

// by is ctx as of a request that whoever makes the one of from makes.
func by(ctx, from context.Context) context.Context { return telemetry.As(identity.As(ctx, from), from) }

// respond has the library handle a message; the host's handlers answer what is an
// exchange. header is that of the HTTP request that brought it, if one did. It returns nil where there is nothing to
// answer; lacks says that the answer is the lack of a scope.
func respond(ctx context.Context, host Host, lib *library, m *wire.Inbound, header http.Header, send func([]byte) error, log *slog.Logger) (message []byte, lacks *identity.ScopeError) {
	failure := wire.Refusal{ID: m.ID, Code: mcp.INTERNAL_ERROR, Reason: "internal error"}
	ctx, span := traced(ctx, lib, m)
	defer func() {
		if wrong := recover(); wrong != nil {
			log.Error("panic while handling a request", "session", lib.id, "method", m.Method, "panic", wrong)
			message = failure.Answer()
		}
		span.Answered(ctx, message)
	}()
	ctx = host.MCP().WithContext(ctx, lib)
	raw := m.Raw
	x := wire.NewExchange(m, send)
	if x != nil {
		x.Header = header
		ctx, raw = x.Context(ctx), x.Stub()
	} else {
		ctx = wire.WithMessage(ctx, raw)
	}
	response := host.MCP().HandleMessage(ctx, raw)
	if x != nil {
		if message = x.Answer(); message != nil {
			return message, x.Lacks
		}
	}
	if response == nil || m.ID == nil {
		return nil, nil
	}
	message, err := json.Marshal(response)
	if err == nil { // the library knows numbers as floats: a long one is another by now
		message, err = rawjson.Set(message, "id", m.ID)
	}
	if err != nil {
		return failure.Answer(), nil
	}
	return message, nil
}
