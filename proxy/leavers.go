package proxy

import (
	"sync"
	"time"

	"toolfinch/register"
)

const maxLeft = 64 // clients whose end is remembered

// clientKey is what several sessions of one client have in common.
type clientKey struct{ name, principal, transport string }

// leavers remembers when the sessions of clients ended.
type leavers struct {
	mu sync.Mutex // guards at; held for look-ups only
	at map[clientKey]time.Time
}

// note remembers the end of a session. Of more than maxLeft clients, the one that left first is forgotten.
func (l *leavers) note(c register.Connected) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at == nil {
		l.at = map[clientKey]time.Time{}
	}
	l.at[clientKey{c.Client, c.Principal, c.Transport}] = time.Now()
	if len(l.at) <= maxLeft {
		return
	}
	var first clientKey
	for key, at := range l.at {
		if l.at[first].IsZero() || at.Before(l.at[first]) {
			first = key
		}
	}
	delete(l.at, first)
}

// since returns the clients that left after a time.
func (l *leavers) since(t time.Time) map[clientKey]time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := map[clientKey]time.Time{}
	for key, at := range l.at {
		if at.After(t) {
			left[key] = at
		}
	}
	return left
}
