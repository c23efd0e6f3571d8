package page

import (
	"net/http"
	"testing"
	"time"
)

// clock is a time that tests move.
type clock struct{ time.Time }

func (c *clock) now() time.Time { return c.Time }

func TestALinkLetsInOnceAndNotForLong(t *testing.T) {
	now := &clock{time.Now()}
	s := newSessions(now.now)
	one, other := s.link(false), s.link(false)
	if s.take("") || s.take(one+"x") {
		t.Error("what is no link lets in")
	}
	if !s.take(one) || s.take(one) {
		t.Error("a link lets in once, not never or twice")
	}
	now.Time = now.Add(linkLasts + time.Second)
	if s.take(other) {
		t.Error("an old link lets in")
	}
}

func TestLinksAreBounded(t *testing.T) {
	s := newSessions(time.Now)
	first := s.link(false)
	for range maxLinks {
		s.link(false)
	}
	if len(s.links) != maxLinks || s.take(first) {
		t.Errorf("%d links are kept, the oldest among them", len(s.links))
	}
}

// asked is a request with the cookie of a session.
func asked(s *sessions, secret string) *http.Request {
	r, _ := http.NewRequest(http.MethodGet, "http://localhost/ui/", nil)
	r.AddCookie(&http.Cookie{Name: s.cookie, Value: secret})
	return r
}

func TestSessionsEnd(t *testing.T) {
	now := &clock{time.Now()}
	s := newSessions(now.now)
	used, idle1 := s.open(nil, ""), s.open(nil, "")
	life := s.of(asked(s, idle1)).life
	now.Time = now.Add(idle / 2)
	if s.of(asked(s, used)) == nil {
		t.Fatal("a session has ended too early")
	}
	now.Time = now.Add(idle/2 + time.Second)
	if s.of(asked(s, used)) == nil {
		t.Error("a session that is used has ended")
	}
	if s.of(asked(s, idle1)) != nil || life.Err() == nil {
		t.Error("a session that nobody uses goes on")
	}
	s.end(s.of(asked(s, used)))
	if s.of(asked(s, used)) != nil {
		t.Error("a session that was ended goes on")
	}
	twice := asked(s, s.open(nil, ""))
	twice.AddCookie(&http.Cookie{Name: s.cookie, Value: "x"})
	if s.of(twice) != nil {
		t.Error("of two cookies of that name one counts")
	}
}

func TestSessionsAreBounded(t *testing.T) {
	now := &clock{time.Now()}
	s := newSessions(now.now)
	first := s.open(nil, "")
	for range maxSessions {
		now.Time = now.Add(time.Second)
		s.open(nil, "")
	}
	if len(s.all) != maxSessions || s.of(asked(s, first)) != nil {
		t.Errorf("%d sessions are kept, the longest unused among them", len(s.all))
	}
}

// The bearer of one key takes no places but its own.
func TestSessionsOfAKeyAreBounded(t *testing.T) {
	now := &clock{time.Now()}
	s := newSessions(now.now)
	owner, other := s.open(nil, ""), s.open(nil, "key|other")
	var last string
	for range 2 * maxSessions {
		now.Time = now.Add(time.Second)
		last = s.open(nil, "key|ci")
	}
	if len(s.all) != maxOfHolder+2 || s.of(asked(s, owner)) == nil || s.of(asked(s, other)) == nil || s.of(asked(s, last)) == nil {
		t.Errorf("%d sessions are kept", len(s.all))
	}
}
