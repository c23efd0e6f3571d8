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
	// Bounds of kept sessions, links and messages. The oldest session or link is dropped first.
	maxSessions = 100
	maxOfHolder = 8 // sessions of one principal, so that they cannot displace the owner's sessions
	maxLinks    = 16
	maxFlashes  = 8

	linkLasts = 10 * time.Minute
	// idle is how long an unused session lasts. An open page uses its session.
	idle = 12 * time.Hour
)

// digest is the SHA-256 of a secret. The secret itself is not kept.
type digest = [sha256.Size]byte

// sessions are the sessions of logged-in users, and the login links.
type sessions struct {
	now    func() time.Time
	cookie string // random name of the cookie, because all ports of a host share cookies

	mu    sync.Mutex // guards all, links, and used and flashes of each session; never held over I/O
	all   map[digest]*session
	links []link // oldest first
}

// session is a login of one browser.
type session struct {
	id     digest
	bearer *inbound.Bearer // nil for the owner
	holder string          // the bearer's principal; "" for the owner
	life   context.Context // ends with the session
	end    context.CancelFunc

	used    time.Time // used and flashes are guarded by sessions.mu
	flashes []flash
}

type link struct {
	id    digest
	until time.Time
	here  bool // see Server.Link
}

// flash is a message that the next page shows.
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

// take removes a link. It reports whether the link existed.
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

// isHere reports whether a link was made with here set: see Server.Link.
func (s *sessions) isHere(secret string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.find(secret)
	return found >= 0 && s.links[found].here
}

// find returns the index of a link in links, -1 for none. The caller holds mu.
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

// open begins a session and returns the secret for its cookie. holder is "" for the owner.
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

// makeRoom drops the least recently used sessions that of selects, until one more fits into limit. The caller holds mu.
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

// forgetIdle drops idle sessions. The caller holds mu, as for drop.
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
	one := s.all[sha256.Sum256([]byte(sent[0].Value))] // safe against timing attacks: the key is a digest
	if one != nil {
		one.used = s.now()
	}
	return one
}

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

// said returns and removes the messages.
func (s *sessions) said(one *session) []flash {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := one.flashes
	one.flashes = nil
	return told
}
