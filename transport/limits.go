package transport

import (
	"cmp"
	"container/list"
	"sync"
	"time"

	"toolfinch/limit"
)

// Limits bound what clients can make the program hold. A field that is zero has its
// default.
type Limits struct {
	MessageBytes    int64         // of one message or body; 16 MiB
	RequestBytes    int64         // of all messages being read or answered; 128 MiB
	InitializeBytes int64         // of an initialize request, of which a session keeps parts; 64 KiB
	ListenBytes     int64         // of a subscriptions/listen request, which lasts; 256 KiB
	Requests        int64         // being answered, of all clients; 16,384
	Calls           int64         // requests being answered, of one session or connection; 1,024
	Sessions        int64         // of legacy clients; 10,000. One that is idle gives way to a new one
	EventStreams    int64         // open at once, of all clients; 4,096
	WaitingBytes    int64         // of messages that wait for clients that have no stream open, or do not read; 64 MiB
	BodyTime        time.Duration // for a request's body to arrive; 30 s
	SessionIdle     time.Duration // until a session without a request or stream ends; 30 min
}

// MaxMessage is the default of Limits.MessageBytes.
const MaxMessage = 16 << 20

func (l Limits) withDefaults() Limits {
	return Limits{
		MessageBytes:    cmp.Or(l.MessageBytes, MaxMessage),
		RequestBytes:    cmp.Or(l.RequestBytes, 128<<20),
		InitializeBytes: cmp.Or(l.InitializeBytes, 64<<10),
		ListenBytes:     cmp.Or(l.ListenBytes, 256<<10),
		Requests:        cmp.Or(l.Requests, 16_384),
		Calls:           cmp.Or(l.Calls, 1_024),
		Sessions:        cmp.Or(l.Sessions, 10_000),
		EventStreams:    cmp.Or(l.EventStreams, 4_096),
		WaitingBytes:    cmp.Or(l.WaitingBytes, 64<<20),
		BodyTime:        cmp.Or(l.BodyTime, 30*time.Second),
		SessionIdle:     cmp.Or(l.SessionIdle, 30*time.Minute),
	}
}

// Clients are all that are connected, over every transport, of all hosts. They share
// one set of bounds.
type Clients struct {
	limits Limits

	sessions, streams, requests, calls, bytes, messages, greetings, listens, waiting *limit.Limit

	mu    sync.Mutex // guards what follows, and place of the sessions; held for look-ups only
	fresh list.List  // idle sessions that have asked nothing since initialize, longest idle first
	used  list.List  // idle sessions that have
}

// NewClients returns clients within limits: nobody yet.
func NewClients(limits Limits) *Clients {
	l := limits.withDefaults()
	const later = "try again later"
	return &Clients{
		limits:    l,
		sessions:  limit.New("sessions", l.Sessions, "sessions are in use", "end some with DELETE, or "+later),
		streams:   limit.New("event_streams", l.EventStreams, "event streams are open", "close some, or "+later),
		requests:  limit.New("requests", l.Requests, "requests are being answered", later),
		calls:     limit.New("session_requests", l.Calls, "requests of this session are being answered", "wait for some of the answers"),
		bytes:     limit.New("request_bytes", l.RequestBytes, "bytes of requests are being read or answered", later),
		messages:  limit.New("message_bytes", l.MessageBytes, "bytes in one message", "send less at once"),
		greetings: limit.New("initialize_bytes", l.InitializeBytes, "bytes in an initialize request", "declare less in clientInfo and capabilities"),
		listens:   limit.New("listen_bytes", l.ListenBytes, "bytes in a subscriptions/listen request", "listen to less at once"),
		waiting:   limit.New("waiting_bytes", l.WaitingBytes, "bytes of messages wait for their clients", "open the event stream, and read it"),
	}
}

// Limits are those of the clients.
func (c *Clients) Limits() []*limit.Limit {
	return []*limit.Limit{c.sessions, c.streams, c.requests, c.calls, c.bytes, c.messages, c.greetings, c.listens, c.waiting}
}

// place is where a session stands among those that may have to give way. Clients
// guard it.
type place struct {
	users int           // requests and streams; -1 once the session has ended
	asked bool          // more than initialize
	idle  *list.Element // in fresh or used while it has no users
	timer *time.Timer   // ends the session once it was idle for too long
}

// admit makes place for a session, which has one user: the caller. Where there are
// too many, an idle one ends: first of those that have asked nothing yet, so that
// who opens many sessions ends their own.
func (c *Clients) admit(s *session) error {
	err := c.sessions.Take(1)
	for err != nil {
		oldest := c.oldest()
		if oldest == nil {
			return err
		}
		oldest.close()
		err = c.sessions.Take(1)
	}
	s.place.users = 1
	return nil
}

// oldest takes the session that is to give way out of its list; nil when none is idle.
func (c *Clients) oldest() *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, idle := range []*list.List{&c.fresh, &c.used} {
		if front := idle.Front(); front != nil {
			s := front.Value.(*session)
			c.wake(s)
			return s
		}
	}
	return nil
}

// wake is for who holds the lock.
func (c *Clients) wake(s *session) {
	if s.place.idle != nil {
		c.fresh.Remove(s.place.idle) // it is in one of them; the other leaves it
		c.used.Remove(s.place.idle)
		s.place.idle = nil
		s.place.timer.Stop()
	}
}

// use keeps a session from being idle until rest. It reports false when the session
// has ended.
func (c *Clients) use(s *session) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.place.users < 0 {
		return false
	}
	c.wake(s)
	s.place.users++
	return true
}

// rest ends a use; asked reports that it was more than initialize.
func (c *Clients) rest(s *session, asked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.place.users < 0 {
		return
	}
	s.place.asked = s.place.asked || asked
	if s.place.users--; s.place.users > 0 {
		return
	}
	idle := &c.fresh
	if s.place.asked {
		idle = &c.used
	}
	since := idle.PushBack(s)
	s.place.idle = since
	s.place.timer = time.AfterFunc(c.limits.SessionIdle, func() { c.expire(s, since) })
}

// expire ends a session, unless it came into use in the moment that its time came.
func (c *Clients) expire(s *session, since *list.Element) {
	c.mu.Lock()
	idle := s.place.idle == since
	if idle {
		c.wake(s)
	}
	c.mu.Unlock()
	if idle {
		s.close()
	}
}

// leave gives the place of a session back. It reports false when that was done
// already.
func (c *Clients) leave(s *session) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.place.users < 0 {
		return false
	}
	c.wake(s)
	s.place.users = -1
	c.sessions.Release(1)
	return true
}
