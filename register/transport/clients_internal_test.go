package transport

import (
	"log/slog"
	"testing"

	"toolfinch/internal/identity"
	"toolfinch/internal/must"
	"toolfinch/register"
)

// The timer of a session that was idle may come late: in the moment in which the session comes into use, or after
// that, while it is idle anew.
func TestAnOldTimerEndsNoSession(t *testing.T) {
	clients := NewClients(Limits{})
	log := slog.New(slog.DiscardHandler)
	live := register.New(register.Options{Version: "1"}, func(identity.Party) *register.Served { return &register.Served{} }, log)
	s := must.Get(clients.open(t.Context(), t.Context(), live, log, "one", false, nil))(t)
	clients.rest(s, true)
	old := s.usage.idle
	for range 2 {
		if !clients.use(s) {
			t.Fatal("it has ended")
		}
		clients.expire(s, old)
		clients.rest(s, true)
		clients.expire(s, old)
	}
	clients.expire(s, s.usage.idle)
	if clients.use(s) {
		t.Error("its own timer did not end it")
	}
}

func TestTheEndOfASessionIsToldOnce(t *testing.T) {
	clients, ended := NewClients(Limits{}), 0
	log := slog.New(slog.DiscardHandler)
	live := register.New(register.Options{Version: "1"}, func(identity.Party) *register.Served { return &register.Served{} }, log)
	s := must.Get(clients.open(t.Context(), t.Context(), live, log, "one", false, func() { ended++ }))(t)
	for range 2 {
		if s.close(); ended != 1 || live.Knows("one") {
			t.Errorf("it ended %d times, want once; is it known: %t", ended, live.Knows("one"))
		}
	}
}
