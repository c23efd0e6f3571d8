package register

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolfinch/rawjson"
	"toolfinch/tool"
	"toolfinch/wire"
)

// session is one legacy-era client. A 2026-07-28 client has none: its list is
// stable by that revision's rules.
type session struct {
	id      string
	gone    chan struct{} // closed when the client can answer no more
	endOnce sync.Once
	shown   shown                     // what it has provisioned, as far as it knows
	piped   bool                      // stdio or SSE: one connection for everything
	push    func(message []byte) bool // as of Open
	reaches func() bool

	mu           sync.Mutex // guards what follows; never held over a write to the client or a wait
	set          Set
	mode         string          // in which direct was decided, or undecided
	direct       bool            // it is listed every tool
	client       string          // "name version", "" until initialize
	capabilities json.RawMessage // as declared in initialize, nil before
	initialized  bool
	level        string        // of logging/setLevel, "" when it did not say
	listed       chan struct{} // closed by the next tools/list
	notified     time.Time     // of the last list_changed that no tools/list followed yet
	asked        map[string]chan *wire.Inbound
	asks         int      // counts requests to the client
	apps         []string // servers whose apps the client has read, the last first; replaced, never edited
	roots        roots
}

// undecided is the mode of a session that has been listed no tool; no Served has it.
const undecided = "\x00"

func newSession(id string) *session {
	return &session{id: id, gone: make(chan struct{}), listed: make(chan struct{}), asked: map[string]chan *wire.Inbound{},
		shown: shown{owner: tool.SessionOwner(id)}, mode: undecided}
}

// end lets go of those who wait for the client to answer.
func (s *session) end() { s.endOnce.Do(func() { close(s.gone) }) }

func (s *session) ended() bool {
	select {
	case <-s.gone:
		return true
	default:
		return false
	}
}

// initialize takes what the client said of itself. message is the request as
// it was sent, nil when it is not known.
func (s *session) initialize(client string, message []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client, s.initialized = client, true
	s.capabilities = bytes.Clone(rawjson.Member(rawjson.Member(message, "params"), "capabilities"))
}

// described returns the session's client as a call knows it, without Ask.
func (s *session) described() *tool.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &tool.Client{Name: s.client, Key: s.id, Capabilities: s.capabilities, LogLevel: s.level}
}

var errClientGone = errors.New("the client is gone")

// askPrefix begins the IDs of requests to clients; their number follows.
const askPrefix = "toolfinch-"

// ask sends a request to the client with send and waits for the answer, unless
// it is known. When ctx ends first, the client is told.
func (s *session) ask(ctx context.Context, send func([]byte) bool, method string, params json.RawMessage) (json.RawMessage, error) {
	if method == methodRoots && s.keepsRoots(params) {
		return s.askRoots(ctx, func() (json.RawMessage, error) { return s.request(ctx, send, method, params) })
	}
	return s.request(ctx, send, method, params)
}

func (s *session) request(ctx context.Context, send func([]byte) bool, method string, params json.RawMessage) (json.RawMessage, error) {
	if params == nil { // roots/list needs none, but the client of the Go SDK insists
		params = json.RawMessage(`{}`)
	}
	answer := make(chan *wire.Inbound, 1)
	s.mu.Lock()
	s.asks++
	id := strconv.Quote(askPrefix + strconv.Itoa(s.asks))
	s.asked[id] = answer
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.asked, id)
		s.mu.Unlock()
	}()
	if s.ended() || !send(wire.Message(json.RawMessage(id), method, params)) {
		return nil, errClientGone
	}
	select {
	case reply := <-answer:
		if reply.Error == nil {
			return reply.Result, nil
		}
		rpc := &tool.RPCError{Code: tool.CodeInternal, Raw: reply.Error}
		_ = json.Unmarshal(reply.Error, rpc)
		return nil, rpc
	case <-s.gone:
		return nil, errClientGone
	case <-ctx.Done():
		send(wire.Message(nil, "notifications/cancelled", json.RawMessage(`{"requestId":`+id+`,"reason":"no longer needed"}`)))
		return nil, context.Cause(ctx)
	}
}

// answered gives an answer to whoever asked. It reports false when nobody did; one
// that was withdrawn, or answered already, is no longer waited for.
func (s *session) answered(reply *wire.Inbound) bool {
	s.mu.Lock()
	waiting := s.asked[string(reply.ID)]
	delete(s.asked, string(reply.ID))
	number, ours := strings.CutPrefix(rawjson.Text(reply.ID), askPrefix)
	n, err := strconv.Atoi(number)
	late := ours && err == nil && 0 < n && n <= s.asks
	s.mu.Unlock()
	if waiting != nil {
		waiting <- reply
	}
	return waiting != nil || late
}

// checkAsk returns the error for a request that the client cannot take: for a
// legacy client the one that it would give itself (schema 2025-11-25).
func checkAsk(c *tool.Client, method string, params json.RawMessage) error {
	capability, known := tool.Asks[method]
	missing := func(required string) error {
		return &tool.RPCError{
			Code: tool.CodeMissingCapability, Message: "the client lacks a capability that this needs: " + capability,
			Data: json.RawMessage(`{"requiredCapabilities":` + required + `}`),
		}
	}
	switch {
	case !known:
		return &tool.RPCError{Code: tool.CodeMethodNotFound, Message: "method not found: " + method}
	case !c.Can(capability) && c.Modern:
		return missing(`{"` + capability + `":{}}`)
	case !c.Can(capability):
		return &tool.RPCError{Code: tool.CodeMethodNotFound, Message: "the client does not support " + capability}
	case capability == tool.CapabilitySampling:
		wants := rawjson.Member(params, "tools") != nil || rawjson.Member(params, "toolChoice") != nil
		switch {
		case !wants || rawjson.Member(rawjson.Member(c.Capabilities, capability), "tools") != nil:
			return nil
		case c.Modern:
			return missing(`{"sampling":{"tools":{}}}`)
		}
		return &tool.RPCError{Code: tool.CodeInvalidParams, Message: "the client does not support tools in sampling"}
	case capability != tool.CapabilityElicitation:
		return nil
	}
	modes := rawjson.Member(c.Capabilities, capability)
	form, url := rawjson.Member(modes, "form") != nil, rawjson.Member(modes, "url") != nil
	if mode := rawjson.Text(rawjson.Member(params, "mode")); mode == "url" && !url {
		if c.Modern {
			return missing(`{"elicitation":{"url":{}}}`)
		}
		return &tool.RPCError{Code: tool.CodeInvalidParams, Message: "the client does not support elicitation by URL"}
	} else if mode != "url" && url && !form { // neither means form
		if c.Modern {
			return missing(`{"elicitation":{"form":{}}}`)
		}
		return &tool.RPCError{Code: tool.CodeInvalidParams, Message: "the client does not support elicitation by form"}
	}
	return nil
}

// asking returns the Ask of a legacy client's call: requests go out beside the
// answer it waits for.
func (s *session) asking(c *tool.Client, x *wire.Exchange) func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
	return func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
		if err := checkAsk(c, method, params); err != nil {
			return nil, err
		}
		return s.ask(ctx, x.Send, method, params)
	}
}

// Ask sends a request of an upstream that belongs to no call to the client of a
// session. Errors are as of tool.Client's Ask.
func (l *Live) Ask(ctx context.Context, sessionID, method string, params json.RawMessage) (json.RawMessage, error) {
	s := l.session(sessionID)
	if s == nil {
		return nil, errClientGone
	}
	if err := checkAsk(s.described(), method, params); err != nil {
		return nil, err
	}
	return s.ask(ctx, func(message []byte) bool { return l.send(s.id, message) }, method, params)
}

// maxQueued is the longest notification, in bytes, that is kept for a session
// that nobody listens on.
const maxQueued = 16 << 10

// Notify sends a notification that belongs to no call to the client of a session.
func (l *Live) Notify(sessionID, method string, params json.RawMessage) {
	if len(params) > maxQueued && !l.Reaches(sessionID) {
		return // much of it could wait for long
	}
	l.send(sessionID, wire.Message(nil, method, params))
}

// Log sends a log message of an upstream that belongs to no call to the session
// that it must be for; where that is "", to every session that set a level. A
// session gets what is severe enough by its own level. One that set none gets what
// a server says to it alone, unless asked: then others have set the server's level.
func (l *Live) Log(sessionID string, asked bool, params json.RawMessage) {
	sessions := l.everySession()
	if sessionID != "" {
		sessions = slices.DeleteFunc(sessions, func(s *session) bool { return s.id != sessionID })
	}
	for _, s := range sessions {
		level := s.described().LogLevel
		if level == "" && sessionID != "" && !asked || level != "" && severe(params, level) {
			l.Notify(s.id, "notifications/message", params)
		}
	}
}

// Reaches reports whether the client of a session can be sent a request that
// belongs to none of its calls.
func (l *Live) Reaches(sessionID string) bool {
	s := l.session(sessionID)
	return s != nil && s.reaches()
}

// send queues a message for the client of a session; it never blocks.
func (l *Live) send(sessionID string, message []byte) bool {
	s := l.session(sessionID)
	sent := s != nil && s.push(message)
	if !sent {
		l.log.Debug("message not sent", "session", sessionID)
	}
	return sent
}

// severe reports whether a log message is at least of a level. What is no
// known level counts as severe enough.
func severe(params json.RawMessage, level string) bool {
	is := slices.Index(tool.LogLevels, rawjson.Text(rawjson.Member(params, "level")))
	return is < 0 || is >= slices.Index(tool.LogLevels, level)
}

// leveled wraps notify so that only the log messages pass that c wants.
func leveled(c *tool.Client, notify func(string, json.RawMessage)) func(string, json.RawMessage) {
	return func(method string, params json.RawMessage) {
		if method == "notifications/message" {
			if c.LogLevel == "" && c.Modern || c.LogLevel != "" && !severe(params, c.LogLevel) {
				return
			}
		}
		notify(method, params)
	}
}

// setLevel takes the level of a client's logging/setLevel; upstreams are asked
// for the most verbose one of all clients.
func (l *Live) setLevel(s *session, level string) {
	s.mu.Lock()
	s.level = level
	s.mu.Unlock()
	l.tellLevel()
}

func (l *Live) tellLevel() {
	l.leveling.Lock()
	defer l.leveling.Unlock()
	most := len(tool.LogLevels)
	for _, s := range l.everySession() {
		if i := slices.Index(tool.LogLevels, s.described().LogLevel); i >= 0 {
			most = min(most, i)
		}
	}
	if most < len(tool.LogLevels) && l.settings.SetLevel != nil {
		l.settings.SetLevel(tool.LogLevels[most])
	}
}

// sessionOf returns the session of the request being handled. A stream's
// session is made by its first request.
func (l *Live) sessionOf(ctx context.Context) *session {
	current := server.ClientSessionFromContext(ctx)
	if current == nil {
		return nil
	}
	return l.session(current.SessionID())
}

func (l *Live) session(id string) *session {
	if id == "" {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sessions[id]
}

// everySession returns the sessions that have been initialized.
func (l *Live) everySession() []*session {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*session, 0, len(l.sessions))
	for _, s := range l.sessions {
		s.mu.Lock()
		if s.initialized {
			all = append(all, s)
		}
		s.mu.Unlock()
	}
	return all
}

// sessionsOf returns those of everySession whose last request came for owner.
func (l *Live) sessionsOf(owner string) []*session {
	return slices.DeleteFunc(l.everySession(), func(s *session) bool { return !s.shown.isOf(owner) })
}

// modernCalls counts the calls of 2026-07-28 clients, of all Lives: their keys are
// the upstreams' too.
var modernCalls atomic.Int64

// modernClient is the 2026-07-28 client behind a request, by what it says of
// itself with each.
func (l *Live) modernClient(params json.RawMessage) *tool.Client {
	meta := rawjson.Member(params, "_meta")
	info := rawjson.Member(meta, mcp.MetaKeyClientInfo)
	c := &tool.Client{
		Name:         clientName(rawjson.Text(rawjson.Member(info, "name")), rawjson.Text(rawjson.Member(info, "version"))),
		Key:          "call-" + strconv.FormatInt(modernCalls.Add(1), 10),
		Modern:       true,
		Capabilities: rawjson.Member(meta, mcp.MetaKeyClientCapabilities),
		LogLevel:     rawjson.Text(rawjson.Member(meta, mcp.MetaKeyLogLevel)),
	}
	c.Ask = func(_ context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
		if err := checkAsk(c, method, params); err != nil {
			return nil, err
		}
		return nil, methodNotFound(method) // this request of the client takes no questions
	}
	return c
}
