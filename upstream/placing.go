package upstream

import (
	"context"
	"slices"

	"toolfinch/tool"
)

// placing is what kind of connection a call is to have.
//
// Servers that speak both eras document that they ask their client something in
// the legacy era only. So a legacy client that can be asked gets a connection of
// its own era beside the main one, which is of 2026-07-28.
type placing struct {
	beside bool // one of the legacy era, beside the main one of 2026-07-28
	alone  bool // one that no other client has
}

// place decides which kind of connection a call of client is to have.
func (s *server) place(ctx context.Context, client *tool.Client) (p placing, err error) {
	s.mu.Lock()
	era, met, interactive, handshakes := s.era, s.connected, s.interactive, !s.noHandshake
	s.mu.Unlock()
	isolate := s.settings.Isolate == IsolateAlways || s.settings.Isolate != IsolateNever && interactive
	legacy := client.Answers() && !client.Modern
	if isolate && era == EraUnknown || legacy && era != EraLegacy && !met {
		c, err := s.connect(ctx)
		if err != nil {
			return p, err
		}
		era = c.era
	}
	p.beside = legacy && era == EraModern && handshakes
	p.alone = isolate && (era == EraLegacy || p.beside)
	return p, nil
}

// take returns the connection for a call of client and its seat, which the call
// leaves afterwards, and whether the client has it alone.
func (s *server) take(ctx context.Context, client *tool.Client) (*seat, *conn, bool, error) {
	for {
		p, err := s.place(ctx, client)
		if err != nil {
			return nil, nil, false, err
		}
		place, err := s.sit(client, p)
		if err != nil {
			return nil, nil, false, err
		}
		c, err := place.line.connect(ctx)
		if err == nil && !(p.beside && c.sessionless()) {
			return place, c, p.alone, nil
		}
		s.leave(place)
		if !p.beside || ctx.Err() != nil || !s.withoutHandshake(place, err) {
			return nil, nil, false, err
		}
	}
}

// withoutHandshake notes that a legacy connection beside the main one gives
// clients nothing, until the main one is made anew: the server refused it, with
// err, or has no session over it, in which it could ask. It reports false when
// that is not certain because the seat was given up.
func (s *server) withoutHandshake(place *seat, err error) bool {
	given := place.line.given()
	s.mu.Lock()
	known := s.noHandshake
	s.noHandshake = known || !given
	s.mu.Unlock()
	if known || given {
		return known
	}
	s.log.Debug("legacy clients share the connection of the 2026-07-28 era: the server has none for them that it could ask over", "error", err)
	s.drop(func(one *seat) bool { return one == place })
	return true
}

// beside returns the connection of legacy clients over stdio beside the main one,
// nil without. It is another process, which tells of changes that the main one
// does not know.
func (s *server) beside() *conn {
	for _, l := range s.lines() {
		if c := l.current(); l.common && c != nil && c.http == nil {
			return c
		}
	}
	return nil
}

// common returns the seat for legacy clients beside the main one of 2026-07-28,
// until the server has asked something and each gets its own. Lock of seats held.
func (s *server) common() *seat {
	t := &s.seats
	if i := slices.IndexFunc(t.extra, func(one *seat) bool { return one.common }); i >= 0 {
		return t.extra[i]
	}
	one := &seat{common: true, line: &line{server: s, legacy: true, common: true, declare: []byte(capabilities)}}
	s.addSeat(one)
	return one
}
