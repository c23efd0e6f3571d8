package page

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"toolfinch/trust/inbound"
)

const (
	// maxSessions and maxLinks bound what is remembered; the oldest leaves first.
	maxSessions = 100
	maxOfHolder = 8 // sessions of one API key: they are not to take the owner's places
	maxLinks    = 16
	maxFlashes  = 8

	linkLasts = 10 * time.Minute
	// idle is how long a session lasts that nobody uses. A page that is looked at uses it.
	idle = 12 * time.Hour
)

// digest is the SHA-256 of a secret: what is remembered of it.
type digest = [sha256.Size]byte

// sessions are those who were let in, and the links that let somebody in.
type sessions struct {
	now    func() time.Time
	cookie string // its name, which is of this process alone: cookies do not tell ports apart

	mu    sync.Mutex // guards all, what is in the sessions, and links; held for look-ups only
	all   map[digest]*session
	links []link // the oldest first
}

// session is one browser that was let in.
type session struct {
	id     digest
	bearer *inbound.Bearer // nil: the owner
	holder string          // the principal of the bearer, "" for the owner
	life   context.Context // ends with the session
	end    context.CancelFunc

	used    time.Time // guarded by sessions.mu, as are the flashes
	flashes []flash
}

type link struct {
	id    digest
	until time.Time
	here  bool // see Server.Link
}

// flash is something that the next page tells.
type flash struct {
	Kind flashKind
	Text string
}

type flashKind string

const (
	good flashKind = "good"
	bad  flashKind = "bad"
)

func newSessions(now func() time.Time) *sessions {
	return &sessions{now: now, cookie: "toolfinch-" + strings.ToLower(rand.Text()[:8]), all: map[digest]*session{}}
}

// link makes a link.
func (s *sessions) link(here bool) (secret string) {
	secret = rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLinks()
	if len(s.links) >= maxLinks {
		s.links = slices.Delete(s.links, 0, len(s.links)-maxLinks+1)
	}
	s.links = append(s.links, link{sha256.Sum256([]byte(secret)), s.now().Add(linkLasts), here})
	return secret
}

func (s *sessions) forgetLinks() {
	s.links = slices.DeleteFunc(s.links, func(l link) bool { return s.now().After(l.until) })
}

// take uses a link up, and reports whether it was there.
func (s *sessions) take(secret string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.find(secret)
	if found < 0 {
		return false
	}
	s.links = slices.Delete(s.links, found, found+1)
	return true
}

// isHere reports whether a link is one of here: see Server.Link.
func (s *sessions) isHere(secret string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.find(secret)
	return found >= 0 && s.links[found].here
}

// find returns where a link is, -1 for nowhere; it is called with mu held.
func (s *sessions) find(secret string) int {
	id := sha256.Sum256([]byte(secret))
	s.forgetLinks()
	found := -1
	for i, l := range s.links {
		if subtle.ConstantTimeCompare(l.id[:], id[:]) == 1 {
			found = i
		}
	}
	return found
}

// open begins a session, of holder where that is not the owner, and returns the secret that
// its cookie has.
func (s *sessions) open(bearer *inbound.Bearer, holder string) (secret string) {
	secret = rand.Text()
	one := &session{id: sha256.Sum256([]byte(secret)), bearer: bearer, holder: holder}
	one.life, one.end = context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetIdle()
	if holder != "" {
		s.makeRoom(maxOfHolder, func(other *session) bool { return other.holder == holder })
	}
	s.makeRoom(maxSessions, func(*session) bool { return true })
	one.used = s.now()
	s.all[one.id] = one
	return secret
}

// makeRoom drops those of some sessions that were used longest ago, until one more makes
// limit; it is called with mu held.
func (s *sessions) makeRoom(limit int, of func(*session) bool) {
	var some []*session
	for _, one := range s.all {
		if of(one) {
			some = append(some, one)
		}
	}
	slices.SortFunc(some, func(a, b *session) int { return a.used.Compare(b.used) })
	for _, one := range some[:max(len(some)-limit+1, 0)] {
		s.drop(one)
	}
}

// forgetIdle and drop are called with mu held.
func (s *sessions) forgetIdle() {
	for _, one := range s.all {
		if s.now().Sub(one.used) > idle {
			s.drop(one)
		}
	}
}

func (s *sessions) drop(one *session) {
	delete(s.all, one.id)
	one.end()
}

// of returns the session of a request, nil for none.
func (s *sessions) of(r *http.Request) *session {
	sent := r.CookiesNamed(s.cookie)
	if len(sent) != 1 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetIdle()
	one := s.all[sha256.Sum256([]byte(sent[0].Value))] // a digest gives nothing away by how long it is looked for
	if one != nil {
		one.used = s.now()
	}
	return one
}

// end ends a session.
func (s *sessions) end(one *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(one)
}

func (s *sessions) say(one *session, f flash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(one.flashes) < maxFlashes {
		one.flashes = append(one.flashes, f)
	}
}

// said returns what the next page tells, once.
func (s *sessions) said(one *session) []flash {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := one.flashes
	one.flashes = nil
	return told
}
