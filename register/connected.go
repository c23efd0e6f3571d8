package register

import (
	"time"

	"toolfinch/internal/identity"
)

// Connected is a client that is there: a session of the legacy era, or an event stream of
// a 2026-07-28 client, which has no session.
type Connected struct {
	Client    string // "name version", as it says itself
	Principal string // ID of who opened it, "" for nobody
	Transport string // one of trust's transports
	Modern    bool   // of the 2026-07-28 era
	Since     time.Time
}

// Connected returns the clients that are there, in no order.
func (l *Live) Connected() []Connected {
	var all []Connected
	for _, s := range l.everySession() {
		all = append(all, s.connected())
	}
	for _, t := range l.listeners.all() {
		all = append(all, Connected{Client: clientName(t.party.Client, t.party.Version), Principal: principalOf(t.party), Transport: t.party.Transport, Modern: true, Since: t.since})
	}
	return all
}

func (s *session) connected() Connected {
	return Connected{Client: s.described().Name, Principal: s.principal, Transport: s.by().Transport, Since: s.since}
}

func principalOf(p identity.Party) string {
	if p.Principal == nil {
		return ""
	}
	return p.Principal.ID
}
