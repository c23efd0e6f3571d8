package transport

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/wire"
)

// Sessions stores sessions, so that another process for the same clients can take them over. Its
// methods are safe for concurrent use.
type Sessions interface {
	// Opened gets a session, before its client does, with its initialize message. It does not wait for
	// long.
	Opened(ctx context.Context, id string, initialize []byte)
	// Ended gets a session that nobody needs any more. It does not block.
	Ended(id string)
	// Take takes a session over from another process, for the principal of ctx: open gets the session's
	// initialize message and a function that restores its state. The error is ErrNoSession if the
	// principal has no such session; other errors may pass.
	Take(ctx context.Context, id string, open func(initialize []byte, restore func()) error) error
}

// ErrNoSession is Take's error for an unknown session.
var ErrNoSession = errors.New("unknown session, or it has ended: send initialize")

// Take takes over a session of another process, unless it is here. The error is ErrNoSession, or of the
// store.
func (s *Streamable) Take(ctx context.Context, id string) error {
	if s.sessions == nil {
		return ErrNoSession
	}
	_, err, _ := s.taking.Do(identity.NameOf(ctx)+"\x00"+id, func() (any, error) { // other requests share this answer
		if s.find(id) != nil { // another request, maybe of another principal, was faster
			return nil, nil
		}
		// Several requests of the client wait for it: the end of one must not end it for the rest.
		return nil, s.sessions.Take(context.WithoutCancel(ctx), id, func(initialize []byte, restore func()) error {
			return s.reopen(ctx, id, initialize, restore)
		})
	})
	return err
}

// reopen opens a session with the initialize message of another process. It is visible after restore.
func (s *Streamable) reopen(ctx context.Context, id string, initialize []byte, restore func()) error {
	messages, _, batch := wire.ParseMessages(initialize)
	if batch || len(messages) != 1 {
		return errors.New("the message that opened it cannot be read")
	}
	session, err := s.open(ctx, id)
	if err != nil {
		return err
	}
	begun := session.begin(messages[0])
	defer begun.over()
	answer, _ := session.answer(begun[0], ctx, nil, nil)
	if session.ProtocolVersion() == "" {
		session.close()
		return fmt.Errorf("initialize is refused here: %.200s", answer)
	}
	session.takenOver = true
	restore()
	session.store(true)
	s.add(session)
	s.clients.rest(session, true)
	return nil
}

// missing answers a request whose session could not be taken over.
func missing(w http.ResponseWriter, err error) {
	if errors.Is(err, ErrNoSession) {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	Unavailable(w, err, retryAfter)
}

// store says whether the session is stored: Sessions is then told of its end.
func (s *session) store(stored bool) {
	s.asking.Lock()
	defer s.asking.Unlock()
	s.stored = stored
}

// Drop closes a session that another process has taken over, and reports whether it was here. Requests
// being answered go on.
func (s *Streamable) Drop(id string) bool {
	session := s.find(id)
	if session == nil {
		return false
	}
	session.store(false)
	session.close()
	return true
}

// CutWithin bounds how long cut requests may take to answer.
const CutWithin = time.Second
