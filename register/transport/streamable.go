package transport

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"golang.org/x/sync/singleflight"

	"toolfinch/internal/identity"
	"toolfinch/internal/rawjson"
	"toolfinch/internal/wire"
)

// Streamable serves the streamable HTTP transport, in both eras.
type Streamable struct {
	host     Host
	clients  *Clients
	sessions Sessions // nil: sessions are not stored
	taking   singleflight.Group
	log      *slog.Logger
	life     context.Context // of 2026-07-28 requests
	cut      context.CancelFunc

	mu   sync.Mutex // guards byID; held for look-ups only
	byID map[string]*session
}

// NewStreamable serves clients of host. sessions is nil without other replicas.
func NewStreamable(host Host, clients *Clients, sessions Sessions, log *slog.Logger) *Streamable {
	s := &Streamable{host: host, clients: clients, sessions: sessions, log: log, byID: map[string]*session{}}
	s.life, s.cut = context.WithCancel(context.Background())
	return s
}

func (s *Streamable) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	version := r.Header.Get(mcp.HeaderProtocolVersion)
	modern := mcp.IsModernProtocol(version)
	switch {
	case r.Method == http.MethodPost:
		s.post(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodDelete:
		w.Header().Set("Allow", "GET, POST, DELETE")
		http.Error(w, "send messages with POST, listen with GET, end the session with DELETE", http.StatusMethodNotAllowed)
	case modern:
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "protocol version "+version+" has POST only: listen with subscriptions/listen", http.StatusMethodNotAllowed)
	default:
		session := s.enter(w, r)
		if session == nil {
			return
		}
		if r.Method == http.MethodDelete {
			session.close()
			return
		}
		defer s.clients.rest(session, true)
		s.listen(w, r, session)
	}
}

// enter returns the session that a legacy request names, in use until rest; nil after it answered the
// request itself.
func (s *Streamable) enter(w http.ResponseWriter, r *http.Request) *session {
	if version := r.Header.Get(mcp.HeaderProtocolVersion); version != "" && !mcp.IsValidProtocolVersion(version) {
		http.Error(w, fmt.Sprintf("unsupported protocol version %.32q", version), http.StatusBadRequest)
		return nil
	}
	id := r.Header.Get(mcp.HeaderSessionID)
	if id == "" {
		http.Error(w, "the "+mcp.HeaderSessionID+" header is missing: send initialize first", http.StatusBadRequest)
		return nil
	}
	session := s.find(id)
	if session == nil {
		if err := s.Take(r.Context(), id); err != nil {
			missing(w, err)
			return nil
		}
		session = s.find(id)
	}
	if session == nil || !session.isOf(r.Context()) || !s.clients.use(session) { // a session of another principal does not exist for this one
		missing(w, ErrNoSession)
		return nil
	}
	return session
}

// find returns a session of this process, or nil.
func (s *Streamable) find(id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[id]
}

// open makes a session, invisible before add.
func (s *Streamable) open(ctx context.Context, id string) (*session, error) {
	var opened *session
	opened, err := s.clients.open(context.Background(), ctx, s.host, s.log, id, false, func() {
		s.mu.Lock()
		delete(s.byID, id)
		s.mu.Unlock()
		opened.asking.Lock()
		stored := opened.stored
		opened.asking.Unlock()
		if stored {
			s.sessions.Ended(id)
		}
	})
	return opened, err
}

// add makes the session visible.
func (s *Streamable) add(session *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byID[session.id] = session
}

// primedSince is the first revision whose clients accept events without a message.
const primedSince = "2025-11-25"

// listen serves the event stream of a session.
func (s *Streamable) listen(w http.ResponseWriter, r *http.Request, session *session) {
	end, err := s.clients.stream(r.Context())
	if err != nil {
		Unavailable(w, err, retryAfter)
		return
	}
	defer end()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(session.known, cancel)()
	out := newAnswer(w)
	defer out.end()
	writer := newWriter(out.message)
	defer session.out.stream(writer)() // after the header, all messages go this way
	begin := out.alive
	if session.ProtocolVersion() >= primedSince {
		begin = out.prime
	}
	if begin() != nil { // the client waits for the header
		return
	}
	if session.out.run(ctx, s.host.Closing(), writer, out.alive) == nil && r.Context().Err() == nil { // otherwise the client is gone
		_ = session.out.flush(writer)
	}
}

// post takes a client's messages.
func (s *Streamable) post(w http.ResponseWriter, r *http.Request) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		http.Error(w, "messages must be sent with Content-Type: application/json", http.StatusUnsupportedMediaType)
		return
	}
	sent, ok := s.clients.read(w, r)
	if !ok {
		return
	}
	messages, refusals, batch := wire.ParseMessages(sent)
	out := newAnswer(w)
	defer out.end()
	modern := mcp.IsModernProtocol(r.Header.Get(mcp.HeaderProtocolVersion))
	for _, m := range messages {
		modern = modern || mcp.IsModernProtocol(m.Version())
	}
	switch {
	case !batch && len(refusals) > 0:
		_ = out.last(refusals[0].Answer(), http.StatusBadRequest)
	case batch && modern:
		refusal := wire.Refusal{Code: mcp.INVALID_REQUEST, Reason: "this protocol version has no JSON-RPC batches: send one message at a time"}
		_ = out.last(refusal.Answer(), http.StatusBadRequest)
	case modern:
		s.modern(out, r, messages[0])
	case !batch && messages[0].IsRequest() && messages[0].Method == string(mcp.MethodInitialize):
		s.initialize(out, w, r, messages[0])
	default:
		asks := batch || messages[0].IsRequest()
		session := s.enter(w, r)
		if session == nil {
			return
		}
		defer s.clients.rest(session, asks)
		s.legacy(out, r, session, messages, refusals, batch)
	}
}

// initialize opens a session.
func (s *Streamable) initialize(out *answer, w http.ResponseWriter, r *http.Request, m *wire.Inbound) {
	if err := s.clients.fits(m); err != nil {
		_ = out.last(refused(m, err), http.StatusRequestEntityTooLarge)
		return
	}
	id := rand.Text()
	session, err := s.open(r.Context(), id)
	if err != nil {
		_ = out.last(refused(m, err), fullStatus(err))
		return
	}
	begun := session.begin(m)
	defer begun.over()
	message, _ := session.answer(begun[0], r.Context(), nil, nil)
	if session.ProtocolVersion() == "" { // refused
		session.close()
		_ = out.last(message, 0)
		return
	}
	if s.sessions != nil {
		s.sessions.Opened(r.Context(), id, m.Raw)
		session.store(true)
	}
	s.add(session)
	w.Header().Set(mcp.HeaderSessionID, id)
	s.clients.rest(session, false)
	_ = out.last(message, 0)
}

// legacy takes messages of a session.
func (s *Streamable) legacy(out *answer, r *http.Request, session *session, messages []*wire.Inbound, refusals []*wire.Refusal, batch bool) {
	switch {
	case batch && !session.batches():
		_ = out.last(session.noBatch().Answer(), http.StatusBadRequest)
		return
	case !batch && !messages[0].IsRequest():
		// A reply to the session's former process: nobody waits for it.
		if !session.take(messages[0]) && !session.takenOver {
			refusal := wire.Refusal{Code: mcp.INVALID_REQUEST, Reason: "this session was sent no request with this ID"}
			_ = out.last(refusal.Answer(), http.StatusBadRequest)
			return
		}
		out.accepted()
		return
	}
	p := &posted{session: session, out: out, life: r.Context(), streams: streams(r)}
	var lacks *identity.ScopeError
	begun := session.begin(messages...)
	defer begun.over()
	answer := func(asked *request) []byte {
		if asked.refusal == nil {
			defer context.AfterFunc(p.life, func() { p.dropped(asked) })()
		}
		message, lack := session.answer(asked, r.Context(), r.Header, p.send)
		if !batch { // the requests of a batch run side by side, and have one status
			lacks = lack
		}
		return message
	}
	back := p.lend()
	var message []byte
	if batch {
		message = session.batch(messages, begun, refusals, answer)
	} else {
		message = answer(begun[0])
	}
	back()
	if message == nil {
		out.accepted()
		return
	}
	if lacks != nil && p.out.forbidden(message, identity.Challenge(r.Context(), lacks)) {
		return
	}
	p.last(message)
}

// streams reports whether a client accepts an event stream as the answer.
func streams(r *http.Request) bool {
	accept := r.Header.Values("Accept")
	return len(accept) == 0 || strings.Contains(strings.Join(accept, ","), "text/event-stream") || strings.Contains(strings.Join(accept, ","), "*/*")
}

// posted is the POST of legacy requests. When its connection is gone, its messages go to the session's
// event stream.
type posted struct {
	session *session
	out     *answer
	life    context.Context // of the connection
	streams bool
}

var errNoStream = errors.New("the client takes no event stream")

// write writes a message before the answer.
func (p *posted) write(message []byte) error {
	switch {
	case !p.streams:
		return errNoStream
	case p.life.Err() != nil:
		return errDropped // a write now may seem to succeed
	}
	return p.out.message(message)
}

func (p *posted) send(message []byte) error {
	err := p.write(message)
	if err != nil && p.session.out.open() != nil && p.session.out.push(message) {
		return nil
	}
	return err
}

// last writes the answer.
func (p *posted) last(message []byte) {
	if p.life.Err() == nil && p.out.last(message, 0) == nil {
		return
	}
	if p.session.out.open() == nil || !p.session.out.push(message) {
		p.session.log.Debug("answer not delivered", "session", p.session.id)
	}
}

// dropped ends a request whose connection is gone, if no event stream of the session can carry its
// answer.
func (p *posted) dropped(asked *request) {
	for {
		gone := p.session.out.open()
		if gone == nil {
			asked.cancel(errDropped)
			return
		}
		select {
		case <-gone:
		case <-asked.ctx.Done():
			return
		}
	}
}

// lend makes the POST carry messages outside of requests while the session has no event stream: many
// clients open none. back writes the rest.
func (p *posted) lend() (back func()) {
	if !p.streams {
		return func() {}
	}
	ctx, cancel := context.WithCancel(p.session.life)
	writer := newWriter(p.write)
	end := p.session.out.lend(writer)
	var writing sync.WaitGroup
	writing.Go(func() { _ = p.session.out.run(ctx, nil, writer, nil) })
	return func() {
		cancel()
		writing.Wait()
		_ = p.session.out.flush(writer) // unwritten messages wait for another request
		end()
	}
}

// modern takes a message of the 2026-07-28 era, which has no sessions.
func (s *Streamable) modern(out *answer, r *http.Request, m *wire.Inbound) {
	refusal := checkModern(r, m)
	switch {
	case refusal != nil:
		_ = out.last(refusal.Answer(), http.StatusBadRequest)
		return
	case m.Method == string(mcp.MethodNotificationCancelled):
		// In this era the end of the request is the cancellation.
		out.accepted()
		return
	}
	if err := s.clients.requests.Take(1); err != nil {
		_ = out.last(refused(m, err), http.StatusServiceUnavailable)
		return
	}
	defer s.clients.requests.Release(1) // after the answer is written
	message, status, lacks := s.served(out, r, m)
	switch {
	case message == nil:
	case lacks != nil && out.forbidden(message, identity.Challenge(r.Context(), lacks)):
		return
	default:
		_ = out.last(message, status)
		return
	}
	out.accepted()
}

// served answers a message of the 2026-07-28 era, with its status; nil without an answer. lacks says
// that the answer is a missing scope.
func (s *Streamable) served(out *answer, r *http.Request, m *wire.Inbound) (message []byte, status int, lacks *identity.ScopeError) {
	if err := s.clients.fits(m); err != nil {
		return refused(m, err), http.StatusRequestEntityTooLarge, nil
	}
	if m.Method == string(mcp.MethodSubscriptionsListen) {
		end, err := s.clients.stream(r.Context())
		if err != nil {
			return refused(m, err), fullStatus(err), nil
		}
		defer end()
	}
	send := out.message
	if !streams(r) {
		send = func([]byte) error { return errNoStream }
	} else if m.Method == string(mcp.MethodSubscriptionsListen) {
		defer keepOpen(out)()
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(errStopped) })()
	message, lacks = respond(ctx, s.host, &library{}, m, r.Header, send, s.log)
	return message, statusOf(message), lacks
}

// keepOpen writes signs of life to an event stream until end.
func keepOpen(out *answer) (end func()) {
	ended := make(chan struct{})
	var ticking sync.WaitGroup
	ticking.Go(func() {
		tick := time.NewTicker(keepAlive)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = out.alive() // an error means that the client is gone: its context ends
			case <-ended:
				return
			}
		}
	})
	return func() { close(ended); ticking.Wait() }
}

// statusOf is the 2026-07-28 revision's HTTP status for an answer; 0 for 200.
func statusOf(answer []byte) int {
	var failure struct{ Code int }
	for key, value := range rawjson.Members(answer) {
		switch key {
		case "result":
			return 0
		case "error":
			_ = json.Unmarshal(value, &failure)
		}
	}
	switch failure.Code {
	case mcp.METHOD_NOT_FOUND:
		return http.StatusNotFound
	case mcp.HEADER_MISMATCH, mcp.MISSING_REQUIRED_CLIENT_CAPABILITY, mcp.UNSUPPORTED_PROTOCOL_VERSION,
		mcp.INVALID_REQUEST, mcp.INVALID_PARAMS, mcp.PARSE_ERROR:
		return http.StatusBadRequest
	}
	return 0
}

// checkModern checks a POST against the 2026-07-28 revision.
func checkModern(r *http.Request, m *wire.Inbound) *wire.Refusal {
	header, version := r.Header.Get(mcp.HeaderProtocolVersion), m.Version()
	mismatch := func(reason string) *wire.Refusal {
		return &wire.Refusal{ID: m.ID, Code: mcp.HEADER_MISMATCH, Reason: reason}
	}
	switch {
	case m.IsReply():
		return &wire.Refusal{ID: m.ID, Code: mcp.INVALID_REQUEST, Reason: "protocol version " + header + " has no requests to clients, so there is nothing to reply to"}
	case m.Method == string(mcp.MethodNotificationCancelled):
		return nil
	case r.Header.Get(mcp.HeaderLastEventID) != "":
		return mismatch(mcp.HeaderLastEventID + " is not supported: streams are not resumable")
	case header == "":
		return mismatch("the " + mcp.HeaderProtocolVersion + " header is missing")
	case version == "":
		return &wire.Refusal{ID: m.ID, Code: mcp.INVALID_PARAMS, Reason: "params._meta lacks " + mcp.MetaKeyProtocolVersion}
	case header != version:
		return mismatch(fmt.Sprintf("the %s header says %.32q, params._meta %.32q", mcp.HeaderProtocolVersion, header, version))
	}
	if !m.IsRequest() || !mcp.IsValidProtocolVersion(version) { // the library answers the error
		return nil
	}
	named := []byte(`{}`) // only the inspected params: the library would decode all of them
	for _, key := range []string{"name", "uri"} {
		if value := rawjson.Member(m.Params, key); value != nil {
			named, _ = rawjson.Set(named, key, value)
		}
	}
	if err := mcp.ValidateStandardHeaders(r.Header.Get, version, mcp.MCPMethod(m.Method), named); err != nil {
		return mismatch(err.Error())
	}
	return nil
}

// Cut ends all requests being answered; each of them answers so within CutWithin. The process calls it
// when it cannot wait any longer.
func (s *Streamable) Cut() {
	s.cut()
	for _, session := range s.all() {
		session.end(errStopped)
	}
}

// Close ends all sessions here; their stored rows stay. Requests being answered go on.
func (s *Streamable) Close() {
	for _, session := range s.all() {
		session.store(false)
		session.close()
	}
}

func (s *Streamable) all() []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.byID))
}
