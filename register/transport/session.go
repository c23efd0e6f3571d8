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

// session is one legacy client over any transport: its requests and waiting messages. On stdio and
// HTTP+SSE it carries requests of the 2026-07-28 era, too.
type session struct {
	library
	opening context.Context // of the request that opened it: its party and source
	host    Host
	clients *Clients
	log     *slog.Logger
	out     outbox
	usage   usage
	calls   atomic.Int64 // in the limit clients.calls

	life   context.Context // of its requests
	end    context.CancelCauseFunc
	known  context.Context // ends when the session is closed, with its event streams
	forget context.CancelFunc
	ended  func() // called once at the end

	asking   sync.Mutex // guards the fields below; held for assignments only
	requests map[*request]struct{}
	stored   bool // Sessions is told of its end

	takenOver bool // another process had it; set before the session is visible
}

// request is a request being answered.
type request struct {
	*wire.Inbound
	refusal []byte // the answer of a refused request, whose fields below are empty

	ctx       context.Context
	cancel    context.CancelCauseFunc
	cancelled atomic.Bool // the client gave it up
	over      func()      // must be called after the answer is written: an unread answer counts
}

// requests are the requests of a batch, by index; nil for other messages.
type requests []*request

// over ends all requests.
func (all requests) over() {
	for _, r := range all {
		if r != nil && r.refusal == nil {
			r.over()
		}
	}
}

// areTaken reports whether a request was not refused.
func (all requests) areTaken() bool {
	return slices.ContainsFunc(all, func(r *request) bool { return r != nil && r.refusal == nil })
}

var (
	errCancelled = errors.New("the client cancelled the request")
	errStopped   = errors.New("toolfinch was told to stop, and could not wait for the end of this request: a call may or may not have happened; check before you repeat it")
	errDropped   = errors.New("the client's connection is gone")
	errRevoked   = errors.New("the API key of the session was revoked or has expired")
)

// open makes a session for the party of opening; its requests end with ctx. A piped session has one
// connection for everything. ended, if not nil, is called once at the end.
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

// close ends the session. Requests being answered go on with their connections.
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

// begin counts requests, before any later message is handled. Their contexts end when the client
// cancels them, the session ends, or over is called.
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

// maxReason bounds a client's reason, in bytes.
const maxReason = 1000

// cancel ends the session's requests with an ID. The client's reason, if any, becomes the cause of
// their contexts.
func (s *session) cancel(id json.RawMessage, reason string) {
	why := errCancelled
	if reason != "" {
		why = errors.New(strings.ToValidUTF8(reason[:min(len(reason), maxReason)], ""))
	}
	s.asking.Lock()
	defer s.asking.Unlock()
	for r := range s.requests {
		if sameID(r.ID, id) {
			r.cancelled.Store(true)
			r.cancel(why)
		}
	}
}

// sameID compares IDs: strings can be escaped in several ways.
func sameID(a, b json.RawMessage) bool {
	return bytes.Equal(a, b) || len(b) > 0 && a[0] == '"' && b[0] == '"' && rawjson.Text(a) == rawjson.Text(b)
}

// take handles a notification or a reply. It reports false for a reply to an unknown request.
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

// principal returns the principal that opened the session, "" for nobody.
func (s *session) principal() string { return identity.NameOf(s.opening) }

// address returns the address that opened the session; "" for this machine, which reverse proxies and
// local clients share.
func (s *session) address() string {
	from, _ := identity.SourceOf(s.opening)
	if IsLoopback(from.Address) {
		return ""
	}
	return from.Address
}

// isOf reports whether the principal of ctx opened the session.
func (s *session) isOf(ctx context.Context) bool { return s.principal() == identity.NameOf(ctx) }

// answer answers a request for the party of from. header is from its HTTP request, or nil. send writes
// messages before the answer. There is no answer to a cancelled request. lacks says that the answer is
// a missing scope.
func (s *session) answer(r *request, from context.Context, header http.Header, send func([]byte) error) (message []byte, lacks *identity.ScopeError) {
	if r.refusal != nil {
		return r.refusal, nil
	}
	message, lacks = respond(by(r.ctx, from), s.host, &s.library, r.Inbound, header, send, s.log)
	if r.cancelled.Load() {
		return nil, nil
	}
	return message, lacks
}

// fits checks the size of a request that is kept in part.
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

// codeBusy is the JSON-RPC code of a limit's refusal.
const codeBusy = -32000

// refused is the answer to a refused request.
func refused(m *wire.Inbound, err error) []byte {
	refusal := wire.Refusal{ID: m.ID, Code: codeBusy, Reason: err.Error()}
	return refusal.Answer()
}

// batches reports whether the negotiated version has JSON-RPC batches.
func (s *session) batches() bool {
	version := s.ProtocolVersion()
	return version != "" && version <= mcp.ProtocolVersion20250326
}

// batch answers a batch; begun are its requests. It returns nil without any answer.
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
				if one := answer(begun[i]); one != nil {
					mu.Lock()
					defer mu.Unlock()
					answers = append(answers, one)
				}
			})
		}
	}
	all.Wait()
	if len(answers) == 0 {
		return nil
	}
	return bytes.Join([][]byte{{'['}, bytes.Join(answers, []byte{','}), {']'}}, nil)
}

// noBatch refuses a batch if the negotiated version has none.
func (s *session) noBatch() *wire.Refusal {
	return &wire.Refusal{Code: mcp.INVALID_REQUEST, Reason: fmt.Sprintf(
		"protocol version %q has no JSON-RPC batches: send one message at a time", s.ProtocolVersion())}
}

// traced begins the span of a request, if traces are on.
func traced(ctx context.Context, lib *library, m *wire.Inbound) (context.Context, *telemetry.Span) {
	if !m.IsRequest() || !telemetry.Traced(ctx) {
		return ctx, nil
	}
	return telemetry.Serve(ctx, telemetry.Message{
		Method: m.Method, ID: m.ID, Params: m.Params, Session: lib.id, Version: lib.ProtocolVersion(),
	})
}

// by returns ctx with the party and trace of from.
func by(ctx, from context.Context) context.Context { return telemetry.As(identity.As(ctx, from), from) }

// respond has mcp-go handle a message; the host's handlers answer exchanges. header is from the HTTP
// request, or nil. It returns nil without an answer; lacks says that the answer is a missing scope.
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
	if err == nil { // the library reads numbers as floats, which changes long ones
		message, err = rawjson.Set(message, "id", m.ID)
	}
	if err != nil {
		return failure.Answer(), nil
	}
	return message, nil
}
