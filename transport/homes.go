package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/wire"
)

// Homes knows where sessions live, where several processes serve the same clients. Its methods
// are safe for concurrent use.
type Homes interface {
	// Name returns an ID for the session that the request of a context opens.
	Name(ctx context.Context) string
	// Opened hears of a session before its client does, with the message that opened it. It
	// does not wait for long.
	Opened(ctx context.Context, id string, initialize []byte)
	// Ended hears of a session that nobody needs any more. It does not block.
	Ended(id string)
	// Released hears of a session that this process gives up, so that another one goes on with
	// it. waiting are the messages that its client has not been sent. The session is forgotten
	// once it returns.
	Released(ctx context.Context, id string, waiting [][]byte)
	// Elsewhere answers a request for a session that is not here, or one of initialize, with the
	// ID "", that is not taken here any more. sent is the body of the request, which has been
	// read. here answers the request after Adopt.
	Elsewhere(w http.ResponseWriter, r *http.Request, id string, sent []byte, here http.Handler)
	// Continue answers a request, sent, that continues a parked call, if that is elsewhere, and
	// reports whether it did. state is as of wire.ParkedState, and one that Name returned.
	Continue(w http.ResponseWriter, r *http.Request, state string, sent []byte) bool
}

// Unknown answers a request for a session that is nowhere.
func Unknown(w http.ResponseWriter) {
	http.Error(w, "unknown session, or it has ended: send initialize", http.StatusNotFound)
}

// Adopt takes in a session that another process had, for who makes the request of a context.
// initialize is the message that opened it there, waiting are messages for its client. The
// session is found once restore, which gives it what it had, has returned.
func (s *Streamable) Adopt(ctx context.Context, id string, initialize []byte, waiting [][]byte, restore func()) error {
	messages, _, batch := wire.ParseMessages(initialize)
	if batch || len(messages) != 1 {
		return errors.New("the message that opened the session cannot be read")
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
	session.adopted = true
	restore()
	for _, message := range waiting {
		session.out.push(message)
	}
	session.asking.Lock()
	session.named = true
	session.asking.Unlock()
	if !s.add(session) {
		session.give()
		return errLeaving
	}
	s.clients.rest(session, true)
	return nil
}

// Beside has next serve a request that names a session and is none of its messages, where the session is. sent
// is its body, which has been read. The session does not leave meanwhile.
func (s *Streamable) Beside(w http.ResponseWriter, r *http.Request, sent []byte, next http.Handler) {
	session := s.enter(w, r, sent, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.Beside(w, r, sent, next) }))
	if session == nil {
		return
	}
	defer session.depart()
	defer s.clients.rest(session, true)
	r = r.WithContext(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(sent))
	next.ServeHTTP(w, r)
}

var errLeaving = errors.New("this replica is about to end")

// leaving is the end of a session here, which goes on elsewhere.
type leaving struct {
	quiet chan struct{} // closed when no message is being handled
	gone  chan struct{} // closed when the session is not here any more
}

// arrive counts a message in. For a request of a session that is leaving, which is to be
// answered where the session goes, it counts nothing and returns what is closed when the
// session is gone.
func (s *session) arrive(asks bool) (gone <-chan struct{}) {
	s.asking.Lock()
	defer s.asking.Unlock()
	if s.leaving != nil && asks {
		return s.leaving.gone
	}
	s.entered++
	return nil
}

// depart counts a message out.
func (s *session) depart() {
	s.asking.Lock()
	defer s.asking.Unlock()
	if s.entered--; s.entered == 0 && s.leaving != nil {
		close(s.leaving.quiet)
		s.leaving.quiet = make(chan struct{}) // notifications and replies may still come
	}
}

// leave lets no more requests in, and returns when those in flight are answered, or ctx
// ends. It returns nil where the session is leaving already, or is not idle and should be.
func (s *session) leave(ctx context.Context, idle bool) *leaving {
	s.asking.Lock()
	if s.leaving != nil || idle && s.entered > 0 {
		s.asking.Unlock()
		return nil
	}
	s.leaving = &leaving{quiet: make(chan struct{}), gone: make(chan struct{})}
	l, quiet, busy := s.leaving, s.leaving.quiet, s.entered > 0
	s.asking.Unlock()
	if busy {
		select {
		case <-quiet:
		case <-ctx.Done():
		}
	}
	return l
}

const (
	// CutWithin is how long requests that are cut off may take to say so.
	CutWithin = time.Second
	// flushWithin is how long the event stream of a session that leaves may take to carry what
	// waits.
	flushWithin = time.Second
)

// Release gives the sessions up: each when its requests in flight are answered, or, cut off,
// at the end of ctx. Requests that come meanwhile wait until then, and go elsewhere, as does
// initialize from now on. It returns when no session is left.
func (s *Streamable) Release(ctx context.Context) {
	s.mu.Lock()
	s.releasing = true
	all := make([]*session, 0, len(s.sessions))
	for _, one := range s.sessions {
		all = append(all, one)
	}
	s.mu.Unlock()
	done := make(chan struct{})
	for _, one := range all {
		go func() {
			s.release(ctx, one, false)
			done <- struct{}{}
		}()
	}
	for range all {
		<-done
	}
}

// GiveUp gives a session up as Release does, unless it is not here or has a request in flight.
func (s *Streamable) GiveUp(ctx context.Context, id string) {
	s.mu.Lock()
	one := s.sessions[id]
	s.mu.Unlock()
	if one != nil {
		s.release(ctx, one, true)
	}
}

func (s *Streamable) release(ctx context.Context, one *session, idle bool) {
	l := one.leave(ctx, idle)
	if l == nil {
		return
	}
	defer close(l.gone)
	if ctx.Err() != nil {
		one.end(errStopped)
		one.asking.Lock()
		quiet, busy := l.quiet, one.entered > 0
		one.asking.Unlock()
		if busy {
			cut := time.NewTimer(CutWithin)
			defer cut.Stop()
			select {
			case <-quiet:
			case <-cut.C:
			}
		}
	}
	one.forget()
	if streams := one.out.open(); streams != nil {
		flushed := time.NewTimer(leeway.Of(flushWithin))
		defer flushed.Stop()
		select {
		case <-streams:
		case <-flushed.C:
		}
	}
	s.homes.Released(ctx, one.id, one.out.rest())
	one.give()
}

// give closes a session that is not over: another process has it.
func (s *session) give() {
	s.asking.Lock()
	s.named = false
	s.asking.Unlock()
	s.close()
}

// Drop closes a session that another process has adopted meanwhile, and reports whether it
// was here.
func (s *Streamable) Drop(id string) bool {
	s.mu.Lock()
	one := s.sessions[id]
	s.mu.Unlock()
	if one == nil {
		return false
	}
	one.give()
	return true
}
