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

// sessions are the legacy-era clients of one Live. Live embeds it: packages transport
// and proxy reach single clients through its exported methods.
type sessions struct {
	log     *slog.Logger
	verbose func(level string) // hears the most verbose level of all

	leveling sync.Mutex // held over verbose, so that the last it hears is the newest

	mu   sync.Mutex // guards byID; held for look-ups only
	byID map[string]*session
}

// Open makes a session known. A piped one has one connection for everything. push
// takes a message for its client that belongs to none of its requests; it never
// blocks, and reports whether it took it. reaches reports whether the client would
// get it now.
func (all *sessions) Open(id, principal string, piped bool, push func(message []byte) bool, reaches func() bool) {
	s := newSession(id)
	s.principal, s.since, s.piped, s.push, s.reaches = principal, time.Now(), piped, push, reaches
	all.mu.Lock()
	defer all.mu.Unlock()
	all.byID[id] = s
}

// remove takes out a session and ends the requests to its client. It returns nil if
// there is no session of that ID.
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

// session finds a session by its ID, nil if there is none.
func (all *sessions) session(id string) *session {
	if id == "" {
		return nil
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.byID[id]
}

// sessionOf returns the session of the request being handled. A stream's
// session is made by its first request.
func (all *sessions) sessionOf(ctx context.Context) *session {
	current := server.ClientSessionFromContext(ctx)
	if current == nil {
		return nil
	}
	return all.session(current.SessionID())
}

// everySession returns the sessions that have been initialized.
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

// sessionsOf returns those of everySession whose last request came for owner.
func (all *sessions) sessionsOf(owner string) []*session {
	return slices.DeleteFunc(all.everySession(), func(s *session) bool { return !s.provisioned.isOf(owner) })
}

// Knows reports whether a session is there.
func (all *sessions) Knows(id string) bool { return all.session(id) != nil }

// KnowsHTTP reports whether a session is there that is not piped: of streamable
// HTTP, and that a principal opened, "" for nobody. Clients must not name the piped
// session, nor that of another.
func (all *sessions) KnowsHTTP(id, principal string) bool {
	s := all.session(id)
	return s != nil && !s.piped && s.principal == principal
}

// Reaches reports whether the client of a session can be sent a request that
// belongs to none of its calls.
func (all *sessions) Reaches(id string) bool {
	s := all.session(id)
	return s != nil && s.reaches()
}

// Ask sends a request of an upstream that belongs to no call to the client of a
// session. Errors are as of tool.Client's Ask.
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

// EndAsks ends the requests that the client of a session has not answered.
func (all *sessions) EndAsks(id string) {
	if s := all.session(id); s != nil {
		s.end()
	}
}

// Answered delivers the reply of a session's client to a request, which may be
// withdrawn by now. It reports false if there was no such request.
func (all *sessions) Answered(id string, reply *wire.Inbound) bool {
	s := all.session(id)
	return s != nil && s.answered(reply)
}

// maxQueued is the longest notification, in bytes, that is kept for a session without
// an open event stream.
const maxQueued = 16 << 10

// Notify sends a notification that belongs to no call to the client of a session.
func (all *sessions) Notify(id, method string, params json.RawMessage) {
	if len(params) > maxQueued && !all.Reaches(id) {
		return // much of it could wait for long
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

// Log sends a log message of an upstream that belongs to no call to one session,
// if session is set, else to every session that set a level. A session gets what
// is severe enough by its own level. A session that set none gets what a server
// says to it alone. hears, if set, reports whether a party may hear of it. asked says that clients have set the server's level; such a
// message is not for a session that set none.
func (all *sessions) Log(session string, hears func(identity.Party) bool, asked bool, params json.RawMessage) {
	for _, s := range all.everySession() {
		if session != "" && s.id != session || hears != nil && !hears(s.by()) {
			continue
		}
		level := s.described().LogLevel
		if level == "" && session != "" && !asked || level != "" && severe(params, level) {
			all.Notify(s.id, "notifications/message", params)
		}
	}
}

// setLevel notes the level of a client's logging/setLevel. Upstreams are asked for
// the most verbose level of all clients.
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
