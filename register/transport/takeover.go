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

// Sessions are stored, so that another process which serves the same clients can take one over. Its methods are
// safe for concurrent use.
type Sessions interface {
	// Opened hears of a session before its client does, with the message that opened it. It
	// does not wait for long.
	Opened(ctx context.Context, id string, initialize []byte)
	// Ended hears of a session that nobody needs any more. It does not block.
	Ended(id string)
	// Take takes over a session, for who makes the request of a context, from the process that had it: open is given
	// the message that opened it there, and what gives it what it had. Where there is no such session of theirs, the
	// error is ErrNoSession; another one may pass.
	Take(ctx context.Context, id string, open func(initialize []byte, restore func()) error) error
}

// ErrNoSession is the error of Take for a session that nobody has.
var ErrNoSession = errors.New("unknown session, or it has ended: send initialize")

// Take has a session here that another process may have had, and is not here. The error is ErrNoSession, or of the store.
func (s *Streamable) Take(ctx context.Context, id string) error {
	if s.sessions == nil {
		return ErrNoSession
	}
	_, err, _ := s.taking.Do(identity.NameOf(ctx)+"\x00"+id, func() (any, error) { // what somebody else is answered holds for them
		if s.find(id) != nil { // whoever was faster, and may be another principal
			return nil, nil
		}
		// As many requests wait for it as its client has sent at once; one that goes away does not end it for the others.
		return nil, s.sessions.Take(context.WithoutCancel(ctx), id, func(initialize []byte, restore func()) error {
			return s.reopen(ctx, id, initialize, restore)
		})
	})
	return err
}

// reopen opens a session as it was opened in another process. It is found once restore has returned.
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
	s.add(ctx, session)
	s.clients.rest(session, true)
	return nil
}

// missing answers a request for a session that is not here and could not be taken over.
func missing(w http.ResponseWriter, err error) {
	if errors.Is(err, ErrNoSession) {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	Unavailable(w, err, retryAfter)
}

// store says whether the session is stored: Sessions hears of its end then.
func (s *session) store(stored bool) {
	s.asking.Lock()
	defer s.asking.Unlock()
	s.stored = stored
}

// Drop closes a session that another process has taken over meanwhile, and reports whether it
// was here. Its requests that are being answered go on.
func (s *Streamable) Drop(id string) bool {
	session := s.find(id)
	if session == nil {
		return false
	}
	session.store(false)
	session.close()
	return true
}

// CutWithin is how long requests that are cut off may take to say so.
const CutWithin = time.Second
