package store_test

import (
	"encoding/hex"
	"slices"
	"testing"

	"toolfinch/e2e/postgres"
	"toolfinch/store"
	. "toolfinch/store/storetest"
)

// A session is its replica's until another one takes it over, which the first is told; only the last writes it.
func TestSessionsAreTakenOver(t *testing.T) {
	at := postgres.Start(t)
	s := Open(t, at)
	rows, shared := s.Sessions()
	if !shared {
		t.Fatal("a store in PostgreSQL has no sessions of replicas")
	}
	l, err := s.Replicas().Listen(t.Context())
	Must(t, err)
	defer l.Close()
	one := store.Session{Hash: [32]byte{1}, Replica: "a", View: "v", Principal: "alice", Initialize: []byte("hello"), State: []byte("{}")}
	put := func(s store.Session, want bool) {
		t.Helper()
		if kept, err := rows.Put(t.Context(), s); err != nil || kept != want {
			t.Errorf("put: %t, %v", kept, err)
		}
	}
	take := func(view, principal, replica string, want *store.Session) {
		t.Helper()
		got, found, err := rows.Take(t.Context(), one.Hash, view, principal, replica)
		Must(t, err)
		if found != (want != nil) || found && (got.Replica != want.Replica || string(got.State) != string(want.State) || string(got.Initialize) != "hello") {
			t.Errorf("%s takes %+v, want %+v", replica, got, want)
		}
	}
	change := func(replica, state string, lost bool) {
		t.Helper()
		got, err := rows.Change(t.Context(), replica, map[[32]byte][]byte{one.Hash: []byte(state)})
		if err != nil || slices.Equal(got, [][32]byte{one.Hash}) != lost {
			t.Errorf("%s writes, and has lost %v, %v", replica, got, err)
		}
	}
	take("v", "alice", "b", nil)
	put(one, true)
	change("a", `{"n":1}`, false)
	take("other", "alice", "b", nil)
	take("v", "bob", "b", nil)
	take("v", "", "b", nil)
	take("v", "alice", "b", &store.Session{Replica: "a", State: []byte(`{"n":1}`)})
	n, err := l.Next(t.Context())
	Must(t, err)
	if want := (store.Notice{Topic: store.Topic{Kind: store.TopicSession, Key: "a"}, Detail: hex.EncodeToString(one.Hash[:])}); n != want {
		t.Errorf("notified %+v, want %+v", n, want)
	}
	change("a", `{"n":2}`, true)
	put(one, false)
	change("b", `{"n":3}`, false)
	take("v", "alice", "b", &store.Session{Replica: "b", State: []byte(`{"n":3}`)}) // its own, after a restart of the client's connection
	if lost, err := rows.Keep(t.Context(), "a", [][32]byte{one.Hash}); err != nil || len(lost) != 1 {
		t.Errorf("a keeps what is b's: %v, %v", lost, err)
	}
	Must(t, rows.Drop(t.Context(), "a", [][32]byte{one.Hash}), rows.Sweep(t.Context(), 1e12))
	take("v", "alice", "b", &store.Session{Replica: "b", State: []byte(`{"n":3}`)})
	Must(t, rows.Drop(t.Context(), "b", [][32]byte{one.Hash}))
	take("v", "alice", "b", nil)
	put(one, true)
	Must(t, rows.Sweep(t.Context(), 0))
	take("v", "alice", "b", nil)
}

// All replicas have one key for what clients carry.
func TestTheStateKeyIsOne(t *testing.T) {
	at := postgres.Start(t)
	a, err := Open(t, at).Replicas().StateKey(t.Context())
	Must(t, err)
	if b, err := Open(t, at).Replicas().StateKey(t.Context()); err != nil || a != b || a == [32]byte{} {
		t.Errorf("the keys are %x and %x, %v", a, b, err)
	}
}
