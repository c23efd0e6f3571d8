package transport

import (
	"cmp"
	"container/list"
	"context"
	"sync"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/limit"
)

// Limits bound the memory that clients can take. A zero field has its default.
type Limits struct {
	MessageBytes    int64 // of one message or body; 16 MiB
	RequestBytes    int64 // of all messages being read or answered; 128 MiB
	InitializeBytes int64 // of an initialize request, of which a session keeps parts; 64 KiB
	ListenBytes     int64 // of a subscriptions/listen request, which stays open; 256 KiB
	Requests        int64 // being answered, of all clients; 16,384
	Calls           int64 // being answered, of one session or connection; 1,024
	Sessions        int64 // of legacy clients; 10,000. A new one ends an idle one
	EventStreams    int64 // open at once, of all clients; 4,096
	WaitingBytes    int64 // of messages for clients without an open stream, or slow ones; 64 MiB
	HeaderBytes     int64 // of the headers of a request, names and values; 64 KiB

	PrincipalSessions int64 // Sessions of one principal; 1,000
	AddressSessions   int64 // Sessions from one address other than this machine; 1,000
	PrincipalStreams  int64 // EventStreams of one principal; 100

	BodyTime    time.Duration // for a request's body to arrive; 30 s
	SessionIdle time.Duration // until a session without a request or stream ends; 30 min
}

// MaxMessage is the default of Limits.MessageBytes.
const MaxMessage = 16 << 20

// DefaultEventStreams is the default of Limits.EventStreams.
const DefaultEventStreams = 4096

// DefaultHeaderBytes is the default of Limits.HeaderBytes.
const DefaultHeaderBytes = 64 << 10

func (l Limits) withDefaults() Limits {
	return Limits{
		MessageBytes:    cmp.Or(l.MessageBytes, MaxMessage),
		RequestBytes:    cmp.Or(l.RequestBytes, 128<<20),
		InitializeBytes: cmp.Or(l.InitializeBytes, 64<<10),
		ListenBytes:     cmp.Or(l.ListenBytes, 256<<10),
		Requests:        cmp.Or(l.Requests, 16_384),
		Calls:           cmp.Or(l.Calls, 1_024),
		Sessions:        cmp.Or(l.Sessions, 10_000),
		EventStreams:    cmp.Or(l.EventStreams, DefaultEventStreams),
		WaitingBytes:    cmp.Or(l.WaitingBytes, 64<<20),
		HeaderBytes:     cmp.Or(l.HeaderBytes, DefaultHeaderBytes),

		PrincipalSessions: cmp.Or(l.PrincipalSessions, 1_000),
		AddressSessions:   cmp.Or(l.AddressSessions, 1_000),
		PrincipalStreams:  cmp.Or(l.PrincipalStreams, 100),

		BodyTime:    cmp.Or(l.BodyTime, 30*time.Second),
		SessionIdle: cmp.Or(l.SessionIdle, 30*time.Minute),
	}
}

// Clients are all connected clients, over every transport and of all hosts. They share one set of
// limits.
type Clients struct {
	limits Limits

	sessions, streams, requests, calls, bytes, messages, greetings, listens, waiting, headers, idle, slow *limit.Limit
	bySessions, fromSessions, byStreams                                                                   *limit.Shares // of principals, addresses, principals

	mu    sync.Mutex // guards the fields below, and usage of the sessions; held for look-ups only
	fresh list.List  // idle sessions without a request after initialize, longest idle first
	used  list.List  // idle sessions with such a request
}

// NewClients returns no clients, within limits.
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
		headers:   limit.New("header_bytes", l.HeaderBytes, "bytes in the headers of the request", "send fewer or shorter ones"),
		idle:      limit.New("session_seconds", int64(l.SessionIdle/time.Second), "seconds without a request or stream", "send initialize"),
		slow:      limit.New("body_seconds", int64(l.BodyTime/time.Second), "seconds for the body of a request", "send it without pauses"),

		bySessions:   limit.NewShares("principal_sessions", l.PrincipalSessions, "sessions of this principal are in use", "end some with DELETE, or "+later),
		fromSessions: limit.NewShares("address_sessions", l.AddressSessions, "sessions from this address are in use", "end some with DELETE, or "+later),
		byStreams:    limit.NewShares("principal_event_streams", l.PrincipalStreams, "event streams of this principal are open", "close some, or "+later),

		waiting: limit.New("waiting_bytes", l.WaitingBytes, "bytes of messages wait for their clients", "open the event stream, and read it"),
	}
}

// Limits returns the limits of the clients.
func (c *Clients) Limits() []*limit.Limit {
	return []*limit.Limit{c.sessions, c.streams, c.requests, c.calls, c.bytes, c.messages, c.greetings, c.listens, c.waiting, c.headers, c.idle, c.slow,
		&c.bySessions.Limit, &c.fromSessions.Limit, &c.byStreams.Limit}
}

// usage says how a session is used, and when it may be ended. Clients.mu guards it.
type usage struct {
	users int           // requests and streams; -1 after the end of the session
	asked bool          // more than initialize
	idle  *list.Element // the session's element in fresh or used, without users
	timer *time.Timer   // ends a session that is idle for too long
}

// share is one of the limits that a session counts for.
type share struct {
	take    func() error
	release func()
	mayEnd  func(*session) bool // the sessions that may end to make room
}

// shares are a session's limits: of its principal, of its address, of all.
func (c *Clients) shares(s *session) []share {
	principal, address := s.principal(), s.address()
	return []share{
		{func() error { return c.bySessions.TakeFor(principal) }, func() { c.bySessions.ReleaseFor(principal) }, func(o *session) bool { return o.principal() == principal }},
		{func() error { return c.fromSessions.TakeFor(address) }, func() { c.fromSessions.ReleaseFor(address) }, func(o *session) bool { return o.address() == address }},
		{func() error { return c.sessions.Take(1) }, func() { c.sessions.Release(1) }, func(*session) bool { return true }},
	}
}

// admit adds a session with one user, the caller. Past a limit, an idle session within that limit ends,
// at first one without a request after initialize: opening many sessions ends one's own.
func (c *Clients) admit(s *session) error {
	all := c.shares(s)
	for i, one := range all {
		err := one.take()
		for err != nil {
			oldest := c.oldest(one.mayEnd)
			if oldest == nil {
				for _, taken := range all[:i] {
					taken.release()
				}
				return err
			}
			oldest.close()
			err = one.take()
		}
	}
	s.usage.users = 1
	return nil
}

// oldest removes the longest idle session of some from its list and returns it; nil if none is
// idle.
func (c *Clients) oldest(among func(*session) bool) *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, idle := range []*list.List{&c.fresh, &c.used} {
		for at := idle.Front(); at != nil; at = at.Next() {
			if s := at.Value.(*session); among(s) {
				c.wake(s)
				return s
			}
		}
	}
	return nil
}

// wake ends the idle time of a session; the caller holds the lock.
func (c *Clients) wake(s *session) {
	if s.usage.idle != nil {
		c.fresh.Remove(s.usage.idle) // the list without it ignores the call
		c.used.Remove(s.usage.idle)
		s.usage.idle = nil
		s.usage.timer.Stop()
	}
}

// use keeps a session from being idle until rest. It reports false if the session has ended.
func (c *Clients) use(s *session) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.usage.users < 0 {
		return false
	}
	c.wake(s)
	s.usage.users++
	return true
}

// rest ends a use; asked marks more than initialize.
func (c *Clients) rest(s *session, asked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.usage.users < 0 {
		return
	}
	s.usage.asked = s.usage.asked || asked
	if s.usage.users--; s.usage.users > 0 {
		return
	}
	idle := &c.fresh
	if s.usage.asked {
		idle = &c.used
	}
	since := idle.PushBack(s)
	s.usage.idle = since
	s.usage.timer = time.AfterFunc(c.limits.SessionIdle, func() { c.expire(s, since) })
}

// expire ends a session, unless it is in use again.
func (c *Clients) expire(s *session, since *list.Element) {
	c.mu.Lock()
	idle := s.usage.idle == since
	if idle {
		c.wake(s)
	}
	c.mu.Unlock()
	if idle {
		_ = c.idle.Refuse() // counted
		s.close()
	}
}

// leave frees the session's shares. It reports false the second time.
func (c *Clients) leave(s *session) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.usage.users < 0 {
		return false
	}
	c.wake(s)
	s.usage.users = -1
	for _, one := range c.shares(s) {
		one.release()
	}
	return true
}

// stream counts an event stream for the principal of ctx.
func (c *Clients) stream(ctx context.Context) (end func(), err error) {
	principal := identity.NameOf(ctx)
	if err := c.byStreams.TakeFor(principal); err != nil {
		return nil, err
	}
	if err := c.streams.Take(1); err != nil {
		c.byStreams.ReleaseFor(principal)
		return nil, err
	}
	identity.Lasts(ctx)
	return func() {
		c.streams.Release(1)
		c.byStreams.ReleaseFor(principal)
	}, nil
}
