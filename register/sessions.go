package register

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/server"

	"toolfinch/internal/identity"
	"toolfinch/internal/wire"
	"toolfinch/tool"
)

// sessions are the legacy-era clients of one Live. Live embeds it: packages transport and proxy reach
// single clients through its exported methods.
type sessions struct {
	log     *slog.Logger
	verbose func(level string) // gets the most verbose level of all clients

	leveling sync.Mutex // held over verbose, so that its last call has the newest level

	mu   sync.Mutex // guards byID; held for look-ups only
	byID map[string]*session
}

// Open adds a session. A piped session has one connection for everything. push queues a message outside
// of requests, never blocks, and reports whether it took the message. reaches reports whether the
// client would get a message now.
func (all *sessions) Open(id, principal string, piped bool, push func(message []byte) bool, reaches func() bool) {
	s := newSession(id)
	s.principal, s.since, s.piped, s.push, s.reaches = principal, time.Now(), piped, push, reaches
	all.mu.Lock()
	defer all.mu.Unlock()
	all.byID[id] = s
}

// remove removes a session and ends the requests to its client. It returns nil for an unknown ID.
func (all *sessions) remove(id string) *session {
	all.mu.Lock()
	s := all.byID[id]
	delete(all.byID, id)
	all.mu.Unlock()
	if s == nil {
		return nil
	}
	s.end()
	if s.described().LogLevel != "" {
		all.tellLevel()
	}
	return s
}

// session finds a session by its ID, nil for none.
func (all *sessions) session(id string) *session {
	if id == "" {
		return nil
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.byID[id]
}

// sessionOf returns the session of the current request. The first request of a stream makes its
// session.
func (all *sessions) sessionOf(ctx context.Context) *session {
	current := server.ClientSessionFromContext(ctx)
	if current == nil {
		return nil
	}
	return all.session(current.SessionID())
}

// everySession returns the initialized sessions.
func (all *sessions) everySession() []*session {
	all.mu.Lock()
	defer all.mu.Unlock()
	found := make([]*session, 0, len(all.byID))
	for _, s := range all.byID {
		if s.isInitialized() {
			found = append(found, s)
		}
	}
	return found
}

// sessionsOf returns the initialized sessions whose last request had this owner.
func (all *sessions) sessionsOf(owner string) []*session {
	return slices.DeleteFunc(all.everySession(), func(s *session) bool { return !s.provisioned.isOf(owner) })
}

// Knows reports whether a session exists.
func (all *sessions) Knows(id string) bool { return all.session(id) != nil }

// KnowsHTTP reports whether the principal ("" for nobody) has opened this session over streamable HTTP.
// Clients must not name the piped session, nor the session of another principal.
func (all *sessions) KnowsHTTP(id, principal string) bool {
	s := all.session(id)
	return s != nil && !s.piped && s.principal == principal
}

// Reaches reports whether the client of a session can get a request outside of its calls.
func (all *sessions) Reaches(id string) bool {
	s := all.session(id)
	return s != nil && s.reaches()
}

// Ask sends an upstream's request, outside of calls, to the client of a session. It returns the
// errors of tool.Client's Ask.
func (all *sessions) Ask(ctx context.Context, id, method string, params json.RawMessage) (json.RawMessage, error) {
	s := all.session(id)
	if s == nil {
		return nil, errClientGone
	}
	if err := checkSupported(s.described(), method, params); err != nil {
		return nil, err
	}
	return s.ask(ctx, func(message []byte) bool { return all.send(id, message) }, method, params)
}

// EndAsks ends the unanswered requests to the client of a session.
func (all *sessions) EndAsks(id string) {
	if s := all.session(id); s != nil {
		s.end()
	}
}

// Answered delivers the reply of a session's client. It reports false if the session never sent such a
// request.
func (all *sessions) Answered(id string, reply *wire.Inbound) bool {
	s := all.session(id)
	return s != nil && s.answered(reply)
}

// maxQueued bounds a notification, in bytes, for a session without an open event stream.
const maxQueued = 16 << 10

// Notify sends a notification outside of calls to the client of a session.
func (all *sessions) Notify(id, method string, params json.RawMessage) {
	if len(params) > maxQueued && !all.Reaches(id) {
		return // many long notifications could wait
	}
	all.send(id, wire.Message(nil, method, params))
}

// send queues a message for the client of a session; it never blocks.
func (all *sessions) send(id string, message []byte) bool {
	s := all.session(id)
	sent := s != nil && s.push(message)
	if !sent {
		all.log.Debug("message not sent", "session", id)
	}
	return sent
}

// Log sends an upstream's log message, outside of calls, to the named session, or with "" to every
// session that has set a level. A session's own level filters messages. A session without a level gets
// only messages for itself, and none if asked: then clients have set the server's level. hears, if set,
// reports whether a party may get the message.
func (all *sessions) Log(session string, hears func(identity.Party) bool, asked bool, params json.RawMessage) {
	for _, s := range all.everySession() {
		if session != "" && s.id != session || hears != nil && !hears(s.lastParty()) {
			continue
		}
		level := s.described().LogLevel
		if level == "" && session != "" && !asked || level != "" && severe(params, level) {
			all.Notify(s.id, "notifications/message", params)
		}
	}
}

// setLevel notes the level of a client's logging/setLevel. Upstreams get the most verbose level of all
// clients.
func (all *sessions) setLevel(s *session, level string) {
	s.mu.Lock()
	s.client.LogLevel = level
	s.mu.Unlock()
	all.tellLevel()
}

func (all *sessions) tellLevel() {
	all.leveling.Lock()
	defer all.leveling.Unlock()
	most := len(tool.LogLevels)
	for _, s := range all.everySession() {
		if i := slices.Index(tool.LogLevels, s.described().LogLevel); i >= 0 {
			most = min(most, i)
		}
	}
	level := ""
	if most < len(tool.LogLevels) {
		level = tool.LogLevels[most]
	}
	all.verbose(level)
}
